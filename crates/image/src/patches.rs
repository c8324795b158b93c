//! States of an image that was patched: the records that patches left.
//!
//! ```text
//! | superblock | image as it was built | new bytes … | record 1 | new bytes … | record 2 |
//!      │                                                   ▲          │             ▲
//!      └ counts all blocks, so the last of them is ────────│──────────│─────────────┘
//!                                                          └ previous ┘
//! ```
//!
//! A record has the superblock of the state before it. So each one is checked against the superblock that it was made for,
//! and numbers descend: a chain ends.

use anteros_format::Corrupt;
use anteros_format::patch::{self, PatchRecord, RECORD_BYTES, superblock_crc};
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};

use crate::error::{Error, Place, Result};
use crate::image::Image;

/// A state that a patch or a rollback made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patched {
    /// The byte at which its record begins.
    pub at: u64,
    /// Its record.
    pub record: PatchRecord,
    /// The superblock that it had, or has.
    pub superblock: [u8; SUPERBLOCK_BYTES],
}

impl Image {
    /// The current state, if a patch or a rollback made it. Only then does the image end with a record; a file that ends with
    /// the bytes of one is for [`CheckOptions::gaps_in`](crate::CheckOptions::gaps_in) to tell from it.
    ///
    /// # Errors
    ///
    /// If the record breaks a rule, or cannot be read.
    pub fn patched(&self) -> Result<Option<Patched>> {
        let mut superblock = [0; SUPERBLOCK_BYTES];
        self.read_primary(Place::Superblock, SUPERBLOCK_OFFSET, &mut superblock)?;
        let room = patch::room(self.superblock().block_bytes());
        let end = self.recorded_bytes();
        let Some(at) = end.checked_sub(room).filter(|_| end <= self.primary_size()) else {
            return Ok(None);
        };
        let bytes = self.record_at(at)?;
        match PatchRecord::is_at(&bytes) {
            true => self.patched_by(at, superblock).map(Some),
            false => Ok(None),
        }
    }

    /// All states that patches and rollbacks made, the current one first.
    ///
    /// # Errors
    ///
    /// As [`patched`](Self::patched), of any of them.
    pub fn patches(&self) -> Result<Vec<Patched>> {
        let mut states: Vec<Patched> = self.patched()?.into_iter().collect();
        while let Some(last) = states.last() {
            let Some(at) = last.record.previous else {
                break;
            };
            let (former, number) = (last.record.former, last.record.number);
            let state = self.patched_by(at, former)?;
            if state.record.number.checked_add(1) != Some(number) {
                return broken("number", state.record.number.into());
            }
            states.push(state);
        }
        Ok(states)
    }

    /// The state with this record and this superblock.
    fn patched_by(&self, at: u64, superblock: [u8; SUPERBLOCK_BYTES]) -> Result<Patched> {
        let parsed = Superblock::parse(&superblock).map_err(Error::at(Place::Image))?;
        let bytes = self.record_at(at)?;
        let record = PatchRecord::parse(&bytes, at, &parsed).map_err(Error::at(Place::Image))?;
        let crc = superblock_crc(&superblock);
        if record.superblock != crc {
            return broken("sum of its superblock", crc.into());
        }
        let end = parsed.blocks.checked_mul(parsed.block_bytes().into());
        if end != Some(record.end) {
            return broken("end", record.end);
        }
        Ok(Patched {
            at,
            record,
            superblock,
        })
    }

    fn record_at(&self, at: u64) -> Result<[u8; RECORD_BYTES]> {
        let mut bytes = [0; RECORD_BYTES];
        self.read_primary(Place::Image, at, &mut bytes)?;
        Ok(bytes)
    }
}

fn broken<T>(what: &'static str, found: u64) -> Result<T> {
    Err(Error::Corrupt {
        place: Place::Image,
        fault: Corrupt::PatchRecord { what, found },
    })
}
