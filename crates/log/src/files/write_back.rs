//! Dirty content that is given its places and leaves for the device, in a group or before a checkpoint.

use std::cmp::Reverse;

use anteros_core::{FileKind, FsResult};

use crate::compress::policy::Policy;
use crate::files::Files;
use crate::layout::checkpoint::HeadKind;
use crate::layout::checksum::Checksum;
use crate::layout::crc;
use crate::layout::pointer::Pointer;
use crate::layout::summary::Owner;
use crate::packing::pack::Packing;
use crate::store::medium::vanished;

/// The most blocks that are given places at once.
const RUN_MAX: usize = 512;

impl Files {
    /// Sends all dirty content to its places, in no group.
    pub(crate) fn write_content(&mut self) -> FsResult<()> {
        let written = self.write_content_down_to(0);
        self.forget_prepared();
        written
    }

    /// Sends dirty content to its places, in no group, until no more than so many pages are dirty: first what was compressed
    /// already.
    pub(crate) fn write_content_down_to(&mut self, most: usize) -> FsResult<()> {
        let mut packing = Packing::apart(HeadKind::Moved);
        let written = self.write_down_to(most, &mut packing);
        // What was packed before something failed is there already.
        self.seal(&mut packing, true);
        written
    }

    fn write_down_to(&mut self, most: usize, packing: &mut Packing) -> FsResult<()> {
        let inos = self.dirty_inos();
        for &ino in &inos {
            if self.pack_prepared(ino, packing)? {
                self.left_early(ino)?;
            }
        }
        let inos = match most {
            0 => inos,
            _ => self.largest_first(inos),
        };
        for ino in inos {
            let excess = self.store.dirty_pages().saturating_sub(most);
            if excess == 0 {
                break;
            }
            self.left_early(ino)?;
            self.write_pages(ino, excess, packing, |_, _| ())?;
        }
        Ok(())
    }

    /// Orders inodes by their dirty pages: what is small may be a database, which is about to be synced.
    fn largest_first(&self, mut inos: Vec<u32>) -> Vec<u32> {
        inos.sort_by_key(|&ino| Reverse(self.loaded(ino).map_or(0, |live| live.dirty_pages)));
        inos
    }

    /// Gives the dirty content of an inode its places and sends it there; what is compressed goes as far as the
    /// packing, and of what is not, so many pages at most. `sum` hears of each other block, with its CRC-32C.
    pub(crate) fn write_pages(
        &mut self,
        ino: u32,
        most: usize,
        packing: &mut Packing,
        mut sum: impl FnMut(u64, u32),
    ) -> FsResult<()> {
        if self.live(ino)?.dirty_pages == 0 {
            return Ok(());
        }
        let rules = self.rules(ino)?;
        // As long as its beginning is in memory.
        let class = self.class(ino)?;
        if let Some(rules) = rules {
            self.pack_pages(ino, class, &rules, packing)?;
        }
        let live = self.live(ino)?;
        let dirty: Vec<u32> = live
            .pages
            .iter()
            .filter(|(_, page)| page.dirty)
            .map(|(&lblk, _)| lblk)
            .take(most)
            .collect();
        // To know it, the beginning of the file may have to be read.
        let is_executable = !dirty.is_empty() && self.is_for_background(ino)?;
        for run in dirty.chunk_by(|left, right| left + 1 == *right) {
            for part in run.chunks(RUN_MAX) {
                let head = match is_executable {
                    true => HeadKind::Executables,
                    false => self.data_heat(ino, part[0])?,
                };
                self.write_run(ino, part, head, &mut sum)?;
            }
        }
        if self.live(ino)?.kind() != FileKind::Directory {
            self.store
                .statistics_mut()
                .class_mut(class)
                .add_plain(dirty.len());
        }
        Ok(())
    }

    /// Returns whether a file is one that is compressed later: those that will be lie apart.
    fn is_for_background(&mut self, ino: u32) -> FsResult<bool> {
        Ok(self.store.options().policy != Policy::None
            && self.live(ino)?.kind() == FileKind::Regular
            && self.content_kind(ino)? == crate::compress::kind::ContentKind::Executable)
    }

    /// Returns where other content goes that is written now: what belongs to a directory, has replaced something young
    /// or has a name that says so will not last long.
    fn data_heat(&mut self, ino: u32, lblk: u32) -> FsResult<HeadKind> {
        let live = self.live(ino)?;
        let is_hot = live.named.is_journal() || live.kind() == FileKind::Directory || {
            let replaced = self.pointer(ino, lblk)?.block();
            replaced.is_some_and(|block| self.store.segments().is_hot(block))
        };
        Ok(match is_hot {
            true => HeadKind::HotData,
            false => HeadKind::WarmData,
        })
    }

    /// Gives dirty blocks that follow each other their places, and sends them to the device.
    fn write_run(
        &mut self,
        ino: u32,
        lblks: &[u32],
        head: HeadKind,
        sum: &mut impl FnMut(u64, u32),
    ) -> FsResult<()> {
        let mut pointers = Vec::with_capacity(lblks.len());
        let mut crcs = Vec::with_capacity(lblks.len());
        for &lblk in lblks {
            let page = self.live(ino)?.pages.get(&lblk).ok_or_else(vanished)?;
            let crc = crc(&*page.data);
            match self.store.place_written(head, Owner { ino, lblk }) {
                Ok(placed) => {
                    pointers.push(Pointer::Plain(placed.block, Checksum::of_crc(crc)));
                    crcs.push(crc);
                }
                Err(error) => {
                    for (lblk, placed) in lblks.iter().zip(pointers) {
                        self.overwritten(ino, *lblk, placed)?;
                    }
                    return Err(error);
                }
            }
        }
        self.set_pointers(ino, lblks[0], &pointers, |_| ())?;
        let live = self.live(ino)?;
        let mut placed = Vec::with_capacity(lblks.len());
        for (&lblk, pointer) in lblks.iter().zip(&pointers) {
            placed.extend(pointer.block().zip(live.placed(lblk)));
        }
        self.store.drop_dirty_pages(placed.len());
        for ((block, data), crc) in placed.into_iter().zip(crcs) {
            sum(block, crc);
            self.store.push(block, data);
        }
        Ok(())
    }
}
