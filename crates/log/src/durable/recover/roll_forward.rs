//! RollForward of groups: what their records say is done again, in memory.
//!
//! Invariant L3 of `docs/design/log.md`: a group counts with all of its blocks, or not at all.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeSet, HashMap};

use anteros_core::{FileKind, FsError, FsResult};

use crate::compress::chunks::CHUNK_BLOCKS_MAX;
use crate::durable::Durable;
use crate::durable::recover::chain::{Begun, Chain, Group};
use crate::durable::recover::state::Recovery;
use crate::error::LogError;
use crate::files::Files;
use crate::files::dir::Named;
use crate::files::xattr::Gathered;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::checksum::Checksum;
use crate::layout::node::{Attributes, FILE_BLOCKS, INLINE_BYTES, Inode};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::record::{MapChecksums, Record, records};
use crate::layout::summary::Owner;
use crate::layout::{Corrupt, ROOT, crc};
use crate::store::medium::{is_damage, read_block};
use crate::store::segments::Place;

/// Contents of the groups behind a checkpoint.
#[derive(Default)]
pub(super) struct RollForward {
    pub(super) owners: HashMap<u64, Owner>,
    /// Inodes that the records change.
    touched: BTreeSet<u32>,
    /// Blocks that the records of this group have mapped.
    mapped: u64,
    /// Number of blocks of each segment, from its start, that the groups reach at most.
    pub(super) reached: HashMap<u32, u16>,
    /// Place at which the packed log continues.
    pub(super) end: Option<Place>,
    /// Tells whether it ends at a block that cannot be read.
    pub(super) is_cut: bool,
    /// Extended attributes of which a part has come.
    xattrs: Gathered,
}

impl RollForward {
    pub(super) fn run(
        &mut self,
        state: &mut Durable,
        checkpoint: &Checkpoint,
        recovery: &mut Recovery,
    ) -> Result<(), LogError> {
        let chain = Chain::read(state.store.device(), state.store.superblock(), checkpoint)?;
        recovery.dropped = chain.is_broken;
        if let Some(error) = chain.unreadable {
            self.is_cut = true;
            if chain.is_torn && !state.store.options().read_only {
                return Err(error);
            }
            // Each mount begins with a checkpoint that is not clean: behind a clean one there are no groups.
            match checkpoint.clean && !chain.is_torn {
                true => state.store.note(format!(
                    "nothing lies there, and the log will go on elsewhere: {error}"
                )),
                false => state
                    .store
                    .warn(format!("the packed log ends there: {error}")),
            }
        }
        for &segment in &chain.segments {
            state.store.segments_mut().keep(segment);
        }
        // Nodes that are made on the way must not take the numbers of inodes that are still to come.
        for record in chain.groups.iter().flat_map(|group| records(&group.stream)) {
            if let Record::Attributes { ino, .. } = record? {
                state.nodes.keep_nid(ino);
            }
        }
        let known = chain
            .groups
            .iter()
            .map(|group| group.durable)
            .max()
            .unwrap_or(0);
        for group in &chain.groups {
            if group.sequence >= known && !arrived(state, &group.stream)? {
                recovery.dropped = true;
                break;
            }
            self.mapped = 0;
            self.apply(state, group)
                .map_err(|error| located(error, group.sequence))?;
            recovery.groups += 1;
            state.groups.sequence = group.sequence + 1;
            self.end = Some(group.end);
        }
        self.touched.extend(&checkpoint.orphans);
        if checkpoint.orphans_left_out {
            self.find_orphans(state)?;
        }
        self.evict_orphans(state)
    }

    fn apply(&mut self, state: &mut Durable, group: &Group) -> Result<(), LogError> {
        for record in records(&group.stream) {
            let record = record?;
            self.xattrs.check_next(&record)?;
            match record {
                Record::Attributes {
                    ino,
                    whole,
                    attributes,
                } => self.attributes(state, ino, whole, &Attributes::parse(attributes, ino)?)?,
                Record::Map {
                    ino,
                    lblk,
                    count,
                    pointer,
                    checksums,
                } => self.map(state, (ino, lblk, count), pointer, checksums)?,
                Record::Inline { ino, bytes } => inline(state, ino, bytes)?,
                Record::Xattrs {
                    ino,
                    goes_on,
                    bytes,
                } => self.xattrs.take(state, ino, goes_on, bytes)?,
                Record::NameAdded {
                    parent,
                    ino,
                    kind,
                    name,
                } => {
                    Files::check_name(name)?;
                    if state.find(parent, name)?.is_some() {
                        return Err(Corrupt::Record {
                            sequence: group.sequence,
                            rule: "a name is added that is there",
                        }
                        .into());
                    }
                    state.add_name(parent, name, Named { ino, kind })?;
                }
                Record::NameRemoved { parent, name } => {
                    if state.find(parent, name)?.is_none() {
                        return Err(Corrupt::Record {
                            sequence: group.sequence,
                            rule: "a name is removed that is not there",
                        }
                        .into());
                    }
                    state.remove_name(parent, name)?;
                }
                Record::Checksums { block, sums } => {
                    let blocks = (block..).zip(sums).map(|(block, _)| block);
                    blocks.for_each(|block| self.reach(state, block));
                }
            }
        }
        self.xattrs.check_end()?;
        for chunk in &group.data {
            self.map_chunk(state, chunk)?;
        }
        Ok(())
    }

    /// Notes that a group names a block.
    fn reach(&mut self, state: &Durable, block: u64) {
        if let Some((segment, index)) = state.store.superblock().locate(block) {
            let reached = self.reached.entry(segment).or_default();
            *reached = (*reached).max(index + 1);
        }
    }

    /// Content that lies beside the records of a group.
    fn map_chunk(&mut self, state: &mut Durable, chunk: &Begun) -> FsResult<()> {
        let first = Pointer::Packed(Slotted {
            block: chunk.block,
            slot: chunk.number,
            sequence: 0,
            behind: chunk.behind,
        });
        let slot = &chunk.slot;
        self.map(
            state,
            (slot.ino, slot.lblk, slot.blocks.into()),
            first.encode(),
            MapChecksums::default(),
        )
    }

    fn attributes(
        &mut self,
        state: &mut Durable,
        ino: u32,
        whole: bool,
        new: &Attributes,
    ) -> FsResult<()> {
        if !state.nodes.nat().is_valid(ino) {
            return Err(Corrupt::Node {
                nid: ino,
                rule: "a record names an inode beyond the table",
                found: ino.into(),
            }
            .into());
        }
        if whole && new.kind == FileKind::Directory {
            return Err(Corrupt::Node {
                nid: ino,
                rule: "a record has content of a directory",
                found: new.size,
            }
            .into());
        }
        self.touched.insert(ino);
        if state.nodes.entry(ino)?.ino == 0 {
            let attributes = Attributes {
                size: 0,
                blocks: 0,
                is_inline: true,
                is_launched: false,
                is_settled: false,
                is_own: false,
                ..*new
            };
            let inode = Inode::empty(attributes);
            state.nodes.make_again(ino, new.generation, inode)?;
        }
        let old = state.live(ino)?.inode().attributes;
        if old.is_own || new.is_own {
            return Err(Corrupt::Node {
                nid: ino,
                rule: "a record names what belongs to the log itself",
                found: ino.into(),
            }
            .into());
        }
        if old.kind != new.kind {
            return Err(Corrupt::Node {
                nid: ino,
                rule: "a record makes another kind of it",
                found: new.kind.mode_bits().into(),
            }
            .into());
        }
        if whole && new.is_inline && !old.is_inline {
            state.drop_content(ino)?;
        }
        let live = state.live(ino)?;
        if whole && !new.is_inline && old.is_inline {
            live.inode_mut().inline.clear();
            live.pointers_mut().fill(0);
        }
        let kept = live.inode().attributes;
        let attributes = live.attributes();
        *attributes = Attributes {
            blocks: kept.blocks,
            generation: kept.generation,
            ..*new
        };
        if !whole {
            attributes.size = kept.size;
            attributes.is_inline = kept.is_inline;
        }
        Ok(())
    }

    fn map(
        &mut self,
        state: &mut Durable,
        (ino, lblk, count): (u32, u32, u32),
        raw: u64,
        mut checksums: MapChecksums<'_>,
    ) -> FsResult<()> {
        let fault = |rule| {
            FsError::from(Corrupt::Node {
                nid: ino,
                rule,
                found: lblk.into(),
            })
        };
        let end = lblk
            .checked_add(count)
            .filter(|&end| end <= FILE_BLOCKS)
            .ok_or_else(|| fault("a record maps blocks beyond the largest file"))?;
        if state.live(ino)?.inode().attributes.is_inline {
            return Err(fault("a record maps blocks of inline content"));
        }
        let pointer = Pointer::decode(raw, state.store.superblock(), ino, 0)?;
        if pointer.has_block() {
            self.mapped += u64::from(count);
        }
        if self.mapped > state.store.superblock().content_blocks() {
            return Err(fault(
                "the records of a group map more blocks than there are",
            ));
        }
        match pointer {
            Pointer::Hole => state.clear_pointers(ino, lblk..end),
            Pointer::Plain(first, Checksum::UNKNOWN) => {
                for (lblk, block) in (lblk..end).zip(first..) {
                    let checksum = checksums.next().unwrap_or_default();
                    self.map_block(state, Owner { ino, lblk }, block, checksum)?;
                }
                Ok(())
            }
            Pointer::Plain(..) => Err(fault("a record has a checksum in its pointer")),
            Pointer::Preallocated => {
                for lblk in lblk..end {
                    let old = state.set_pointer(ino, lblk, Pointer::Preallocated)?;
                    if !old.has_block() {
                        state.store.space_mut().take(1)?;
                    }
                    if old == Pointer::Hole {
                        state.live(ino)?.attributes().blocks += 1;
                    }
                    state.store.space_mut().preallocate(1);
                }
                Ok(())
            }
            Pointer::Packed(first) => {
                if u32::from(first.sequence) + count > CHUNK_BLOCKS_MAX {
                    return Err(fault("a record maps more blocks than a chunk has"));
                }
                (0..count).try_for_each(|index| {
                    let sequence = first.sequence + index as u8;
                    let owner = Owner {
                        ino,
                        lblk: lblk + index,
                    };
                    self.map_packed(state, owner, Slotted { sequence, ..first })
                })
            }
        }
    }

    fn map_packed(&mut self, state: &mut Durable, owner: Owner, at: Slotted) -> FsResult<()> {
        let pointer = Pointer::Packed(at);
        let old = state.pointer(owner.ino, owner.lblk)?;
        if old == pointer {
            return Ok(());
        }
        for (block, slot) in at.places() {
            if state.store.superblock().locate(block).is_none() {
                return Err(Corrupt::Block {
                    block,
                    rule: "a chunk goes on outside of the main area",
                }
                .into());
            }
            self.reach(state, block);
            let (segment, _) = state.store.segments().locate(block);
            state.store.segments_mut().keep(segment);
            state.store.occupy(block, slot);
            state.store.segments_mut().holds(segment, HeadKind::Moved);
        }
        state.set_pointer(owner.ino, owner.lblk, pointer)?;
        state.store.space_mut().give(old.has_block().into());
        if old == Pointer::Hole {
            state.live(owner.ino)?.attributes().blocks += 1;
        }
        Ok(())
    }

    fn map_block(
        &mut self,
        state: &mut Durable,
        owner: Owner,
        block: u64,
        checksum: Checksum,
    ) -> FsResult<()> {
        let plain = Pointer::decode(
            Pointer::Plain(block, checksum).encode(),
            state.store.superblock(),
            owner.ino,
            0,
        )?;
        if state.pointer(owner.ino, owner.lblk)? == plain {
            return Ok(());
        }
        self.reach(state, block);
        let (segment, _) = state.store.segments().locate(block);
        state.store.segments_mut().keep(segment);
        state
            .store
            .segments_mut()
            .holds(segment, HeadKind::WarmData);
        if !state.store.mark(block) {
            return Err(Corrupt::Node {
                nid: owner.ino,
                rule: "a record maps a block that is in use",
                found: block,
            }
            .into());
        }
        self.owners.insert(block, owner);
        let old = state.set_pointer(owner.ino, owner.lblk, plain)?;
        if !old.has_block() {
            state.store.space_mut().take(1)?;
        }
        if old == Pointer::Hole {
            state.live(owner.ino)?.attributes().blocks += 1;
        }
        Ok(())
    }

    /// Looks at all inodes for those without a link, where the checkpoint does not list them.
    fn find_orphans(&mut self, state: &mut Durable) -> Result<(), LogError> {
        for ino in ROOT..=state.nodes.nat().count_max() {
            if state.nodes.entry(ino)?.ino != ino {
                continue;
            }
            match state.live(ino) {
                Ok(live) if live.inode().attributes.nlink == 0 => drop(self.touched.insert(ino)),
                // What is damaged is for a repair to find.
                Ok(_) => {}
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error.into()),
            }
            state.shrink();
        }
        Ok(())
    }

    /// Removes the inodes that have no name left.
    fn evict_orphans(&mut self, state: &mut Durable) -> Result<(), LogError> {
        for &ino in &self.touched {
            if state.nodes.entry(ino)?.ino == ino && state.live(ino)?.inode().attributes.nlink == 0
            {
                state.files.add_orphan(ino);
                match state.evict_orphan_now(ino) {
                    // What is damaged stays an orphan, for a repair to find.
                    Err(error) if is_damage(&error) => {}
                    evicted => evicted?,
                }
            }
            state.shrink();
        }
        Ok(())
    }
}

/// Errors of operations are no help to whoever wants to mount.
fn located(error: LogError, sequence: u64) -> LogError {
    let rule = match error {
        LogError::Fs(FsError::NotFound) => "a record names an inode that is not there",
        LogError::Fs(FsError::NotDirectory) => {
            "a record has a name in something that is no directory"
        }
        LogError::Fs(FsError::NoSpace) => "the records need more room than there is",
        LogError::Fs(FsError::Invalid | FsError::NameTooLong | FsError::Exists) => {
            "a record has an impossible name"
        }
        other => return other,
    };
    Corrupt::Record { sequence, rule }.into()
}

fn inline(state: &mut Durable, ino: u32, bytes: &[u8]) -> FsResult<()> {
    let live = state.live(ino)?;
    let attributes = live.inode().attributes;
    let is_possible = attributes.is_inline
        && attributes.kind != FileKind::Directory
        && bytes.len() <= INLINE_BYTES;
    if !is_possible || attributes.size != bytes.len() as u64 {
        return Err(Corrupt::Node {
            nid: ino,
            rule: "a record has inline content of another size",
            found: bytes.len() as u64,
        }
        .into());
    }
    state.count_block(ino, bytes.len())?;
    state.live(ino)?.inode_mut().inline = bytes.to_vec();
    Ok(())
}

/// Returns whether all data of a group is on the device.
fn arrived(state: &Durable, stream: &[u8]) -> Result<bool, LogError> {
    for record in records(stream) {
        let Record::Checksums { block, sums } = record? else {
            continue;
        };
        for (block, sum) in (block..).zip(sums) {
            if state.store.superblock().locate(block).is_none() {
                return Err(Corrupt::Block {
                    block,
                    rule: "a record names a block outside of the main area",
                }
                .into());
            }
            // What cannot be read did arrive, once: that of the others is no reason to drop them.
            match read_block(state.store.device(), block) {
                Ok(found) if crc(&*found) != sum => return Ok(false),
                Ok(_) | Err(FsError::Io(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(true)
}
