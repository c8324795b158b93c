//! Checkpoint packs on the device, and the tables that they say of which copies count.

#![deny(clippy::indexing_slicing)]

use std::io::ErrorKind;

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::error::LogError;
use crate::layout::checkpoint::Checkpoint;
use crate::layout::summary::Owner;
use crate::layout::table::{SIT_PER_BLOCK, SitEntry};
use crate::layout::{BLOCK_BYTES, Block, Corrupt, Superblock};
use crate::statistics::Cause;
use crate::store::blocks::Store;
use crate::store::medium::{read_block, zeroed};

/// Rule that a pack breaks of which a block cannot be read.
pub(crate) const UNREADABLE: &str = "a block of it cannot be read";

/// The newer of the checkpoints that are whole, one that a newer one has superseded included.
pub(crate) fn newest_pack(
    device: &dyn WritableDevice,
    superblock: &Superblock,
) -> Result<(Checkpoint, Option<Corrupt>), LogError> {
    match (
        read_pack(device, superblock, 0)?,
        read_pack(device, superblock, 1)?,
    ) {
        (Ok(first), Ok(second)) if first.version > second.version => Ok((first, None)),
        (Ok(_), Ok(second)) => Ok((second, None)),
        (Ok(only), Err(fault)) | (Err(fault), Ok(only)) => Ok((only, Some(fault))),
        (Err(first), Err(second)) => Err(LogError::NoCheckpoint(first, second)),
    }
}

/// The newer of the checkpoints that are whole. If a newer one was on the device and is not any more, that is an
/// error.
pub(crate) fn newest_checkpoint(
    device: &dyn WritableDevice,
    superblock: &Superblock,
) -> Result<Checkpoint, LogError> {
    let (newest, fault) = newest_pack(device, superblock)?;
    match newest.superseded {
        false => Ok(newest),
        true => Err(LogError::OutOfDate {
            version: newest.version,
            fault: fault.unwrap_or(Corrupt::Checkpoint {
                rule: "a newer one was there",
                found: newest.version,
            }),
        }),
    }
}

pub(crate) fn read_pack(
    device: &dyn WritableDevice,
    superblock: &Superblock,
    pack: u64,
) -> Result<Result<Checkpoint, Corrupt>, LogError> {
    let room = superblock.checkpoint_blocks;
    let start = superblock.checkpoint_start + pack * u64::from(room);
    let first = match read_part(device, start)? {
        Ok(first) => first,
        Err(fault) => return Ok(Err(fault)),
    };
    let blocks = Checkpoint::header_blocks(&first).filter(|&blocks| blocks <= room);
    let mut bytes = first.to_vec();
    for block in start + 1..start + u64::from(blocks.unwrap_or(1)) {
        match read_part(device, block)? {
            Ok(part) => bytes.extend_from_slice(&part[..]),
            Err(fault) => return Ok(Err(fault)),
        }
    }
    Ok(Checkpoint::parse(&bytes, superblock).and_then(|found| {
        if found.version % 2 == pack {
            Ok(found)
        } else {
            Err(Corrupt::PackPlace {
                pack,
                version: found.version,
            })
        }
    }))
}

/// A block of a pack. One that cannot be read is as good as one with a wrong checksum; a device that ends before it is not.
fn read_part(
    device: &dyn WritableDevice,
    block: u64,
) -> Result<Result<Box<Block>, Corrupt>, LogError> {
    // Some errors pass.
    match read_block(device, block).or_else(|_| read_block(device, block)) {
        Ok(found) => Ok(Ok(found)),
        Err(FsError::Io(error)) if error.kind() != ErrorKind::UnexpectedEof => {
            Ok(Err(Corrupt::Checkpoint {
                rule: UNREADABLE,
                found: block,
            }))
        }
        Err(error) => Err(error.into()),
    }
}

/// The segment table as the checkpoint means it.
pub(crate) fn segment_table(
    device: &dyn WritableDevice,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> Result<Vec<SitEntry>, LogError> {
    let RawTable {
        entries,
        unreadable,
    } = raw_segment_table(device, superblock, checkpoint);
    if let Some((_, error)) = unreadable.into_iter().next() {
        return Err(error.into());
    }
    for (segment, entry) in (0..).zip(&entries) {
        entry.check(segment)?;
    }
    Ok(entries)
}

/// A segment table as it was read.
pub(crate) struct RawTable {
    pub(crate) entries: Vec<SitEntry>,
    /// Its blocks that cannot be read. What entries there are instead is what they were, or nothing.
    pub(crate) unreadable: Vec<(u32, FsError)>,
}

/// Reads the segment table and checks none of its entries.
pub(crate) fn raw_segment_table(
    device: &dyn WritableDevice,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> RawTable {
    let mut entries = Vec::with_capacity(superblock.segments as usize);
    let mut unreadable = Vec::new();
    for index in 0..superblock.sit_blocks {
        let (start, blocks) = (superblock.sit_start, superblock.sit_blocks);
        let counts = checkpoint.sit_bits.place(start, blocks, index);
        let block = read_block(device, counts).unwrap_or_else(|error| {
            unreadable.push((index, error));
            let copies = 2 * start + u64::from(blocks) + 2 * u64::from(index);
            read_block(device, copies - counts).unwrap_or_else(|_| zeroed())
        });
        let left = superblock.segments - entries.len() as u32;
        for at in 0..SIT_PER_BLOCK.min(left) {
            entries.push(SitEntry::read(&block, at));
        }
    }
    for &(segment, entry) in &checkpoint.sit_journal {
        if let Some(stated) = entries.get_mut(segment as usize) {
            *stated = entry;
        }
    }
    RawTable {
        entries,
        unreadable,
    }
}

impl Store {
    /// The first block of the pack in which a version lies.
    pub(crate) fn pack_place(&self, version: u64) -> u64 {
        let room = u64::from(self.superblock.checkpoint_blocks);
        self.superblock.checkpoint_start + version % 2 * room
    }

    /// Has the pack before this one say that it counts no more: what it names may be overwritten from here on, and should this
    /// one be damaged some day, nobody must take that for what it was. It goes with the next flush.
    pub(crate) fn supersede(&mut self, version: u64) -> FsResult<()> {
        let place = self.pack_place(version);
        let mut first = match read_block(&*self.device, place) {
            Ok(first) => first,
            // Should it be readable again some day, it must not be what it was.
            Err(FsError::Io(_)) => {
                return Ok(self
                    .device
                    .write_at(place * BLOCK_BYTES as u64, &*zeroed())?);
            }
            Err(error) => return Err(error),
        };
        if Checkpoint::supersede(&mut first) {
            self.statistics.wrote(Cause::Checkpoint);
            self.device.write_at(place * BLOCK_BYTES as u64, &*first)?;
        }
        Ok(())
    }

    /// Writes summaries over those that are there. That may be torn: the checkpoint has them until the next one has been written, whose
    /// flush they go with.
    pub(crate) fn rewrite_summaries(&mut self, summaries: &[(u32, Vec<Owner>)]) -> FsResult<()> {
        for (segment, owners) in summaries {
            let (place, summary) = self.segments.summary(*segment, owners);
            self.push(place, summary);
            self.statistics.wrote(Cause::Summary);
        }
        self.submit()
    }
}
