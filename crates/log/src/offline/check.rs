//! Check of a log: all metadata must agree.
//!
//! The log is opened as a mount would open it, groups behind the checkpoint included, but nothing is written. Then all
//! metadata is read once, in the order of the device: [the nodes](nodes), level by level, and [the blocks of
//! directories](names), likewise. What they say becomes [records](records) of fixed size, which are sorted by what they
//! are about and held against each other, and against what the tables say: [names against inodes](links), and
//! [blocks against segments and summaries](blocks). Each valid block has one owner, each owner's block is valid, links and
//! sizes are as counted, and nothing is left over.
//!
//! Records beyond [`Options::memory_bytes`] go to a temporary file. Beyond that, memory has a few bits for each number
//! that a node may have, and the table of the segments, as a mount has it.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use anteros_core::{Record, Sorted, Sorter, WritableDevice};
use finding::Finding;
use records::{About, Child, Chunk, DirBlock, Edge, Extent, WantedDir};

use crate::durable::recover::{self, Recovery};
use crate::error::LogError;
use crate::layout::Corrupt;
use crate::options::Options;
use crate::state::State;
use crate::store::packs::{self, UNREADABLE};
use crate::store::superblock;

mod blocks;
mod finding;
mod findings;
mod links;
mod names;
mod nodes;
mod records;
mod sweep;

/// Parts that memory is divided into: so many sorters hold records at once, with what sorting adds; a mounted log
/// takes some as well.
const SHARES: usize = 16;

/// Result of a check.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Faults, in words: where, what, which value. The first thousand of them.
    pub faults: Vec<String>,
    /// All faults.
    pub fault_count: u64,
    /// Troubles of the device that are no fault of the log, in words: a block that cannot be read and that nothing
    /// refers to.
    pub notes: Vec<String>,
    /// Groups behind the checkpoint that a mount would roll forward.
    pub recovery: Recovery,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Everything else that is there.
    pub others: u64,
    /// Blocks of content.
    pub data_blocks: u64,
    /// Nodes.
    pub nodes: u64,
}

/// Checks the log on a device, which is not changed.
///
/// # Errors
///
/// When there is no log that a mount could open, or the temporary file cannot be written.
pub fn check(device: Arc<dyn WritableDevice>, options: Options) -> Result<Report, LogError> {
    let memory = options.memory_bytes / SHARES;
    let options = Options {
        memory_bytes: memory * 4,
        prefetch_bytes: 0,
        ..options.reading()
    };
    let (state, recovery) = recover::open(device, options)?;
    let mut checker = Checker::new(state, memory);
    checker.report.recovery = recovery;
    checker.report.notes = checker.state.store.take_notes();
    checker.note_complaints();
    checker.note_slots();
    checker.note_copies();
    checker.read_nodes()?;
    checker.read_directories()?;
    checker.reach()?;
    checker.compare_links()?;
    checker.compare_blocks()?;
    checker.compare_nodes();
    checker.compare_space();
    checker.note_complaints();
    checker.tell();
    Ok(checker.report)
}

/// A bit for each number that a node may have. Others are in no set of them.
pub(crate) struct Numbers(Vec<u64>);

impl Numbers {
    pub(crate) fn new(last: u32) -> Self {
        Self(vec![0; last as usize / 64 + 1])
    }

    pub(crate) fn has(&self, nid: u32) -> bool {
        let word = self.0.get(nid as usize / 64);
        word.is_some_and(|word| word >> (nid % 64) & 1 == 1)
    }

    /// Says whether it was there before.
    pub(crate) fn add(&mut self, nid: u32) -> bool {
        let was = self.has(nid);
        if let Some(word) = self.0.get_mut(nid as usize / 64) {
            *word |= 1 << (nid % 64);
        }
        was
    }
}

struct Checker {
    state: State,
    /// Bytes of memory for the records of one kind.
    memory: usize,
    /// Numbers of nodes that belong to something.
    nids: Numbers,
    /// Inodes that are directories.
    directories: Numbers,
    /// Inodes that a way leads to from the root.
    reached: Numbers,
    /// Inodes that are there, whether they can be read or not.
    inodes: u64,
    /// Blocks that are preallocated.
    preallocated: u64,
    abouts: Sorter<About>,
    edges: Sorter<Edge>,
    children: Sorter<Child>,
    extents: Sorter<Extent>,
    chunks: Sorter<Chunk>,
    dir_blocks: Sorter<DirBlock>,
    /// Blocks of directories that have to be looked at next.
    indexed: Sorter<WantedDir>,
    /// All names, when they have been sorted.
    names: Option<Sorted<Edge>>,
    findings: Vec<Finding>,
    report: Report,
}

impl Checker {
    fn new(state: State, memory: usize) -> Self {
        let numbers = || Numbers::new(state.nodes.nat().count_max());
        Self {
            memory,
            nids: numbers(),
            directories: numbers(),
            reached: Numbers::new(0),
            inodes: 0,
            preallocated: 0,
            abouts: Sorter::new(memory),
            edges: Sorter::new(memory),
            children: Sorter::new(memory),
            extents: Sorter::new(memory),
            chunks: Sorter::new(memory),
            dir_blocks: Sorter::new(memory),
            indexed: Sorter::new(memory),
            names: None,
            findings: Vec::new(),
            report: Report::default(),
            state,
        }
    }

    fn sorter<R: Record>(&self) -> Sorter<R> {
        Sorter::new(self.memory)
    }

    fn note_complaints(&mut self) {
        for warning in self.state.take_warnings() {
            self.note("device", warning);
        }
    }

    fn note_slots(&mut self) {
        if let Err(error) = self.state.store.slots().check_readable() {
            self.note("device", error);
        }
    }

    /// Tells of copies that do not count now and cannot be read: the next checkpoint writes there, and a mount would
    /// have nothing else.
    fn note_copies(&mut self) {
        for copy in superblock::superblock_copies(self.state.store.device()) {
            if let Err(error) = copy {
                self.note("superblock", error);
            }
        }
        for pack in 0..2 {
            let found = packs::read_pack(
                self.state.store.device(),
                self.state.store.superblock(),
                pack,
            );
            if let Ok(Err(fault)) = found {
                if matches!(fault, Corrupt::Checkpoint { rule, .. } if rule == UNREADABLE) {
                    self.note("checkpoint", fault);
                }
            }
        }
    }

    /// Numbers that are in use and belong to nothing.
    fn compare_nodes(&mut self) {
        for table_block in 0..self.state.nodes.nat().table_blocks() {
            let used = match self.state.nodes.used_in(table_block) {
                Ok(used) => used,
                // It has been told.
                Err(_) => continue,
            };
            for (nid, entry) in used {
                let is_known = self.nids.has(nid);
                if !is_known {
                    self.note(
                        format_args!("node {nid}"),
                        format_args!("is in use, but inode {} does not lead to it", entry.ino),
                    );
                }
            }
        }
    }

    fn compare_space(&mut self) {
        let used = self.state.store.space().used();
        let nodes = self.report.nodes;
        let counted = nodes + self.report.data_blocks + self.state.store.space().preallocated();
        let stated = self.state.nodes.nat().used();
        if u64::from(stated) != nodes {
            self.note(
                "checkpoint",
                format_args!("says that there are {stated} nodes, but there are {nodes}"),
            );
        }
        let inodes = self.inodes;
        for (what, stated, counted) in [
            ("inodes", self.state.nodes.inode_count().into(), inodes),
            (
                "preallocated blocks",
                self.state.store.space().preallocated(),
                self.preallocated,
            ),
        ] {
            if stated != counted {
                self.note(
                    "checkpoint",
                    format_args!("says that there are {stated} {what}, but there are {counted}"),
                );
            }
        }
        if used != counted && self.report.fault_count == 0 {
            self.note(
                "checkpoint",
                format_args!("{used} blocks are in use, but {counted} belong to something"),
            );
        }
    }
}
