//! Reasons why bytes are refused.

use anteros_core::FsError;

/// Bytes that break the format, or ask for something that this code does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A rule of the format is broken.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Valid perhaps, but unknown here.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// Something newer than this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Features that a reader must know.
    #[error("unknown incompatible features {0:#x}: the log needs a newer version of anteros")]
    Incompat(u64),
    /// Features that a writer must know.
    #[error("unknown features {0:#x}: this version of anteros can only read the log")]
    RoCompat(u64),
    /// Another size of blocks.
    #[error("blocks of 2^{0} bytes; only 2^12 is known")]
    BlockBits(u8),
    /// Another size of segments.
    #[error("segments of 2^{0} blocks; only 2^9 is known")]
    SegmentBits(u8),
}

/// A broken rule of the format, with its place and the value that breaks it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
#[non_exhaustive]
pub enum Corrupt {
    #[error("no log: the magic number is {found:#018x}")]
    Magic { found: u64 },
    #[error("superblock: checksum {stored:#010x}, expected {computed:#010x}")]
    SuperblockChecksum { stored: u32, computed: u32 },
    #[error("superblock: {rule} (found {found})")]
    Superblock { rule: &'static str, found: u64 },
    #[error(
        "superblock: {area} at block {start} with {blocks} blocks is not between block {lower} and block {upper}"
    )]
    Area {
        area: &'static str,
        start: u64,
        blocks: u64,
        lower: u64,
        upper: u64,
    },
    #[error("checkpoint: {rule} (found {found})")]
    Checkpoint { rule: &'static str, found: u64 },
    #[error("checkpoint: checksum {stored:#010x}, expected {computed:#010x}")]
    CheckpointChecksum { stored: u32, computed: u32 },
    #[error("head {kind} in segment {segment}: {rule}")]
    Head {
        kind: u8,
        segment: u32,
        rule: &'static str,
    },
    #[error("segment table, segment {segment}: {rule} (found {found})")]
    Segment {
        segment: u32,
        rule: &'static str,
        found: u64,
    },
    #[error("summary of the segment with serial number {serial}: {rule} (found {found:#x})")]
    Summary {
        serial: u32,
        rule: &'static str,
        found: u32,
    },
    #[error(
        "node {nid}, pointer {index}: {value:#018x} is no pointer, or points out of the main area"
    )]
    Pointer { nid: u32, index: u16, value: u64 },
    #[error("node {nid}: {rule} (found {found:#x})")]
    Node {
        nid: u32,
        rule: &'static str,
        found: u64,
    },
    #[error("directory block {lblk}: {rule} (found {found:#x})")]
    DirBlock {
        lblk: u32,
        rule: &'static str,
        found: u64,
    },
    #[error(
        "directory, byte {at:#x} of a block or of the inline entries: {rule} (found {found:#x})"
    )]
    DirEntry {
        at: usize,
        rule: &'static str,
        found: u64,
    },
    #[error("extended attributes, byte {at:#x}: {rule} (found {found})")]
    Xattr {
        at: usize,
        rule: &'static str,
        found: u64,
    },
    #[error("packed block: {rule} (found {found:#x})")]
    Packed { rule: &'static str, found: u64 },
    #[error("packed block, slot {slot}: {rule} (found {found})")]
    Slot {
        slot: u8,
        rule: &'static str,
        found: u64,
    },
    #[error("record at byte {at:#x} of its group: {rule} (found {found})")]
    RecordBytes {
        at: usize,
        rule: &'static str,
        found: u64,
    },
    #[error("group {sequence}: {rule}")]
    Record { sequence: u64, rule: &'static str },
    #[error("block {block}: {rule}")]
    Block { block: u64, rule: &'static str },
    #[error(
        "byte {offset} of inode {ino}: block {block} does not hold what was written there (checksum {found:#x}, expected {expected:#x})"
    )]
    Content {
        ino: u32,
        offset: u64,
        block: u64,
        found: u32,
        expected: u32,
    },
    #[error("the log's own record, inode {ino}: {rule}")]
    OwnRecord { ino: u32, rule: &'static str },
    #[error("checkpoint {version} lies in pack {pack}, where it does not belong")]
    PackPlace { pack: u64, version: u64 },
    #[error("checkpoint: {stated} {what}, but {counted} are there")]
    Count {
        what: &'static str,
        stated: u64,
        counted: u64,
    },
}

impl From<Corrupt> for FsError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_which_rule_where_and_what_was_found() {
        let corrupt = Corrupt::Segment {
            segment: 7,
            rule: "the last bit is set",
            found: 512,
        };
        let text = "segment table, segment 7: the last bit is set (found 512)";
        assert_eq!(corrupt.to_string(), text);
        assert_eq!(Fault::from(corrupt.clone()).to_string(), text);
        assert!(matches!(FsError::from(corrupt), FsError::Corrupt(said) if said == text));
    }
}
