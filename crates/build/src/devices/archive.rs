//! An archive that stays where it is: files lie in it, from the block behind their headers on.
//!
//! A file with holes has chunks as large as its parts allow. What begins or ends inside of a block, as parts of some sparse
//! files do, is stored in the image.

use super::elsewhere::{Elsewhere, HOLE};
use super::table::{Devices, Slot};
use crate::look::Look;
use crate::places::PlacedPart;
use crate::plan::Plan;
use crate::source::archive::{Contents, Extent};
use crate::{Error, Options};

/// The archive, which is the only device.
const DEVICE: u16 = 1;
/// Chunks have two to this blocks at the most.
const CHUNK_SHIFT_MAX: u32 = 31;
/// Most entries of a table: a file of more is stored in the image.
const CHUNKS_MAX: u64 = 1 << 20;

/// Leaves all files in the archive for which that is possible.
pub(super) fn store(
    look: &Look<'_>,
    plan: &mut Plan,
    contents: &Contents,
) -> Result<Devices, Error> {
    let Look { tree, options, .. } = *look;
    let block_bytes = u64::from(options.block_bytes());
    let bytes = contents.bytes().map_err(|cause| Error::Source {
        path: contents.path().to_owned(),
        action: "look at the archive again",
        cause,
    })?;
    let blocks = u32::try_from(bytes.div_ceil(block_bytes)).ok();
    let blocks = blocks.filter(|blocks| *blocks < HOLE);
    let blocks = blocks.ok_or_else(|| Error::TooLarge {
        path: contents.path().to_owned(),
        block_bytes: options.block_bytes(),
    })?;
    for id in tree.ids() {
        if !plan.is_stored_file(tree, id) {
            continue;
        }
        let part = |extent: &Extent| PlacedPart {
            start: extent.start,
            bytes: extent.bytes,
            place: extent.place.in_archive(),
        };
        let parts: Vec<_> = contents.extents(id).iter().map(part).collect();
        if let Some(file) = elsewhere(tree.node(id).size, &parts, DEVICE, options) {
            look.source.open_file(tree, id)?.finish()?;
            plan.set_elsewhere(id, file);
        }
    }
    let slot = Slot {
        blocks,
        ..Slot::default()
    };
    Ok(Devices {
        slots: vec![slot],
        place: None,
        blob: None,
    })
}

/// The chunks of a file on a device, if it has any that begin at blocks.
pub(super) fn elsewhere(
    size: u64,
    parts: &[PlacedPart],
    device: u16,
    options: &Options,
) -> Option<Elsewhere> {
    let block_bits = u32::from(options.block_bits);
    let block_mask = (1 << block_bits) - 1;
    let mut ends = 0;
    for part in parts {
        if part.place & block_mask != 0 {
            return None;
        }
        ends |= part.start;
        let end = part.start + part.bytes;
        ends |= if end == size { 0 } else { end };
    }
    let wanted = size.next_power_of_two().trailing_zeros();
    let most = wanted.max(block_bits).min(block_bits + CHUNK_SHIFT_MAX);
    let chunk_bits = ends.trailing_zeros().min(most);
    let count = size.div_ceil(1 << chunk_bits.max(block_bits));
    if chunk_bits < block_bits || count > CHUNKS_MAX {
        return None;
    }
    let mut blocks = vec![HOLE; count as usize];
    for part in parts {
        let first = part.start >> chunk_bits;
        let behind = (part.start + part.bytes).div_ceil(1 << chunk_bits);
        for chunk in first..behind {
            let place = part.place + ((chunk - first) << chunk_bits);
            blocks[chunk as usize] = u32::try_from(place >> block_bits).ok()?;
        }
    }
    Some(Elsewhere {
        device,
        chunk_bits,
        blocks: blocks.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(size: u64, parts: &[(u64, u64, u64)]) -> Option<(u32, Vec<u32>)> {
        let parts = parts.iter().map(|&(start, bytes, place)| PlacedPart {
            start,
            bytes,
            place,
        });
        let options = Options {
            block_bits: 9,
            ..Options::default()
        };
        let file = elsewhere(size, &parts.collect::<Vec<_>>(), DEVICE, &options)?;
        Some((file.chunk_bits, file.blocks.to_vec()))
    }

    #[test]
    fn chunks_are_as_large_as_parts_allow() {
        assert_eq!(chunks(5, &[(0, 5, 1024)]), Some((9, vec![2])));
        assert_eq!(chunks(100_000, &[(0, 100_000, 512)]), Some((17, vec![1])));
        let huge = chunks(3 << 39, &[(0, 3 << 39, 512)]).unwrap();
        assert_eq!(huge, (40, vec![1, 1 + (1 << 31)]));
        let parts = [(4096, 4096, 1024), (16_384, 100, 5120)];
        let hole = HOLE;
        let expected = vec![hole, 2, hole, hole, 10];
        assert_eq!(chunks(16_484, &parts), Some((12, expected)));
        assert_eq!(chunks(8192, &[]), Some((13, vec![hole])));
        assert_eq!(chunks(100, &[(0, 100, 100)]), None);
        assert_eq!(chunks(5000, &[(100, 100, 512)]), None);
        assert_eq!(chunks(5000, &[(0, 100, 512)]), None);
        assert_eq!(chunks(1 << 30, &[(512, 512, 512)]), None);
    }
}
