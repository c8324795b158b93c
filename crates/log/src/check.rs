//! Whether all that a log says of itself agrees.
//!
//! The log is opened as a mount would open it, groups behind the checkpoint included, but nothing is written. Then
//! everything that can be reached from the root is visited, and what the tables say is held against it: each valid block has
//! one owner, each owner's block is valid, links and sizes are as counted, and nothing is left over.

#![deny(clippy::indexing_slicing)]

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use anteros_core::{FileKind, FsResult, WritableDevice};

use crate::LogError;
use crate::dir::{kind_of, type_of};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Corrupt, ROOT, SEGMENT_CONTENT, dir};
use crate::options::Options;
use crate::owners;
use crate::recover::{self, Recovery, UNREADABLE};
use crate::segments::Segments;
use crate::state::State;

/// Faults that are kept in words; all are counted.
const KEPT_MAX: usize = 1000;

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Faults, in words: where, what, which value. The first thousand of them.
    pub faults: Vec<String>,
    /// All faults.
    pub fault_count: u64,
    /// What a mount would have to replay.
    pub recovery: Recovery,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Everything else that has a name.
    pub others: u64,
    /// Blocks of content.
    pub data_blocks: u64,
    /// Nodes.
    pub nodes: u64,
}

impl Report {
    fn note(&mut self, place: impl Display, fault: impl Display) {
        self.fault_count += 1;
        if self.faults.len() < KEPT_MAX {
            self.faults.push(format!("{place}: {fault}"));
        }
    }
}

/// Checks the log on a device, which is not changed.
///
/// # Errors
///
/// When there is no log that a mount could open.
pub fn check(device: Arc<dyn WritableDevice>, options: Options) -> Result<Report, LogError> {
    let (state, recovery) = recover::open(
        device,
        Options {
            read_only: true,
            ..options
        },
    )?;
    let mut checker = Checker {
        owners: Bitmap::new(state.segments.count()),
        nids: Numbers::new(state.nat.count_max()),
        links: HashMap::new(),
        promised: 0,
        slots: HashMap::new(),
        chunk: None,
        report: Report {
            recovery,
            ..Report::default()
        },
        state,
    };
    for complaint in std::mem::take(&mut checker.state.complaints) {
        checker.report.note("device", complaint);
    }
    if let Err(error) = checker.state.slots.check_readable() {
        checker.report.note("device", error);
    }
    checker.note_copies();
    checker.walk();
    checker.compare_links();
    checker.compare_segments();
    checker.compare_slots();
    checker.compare_summaries()?;
    checker.compare_nodes();
    checker.compare_space();
    Ok(checker.report)
}

/// A bit for each block of the main area.
pub(crate) struct Bitmap(Vec<[u64; 8]>);

impl Bitmap {
    pub(crate) fn new(segments: u32) -> Self {
        Self(vec![[0; 8]; segments as usize])
    }

    pub(crate) fn get(&self, segment: u32, index: u16) -> bool {
        let words = self.0.get(segment as usize);
        let word = words.and_then(|words| words.get(usize::from(index / 64)));
        word.is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Says whether the bit was set before.
    pub(crate) fn set(&mut self, segment: u32, index: u16) -> bool {
        let was = self.get(segment, index);
        let words = self.0.get_mut(segment as usize);
        if let Some(word) = words.and_then(|words| words.get_mut(usize::from(index / 64))) {
            *word |= 1 << (index % 64);
        }
        was
    }
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

/// What is known of an inode's names.
#[derive(Default)]
struct Links {
    /// Names that refer to it.
    names: u32,
    /// Of a directory: directories in it.
    below: u32,
}

struct Checker {
    state: State,
    owners: Bitmap,
    /// A bit for each nid that belongs to something.
    nids: Numbers,
    links: HashMap<u32, Links>,
    /// Blocks that are promised.
    promised: u64,
    /// Slots of packed blocks that belong to something.
    slots: HashMap<u64, u32>,
    /// The chunk that was looked at last: its block, its slot, its first logical block.
    chunk: Option<(u64, u8, u32)>,
    report: Report,
}

impl Checker {
    /// Tells of copies that do not count now and cannot be read: the next checkpoint writes there, and a mount would
    /// have nothing else.
    fn note_copies(&mut self) {
        for copy in recover::superblock_copies(&*self.state.device) {
            if let Err(error) = copy {
                self.report.note("superblock", error);
            }
        }
        for pack in 0..2 {
            let found = recover::read_pack(&*self.state.device, &self.state.superblock, pack);
            if let Ok(Err(fault)) = found {
                if matches!(fault, Corrupt::Checkpoint { rule, .. } if rule == UNREADABLE) {
                    self.report.note("checkpoint", fault);
                }
            }
        }
    }

    /// Visits everything below the root.
    fn walk(&mut self) {
        self.links.insert(ROOT, Links { names: 1, below: 0 });
        let mut directories = vec![ROOT];
        self.visit(ROOT);
        while let Some(parent) = directories.pop() {
            for (name, ino, kind) in self.names(parent) {
                let is_directory = kind_of(kind) == FileKind::Directory;
                let links = self.links.entry(ino).or_default();
                links.names += 1;
                let is_new = links.names == 1;
                if is_directory {
                    self.links.entry(parent).or_default().below += 1;
                }
                if is_new {
                    self.check_named(parent, &name, ino, kind);
                    if is_directory {
                        directories.push(ino);
                    }
                }
                self.state.shrink();
            }
        }
    }

    /// The names in a directory, of which those that break a rule are told.
    fn names(&mut self, parent: u32) -> Vec<(Vec<u8>, u32, u8)> {
        let seed = self.state.superblock.hash_seed;
        let mut names: Vec<(Vec<u8>, u32, u8)> = Vec::new();
        let (mut misplaced, mut last) = (Vec::new(), 0);
        let listed = self.state.list(parent, 2, &mut |entry, position| {
            if entry.hash != dir::hash(entry.name, &seed) || position <= last {
                misplaced.push(String::from_utf8_lossy(entry.name).into_owned());
            }
            last = position;
            names.push((entry.name.to_vec(), entry.ino, entry.kind));
            ControlFlow::Continue(())
        });
        let place = format!("directory {parent}");
        for name in misplaced {
            self.report.note(
                &place,
                format_args!("{name:?} lies where its hash does not lead"),
            );
        }
        if let Err(error) = listed {
            self.report.note(&place, error);
        } else if let Ok(live) = self.state.live(parent) {
            let stated = live.inode().entries as usize;
            if stated != names.len() {
                self.report.note(
                    &place,
                    format_args!("says that it has {stated} names, but has {}", names.len()),
                );
            }
        }
        names
    }

    fn check_named(&mut self, parent: u32, name: &[u8], ino: u32, kind: u8) {
        let place = || format!("directory {parent}, {:?}", String::from_utf8_lossy(name));
        let found = match self.state.live(ino) {
            Ok(live) => live.inode().attributes,
            Err(error) => {
                return self
                    .report
                    .note(place(), format_args!("inode {ino}: {error}"));
            }
        };
        if type_of(found.kind) != kind {
            let (named, is) = (kind_of(kind).name(), found.kind.name());
            self.report.note(
                place(),
                format_args!("inode {ino} is named as a {named}, but is a {is}"),
            );
        }
        if found.kind == FileKind::Directory && found.parent != parent {
            self.report.note(
                place(),
                format_args!(
                    "inode {ino} says that it lies in directory {}",
                    found.parent
                ),
            );
        }
        self.visit(ino);
    }

    /// Looks at an inode and all that belongs to it.
    fn visit(&mut self, ino: u32) {
        if let Err(error) = self.try_visit(ino) {
            self.report.note(format_args!("inode {ino}"), error);
        }
    }

    fn try_visit(&mut self, ino: u32) -> FsResult<()> {
        let live = self.state.live(ino)?;
        let attributes = live.inode().attributes;
        let xattr_nid = live.inode().xattr_nid;
        match attributes.kind {
            FileKind::Regular => self.report.files += 1,
            FileKind::Directory => self.report.directories += 1,
            _ => self.report.others += 1,
        }
        self.claim_node(ino, ino);
        self.state.xattrs(ino)?;
        let mut nids = Vec::from_iter((xattr_nid != 0).then_some(xattr_nid));
        let mut broken = Vec::new();
        self.state.for_nodes(ino, &mut |nid, read| match read {
            Ok(()) => nids.push(nid),
            Err(error) => broken.push(error),
        })?;
        for error in &broken {
            self.report.note(format_args!("inode {ino}"), error);
        }
        if !broken.is_empty() {
            return Ok(());
        }
        let mut blocks = nids.len() as u64;
        nids.iter().for_each(|&nid| self.claim_node(ino, nid));
        let mut at = 0;
        while let Some(range) = self.state.next_leaf(ino, at)? {
            at = range.end;
            blocks += self.visit_pointers(ino, range, attributes.size)?;
        }
        // Of directories that a mount would change.
        let unplaced = self.state.unplaced(ino)?;
        self.report.data_blocks += unplaced;
        blocks += unplaced;
        if blocks != attributes.blocks {
            let stated = attributes.blocks;
            self.report.note(
                format_args!("inode {ino}"),
                format_args!("says that it takes {stated} blocks, but takes {blocks}"),
            );
        }
        Ok(())
    }

    /// Looks at the logical blocks of a range, and says how many are no holes.
    fn visit_pointers(&mut self, ino: u32, range: Range<u32>, size: u64) -> FsResult<u64> {
        let mut pointers = Vec::new();
        self.state
            .for_pointers(ino, range, |lblk, pointer| pointers.push((lblk, pointer)))?;
        for &(lblk, pointer) in &pointers {
            self.promised += u64::from(pointer == Pointer::Promised);
            let owner = Owner { ino, lblk };
            match pointer {
                Pointer::Plain(block) => {
                    self.report.data_blocks += 1;
                    self.claim(owner, block);
                }
                Pointer::Packed(at) => self.claim_slot(owner, at),
                Pointer::Hole | Pointer::Promised => {}
            }
            let is_beyond = u64::from(lblk) * BLOCK_BYTES as u64 >= size;
            if pointer.block().is_some() && is_beyond {
                self.report.note(
                    format_args!("inode {ino}"),
                    format_args!("has a block {lblk} behind its end at {size}"),
                );
            }
        }
        Ok(pointers.len() as u64)
    }

    /// A node belongs to an inode, and so does the block that it lies in.
    fn claim_node(&mut self, ino: u32, nid: u32) {
        self.report.nodes += 1;
        if self.nids.add(nid) {
            return self.report.note(
                format_args!("inode {ino}"),
                format_args!("node {nid} belongs to something else as well"),
            );
        }
        let pointer = self.state.nat.get(nid).and_then(|entry| {
            Ok(Pointer::decode(
                entry.pointer,
                &self.state.superblock,
                nid,
                0,
            )?)
        });
        match pointer.map(Pointer::block) {
            Ok(Some(block)) => self.claim(Owner { ino, lblk: nid }, block),
            // It is newer than the checkpoint, or was just told of.
            Ok(None) => {}
            Err(error) => self.report.note(format_args!("node {nid}"), error),
        }
    }

    /// A chunk belongs to a logical block, and so do the slots that it lies in.
    fn claim_slot(&mut self, owner: Owner, at: Slotted) {
        let place = || {
            let Slotted { block, slot, .. } = at;
            format!("inode {}, slot {slot} of block {block}", owner.ino)
        };
        let chunk = (
            at.block,
            at.slot,
            owner.lblk.wrapping_sub(at.sequence.into()),
        );
        if self.chunk != Some(chunk) {
            self.chunk = Some(chunk);
            if let Err(error) = self.state.read_chunk(owner.ino, owner.lblk, at) {
                return self.report.note(place(), error);
            }
        }
        for (block, slot) in at.places() {
            let claimed = self.slots.entry(block).or_default();
            if *claimed == 0 {
                let (segment, index) = self.state.segments.locate(block);
                self.owners.set(segment, index);
                self.report.data_blocks += 1;
            }
            *claimed |= 1 << slot;
            if !self.state.is_occupied(block, slot) {
                self.report
                    .note(place(), "the block state table does not count it as valid");
            }
        }
    }

    /// Slots that count as valid and belong to nothing, and blocks that are valid without a slot that is.
    fn compare_slots(&mut self) {
        for segment in self.state.slots.segments() {
            let start = self.state.segments.start(segment);
            for index in 0..SEGMENT_CONTENT as u16 {
                let block = start + u64::from(index);
                let valid = self.state.slots.valid(block);
                let claimed = self.slots.get(&block).copied().unwrap_or_default();
                let lost = (valid & !claimed).count_ones();
                let entry = self.state.segments.segment(segment).clone();
                let is_valid = entry.is_packed() && entry.is_valid(index);
                let place = format!("block {block}");
                if lost > 0 {
                    self.report
                        .note(&place, format_args!("{lost} valid slots belong to nothing"));
                }
                if (valid != 0) != is_valid {
                    self.report.note(
                        &place,
                        format_args!("slots {valid:#x} count as valid, but in segment {segment}, kind {}, it is so: {}", entry.kind, entry.is_valid(index)),
                    );
                }
            }
        }
    }

    fn claim(&mut self, owner: Owner, block: u64) {
        let (segment, index) = self.state.segments.locate(block);
        let place = || format!("inode {}, block {block}", owner.ino);
        if self.owners.set(segment, index) {
            self.report
                .note(place(), "belongs to something else as well");
        }
        if !self.state.segments.segment(segment).is_valid(index) {
            self.report.note(
                place(),
                format_args!("segment {segment} does not count it as valid"),
            );
        }
    }

    fn compare_links(&mut self) {
        for (&ino, links) in &self.links {
            let Ok(live) = self.state.live(ino) else {
                continue;
            };
            let counted = match live.kind() {
                FileKind::Directory if links.names > 1 => {
                    self.report.note(
                        format_args!("directory {ino}"),
                        format_args!("has {} names", links.names),
                    );
                    continue;
                }
                FileKind::Directory => 2 + links.below,
                _ => links.names,
            };
            let stated = live.inode().attributes.nlink;
            if counted != stated {
                self.report.note(
                    format_args!("inode {ino}"),
                    format_args!("says that it has {stated} links, but has {counted}"),
                );
            }
        }
    }

    /// Valid blocks that belong to nothing.
    fn compare_segments(&mut self) {
        for segment in 0..self.state.segments.count() {
            let valid = self.state.segments.segment(segment).valid_blocks();
            let lost = valid
                .filter(|&index| !self.owners.get(segment, index))
                .count();
            if lost > 0 {
                self.report.note(
                    format_args!("segment {segment}"),
                    format_args!("{lost} valid blocks belong to nothing"),
                );
            }
        }
    }

    /// Summaries that name another owner than the one whose block it is. Those of blocks that only a group names are
    /// written by the next mount.
    fn compare_summaries(&mut self) -> Result<(), LogError> {
        let (device, superblock) = (&*self.state.device, &self.state.superblock);
        let checkpoint = recover::newest_checkpoint(device, superblock)?;
        let entries = recover::segment_table(device, superblock, &checkpoint)?;
        let summarized = Segments::new(superblock, &entries, checkpoint.serial);
        for segment in 0..summarized.count() {
            let now = self.state.segments.segment(segment);
            let valid = summarized.segment(segment).valid_blocks();
            let kept: Vec<u16> = valid
                .filter(|&index| now.is_valid(index) && self.owners.get(segment, index))
                .collect();
            if kept.is_empty() || now.is_packed() {
                continue;
            }
            match owners::named(&self.state, Some(&checkpoint), segment) {
                Ok(owners) => self.compare_owners(segment, &owners, &kept),
                Err(error) => self.report.note(format_args!("segment {segment}"), error),
            }
        }
        Ok(())
    }

    fn compare_owners(&mut self, segment: u32, owners: &[Owner], kept: &[u16]) {
        let start = self.state.segments.start(segment);
        for &index in kept {
            let block = start + u64::from(index);
            let owner = owners.get(usize::from(index)).copied().unwrap_or_default();
            if !owners::is_owned(&mut self.state, owner, block).unwrap_or(false) {
                let Owner { ino, lblk } = owner;
                self.report.note(
                    format_args!("segment {segment}"),
                    format_args!("its summary says that block {block} is inode {ino}'s, number {lblk}, which it is not"),
                );
            }
            self.state.shrink();
        }
    }

    /// Numbers that are in use and belong to nothing.
    fn compare_nodes(&mut self) {
        for table_block in 0..self.state.nat.table_blocks() {
            let used = match self.state.nat.used_in(table_block) {
                Ok(used) => used,
                Err(error) => return self.report.note("node address table", error),
            };
            for (nid, entry) in used {
                let is_known = self.nids.has(nid);
                if !is_known {
                    self.report.note(
                        format_args!("node {nid}"),
                        format_args!("belongs to inode {}, which no name leads to", entry.ino),
                    );
                }
            }
        }
    }

    fn compare_space(&mut self) {
        let used = self.state.space.used();
        let nodes = self.report.nodes;
        let counted = nodes + self.report.data_blocks + self.state.space.promised();
        let stated = self.state.nat.used();
        if u64::from(stated) != nodes {
            self.report.note(
                "checkpoint",
                format_args!("says that there are {stated} nodes, but there are {nodes}"),
            );
        }
        let inodes = self.report.files + self.report.directories + self.report.others;
        for (what, stated, counted) in [
            ("inodes", self.state.inode_count.into(), inodes),
            (
                "promised blocks",
                self.state.space.promised(),
                self.promised,
            ),
        ] {
            if stated != counted {
                self.report.note(
                    "checkpoint",
                    format_args!("says that there are {stated} {what}, but there are {counted}"),
                );
            }
        }
        if used != counted && self.report.fault_count == 0 {
            self.report.note(
                "checkpoint",
                format_args!("{used} blocks are in use, but {counted} belong to something"),
            );
        }
    }
}
