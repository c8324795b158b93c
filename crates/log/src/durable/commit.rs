//! Groups: what an fsync makes durable leaves in one piece.
//!
//! A group has every change of names and attributes since the one before, in the order in which they
//! were made, and the content of the files that were asked for. It is written behind the last one in the packed log;
//! after a crash it counts whole or not at all. `docs/format/log.md`, sections 12 and 13.
//!
//! Invariant L1 of `docs/design/log.md`: what an fsync was answered for survives each cut of the power that a device
//! may show.
//!
//! Invariant L7 of `docs/design/log.md`: content that left before its fsync is part of the group, or on the device.

use std::collections::BTreeSet;

use anteros_core::{FileKind, FsResult};

use crate::durable::Durable;
use crate::layout::checksum::Checksum;
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::record::{Record, append_checksums, append_map, append_xattrs};
use crate::options::Order;
use crate::packing::pack::Packing;

/// The most blocks of data that a group has checksums for. With more, and where some has left before, the data goes
/// first.
const SUMS_MAX: usize = 4096;

/// The most groups that are not known to be durable: a packed block has no room to say more.
const LAG_MAX: u64 = 1 << 15;

impl Durable {
    /// Writes a group with the content of these inodes, and all that was changed of names and attributes. Returns
    /// the number of the group that has them: the last one, if nothing is new.
    ///
    /// Blocks that others have sent on their way before are no part of it: nobody has to wait for them.
    pub(crate) fn commit(&mut self, inos: &[u32]) -> FsResult<u64> {
        self.store.begin_group();
        let written = self.write_group(inos);
        self.store.end_group();
        written
    }

    fn write_group(&mut self, inos: &[u32]) -> FsResult<u64> {
        let wanted = self.files.unrecorded().wanted().iter().copied();
        let whole: BTreeSet<u32> = inos
            .iter()
            .copied()
            .chain(wanted)
            .filter(|&ino| self.has_news(ino))
            .collect();
        let mut lag = self.groups.sequence - self.groups.durable;
        if lag >= LAG_MAX {
            self.store.flush()?;
            self.groups.durable = self.groups.sequence;
            lag = 0;
        }
        let mut sums = Vec::new();
        let mut packing = Packing::of_group(self.groups.sequence, lag);
        let mut beside = Packing::beside_group();
        let written = whole.iter().try_for_each(|&ino| {
            self.note_synced(ino)?;
            self.pack_prepared(ino, &mut beside)?;
            let sum = |block, crc| sums.push((block, crc));
            self.write_pages(ino, usize::MAX, &mut packing, sum)
        });
        self.seal(&mut beside, true);
        if let Err(error) = written {
            if packing.is_begun() {
                // Never the last block of a group, but what was packed can be read.
                self.seal(&mut packing, false);
                self.store.fail("a group could not be written", &error);
            }
            return Err(error);
        }
        sums.extend(beside.take_sums());
        let is_under_way = whole.iter().any(|&ino| self.is_under_way(ino));
        if is_under_way || sums.len() > SUMS_MAX || self.data_goes_first(&mut packing, &sums) {
            self.store.flush()?;
            sums.clear();
        }
        let stream = self.records(&whole, &sums)?;
        if stream.is_empty() {
            // What is to be durable is part of some group before, perhaps of one that is still on its way.
            return Ok(self.groups.sequence - 1);
        }
        let sequence = self.groups.sequence;
        self.groups.sequence += 1;
        let written = self
            .finish_group(&mut packing, &stream)
            .and_then(|()| self.files.note_recorded(&whole));
        if let Err(error) = &written {
            // No group behind one that is not whole would be found.
            self.store.fail("a group could not be written", error);
        }
        written?;
        self.store.statistics_mut().groups += 1;
        Ok(sequence)
    }

    /// Notes what a sync brings of a file.
    fn note_synced(&mut self, ino: u32) -> FsResult<()> {
        let live = self.live(ino)?;
        let mut dirty = live.pages.iter().filter(|(_, page)| page.dirty);
        let first = dirty.next().map(|(&lblk, _)| lblk);
        let last = dirty.next_back().map(|(&lblk, _)| lblk).or(first);
        if let Some((first, last)) = first.zip(last) {
            let pages = live.dirty_pages as u64;
            live.habits.note_synced(pages, first..last + 1);
        }
        Ok(())
    }

    /// Returns whether there is data that has to be on the device before its records leave. What shares a block with
    /// them has not.
    fn data_goes_first(&mut self, packing: &mut Packing, sums: &[(u64, u32)]) -> bool {
        if self.store.options().order == Order::Together {
            return false;
        }
        self.seal_unmixed(packing);
        packing.is_sent() || !sums.is_empty()
    }

    /// Returns whether an inode has content that no group has, and that one should have. That of directories comes
    /// with their names, and what belongs to the log itself with a checkpoint.
    fn has_news(&self, ino: u32) -> bool {
        self.loaded(ino).is_some_and(|live| {
            live.inode().attributes.nlink > 0
                && !live.inode().attributes.is_own
                && live.kind() != FileKind::Directory
                && (live.content_changed || live.dirty_pages > 0 || !live.unrecorded.is_empty())
        })
    }

    fn records(&mut self, whole: &BTreeSet<u32>, sums: &[(u64, u32)]) -> FsResult<Vec<u8>> {
        let mut stream = Vec::new();
        for run in sums.chunk_by(|left, right| left.0 + 1 == right.0) {
            let crcs: Vec<u32> = run.iter().map(|(_, crc)| *crc).collect();
            append_checksums(run[0].0, &crcs, &mut stream);
        }
        let dropped = self.files.unrecorded().dropped().iter();
        for (ino, attributes) in dropped.filter(|(_, attributes)| !attributes.is_own) {
            Record::Attributes {
                ino: *ino,
                whole: false,
                attributes: &attributes.encode(),
            }
            .append(&mut stream);
        }
        let touched: BTreeSet<u32> = self
            .files
            .unrecorded()
            .touched()
            .union(whole)
            .copied()
            .collect();
        for ino in touched {
            self.append_inode(ino, whole.contains(&ino), &mut stream)?;
        }
        stream.extend_from_slice(self.files.unrecorded().names());
        Ok(stream)
    }

    fn append_inode(&mut self, ino: u32, whole: bool, stream: &mut Vec<u8>) -> FsResult<()> {
        let live = self.live(ino)?;
        let attributes = live.inode().attributes;
        if attributes.is_own {
            // A checkpoint alone names it.
            return Ok(());
        }
        Record::Attributes {
            ino,
            whole,
            attributes: &attributes.encode(),
        }
        .append(stream);
        if live.xattrs_changed {
            let bytes = self.xattr_bytes(ino)?;
            append_xattrs(ino, &bytes, stream);
        }
        if !whole {
            return Ok(());
        }
        let live = self.live(ino)?;
        if attributes.is_inline {
            Record::Inline {
                ino,
                bytes: &live.inode().inline,
            }
            .append(stream);
            return Ok(());
        }
        let ranges: Vec<_> = live.unrecorded.iter().collect();
        for range in ranges {
            self.append_map(ino, range, stream)?;
        }
        Ok(())
    }

    /// Says where the logical blocks of a range lie, in as few runs as possible.
    fn append_map(
        &mut self,
        ino: u32,
        range: std::ops::Range<u32>,
        stream: &mut Vec<u8>,
    ) -> FsResult<()> {
        let mut runs: Vec<Mapped> = Vec::new();
        let mut add = |lblk: u32, count: u32, pointer: Pointer| {
            let next = Mapped::new(lblk, count, pointer);
            match runs.last_mut() {
                Some(run) if run.continues(&next) => run.extend(&next),
                _ => runs.push(next),
            }
        };
        let mut at = range.start;
        self.for_pointers(ino, range.clone(), |lblk, pointer| {
            if lblk > at {
                add(at, lblk - at, Pointer::Hole);
            }
            add(lblk, 1, pointer);
            at = lblk + 1;
        })?;
        if at < range.end {
            add(at, range.end - at, Pointer::Hole);
        }
        for run in runs {
            let pointer = run.pointer.encode();
            append_map((ino, run.lblk, run.count), pointer, &run.checksums, stream);
        }
        Ok(())
    }
}

/// Logical blocks beside each other that one record can map.
struct Mapped {
    lblk: u32,
    count: u32,
    /// Pointer of the first one, without its checksum.
    pointer: Pointer,
    /// Of plain blocks, one for each.
    checksums: Vec<Checksum>,
}

impl Mapped {
    fn new(lblk: u32, count: u32, pointer: Pointer) -> Self {
        let (pointer, checksum) = match pointer {
            Pointer::Plain(block, checksum) => (Pointer::unchecked(block), Some(checksum)),
            other => (other, None),
        };
        Self {
            lblk,
            count,
            pointer,
            checksums: checksum.into_iter().collect(),
        }
    }

    /// Returns whether the run goes on with another one.
    fn continues(&self, next: &Self) -> bool {
        let follows = match (self.pointer, next.pointer) {
            (Pointer::Plain(start, _), Pointer::Plain(block, _)) => {
                start + u64::from(self.count) == block
            }
            (Pointer::Packed(start), Pointer::Packed(at)) => {
                let sequence = u32::from(start.sequence) + self.count;
                at == Slotted {
                    sequence: sequence as u8,
                    ..start
                }
            }
            (Pointer::Hole, Pointer::Hole) | (Pointer::Preallocated, Pointer::Preallocated) => true,
            _ => false,
        };
        follows && self.lblk + self.count == next.lblk
    }

    fn extend(&mut self, next: &Self) {
        self.count += next.count;
        self.checksums.extend_from_slice(&next.checksums);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use anteros_core::{Caller, Counted, FsError, MemoryDevice, Timestamp, WritableDevice};
    use anteros_tests::faulty::{Call, Faulty, When};
    use rustix::io::Errno;

    use super::*;
    use crate::compress::policy::Policy;
    use crate::durable::recover;
    use crate::files::names::Birth;
    use crate::layout::ROOT;
    use crate::layout::checkpoint::HeadKind;
    use crate::layout::node::INODE_POINTERS;
    use crate::layout::summary::Owner;
    use crate::options::Options;
    use crate::statistics::Cause;
    use crate::store::medium::zeroed;
    use crate::{Shape, mkfs};

    fn now() -> Timestamp {
        Timestamp {
            secs: 1_000_000_000,
            nanos: 0,
        }
    }

    fn opened(device: Arc<dyn WritableDevice>, options: Options) -> Durable {
        mkfs(&device, &Shape::default(), Caller::default(), &options).unwrap();
        recover::open(device, options).unwrap().0
    }

    fn empty() -> MemoryDevice {
        MemoryDevice::new(vec![0; 32 << 20])
    }

    fn make(state: &mut Durable, name: &str) -> u32 {
        let birth = Birth::of_empty_file();
        state.make(ROOT, name.as_bytes(), &birth).unwrap()
    }

    /// A group says in sixteen bits how many before it are not known to be durable.
    #[test]
    fn a_flush_comes_when_too_many_groups_are_not_known_to_be_durable() {
        let device = Arc::new(Counted::new(empty()));
        let mut state = opened(device.clone(), Options::new(now));
        state.groups.durable = state.groups.sequence - LAG_MAX;
        let before = device.counts().flushes;
        for (number, flushes) in [1, 1, 1].into_iter().enumerate() {
            make(&mut state, &format!("{number}"));
            state.commit(&[]).unwrap();
            assert_eq!(device.counts().flushes - before, flushes, "{number}");
        }
        assert_eq!(state.groups.sequence - state.groups.durable, 3);
    }

    #[test]
    fn a_flush_that_fails_before_a_group_ends_all_changes() {
        let device = Arc::new(Faulty::new(empty()));
        let mut state = opened(device.clone(), Options::new(now));
        state.groups.durable = state.groups.sequence - LAG_MAX;
        make(&mut state, "file");
        device.inject(Call::Flush, When::From(0), Errno::IO);
        assert!(state.commit(&[]).is_err());
        assert!(state.store.failed().is_some());
    }

    /// No group behind one that is not whole would be found.
    #[test]
    fn a_group_that_finds_no_room_is_the_last_one() {
        let mut state = opened(Arc::new(empty()), Options::new(now));
        state.store.segments_mut().retire(0);
        let mut count = 0;
        let written = loop {
            make(&mut state, &format!("{count}"));
            count += 1;
            match state.commit(&[]) {
                Ok(_) => assert!(count < 2000),
                Err(error) => break error,
            }
        };
        assert!(matches!(written, FsError::NoSpace), "{written}");
        assert!(state.store.failed().is_some());
    }

    /// Tests the same where the content finds no room; what has its place can be read.
    #[test]
    fn a_group_whose_content_finds_no_room_is_the_last_one() {
        let options = Options {
            policy: Policy::Force,
            ..Options::new(now)
        };
        let mut state = opened(Arc::new(empty()), options);
        let ino = make(&mut state, "file");
        state.store.segments_mut().retire(0);
        let page = |round: u32, lblk: u32| {
            let mut page = *zeroed();
            let mut random = round * 1000 + lblk + 1;
            for byte in page.iter_mut().take(2000) {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (random >> 24) as u8;
            }
            page
        };
        let mut round = 0;
        loop {
            for lblk in 0..60 {
                let content = page(round, lblk);
                state.write(ino, u64::from(lblk) << 12, &content).unwrap();
            }
            match state.commit(&[ino]) {
                Ok(_) => assert!(round < 200),
                Err(error) => break assert!(matches!(error, FsError::NoSpace), "{error}"),
            }
            round += 1;
        }
        assert!(state.store.failed().is_some());
        let placed =
            (0..60).filter(|&lblk| state.loaded(ino).is_some_and(|live| !live.is_dirty(lblk)));
        assert!((1..60).contains(&placed.count()));
        for lblk in 0..60 {
            let found = state.content(ino, lblk).unwrap();
            assert!(*found == page(round, lblk), "{lblk}");
        }
    }

    /// Tests that content is read which shares a block with other content, whose pointer cannot be read.
    #[test]
    fn what_was_packed_before_something_failed_can_be_read() {
        let device = Arc::new(Faulty::new(empty()));
        let options = Options {
            policy: Policy::Force,
            evicts_always: true,
            ..Options::new(now)
        };
        let mut state = opened(device.clone(), options);
        let ino = make(&mut state, "file-journal");
        state.called(ino, b"file-journal").unwrap();
        // A chunk whose pointers lie in the inode and in a node.
        let first = INODE_POINTERS - 8;
        let offset = |lblk: u32| u64::from(lblk) << 12;
        state.write(ino, offset(first), &[1; 16 * 4096]).unwrap();
        state.commit(&[ino]).unwrap();
        state.checkpoint(false).unwrap();
        state.evict();
        state.write(ino, offset(0), &[2; 4096]).unwrap();
        state.write(ino, offset(first), &[3; 4096]).unwrap();
        device.inject(Call::Read, When::From(0), Errno::IO);
        let error = state.commit(&[ino]).unwrap_err();
        assert!(matches!(error, FsError::Io(_)), "{error}");
        assert!(state.store.failed().is_some());
        assert!(!state.live(ino).unwrap().is_dirty(0));
        assert!(*state.content(ino, 0).unwrap() == [2; 4096]);
    }

    /// Blocks that were read before anybody asked are not taken for what is written to their places later.
    #[test]
    fn what_was_kept_of_a_segment_goes_with_it() {
        let mut state = opened(Arc::new(empty()), Options::new(now));
        let owner = Owner::default();
        let moment = state.store.moment();
        let placed = state
            .store
            .place(HeadKind::Moved, owner, Cause::Data, moment);
        let block = placed.unwrap().block;
        state.store.ahead().keep(block, &zeroed()[..]);
        assert!(state.store.ahead().get(block).is_some());
        state.checkpoint(false).unwrap();
        assert!(state.store.ahead().get(block).is_some());
        state.store.segments_mut().close(HeadKind::Moved);
        state.checkpoint(false).unwrap();
        assert!(state.store.ahead().get(block).is_none());
    }

    fn place(state: &mut Durable) {
        let owner = Owner::default();
        let moment = state.store.moment();
        let placed = state
            .store
            .place(HeadKind::ColdData, owner, Cause::Data, moment);
        state.store.push(placed.unwrap().block, zeroed());
    }

    /// However many get their places at once.
    #[test]
    fn blocks_that_have_their_places_are_few_that_are_not_on_the_device() {
        let device = Arc::new(Counted::new(empty()));
        let options = Options {
            memory_bytes: 1 << 20,
            ..Options::new(now)
        };
        let mut state = opened(device.clone(), options);
        let before = device.counts().written_bytes;
        for count in 1..2500 {
            place(&mut state);
            let written = (device.counts().written_bytes - before) / 4096;
            assert!(written + 1600 > count, "{written} of {count}");
        }
    }

    #[test]
    fn the_thread_that_writes_begins_when_many_blocks_have_their_places() {
        let device = Arc::new(Counted::new(empty()));
        let mut state = opened(device.clone(), Options::new(now));
        let writer = state.store.writer().clone();
        thread::scope(|scope| {
            scope.spawn(|| writer.run());
            let before = device.counts().writes;
            (0..600).for_each(|_| place(&mut state));
            let begun = Instant::now();
            while device.counts().writes == before && begun.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(1));
            }
            let has_begun = device.counts().writes > before;
            writer.end();
            assert!(has_begun);
        });
    }
}
