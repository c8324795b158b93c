//! Checkpoints: from time to time everything is written, and a pack says which places count.
//!
//! What the pack refers to is flushed before the pack is written, and the pack before anything that it made
//! free is used again. `docs/format/log.md`, section 3.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::PoisonError;

use anteros_core::{FsError, FsResult};

use crate::layout::checkpoint::Checkpoint;
use crate::layout::summary::Owner;
use crate::layout::table::{SIT_PER_BLOCK, SitEntry};
use crate::layout::{BLOCK_BYTES, SEGMENT_BLOCKS};
use crate::state::State;
use crate::statistics::Cause;
use crate::store::medium::{read_block, zeroed};

/// Entries that a pack has in its journals; with more, they go to the tables.
const NAT_JOURNAL_MAX: usize = 800;

impl State {
    /// Writes a checkpoint: what was done before it survives whatever comes.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> FsResult<()> {
        self.check_writable()?;
        let written = self.write_checkpoint(clean);
        if let Err(error) = &written {
            self.fail("a checkpoint could not be written", error);
            // What has its place already shall be found there.
            let _ = self.submit();
        }
        written
    }

    fn write_checkpoint(&mut self, clean: bool) -> FsResult<()> {
        self.write_content()?;
        self.write_nodes()?;
        self.back_heads();
        self.segments.open_packed().ok_or(FsError::NoSpace)?;
        // They are on their way while the tables follow.
        self.hand_over();
        self.writer.wake();
        let nat = self.nat.checkpoint(NAT_JOURNAL_MAX)?;
        self.statistics.wrote_blocks(Cause::Checkpoint, nat.written);
        let slots = self.slots.checkpoint()?;
        self.statistics
            .wrote_blocks(Cause::Checkpoint, slots.written);
        let sit_journal = self.sit_journal()?;
        self.flush()?;
        let version = self.version + 1;
        let (heads, summaries) = self.segments.heads();
        let rewritten = self.segments.take_rewritten();
        let pack = Checkpoint {
            version,
            clean,
            superseded: false,
            time: self.now(),
            used_blocks: self.segments.valid(),
            reserved_blocks: self.space.promised(),
            // Counts that a damaged log has brought along must not make one that no mount takes.
            inodes: self.inode_count.min(self.nat.used()),
            nodes: self.nat.used().min(self.nat.count_max()),
            next_nid: self.nat.cursor(),
            next_sequence: self.sequence,
            serial: self.segments.serial(),
            heads,
            nat_bits: nat.bits,
            sit_bits: self.tables.sit_bits.clone(),
            bst_bits: slots.bits,
            orphans: self.orphans.iter().copied().collect(),
            orphans_left_out: false,
            nat_journal: nat.journal,
            sit_journal,
            bst_journal: slots.journal,
            summaries,
            rewritten,
        };
        self.write_pack(&pack)?;
        self.flush()?;
        self.version = version;
        self.durable = self.sequence;
        self.checkpointed = self.sequence;
        self.checkpoint_time = pack.time;
        self.statistics.checkpoints += 1;
        self.nat.release();
        self.forget_unrecorded();
        self.supersede(version - 1)?;
        self.rewrite_summaries(&pack.rewritten)?;
        if clean {
            // Nothing comes that would take it along.
            self.flush()?;
        }
        self.discard_released();
        if let Some(why) = self.nat.overflow().map(str::to_owned) {
            let text = "too many blocks of the node address table cannot be written";
            self.fail(text, &FsError::Io(io::Error::other(why)));
        }
        Ok(())
    }

    /// Has the pack before this one say that it counts no more: what it names may be overwritten from here on, and should this
    /// one be damaged some day, nobody must take that for what it was. It goes with the next flush.
    fn supersede(&mut self, version: u64) -> FsResult<()> {
        let place = self.pack_place(version);
        let mut first = match read_block(&*self.device, place) {
            Ok(first) => first,
            // Should it be readable again some day, it must not be what it was.
            Err(FsError::Io(_)) => {
                return Ok(self
                    .device
                    .write_at(place * BLOCK_BYTES as u64, &*zeroed())?);
            }
            Err(error) => return Err(error),
        };
        if Checkpoint::supersede(&mut first) {
            self.statistics.wrote(Cause::Checkpoint);
            self.device.write_at(place * BLOCK_BYTES as u64, &*first)?;
        }
        Ok(())
    }

    /// Writes summaries over those that are there. That may be torn: the checkpoint has them until the next one has been written, whose
    /// flush they go with.
    fn rewrite_summaries(&mut self, summaries: &[(u32, Vec<Owner>)]) -> FsResult<()> {
        for (segment, owners) in summaries {
            let (place, summary) = self.segments.summary(*segment, owners);
            self.push(place, summary);
            self.statistics.wrote(Cause::Summary);
        }
        self.submit()
    }

    /// The first block of the pack in which a version lies.
    fn pack_place(&self, version: u64) -> u64 {
        let room = u64::from(self.superblock.checkpoint_blocks);
        self.superblock.checkpoint_start + version % 2 * room
    }

    /// Entries that are newer than the table; where they are too many, they go there.
    fn sit_journal(&mut self) -> FsResult<Vec<(u32, SitEntry)>> {
        self.tables.newer.extend(self.segments.take_changed());
        if self.tables.newer.len() > self.tables.journal_max {
            let blocks: BTreeSet<u32> = std::mem::take(&mut self.tables.newer)
                .iter()
                .map(|segment| segment / SIT_PER_BLOCK)
                .collect();
            for index in blocks {
                self.write_sit_block(index)?;
            }
        }
        Ok(self
            .tables
            .newer
            .iter()
            .map(|&segment| (segment, self.segments.entry(segment)))
            .collect())
    }

    fn write_sit_block(&mut self, index: u32) -> FsResult<()> {
        let mut block = zeroed();
        let first = index * SIT_PER_BLOCK;
        for segment in first..(first + SIT_PER_BLOCK).min(self.segments.count()) {
            self.segments
                .entry(segment)
                .write(&mut block, segment - first);
        }
        self.tables.sit_bits.flip(index as usize);
        let (start, blocks) = (self.superblock.sit_start, self.superblock.sit_blocks);
        let place = self.tables.sit_bits.place(start, blocks, index);
        self.statistics.wrote(Cause::Checkpoint);
        Ok(self.device.write_at(place * BLOCK_BYTES as u64, &*block)?)
    }

    fn write_pack(&mut self, pack: &Checkpoint) -> FsResult<()> {
        let room = u64::from(self.superblock.checkpoint_blocks);
        let mut bytes = pack.encode();
        if (bytes.len() / BLOCK_BYTES) as u64 > room {
            // A mount can find them without a list.
            let shorter = Checkpoint {
                orphans: Vec::new(),
                orphans_left_out: true,
                ..pack.clone()
            };
            bytes = shorter.encode();
        }
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        if blocks > room {
            let text = format!("a checkpoint takes {blocks} blocks, but a pack has {room}");
            return Err(match self.nat.unwritten().into_iter().next_back() {
                Some(why) => FsError::Io(io::Error::other(format!("{text}: {why}"))),
                None => FsError::Corrupt(text),
            });
        }
        let place = self.pack_place(pack.version);
        self.statistics.wrote_blocks(Cause::Checkpoint, blocks);
        Ok(self.device.write_at(place * BLOCK_BYTES as u64, &bytes)?)
    }

    /// Tells the device of the segments that hold nothing any more. That is advice: what fails is told, and no more.
    fn discard_released(&mut self) {
        let reading = self.reading.clone();
        let _nobody_reads = reading.write().unwrap_or_else(PoisonError::into_inner);
        let released = self.segments.release();
        for &segment in &released {
            let start = self.segments.start(segment);
            self.ahead.forget(start..start + u64::from(SEGMENT_BLOCKS));
        }
        let bytes = u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES as u64;
        for segment in released {
            if !self.discards {
                return;
            }
            if !self.gives_back(segment) {
                continue;
            }
            let at = self.segments.start(segment) * BLOCK_BYTES as u64;
            match self.device.discard(at, bytes) {
                Err(error) if error.kind() == ErrorKind::Unsupported => self.discards = false,
                Err(error) => {
                    self.statistics.failed_discards += 1;
                    // One tells as much as many.
                    if self.complaints.is_empty() {
                        let text = format!("{bytes} bytes at {at} could not be discarded: {error}");
                        self.complaints.push(text);
                    }
                }
                Ok(()) => {}
            }
        }
    }
}
