//! Walk of all metadata of a log, whatever is wrong with it.
//!
//! All metadata is read once, in the order of the device: [the nodes](nodes), level by level, with [their
//! pointers](pointers), and [the blocks of directories](names), likewise. What they say becomes [records] of
//! fixed size, which are sorted by what they are about and compared with each other: [names with inodes](links), and
//! [blocks with their owners](claims). [Content](content) is read as well if that is asked for.
//!
//! A walk never stops at what is wrong: that becomes a [finding], and a [`Sink`] decides what it means. `check` puts
//! findings into words, `repair` notes what it has to change.
//!
//! Records beyond a share of the memory go to a temporary file. Beyond that, memory has a few bits for each number that
//! a node may have, and the table of the segments, as a mount has it.

use anteros_core::{FsResult, Record, Sorted, Sorter};

use crate::durable::Durable;
use crate::offline::walk::finding::{Fault, Place};
use crate::offline::walk::records::{
    About, Attached, Child, Chunk, DirBlock, Edge, Extent, PlainBlock, WantedDir,
};

pub(super) mod claims;
mod content;
pub(super) mod finding;
pub(super) mod links;
mod names;
mod nodes;
mod own_record;
mod pointers;
pub(super) mod records;
mod sweep;

/// Receiver of the findings of a walk.
pub(super) trait Sink {
    /// Tells whether a node that cannot be read is believed to own its block.
    const TRUSTS_UNREAD: bool;

    /// Takes a finding.
    fn find(&mut self, place: Place, fault: Fault);

    /// Returns whether an inode keeps its extended attributes. Else their nodes belong to nothing.
    fn has_attributes(&self, _ino: u32) -> bool {
        true
    }
}

/// A bit for each number that a node may have. Others are in no set of them.
pub(super) struct Numbers(Vec<u64>);

impl Numbers {
    pub(super) fn new(last: u32) -> Self {
        Self(vec![0; last as usize / 64 + 1])
    }

    pub(super) fn has(&self, nid: u32) -> bool {
        let word = self.0.get(nid as usize / 64);
        word.is_some_and(|word| word >> (nid % 64) & 1 == 1)
    }

    /// Says whether it was there before.
    pub(super) fn add(&mut self, nid: u32) -> bool {
        let was = self.has(nid);
        if let Some(word) = self.0.get_mut(nid as usize / 64) {
            *word |= 1 << (nid % 64);
        }
        was
    }
}

/// Numbers of what a walk met.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) others: u64,
    /// Inodes, whether they can be read or not.
    pub(super) inodes: u64,
    /// Nodes that something leads to.
    pub(super) nodes: u64,
    /// Nodes among them that do not own their blocks.
    pub(super) disowned: u64,
    /// Numbers of nodes that are in use.
    pub(super) numbers: u64,
    pub(super) data_blocks: u64,
    /// Inodes for which no block is counted, for they lie in slots.
    pub(super) in_slots: u64,
    /// Blocks of content that are not what was written, or cannot be read.
    pub(super) damaged_blocks: u64,
    pub(super) preallocated: u64,
}

/// A walk, and what it gathered so far.
pub(super) struct Walk<'a, S> {
    pub(super) state: &'a mut Durable,
    pub(super) sink: S,
    pub(super) counts: Counts,
    /// Inodes that are directories.
    pub(super) directories: Numbers,
    /// Inodes that a way leads to from the root.
    pub(super) reached: Numbers,
    pub(super) abouts: Sorter<About>,
    pub(super) edges: Sorter<Edge>,
    pub(super) children: Sorter<Child>,
    /// Bytes of memory for the records of one kind.
    memory: usize,
    /// Numbers of nodes that belong to something.
    nids: Numbers,
    /// Nodes that do not own their blocks.
    disowned: Numbers,
    attached: Sorter<Attached>,
    extents: Sorter<Extent>,
    chunks: Sorter<Chunk>,
    dir_blocks: Sorter<DirBlock>,
    /// Content that is to be read, if any is.
    content: Option<Sorter<PlainBlock>>,
    /// Blocks of directories that have to be looked at next.
    indexed: Sorter<WantedDir>,
}

impl<'a, S: Sink> Walk<'a, S> {
    /// A walk with so many bytes of memory for the records of one kind.
    pub(super) fn new(state: &'a mut Durable, sink: S, memory: usize) -> Self {
        let numbers = || Numbers::new(state.nodes.nat().count_max());
        Self {
            counts: Counts::default(),
            directories: numbers(),
            reached: numbers(),
            disowned: numbers(),
            abouts: Sorter::new(memory),
            attached: Sorter::new(memory),
            edges: Sorter::new(memory),
            children: Sorter::new(memory),
            memory,
            nids: numbers(),
            extents: Sorter::new(memory),
            chunks: Sorter::new(memory),
            dir_blocks: Sorter::new(memory),
            content: None,
            indexed: Sorter::new(memory),
            sink,
            state,
        }
    }

    pub(super) fn sorter<R: Record>(&self) -> Sorter<R> {
        Sorter::new(self.memory)
    }

    /// Sorts the records that were gathered of one kind, and begins anew.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub(super) fn sorted<R: Record>(
        &mut self,
        of: impl Fn(&mut Self) -> &mut Sorter<R>,
    ) -> FsResult<Sorted<R>> {
        let empty = self.sorter();
        Ok(std::mem::replace(of(self), empty).finish()?)
    }

    /// Looks for numbers that are in use and belong to nothing.
    pub(super) fn compare_numbers(&mut self) {
        for table_block in 0..self.state.nodes.nat().table_blocks() {
            // An error has been found already.
            let used = self.state.nodes.used_in(table_block);
            for (nid, entry) in used.unwrap_or_default() {
                if !self.nids.has(nid) {
                    let fault = Fault::Stray { ino: entry.ino };
                    self.sink.find(Place::Node(nid), fault);
                }
            }
        }
    }

    /// Takes a node for the owner of nothing.
    fn disown(&mut self, nid: u32) {
        let was = self.disowned.add(nid);
        self.counts.disowned += u64::from(!was);
    }

    fn find_in(&mut self, ino: u32, fault: Fault) {
        self.sink.find(Place::Inode(ino), fault);
    }
}
