//! The content of a file that changes: which extents of it stay where they are.
//!
//! ```text
//! before   | extent | extent | extent | extent | packed |
//! equal    |█████████████|    |██████████████████████████|
//! now      | stays  | new      | stays  | stays | stays  |
//! ```
//!
//! An extent stays if its first byte does; of one that is not used to its end only the front is, where the image may have such.
//! Bytes of the packed inode stay there if they are the end of the file; else the extents of the packed inode are used.

use std::collections::HashSet;
use std::ops::Range;

use anteros_core::{Algorithm, FsError, FsResult, Ino, StoredPlace, StoredRun};
use anteros_format::EXTENT_BYTES_MAX;

use super::equal::Equal;
use super::kept::{Kept, KeptRun};
use crate::Options;
use crate::base::Base;
use crate::extent::{Extent, Share};
use crate::index::more_in_full;
use crate::parts::{self, Shared};
use crate::tree::NodeId;

/// Limits of the extents that the index of a file can name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub algorithm: Algorithm,
    pub pcluster_bytes: u32,
    pub block_bytes: u32,
    /// Extents begin at any byte of the image.
    pub anywhere: bool,
    /// Streams may have several blocks.
    pub big: bool,
    /// Parts of streams may be used, and streams by several files.
    pub may_share: bool,
}

impl Rules {
    pub fn new(
        options: &Options,
        algorithm: Algorithm,
        pcluster_bytes: u32,
        may_share: bool,
    ) -> Self {
        Self {
            algorithm,
            pcluster_bytes,
            block_bytes: options.block_bytes(),
            anywhere: options.has_encoded_extents(),
            big: options.big_pclusters(),
            may_share,
        }
    }

    /// Returns whether the index can say where a stream lies.
    pub fn has_place(&self, address: u64, bytes: u32) -> bool {
        if self.anywhere {
            return bytes > 0;
        }
        let block = u64::from(self.block_bytes);
        let is_whole = address % block == 0 && bytes % self.block_bytes == 0;
        let is_long = bytes > self.block_bytes;
        is_whole && bytes > 0 && (self.big || !is_long) && address / block < u32::MAX.into()
    }
}

/// A file of the image.
pub(super) struct Former<'a> {
    pub base: &'a dyn Base,
    pub ino: Ino,
}

/// Collects what stays of a file of `size` bytes.
pub(super) struct Collector<'a> {
    former: Former<'a>,
    rules: Rules,
    size: u64,
    runs: Vec<KeptRun>,
    fragment: Option<(u64, u64)>,
    second: Option<Algorithm>,
    /// Places of streams and blocks that may not be used again.
    used: HashSet<u64>,
}

impl<'a> Collector<'a> {
    pub fn new(former: Former<'a>, rules: Rules, size: u64) -> Self {
        Self {
            former,
            rules,
            size,
            runs: Vec::new(),
            fragment: None,
            second: None,
            used: HashSet::new(),
        }
    }

    /// Adds what both forms have, behind all that was added.
    pub fn add(&mut self, equal: &Equal) -> FsResult<()> {
        let bytes = equal.from..equal.from + equal.len;
        let Former { base, ino } = self.former;
        for run in base.stored(Some(ino), bytes.clone())? {
            let clipped = clipped(&run, &bytes);
            let start = equal.at + (clipped.start - equal.from);
            match run.place {
                StoredPlace::Stream { .. } if clipped.start == run.offset => {
                    self.stream(start, &run, clipped.end - clipped.start, Share::Kept)?;
                }
                StoredPlace::Blocks(address) => {
                    let address = address + (clipped.start - run.offset);
                    self.blocks(start, address, clipped.end - clipped.start);
                }
                StoredPlace::Packed(offset) => {
                    let offset = offset + (clipped.start - run.offset);
                    self.packed(start, offset, clipped.end - clipped.start)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the front of a stream, or all of it.
    fn stream(&mut self, start: u64, run: &StoredRun, len: u64, share: Share) -> FsResult<()> {
        let StoredPlace::Stream {
            address,
            bytes,
            algorithm,
            partial,
        } = run.place
        else {
            return Ok(());
        };
        let is_front = algorithm.is_some() && (partial || len < run.len);
        if !self.rules.has_place(address, bytes) || is_front && !self.rules.may_share {
            return Ok(());
        }
        let is_second = algorithm.is_some_and(|algorithm| algorithm != self.rules.algorithm);
        if is_second && self.second.is_some() && self.second != algorithm {
            return Ok(());
        }
        let Ok(len) = u32::try_from(len) else {
            return Err(FsError::Corrupt(format!("an extent of {len} bytes")));
        };
        if is_second {
            self.second = algorithm;
        }
        let extent = Extent {
            len,
            stored: bytes,
            plain: algorithm.is_none(),
            quick: is_second,
            share: if is_front { Share::Front } else { share },
        };
        self.push(start, address, extent);
        Ok(())
    }

    /// Adds blocks that hold bytes as they are, from the first one that begins with one of them.
    fn blocks(&mut self, start: u64, address: u64, len: u64) {
        let Rules {
            block_bytes,
            anywhere,
            ..
        } = self.rules;
        let front = address.next_multiple_of(block_bytes.into()) - address;
        let (mut start, mut address) = (start + front, address + front);
        let mut left = len.saturating_sub(front);
        while left > 0 {
            let extent = Extent::plain(left, block_bytes, anywhere);
            if !self.rules.has_place(address, extent.stored) {
                return;
            }
            let len = u64::from(extent.len);
            let share = Share::Kept;
            self.push(start, address, Extent { share, ..extent });
            (start, address, left) = (start + len, address + len, left - len);
        }
    }

    /// Adds bytes of the packed inode.
    fn packed(&mut self, start: u64, offset: u64, len: u64) -> FsResult<()> {
        let is_end = start + len == self.size;
        let size = self.size;
        let is_whole_end = |at: u64| is_end && size - at <= EXTENT_BYTES_MAX;
        if is_whole_end(start) || is_end && start == 0 {
            self.fragment = Some((start, offset));
            return Ok(());
        }
        let bytes = offset..offset + len;
        for run in self.former.base.stored(None, bytes.clone())? {
            if run.offset < offset {
                continue;
            }
            let at = start + (run.offset - offset);
            if is_whole_end(at) {
                self.fragment = Some((at, run.offset));
                return Ok(());
            }
            let clipped = clipped(&run, &bytes);
            self.stream(at, &run, clipped.end - clipped.start, Share::Whole)?;
        }
        Ok(())
    }

    fn push(&mut self, start: u64, at: u64, extent: Extent) {
        if !self.rules.may_share && !self.used.insert(at) {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.start + last.bytes() == start && last.next() == at => {
                last.extents.push(extent);
            }
            _ => self.runs.push(KeptRun {
                start,
                at,
                extents: vec![extent],
            }),
        }
    }

    /// Returns the content that stays, and the parts of the file that it is; `None` if it is not worth it.
    pub fn finish(mut self, id: NodeId) -> Option<(Kept, Vec<Shared>)> {
        if let Some((0, offset)) = self.fragment {
            return Some((Kept::Packed(offset), Vec::new()));
        }
        self.leave_short();
        let size = self.size;
        let part = |(start, end)| Shared {
            start,
            end,
            source: id,
            from: start,
        };
        let parts = self.runs.iter();
        let parts = parts.map(|run| (run.start, run.start + run.bytes()));
        let end = self.fragment.map(|(start, _)| (start, size));
        let shared: Vec<Shared> = parts.chain(end).map(part).collect();
        let stored = self.runs.iter().map(|run| run.next() - run.at);
        let index_more = match self.rules.anywhere {
            true => 0,
            false => more_in_full(size, self.rules.block_bytes.into()),
        };
        let is_worth_it = self.fragment.is_some() || stored.sum::<u64>() > index_more;
        let kept = Kept::Extents {
            runs: self.runs,
            fragment: self.fragment,
            second: self.second,
        };
        is_worth_it.then_some((kept, shared))
    }

    /// Leaves short runs out that stand alone: each costs half a block, and what follows begins with nothing to refer to.
    fn leave_short(&mut self) {
        let Rules {
            block_bytes,
            pcluster_bytes,
            ..
        } = self.rules;
        let least = parts::least(block_bytes.into(), pcluster_bytes.into());
        let end = |run: &KeptRun| run.start + run.bytes();
        let runs = std::mem::take(&mut self.runs);
        let fragment = self.fragment.map(|(start, _)| start);
        let starts = runs.iter().skip(1).map(|run| run.start);
        let nexts: Vec<_> = starts.map(Some).chain([fragment]).collect();
        let mut before = 0;
        for (run, next) in runs.into_iter().zip(nexts) {
            let (start, end) = (run.start, end(&run));
            if run.bytes() >= least || start == before || next == Some(end) {
                self.runs.push(run);
            }
            before = end;
        }
    }
}

/// The bytes of a run that are among some.
fn clipped(run: &StoredRun, bytes: &Range<u64>) -> Range<u64> {
    let start = run.offset.max(bytes.start);
    start..run.end().min(bytes.end).max(start)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::base::Record;

    /// A file of these runs, and a packed inode of those.
    pub(in super::super) struct Told(pub Vec<StoredRun>, pub Vec<StoredRun>);

    impl Base for Told {
        fn record(&self, _: Ino) -> FsResult<Record> {
            Err(FsError::NotFound)
        }

        fn read(&self, _: u64, _: &mut [u8]) -> FsResult<()> {
            Err(FsError::NotFound)
        }

        fn stored(&self, ino: Option<Ino>, bytes: Range<u64>) -> FsResult<Vec<StoredRun>> {
            let runs = if ino.is_some() { &self.0 } else { &self.1 };
            let runs = runs.iter().copied();
            Ok(runs
                .filter(|run| run.offset < bytes.end && run.end() > bytes.start)
                .collect())
        }
    }

    const RULES: Rules = Rules {
        algorithm: Algorithm::Lz4,
        pcluster_bytes: 4096,
        block_bytes: 4096,
        anywhere: false,
        big: true,
        may_share: false,
    };

    fn run(offset: u64, len: u64, place: StoredPlace) -> StoredRun {
        StoredRun { offset, len, place }
    }

    fn stream(address: u64, algorithm: Option<Algorithm>) -> StoredPlace {
        StoredPlace::Stream {
            address,
            bytes: 8192,
            algorithm,
            partial: false,
        }
    }

    /// The content that stays, and the parts of the new form that it is.
    fn kept(
        told: &Told,
        rules: Rules,
        size: u64,
        equals: &[Equal],
    ) -> Option<(Kept, Vec<[u64; 2]>)> {
        let former = Former {
            base: told,
            ino: Ino(7),
        };
        let mut collector = Collector::new(former, rules, size);
        equals
            .iter()
            .for_each(|equal| collector.add(equal).unwrap());
        let (kept, shared) = collector.finish(3)?;
        let parts = shared.iter().map(|part| [part.start, part.end]);
        Some((kept, parts.collect()))
    }

    /// Three streams of 20000 bytes that lie behind each other.
    fn streams() -> Told {
        let stream = |n| stream(40_960 + 8192 * n, Some(Algorithm::Lz4));
        Told(
            (0..3).map(|n| run(20_000 * n, 20_000, stream(n))).collect(),
            Vec::new(),
        )
    }

    fn equal(at: u64, from: u64, len: u64) -> Equal {
        Equal { at, from, len }
    }

    #[test]
    fn streams_stay_that_begin_with_equal_bytes() {
        let changed = [equal(0, 0, 30_000), equal(30_005, 30_001, 29_999)];
        let (_, parts) = kept(&streams(), RULES, 60_004, &changed).unwrap();
        assert_eq!(parts, [[0, 20_000], [40_004, 60_004]]);
        let rules = Rules {
            may_share: true,
            ..RULES
        };
        let (kept_now, parts) = kept(&streams(), rules, 60_004, &changed).unwrap();
        assert_eq!(parts, [[0, 30_000], [40_004, 60_004]]);
        let shares: Vec<_> = kept_now
            .from(0)
            .map(|(extent, at)| (extent.share, at))
            .collect();
        assert_eq!(shares, [(Share::Kept, 40_960), (Share::Front, 49_152)]);
    }

    #[test]
    fn nothing_is_used_twice_where_linux_may_not_know_that() {
        let twice = [equal(0, 0, 60_000), equal(60_000, 0, 60_000)];
        let (_, parts) = kept(&streams(), RULES, 120_000, &twice).unwrap();
        assert_eq!(parts, [[0, 60_000]]);
        let rules = Rules {
            may_share: true,
            ..RULES
        };
        let (_, parts) = kept(&streams(), rules, 120_000, &twice).unwrap();
        assert_eq!(parts, [[0, 60_000], [60_000, 120_000]]);
    }

    #[test]
    fn streams_that_the_index_cannot_name_are_left_out() {
        let all = [equal(0, 0, 60_000)];
        let small = Rules {
            big: false,
            ..RULES
        };
        assert!(kept(&streams(), small, 60_000, &all).is_none());
        let mut told = streams();
        told.0[1].place = stream(40_960 + 8193, Some(Algorithm::Lz4));
        let (_, parts) = kept(&told, RULES, 60_000, &all).unwrap();
        assert_eq!(parts, [[0, 20_000], [40_000, 60_000]]);
        // Two algorithms have a place, a third one has none.
        told.0[1].place = stream(90_112, Some(Algorithm::Zstd));
        told.0[2].place = stream(98_304, Some(Algorithm::Lzma));
        let (kept, parts) = kept(&told, RULES, 60_000, &all).unwrap();
        assert_eq!(
            (parts, kept.second()),
            (vec![[0, 20_000], [20_000, 40_000]], Some(Algorithm::Zstd))
        );
        assert!(kept.from(20_000).all(|(extent, _)| extent.quick));
    }

    #[test]
    fn blocks_are_extents_that_hold_bytes_as_they_are() {
        let told = Told(vec![run(0, 50_000, StoredPlace::Blocks(8192))], Vec::new());
        let shifted = [equal(100, 1, 49_999)];
        let (kept, parts) = kept(&told, RULES, 50_099, &shifted).unwrap();
        assert_eq!(parts, [[100 + 4095, 50_099]]);
        let extents: Vec<_> = kept.from(4195).collect();
        assert_eq!((extents.len(), extents[0].1), (12, 12_288));
        assert_eq!((extents[11].0.len, extents[11].0.stored), (848, 4096));
    }

    #[test]
    fn the_end_stays_in_the_packed_inode_and_other_parts_have_its_extents() {
        let packed = (0..3).map(|n| {
            let place = stream(40_960 + 8192 * n, Some(Algorithm::Lz4));
            run(70_000 * n, 70_000, place)
        });
        let told = Told(
            vec![run(0, 150_000, StoredPlace::Packed(30_000))],
            packed.collect(),
        );
        let rules = Rules {
            may_share: true,
            ..RULES
        };
        let changed = [equal(0, 0, 120_000), equal(120_001, 120_001, 29_999)];
        let (found, parts) = kept(&told, rules, 150_000, &changed).unwrap();
        assert_eq!(parts, [[40_000, 120_000], [120_001, 150_000]]);
        assert_eq!(found.fragment_at(120_001), Some(150_001));
        let shares: Vec<_> = found.from(40_000).map(|(extent, _)| extent.share).collect();
        assert_eq!(shares, [Share::Whole, Share::Front]);
        // Cut off at its end, all of it stays there.
        let cut = kept(&told, rules, 90_000, &[equal(0, 0, 90_000)]).unwrap();
        assert_eq!(cut, (Kept::Packed(30_000), Vec::new()));
    }
}
