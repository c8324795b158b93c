//! The room of an older image that a new one has: whatever none of its files refers to any more.

use std::collections::HashMap;
use std::mem::offset_of;
use std::ops::Range;

use anteros_core::FileKind;
use anteros_format::SLOT_BYTES;
use anteros_format::inode::RawCompactInode;

use super::matching::Origin;
use super::renewed::{Former, Renewed};
use crate::Error;
use crate::base::{Appended, Record, Renew, Taken};
use crate::plan::{Intent, Plan};
use crate::ranges::Ranges;
use crate::tree::NodeId;

/// The checksum of the superblock reaches no farther, or to the end of the first block.
const CHECKED_BYTES: u64 = 2048;

/// A file of the older image, and what of it stays.
struct Found {
    record: Record,
    taken: Taken,
    /// The node that was at its path, or another that has its inode.
    id: Option<NodeId>,
    /// Tells whether its content stays.
    has_content: bool,
    /// Tells whether its inode does.
    has_inode: bool,
}

/// Finds what is free.
pub(super) fn find(
    origin: &Origin<'_>,
    (append, renew): (&Appended, &Renew),
    plan: &mut Plan,
) -> Result<Renewed, Error> {
    let look = origin.look();
    let block_bytes = u64::from(look.options.block_bytes());
    let image_end = append.end;
    // The checksum of the superblock covers what lies in front.
    let first = block_bytes.max(CHECKED_BYTES);
    let mut renewed = Renewed::default();
    let all = all(origin, plan, &mut renewed.former)?;
    make_room_for_root(plan, origin, &all, block_bytes);
    let mut free: Ranges = within(&renew.gaps, first..image_end);
    let mut lost = Ranges::default();
    for found in &all {
        if !found.has_content {
            found
                .taken
                .image
                .iter()
                .cloned()
                .for_each(|part| free.insert(part));
        }
        if !found.has_inode {
            let room = slots(&found.record);
            renewed.inodes.insert(room.clone());
            if found.id.is_none() {
                lost.insert(room);
            }
        }
    }
    renewed.inodes.remove(0..first);
    let contents = all.iter().filter(|found| found.has_content);
    let contents = contents.flat_map(|found| &found.taken.image);
    let inodes = all.iter().filter(|found| found.has_inode);
    let inodes = inodes.map(|found| &found.record);
    let inodes = inodes.chain(append.packed.as_ref().map(|(record, _)| record));
    let stays = inodes
        .map(slots)
        .chain(contents.chain(&renew.packed).cloned());
    stays.for_each(|part| free.remove(part));
    keep_directories(origin, plan, &all, &mut renewed, &mut free);
    renewed.cleared = free.clone();
    renewed
        .inodes
        .iter()
        .for_each(|part| renewed.cleared.insert(part));
    let unused: Ranges = free.iter().chain(lost.iter()).collect();
    renewed.end = end_before(&unused, image_end).next_multiple_of(block_bytes);
    free.remove(renewed.end..u64::MAX);
    renewed.inodes.remove(renewed.end..u64::MAX);
    renewed.data = free.whole(block_bytes);
    renewed.packed_waste = packed_waste(&all, renew);
    Ok(renewed)
}

/// All files of the older image, and the inodes of nodes that were there.
fn all(
    origin: &Origin<'_>,
    plan: &Plan,
    former: &mut HashMap<NodeId, Former>,
) -> Result<Vec<Found>, Error> {
    let look = origin.look();
    let mut ids = HashMap::new();
    for id in look.tree.ids() {
        if let Some(before) = origin.before(id) {
            // Of several that were one, the one whose inode stays counts.
            let stays = matches!(plan.node(id).intent, Intent::Stays(_));
            if stays || !ids.contains_key(&before) {
                ids.insert(before, id);
            }
        }
    }
    let mut has_content = vec![false; origin.former().nodes.len()];
    for id in look.tree.ids() {
        let keeps = matches!(plan.node(id).intent, Intent::Stays(_) | Intent::Copied(_));
        if let Some(before) = origin.before(id).filter(|_| keeps) {
            has_content[before as usize] = true;
        }
    }
    let mut all = Vec::new();
    for before in origin.former().ids() {
        look.check_cancelled()?;
        let (record, taken) = origin.found(before)?;
        let id = ids.get(&before).copied();
        let stays = |id: NodeId| matches!(plan.node(id).intent, Intent::Stays(_));
        let has_inode = id.is_some_and(stays);
        if let Some(id) = id.filter(|_| !has_inode) {
            let [block, serial] = [
                offset_of!(RawCompactInode, i_u),
                offset_of!(RawCompactInode, i_ino),
            ];
            let address = record.address;
            let read = |field: usize| {
                let mut raw = [0; 4];
                origin.read_at(before, address + field as u64, &mut raw)?;
                Ok::<_, Error>(u32::from_le_bytes(raw))
            };
            let former_inode = Former {
                address,
                serial: read(serial)?,
                block: read(block)?,
            };
            former.insert(id, former_inode);
        }
        all.push(Found {
            record,
            taken,
            id,
            has_content: has_content[before as usize],
            has_inode,
        });
    }
    Ok(all)
}

/// Has directories that take as many blocks as before keep them.
fn keep_directories(
    origin: &Origin<'_>,
    plan: &Plan,
    all: &[Found],
    renewed: &mut Renewed,
    free: &mut Ranges,
) {
    let look = origin.look();
    let unit = u64::from(look.options.block_bytes());
    for found in all {
        let Some(id) = found.id else { continue };
        let node = look.tree.node(id);
        let Some(former) = renewed.former.get(&id) else {
            continue;
        };
        if node.kind != FileKind::Directory || !matches!(plan.node(id).intent, Intent::Flat) {
            continue;
        }
        let start = u64::from(former.block) * unit;
        let wanted = (node.size - plan.inline_bytes(id, node)).next_multiple_of(unit);
        let part = start..start + wanted;
        let is_there = match &found.taken.image[..] {
            [] => wanted == 0,
            [before] => *before == part && free.covers(&part),
            _ => false,
        };
        if is_there {
            free.remove(part);
            renewed.blocks.insert(id, former.block);
        }
    }
}

/// Has the root have its names in blocks where there is no room for them behind its inode: its node id has to stay small.
fn make_room_for_root(plan: &mut Plan, origin: &Origin<'_>, all: &[Found], block_bytes: u64) {
    let look = origin.look();
    let node = look.tree.node(0);
    let wanted = plan.head_bytes(0) + plan.inline_bytes(0, node);
    let Some(found) = all.first() else { return };
    let room = slots(&found.record);
    let is_in_block = room.start % block_bytes + wanted <= block_bytes;
    if !look.options.is_wide() && (wanted > room.end - room.start || !is_in_block) {
        plan.nodes[0].behind.flat = 0;
    }
}

/// The bytes of an inode with all that follows it, in whole slots.
fn slots(record: &Record) -> Range<u64> {
    record.address..record.address + record.bytes.next_multiple_of(SLOT_BYTES)
}

/// The parts of ranges that lie within one.
fn within(ranges: &[Range<u64>], bounds: Range<u64>) -> Ranges {
    let part = |range: &Range<u64>| range.start.max(bounds.start)..range.end.min(bounds.end);
    ranges.iter().map(part).collect()
}

/// The end of what is not unused.
fn end_before(unused: &Ranges, end: u64) -> u64 {
    match unused.iter().last() {
        Some(last) if last.end >= end => last.start,
        _ => end,
    }
}

/// Bytes of the packed inode, as stored, that no file refers to.
fn packed_waste(all: &[Found], renew: &Renew) -> u64 {
    let kept = all.iter().filter(|found| found.has_content);
    let kept: Ranges = kept
        .flat_map(|found| found.taken.packed.iter().cloned())
        .collect();
    let lost = renew.packed_bytes.saturating_sub(kept.bytes());
    let stored: u64 = renew.packed.iter().map(|part| part.end - part.start).sum();
    let share = u128::from(stored) * u128::from(lost);
    (share / u128::from(renew.packed_bytes.max(1))) as u64 // no more than is stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_ends_where_nothing_is_used_any_more() {
        let unused = |ranges: &[Range<u64>]| ranges.iter().cloned().collect();
        assert_eq!(end_before(&unused(&[5..9, 20..30]), 30), 20);
        assert_eq!(end_before(&unused(&[5..9, 20..29]), 30), 30);
        assert_eq!(end_before(&unused(&[]), 30), 30);
    }

    #[test]
    fn what_no_file_has_of_the_packed_inode_is_waste() {
        let found = |packed: Range<u64>, has_content| Found {
            record: Record {
                address: 0,
                bytes: 32,
                is_inline: false,
            },
            taken: Taken {
                image: Vec::new(),
                packed: vec![packed],
            },
            id: None,
            has_content,
            has_inode: false,
        };
        let all = [
            found(0..30, true),
            found(20..40, true),
            found(40..90, false),
        ];
        let renew = Renew {
            packed_bytes: 100,
            packed: std::iter::once(0..50).collect(),
            ..Renew::default()
        };
        assert_eq!(packed_waste(&all, &renew), 30);
        assert_eq!(packed_waste(&all, &Renew::default()), 0);
    }
}
