//! The image that is patched: that it can be, where it ends, which slots are free.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anteros_build::{Appended, Patch};
use anteros_core::Timestamp;
use anteros_format::SLOT_BYTES;
use anteros_format::patch::{FREE_MAX, ROOT_SLOTS, Slots};
use anteros_image::{CheckOptions, Image, Patched, Place};

use crate::command::mkfs;
use crate::failure::{Failure, Kind};

/// The first bytes of a hash tree as dm-verity has it, and to a multiple of which it begins behind an image.
const VERITY_MAGIC: &[u8] = b"verity\0\0";
const VERITY_BLOCK_BYTES: u64 = 4096;

/// Checks an image, and returns the patch that its next one is to be.
pub fn patch(
    image: &Image,
    dry_run: bool,
    time: Timestamp,
    workers: usize,
    cancel: &AtomicBool,
) -> Result<Patch, Failure> {
    refuse(image)?;
    let slots = slot_bytes(image);
    let state = image.patched();
    let state = state.map_err(|e| Failure::image(image.name(), &e))?;
    let record = state.as_ref().map(|state| state.at..state.record.end);
    let options = CheckOptions {
        data: false,
        workers,
        gaps_in: [slots.clone()].into_iter().chain(record.clone()).collect(),
        ..CheckOptions::default()
    };
    let report = mkfs::check_metadata(image, &options, "nothing is changed in", cancel)?;
    crate::interrupt::check(cancel)?;
    if let Some(record) = record {
        check_record(image, &record, &report.gaps)?;
    }
    let gaps = report.gaps.iter().filter(|gap| gap.end <= slots.end);
    let mut free = Vec::new();
    for gap in gaps {
        free.extend(free_slots(image, gap)?);
    }
    if let Some(state) = &state {
        free = within(&free, &state.record.free);
    }
    free.truncate(FREE_MAX);
    Ok(Patch {
        number: state.as_ref().map_or(0, |state| state.record.number) + 1,
        time,
        previous: state.map(|Patched { at, .. }| at),
        free,
        dry_run,
    })
}

/// Refuses images that cannot be patched, by name.
pub fn refuse(image: &Image) -> Result<(), Failure> {
    refuse_form(image)?;
    match has_hash_tree(image) {
        true => Err(refusal(
            image,
            "a hash tree, which would not match any more,",
        )),
        false => Ok(()),
    }
}

/// Refuses forms of images of which nothing can be patched, by name.
pub fn refuse_form(image: &Image) -> Result<(), Failure> {
    mkfs::unfit(image).map_or(Ok(()), |with| Err(refusal(image, with)))
}

fn has_hash_tree(image: &Image) -> bool {
    let at = image.recorded_bytes().next_multiple_of(VERITY_BLOCK_BYTES);
    let mut magic = [0; VERITY_MAGIC.len()];
    let read = image.read_primary(Place::Image, at, &mut magic);
    read.is_ok() && magic == VERITY_MAGIC
}

/// The refusal of an image, for something that it has.
fn refusal(image: &Image, with: &str) -> Failure {
    let name = image.name();
    Failure::new(
        Kind::Unsupported,
        format_args!("{name}: an image with {with} cannot be patched"),
    )
    .hint(format_args!(
        "`anteros mkfs NEW {name} DIR` makes a new image of it with what changed"
    ))
}

/// The image as a build knows it. On a device, it goes on where the image ends; a file ends there.
pub fn appended(image: &Image, path: &Path) -> Result<Appended, Failure> {
    let found = std::fs::metadata(path).map_err(|e| Failure::system(path, &e))?;
    let appended = mkfs::appended(image)?;
    Ok(match found.is_file() {
        true => appended,
        false => Appended {
            end: image.recorded_bytes(),
            ..appended
        },
    })
}

/// Makes sure that no file has the bytes of the record: what an image is made of may hold anything.
pub fn check_record(
    image: &Image,
    record: &Range<u64>,
    gaps: &[Range<u64>],
) -> Result<(), Failure> {
    let is_free = |gap: &Range<u64>| gap.start <= record.start && gap.end >= record.end;
    if gaps.iter().any(is_free) {
        return Ok(());
    }
    let name = image.name();
    let message = format!("{name}: the record of a patch at its end belongs to a file");
    let hint = format!("`anteros mkfs NEW {name}` makes an image that ends otherwise");
    Err(Failure::new(Kind::Corrupt, message).hint(hint))
}

/// Bytes of the slots that a root of 16 bits may lie in: behind the first block, whose checksum covers it.
fn slot_bytes(image: &Image) -> Range<u64> {
    let sb = image.superblock();
    let block_bytes = u64::from(sb.block_bytes());
    let start = u64::from(sb.meta_block) * block_bytes;
    let end = start + ROOT_SLOTS * SLOT_BYTES;
    let end = end.min(image.recorded_bytes()).min(image.primary_size());
    start.max(block_bytes.max(2048))..end
}

/// Slots of a gap in which nothing but zeros lie.
fn free_slots(image: &Image, gap: &Range<u64>) -> Result<Vec<Slots>, Failure> {
    let sb = image.superblock();
    let origin = u64::from(sb.meta_block) << sb.block_bits;
    let start = gap.start.next_multiple_of(SLOT_BYTES);
    let count = gap.end.saturating_sub(start) / SLOT_BYTES;
    let mut bytes = vec![0; (count * SLOT_BYTES) as usize]; // 2 MiB at most
    let read = image.read_primary(Place::Image, start, &mut bytes);
    read.map_err(|e| Failure::image(image.name(), &e))?;
    let slots = bytes.chunks(SLOT_BYTES as usize);
    let zeros = slots.map(|slot| slot.iter().all(|byte| *byte == 0));
    let first = (start - origin) / SLOT_BYTES;
    let mut free: Vec<Slots> = Vec::new();
    for (nid, _) in (first..).zip(zeros).filter(|(_, is_zero)| *is_zero) {
        // No inode has the node id 0.
        let Ok(nid @ 1..) = u16::try_from(nid) else {
            continue;
        };
        match free.last_mut() {
            Some(last) if last.end() == u64::from(nid) => last.count += 1,
            _ => free.push(Slots {
                first: nid,
                count: 1,
            }),
        }
    }
    Ok(free)
}

/// Slots that are in ranges of both kinds.
fn within(one: &[Slots], other: &[Slots]) -> Vec<Slots> {
    let both = |one: &Slots, other: &Slots| {
        let first = one.first.max(other.first);
        let end = one.end().min(other.end());
        let count = end.checked_sub(first.into()).filter(|count| *count > 0)?;
        let count = count as u16; // no more than either has
        Some(Slots { first, count })
    };
    one.iter()
        .flat_map(|one| other.iter().filter_map(move |other| both(one, other)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slots_that_were_free_before_are_free() {
        let slots = |first, count| Slots { first, count };
        let found = [slots(3, 5), slots(10, 2), slots(20, 9)];
        let before = [slots(1, 3), slots(5, 1), slots(7, 14), slots(27, 100)];
        let free = [
            slots(3, 1),
            slots(5, 1),
            slots(7, 1),
            slots(10, 2),
            slots(20, 1),
            slots(27, 2),
        ];
        assert_eq!(within(&found, &before), free);
    }
}
