//! Files that are looked at, and the parts in which they are read.

use std::ops::Range;

use super::matches::Run;
use crate::look::Look;
use crate::plan::{Intent, Plan};
use crate::tree::NodeId;

/// Bytes that are read at once, at least; there are as many of the average chunks in them.
const PIECE_BYTES_MIN: u64 = 1 << 20;
const PIECE_CHUNKS: u64 = 16;

/// Runs that are compared together, if they lie in the same file.
const GROUP_RUNS: usize = 64;

/// A part of a file.
pub(super) type Piece = (NodeId, Range<u64>);

/// The files that are looked at, one behind the other.
pub(super) struct Files {
    all: Vec<File>,
    pub bytes: u64,
}

/// A file that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File {
    pub id: NodeId,
    /// The position of its first byte.
    pub start: u64,
    pub size: u64,
}

impl Files {
    /// All files that are compressed and long enough, in the order in which they are stored.
    pub fn new(look: &Look<'_>, plan: &Plan, least: u64) -> Self {
        let mut files = Self {
            all: Vec::new(),
            bytes: 0,
        };
        for &id in &plan.order {
            let size = look.tree.node(id).size;
            if matches!(plan.node(id).intent, Intent::Compress) && size >= least {
                let start = files.bytes;
                files.all.push(File { id, start, size });
                files.bytes += size;
            }
        }
        files
    }

    /// The parts of all files that are read at once.
    pub fn pieces(&self, average: u64) -> impl Iterator<Item = Piece> {
        let bytes = (average * PIECE_CHUNKS).max(PIECE_BYTES_MIN);
        self.all.iter().flat_map(move |file| {
            let starts = (0..file.size).step_by(bytes as usize);
            starts.map(move |start| (file.id, start..file.size.min(start + bytes)))
        })
    }

    /// Runs that lie in the same file, some together.
    pub fn groups<'a>(&'a self, runs: &'a [Run]) -> impl Iterator<Item = &'a [Run]> {
        let file = |run: &Run| self.at(run.at).start;
        let groups = runs.chunk_by(move |one, other| file(one) == file(other));
        groups.flat_map(|runs| runs.chunks(GROUP_RUNS))
    }

    /// The file that has the byte at a position.
    pub fn at(&self, position: u64) -> File {
        let behind = self.all.partition_point(|file| file.start <= position);
        self.all[behind - 1]
    }
}
