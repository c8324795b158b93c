//! Places of the levels.

use crate::{Params, SUPERBLOCK_BYTES, Superblock};

/// Tells where a hash tree lies, and how large it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    block_bytes: u64,
    /// Digests in a block of the tree.
    pub(crate) per_block: u64,
    /// Levels from the one with the digests of data on: their first bytes, and how many blocks they have.
    pub(crate) levels: Vec<Level>,
    /// The byte behind the tree.
    end: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub start: u64,
    pub blocks: u64,
}

impl Levels {
    /// The places of a tree with a superblock that begins at a byte; `None` if that is further than bytes are counted.
    pub fn new(superblock: &Superblock, start: u64) -> Option<Self> {
        let Params {
            algorithm,
            block_bytes,
            ..
        } = superblock.params;
        let block_bytes = u64::from(block_bytes);
        let per_block = block_bytes / algorithm.bytes() as u64;
        let mut blocks = superblock.data_blocks;
        let mut counts = Vec::new();
        // A single block of data has no digest but the root hash.
        while blocks > 1 {
            blocks = blocks.div_ceil(per_block);
            counts.push(blocks);
        }
        let mut at = start
            .checked_add(SUPERBLOCK_BYTES as u64)?
            .checked_next_multiple_of(block_bytes)?;
        let mut levels = Vec::new();
        for &blocks in counts.iter().rev() {
            levels.push(Level { start: at, blocks });
            at = blocks.checked_mul(block_bytes)?.checked_add(at)?;
        }
        levels.reverse();
        Some(Self {
            block_bytes,
            per_block,
            levels,
            end: at,
        })
    }

    /// The block at which the tree begins, behind its superblock: what the kernel is told.
    pub fn first_block(&self) -> u64 {
        let root = self.levels.last().map_or(self.end, |level| level.start);
        root / self.block_bytes
    }

    /// The byte behind the tree.
    pub fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    fn levels(data_blocks: u64) -> Levels {
        Levels::new(&Superblock::plain(data_blocks), 1 << 30).unwrap()
    }

    #[test]
    fn the_root_level_comes_first() {
        let blocks = |data| {
            levels(data)
                .levels
                .iter()
                .map(|l| l.blocks)
                .collect::<Vec<_>>()
        };
        assert_eq!(blocks(0), []);
        assert_eq!(blocks(1), []);
        assert_eq!(blocks(2), [1]);
        assert_eq!(blocks(128), [1]);
        assert_eq!(blocks(129), [2, 1]);
        assert_eq!(blocks(128 * 128 + 1), [129, 2, 1]);
        let levels = levels(129);
        let first = (1 << 30) + 4096;
        assert_eq!(levels.first_block() * 4096, first);
        let starts: Vec<u64> = levels.levels.iter().map(|level| level.start).collect();
        assert_eq!(starts, [first + 4096, first]);
        assert_eq!(levels.end(), first + 3 * 4096);
    }

    #[test]
    fn a_tree_that_cannot_be_is_told() {
        let superblock = Superblock {
            params: Params {
                algorithm: Algorithm::Sha512,
                block_bytes: 512,
                salt: Vec::new(),
                uuid: [0; 16],
            },
            data_blocks: u64::MAX,
        };
        assert_eq!(Levels::new(&superblock, 0), None);
        assert_eq!(Levels::new(&superblock, u64::MAX), None);
    }
}
