//! Damage of a log: what a walk finds, as far as something has to be changed.
//!
//! Nothing is changed here. Notes of damage are in memory; where they outgrow their share, nothing more is kept, and
//! the repair is refused.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;

use anteros_core::{FsError, Table};

use super::memory::Memory;
use crate::durable::Durable;
use crate::durable::owners;
use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::Checkpoint;
use crate::layout::summary::Owner;
use crate::offline::walk::Sink;
use crate::offline::walk::finding::{Claim, Fault, Part, Place};
use crate::offline::walk::records::Edge;

/// Bytes that notes take, about.
pub(super) const NAME_BYTES: usize = 320;
pub(super) const TEXT_BYTES: usize = 200;
pub(super) const NUMBER_BYTES: usize = 32;
const OWNERS_BYTES: usize = SEGMENT_CONTENT as usize * size_of::<Owner>();

/// A bit for each block of the main area.
pub(super) struct Bitmap(Vec<[u64; 8]>);

impl Bitmap {
    fn new(segments: u32) -> Self {
        Self(vec![[0; 8]; segments as usize])
    }

    pub(super) fn get(&self, segment: u32, index: u16) -> bool {
        let words = self.0.get(segment as usize);
        let word = words.and_then(|words| words.get(usize::from(index / 64)));
        word.is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(super) fn set(&mut self, segment: u32, index: u16) {
        let words = self.0.get_mut(segment as usize);
        if let Some(word) = words.and_then(|words| words.get_mut(usize::from(index / 64))) {
            *word |= 1 << (index % 64);
        }
    }
}

/// The owners of the blocks of a segment whose summary does not say so.
pub(super) struct Owners {
    pub(super) has_nodes: bool,
    /// No summary can say both.
    pub(super) has_data: bool,
    /// Tells whether others of its blocks are packed.
    pub(super) has_slots: bool,
    pub(super) owners: Vec<Owner>,
}

impl Owners {
    /// Owners that the summary names, as far as it can be used: there may be blocks of what cannot be read.
    pub(super) fn named(state: &Durable, checkpoint: &Checkpoint, segment: u32) -> Self {
        let mut owners = owners::named(state, Some(checkpoint), segment).unwrap_or_default();
        owners.resize(SEGMENT_CONTENT as usize, Owner::default());
        Self {
            has_nodes: false,
            has_data: false,
            has_slots: false,
            owners,
        }
    }

    pub(super) fn add(&mut self, index: u16, claim: Claim) {
        self.has_nodes |= claim.is_node;
        self.has_data |= !claim.is_node;
        if let Some(owner) = self.owners.get_mut(usize::from(index)) {
            *owner = claim.owner;
        }
    }
}

/// Reasons to put the names of a directory into new blocks.
#[derive(Default)]
pub(super) struct Scattered {
    pub(super) error: Option<String>,
    /// Names that lie where their hashes do not lead.
    misplaced: u32,
}

impl Scattered {
    pub(super) fn text(&self) -> String {
        let misplaced = self.misplaced;
        let text = || format!("{misplaced} names lie where their hashes do not lead");
        self.error.clone().unwrap_or_else(text)
    }
}

/// A name that was found, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Found {
    pub(super) parent: u32,
    /// Position in the directory; in a damaged one, number among the names that can be read.
    pub(super) position: u64,
    pub(super) ino: u32,
    pub(super) kind: u8,
}

impl Found {
    pub(super) fn of(edge: &Edge) -> Self {
        Self {
            parent: edge.parent,
            position: edge.position,
            ino: edge.ino,
            kind: edge.kind,
        }
    }
}

/// Change of an inode; in this order they are made.
pub(super) enum Change {
    /// Extended attributes go, for this reason.
    Attributes(String),
    Blocks(u64),
    /// A block behind the end of the file goes.
    Beyond(u32),
    Entries(u32),
    Links(u32),
    Parent(u32),
    /// Makes an inode that belonged to the log itself a file like others.
    Disowned,
    /// Removes an inode that belongs to the log itself and is not its record.
    Removed,
}

/// Change of a name; in this order they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// Gets the kind of its inode.
    Renamed,
    /// Goes, as nothing is there.
    Dangling,
    /// Goes, as the directory keeps another one.
    Second,
}

/// Damage that was found.
pub(super) struct Damage {
    pub(super) memory: Memory,
    /// Bytes that the notes would take, all of them.
    pub(super) bytes: usize,
    /// Unreadable places, in words.
    pub(super) unreadable: Vec<String>,
    /// Blocks of the node address table that cannot be read.
    pub(super) tables: u32,
    /// Inodes that cannot be read, and why.
    pub(super) broken: BTreeMap<u32, String>,
    /// Inodes of which not every node can be read.
    pub(super) torn: HashSet<u32>,
    /// Inodes whose extended attributes are damaged, and how.
    bare: BTreeMap<u32, String>,
    /// Changes, with their inodes.
    pub(super) changes: Vec<(u32, Change)>,
    /// Directories whose names have to be put into new blocks, and why.
    pub(super) scattered: BTreeMap<u32, Scattered>,
    pub(super) names: Vec<(Fate, Found)>,
    /// Directories that have several names.
    pub(super) crowded: Vec<u32>,
    /// Reason why the checkpoint names no inode of the log's own record any more.
    pub(super) own_record: Option<String>,
    /// Inodes that no name leads to, and no other one of these.
    pub(super) lost: Vec<u32>,
    /// Numbers of nodes that are in use, and nothing leads to them.
    pub(super) stray: Vec<u32>,
    /// Inodes that have never been written, so that there is none.
    pub(super) unwritten: Vec<u32>,
    /// Blocks that more than one claims, and who does.
    pub(super) shared: BTreeMap<u64, Vec<Claim>>,
    /// Owners of the blocks of segments in use whose summary is broken, or does not name them.
    pub(super) unsummarized: BTreeMap<u32, Owners>,
    /// Blocks that belong to something.
    pub(super) used: Bitmap,
    /// Slots of packed blocks that belong to something.
    pub(super) slots: Table<4>,
}

impl Damage {
    pub(super) fn new(memory: Memory, segments: u32) -> Self {
        Self {
            memory,
            bytes: 0,
            unreadable: Vec::new(),
            tables: 0,
            broken: BTreeMap::new(),
            torn: HashSet::new(),
            bare: BTreeMap::new(),
            changes: Vec::new(),
            scattered: BTreeMap::new(),
            names: Vec::new(),
            crowded: Vec::new(),
            own_record: None,
            lost: Vec::new(),
            stray: Vec::new(),
            unwritten: Vec::new(),
            shared: BTreeMap::new(),
            unsummarized: BTreeMap::new(),
            used: Bitmap::new(segments),
            slots: Table::new(memory.of_table()),
        }
    }

    /// Returns whether all could be read. Only then is it known which blocks belong to nothing.
    pub(super) fn is_whole(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Notes something of so many bytes, as long as there is room for notes.
    pub(super) fn note(&mut self, bytes: usize, note: impl FnOnce(&mut Self)) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.memory.admit(self.bytes).is_ok() {
            note(self);
        }
    }

    pub(super) fn note_unreadable(&mut self, text: String) {
        self.note(TEXT_BYTES, |damage| damage.unreadable.push(text));
    }

    pub(super) fn note_change(&mut self, ino: u32, change: Change) {
        self.note(NUMBER_BYTES, |damage| damage.changes.push((ino, change)));
    }

    pub(super) fn note_name(&mut self, fate: Fate, found: Found) {
        self.note(NAME_BYTES, |damage| damage.names.push((fate, found)));
    }

    pub(super) fn note_owners(&mut self, segment: u32, owners: Owners, is_open: bool) {
        let bytes = if is_open { 0 } else { OWNERS_BYTES };
        self.note(bytes, |damage| {
            damage.unsummarized.insert(segment, owners);
        });
    }

    /// Orders changes as they are made, and decides about numbers that nothing leads to: what cannot be read might.
    pub(super) fn finish(&mut self) {
        if !self.is_whole() {
            for nid in std::mem::take(&mut self.stray) {
                self.note_unreadable(format!("node {nid}: belongs to nothing that can be read"));
            }
        }
        let bare = std::mem::take(&mut self.bare).into_iter();
        self.changes
            .extend(bare.map(|(ino, fault)| (ino, Change::Attributes(fault))));
        self.changes
            .sort_by_key(|(ino, change)| (change.rank(), *ino));
    }

    fn note_torn(&mut self, ino: u32, error: &dyn Display) {
        self.note_unreadable(format!("inode {ino}: {error}"));
        self.note(NUMBER_BYTES, |damage| {
            damage.torn.insert(ino);
        });
    }

    fn note_bare(&mut self, ino: u32, fault: String) {
        if !self.bare.contains_key(&ino) {
            self.note(TEXT_BYTES, |damage| {
                damage.bare.insert(ino, fault);
            });
        }
    }

    pub(super) fn note_scattered(&mut self, directory: u32, note: impl FnOnce(&mut Scattered)) {
        let bytes = match self.scattered.contains_key(&directory) {
            true => 0,
            false => TEXT_BYTES,
        };
        self.note(bytes, |damage| {
            note(damage.scattered.entry(directory).or_default());
        });
    }

    fn note_shared(&mut self, block: u64, other: Claim, claim: Option<Claim>) {
        self.note(2 * NUMBER_BYTES, |damage| {
            let claims = damage.shared.entry(block).or_insert_with(|| vec![other]);
            claims.extend(claim);
        });
    }

    fn find_node(&mut self, ino: u32, part: Part, error: &FsError) {
        match (part, error) {
            (Part::Inode, _) => self.note(TEXT_BYTES, |damage| {
                damage.broken.insert(ino, error.to_string());
            }),
            (Part::Attributes, FsError::Corrupt(fault)) => self.note_bare(ino, fault.clone()),
            (Part::Attributes, _) => {
                self.note_unreadable(format!("inode {ino}, extended attributes: {error}"));
            }
            (Part::Tree, _) => self.note_torn(ino, error),
        }
    }

    fn find_in(&mut self, ino: u32, fault: Fault) {
        match fault {
            Fault::Node { part, error, .. } => self.find_node(ino, part, &error),
            Fault::Attributes(fault) => self.note_bare(ino, fault.to_string()),
            Fault::Pointer { fault, .. } => self.note_torn(ino, &fault),
            Fault::Unplaced(error) => self.note_torn(ino, &error),
            Fault::Chunk { at, error } => {
                self.note_unreadable(format!("inode {ino}, {}: {error}", at.claim));
            }
            Fault::Beyond { lblk, .. } => self.note_change(ino, Change::Beyond(lblk)),
            Fault::Blocks { counted, .. } => self.note_change(ino, Change::Blocks(counted)),
            // Names of damaged directories have been counted.
            Fault::Entries { counted, .. } if !self.scattered.contains_key(&ino) => {
                self.note_change(ino, Change::Entries(counted as u32));
            }
            // Those of directories are counted when it is known where each lies.
            Fault::Links {
                counted,
                is_directory: false,
                ..
            } => self.note_change(ino, Change::Links(counted.try_into().unwrap_or(u32::MAX))),
            Fault::Unlisted { error, .. } => self.note_scattered(ino, |scattered| {
                scattered.error.get_or_insert_with(|| error.to_string());
            }),
            Fault::Own { names: 0 } => self.note_change(ino, Change::Removed),
            Fault::Own { .. } => self.note_change(ino, Change::Disowned),
            Fault::Names(_) => self.note(NUMBER_BYTES, |damage| damage.crowded.push(ino)),
            Fault::Shared {
                block,
                claim,
                other,
            } => self.note_shared(block, other, Some(claim)),
            Fault::SharedPacked { block, other, .. } => self.note_shared(block, other, None),
            // Which blocks and slots are valid is settled with all that is in use.
            _ => {}
        }
    }
}

impl Change {
    fn rank(&self) -> u8 {
        match self {
            Self::Attributes(_) => 0,
            Self::Blocks(_) => 1,
            Self::Beyond(_) => 2,
            Self::Entries(_) => 3,
            Self::Links(_) => 4,
            Self::Parent(_) => 5,
            Self::Disowned => 6,
            Self::Removed => 7,
        }
    }
}

impl Sink for Damage {
    const TRUSTS_UNREAD: bool = false;

    fn find(&mut self, place: Place, fault: Fault) {
        match (place, fault) {
            (Place::Table, fault) => {
                self.tables += 1;
                self.note_unreadable(format!("node address table: {fault}"));
            }
            (Place::Checkpoint, Fault::OwnRecord(error @ FsError::Io(_))) => {
                self.note_unreadable(format!("the log's own record: {error}"));
            }
            (Place::Checkpoint, fault) => self.own_record = Some(fault.to_string()),
            (Place::Node(nid), _) => {
                self.note(size_of::<u32>(), |damage| damage.stray.push(nid));
            }
            (Place::Inode(ino), fault) => self.find_in(ino, fault),
            (Place::Name(parent, _), _) => {
                self.note_scattered(parent, |scattered| scattered.misplaced += 1);
            }
            (Place::Position(parent, position), fault) => {
                let (fate, ino, kind) = match fault {
                    Fault::Misnamed { ino, is, .. } => (Fate::Renamed, ino, is),
                    Fault::Dangling { ino } => (Fate::Dangling, ino, 0),
                    _ => return,
                };
                let found = Found {
                    parent,
                    position,
                    ino,
                    kind,
                };
                self.note_name(fate, found);
            }
        }
    }

    fn has_attributes(&self, ino: u32) -> bool {
        !self.bare.contains_key(&ino)
    }
}
