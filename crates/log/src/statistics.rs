//! What was written to the device, by cause.

/// Why a block was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Content of files, and directories.
    Data,
    /// Nodes.
    Node,
    /// What a group has besides its data.
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
pub struct Statistics {
    blocks: [u64; Cause::ALL.len()],
    /// Groups written.
    pub groups: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Segments cleaned.
    pub cleaned: u64,
    /// Segments of which the device was told that they are free, and that made it fail.
    pub failed_discards: u64,
    /// Segments that could not be cleaned, and are left alone until the next mount.
    pub set_aside: u64,
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
