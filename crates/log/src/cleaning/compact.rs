//! Compression in the background (FPC, 3.3): what launches read lies together, in the order in which they read
//! it, and all else in large windows. The order of their logical blocks stays what it is.
//!
//! A window is found with the lock of the log held, read and compressed without it, and written with it again, unless its
//! content has changed meanwhile.

use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use anteros_core::{FileKind, FsError, FsResult, Timestamp, WritableDevice};

use crate::cleaning::Cleaning;
use crate::cleaning::order::{Share, Window, windows_of};
use crate::cleaning::sparse::SMALL_BLOCKS;
use crate::compress::chunks::{CHUNK_BLOCKS_MAX, CHUNK_BYTES_MAX, Chunk, Compressor, have};
use crate::compress::codec::Codec;
use crate::compress::kind::ContentKind;
use crate::compress::policy::{Policy, Rules};
use crate::files::content::blocks;
use crate::files::read::Plan;
use crate::layout::checkpoint::HeadKind;
use crate::layout::pointer::Pointer;
use crate::layout::{BLOCK_BYTES, Block, SEGMENT_CONTENT};
use crate::nodes::place::NodePlace;
use crate::packing::pack::Packing;
use crate::statistics::Cause;
use crate::store::medium::BLOCK;

/// Logical blocks that are written while others wait: 1 MiB.
pub(crate) const STEP_BLOCKS: usize = 256;

/// Progress of a compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Files that were asked for and are compressed in the background.
    pub files: u64,
    /// Files that were asked for and are not: databases and their journals, which are compressed as they are written.
    pub others: u64,
    /// Logical blocks of the files that are compressed in the background.
    pub total: u64,
    /// Logical blocks among them that were passed, for they were looked at or need not be.
    pub passed: u64,
    /// Logical blocks that were looked at.
    pub seen: u64,
    /// Logical blocks that are compressed now.
    pub blocks: u64,
    /// The bytes that they take.
    pub bytes: u64,
    /// Processor time of those who compressed.
    pub processor: Duration,
    /// Warnings about content that could not be read. It stays where it is.
    pub warnings: Vec<String>,
}

/// Suitability of a file for compression in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suits {
    Executable,
    /// Something else that is compressed.
    Other,
    /// A file of which only that is compressed that launches read.
    No,
    /// It has no content.
    NoFile,
}

impl Suits {
    /// Tells whether all of a file is compressed, and not only what launches read of it.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::Executable | Self::Other)
    }
}

/// Readiness of a file for compression that nobody has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ripe {
    Yes,
    /// It has been changed a while ago.
    Later,
    /// It is settled, or not compressed in the background.
    Done,
}

/// A file that is not settled, as it was when its compression began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsettled {
    ino: u32,
    size: u64,
    ctime: Timestamp,
    /// Tells whether all of its content has places.
    is_at_rest: bool,
}

impl Unsettled {
    /// Returns whether nobody has changed the file for so long, or the clock does not know.
    fn is_cold(&self, now: Timestamp, cold: Duration) -> bool {
        let age = u64::try_from(now.secs.saturating_sub(self.ctime.secs));
        self.is_at_rest && age.map_or(true, |age| age >= cold.as_secs())
    }
}

/// A window to be read and compressed.
pub(crate) struct Taken {
    pub(super) window: Window,
    codec: Codec,
    rules: Rules,
    /// Its logical blocks that have places, and these.
    pub(super) places: Vec<(u32, Pointer)>,
    /// The checkpoint after which they had these places: before the next one, no other content gets one of them.
    checkpoint: u64,
    /// Tells what the device has of the content.
    plan: Plan,
    content: Vec<u8>,
}

impl Taken {
    /// Reads what the device has, and says whether that could be read. Blocks that are read keep their content meanwhile; see
    /// [`Store::reading`](crate::store::Store::reading).
    pub(crate) fn read(&mut self, device: &dyn WritableDevice, done: &mut Compacted) -> bool {
        let plan = std::mem::take(&mut self.plan);
        match plan.read(device, &mut self.content) {
            Ok(()) => true,
            Err(error) => {
                let ino = self.window.ino;
                done.warnings.push(format!("inode {ino}: {error}"));
                false
            }
        }
    }

    /// The pages that have places, with zeros behind the end.
    fn pages(&self) -> Vec<(u32, &Block)> {
        let pages = self.content.chunks_exact(BLOCK_BYTES);
        let pages = pages.flat_map(<&Block>::try_from);
        let mut places = self.places.iter().map(|(lblk, _)| *lblk).peekable();
        let placed = self.window.range.clone().zip(pages);
        let placed = placed.filter(|(lblk, _)| places.next_if_eq(lblk).is_some());
        placed.collect()
    }

    /// Pages that gain nothing, but lie in a chunk that the others leave: as they are, they take no more than all of that.
    fn stragglers(&self, pages: &[(u32, &Block)], chunks: &[Chunk]) -> Vec<Chunk> {
        let mut stragglers = Vec::new();
        let placed: Vec<_> = self.places.iter().zip(pages).collect();
        for mates in
            placed.chunk_by(|((_, left), _), ((_, right), _)| left.chunk() == right.chunk())
        {
            let left = mates.iter().filter(|((lblk, _), _)| !have(chunks, *lblk));
            let left: Vec<_> = left.map(|(_, page)| **page).collect();
            let blocks = match mates {
                [((_, Pointer::Packed(at)), _), ..] => usize::from(at.behind),
                _ => 0,
            };
            if left.len() < mates.len() && left.len() <= blocks {
                let runs = left.chunk_by(|(left, _), (right, _)| left + 1 == *right);
                stragglers.extend(runs.map(|run| Chunk::stored(self.window.ino, run)));
            }
        }
        stragglers
    }

    pub(crate) fn compress(mut self, compressor: &mut Compressor) -> Pressed {
        let begun = Instant::now();
        let (ino, rules, room) = (self.window.ino, &self.rules, CHUNK_BYTES_MAX);
        let pages = self.pages();
        let mut chunks = compressor.compress(ino, &pages, rules, self.codec, room);
        let stragglers = self.stragglers(&pages, &chunks);
        chunks.extend(stragglers);
        chunks.sort_unstable_by_key(|chunk| chunk.lblk);
        self.content = Vec::new();
        let took = begun.elapsed();
        Pressed {
            taken: self,
            chunks,
            took,
        }
    }
}

/// A window that was compressed, to be written.
pub(crate) struct Pressed {
    pub(super) taken: Taken,
    pub(super) chunks: Vec<Chunk>,
    took: Duration,
}

impl Cleaning {
    /// Returns whether an inode is compressed in the background.
    pub(crate) fn suits(&mut self, ino: u32) -> FsResult<Suits> {
        let policy = self.store.options().policy;
        if policy == Policy::None {
            return Err(FsError::Unsupported);
        }
        if self.live(ino)?.kind() != FileKind::Regular {
            return Ok(Suits::NoFile);
        }
        self.recall_name(ino)?;
        Ok(match self.content_kind(ino)? {
            ContentKind::Executable => Suits::Executable,
            kind if policy.compacts(kind) => Suits::Other,
            _ => Suits::No,
        })
    }

    /// Tells whether an inode is to be compressed in the background though nobody has asked for it; executables may be or not.
    pub(crate) fn ripe(&mut self, ino: u32, cold: Duration, executables: bool) -> FsResult<Ripe> {
        if self.live(ino)?.kind() != FileKind::Regular {
            return Ok(Ripe::Done);
        }
        let now = self.store.now();
        match self.unsettled(ino)? {
            None => return Ok(Ripe::Done),
            Some(file) if !file.is_cold(now, cold) => return Ok(Ripe::Later),
            Some(_) => {}
        }
        self.repack(ino)?;
        Ok(match self.suits(ino)? {
            Suits::Other => Ripe::Yes,
            Suits::Executable if executables => Ripe::Yes,
            _ => Ripe::Done,
        })
    }

    /// Tells whether nobody has changed a file for so long.
    pub(crate) fn is_cold(&mut self, ino: u32, cold: Duration) -> FsResult<bool> {
        let now = self.store.now();
        let file = self.unsettled(ino)?;
        Ok(file.is_none_or(|file| file.is_cold(now, cold)))
    }

    /// Has an inode that has a block for itself written to a slot with the next checkpoint.
    pub(crate) fn repack(&mut self, ino: u32) -> FsResult<()> {
        if self.is_to_be_packed(ino)? {
            self.live(ino)?.mark_dirty();
        }
        Ok(())
    }

    /// Tells whether an inode has a block for itself and need not have.
    pub(crate) fn is_to_be_packed(&mut self, ino: u32) -> FsResult<bool> {
        Ok(self.may_share_block(ino)? && matches!(self.place_of(ino)?, NodePlace::Block(_)))
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

    /// A file as it is now; `None` if it is settled: all of it was looked at in the background since it changed.
    pub(crate) fn unsettled(&mut self, ino: u32) -> FsResult<Option<Unsettled>> {
        let live = self.live(ino)?;
        let attributes = live.inode().attributes;
        Ok((!attributes.is_settled).then_some(Unsettled {
            ino,
            size: attributes.size,
            ctime: attributes.ctime,
            is_at_rest: live.dirty_pages == 0,
        }))
    }

    /// Notes that a file is settled, if it is still as it was.
    pub(crate) fn note_settled(&mut self, file: Unsettled) -> FsResult<()> {
        match self.unsettled(file.ino) {
            Ok(now) if now == Some(file) && file.is_at_rest => {
                self.live(file.ino)?.attributes().is_settled = true;
                Ok(())
            }
            Ok(_) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Windows of all that is not in `read`, nor compressed in the background before, which this share of the launches reads.
    pub(crate) fn rest_windows(
        &mut self,
        ino: u32,
        range: Range<u32>,
        read: &[u32],
        share: Share,
    ) -> FsResult<Vec<Window>> {
        let share = match self.is_read_sparsely(ino)? {
            true => Share::Sparse,
            false => share,
        };
        let large = match share {
            Share::Sparse => self.in_large_chunks(ino, &range)?,
            _ => Vec::new(),
        };
        let mut places = Vec::new();
        self.for_pointers(ino, range, |lblk, pointer| places.push((lblk, pointer)))?;
        let is_left = |(lblk, pointer): &(u32, Pointer)| {
            let is_done = matches!(pointer, Pointer::Packed(at) if self.is_background(at.block))
                && large.binary_search(lblk).is_err();
            !is_done && read.binary_search(lblk).is_err()
        };
        let left = places.into_iter().filter(is_left).map(|(lblk, _)| lblk);
        let left: Vec<u32> = left.collect();
        let all = self.store.options().policy.compacts_all();
        let most = match all && self.is_decoded_in_part(ino, share)? {
            true => SMALL_BLOCKS,
            false => CHUNK_BLOCKS_MAX as usize,
        };
        Ok(windows_of(most, ino, &left, share).collect())
    }

    /// Returns whether a block was compressed in the background.
    pub(crate) fn is_background(&self, block: u64) -> bool {
        let (segment, _) = self.store.segments().locate(block);
        self.store
            .segments()
            .segment(segment)
            .is_of(HeadKind::Background)
    }

    /// Finds the content of windows that are at rest, and makes room for them.
    pub(crate) fn take_windows(
        &mut self,
        windows: &[Window],
        done: &mut Compacted,
    ) -> FsResult<Vec<Taken>> {
        self.make_room_to_compact(windows.iter())?;
        self.find_windows(windows, done)
    }

    /// Finds the content of windows that are at rest.
    pub(crate) fn find_windows(
        &mut self,
        windows: &[Window],
        done: &mut Compacted,
    ) -> FsResult<Vec<Taken>> {
        let mut taken = Vec::with_capacity(windows.len());
        for window in windows {
            done.seen += window.range.len() as u64;
            match self.take_window(window) {
                Ok(found) => taken.push(found),
                Err(FsError::NotFound) => {}
                Err(error @ (FsError::Corrupt(_) | FsError::Io(_))) => {
                    done.warnings.push(format!("inode {}: {error}", window.ino));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Makes room for some windows. Those that keep what gains nothing may take more than they did; the others do not, but for
    /// the block that is being filled. One block more than users may fill is taken for that, so that a log without a free one
    /// can be compressed.
    fn make_room_to_compact<'a>(
        &mut self,
        mut windows: impl Iterator<Item = &'a Window>,
    ) -> FsResult<()> {
        let takes_more = windows.any(|window| window.share.is_read());
        // And a segment that is left because no window fits into the rest.
        let blocks = 2 * STEP_BLOCKS + SEGMENT_CONTENT as usize;
        self.store.back(blocks as u64, 0);
        let space = self.store.space();
        match takes_more {
            true => space.check(2 * STEP_BLOCKS as u64)?,
            false if space.is_kept() => {}
            false => return Err(FsError::NoSpace),
        }
        self.make_room(blocks)
    }

    fn take_window(&mut self, window: &Window) -> FsResult<Taken> {
        let Window {
            ino, range, share, ..
        } = window;
        let places = self.places_at_rest(*ino, range)?;
        let mut content = Vec::new();
        let plan = match places.is_empty() {
            true => Plan::default(),
            false => {
                content.resize(range.len() * BLOCK_BYTES, 0);
                self.plan_read(*ino, u64::from(range.start) * BLOCK, &mut content)?
            }
        };
        let rules = Rules {
            slots: self.store.superblock().slots_max,
            // What was read belongs between its neighbours in time, even if it gains nothing.
            stores: share.is_read(),
            ..Rules::BACKGROUND
        };
        Ok(Taken {
            window: window.clone(),
            codec: self.background_codec(*ino, *share)?,
            rules,
            places,
            checkpoint: self.store.version(),
            plan,
            content,
        })
    }

    /// The codec of a window: what starts programs, or is read here and there, is decoded fast, and all else is small.
    fn background_codec(&mut self, ino: u32, share: Share) -> FsResult<Codec> {
        let options = self.store.options();
        let (asked, all) = (options.background_codec, options.policy.compacts_all());
        let is_fast = share != Share::NotYet && self.is_decoded_in_part(ino, share)?;
        Ok(match share.is_read() || is_fast || !all {
            true => asked,
            false => Codec::Zstd,
        })
    }

    /// Tells whether a window is mostly decoded for some of it: that of a file that is read so, or of a program of which
    /// nobody knows what launches read.
    fn is_decoded_in_part(&mut self, ino: u32, share: Share) -> FsResult<bool> {
        Ok(match share {
            Share::Sparse => true,
            Share::NotYet | Share::Unknown => self.content_kind(ino)? == ContentKind::Executable,
            _ => false,
        })
    }

    /// Writes windows that were compressed, but for those whose content may have changed: these are given back.
    pub(crate) fn place_windows(
        &mut self,
        pressed: Vec<Pressed>,
        done: &mut Compacted,
    ) -> FsResult<Vec<Window>> {
        self.make_room_to_compact(pressed.iter().map(|pressed| &pressed.taken.window))?;
        let before = *self.store.statistics();
        let mut packing = Packing::apart(HeadKind::Background);
        let mut changed = Vec::new();
        let placed =
            pressed
                .into_iter()
                .try_for_each(|pressed| match self.is_same(&pressed.taken) {
                    Err(FsError::NotFound) => Ok(()),
                    Err(error) => Err(error),
                    Ok(true) => self.place_window(pressed, &mut packing, done),
                    Ok(false) => {
                        changed.push(pressed.taken.window);
                        Ok(())
                    }
                });
        self.seal(&mut packing, true);
        self.store
            .statistics_mut()
            .count_as(Cause::Background, &before);
        placed.map(|()| changed)
    }

    fn is_same(&mut self, taken: &Taken) -> FsResult<bool> {
        let Window { ino, range, .. } = &taken.window;
        let places = self.places_at_rest(*ino, range)?;
        Ok(taken.checkpoint == self.store.version() && places == taken.places)
    }

    fn place_window(
        &mut self,
        pressed: Pressed,
        packing: &mut Packing,
        done: &mut Compacted,
    ) -> FsResult<()> {
        let Taken { window, rules, .. } = pressed.taken;
        let class = self.class(window.ino)?;
        self.store.statistics_mut().class_mut(class).compressing += pressed.took;
        let core = window.share == Share::Again;
        let live = self.live(window.ino)?;
        if core && !live.inode().attributes.is_launched && !pressed.chunks.is_empty() {
            live.attributes().is_launched = true;
        }
        if window.left > packing.left {
            // Whoever begins here begins with a block.
            self.seal(packing, false);
        }
        packing.left = window.left;
        for mut chunk in pressed.chunks {
            chunk.core = core;
            let at = self.pack(packing, &chunk, &rules)?;
            packing.left = packing.left.saturating_sub(chunk.blocks.into());
            self.settle(&chunk, at)?;
            done.blocks += u64::from(chunk.blocks);
            done.bytes += chunk.bytes.len() as u64;
        }
        self.left_early(window.ino)
    }

    /// The logical blocks of a range that have places; none if one of them is about to have another.
    fn places_at_rest(&mut self, ino: u32, range: &Range<u32>) -> FsResult<Vec<(u32, Pointer)>> {
        let live = self.live(ino)?;
        let mut places = Vec::new();
        if live.pages.range(range.clone()).any(|(_, page)| page.dirty) {
            return Ok(places);
        }
        self.for_pointers(ino, range.clone(), |lblk, pointer| {
            places.extend(pointer.block().map(|_| (lblk, pointer)));
        })?;
        Ok(places)
    }
}
