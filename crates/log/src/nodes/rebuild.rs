//! A block of the node address table that cannot be read, made again from the nodes that it names.
//!
//! A node says its number itself, and so does the summary of its segment, or its slot. Which blocks are valid is in the segment
//! table, and which slots in the block state table. So what the table said when the newest checkpoint was written can be found
//! without it, and is still true: until the next one, nothing is written to where these nodes lie.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::error::LogError;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::node::{Inode, NodeHeader, NodeKind};
use crate::layout::packed::{self, SlotKind};
use crate::layout::summary::{self, Owner};
use crate::layout::table::{NAT_PER_BLOCK, NatEntry, SitEntry};
use crate::layout::{Block, ROOT, SEGMENT_CONTENT, Superblock};
use crate::nodes::place::NodePlace;
use crate::store::bst::BlockStateTable;
use crate::store::medium::{is_damage, read_block};
use crate::store::packs;

/// The entries of a block of the table.
pub(crate) struct Rebuilt {
    /// Those of nodes that were found, and of the numbers of which it is known that no node has them.
    pub(crate) entries: BTreeMap<u32, NatEntry>,
    /// Tells whether these are all entries of the block.
    pub(crate) is_whole: bool,
}

impl Rebuilt {
    /// Nothing is known.
    pub(crate) fn nothing() -> Self {
        Self {
            entries: BTreeMap::new(),
            is_whole: false,
        }
    }
}

/// Finds the nodes whose numbers a block of the table has; `second` says which copy of it counts.
pub(crate) fn rebuild(
    shared: &Arc<dyn WritableDevice>,
    superblock: &Superblock,
    table_block: u32,
    second: bool,
) -> FsResult<Rebuilt> {
    let device = &**shared;
    let (checkpoint, _) = packs::newest_pack(device, superblock).map_err(damage)?;
    if checkpoint.nat_bits.get(table_block as usize) != second {
        return Err(FsError::Corrupt(
            "the newest checkpoint has another copy of it".into(),
        ));
    }
    let segments = packs::segment_table(device, superblock, &checkpoint).map_err(damage)?;
    let first = table_block * NAT_PER_BLOCK;
    let mut search = Search {
        device,
        superblock,
        checkpoint: &checkpoint,
        wanted: first.max(ROOT)..superblock.nids.min(first + NAT_PER_BLOCK),
        found: BTreeMap::new(),
        is_whole: true,
    };
    let in_use = (0..).zip(&segments).filter(|(_, entry)| entry.valid > 0);
    let in_use = in_use
        .filter_map(|(segment, entry)| Some((segment, entry, HeadKind::from_raw(entry.kind)?)));
    let (packed, plain): (Vec<_>, Vec<_>) = in_use.partition(|(_, _, kind)| kind.is_packed());
    for (segment, entry, _) in plain.into_iter().filter(|(_, _, kind)| kind.has_nodes()) {
        search.look_into(segment, entry)?;
    }
    let (bits, journal) = (checkpoint.bst_bits.clone(), &checkpoint.bst_journal);
    let numbers = packed.iter().map(|(segment, ..)| *segment);
    let slots = BlockStateTable::load(shared.clone(), superblock, bits, journal, numbers)?;
    search.is_whole &= slots.check_readable().is_ok();
    for (segment, entry, _) in packed {
        search.look_into_packed(segment, entry, &slots)?;
    }
    Ok(search.finish())
}

fn damage(error: LogError) -> FsError {
    match error {
        LogError::Fs(error) => error,
        error => FsError::Corrupt(error.to_string()),
    }
}

struct Search<'a> {
    device: &'a dyn WritableDevice,
    superblock: &'a Superblock,
    checkpoint: &'a Checkpoint,
    wanted: Range<u32>,
    /// The entries that were found, each with the version of its node.
    found: BTreeMap<u32, (u64, NatEntry)>,
    is_whole: bool,
}

impl Search<'_> {
    fn look_into(&mut self, segment: u32, entry: &SitEntry) -> FsResult<()> {
        let owners = self.owners(segment, entry.serial)?;
        let start = self.superblock.segment_start(segment);
        for index in (0..SEGMENT_CONTENT as usize).filter(|&index| is_valid(entry, index)) {
            let owner = owners.get(index).filter(|owner| owner.ino != 0).copied();
            let is_other = owner.is_some_and(|owner| !self.wanted.contains(&owner.lblk));
            if !is_other {
                self.look_at(start + index as u64, owner)?;
            }
        }
        Ok(())
    }

    /// Notes the inodes in slots of a segment.
    fn look_into_packed(
        &mut self,
        segment: u32,
        entry: &SitEntry,
        valid: &BlockStateTable,
    ) -> FsResult<()> {
        let start = self.superblock.segment_start(segment);
        for index in (0..SEGMENT_CONTENT as usize).filter(|&index| is_valid(entry, index)) {
            let place = start + index as u64;
            let block = match read_block(self.device, place) {
                Ok(block) => block,
                Err(error) if is_damage(&error) => {
                    self.is_whole = false;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Ok((_, slots)) = packed::parse(&block) else {
                self.is_whole = false;
                continue;
            };
            let nodes = (0..).zip(&slots).filter(|(number, slot)| {
                slot.kind == SlotKind::Node && valid.valid(place) >> number & 1 == 1
            });
            for (number, slot) in nodes {
                let at = NodePlace::Slot(place, number);
                let node = at.node_in(slot.lblk, &block).ok();
                self.note_node(slot.lblk, slot.ino, at, node);
            }
        }
        Ok(())
    }

    /// Notes a node that was found, or that should be there.
    fn note_node(&mut self, nid: u32, ino: u32, at: NodePlace, node: Option<Box<Block>>) {
        let header = node.as_ref().and_then(|node| NodeHeader::parse(node).ok());
        let (Some(header), Some(node)) = (header, node) else {
            // The node is damaged: that is to be told to whoever wants it.
            return self.note(nid, 0, (at.encode(), ino, None));
        };
        let inode = match header.kind {
            NodeKind::Inode => Inode::parse(&node, header.nid).ok(),
            _ => None,
        };
        let generation = inode.map(|inode| inode.attributes.generation);
        self.note(
            header.nid,
            header.version,
            (at.encode(), header.ino, generation),
        );
    }

    /// Owners of the blocks of a segment; empty if no summary tells.
    fn owners(&self, segment: u32, serial: u32) -> FsResult<Vec<Owner>> {
        let mut heads = self.checkpoint.heads.iter().zip(&self.checkpoint.summaries);
        if let Some((_, owners)) = heads.find(|(head, _)| head.segment == segment) {
            return Ok(owners.clone());
        }
        let at = self.superblock.segment_start(segment) + u64::from(SEGMENT_CONTENT);
        match read_block(self.device, at) {
            Ok(block) => Ok(summary::parse(&block, serial).unwrap_or_default()),
            Err(error) if is_damage(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Notes the node in a block, which may be what the summary says.
    fn look_at(&mut self, block: u64, owner: Option<Owner>) -> FsResult<()> {
        let node = match read_block(self.device, block) {
            Ok(read) => NodeHeader::parse(&read).is_ok().then_some(read),
            Err(error) if is_damage(&error) => None,
            Err(error) => return Err(error),
        };
        match (owner, &node) {
            (None, None) => self.is_whole = false,
            (owner, _) => {
                let Owner { ino, lblk } = owner.unwrap_or_default();
                self.note_node(lblk, ino, NodePlace::Block(block), node);
            }
        }
        Ok(())
    }

    fn note(&mut self, nid: u32, version: u64, what: (u64, u32, Option<u32>)) {
        let (pointer, ino, generation) = what;
        let entry = NatEntry {
            pointer,
            ino,
            generation: generation.unwrap_or(self.generation()),
        };
        let known = self.found.get(&nid).map(|(version, _)| *version);
        if self.wanted.contains(&nid) && known.is_none_or(|known| known < version) {
            self.found.insert(nid, (version, entry));
        }
    }

    /// No less than that of any number that is free: each use takes a checkpoint.
    fn generation(&self) -> u32 {
        (self.checkpoint.version as u32).wrapping_add(1)
    }

    fn finish(self) -> Rebuilt {
        let free = NatEntry {
            generation: self.generation(),
            ..NatEntry::default()
        };
        let found = self.found.iter().map(|(&nid, &(_, entry))| (nid, entry));
        let mut entries = BTreeMap::new();
        if self.is_whole {
            entries.extend(self.wanted.clone().map(|nid| (nid, free)));
        }
        entries.extend(found);
        Rebuilt {
            entries,
            is_whole: self.is_whole,
        }
    }
}

fn is_valid(entry: &SitEntry, index: usize) -> bool {
    let byte = entry.bits.get(index / 8).copied().unwrap_or(0);
    byte >> (index % 8) & 1 == 1
}
