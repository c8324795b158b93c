//! Policies of what is compressed when it is written, and how.

use crate::compress::kind::ContentKind;
use crate::layout::superblock::SLOTS_MAX;

/// Tells which of the complete ways to compress in the foreground a mount follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Nothing is compressed.
    #[default]
    None,
    /// Every file, page by page; compressed pages of one file that follow each other share blocks (FPC, 5.1: "Comp").
    Comp,
    /// [`Paper`](Self::Paper) without compressing metadata (FPC, 5.3: "FPC-N").
    FpcN,
    /// Databases and their journals, as FPC has it (3.2): up to five pages of any files in a block, sampled by the
    /// first page of a write, and rollback journals with their metadata in the same block.
    Paper,
    /// Databases and their journals: each page decides for itself, chunks go on in the next block, and metadata lies behind the
    /// data of whatever file. All others in windows, before they leave for the device.
    Record,
    /// [`Record`](Self::Record) for every file.
    Force,
}

impl Policy {
    /// All of them, with the names they are asked for by.
    pub const ALL: [(&'static str, Self); 6] = [
        ("none", Self::None),
        ("comp", Self::Comp),
        ("fpc-n", Self::FpcN),
        ("paper", Self::Paper),
        ("record", Self::Record),
        ("force", Self::Force),
    ];

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| *policy)
    }

    /// Returns whether all files but those that are written over are compressed, before writeback and in the background, and not
    /// only executables.
    pub(crate) fn compacts_all(self) -> bool {
        matches!(self, Self::Record | Self::Force)
    }

    /// Returns whether files of this kind are compressed in the background.
    pub(crate) fn compacts(self, kind: ContentKind) -> bool {
        match self {
            Self::None => false,
            Self::Force => true,
            Self::Record => !kind.is_rewritten(),
            Self::Comp | Self::FpcN | Self::Paper => kind == ContentKind::Executable,
        }
    }

    /// Returns whether the inodes of files of this kind lie in slots of packed blocks. FPC compresses the node of a
    /// rollback journal alone (3.2.3).
    pub(crate) fn packs_inodes(self, kind: ContentKind) -> bool {
        match self {
            Self::None | Self::Comp | Self::FpcN => false,
            Self::Paper => kind == ContentKind::RollbackJournal,
            Self::Record | Self::Force => true,
        }
    }

    /// Returns how a file of this kind is compressed, if it is.
    pub(crate) fn rules(self, kind: ContentKind) -> Option<Rules> {
        let is_journal = kind.is_journal();
        let window = if is_journal { WINDOW_MAX } else { 1 };
        let is_chosen = is_journal || kind == ContentKind::Database;
        let paper = Rules {
            window,
            sample: Sample::First,
            straddles: false,
            slots: PAPER_SLOTS,
            sequential: false,
            mixed: false,
            stores: false,
        };
        let record = Rules {
            sample: Sample::Page,
            straddles: true,
            slots: SLOTS_MAX,
            mixed: true,
            ..paper
        };
        match self {
            Self::None => None,
            Self::Comp => Some(Rules {
                window: 1,
                sample: Sample::Page,
                slots: SLOTS_MAX,
                sequential: true,
                ..paper
            }),
            Self::FpcN => is_chosen.then_some(paper),
            Self::Paper => is_chosen.then_some(Rules {
                mixed: kind == ContentKind::RollbackJournal,
                ..paper
            }),
            Self::Record => is_chosen.then_some(record),
            Self::Force => Some(record),
        }
    }
}

/// The most pages of a chunk: a pointer counts those that come before in five bits.
const WINDOW_MAX: usize = 32;

/// Compressed pages of a block, as the paper found best (4.6).
const PAPER_SLOTS: u8 = 5;

/// Tells which pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    /// All pages of a write, if the first of them shrinks to a half (FPC, 3.2.2).
    First,
    /// Each that gains.
    Page,
}

/// Describes how the pages of a file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The most pages of a chunk.
    pub(crate) window: usize,
    pub(crate) sample: Sample,
    /// Tells whether a chunk may go on in the next block.
    pub(crate) straddles: bool,
    /// The most slots of a block.
    pub(crate) slots: u8,
    /// Tells whether a block holds only what follows each other in one file.
    pub(crate) sequential: bool,
    /// Tells whether the metadata of the file lies in the same block.
    pub(crate) mixed: bool,
    /// Tells whether pages that gain nothing come along as they are.
    pub(crate) stores: bool,
}

impl Rules {
    /// Packing of chunks that are moved as they are.
    pub(crate) const MOVED: Self = Self {
        window: 1,
        sample: Sample::Page,
        straddles: true,
        slots: SLOTS_MAX,
        sequential: false,
        mixed: false,
        stores: false,
    };

    /// Compression of executables in the background (FPC, 4.1).
    pub(crate) const BACKGROUND: Self = Self {
        window: WINDOW_MAX,
        ..Self::MOVED
    };
}
