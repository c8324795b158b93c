//! Dirty content of ordinary files, compressed before writeback without the lock of the log.
//!
//! Windows of dirty pages are found with the lock held ([`Packer::dirty_windows`]), compressed without it
//! ([`DirtyWindow::compress`]), and kept beside the pages ([`Packer::keep_prepared`]) until these leave
//! ([`Packer::pack_prepared`]). A page that was written to meanwhile is another one, and its window is compressed again or leaves
//! as it is. Nobody has to wait for any of it: what was not prepared in time leaves without being compressed.
//!
//! Only pages that had no place are prepared. Of a chunk of which pages are written over again and again, the rest keeps all of
//! it; what is written in place is left to the compression in the background, when it is at rest.

use std::ops::Range;

use anteros_core::{FileKind, FsResult};

use crate::compress::codec::Codec;
use crate::compress::kind::ContentKind;
use crate::compress::policy::Rules;
use crate::packing::Packer;
use crate::packing::pack::Packing;
use crate::packing::windows::{DirtyWindow, Pages, Prepared, PreparedWindow};
use crate::statistics::Packed;
use crate::store::need::MARGIN;

/// Logical blocks of a window: 32 KiB. Twice as much takes 6 % less room, but whoever reads 4 KiB of it waits for more.
pub(crate) const WINDOW_BLOCKS: usize = 8;

/// Logical blocks of a window of what may start a program: 16 KiB. Of it, little is read here and there.
const EXECUTABLE_BLOCKS: usize = 4;

impl Packer {
    /// The first windows of a file, so many at most, that touch a range, are worth preparing, and were not: those of `least`
    /// dirty pages or more, or those that are full.
    pub(crate) fn dirty_windows(
        &mut self,
        ino: u32,
        range: &Range<u32>,
        least: usize,
        count: usize,
    ) -> FsResult<Vec<DirtyWindow>> {
        let Some((most, codec)) = self.window_rules(ino)? else {
            return Ok(Vec::new());
        };
        let (least, blocks) = (least.min(most), most as u32);
        let range = range.start / blocks * blocks..range.end.next_multiple_of(blocks);
        let live = self.live(ino)?;
        let refused = live.refused.clone();
        let dirty = live.pages.range(range).filter(|(_, page)| page.dirty);
        let dirty: Vec<u32> = dirty.map(|(&lblk, _)| lblk).collect();
        let is_together =
            |left: &u32, right: &u32| left + 1 == *right && left / blocks == right / blocks;
        let mut windows = Vec::new();
        for lblks in dirty.chunk_by(is_together) {
            let range = lblks[0]..lblks[0] + lblks.len() as u32;
            if lblks.len() < least || refused.has(range.start) {
                continue;
            }
            let new = self.new_pages(ino, range.clone())?;
            let runs = new.chunk_by(|(left, _), (right, _)| left + 1 == *right);
            for pages in runs.filter(|pages| pages.len() >= least) {
                let known = self.prepared.get(ino, pages[0].0);
                if !known.is_some_and(|known| known.is_of(pages)) {
                    windows.push(DirtyWindow {
                        ino,
                        codec,
                        pages: pages.to_vec(),
                        end: (range.start / blocks + 1) * blocks,
                    });
                }
            }
            if windows.len() >= count {
                break;
            }
        }
        Ok(windows)
    }

    /// Returns how large the windows of a file are, and by what they are compressed; `None` if they are not.
    fn window_rules(&mut self, ino: u32) -> FsResult<Option<(usize, Codec)>> {
        let options = self.store.options();
        let (policy, codec) = (options.policy, options.codec);
        let live = self.live(ino)?;
        let is_regular = live.kind() == FileKind::Regular;
        // What is compressed page by page is so when it leaves.
        if !policy.compacts_all() || !is_regular || self.rules(ino)?.is_some() {
            return Ok(None);
        }
        Ok(match self.content_kind(ino)? {
            ContentKind::Compressed => None,
            ContentKind::Executable => Some((EXECUTABLE_BLOCKS, codec)),
            _ => Some((WINDOW_BLOCKS, Codec::Zstd)),
        })
    }

    /// The dirty pages of a window that have no place, nor a block that was set aside.
    fn new_pages(&mut self, ino: u32, window: Range<u32>) -> FsResult<Pages> {
        let mut placed = Vec::new();
        self.for_pointers(ino, window.clone(), |lblk, _| placed.push(lblk))?;
        let pages = self.live(ino)?.pages.range(window);
        let new = pages.filter(|(lblk, page)| page.dirty && !placed.contains(lblk));
        Ok(new.map(|(&lblk, page)| (lblk, page.data.clone())).collect())
    }

    /// Keeps windows until their pages leave.
    pub(crate) fn keep_prepared(&mut self, windows: Vec<PreparedWindow>) -> FsResult<()> {
        for window in windows {
            let ino = window.ino;
            if self.loaded(ino).is_none() {
                continue;
            }
            let class = self.class(ino)?;
            self.store.statistics_mut().class_mut(class).compressing += window.took;
            let (range, gained) = (window.range(), window.chunk.is_some());
            self.live(ino)?.refused.note(range, gained);
            if self.prepared.blocks + window.range().len() > 2 * (self.store.dirty_max() + MARGIN) {
                // Most of them are of pages that are gone.
                self.prepared = Prepared::default();
            }
            self.prepared.insert(window);
        }
        Ok(())
    }

    /// Gives the pages of a file that were prepared their places, and says whether there were any.
    pub(crate) fn pack_prepared(&mut self, ino: u32, packing: &mut Packing) -> FsResult<bool> {
        let windows = self.prepared.take(ino);
        if windows.is_empty() {
            return Ok(false);
        }
        let rules = Rules {
            slots: self.store.superblock().slots_max,
            ..Rules::MOVED
        };
        let class = self.class(ino)?;
        for window in windows.into_values() {
            let new = self.new_pages(ino, window.range())?;
            let is_current = window.is_of(&new);
            let Some(chunk) = window.chunk.filter(|_| is_current) else {
                continue;
            };
            let at = self.pack(packing, &chunk, &rules)?;
            self.point(packing, &chunk, at)?;
            let packed = Packed {
                pages: chunk.blocks.into(),
                bytes: chunk.bytes.len() as u64,
                blocks: at.blocks(),
            };
            let statistics = self.store.statistics_mut().class_mut(class);
            statistics.add_write(chunk.blocks.into(), &[packed]);
        }
        Ok(true)
    }

    /// Forgets what was prepared and has not left.
    pub(crate) fn forget_prepared(&mut self) {
        self.prepared = Prepared::default();
    }

    /// Bytes of memory for chunks that were prepared.
    pub(crate) fn prepared_bytes(&self) -> usize {
        self.prepared.blocks * crate::layout::BLOCK_BYTES / 2
    }
}
