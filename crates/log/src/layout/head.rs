//! Kinds of heads, and sizes of the parts of a pack that decide how long it may be.

/// Places for heads in a pack; there are fewer kinds.
pub const HEADS: usize = 16;

/// Bytes of the header of a pack, and of an orphan in it.
pub(crate) const HEADER_BYTES: usize = 0x200;
pub(crate) const ORPHAN_BYTES: usize = 4;

const _: () = assert!(HeadKind::ALL.len() <= HEADS);

/// Tells what an open segment is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeadKind {
    /// Inodes and direct nodes of directories.
    HotNode = 0,
    /// Those of other inodes.
    WarmNode,
    /// Indirect nodes.
    ColdNode,
    /// Blocks of directories.
    HotData,
    /// Content.
    WarmData,
    /// Content that cleaning moved, and what hardly changes.
    ColdData,
    /// Packed blocks: groups, and what is compressed in the foreground.
    Packed,
    /// Executables.
    Executables,
    /// Packed blocks: what is compressed in the background.
    Background,
    /// Packed blocks of no group: what is compressed in the foreground and leaves before it is synced, or was moved.
    Moved,
}

impl HeadKind {
    /// All of them, by their numbers.
    pub const ALL: [Self; 10] = [
        Self::HotNode,
        Self::WarmNode,
        Self::ColdNode,
        Self::HotData,
        Self::WarmData,
        Self::ColdData,
        Self::Packed,
        Self::Executables,
        Self::Background,
        Self::Moved,
    ];

    /// The kind with this number.
    pub fn from_raw(raw: u8) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }

    /// Its number.
    pub fn to_raw(self) -> u8 {
        self as u8
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HotNode => "hot nodes",
            Self::WarmNode => "warm nodes",
            Self::ColdNode => "cold nodes",
            Self::HotData => "hot data",
            Self::WarmData => "warm data",
            Self::ColdData => "cold data",
            Self::Packed => "packed",
            Self::Executables => "executables",
            Self::Background => "packed in the background",
            Self::Moved => "packed, of no group",
        }
    }

    /// Returns whether it holds nodes.
    pub const fn has_nodes(self) -> bool {
        matches!(self, Self::HotNode | Self::WarmNode | Self::ColdNode)
    }

    /// Returns whether it holds content as it is.
    pub const fn has_plain_data(self) -> bool {
        !self.has_nodes() && !self.is_packed()
    }

    /// Returns whether its blocks say themselves whose they are; then its segments have no summaries.
    pub const fn is_packed(self) -> bool {
        matches!(self, Self::Packed | Self::Background | Self::Moved)
    }
}
