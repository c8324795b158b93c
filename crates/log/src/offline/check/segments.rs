//! Owners of blocks compared with the segment table, the block state table and the summaries.

use super::words::Words;
use crate::durable::owners;
use crate::error::LogError;
use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::summary::Owner;
use crate::offline::walk::Walk;
use crate::offline::walk::claims::Claims;
use crate::store::packs;
use crate::store::segments::Segments;

impl Walk<'_, Words> {
    /// Looks at all segments.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file, and when the checkpoint cannot be read.
    pub(super) fn compare_segments(&mut self) -> Result<(), LogError> {
        let (device, superblock) = (self.state.store.device(), self.state.store.superblock());
        let checkpoint = packs::newest_checkpoint(device, superblock)?;
        let entries = packs::segment_table(device, superblock, &checkpoint)?;
        let summarized = Segments::new(superblock, &entries, checkpoint.serial);
        drop(entries);
        self.visit_segments(&mut |walk, claims| {
            walk.compare_slots(claims);
            walk.compare_valid(claims);
            if claims.segment < summarized.count() {
                walk.compare_summary(claims, &summarized, &checkpoint);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Slots that count as valid and belong to nothing, and blocks that are valid without a slot that is.
    fn compare_slots(&mut self, claims: &Claims) {
        let segment = claims.segment;
        let entry = self.state.store.segments().segment(segment).clone();
        if !entry.is_packed() && !self.state.store.bst().has(segment) {
            return;
        }
        for (index, block) in (0..SEGMENT_CONTENT as u16).zip(claims.start..) {
            let claimed = claims.slots(index);
            let valid = self.state.store.bst().valid(block);
            let lost = (valid & !claimed).count_ones();
            let is_valid = entry.is_packed() && entry.is_valid(index);
            let place = format!("block {block}");
            if lost > 0 {
                self.sink
                    .note(&place, format_args!("{lost} valid slots belong to nothing"));
            }
            if (valid != 0) != is_valid {
                let (kind, counts) = (entry.kind, entry.is_valid(index));
                let text = format!(
                    "slots {valid:#x} count as valid, but in segment {segment}, kind {kind}, it is so: {counts}"
                );
                self.sink.note(&place, text);
            }
        }
    }

    /// Valid blocks that belong to nothing.
    fn compare_valid(&mut self, claims: &Claims) {
        let valid = self
            .state
            .store
            .segments()
            .segment(claims.segment)
            .valid_blocks();
        let mut lost = valid.filter(|&index| !claims.is_owned(index));
        let Some(first) = lost.next() else { return };
        let block = claims.start + u64::from(first);
        let text = match lost.count() {
            0 => format!("1 valid block belongs to nothing: block {block}"),
            more => {
                let lost = more + 1;
                format!("{lost} valid blocks belong to nothing, the first of them block {block}")
            }
        };
        self.sink
            .note(format_args!("segment {}", claims.segment), text);
    }

    /// A summary that names another owner than the one whose block it is. Those of blocks that only a group names are
    /// written by the next mount.
    fn compare_summary(&mut self, claims: &Claims, summarized: &Segments, checkpoint: &Checkpoint) {
        let segment = claims.segment;
        let now = self.state.store.segments().segment(segment);
        let has_nodes = HeadKind::from_raw(now.kind).is_some_and(HeadKind::has_nodes);
        let valid = summarized.segment(segment).valid_blocks();
        let kept: Vec<u16> = valid
            .filter(|&index| now.is_valid(index) && claims.is_owned(index))
            .collect();
        if kept.is_empty() || now.is_packed() {
            return;
        }
        let named = match owners::named(self.state, Some(checkpoint), segment) {
            Ok(named) => named,
            Err(error) => return self.sink.note(format_args!("segment {segment}"), error),
        };
        for index in kept {
            let owner = named.get(usize::from(index)).copied().unwrap_or_default();
            if !claims.agrees(index, owner, has_nodes) {
                let (Owner { ino, lblk }, block) = (owner, claims.start + u64::from(index));
                let text = format!(
                    "its summary says that block {block} is inode {ino}'s, number {lblk}, which it is not"
                );
                self.sink.note(format_args!("segment {segment}"), text);
            }
        }
    }
}
