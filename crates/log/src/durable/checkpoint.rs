//! Checkpoints: from time to time everything is written, and a pack says which places count.
//!
//! Blocks that a pack refers to are flushed before the pack is written. The pack is flushed before anything that it
//! made free is used again. `docs/format/log.md`, section 3.

use std::io;

use anteros_core::{FsError, FsResult};

use crate::durable::Durable;
use crate::layout::BLOCK_BYTES;
use crate::layout::checkpoint::Checkpoint;
use crate::statistics::Cause;

impl Durable {
    /// Writes a checkpoint: what was done before it survives whatever comes.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> FsResult<()> {
        self.store.check_writable()?;
        let written = self.write_checkpoint(clean);
        if let Err(error) = &written {
            self.store.fail("a checkpoint could not be written", error);
            // What has its place already shall be found there.
            let _ = self.store.submit();
        }
        written
    }

    fn write_checkpoint(&mut self, clean: bool) -> FsResult<()> {
        self.write_content()?;
        self.pack_inodes()?;
        self.write_nodes()?;
        self.store.open_packed()?;
        // They are on their way while the tables follow.
        self.store.hand_over();
        self.store.writer().wake();
        let nat = self.nodes.nat_journal()?;
        let slots = self.store.bst_journal()?;
        let sit_journal = self.store.sit_journal()?;
        self.store.flush()?;
        let version = self.store.version() + 1;
        let (heads, summaries) = self.store.segments().heads();
        let rewritten = self.store.take_rewritten();
        let pack = Checkpoint {
            version,
            clean,
            superseded: false,
            time: self.store.now(),
            used_blocks: self.store.segments().valid(),
            reserved_blocks: self.store.space().preallocated(),
            // Counts that a damaged log has brought along must not make one that no mount takes.
            inodes: self.nodes.inode_count().min(self.nodes.nat().used()),
            nodes: self.nodes.nat().used().min(self.nodes.nat().count_max()),
            next_nid: self.nodes.nat().cursor(),
            next_sequence: self.groups.sequence,
            serial: self.store.segments().serial(),
            record_ino: self.files.record_ino(),
            heads,
            nat_bits: nat.bits,
            sit_bits: self.store.sit_bits(),
            bst_bits: slots.bits,
            orphans: self.files.orphans(),
            orphans_left_out: false,
            nat_journal: nat.journal,
            sit_journal,
            bst_journal: slots.journal,
            summaries,
            rewritten,
        };
        self.write_pack(&pack)?;
        self.store.flush()?;
        self.store.set_version(version);
        self.groups.durable = self.groups.sequence;
        self.groups.checkpointed = self.groups.sequence;
        self.groups.checkpoint_time = pack.time;
        self.store.statistics_mut().checkpoints += 1;
        self.files.note_checkpoint();
        self.store.supersede(version - 1)?;
        self.store.rewrite_summaries(&pack.rewritten)?;
        if clean {
            // Nothing comes that would take it along.
            self.store.flush()?;
        }
        self.store.discard_released();
        if let Some(why) = self.nodes.nat().overflow().map(str::to_owned) {
            let text = "too many blocks of the node address table cannot be written";
            self.store.fail(text, &FsError::Io(io::Error::other(why)));
        }
        Ok(())
    }

    fn write_pack(&mut self, pack: &Checkpoint) -> FsResult<()> {
        let room = u64::from(self.store.superblock().checkpoint_blocks);
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
            return Err(match self.nodes.nat().unwritten().into_iter().next_back() {
                Some(why) => FsError::Io(io::Error::other(format!("{text}: {why}"))),
                None => FsError::Corrupt(text),
            });
        }
        let place = self.store.pack_place(pack.version);
        self.store
            .statistics_mut()
            .wrote_blocks(Cause::Checkpoint, blocks);
        Ok(self
            .store
            .device()
            .write_at(place * BLOCK_BYTES as u64, &bytes)?)
    }

    /// Returns whether the last checkpoint has everything.
    pub(crate) fn is_settled(&self) -> bool {
        let unrecorded = self.files.unrecorded().count() + self.store.dirty_blocks();
        unrecorded == 0
            && self.groups.sequence == self.groups.checkpointed
            && self.store.segments().prefree_count() == 0
    }
}
