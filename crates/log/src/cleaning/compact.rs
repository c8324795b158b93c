//! Compression in the background (FPC, 3.3): what launches read lies together, in the order in which they read
//! it, and all else of them in large windows. The order of their logical blocks stays what it is.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Instant;

use anteros_core::{FileKind as Type, FsError, FsResult, Ino};

use crate::compress::codec::Pace;
use crate::compress::kind::FileKind;
use crate::compress::policy::{Policy, Rules};
use crate::compress::squeeze::{CHUNK_BYTES_MAX, Squeezer};
use crate::files::content::{BLOCK, blocks};
use crate::layout::checkpoint::HeadKind;
use crate::layout::pointer::Pointer;
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, ROOT, SEGMENT_CONTENT};
use crate::mount::launches::{BlockReads, FileReads, Mark, ORDERS_TOGETHER};
use crate::mount::log::Log;
use crate::packing::pack::{CHUNK_BLOCKS_MAX, Packing};
use crate::state::State;
use crate::statistics::Cause;
use crate::store::medium::{self, zeroed};

/// Logical blocks that are compressed while others wait: 512 KiB.
const STEP_BLOCKS: usize = 128;

/// The deepest path whose directories are written again.
const DEPTH_MAX: usize = 64;

/// The most blocks of a directory that is.
const DIRECTORY_MAX: u32 = 64;

/// Logical blocks that are worth a request.
const TOGETHER_LEAST: usize = 32;

/// Logical blocks of a file that are looked at at once.
const LOOKED_AT: u32 = 1 << 16;

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
    pub complaints: Vec<String>,
}

/// Logical blocks that follow each other, and are compressed in one piece if they can be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Window {
    ino: u32,
    range: Range<u32>,
    share: Share,
    /// Logical blocks of those that are used together, from the first one on; 0 if that is not known.
    left: u32,
}

/// Suitability of a file for compression in the background.
enum Suits {
    Yes,
    No,
    /// It has no content.
    NoFile,
}

/// An inode, or one of its logical blocks, with its turn in the order of launches.
type Stop = (Turn, u32, Option<u32>);

/// Position of something in the order of launches. Content that most launches use comes first, as it is wanted whatever
/// is launched; then content that half as many use, and so on. Each part keeps the order of the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rareness: Reverse<u32>,
    order: u64,
}

impl From<Mark> for Turn {
    fn from(mark: Mark) -> Self {
        Self {
            rareness: Reverse(mark.launches.max(1).ilog2()),
            order: mark.order,
        }
    }
}

/// A compaction that goes on.
struct Work<G> {
    squeezer: Squeezer,
    done: Compacted,
    goes_on: G,
}

impl<G: FnMut(&Compacted) -> bool> Work<G> {
    fn goes_on(&mut self) -> bool {
        (self.goes_on)(&self.done)
    }
}

/// Files to compress, and their use by launches.
#[derive(Default)]
struct Asked {
    executables: Vec<(u32, FileReads)>,
    /// Other files that launches read.
    data: Vec<(u32, FileReads)>,
    trail: Vec<Stop>,
}

impl Asked {
    /// The windows that launches read, those that only one did last. The trail leads to all of them.
    fn launched(&mut self) -> Vec<Window> {
        let files = || self.executables.iter().chain(&self.data);
        let again = launch_windows(files(), Share::Again);
        let once = launch_windows(files(), Share::Once);
        let windows = || again.iter().chain(&once);
        let stop = |(turn, window): &(Turn, Window)| (*turn, window.ino, Some(window.range.start));
        self.trail.extend(windows().map(stop));
        windows().map(|(_, window)| window.clone()).collect()
    }
}

/// Set of launches that read something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// Each, or more than one.
    Again,
    /// One of several.
    Once,
    None,
}

impl Log {
    /// Compresses executables. What launches read of them again and again is put together, first what most of them did, each in
    /// the order in which it was read; behind it comes what one read, and then all else. Of other files it takes what more than one
    /// launch has read along, and leaves the rest alone. Whoever else uses the log has a turn after each 512 KiB; `goes_on` is asked before.
    ///
    /// # Errors
    ///
    /// When nothing may be compressed ([`Policy::None`]), the device fails, or there is no room. What was done until then stays.
    pub fn compact(
        &self,
        files: &[Ino],
        reads: impl Fn(Ino) -> Option<FileReads>,
        goes_on: impl FnMut(&Compacted) -> bool,
    ) -> FsResult<Compacted> {
        let mut work = Work {
            squeezer: Squeezer::new(Pace::Thorough),
            done: Compacted::default(),
            goes_on,
        };
        let mut asked = self.sort(files, reads, &mut work.done)?;
        let first = asked.launched();
        if !self.compact_windows(&first, &mut work)? {
            return Ok(work.done);
        }
        for (ino, reads) in asked.executables {
            let read = reads.core.iter().chain(&reads.other);
            let read = read.map(|read| read.lblk).collect();
            if !self.compact_rest(ino, read, &mut work)? {
                return Ok(work.done);
            }
        }
        asked.trail.sort_unstable();
        self.gather_nodes(&asked.trail, &mut work)?;
        Ok(work.done)
    }

    /// Finds out what is asked for.
    fn sort(
        &self,
        files: &[Ino],
        reads: impl Fn(Ino) -> Option<FileReads>,
        done: &mut Compacted,
    ) -> FsResult<Asked> {
        let mut asked = Asked::default();
        for &file in files {
            let ino = u32::try_from(file.0).map_err(|_| FsError::NotFound)?;
            // The lock is not to be held while somebody is asked what was read.
            let suits = self.lock().suits(ino);
            let suits = match suits {
                // It may be gone by now.
                Err(FsError::NotFound) => Suits::No,
                suits => suits?,
            };
            let reads = reads(file).unwrap_or_default();
            let looked_up = reads.looked_up.map(|mark| (mark.into(), ino, None));
            asked.trail.extend(looked_up);
            match suits {
                Suits::Yes => asked.executables.push((ino, reads)),
                Suits::No => {
                    done.others += 1;
                    // Whoever reads all files once is no program that starts.
                    if reads.rounds > 1 {
                        asked.data.push((ino, reads));
                    }
                }
                Suits::NoFile => {}
            }
        }
        done.files = asked.executables.len() as u64;
        Ok(asked)
    }

    /// Compresses what no launch has read of an executable. Says whether it came to its end.
    fn compact_rest(
        &self,
        ino: u32,
        mut read: Vec<u32>,
        work: &mut Work<impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        read.sort_unstable();
        let end = match self.lock().blocks_of(ino) {
            Err(FsError::NotFound) => return Ok(true),
            end => end?,
        };
        for from in (0..end).step_by(LOOKED_AT as usize) {
            let range = from..end.min(from + LOOKED_AT);
            let rest = match self.lock().rest_windows(ino, range, &read) {
                Err(FsError::NotFound) => return Ok(true),
                rest => rest?,
            };
            if !self.compact_windows(&rest, work)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes what leads to the inodes that launches look up, and to the content that each of them reads, in that order, so that
    /// it lies together: directories, inodes, nodes with pointers.
    fn gather_nodes(
        &self,
        trail: &[Stop],
        work: &mut Work<impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<()> {
        let mut gathered = HashSet::new();
        for marks in trail.chunks(STEP_BLOCKS) {
            if !work.goes_on() {
                break;
            }
            let mut state = self.lock();
            state.check_writable()?;
            let done = state.gather_step(marks, &mut gathered);
            state.submit()?;
            done?;
            state.shrink();
        }
        Ok(())
    }

    /// Says whether all of them had their turn.
    fn compact_windows(
        &self,
        mut windows: &[Window],
        work: &mut Work<impl FnMut(&Compacted) -> bool>,
    ) -> FsResult<bool> {
        while !windows.is_empty() {
            if !work.goes_on() {
                return Ok(false);
            }
            let mut blocks = 0;
            let fits = |window: &&Window| {
                blocks += window.range.len();
                blocks <= STEP_BLOCKS
            };
            let (now, later) = windows.split_at(windows.iter().take_while(fits).count());
            let mut state = self.lock();
            state.check_writable()?;
            let compacted = state.compact_step(now, &mut work.squeezer, &mut work.done);
            state.submit()?;
            compacted?;
            state.shrink();
            windows = later;
        }
        Ok(true)
    }
}

impl State {
    /// Returns whether an inode is compressed in the background: executables are, or all files if that is asked for.
    fn suits(&mut self, ino: u32) -> FsResult<Suits> {
        let policy = self.options.policy;
        if policy == Policy::None {
            return Err(FsError::Unsupported);
        }
        if self.live(ino)?.kind() != Type::Regular {
            return Ok(Suits::NoFile);
        }
        self.recall_name(ino)?;
        let is_executable = self.file_kind(ino)? == FileKind::Executable;
        Ok(match is_executable || policy == Policy::Force {
            true => Suits::Yes,
            false => Suits::No,
        })
    }

    /// Finds out what kind of file the name says that it is, if that was forgotten.
    fn recall_name(&mut self, ino: u32) -> FsResult<()> {
        let live = self.live(ino)?;
        if live.named != FileKind::Other || live.inode().attributes.nlink == 0 {
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
    fn blocks_of(&mut self, ino: u32) -> FsResult<u32> {
        Ok(blocks(&(0..self.live(ino)?.inode().attributes.size)).end)
    }

    /// Windows of all that is not in `read`, nor compressed in the background before.
    fn rest_windows(&mut self, ino: u32, range: Range<u32>, read: &[u32]) -> FsResult<Vec<Window>> {
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
        let (segment, _) = self.segments.locate(block);
        self.segments.segment(segment).is_of(HeadKind::Background)
    }

    /// Compresses some windows, with room for all of them.
    fn compact_step(
        &mut self,
        windows: &[Window],
        squeezer: &mut Squeezer,
        done: &mut Compacted,
    ) -> FsResult<()> {
        // What gains nothing, and a segment that is left because no window fits into the rest.
        let blocks = 2 * STEP_BLOCKS + SEGMENT_CONTENT as usize;
        self.back(blocks as u64, 0);
        self.space.check(blocks as u64)?;
        self.make_room(blocks)?;
        let before = self.statistics;
        let mut packing = Packing::apart(HeadKind::Background);
        let packed = windows
            .iter()
            .try_for_each(|window| self.compact_window(window, squeezer, &mut packing, done));
        self.seal(&mut packing, true);
        self.statistics.count_as(Cause::Background, &before);
        packed
    }

    fn gather_step(&mut self, marks: &[Stop], gathered: &mut HashSet<u32>) -> FsResult<()> {
        self.make_room(4 * STEP_BLOCKS)?;
        let before = self.statistics;
        let done = marks.iter().try_for_each(|&(_, ino, lblk)| {
            match self.gather(ino, lblk, gathered) {
                // Whatever it is, it is told when it is asked for.
                Err(FsError::NotFound | FsError::Corrupt(_)) => Ok(()),
                done => done,
            }
        });
        self.statistics.count_as(Cause::Background, &before);
        done
    }

    /// Has an inode written again, and what leads to it, and to a logical block of it, but for what was.
    fn gather(&mut self, ino: u32, lblk: Option<u32>, gathered: &mut HashSet<u32>) -> FsResult<()> {
        let mut path = vec![ino];
        let leaf = match lblk {
            Some(lblk) => self.leaf_nid(ino, lblk)?,
            None => None,
        };
        let mut ino = ino;
        while ino != ROOT && path.len() < DEPTH_MAX {
            ino = self.live(ino)?.inode().attributes.parent;
            path.push(ino);
        }
        for ino in path.into_iter().rev().filter(|&ino| gathered.insert(ino)) {
            self.gather_directory(ino)?;
            self.write_again(ino)?;
        }
        match leaf {
            Some(nid) if gathered.insert(nid) => self.write_again(nid),
            _ => Ok(()),
        }
    }

    /// Has the blocks of a directory that is not large written again.
    fn gather_directory(&mut self, ino: u32) -> FsResult<()> {
        let blocks = self.blocks_of(ino)?;
        let is_small = self.live(ino)?.kind() == Type::Directory && blocks <= DIRECTORY_MAX;
        let mut places = Vec::new();
        if is_small {
            self.for_pointers(ino, 0..blocks, |lblk, pointer| {
                places.extend(pointer.block().map(|block| (lblk, block)));
            })?;
        }
        let moment = self.moment();
        places.into_iter().try_for_each(|(lblk, block)| {
            let owner = Owner { ino, lblk };
            self.relocate_data(owner, block, HeadKind::HotData, moment)
        })
    }

    /// Has a node written at another place, if it has one.
    fn write_again(&mut self, nid: u32) -> FsResult<()> {
        let entry = self.nat.get(nid)?;
        let place = Pointer::decode(entry.pointer, &self.superblock, nid, 0)?.block();
        match place {
            // All beside each other, whatever they are of.
            Some(place) => self.relocate_node(nid, place, Some(HeadKind::ColdNode), self.moment()),
            // The next checkpoint gives it one.
            None => Ok(()),
        }
    }

    fn compact_window(
        &mut self,
        window: &Window,
        squeezer: &mut Squeezer,
        packing: &mut Packing,
        done: &mut Compacted,
    ) -> FsResult<()> {
        done.seen += window.range.len() as u64;
        let pages = match self.pages_at_rest(window) {
            Ok(pages) => pages,
            Err(FsError::NotFound) => return Ok(()),
            Err(error @ (FsError::Corrupt(_) | FsError::Io(_))) => {
                done.complaints
                    .push(format!("inode {}: {error}", window.ino));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let rules = Rules {
            slots: self.superblock.slots_max,
            // What was read belongs between its neighbours in time, even if it gains nothing.
            stores: window.share != Share::None,
            ..Rules::BACKGROUND
        };
        let codec = self.options.background_codec;
        let begun = Instant::now();
        let chunks = squeezer.squeeze(window.ino, &pages, &rules, codec, CHUNK_BYTES_MAX);
        let compressing = begun.elapsed();
        let class = self.class(window.ino)?;
        self.statistics.class_mut(class).compressing += compressing;
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
            let read = |offset, buf: &mut [u8]| self.device.read_at(offset, buf);
            medium::read_bytes(read, run.offset, &mut content[run.part])?;
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

/// Orders the windows that launches read. Of neighbouring windows that equally many launches read, the first one decides.
fn launch_windows<'a>(
    files: impl Iterator<Item = &'a (u32, FileReads)>,
    share: Share,
) -> Vec<(Turn, Window)> {
    let mut ordered = Vec::new();
    for (ino, reads) in files {
        let of_core = reads.core.iter().map(|read| (Share::Again, read));
        let of_other = reads.other.iter().map(|read| match read.mark.launches {
            0..=1 => (Share::Once, read),
            _ => (Share::Again, read),
        });
        let of_share = of_core.chain(of_other).filter(|(is, _)| *is == share);
        let mut reads: Vec<_> = of_share.map(|(_, read)| read).collect();
        reads.sort_unstable_by_key(|read| read.lblk);
        let turn = |read: &BlockReads| Turn::from(read.mark);
        for alike in reads.chunk_by(|left, right| turn(left).rareness == turn(right).rareness) {
            let lblks: Vec<u32> = alike.iter().map(|read| read.lblk).collect();
            let mut turns = alike.iter().map(|read| turn(read));
            for window in windows(*ino, &lblks, share) {
                let first = turns.by_ref().take(window.range.len()).min();
                ordered.extend(first.zip(Some(window)));
            }
        }
    }
    ordered.sort_by_key(|(turn, _)| *turn);
    let mut rest = &mut ordered[..];
    while !rest.is_empty() {
        let (together, behind) = rest.split_at_mut(together(rest));
        let mut left = 0;
        for (_, window) in together.iter_mut().rev() {
            left += window.range.len() as u32;
            window.left = left;
        }
        rest = behind;
    }
    ordered
}

/// Number of windows, from the first one on, that are wanted together. These belong to the same launch, or are too little
/// to be read by themselves.
fn together(ordered: &[(Turn, Window)]) -> usize {
    let mut pages = 0;
    let mut pairs = ordered.iter().zip(ordered.iter().skip(1));
    let ends = pairs.position(|((turn, window), (next, _))| {
        pages += window.range.len();
        let is_other = turn.order / ORDERS_TOGETHER != next.order / ORDERS_TOGETHER;
        turn.rareness != next.rareness || is_other && pages >= TOGETHER_LEAST
    });
    ends.map_or(ordered.len(), |at| at + 1)
}

/// The runs of rising numbers, in pieces that a chunk can hold.
fn windows(ino: u32, lblks: &[u32], share: Share) -> impl Iterator<Item = Window> + '_ {
    let runs = lblks.chunk_by(|left, right| left + 1 == *right);
    let pieces = runs.flat_map(|run| run.chunks(CHUNK_BLOCKS_MAX as usize));
    pieces.map(move |piece| Window {
        ino,
        range: piece[0]..piece[0] + piece.len() as u32,
        share,
        left: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(ino: u32, range: Range<u32>) -> Window {
        Window {
            ino,
            range,
            share: Share::Again,
            left: 0,
        }
    }

    /// Order, launches and logical block of each.
    fn reads<const N: usize>(all: [(u64, u8, u32); N]) -> Vec<BlockReads> {
        let read = |(order, launches, lblk)| BlockReads {
            mark: Mark { order, launches },
            lblk,
        };
        all.map(read).into()
    }

    #[test]
    fn what_launches_read_lies_in_the_order_of_the_first_read_and_neighbours_together() {
        let one = FileReads {
            core: reads([(5, 2, 10), (9, 2, 11), (1, 2, 40), (7, 2, 12)]),
            other: reads([(12, 1, 3), (10, 1, 4), (2, 1, 9)]),
            ..FileReads::default()
        };
        let two = FileReads {
            core: reads([(3, 3, 0)]),
            ..FileReads::default()
        };
        let files = [(7, one), (8, two)];
        let found = |share| {
            let windows = launch_windows(files.iter(), share).into_iter();
            let windows = windows.map(|(turn, window)| (turn.order, window.ino, window.range));
            windows.collect::<Vec<_>>()
        };
        let expected = [(1, 7, 40..41), (3, 8, 0..1), (5, 7, 10..13)];
        assert_eq!(found(Share::Again), expected);
        assert_eq!(found(Share::Once), [(2, 7, 9..10), (10, 7, 3..5)]);
    }

    #[test]
    fn what_most_launches_read_comes_first() {
        let library = FileReads {
            core: reads([(90, 12, 0), (91, 12, 1)]),
            other: reads([(10, 3, 2), (95, 7, 3), (40, 6, 4), (11, 1, 9)]),
            ..FileReads::default()
        };
        let program = FileReads {
            core: reads([(9, 3, 0)]),
            ..FileReads::default()
        };
        let files = [(7, library), (8, program)];
        let windows = launch_windows(files.iter(), Share::Again);
        let windows: Vec<_> = windows.into_iter().map(|(_, window)| window).collect();
        let expected = [(7, 0..2, 2), (7, 3..5, 2), (8, 0..1, 2), (7, 2..3, 1)];
        let window = |(ino, range, left)| Window {
            left,
            ..window(ino, range)
        };
        assert_eq!(windows, expected.map(window));
    }

    #[test]
    fn what_was_started_together_is_counted() {
        let later = ORDERS_TOGETHER;
        let many = (0..30).map(|at| (9 + u64::from(at), 3, 2 * at));
        let many: Vec<_> = many.flat_map(|read| reads([read])).collect();
        let rest = reads([(later, 3, 72), (later + 1, 3, 74), (2 * later, 3, 76)]);
        let program = FileReads {
            core: [many, rest].concat(),
            other: reads([(11, 2, 79), (12, 4, 81)]),
            ..FileReads::default()
        };
        let windows = launch_windows([(7, program)].iter(), Share::Again);
        let left = windows.iter().map(|(_, window)| window.left);
        // What four launches read, then two or three: 31 at first, which is too little, so what was read later comes along.
        let expected = [1].into_iter().chain((1..=33).rev()).chain([1]);
        assert!(left.clone().eq(expected), "{:?}", left.collect::<Vec<_>>());
    }

    #[test]
    fn no_window_is_longer_than_a_chunk() {
        let lblks: Vec<u32> = (100..170).collect();
        let found: Vec<_> = windows(1, &lblks, Share::Again).collect();
        let expected = [100..132, 132..164, 164..170].map(|range| window(1, range));
        assert_eq!(found, expected);
    }
}
