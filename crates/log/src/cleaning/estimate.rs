//! Gain of a compression in the background, told without one: windows are compressed, and what they would take is counted.
//!
//! A sample is every so-many-th window of each class. What the others take is taken to shrink as those do.

use std::collections::BTreeMap;

use anteros_core::FsResult;

use crate::cleaning::Cleaning;
use crate::cleaning::compact::Pressed;
use crate::cleaning::order::Window;
use crate::compress::chunks::{Chunk, have};
use crate::compress::kind::ContentKind;
use crate::files::usage::Usage;
use crate::layout::BLOCK_BYTES;
use crate::layout::node::{Attributes, INODE_POINTERS};
use crate::layout::packed::{ROOM_MAX, SLOT_BYTES};
use crate::statistics::Class;
use crate::store::medium::BLOCK;

/// Windows of one class that a compression in the background would look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gain {
    windows: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes of content that were looked at.
    pub tried_bytes: u64,
    /// Bytes of the device that all of them take.
    stored: u64,
    /// Bytes that those take which were looked at, and that they would take.
    tried: u64,
    shrunk: u64,
    /// Bytes that inodes would give back.
    inodes: u64,
}

impl Gain {
    /// Bytes of the device that all of them would take.
    fn stored_after(&self) -> u64 {
        let share = u128::from(self.stored) * u128::from(self.shrunk);
        let of_all = share.checked_div(self.tried.into());
        of_all.map_or(self.stored, |bytes| bytes as u64)
    }
}

/// Result that a compression in the background would have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Files that were asked for, as they lie.
    pub usage: Usage,
    gains: [Gain; Class::ALL.len()],
    /// Warnings about content that could not be read.
    pub warnings: Vec<String>,
}

impl Estimate {
    /// Returns what would be looked at of a class.
    pub fn gain(&self, class: Class) -> &Gain {
        &self.gains[class as usize]
    }

    /// Bytes of the device that the files of a class would take.
    pub fn stored_bytes_after(&self, class: Class) -> u64 {
        let gain = self.gain(class);
        let moves = gain.stored + gain.inodes;
        let used = self.usage.class(class);
        used.stored_bytes.saturating_sub(moves) + gain.stored_after()
    }
}

/// An estimate in the making.
pub(crate) struct Trial {
    pub(crate) estimate: Estimate,
    /// Kinds of the files.
    pub(crate) kinds: BTreeMap<u32, ContentKind>,
    /// The first of so many windows of a class is looked at.
    stride: u64,
}

impl Trial {
    pub(crate) fn new(stride: u64) -> Self {
        Self {
            estimate: Estimate::default(),
            kinds: BTreeMap::new(),
            stride: stride.max(1),
        }
    }

    fn gain_mut(&mut self, ino: u32) -> &mut Gain {
        let kind = self.kinds.get(&ino).copied();
        let class = Class::from(kind.unwrap_or(ContentKind::Other));
        &mut self.estimate.gains[class as usize]
    }

    /// Counts a window, and tells whether it is to be looked at.
    fn counts(&mut self, ino: u32, bytes: u64, stored: u64) -> bool {
        let stride = self.stride;
        let gain = self.gain_mut(ino);
        let is_wanted = gain.windows % stride == 0;
        gain.windows += 1;
        gain.bytes += bytes;
        gain.stored += stored;
        is_wanted
    }
}

impl Cleaning {
    /// Notes a file, and what its inode gains.
    pub(crate) fn note_file(&mut self, ino: u32, trial: &mut Trial) -> FsResult<()> {
        trial.kinds.insert(ino, self.content_kind(ino)?);
        if self.is_to_be_packed(ino)? {
            let packed = inode_bytes(&self.live(ino)?.inode().attributes);
            trial.gain_mut(ino).inodes += BLOCK.saturating_sub(packed);
        }
        Ok(())
    }

    /// Counts windows, and returns those that are to be looked at.
    pub(crate) fn sample(
        &mut self,
        windows: Vec<Window>,
        trial: &mut Trial,
    ) -> FsResult<Vec<Window>> {
        let mut sample = Vec::new();
        for window in windows {
            let used = self.use_of(window.ino, window.range.clone())?;
            if trial.counts(window.ino, used.bytes, used.stored_bytes) {
                sample.push(window);
            }
        }
        Ok(sample)
    }

    /// Counts what a window takes, and what it would take.
    pub(crate) fn weigh(&mut self, pressed: &Pressed, trial: &mut Trial) -> FsResult<()> {
        let window = &pressed.taken.window;
        let used = self.use_of(window.ino, window.range.clone())?;
        let shrunk = match pressed.taken.places.is_empty() {
            true => used.stored_bytes,
            false => self.stored_after(pressed),
        };
        let gain = trial.gain_mut(window.ino);
        gain.tried_bytes += used.bytes;
        gain.tried += used.stored_bytes;
        gain.shrunk += shrunk;
        Ok(())
    }

    /// Bytes that a window would take: those of its chunks, and of what stays where it is.
    fn stored_after(&self, pressed: &Pressed) -> u64 {
        let chunks = &pressed.chunks;
        let places = pressed.taken.places.iter();
        let left = places.filter(|(lblk, _)| !have(chunks, *lblk));
        let left = self.stored_bytes(None, left.map(|(_, pointer)| *pointer));
        let slots_max = self.store.superblock().slots_max;
        left + chunks
            .iter()
            .map(|chunk| packed_bytes(chunk, slots_max))
            .sum::<u64>()
    }
}

/// Bytes of a packed block that an inode takes, about. Pointers differ in half of their bytes, and short texts shrink to five
/// eighths by LZ4.
fn inode_bytes(attributes: &Attributes) -> u64 {
    let body = match attributes.is_inline {
        true => attributes.size * 5 / 8,
        false => 4 * attributes.blocks.min(INODE_POINTERS.into()),
    };
    256 + body
}

/// Bytes of packed blocks that a chunk takes. Chunks go on in the next block, so each block is full.
fn packed_bytes(chunk: &Chunk, slots_max: u8) -> u64 {
    let len = chunk.bytes.len();
    let slots = 1 + len / ROOM_MAX;
    let bytes = len + slots * SLOT_BYTES;
    let share = (bytes * BLOCK_BYTES).div_ceil(ROOM_MAX + SLOT_BYTES);
    share.max(BLOCK_BYTES / usize::from(slots_max)) as u64
}
