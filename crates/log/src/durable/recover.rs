//! From a device to a mounted log: the newest checkpoint, and the groups behind it.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::sync::Arc;

use anteros_core::{FileKind, FsError, FsResult, WritableDevice};

use crate::compress::policy::Policy;
use crate::durable::checkpoint::{SIT_JOURNAL_MAX, Tables};
use crate::durable::owners;
use crate::error::LogError;
use crate::files::dir::Named;
use crate::files::xattr::Gathered;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::node::{Attributes, FILE_BLOCKS, INLINE_BYTES, Inode};
use crate::layout::packed::{self, PackedHeader, Slot, SlotKind};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::record::{Record, records};
use crate::layout::summary::Owner;
use crate::layout::superblock::{INCOMPAT_PACKED, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use crate::layout::table::{SIT_PER_BLOCK, SitEntry};
use crate::layout::{BLOCK_BYTES, Block, Corrupt, ROOT, SEGMENT_CONTENT, Superblock, crc};
use crate::nodes::nat::Nat;
use crate::offline::mkfs::write_superblock;
use crate::options::Options;
use crate::packing::pack::CHUNK_BLOCKS_MAX;
use crate::state::{Parts, State};
use crate::store::medium::{is_damage, named, read_block, zeroed};
use crate::store::segments::{Place, Segments, Use};
use crate::store::slots::Slots;
use crate::store::space::Space;

/// Versions that are not used again where an older checkpoint has to do; even, so that the damaged pack is the next.
const VERSIONS_LEFT_OUT: u64 = 1 << 20;

/// Rule that a pack breaks of which a block cannot be read.
pub(crate) const UNREADABLE: &str = "a block of it cannot be read";

/// Result of recovery when a log is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Tells whether it had been unmounted.
    pub was_clean: bool,
    /// Groups behind the checkpoint that were replayed.
    pub groups: u64,
    /// Tells whether an incomplete group was found. No fsync had returned for it.
    pub dropped: bool,
}

/// A group as it was found.
pub(crate) struct Group {
    pub(crate) sequence: u64,
    /// All groups below were on the device when this one was written.
    pub(crate) durable: u64,
    pub(crate) stream: Vec<u8>,
    /// The slots that hold data, with the blocks that they lie in.
    pub(crate) data: Vec<(u64, u8, Slot)>,
    /// Place at which the packed log continues.
    end: Place,
}

/// Reads the superblock.
pub(crate) fn superblock(device: &dyn WritableDevice) -> Result<Superblock, LogError> {
    let [first, second] = superblock_copies(device);
    let bytes = |copy: &Copy| *copy.as_ref().unwrap_or(&[0; SUPERBLOCK_BYTES]);
    let superblock = match Superblock::choose(&bytes(&first), &bytes(&second)) {
        Ok(superblock) => superblock,
        // What cannot be read may be what is looked for.
        Err(fault) => {
            return Err(match first.and(second) {
                Ok(_) => fault.into(),
                Err(error) => error,
            });
        }
    };
    if device.size() / (BLOCK_BYTES as u64) < superblock.blocks {
        return Err(LogError::Truncated {
            blocks: superblock.blocks,
            bytes: device.size(),
        });
    }
    Ok(superblock)
}

/// Makes both copies of the superblock the one that counts: a crash may have come between them. A copy that cannot be
/// written is told; the other one does.
fn agree(state: &mut State) -> Result<(), LogError> {
    let [first, second] = superblock_copies(&*state.device);
    let counting = |copy: &Copy| {
        let copy = copy.as_ref().ok()?;
        let counts = Superblock::parse(copy).as_ref() == Ok(&state.superblock);
        counts.then_some(*copy)
    };
    let unreadable = [first.is_err(), second.is_err()];
    let (first, second) = (counting(&first), counting(&second));
    let (block, copy) = match (first, second) {
        (Some(copy), None) => (1, copy),
        (None, Some(copy)) => (0, copy),
        _ => return Ok(()),
    };
    let mut whole = zeroed();
    for (byte, found) in whole.iter_mut().skip(SUPERBLOCK_OFFSET).zip(copy) {
        *byte = found;
    }
    // Of a block that cannot be read, no part can be written.
    let written = match unreadable.get(block) {
        Some(true) => state.device.write_at((block * BLOCK_BYTES) as u64, &*whole),
        _ => state.device.write_at(superblock_offset(block), &copy),
    };
    match written {
        Ok(()) => Ok(state.device.flush()?),
        Err(error) => {
            let text =
                format!("block {block}: a copy of the superblock cannot be written: {error}");
            state.complaints.push(text);
            Ok(())
        }
    }
}

fn superblock_offset(copy: usize) -> u64 {
    (copy * BLOCK_BYTES + SUPERBLOCK_OFFSET) as u64
}

/// A copy of the superblock, if it can be read.
type Copy = Result<[u8; SUPERBLOCK_BYTES], LogError>;

/// Both copies.
pub(crate) fn superblock_copies(device: &dyn WritableDevice) -> [Copy; 2] {
    [0, 1].map(|number| {
        let mut copy = [0; SUPERBLOCK_BYTES];
        match device.read_at(superblock_offset(number), &mut copy) {
            Ok(()) => Ok(copy),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(error.into()),
            Err(error) => Err(named(number as u64, &error).into()),
        }
    })
}

/// The newer of the checkpoints that are whole, one that a newer one has superseded included.
pub(crate) fn newest_pack(
    device: &dyn WritableDevice,
    superblock: &Superblock,
) -> Result<(Checkpoint, Option<Corrupt>), LogError> {
    match (
        read_pack(device, superblock, 0)?,
        read_pack(device, superblock, 1)?,
    ) {
        (Ok(first), Ok(second)) if first.version > second.version => Ok((first, None)),
        (Ok(_), Ok(second)) => Ok((second, None)),
        (Ok(only), Err(fault)) | (Err(fault), Ok(only)) => Ok((only, Some(fault))),
        (Err(first), Err(second)) => Err(LogError::NoCheckpoint(first, second)),
    }
}

/// The newer of the checkpoints that are whole. If a newer one was on the device and is not any more, that is an
/// error.
pub(crate) fn newest_checkpoint(
    device: &dyn WritableDevice,
    superblock: &Superblock,
) -> Result<Checkpoint, LogError> {
    let (newest, fault) = newest_pack(device, superblock)?;
    match newest.superseded {
        false => Ok(newest),
        true => Err(LogError::OutOfDate {
            version: newest.version,
            fault: fault.unwrap_or(Corrupt::Checkpoint {
                rule: "a newer one was there",
                found: newest.version,
            }),
        }),
    }
}

pub(crate) fn read_pack(
    device: &dyn WritableDevice,
    superblock: &Superblock,
    pack: u64,
) -> Result<Result<Checkpoint, Corrupt>, LogError> {
    let room = superblock.checkpoint_blocks;
    let start = superblock.checkpoint_start + pack * u64::from(room);
    let first = match read_part(device, start)? {
        Ok(first) => first,
        Err(fault) => return Ok(Err(fault)),
    };
    let blocks = Checkpoint::header_blocks(&first).filter(|&blocks| blocks <= room);
    let mut bytes = first.to_vec();
    for block in start + 1..start + u64::from(blocks.unwrap_or(1)) {
        match read_part(device, block)? {
            Ok(part) => bytes.extend_from_slice(&part[..]),
            Err(fault) => return Ok(Err(fault)),
        }
    }
    Ok(Checkpoint::parse(&bytes, superblock).and_then(|found| {
        if found.version % 2 == pack {
            Ok(found)
        } else {
            Err(Corrupt::PackPlace {
                pack,
                version: found.version,
            })
        }
    }))
}

/// A block of a pack. One that cannot be read is as good as one with a wrong checksum; a device that ends before it is not.
fn read_part(
    device: &dyn WritableDevice,
    block: u64,
) -> Result<Result<Box<Block>, Corrupt>, LogError> {
    // Some errors pass.
    match read_block(device, block).or_else(|_| read_block(device, block)) {
        Ok(found) => Ok(Ok(found)),
        Err(FsError::Io(error)) if error.kind() != ErrorKind::UnexpectedEof => {
            Ok(Err(Corrupt::Checkpoint {
                rule: UNREADABLE,
                found: block,
            }))
        }
        Err(error) => Err(error.into()),
    }
}

/// The segment table as the checkpoint means it.
pub(crate) fn segment_table(
    device: &dyn WritableDevice,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> Result<Vec<SitEntry>, LogError> {
    let RawTable {
        entries,
        unreadable,
    } = raw_segment_table(device, superblock, checkpoint);
    if let Some((_, error)) = unreadable.into_iter().next() {
        return Err(error.into());
    }
    for (segment, entry) in (0..).zip(&entries) {
        entry.check(segment)?;
    }
    Ok(entries)
}

/// A segment table as it was read.
struct RawTable {
    entries: Vec<SitEntry>,
    /// Its blocks that cannot be read. What entries there are instead is what they were, or nothing.
    unreadable: Vec<(u32, FsError)>,
}

/// The same, unchecked.
fn raw_segment_table(
    device: &dyn WritableDevice,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> RawTable {
    let mut entries = Vec::with_capacity(superblock.segments as usize);
    let mut unreadable = Vec::new();
    for index in 0..superblock.sit_blocks {
        let (start, blocks) = (superblock.sit_start, superblock.sit_blocks);
        let counts = checkpoint.sit_bits.place(start, blocks, index);
        let block = read_block(device, counts).unwrap_or_else(|error| {
            unreadable.push((index, error));
            let copies = 2 * start + u64::from(blocks) + 2 * u64::from(index);
            read_block(device, copies - counts).unwrap_or_else(|_| zeroed())
        });
        let left = superblock.segments - entries.len() as u32;
        for at in 0..SIT_PER_BLOCK.min(left) {
            entries.push(SitEntry::read(&block, at));
        }
    }
    for &(segment, entry) in &checkpoint.sit_journal {
        if let Some(stated) = entries.get_mut(segment as usize) {
            *stated = entry;
        }
    }
    RawTable {
        entries,
        unreadable,
    }
}

/// Why a log cannot be opened.
enum OpenError {
    /// It cannot be read.
    Read(LogError),
    /// It could be read, but not written to.
    Begin(LogError),
}

impl<E: Into<LogError>> From<E> for OpenError {
    fn from(error: E) -> Self {
        Self::Read(error.into())
    }
}

/// Opens a log, and replays what is newer than its checkpoint.
pub(crate) fn open(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(State, Recovery), LogError> {
    open_either(device, options).map_err(|error| match error {
        OpenError::Read(error) | OpenError::Begin(error) => error,
    })
}

/// As [`open`]; but a log that can be read, and not be written to as the device is full or fails, is opened for reading alone, and
/// complains of it.
pub(crate) fn open_as_possible(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(State, Recovery), LogError> {
    let read_only = Options {
        read_only: true,
        ..options.clone()
    };
    let error = match open_either(device.clone(), options) {
        Ok(opened) => return Ok(opened),
        Err(OpenError::Read(error)) => return Err(error),
        Err(OpenError::Begin(error)) => error,
    };
    let is_of_device = matches!(
        error,
        LogError::Device(_) | LogError::Fs(FsError::NoSpace | FsError::Io(_))
    );
    if !is_of_device {
        return Err(error);
    }
    let Ok((mut state, recovery)) = open(device, read_only) else {
        return Err(error);
    };
    let why = match &error {
        LogError::Fs(FsError::NoSpace) => "the file system that it lies on is full".into(),
        error => error.to_string(),
    };
    let text = format!("read-only, as it cannot be written to: {why}");
    state.complaints.push(text);
    Ok((state, recovery))
}

fn open_either(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<(State, Recovery), OpenError> {
    let superblock = superblock(&*device)?;
    if !options.read_only {
        superblock.check_writable()?;
    }
    let checkpoint = newest_checkpoint(&*device, &superblock)?;
    let entries = segment_table(&*device, &superblock, &checkpoint)?;
    let mut segments = Segments::new(&superblock, &entries, checkpoint.serial);
    segments.open_heads(&checkpoint.heads, &checkpoint.summaries)?;
    for (segment, owners) in &checkpoint.rewritten {
        segments.rewrite(*segment, owners.clone());
    }
    if segments.valid() != checkpoint.used_blocks {
        return Err(Corrupt::Count {
            what: "valid blocks",
            stated: checkpoint.used_blocks,
            counted: segments.valid(),
        }
        .into());
    }
    let mut state = state_of(device, superblock, &checkpoint, segments, options)?;
    if !state.options.read_only {
        state.slots.check_readable()?;
    }
    let mut recovery = Recovery {
        was_clean: checkpoint.clean,
        ..Recovery::default()
    };
    let mut replay = Replay::default();
    // What is deleted gives its room back at the end alone.
    state.space.stretch(4 * state.superblock.content_blocks());
    replay.run(&mut state, &checkpoint, &mut recovery)?;
    state.space.relax();
    if !state.options.read_only {
        if let Err(error) = begin(&mut state, &replay, &entries) {
            return Err(OpenError::Begin(error));
        }
    }
    Ok((state, recovery))
}

/// Makes a log one to write to.
fn begin(state: &mut State, replay: &Replay, entries: &[SitEntry]) -> Result<(), LogError> {
    state.take_room()?;
    replay.go_on(state, entries)?;
    state.back_open()?;
    admit_packed(state)?;
    // Another version: a group that did not arrive whole will never be taken for one of ours.
    state.checkpoint(false)?;
    agree(state)
}

/// Says in the superblock that content may be compressed, before any is.
fn admit_packed(state: &mut State) -> Result<(), LogError> {
    let superblock = &mut state.superblock;
    if state.options.policy == Policy::None || superblock.incompat & INCOMPAT_PACKED != 0 {
        return Ok(());
    }
    superblock.incompat |= INCOMPAT_PACKED;
    superblock.generation += 1;
    write_superblock(&*state.device, superblock)
}

/// Builds the state of a checkpoint with these segments.
fn state_of(
    device: Arc<dyn WritableDevice>,
    superblock: Superblock,
    checkpoint: &Checkpoint,
    segments: Segments,
    options: Options,
) -> FsResult<State> {
    let used = segments.valid() + checkpoint.reserved_blocks;
    Ok(State::new(Parts {
        slots: Slots::load(
            device.clone(),
            &superblock,
            checkpoint.bst_bits.clone(),
            &checkpoint.bst_journal,
            segments.packed(),
        )?,
        nat: Nat::new(
            device.clone(),
            &superblock,
            checkpoint.nat_bits.clone(),
            checkpoint.nat_journal.iter().copied(),
            checkpoint.next_nid,
            checkpoint.nodes,
        ),
        space: Space::new(superblock.capacity(), used, checkpoint.reserved_blocks),
        tables: Tables {
            sit_bits: checkpoint.sit_bits.clone(),
            newer: checkpoint
                .sit_journal
                .iter()
                .map(|(segment, _)| *segment)
                .collect(),
            journal_max: SIT_JOURNAL_MAX,
        },
        device,
        superblock,
        options,
        segments,
        version: checkpoint.version,
        sequence: checkpoint.next_sequence,
        inode_count: checkpoint.inodes,
    }))
}

/// Builds the read-only state of a checkpoint, whatever is wrong with its segments, without the groups behind it.
pub(crate) fn as_is(
    device: Arc<dyn WritableDevice>,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    options: Options,
) -> FsResult<State> {
    let mut entries = raw_segment_table(&*device, superblock, checkpoint).entries;
    entries.iter_mut().for_each(SitEntry::make_sane);
    let segments = Segments::new(superblock, &entries, checkpoint.serial);
    state_of(
        device,
        superblock.clone(),
        checkpoint,
        segments,
        Options {
            read_only: true,
            ..options
        },
    )
}

/// A log that is to be repaired.
pub(crate) struct Patient {
    pub(crate) state: State,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) recovery: Recovery,
    /// Faults of the segment table, which are repaired in memory.
    pub(crate) faults: Vec<Corrupt>,
}

/// Opens a log that is to be repaired, the groups behind its checkpoint included; nothing is written yet. All segments
/// that were open count as filled. With `goes_back`, the checkpoint may be one that is out of date.
pub(crate) fn open_to_repair(
    device: Arc<dyn WritableDevice>,
    options: Options,
    goes_back: bool,
) -> Result<Patient, LogError> {
    let superblock = superblock(&*device)?;
    let checkpoint = match goes_back {
        true => newest_pack(&*device, &superblock)?.0,
        false => newest_checkpoint(&*device, &superblock)?,
    };
    let RawTable {
        mut entries,
        unreadable,
    } = raw_segment_table(&*device, &superblock, &checkpoint);
    let (mut faults, mut corrected) = (Vec::new(), Vec::new());
    let mut lost = Vec::new();
    for (index, error) in unreadable {
        lost.push(format!("segment table: {error}"));
        let first = index * SIT_PER_BLOCK;
        corrected.extend(first..superblock.segments.min(first + SIT_PER_BLOCK));
    }
    for (segment, entry) in (0..).zip(&mut entries) {
        if let Err(fault) = entry.check(segment) {
            entry.make_sane();
            faults.push(fault);
            corrected.push(segment);
        }
    }
    let mut segments = Segments::new(&superblock, &entries, checkpoint.serial);
    for segment in corrected {
        segments.note_changed(segment);
    }
    if segments.valid() != checkpoint.used_blocks {
        let counted = segments.valid();
        faults.push(Corrupt::Count {
            what: "valid blocks",
            stated: checkpoint.used_blocks,
            counted,
        });
    }
    let as_stated = Segments::new(&superblock, &entries, checkpoint.serial)
        .open_heads(&checkpoint.heads, &checkpoint.summaries);
    faults.extend(as_stated.err());
    for head in &checkpoint.heads {
        segments.keep(head.segment);
        head.next_segment
            .into_iter()
            .for_each(|next| segments.keep(next));
    }
    let mut state = state_of(
        device,
        superblock,
        &checkpoint,
        segments,
        Options {
            read_only: true,
            ..options
        },
    )?;
    // What is really used is counted later.
    state.space = Space::new(
        state.superblock.content_blocks(),
        0,
        checkpoint.reserved_blocks,
    );
    let mut recovery = Recovery {
        was_clean: checkpoint.clean,
        ..Recovery::default()
    };
    lost.extend(
        state
            .slots
            .check_readable()
            .err()
            .map(|error| error.to_string()),
    );
    if !lost.is_empty() {
        // What replaces a block that cannot be read lies elsewhere.
        state.tables.journal_max = 0;
    }
    match Replay::default().run(&mut state, &checkpoint, &mut recovery) {
        Err(LogError::Fs(error @ FsError::Io(_))) => {
            lost.push(format!("records behind the checkpoint: {error}"));
        }
        done => done?,
    }
    state.complaints.extend(lost);
    if checkpoint.superseded {
        // Of versions that there were, there may be groups: none must be taken for one that is still to come.
        state.version += VERSIONS_LEFT_OUT;
    }
    Ok(Patient {
        state,
        checkpoint,
        recovery,
        faults,
    })
}

/// The groups behind a checkpoint, and whether there is a beginning of one more.
pub(crate) fn groups(
    device: &dyn WritableDevice,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> Result<(Vec<Group>, bool), LogError> {
    let chain = Chain::read(device, superblock, checkpoint)?;
    Ok((chain.groups, chain.is_broken))
}

/// Contents of the groups behind a checkpoint.
#[derive(Default)]
struct Replay {
    owners: HashMap<u64, Owner>,
    /// Inodes that the records change.
    touched: BTreeSet<u32>,
    /// Blocks that the records of this group have mapped.
    mapped: u64,
    /// Number of blocks of each segment, from its start, that the groups reach at most.
    reached: HashMap<u32, u16>,
    /// Place at which the packed log continues.
    end: Option<Place>,
    /// Tells whether it ends at a block that cannot be read.
    is_cut: bool,
    /// Extended attributes of which a part has come.
    xattrs: Gathered,
}

impl Replay {
    fn run(
        &mut self,
        state: &mut State,
        checkpoint: &Checkpoint,
        recovery: &mut Recovery,
    ) -> Result<(), LogError> {
        let chain = Chain::read(&*state.device, &state.superblock, checkpoint)?;
        recovery.dropped = chain.is_broken;
        if let Some(error) = chain.unreadable {
            self.is_cut = true;
            if chain.is_torn && !state.options.read_only {
                return Err(error);
            }
            // Each mount begins with a checkpoint that is not clean: behind a clean one there are no groups.
            match checkpoint.clean && !chain.is_torn {
                true => state.notes.push(format!(
                    "nothing lies there, and the log will go on elsewhere: {error}"
                )),
                false => state
                    .complaints
                    .push(format!("the packed log ends there: {error}")),
            }
        }
        for &segment in &chain.segments {
            state.segments.keep(segment);
        }
        // Nodes that are made on the way must not take the numbers of inodes that are still to come.
        for record in chain.groups.iter().flat_map(|group| records(&group.stream)) {
            if let Record::Attributes { ino, .. } = record? {
                state.nat.reserve(ino);
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
            state.sequence = group.sequence + 1;
            self.end = Some(group.end);
        }
        self.touched.extend(&checkpoint.orphans);
        if checkpoint.orphans_left_out {
            self.find_orphans(state)?;
        }
        self.reap(state)
    }

    fn apply(&mut self, state: &mut State, group: &Group) -> Result<(), LogError> {
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
                } => self.map(state, (ino, lblk, count), pointer)?,
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
                    State::check_name(name)?;
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
        for (block, number, slot) in &group.data {
            self.map_slot(state, *block, *number, slot)?;
        }
        Ok(())
    }

    /// Notes that a group names a block.
    fn reach(&mut self, state: &State, block: u64) {
        if let Some((segment, index)) = state.superblock.locate(block) {
            let reached = self.reached.entry(segment).or_default();
            *reached = (*reached).max(index + 1);
        }
    }

    /// Content that lies beside the records of a group.
    fn map_slot(&mut self, state: &mut State, block: u64, number: u8, slot: &Slot) -> FsResult<()> {
        let first = Pointer::Packed(Slotted {
            block,
            slot: number,
            sequence: 0,
            behind: slot.continues.into(),
        });
        self.map(
            state,
            (slot.ino, slot.lblk, slot.blocks.into()),
            first.encode(),
        )
    }

    fn attributes(
        &mut self,
        state: &mut State,
        ino: u32,
        whole: bool,
        new: &Attributes,
    ) -> FsResult<()> {
        if !state.nat.is_valid(ino) {
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
        if state.nat.get(ino)?.ino == 0 {
            state.nat.claim(ino, ino, new.generation)?;
            state.space.take(1)?;
            let attributes = Attributes {
                size: 0,
                blocks: 0,
                is_inline: true,
                is_launched: false,
                ..*new
            };
            let inode = Inode {
                attributes,
                xattr_nid: 0,
                xattrs: Vec::new(),
                inline: Vec::new(),
                nids: [0; 5],
                entries: 0,
            };
            state.insert(ino, inode);
        }
        let old = state.live(ino)?.inode().attributes;
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
        state: &mut State,
        (ino, lblk, count): (u32, u32, u32),
        raw: u64,
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
        let pointer = Pointer::decode(raw, &state.superblock, ino, 0)?;
        if pointer.has_block() {
            self.mapped += u64::from(count);
        }
        if self.mapped > state.superblock.content_blocks() {
            return Err(fault(
                "the records of a group map more blocks than there are",
            ));
        }
        match pointer {
            Pointer::Hole => state.clear_pointers(ino, lblk..end),
            Pointer::Plain(first) => {
                for (lblk, block) in (lblk..end).zip(first..) {
                    self.map_block(state, Owner { ino, lblk }, block)?;
                }
                Ok(())
            }
            Pointer::Promised => {
                for lblk in lblk..end {
                    let old = state.set_pointer(ino, lblk, Pointer::Promised)?;
                    if !old.has_block() {
                        state.space.take(1)?;
                    }
                    if old == Pointer::Hole {
                        state.live(ino)?.attributes().blocks += 1;
                    }
                    state.space.promise(1);
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

    fn map_packed(&mut self, state: &mut State, owner: Owner, at: Slotted) -> FsResult<()> {
        let pointer = Pointer::Packed(at);
        let old = state.pointer(owner.ino, owner.lblk)?;
        if old == pointer {
            return Ok(());
        }
        for (block, slot) in at.places() {
            if state.superblock.locate(block).is_none() {
                return Err(Corrupt::Block {
                    block,
                    rule: "a chunk goes on outside of the main area",
                }
                .into());
            }
            self.reach(state, block);
            let (segment, _) = state.segments.locate(block);
            state.segments.keep(segment);
            state.occupy(block, slot);
            state.segments.holds(segment, HeadKind::Moved);
        }
        state.set_pointer(owner.ino, owner.lblk, pointer)?;
        state.space.give(old.has_block().into());
        if old == Pointer::Hole {
            state.live(owner.ino)?.attributes().blocks += 1;
        }
        Ok(())
    }

    fn map_block(&mut self, state: &mut State, owner: Owner, block: u64) -> FsResult<()> {
        let plain = Pointer::decode(
            Pointer::Plain(block).encode(),
            &state.superblock,
            owner.ino,
            0,
        )?;
        if state.pointer(owner.ino, owner.lblk)? == plain {
            return Ok(());
        }
        self.reach(state, block);
        let (segment, _) = state.segments.locate(block);
        state.segments.keep(segment);
        state.segments.holds(segment, HeadKind::WarmData);
        let seconds = state.seconds();
        if !state.segments.mark(block, seconds) {
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
            state.space.take(1)?;
        }
        if old == Pointer::Hole {
            state.live(owner.ino)?.attributes().blocks += 1;
        }
        Ok(())
    }

    /// Looks at all inodes for those without a link, where the checkpoint does not list them.
    fn find_orphans(&mut self, state: &mut State) -> Result<(), LogError> {
        for ino in ROOT..=state.nat.count_max() {
            if state.nat.get(ino)?.ino != ino {
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
    fn reap(&mut self, state: &mut State) -> Result<(), LogError> {
        for &ino in &self.touched {
            if state.nat.get(ino)?.ino == ino && state.live(ino)?.inode().attributes.nlink == 0 {
                state.orphans.insert(ino);
                match state.reap_now(ino) {
                    // What is damaged stays an orphan, for a repair to find.
                    Err(error) if is_damage(&error) => {}
                    reaped => reaped?,
                }
            }
            state.shrink();
        }
        Ok(())
    }

    /// Has the heads go on behind all that the groups name, and says in summaries whose the blocks of other segments are. `entries` are
    /// those of the checkpoint.
    fn go_on(&self, state: &mut State, entries: &[SitEntry]) -> FsResult<()> {
        let reached = |segment| self.reached.get(&segment).copied().unwrap_or_default();
        let owner = |block| self.owners.get(&block).copied();
        // What the checkpoint has to be written over others is written now: that may be torn, as long as this checkpoint counts.
        let mut stated: BTreeMap<u32, Vec<Owner>> =
            state.segments.take_rewritten().into_iter().collect();
        let summaries = state.segments.go_on(reached, owner);
        match self.end {
            // What is written to that block may not be readable either, and no group behind it would be found.
            _ if self.is_cut => state.segments.close_packed(),
            Some(end) => state.segments.go_on_packed(&end),
            None => {}
        }
        let named = self
            .owners
            .keys()
            .map(|&block| state.segments.locate(block).0);
        let mut others: BTreeSet<u32> = named.collect();
        for (place, summary) in summaries {
            others.remove(&state.segments.locate(place).0);
            state.push(place, summary);
        }
        others.retain(|&segment| {
            state.segments.segment(segment).state != Use::Open
                && state.segments.rewritten(segment).is_none()
        });
        let (threaded, filled): (Vec<u32>, Vec<u32>) = others.into_iter().partition(|&segment| {
            let stated = entries.get(segment as usize);
            stated.is_some_and(|entry| entry.valid > 0)
        });
        for segment in threaded {
            let start = state.segments.start(segment);
            let known = match stated.remove(&segment) {
                Some(owners) => Ok(owners),
                None => owners::sealed(state, segment),
            };
            match known {
                Ok(mut owners) => {
                    for (block, known) in (start..).zip(&mut owners) {
                        *known = owner(block).unwrap_or(*known);
                    }
                    state.segments.rewrite(segment, owners);
                }
                // It is damaged, as it was, and stays so for a repair.
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error),
            }
        }
        for (segment, owners) in stated {
            let (place, summary) = state.segments.summary(segment, &owners);
            state.push(place, summary);
        }
        let latest = filled
            .iter()
            .min_by_key(|&&segment| reached(segment))
            .copied();
        for segment in filled {
            let start = state.segments.start(segment);
            let places = start..start + u64::from(reached(segment));
            let owners: Vec<Owner> = places
                .map(|block| owner(block).unwrap_or_default())
                .collect();
            let kind = HeadKind::WarmData;
            if Some(segment) != latest || !state.segments.go_on_in(segment, kind, &owners, None) {
                let summary = state.segments.adopt(segment, kind, &owners);
                state.push(start + u64::from(SEGMENT_CONTENT), summary);
            }
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

fn inline(state: &mut State, ino: u32, bytes: &[u8]) -> FsResult<()> {
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
    live.inode_mut().inline = bytes.to_vec();
    Ok(())
}

/// Returns whether all data of a group is on the device.
fn arrived(state: &State, stream: &[u8]) -> Result<bool, LogError> {
    for record in records(stream) {
        let Record::Checksums { block, sums } = record? else {
            continue;
        };
        for (block, sum) in (block..).zip(sums) {
            if state.superblock.locate(block).is_none() {
                return Err(Corrupt::Block {
                    block,
                    rule: "a record names a block outside of the main area",
                }
                .into());
            }
            // What cannot be read did arrive, once: that of the others is no reason to drop them.
            match read_block(&*state.device, block) {
                Ok(found) if crc(&*found) != sum => return Ok(false),
                Ok(_) | Err(FsError::Io(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(true)
}

/// The packed log behind a checkpoint.
#[derive(Default)]
struct Chain {
    groups: Vec<Group>,
    /// Segments that it lies in, and the one where it would go on.
    segments: BTreeSet<u32>,
    /// Tells whether it ends within a group.
    is_broken: bool,
    /// Why it ends at a block that cannot be read.
    unreadable: Option<LogError>,
    /// Tells whether there are groups behind that block.
    is_torn: bool,
}

impl Chain {
    fn read(
        device: &dyn WritableDevice,
        superblock: &Superblock,
        checkpoint: &Checkpoint,
    ) -> Result<Self, LogError> {
        let mut chain = Self::default();
        let Some(head) = checkpoint
            .heads
            .iter()
            .find(|head| head.kind == HeadKind::Packed)
        else {
            return Ok(chain);
        };
        let mut open: Option<Group> = None;
        let mut entered = BTreeSet::new();
        let mut sequence = checkpoint.next_sequence;
        let mut place = Place {
            segment: head.segment,
            index: head.next,
            next: head.next_segment,
        };
        while let Some(block) = place.block(superblock) {
            if place.index == 0 && !entered.insert(place.segment) {
                // A group that is as long as a segment must not go round in circles.
                break;
            }
            // Some errors pass.
            let read = read_packed(device, block).or_else(|_| read_packed(device, block));
            let (header, stream, data) = match read {
                Ok(Ok(found)) => found,
                Ok(Err(_)) => break,
                // As if it had never been written, unless something follows that came later.
                Err(error) => {
                    let behind =
                        block + 1..block + u64::from(SEGMENT_CONTENT - u32::from(place.index));
                    chain.is_torn = behind.into_iter().any(|block| {
                        let found = read_packed(device, block);
                        found.is_ok_and(|found| {
                            found.is_ok_and(|(header, ..)| {
                                header.checkpoint == checkpoint.version as u32
                                    && header.sequence >= sequence
                            })
                        })
                    });
                    chain.unreadable = Some(error);
                    break;
                }
            };
            let is_next =
                header.checkpoint == checkpoint.version as u32 && header.sequence == sequence;
            if !is_next
                || header.first != open.is_none()
                || header.next_segment >= superblock.segments
            {
                break;
            }
            chain.segments.extend([place.segment, header.next_segment]);
            place.next = Some(header.next_segment);
            let durable = header.sequence - u64::from(header.lag).min(header.sequence);
            let group = open.get_or_insert_with(|| Group {
                sequence,
                durable,
                stream: Vec::new(),
                data: Vec::new(),
                end: place,
            });
            group.stream.extend_from_slice(&stream);
            group.data.extend(data);
            place.index += 1;
            group.end = place;
            if header.last {
                chain.groups.extend(open.take());
                sequence += 1;
            }
        }
        chain.is_broken = open.is_some();
        Ok(chain)
    }
}

/// Records of a packed block of a group, and the slots whose data begins there.
type Packed = (PackedHeader, Vec<u8>, Vec<(u64, u8, Slot)>);

/// A packed block, if it is one.
fn read_packed(
    device: &dyn WritableDevice,
    block: u64,
) -> Result<Result<Packed, Corrupt>, LogError> {
    let bytes = read_block(device, block)?;
    Ok(packed::parse(&bytes).map(|(header, slots)| {
        let records = slots.iter().filter(|slot| slot.kind == SlotKind::Records);
        let stream = records.flat_map(|slot| {
            let start = usize::from(slot.start);
            bytes
                .get(start..start + usize::from(slot.len))
                .unwrap_or_default()
        });
        let data = (0..).zip(&slots).filter(|(_, slot)| is_data(slot));
        (
            header,
            stream.copied().collect(),
            data.map(|(number, slot)| (block, number, *slot)).collect(),
        )
    }))
}

fn is_data(slot: &Slot) -> bool {
    slot.kind == SlotKind::Data && !slot.continued
}
