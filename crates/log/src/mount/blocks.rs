//! Packed blocks that were read for one request.

use std::sync::Arc;

use crate::layout::{BLOCK_BYTES, Block};

/// Blocks in the order of their places. Those that came by one read lie together, as it brought them.
#[derive(Default)]
pub(super) struct Blocks(Vec<(u64, Part)>);

enum Part {
    /// One that was read ahead.
    Kept(Arc<Block>),
    Read(Vec<u8>),
}

impl Blocks {
    /// Adds a block behind all others.
    pub(super) fn push_kept(&mut self, place: u64, block: Arc<Block>) {
        self.0.push((place, Part::Kept(block)));
    }

    /// Adds the blocks from a place on, behind all others.
    pub(super) fn push_read(&mut self, first: u64, bytes: Vec<u8>) {
        self.0.push((first, Part::Read(bytes)));
    }

    pub(super) fn get(&self, place: u64) -> Option<&Block> {
        let behind = self.0.partition_point(|(first, _)| *first <= place);
        let (first, part) = self.0.get(behind.checked_sub(1)?)?;
        let skipped = usize::try_from(place - first).ok()?;
        part.blocks().nth(skipped)?.try_into().ok()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        let blocks = self.0.iter().flat_map(|(_, part)| part.blocks());
        blocks.flat_map(TryFrom::try_from)
    }
}

impl Part {
    fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = match self {
            Self::Kept(block) => &block[..],
            Self::Read(bytes) => bytes,
        };
        bytes.chunks_exact(BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_their_places() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.get(0), None);
        let block = |of: u8| [of; BLOCK_BYTES];
        blocks.push_read(3, [block(3), block(4)].concat());
        blocks.push_kept(9, Arc::new(block(9)));
        blocks.push_read(12, block(12).to_vec());
        for place in 0..20 {
            let expected = [3, 4, 9, 12].contains(&place).then(|| block(place as u8));
            assert_eq!(blocks.get(place), expected.as_ref(), "{place}");
        }
        assert_eq!(blocks.iter().map(|block| block[0]).sum::<u8>(), 28);
    }
}
