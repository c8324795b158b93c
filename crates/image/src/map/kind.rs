//! The storage of a file's data, as its inode describes it, checked.

use std::sync::Mutex;

use anteros_format::chunk::ChunkFormat;
use anteros_format::inode::Inode;
use anteros_format::lcluster::CompactLayout;
use anteros_format::zmap::MapHeader;

use super::extent::Location;

/// Describes how to find the extents of a file: what its inode says about its data, checked.
#[derive(Debug)]
pub struct Map(pub(super) Kind);

/// The ways in which data is stored.
#[derive(Debug)]
pub(super) enum Kind {
    /// No data at all: not a regular file, directory or symlink, or empty.
    Empty,
    Flat {
        start: Option<u64>,
        inline_at: Option<Location>,
    },
    Chunks {
        format: ChunkFormat,
        head_end: Location,
    },
    Compressed(Zmap),
}

/// Describes how the data of a compressed file is found.
#[derive(Debug)]
pub(crate) struct Zmap {
    pub(crate) header: MapHeader,
    /// The space of the inode, and where its index begins there.
    pub(super) table: Location,
    /// Tells where index and inline tail end.
    pub(super) end: u64,
    /// Logical clusters, or records.
    pub(super) total: u64,
    pub(super) compact: Option<CompactLayout>,
    pub(super) cursor: Cursor,
}

/// Remembers where accumulated addresses were left off.
pub(crate) type Cursor = Mutex<(u64, u64)>;

impl Map {
    /// The map header of a compressed file.
    pub fn header(&self) -> Option<&MapHeader> {
        match &self.0 {
            Kind::Compressed(zmap) => Some(&zmap.header),
            _ => None,
        }
    }

    /// Returns where the inline data of a flat file lies.
    pub(crate) const fn inline_location(&self) -> Option<Location> {
        match &self.0 {
            Kind::Flat { inline_at, .. } => *inline_at,
            _ => None,
        }
    }

    /// Returns where indexes, tables and inline data that follow the inode end.
    pub(crate) fn metadata_end(&self, inode: &Inode, block_bits: u8) -> Option<u64> {
        match &self.0 {
            Kind::Empty
            | Kind::Flat {
                inline_at: None, ..
            } => None,
            Kind::Flat {
                inline_at: Some(at),
                ..
            } => Some(at.address() + (inode.size - inline_start(inode.size, block_bits))),
            Kind::Chunks { format, head_end } => {
                let chunks = inode.size.div_ceil(1 << format.chunk_bits);
                format.entry_offset(head_end.address(), chunks).ok()
            }
            Kind::Compressed(zmap) => Some(zmap.end),
        }
    }
}

/// Returns where the inline part of a flat file begins: the last block, which may be full.
pub(super) fn inline_start(size: u64, block_bits: u8) -> u64 {
    (size - 1) >> block_bits << block_bits
}
