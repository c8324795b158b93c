//! Numbers of nodes: what the table says of each, to those who know no more of a node, and what a checkpoint says of the
//! table.

use anteros_core::FsResult;

use crate::layout::bits::Bits;
use crate::layout::node::Inode;
use crate::layout::table::{NAT_PER_BLOCK, NatEntry};
use crate::layout::{ROOT, Superblock};
use crate::nodes::Nodes;
use crate::nodes::nat::Nat;
use crate::statistics::Cause;
use crate::store::table::Stated;

/// Entries that a pack has in its journal; with more, they go to the table.
const JOURNAL_MAX: usize = 800;

impl Nodes {
    /// Entry of a node in the table; of a free number too.
    pub(crate) fn entry(&mut self, nid: u32) -> FsResult<NatEntry> {
        self.nat.get(nid)
    }

    /// The numbers in use among those of a block of the table, and what it says of them.
    pub(crate) fn used_in(&mut self, table_block: u32) -> FsResult<Vec<(u32, NatEntry)>> {
        self.nat.used_in(table_block)
    }

    /// The inodes among the nodes of a block of the table.
    pub(crate) fn inos_in(&mut self, table_block: u32) -> FsResult<Vec<u32>> {
        let first = table_block * NAT_PER_BLOCK;
        let mut inos = Vec::new();
        for nid in first.max(ROOT)..first + NAT_PER_BLOCK {
            if self.nat.get(nid)?.ino == nid {
                inos.push(nid);
            }
        }
        Ok(inos)
    }

    /// Notes whether the files of a block of the table were looked at by a [sweep](crate::mount::sweep).
    pub(crate) fn set_swept(&mut self, table_block: u32, is_swept: bool) {
        self.nat.set_swept(table_block, is_swept);
    }

    /// The first block of the table, from this one on, whose files were not looked at since one of its entries changed.
    pub(crate) fn next_unswept(&self, from: u32) -> Option<u32> {
        self.nat.next_unswept(from)
    }

    /// The highest number that is in use.
    pub(crate) fn highest_nid(&mut self) -> FsResult<u32> {
        self.nat.highest()
    }

    /// Keeps a number from being given to another node before the next checkpoint: a record will name it.
    pub(crate) fn keep_nid(&mut self, nid: u32) {
        self.nat.reserve(nid);
    }

    /// Gives back a number that is of no node.
    pub(crate) fn free_stray(&mut self, nid: u32) -> FsResult<()> {
        self.nat.free(nid)
    }

    /// Makes the root directory of a log that is empty.
    pub(crate) fn make_root(&mut self, inode: Inode) {
        let entry = NatEntry {
            pointer: 0,
            ino: ROOT,
            generation: 0,
        };
        self.nat.set(ROOT, entry);
        self.insert(ROOT, inode);
    }

    /// Makes an inode again that a record names.
    pub(crate) fn make_again(&mut self, ino: u32, generation: u32, inode: Inode) -> FsResult<()> {
        self.nat.claim(ino, ino, generation)?;
        self.store.space_mut().take(1)?;
        self.insert(ino, inode);
        Ok(())
    }

    /// Journal of the table for a checkpoint; if it is too long for that, the table is written.
    pub(crate) fn nat_journal(&mut self) -> FsResult<Stated<(u32, NatEntry)>> {
        let stated = self.nat.checkpoint(JOURNAL_MAX)?;
        self.store
            .statistics_mut()
            .wrote_blocks(Cause::Checkpoint, stated.written);
        Ok(stated)
    }

    /// Notes that a checkpoint has everything: numbers that were given back before may be given away again.
    pub(crate) fn note_checkpoint(&mut self) {
        self.nat.release();
        for live in self.inodes.values_mut() {
            live.unrecorded.clear();
            live.content_changed = false;
            live.xattrs_changed = false;
        }
    }

    /// Has the table lie where another superblock says, which reads as zeros, from now on.
    pub(crate) fn move_table(&mut self, new: &Superblock) -> FsResult<()> {
        self.nat.copy_to(new)?;
        let cursor = Some(self.nat.cursor()).filter(|&cursor| cursor < new.nids);
        self.nat = Nat::new(
            self.store.shared_device(),
            new,
            Bits::new(new.nat_blocks as usize),
            [],
            cursor.unwrap_or(ROOT + 1),
            self.nat.used(),
        );
        Ok(())
    }
}
