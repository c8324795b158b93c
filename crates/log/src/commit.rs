//! Groups: what an fsync makes durable leaves in one piece.
//!
//! A group has every change of names and attributes since the one before, in the order in which they
//! were made, and the content of the files that were asked for. It is written behind the last one in the packed log;
//! after a crash it counts whole or not at all. `docs/format/log.md`, sections 12 and 13.

use std::collections::BTreeSet;

use anteros_core::{FileKind, FsError, FsResult};

use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::record::{Record, append_checksums, append_xattrs};
use crate::layout::{Block, crc};
use crate::options::Order;
use crate::pack::Packing;
use crate::state::State;

/// The most blocks of data that a group has checksums for. With more, and where some has left before, the data goes
/// first.
const SUMS_MAX: usize = 4096;

/// The most groups that are not known to be durable: a packed block has no room to say more.
const LAG_MAX: u64 = 1 << 15;

impl State {
    /// Writes a group with the content of these inodes, and all that was changed of names and attributes. Returns
    /// the number of the group that has them: the last one, if nothing is new.
    pub(crate) fn commit(&mut self, inos: &[u32]) -> FsResult<u64> {
        let wanted = self.wanted.iter().copied();
        let whole: BTreeSet<u32> = inos
            .iter()
            .copied()
            .chain(wanted)
            .filter(|&ino| self.has_news(ino))
            .collect();
        if self.sequence - self.durable >= LAG_MAX {
            self.flush()?;
            self.durable = self.sequence;
        }
        let mut sums = Vec::new();
        let mut packing = Packing::of_group(self.sequence);
        for &ino in &whole {
            self.note_synced(ino)?;
            let sum = |block, data: &Block| sums.push((block, crc(data)));
            if let Err(error) = self.write_pages(ino, &mut packing, sum) {
                if packing.is_begun() {
                    // Never the last block of a group, but what was packed can be read.
                    self.seal(&mut packing, false);
                    self.fail("a group could not be written", &error);
                }
                return Err(error);
            }
        }
        let is_under_way = whole.iter().any(|&ino| self.is_under_way(ino));
        if is_under_way || sums.len() > SUMS_MAX || self.data_goes_first(&mut packing, &sums) {
            self.flush()?;
            sums.clear();
        }
        let stream = self.records(&whole, &sums)?;
        if stream.is_empty() {
            // What is to be durable is part of some group before, perhaps of one that is still on its way.
            return Ok(self.sequence - 1);
        }
        let sequence = self.sequence;
        self.sequence += 1;
        let written = self
            .finish_group(&mut packing, &stream)
            .and_then(|()| self.note_recorded(&whole));
        if let Err(error) = &written {
            // No group behind one that is not whole would be found.
            self.fail("a group could not be written", error);
        }
        written?;
        self.statistics.groups += 1;
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
        if self.options.order == Order::Together {
            return false;
        }
        self.seal_unmixed(packing);
        packing.is_sent() || !sums.is_empty()
    }

    /// Returns whether an inode has content that no group has, and that one should have. That of directories comes
    /// with their names.
    fn has_news(&self, ino: u32) -> bool {
        self.loaded(ino).is_some_and(|live| {
            live.inode().attributes.nlink > 0
                && live.kind() != FileKind::Directory
                && (live.content_changed || live.dirty_pages > 0 || !live.unrecorded.is_empty())
        })
    }

    /// Waits until all that was written is on the device.
    pub(crate) fn flush(&mut self) -> FsResult<()> {
        self.submit()?;
        let epoch = self.flushing();
        let flushed = self.device.flush().map_err(FsError::Io);
        match &flushed {
            Ok(()) => self.flushed(epoch),
            Err(error) => self.fail("the device could not be flushed", error),
        }
        flushed
    }

    fn records(&mut self, whole: &BTreeSet<u32>, sums: &[(u64, u32)]) -> FsResult<Vec<u8>> {
        let mut stream = Vec::new();
        for run in sums.chunk_by(|left, right| left.0 + 1 == right.0) {
            let crcs: Vec<u32> = run.iter().map(|(_, crc)| *crc).collect();
            append_checksums(run[0].0, &crcs, &mut stream);
        }
        for (ino, attributes) in &self.dropped {
            Record::Attributes {
                ino: *ino,
                whole: false,
                attributes: &attributes.encode(),
            }
            .append(&mut stream);
        }
        let touched: BTreeSet<u32> = self.touched.union(whole).copied().collect();
        for ino in touched {
            self.append_inode(ino, whole.contains(&ino), &mut stream)?;
        }
        stream.extend_from_slice(&self.names);
        Ok(stream)
    }

    fn append_inode(&mut self, ino: u32, whole: bool, stream: &mut Vec<u8>) -> FsResult<()> {
        let live = self.live(ino)?;
        let attributes = live.inode().attributes;
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
        let mut runs: Vec<(u32, u32, Pointer)> = Vec::new();
        let mut add = |lblk: u32, count: u32, pointer: Pointer| match runs.last_mut() {
            Some((first, len, last))
                if *first + *len == lblk && continues(*last, *len, pointer) =>
            {
                *len += count
            }
            _ => runs.push((lblk, count, pointer)),
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
        for (lblk, count, pointer) in runs {
            Record::Map {
                ino,
                lblk,
                count,
                pointer: pointer.encode(),
            }
            .append(stream);
        }
        Ok(())
    }

    fn note_recorded(&mut self, whole: &BTreeSet<u32>) -> FsResult<()> {
        for ino in std::mem::take(&mut self.touched) {
            self.live(ino)?.xattrs_changed = false;
        }
        for &ino in whole {
            let live = self.live(ino)?;
            live.unrecorded.clear();
            live.content_changed = false;
        }
        self.names.clear();
        self.unrecorded_xattrs = 0;
        self.wanted.clear();
        self.dropped.clear();
        Ok(())
    }
}

/// Returns whether `pointer` is what a run of `len` beginning with `first` goes on with.
fn continues(first: Pointer, len: u32, pointer: Pointer) -> bool {
    match (first, pointer) {
        (Pointer::Plain(start), Pointer::Plain(block)) => start + u64::from(len) == block,
        (Pointer::Packed(start), Pointer::Packed(at)) => {
            let sequence = u32::from(start.sequence) + len;
            at == Slotted {
                sequence: sequence as u8,
                ..start
            }
        }
        (Pointer::Hole, Pointer::Hole) | (Pointer::Promised, Pointer::Promised) => true,
        _ => false,
    }
}
