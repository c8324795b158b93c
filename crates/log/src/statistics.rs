//! Counters of what was written to the device, by cause, and what became of content, by its class.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::compress::kind::ContentKind;
use crate::layout::BLOCK_BYTES;
use crate::layout::packed::SLOT_BYTES;

/// Tells why a block was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Content of files, and directories.
    Data,
    /// Nodes.
    Node,
    /// Blocks that a group has besides its data.
    Record,
    /// Owners of the blocks of a segment.
    Summary,
    /// Packs and tables.
    Checkpoint,
    /// Content and nodes that the cleaner moved.
    Cleaning,
    /// Content that was compressed in the background.
    Background,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Data,
        Self::Node,
        Self::Record,
        Self::Summary,
        Self::Checkpoint,
        Self::Cleaning,
        Self::Background,
    ];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Node => "node",
            Self::Record => "record",
            Self::Summary => "summary",
            Self::Checkpoint => "checkpoint",
            Self::Cleaning => "cleaning",
            Self::Background => "background",
        }
    }
}

/// Counters since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    blocks: [u64; Cause::ALL.len()],
    classes: [ClassStatistics; Class::ALL.len()],
    /// Groups written.
    pub groups: u64,
    /// Atomic writes that were committed.
    pub atomic_writes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Segments cleaned.
    pub cleaned: u64,
    /// Segments whose holes were filled, or begun to be.
    pub threaded: u64,
    /// Segments of which the device was told that they are free, and that made it fail.
    pub failed_discards: u64,
    /// Segments that could not be cleaned, and are left alone until the next mount.
    pub quarantined: u64,
    /// Bytes that users wrote.
    pub user_bytes: u64,
}

impl Statistics {
    pub(crate) fn wrote(&mut self, cause: Cause) {
        self.wrote_blocks(cause, 1);
    }

    pub(crate) fn wrote_blocks(&mut self, cause: Cause, blocks: u64) {
        self.blocks[cause as usize] += blocks;
    }

    /// Blocks of 4 KiB that were written for this cause.
    pub fn blocks(&self, cause: Cause) -> u64 {
        self.blocks[cause as usize]
    }

    /// Returns what became of the content of a class.
    pub fn class(&self, class: Class) -> &ClassStatistics {
        &self.classes[class as usize]
    }

    pub(crate) fn class_mut(&mut self, class: Class) -> &mut ClassStatistics {
        &mut self.classes[class as usize]
    }
}

impl Statistics {
    /// Counts the content and nodes that were written since `before` under another cause.
    pub(crate) fn count_as(&mut self, other: Cause, before: &Self) {
        for cause in [Cause::Data, Cause::Node] {
            let moved = self.blocks(cause) - before.blocks(cause);
            self.blocks[cause as usize] -= moved;
            self.blocks[other as usize] += moved;
        }
    }
}

/// Tells what kind of content something is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// Databases of SQLite.
    Database,
    /// Their journals, of either kind.
    Journal,
    /// Content that programs are run from.
    Executable,
    /// Content that has been compressed already: pictures, music, films, archives.
    Media,
    /// Everything else.
    #[default]
    Other,
}

impl Class {
    /// Tells whether such content is compressed before writeback, if it gains.
    pub(crate) fn is_ordinary(self) -> bool {
        matches!(self, Self::Executable | Self::Other)
    }

    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Database,
        Self::Journal,
        Self::Executable,
        Self::Media,
        Self::Other,
    ];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Journal => "journal",
            Self::Executable => "executable",
            Self::Media => "media",
            Self::Other => "other",
        }
    }
}

impl From<ContentKind> for Class {
    fn from(kind: ContentKind) -> Self {
        match kind {
            ContentKind::Database => Self::Database,
            ContentKind::RollbackJournal | ContentKind::WriteAheadLog => Self::Journal,
            ContentKind::Executable => Self::Executable,
            ContentKind::Compressed => Self::Media,
            ContentKind::Other => Self::Other,
        }
    }
}

/// Holds what became of the content of one class since the mount.
///
/// A page has 4,096 bytes. A *write* is what leaves of one file at once: by an fsync, a checkpoint, or since memory was short. What
/// cleaning moves is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassStatistics {
    /// Pages that were given places.
    pub pages: u64,
    /// Bytes that they take there: of compressed ones those of the chunks and of their slots, of others whole blocks.
    pub stored_bytes: u64,
    /// Those of them that were compressed.
    pub compressed_pages: u64,
    /// Those that the policy would have compressed, and that were left as they are: the first page of their write did not shrink enough, or
    /// they gain nothing themselves.
    pub left_pages: u64,
    /// Blocks in which the chunks of a write lie, and how many these would be if they lay there without a gap and without slots; of all
    /// writes.
    pub touched_blocks: u64,
    /// See [`touched_blocks`](Self::touched_blocks).
    pub least_blocks: u64,
    /// Packed blocks that were read for users, some of them ahead.
    pub read_blocks: u64,
    /// Compressed pages in these, valid or not.
    pub read_stored_pages: u64,
    /// Compressed pages of these that users wanted.
    pub read_pages: u64,
    /// For how long pages were compressed, in vain or not, and in the background as well.
    pub compressing: Duration,
    /// For how long they were decompressed, whoever wanted them.
    pub decompressing: Duration,
}

impl ClassStatistics {
    /// Bytes that were stored for each byte of content; `None` if there was none.
    pub fn ratio(&self) -> Option<f64> {
        quotient(self.stored_bytes, self.pages * BLOCK_BYTES as u64)
    }

    /// The compression amplification ratio (FPC, 2.2): blocks that the compressed pages of writes took, to the least number of blocks
    /// that hold them.
    pub fn car(&self) -> Option<f64> {
        quotient(self.touched_blocks, self.least_blocks)
    }

    /// The decompression amplification ratio (FPC, 2.2): compressed pages stored in the blocks that were read, to those of them that
    /// were wanted.
    pub fn dar(&self) -> Option<f64> {
        quotient(self.read_stored_pages, self.read_pages)
    }

    /// Counts pages that are written as they are.
    pub(crate) fn add_plain(&mut self, pages: usize) {
        self.pages += pages as u64;
        self.stored_bytes += (pages * BLOCK_BYTES) as u64;
    }

    /// Counts a write of which so many pages might have been compressed, and those that were.
    pub(crate) fn add_write(&mut self, pages: usize, packed: &[Packed]) {
        let compressed: u64 = packed.iter().map(|chunk| chunk.pages).sum();
        let bytes: u64 = packed.iter().map(|chunk| chunk.bytes).sum();
        let mut before = None;
        for Packed { blocks, .. } in packed {
            let (first, last) = (*blocks.start(), *blocks.end());
            let parts = last + 1 - first;
            self.stored_bytes += parts * SLOT_BYTES as u64;
            self.touched_blocks += parts - u64::from(before == Some(first));
            before = Some(last);
        }
        self.pages += compressed;
        self.compressed_pages += compressed;
        self.left_pages += pages as u64 - compressed;
        self.stored_bytes += bytes;
        self.least_blocks += bytes.div_ceil(BLOCK_BYTES as u64);
    }

    /// Counts what was read and decoded.
    pub(crate) fn add_reads(&mut self, other: &Self) {
        self.read_blocks += other.read_blocks;
        self.read_stored_pages += other.read_stored_pages;
        self.read_pages += other.read_pages;
        self.decompressing += other.decompressing;
    }
}

/// A chunk that has its place.
pub(crate) struct Packed {
    pub(crate) pages: u64,
    pub(crate) bytes: u64,
    /// The blocks that it lies in, a slot in each.
    pub(crate) blocks: RangeInclusive<u64>,
}

fn quotient(count: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| count as f64 / of as f64)
}
