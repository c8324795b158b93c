//! Check of a log: all metadata must agree.
//!
//! The log is opened as a mount would open it, groups behind the checkpoint included, but nothing is written. Then a
//! [walk](crate::offline::walk) reads all metadata once. Its findings are put into [words], and the owners of blocks
//! are compared with [segments] and summaries. Each valid block has one owner, each owner's block is valid, links and
//! sizes are as counted, and nothing is left over.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use anteros_core::WritableDevice;
use words::Words;

use crate::durable::Durable;
use crate::durable::recover::{self, Recovery};
use crate::error::LogError;
use crate::layout::Corrupt;
use crate::offline::walk::Walk;
use crate::options::Options;
use crate::store::packs::{self, UNREADABLE};
use crate::store::superblock;

mod segments;
mod words;

/// Parts that memory is divided into: so many sorters hold records at once, with what sorting adds; a mounted log
/// takes some as well.
const SHARES: usize = 16;

/// Result of a check.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
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
    /// Blocks of content that are not what was written, or cannot be read: faults that no repair sets right.
    pub damaged_blocks: u64,
    /// Nodes.
    pub nodes: u64,
}

/// Checks the metadata of the log on a device, which is not changed, and the content that is compressed.
///
/// # Errors
///
/// When there is no log that a mount could open, or the temporary file cannot be written.
pub fn check(device: Arc<dyn WritableDevice>, options: Options) -> Result<Report, LogError> {
    check_all(device, options, false)
}

/// Checks the log on a device as [`check`] does, and reads all other content as well.
///
/// # Errors
///
/// As [`check`].
pub fn check_data(device: Arc<dyn WritableDevice>, options: Options) -> Result<Report, LogError> {
    check_all(device, options, true)
}

fn check_all(
    device: Arc<dyn WritableDevice>,
    options: Options,
    reads_content: bool,
) -> Result<Report, LogError> {
    let memory = options.memory_bytes / SHARES;
    let options = Options {
        memory_bytes: memory * 4,
        prefetch_bytes: 0,
        ..options.reading()
    };
    let (mut state, recovery) = recover::open(device, options)?;
    let notes = state.store.take_notes();
    let mut words = Words::default();
    words.note_all("device", state.take_warnings());
    words.note_all("device", state.store.bst().check_readable().err());
    note_copies(&state, &mut words);
    let mut walk = Walk::new(&mut state, words, memory);
    if reads_content {
        walk.gather_content();
    }
    walk.read_nodes()?;
    walk.read_content()?;
    walk.read_directories()?;
    let children = walk.sorted(|walk| &mut walk.children)?;
    walk.reach_from_root(&children, &mut |_| Ok(()))?;
    drop(children);
    let abouts = walk.sorted(|walk| &mut walk.abouts)?;
    let edges = walk.sorted(|walk| &mut walk.edges)?;
    walk.compare_links(&abouts, &edges)?;
    drop(abouts);
    walk.compare_segments()?;
    walk.compare_numbers();
    walk.compare_counts();
    let warnings = walk.state.take_warnings();
    walk.sink.note_all("device", warnings);
    let faults = walk.words(&edges);
    Ok(Report {
        faults,
        fault_count: walk.sink.count(),
        notes,
        recovery,
        files: walk.counts.files,
        directories: walk.counts.directories,
        others: walk.counts.others,
        data_blocks: walk.counts.data_blocks,
        damaged_blocks: walk.counts.damaged_blocks,
        nodes: walk.counts.nodes,
    })
}

/// Notes copies that do not count now and cannot be read: the next checkpoint writes there, and a mount would have
/// nothing else.
fn note_copies(state: &Durable, words: &mut Words) {
    let (device, superblock) = (state.store.device(), state.store.superblock());
    for copy in superblock::superblock_copies(device) {
        words.note_all("superblock", copy.err());
    }
    for pack in 0..2 {
        if let Ok(Err(fault)) = packs::read_pack(device, superblock, pack) {
            if matches!(fault, Corrupt::Checkpoint { rule, .. } if rule == UNREADABLE) {
                words.note("checkpoint", fault);
            }
        }
    }
}

impl Walk<'_, Words> {
    /// Compares what the checkpoint counts with what was met.
    fn compare_counts(&mut self) {
        let space = self.state.store.space();
        let (used, preallocated) = (space.used(), space.preallocated());
        let nodes = self.counts.nodes;
        let counted = nodes - self.counts.in_slots + self.counts.data_blocks + preallocated;
        let stated = self.state.nodes.nat().used();
        if u64::from(stated) != nodes {
            let fault = format!("says that there are {stated} nodes, but there are {nodes}");
            self.sink.note("checkpoint", fault);
        }
        let inodes = self.state.nodes.inode_count().into();
        for (what, stated, counted) in [
            ("inodes", inodes, self.counts.inodes),
            (
                "preallocated blocks",
                preallocated,
                self.counts.preallocated,
            ),
        ] {
            if stated != counted {
                let fault = format!("says that there are {stated} {what}, but there are {counted}");
                self.sink.note("checkpoint", fault);
            }
        }
        if used != counted && self.sink.count() == 0 {
            let fault = format!("{used} blocks are in use, but {counted} belong to something");
            self.sink.note("checkpoint", fault);
        }
    }
}
