//! The blocks of a file without compression that stay where they are when it changes.
//!
//! A file whose blocks still lie behind each other stays flat. Any other one comes in chunks: those that are equal in both forms, and lie at
//! a block in both, are the blocks that are there.

use anteros_core::{FsResult, StoredPlace};

use super::content::Former;
use super::equal::Equal;
use crate::sparse::{HOLE, KeptChunks};

/// The blocks of the old form of a file that the new one has as well, in its order.
pub(super) fn blocks(
    former: &Former<'_>,
    equals: &[Equal],
    (size, old_size): (u64, u64),
    block_bits: u8,
) -> FsResult<Vec<KeptChunks>> {
    let block_bytes = 1u64 << block_bits;
    let mut kept: Vec<KeptChunks> = Vec::new();
    for equal in equals {
        let old = equal.from..equal.from + equal.len;
        for run in former.base.stored(Some(former.ino), old.clone())? {
            let start = equal.at + (run.offset.max(old.start) - old.start);
            let old_end = run.end().min(old.end);
            let mut end = equal.at + (old_end - old.start);
            // Behind the end of a file, its last block has zeros.
            if end < size || old_end < old_size {
                end = end / block_bytes * block_bytes;
            }
            let first = start.next_multiple_of(block_bytes);
            if first >= end {
                continue;
            }
            let place = match run.place {
                StoredPlace::Hole => Some(HOLE),
                StoredPlace::Blocks(address) => {
                    let shift = run.offset.max(old.start) - run.offset + (first - start);
                    block_at(address + shift, block_bits)
                }
                _ => None,
            };
            if let Some(block) = place {
                let start = first;
                push(&mut kept, KeptChunks { start, end, block }, block_bits);
            }
        }
    }
    Ok(kept)
}

/// The block that begins at a byte of the image, if one does that an entry of a table has room for.
fn block_at(address: u64, block_bits: u8) -> Option<u32> {
    let block = u32::try_from(address >> block_bits).ok();
    block.filter(|block| u64::from(*block) << block_bits == address && *block != HOLE)
}

fn push(kept: &mut Vec<KeptChunks>, run: KeptChunks, block_bits: u8) {
    let goes_on = |last: &&mut KeptChunks| match (last.block, run.block) {
        _ if last.end != run.start => false,
        (HOLE, HOLE) => true,
        (HOLE, _) | (_, HOLE) => false,
        (block, next) => {
            u64::from(block) + ((last.end - last.start) >> block_bits) == u64::from(next)
        }
    };
    match kept.last_mut().filter(goes_on) {
        Some(last) => last.end = run.end,
        None => kept.push(run),
    }
}

/// The first block of a file whose blocks up to a byte are all there, one behind the other.
pub(super) fn flat(kept: &[KeptChunks], end: u64) -> Option<u32> {
    let first = kept.first()?;
    let is_all = first.start == 0 && first.end >= end && first.block != HOLE && end > 0;
    is_all.then_some(first.block)
}

#[cfg(test)]
mod tests {
    use anteros_core::{Ino, StoredRun};

    use super::super::content::tests::Told;
    use super::*;
    use crate::sparse::ChunkedFile;

    /// The blocks that stay of a file of 10 blocks and 5 bytes, of which the first four lie apart, and two are a hole.
    fn kept(equals: &[Equal], size: u64) -> Vec<(u64, u64, u32)> {
        let run = |offset, len, place| StoredRun { offset, len, place };
        let runs = vec![
            run(0, 16_384, StoredPlace::Blocks(100 << 12)),
            run(16_384, 8192, StoredPlace::Hole),
            run(24_576, 16_389, StoredPlace::Blocks(50 << 12)),
        ];
        let told = Told(runs, Vec::new());
        let former = Former {
            base: &told,
            ino: Ino(1),
        };
        let kept = blocks(&former, equals, (size, 40_965), 12).unwrap();
        kept.iter()
            .map(|run| (run.start, run.end, run.block))
            .collect()
    }

    #[test]
    fn blocks_stay_that_are_equal_as_a_whole() {
        let equal = |at, from, len| Equal { at, from, len };
        let around = [equal(0, 0, 5000), equal(5001, 5001, 35_964)];
        let expected = [
            (0, 4096, 100),
            (8192, 16_384, 102),
            (16_384, 24_576, HOLE),
            (24_576, 40_965, 50),
        ];
        assert_eq!(kept(&around, 40_965), expected);
        // What lies in the last block behind a shorter file is not zero.
        assert_eq!(
            kept(&[equal(0, 0, 30_000)], 30_000)[2],
            (24_576, 28_672, 50)
        );
        assert_eq!(
            kept(&[equal(0, 0, 40_965)], 50_000)[2],
            (24_576, 40_960, 50)
        );
        // Two blocks in front of all: another place, at blocks as well. Other shifts have none.
        assert_eq!(
            kept(&[equal(8192, 0, 16_384)], 90_000),
            [(8192, 24_576, 100)]
        );
        assert_eq!(kept(&[equal(8191, 0, 16_384)], 90_000), []);
    }

    #[test]
    fn a_file_is_flat_if_its_blocks_still_lie_behind_each_other() {
        let run = |start, end, block| KeptChunks { start, end, block };
        assert_eq!(flat(&[run(0, 40_960, 7)], 40_960), Some(7));
        assert_eq!(flat(&[run(0, 36_864, 7)], 40_960), None);
        assert_eq!(flat(&[run(0, 40_960, HOLE)], 40_960), None);
        assert_eq!(flat(&[run(0, 40_960, 7)], 0), None);
    }

    #[test]
    fn chunks_are_those_that_are_there_holes_and_new_ones() {
        let size = 1 << 20;
        let file = ChunkedFile::whole(size, 4096, 12);
        let run = |start, end, block| KeptChunks { start, end, block };
        let kept = [
            run(0, 300_000 / 4096 * 4096, 500),
            run(303_104, 524_288, 574),
            run(524_288, 655_360, HOLE),
            run(655_360, size, 2000),
        ];
        let patched = file.patched(size, &kept, 12);
        let table = |file: &ChunkedFile| {
            let mut bytes = Vec::new();
            file.encode(size, 9000, 12, &mut bytes);
            let entries = bytes.chunks_exact(4);
            entries
                .map(|entry| u32::from_le_bytes(entry.try_into().unwrap()))
                .collect::<Vec<_>>()
        };
        let blocks_of = 1 << (patched.chunk_bits - 12);
        let entries = table(&patched);
        for (index, entry) in entries.iter().enumerate() {
            let at = index as u64 * blocks_of * 4096;
            match at {
                ..294_912 => assert_eq!(u64::from(*entry), 500 + at / 4096),
                524_288..655_360 => assert_eq!(*entry, HOLE),
                655_360.. => assert_eq!(u64::from(*entry), 2000 + (at - 655_360) / 4096),
                _ => {}
            }
        }
        assert!(patched.stored_bytes(size) < 30_000, "{patched:?}");
        assert!(entries.contains(&9000));
    }
}
