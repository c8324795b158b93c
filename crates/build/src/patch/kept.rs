//! Content of a file that stays when a patch changes the file.

use std::collections::HashMap;

use anteros_core::Algorithm;

use crate::extent::Extent;
use crate::tree::NodeId;

/// Extents that lie behind each other in the file and in the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptRun {
    /// The byte of the new file at which they begin.
    pub start: u64,
    /// The byte of the image at which the first one lies.
    pub at: u64,
    pub extents: Vec<Extent>,
}

impl KeptRun {
    /// The bytes of the file that they have.
    pub fn bytes(&self) -> u64 {
        let lens = self.extents.iter().map(|extent| u64::from(extent.len));
        lens.sum()
    }

    /// The byte of the image behind the last one.
    pub fn next(&self) -> u64 {
        let stored = self.extents.iter().map(|extent| u64::from(extent.stored));
        self.at + stored.sum::<u64>()
    }
}

/// Content of a file that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Extents, between which others are compressed.
    Extents {
        /// Apart from each other or side by side, in the order of the new file.
        runs: Vec<KeptRun>,
        /// The first byte of an end that is in the packed inode, and its place there.
        fragment: Option<(u64, u64)>,
        /// The algorithm of extents that have another one than the files of the patch.
        second: Option<Algorithm>,
    },
    /// All of it, in the packed inode from this byte on.
    Packed(u64),
    /// All but what lies behind the inode, in blocks from this one on.
    Flat(u32),
}

impl Kept {
    /// Has all that lies in the image lie so many blocks further on.
    pub fn move_up(&mut self, blocks: u32, block_bits: u8) {
        match self {
            Self::Extents { runs, .. } => {
                let bytes = u64::from(blocks) << block_bits;
                runs.iter_mut().for_each(|run| run.at += bytes);
            }
            Self::Flat(block) => *block += blocks,
            Self::Packed(_) => {}
        }
    }

    /// Returns whether nothing of the file is stored anew but what lies behind its inode.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::Packed(_) | Self::Flat(_))
    }

    /// The extents that the file has from a byte on, each with its place.
    pub fn from(&self, start: u64) -> impl Iterator<Item = (Extent, u64)> {
        let runs = match self {
            Self::Extents { runs, .. } => &runs[..],
            Self::Packed(_) | Self::Flat(_) => &[],
        };
        let found = runs.binary_search_by_key(&start, |run| run.start);
        let run = found.ok().map(|index| &runs[index]);
        run.into_iter().flat_map(|run| {
            run.extents.iter().scan(run.at, |at, extent| {
                let place = *at;
                *at += u64::from(extent.stored);
                Some((*extent, place))
            })
        })
    }

    /// The place in the packed inode of an end that begins at a byte of the file.
    pub fn fragment_at(&self, start: u64) -> Option<u64> {
        match self {
            Self::Extents { fragment, .. } => fragment.filter(|(at, _)| *at == start),
            Self::Packed(_) | Self::Flat(_) => None,
        }
        .map(|(_, offset)| offset)
    }

    /// The algorithm of extents that have another one than the files of the patch.
    pub const fn second(&self) -> Option<Algorithm> {
        match self {
            Self::Extents { second, .. } => *second,
            Self::Packed(_) | Self::Flat(_) => None,
        }
    }
}

/// Content that stays, of each file that a patch changes.
pub(crate) type KeptFiles = HashMap<NodeId, Kept>;
