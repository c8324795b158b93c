//! Compression in the background (FPC, 3.3): what launches read lies together, in the order in which they read
//! it, and all else of them in large windows. The order of their logical blocks stays what it is.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Instant;

use anteros_core::{FileKind, FsError, FsResult};

use crate::cleaning::Cleaning;
use crate::cleaning::order::{Share, Window, windows};
use crate::compress::chunks::{CHUNK_BYTES_MAX, Compressor};
use crate::compress::kind::ContentKind;
use crate::compress::policy::{Policy, Rules};
use crate::files::content::blocks;
use crate::layout::checkpoint::HeadKind;
use crate::layout::pointer::Pointer;
use crate::layout::{BLOCK_BYTES, Block, SEGMENT_CONTENT};
use crate::packing::pack::Packing;
use crate::statistics::Cause;
use crate::store::medium::{BLOCK, zeroed};

/// Logical blocks that are compressed while others wait: 512 KiB.
pub(crate) const STEP_BLOCKS: usize = 128;

/// Progress of a compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Files that were asked for, that are executables.
    pub files: u64,
    /// Files that were asked for, and are none.
    pub others: u64,
    /// Logical blocks that were looked at.
    pub seen: u64,
    /// Logical blocks that are compressed now.
    pub blocks: u64,
    /// The bytes that they take.
    pub bytes: u64,
    /// Warnings about content that could not be read. It stays where it is.
    pub warnings: Vec<String>,
}

/// Suitability of a file for compression in the background.
pub(crate) enum Suits {
    Yes,
    No,
    /// It has no content.
    NoFile,
}

impl Cleaning {
    /// Returns whether an inode is compressed in the background: executables are, or all files if that is asked for.
    pub(crate) fn suits(&mut self, ino: u32) -> FsResult<Suits> {
        let policy = self.store.options().policy;
        if policy == Policy::None {
            return Err(FsError::Unsupported);
        }
        if self.live(ino)?.kind() != FileKind::Regular {
            return Ok(Suits::NoFile);
        }
        self.recall_name(ino)?;
        let is_executable = self.content_kind(ino)? == ContentKind::Executable;
        Ok(match is_executable || policy == Policy::Force {
            true => Suits::Yes,
            false => Suits::No,
        })
    }

    /// Finds out what kind of file the name says that it is, if that was forgotten.
    fn recall_name(&mut self, ino: u32) -> FsResult<()> {
        let live = self.live(ino)?;
        if live.named != ContentKind::Other || live.inode().attributes.nlink == 0 {
            return Ok(());
        }
        let parent = live.inode().attributes.parent;
        let mut name = None;
        self.list(parent, 0, &mut |entry, _| match entry.ino == ino {
            true => {
                name = Some(entry.name.to_vec());
                ControlFlow::Break(())
            }
            false => ControlFlow::Continue(()),
        })?;
        name.map_or(Ok(()), |name| self.called(ino, &name))
    }

    /// Logical blocks of an inode, holes included.
    pub(crate) fn blocks_of(&mut self, ino: u32) -> FsResult<u32> {
        Ok(blocks(&(0..self.live(ino)?.inode().attributes.size)).end)
    }

    /// Windows of all that is not in `read`, nor compressed in the background before.
    pub(crate) fn rest_windows(
        &mut self,
        ino: u32,
        range: Range<u32>,
        read: &[u32],
    ) -> FsResult<Vec<Window>> {
        let mut places = Vec::new();
        self.for_pointers(ino, range, |lblk, pointer| places.push((lblk, pointer)))?;
        let is_left = |(lblk, pointer): &(u32, Pointer)| {
            let is_done = matches!(pointer, Pointer::Packed(at) if self.is_background(at.block));
            !is_done && read.binary_search(lblk).is_err()
        };
        let left = places.into_iter().filter(is_left).map(|(lblk, _)| lblk);
        let left: Vec<u32> = left.collect();
        Ok(windows(ino, &left, Share::None).collect())
    }

    /// Returns whether a block was compressed in the background.
    pub(crate) fn is_background(&self, block: u64) -> bool {
        let (segment, _) = self.store.segments().locate(block);
        self.store
            .segments()
            .segment(segment)
            .is_of(HeadKind::Background)
    }

    /// Compresses some windows, with room for all of them.
    pub(crate) fn compact_step(
        &mut self,
        windows: &[Window],
        compressor: &mut Compressor,
        done: &mut Compacted,
    ) -> FsResult<()> {
        // What gains nothing, and a segment that is left because no window fits into the rest.
        let blocks = 2 * STEP_BLOCKS + SEGMENT_CONTENT as usize;
        self.store.back(blocks as u64, 0);
        self.store.space().check(blocks as u64)?;
        self.make_room(blocks)?;
        let before = *self.store.statistics();
        let mut packing = Packing::apart(HeadKind::Background);
        let packed = windows
            .iter()
            .try_for_each(|window| self.compact_window(window, compressor, &mut packing, done));
        self.seal(&mut packing, true);
        self.store
            .statistics_mut()
            .count_as(Cause::Background, &before);
        packed
    }

    fn compact_window(
        &mut self,
        window: &Window,
        compressor: &mut Compressor,
        packing: &mut Packing,
        done: &mut Compacted,
    ) -> FsResult<()> {
        done.seen += window.range.len() as u64;
        let pages = match self.pages_at_rest(window) {
            Ok(pages) => pages,
            Err(FsError::NotFound) => return Ok(()),
            Err(error @ (FsError::Corrupt(_) | FsError::Io(_))) => {
                done.warnings.push(format!("inode {}: {error}", window.ino));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let rules = Rules {
            slots: self.store.superblock().slots_max,
            // What was read belongs between its neighbours in time, even if it gains nothing.
            stores: window.share != Share::None,
            ..Rules::BACKGROUND
        };
        let codec = self.store.options().background_codec;
        let begun = Instant::now();
        let chunks = compressor.compress(window.ino, &pages, &rules, codec, CHUNK_BYTES_MAX);
        let compressing = begun.elapsed();
        let class = self.class(window.ino)?;
        self.store.statistics_mut().class_mut(class).compressing += compressing;
        let core = window.share == Share::Again;
        let live = self.live(window.ino)?;
        if core && !live.inode().attributes.is_launched && !chunks.is_empty() {
            live.attributes().is_launched = true;
        }
        if window.left > packing.left {
            // Whoever begins here begins with a block.
            self.seal(packing, false);
        }
        packing.left = window.left;
        for mut chunk in chunks {
            chunk.core = core;
            let at = self.pack(packing, &chunk, &rules)?;
            packing.left = packing.left.saturating_sub(chunk.blocks.into());
            self.settle(&chunk, at)?;
            done.blocks += u64::from(chunk.blocks);
            done.bytes += chunk.bytes.len() as u64;
        }
        self.left_early(window.ino)
    }

    /// The pages of a window that have places, and are not about to have others.
    fn pages_at_rest(&mut self, window: &Window) -> FsResult<Vec<(u32, Arc<Block>)>> {
        let Window { ino, range, .. } = window;
        let live = self.live(*ino)?;
        if live.inode().attributes.is_inline
            || live.pages.range(range.clone()).any(|(_, page)| page.dirty)
        {
            return Ok(Vec::new());
        }
        let mut lblks = Vec::new();
        self.for_pointers(*ino, range.clone(), |lblk, pointer| {
            lblks.extend(pointer.block().map(|_| lblk));
        })?;
        let content = self.read_blocks(*ino, range)?;
        let page = |lblk: u32| {
            let start = (lblk - range.start) as usize * BLOCK_BYTES;
            let mut page = zeroed();
            page.copy_from_slice(&content[start..start + BLOCK_BYTES]);
            (lblk, page.into())
        };
        Ok(lblks.into_iter().map(page).collect())
    }

    /// Content as it would be read, with zeros behind the end.
    fn read_blocks(&mut self, ino: u32, range: &Range<u32>) -> FsResult<Vec<u8>> {
        let mut content = vec![0; range.len() * BLOCK_BYTES];
        let plan = self.plan_read(ino, u64::from(range.start) * BLOCK, &mut content)?;
        for run in plan.runs {
            let read = |offset, buf: &mut [u8]| self.store.device().read_at(offset, buf);
            run.fill(read, &mut content)?;
        }
        for runs in plan
            .packed
            .chunk_by(|left, right| left.is_one_chunk_with(right))
        {
            let chunk = self.read_chunk(ino, runs[0].owner.lblk, runs[0].at)?;
            runs.iter().for_each(|run| run.fill(&chunk, &mut content));
        }
        Ok(content)
    }
}
