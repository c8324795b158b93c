//! Survey of a log that may be damaged: all that can be reached, and all that is left over.
//!
//! Nothing is changed here. What cannot be read is told, and whatever may belong to it counts as used.
//!
//! What is noted of everything lies in tables that go to temporary files beyond the memory that they may take. What is
//! noted of damage is in memory; where it outgrows its share, the survey ends.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Display;
use std::ops::Range;

use anteros_core::{FileKind, FsError, FsResult, Table};
use listing::{Found, Listing};
use notes::is_damage;

use crate::durable::owners;
use crate::error::LogError;
use crate::files::dir::{Named, type_of};
use crate::layout::checkpoint::Checkpoint;
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, ROOT, SEGMENT_CONTENT};
use crate::offline::check::Numbers;
use crate::state::State;
pub(crate) use notes::Home;
use notes::{Homes, Memory, Queue};

pub(crate) mod listing;
mod notes;

/// Stands for the directory that what was lost is put into.
pub(crate) const LOST: u32 = 0;

/// An entry of a directory.
pub(crate) struct Name {
    pub(crate) parent: u32,
    pub(crate) name: Vec<u8>,
    pub(crate) named: Named,
}

impl Name {
    /// Place of it, in words.
    pub(crate) fn place(&self) -> String {
        format!(
            "directory {}, {:?}",
            self.parent,
            String::from_utf8_lossy(&self.name)
        )
    }
}

/// Claimant of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) owner: Owner,
    pub(crate) is_node: bool,
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

/// Items to survey.
#[derive(Default)]
pub(crate) struct Watched {
    /// Blocks, of which all who claim them are noted.
    pub(crate) blocks: BTreeSet<u64>,
    /// Segments, of which it is noted whose the blocks are.
    pub(crate) segments: BTreeSet<u32>,
}

/// The owners of the blocks of a segment whose summary does not say so.
pub(crate) struct Owners {
    pub(crate) has_nodes: bool,
    /// No summary can say both.
    pub(crate) has_data: bool,
    pub(crate) owners: Vec<Owner>,
}

impl Owners {
    /// As the summary has them, as far as it can be used: there may be blocks of what cannot be read.
    fn named(state: &State, checkpoint: &Checkpoint, segment: u32) -> Self {
        let mut owners = owners::named(state, Some(checkpoint), segment).unwrap_or_default();
        owners.resize(SEGMENT_CONTENT as usize, Owner::default());
        Self {
            has_nodes: false,
            has_data: false,
            owners,
        }
    }

    fn add(&mut self, index: u16, claim: Claim) {
        self.has_nodes |= claim.is_node;
        self.has_data |= !claim.is_node;
        if let Some(owner) = self.owners.get_mut(usize::from(index)) {
            *owner = claim.owner;
        }
    }
}

/// Contents of a log.
pub(crate) struct Survey {
    /// Blocks that belong to something.
    pub(crate) used: Bitmap,
    nids: Numbers,
    /// Number of names of each inode, without those of directories that are removed.
    pub(crate) names: Table<4>,
    /// The name that each directory keeps.
    pub(crate) homes: Homes,
    /// Directories whose names have to be looked at.
    directories: Queue,
    memory: Memory,
    /// Names of what is not there.
    pub(crate) dangling: Vec<Name>,
    /// Names of directories beyond the first.
    pub(crate) second: Vec<Name>,
    /// Names with another kind than the inode's, which is the one given here.
    pub(crate) misnamed: Vec<Name>,
    /// Directories whose names have to be put into new blocks, and why.
    pub(crate) scattered: BTreeMap<u32, String>,
    /// Inodes of which not every node can be read.
    pub(crate) torn: HashSet<u32>,
    /// Real number of names of directories that record another.
    pub(crate) entries: BTreeMap<u32, u32>,
    /// Real number of blocks of inodes that record another.
    pub(crate) blocks: BTreeMap<u32, u64>,
    /// Blocks behind the end of files: inode, and logical block.
    pub(crate) beyond: Vec<(u32, u32)>,
    /// Slots of packed blocks that belong to something.
    pub(crate) slots: Table<4>,
    /// Blocks that more than one claims.
    pub(crate) shared: BTreeSet<u64>,
    /// Of the blocks that were asked for: all who claim them.
    pub(crate) claims: BTreeMap<u64, Vec<Claim>>,
    /// Of the segments that were asked for: the owners of their blocks.
    pub(crate) owners: BTreeMap<u32, Owners>,
    /// Segments in use whose summary is broken, or does not name the owners of their blocks.
    pub(crate) unsummarized: BTreeSet<u32>,
    /// Inodes that no name leads to, and no other one of these.
    pub(crate) lost: Vec<u32>,
    /// Numbers that are in use, and nothing is there or it belongs to nothing.
    pub(crate) stray: Vec<u32>,
    /// Inodes whose extended attributes are damaged, and how.
    pub(crate) bare: BTreeMap<u32, String>,
    /// Unreadable places, in words.
    pub(crate) unreadable: Vec<String>,
    /// Inodes, whether they can be read or not.
    pub(crate) inodes: u32,
    /// Numbers in use.
    pub(crate) nodes_stated: u32,
    /// Blocks that are spoken for.
    pub(crate) blocks_taken: u64,
    pub(crate) preallocated: u64,
}

/// Adds to a number of a table, and says what it is then.
fn add(table: &mut Table<4>, index: u64, count: u32) -> FsResult<u32> {
    let sum = u32::from_le_bytes(table.get(index)?).saturating_add(count);
    table.set(index, sum.to_le_bytes())?;
    Ok(sum)
}

/// The logical blocks of an inode, node by node.
fn leaves(state: &mut State, ino: u32) -> FsResult<Vec<Range<u32>>> {
    let (mut leaves, mut at) = (Vec::new(), 0);
    while let Some(range) = state.next_leaf(ino, at)? {
        at = range.end;
        leaves.push(range);
    }
    Ok(leaves)
}

impl Survey {
    /// Looks at everything.
    ///
    /// # Errors
    ///
    /// When the device cannot be read.
    pub(crate) fn take(
        state: &mut State,
        checkpoint: &Checkpoint,
        watched: &Watched,
        memory_bytes: usize,
    ) -> Result<Self, LogError> {
        let memory = Memory(memory_bytes);
        let mut survey = Self {
            used: Bitmap::new(state.store.segments().count()),
            nids: Numbers::new(state.nodes.nat().count_max()),
            names: Table::new(memory.of_table()),
            homes: Homes::new(memory.of_table()),
            directories: Queue::new(memory.of_table()),
            dangling: Vec::new(),
            second: Vec::new(),
            misnamed: Vec::new(),
            scattered: BTreeMap::new(),
            torn: HashSet::new(),
            entries: BTreeMap::new(),
            blocks: BTreeMap::new(),
            beyond: Vec::new(),
            shared: BTreeSet::new(),
            slots: Table::new(memory.of_table()),
            claims: watched
                .blocks
                .iter()
                .map(|&block| (block, Vec::new()))
                .collect(),
            owners: watched
                .segments
                .iter()
                .map(|&segment| (segment, Owners::named(state, checkpoint, segment)))
                .collect(),
            unsummarized: BTreeSet::new(),
            lost: Vec::new(),
            stray: Vec::new(),
            bare: BTreeMap::new(),
            unreadable: Vec::new(),
            inodes: 0,
            nodes_stated: 0,
            blocks_taken: 0,
            preallocated: 0,
            memory,
        };
        survey.homes.put(
            ROOT,
            Home {
                parent: ROOT,
                position: 0,
            },
        )?;
        survey.walk(state, ROOT)?;
        survey.find_lost(state)?;
        survey.read_summaries(state)?;
        Ok(survey)
    }

    /// Returns whether all could be read. Only then is it known which blocks belong to nothing.
    pub(crate) fn is_whole(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Directories in each directory, of those that keep their names.
    ///
    /// # Errors
    ///
    /// Those of the temporary file.
    pub(crate) fn below(&mut self) -> FsResult<Table<4>> {
        let mut below = Table::new(self.memory.of_table());
        let mut at = ROOT;
        while let Some((ino, home)) = self.homes.next(at)? {
            at = ino + 1;
            if ino != ROOT {
                add(&mut below, home.parent.into(), 1)?;
            }
        }
        Ok(below)
    }

    fn is_known(&self, nid: u32) -> bool {
        self.nids.has(nid)
    }

    /// Notes what is damaged; another error is passed on.
    fn tolerate<T>(&mut self, place: impl Display, result: FsResult<T>) -> FsResult<Option<T>> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_damage(&error) => {
                self.unreadable.push(format!("{place}: {error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Visits an inode that has a name, and everything below.
    fn walk(&mut self, state: &mut State, from: u32) -> Result<(), LogError> {
        add(&mut self.names, from.into(), 1)?;
        self.directories.push(from)?;
        self.visit(state, from)?;
        while let Some(parent) = self.directories.pop()? {
            if state.live(parent)?.kind() == FileKind::Directory {
                self.visit_names(state, parent)?;
            }
        }
        Ok(())
    }

    fn visit_names(&mut self, state: &mut State, parent: u32) -> Result<(), LogError> {
        let listing = Listing::of(state, parent, self.memory.of_directory())?;
        if !self.torn.contains(&parent) {
            let fault = listing.fault().map(|fault| (parent, fault.to_owned()));
            self.scattered.extend(fault);
            if u64::from(state.live(parent)?.inode().entries) != listing.count() {
                self.entries.insert(parent, listing.count() as u32);
            }
        }
        listing.visit(state, &mut |state, found| {
            let Found {
                name,
                named,
                position,
            } = found;
            let name = Name {
                parent,
                name,
                named,
            };
            if self.meet(state, name, position)? {
                self.directories.push(named.ino)?;
            }
            state.shrink();
            self.memory.admit(self.damage_bytes())
        })
    }

    /// Bytes that notes of damage take, about.
    fn damage_bytes(&self) -> usize {
        const NAME: usize = 320;
        const TEXT: usize = 200;
        const NUMBER: usize = 32;
        const OWNERS: usize = SEGMENT_CONTENT as usize * size_of::<Owner>();
        let names = self.dangling.len() + self.second.len() + self.misnamed.len();
        let texts = self.scattered.len() + self.unreadable.len();
        let numbers = self.torn.len() + self.entries.len() + self.blocks.len() + self.beyond.len();
        let numbers = numbers + self.shared.len() + self.claims.len() + self.lost.len();
        names * NAME + texts * TEXT + numbers * NUMBER + self.owners.len() * OWNERS
    }

    /// Looks at a name; says whether it leads to a new directory.
    fn meet(&mut self, state: &mut State, name: Name, position: u64) -> Result<bool, LogError> {
        let ino = name.named.ino;
        let found = match state.live(ino) {
            Ok(live) => live.inode().attributes,
            Err(error) if is_damage(&error) => {
                // An inode that has never been written is none.
                let has_block = state
                    .nodes
                    .entry(ino)
                    .map_or(true, |entry| entry.pointer != 0);
                if !has_block || matches!(error, FsError::NotFound) {
                    self.dangling.push(name);
                } else {
                    self.nids.add(ino);
                    self.tolerate(name.place(), Err::<(), _>(error))?;
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        if found.kind == FileKind::Directory {
            let home = Home {
                parent: name.parent,
                position,
            };
            if let Some(kept) = self.homes.get(ino)? {
                let is_better = found.parent == name.parent && kept.parent != name.parent;
                if is_better
                    && ino != ROOT
                    && kept.parent != LOST
                    && !self.is_below(name.parent, ino)?
                {
                    self.homes.put(ino, home)?;
                    let limit = self.memory.of_directory();
                    self.second.push(Name {
                        parent: kept.parent,
                        name: listing::name_of(state, kept, ino, limit)?,
                        named: Named {
                            ino,
                            kind: type_of(found.kind),
                        },
                    });
                } else {
                    self.second.push(name);
                }
                return Ok(false);
            }
            self.homes.put(ino, home)?;
        }
        if type_of(found.kind) != name.named.kind {
            self.misnamed.push(Name {
                named: Named {
                    ino,
                    kind: type_of(found.kind),
                },
                ..name
            });
        }
        let is_new = add(&mut self.names, ino.into(), 1)? == 1;
        if is_new {
            self.visit(state, ino)?;
        }
        Ok(is_new && found.kind == FileKind::Directory)
    }

    /// Returns whether the way from a directory to the root goes through `ino`.
    fn is_below(&mut self, directory: u32, ino: u32) -> FsResult<bool> {
        let mut at = directory;
        // Homes were found from the root on: there is no circle among them, but nobody should hang on it.
        for _ in 0..=self.homes.len() {
            if at == ino {
                return Ok(true);
            }
            match self.homes.get(at)? {
                Some(home) if home.parent != at => at = home.parent,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Looks at an inode and all that belongs to it.
    fn visit(&mut self, state: &mut State, ino: u32) -> FsResult<()> {
        let visited = self.try_visit(state, ino);
        self.tolerate(format_args!("inode {ino}"), visited)
            .map(drop)
    }

    fn try_visit(&mut self, state: &mut State, ino: u32) -> FsResult<()> {
        let live = state.live(ino)?;
        let attributes = live.inode().attributes;
        self.claim_node(state, ino, ino)?;
        let mut nids = self.visit_xattrs(state, ino)?;
        let mut broken = Vec::new();
        state.for_nodes(ino, &mut |nid, read| match read {
            Ok(()) => nids.push(nid),
            Err(error) => broken.push(error),
        })?;
        for &nid in &nids {
            self.claim_node(state, ino, nid)?;
        }
        if !broken.is_empty() {
            self.torn.insert(ino);
            for error in broken {
                self.tolerate(format_args!("inode {ino}"), Err::<(), _>(error))?;
            }
            return Ok(());
        }
        let mut blocks = nids.len() as u64;
        for range in leaves(state, ino)? {
            blocks += self.visit_pointers(state, ino, range, attributes.size)?;
        }
        let unplaced = state.unplaced(ino)?;
        self.blocks_taken += unplaced;
        if blocks + unplaced != attributes.blocks {
            self.blocks.insert(ino, blocks + unplaced);
        }
        Ok(())
    }

    /// Returns the nodes of the extended attributes of an inode, none of which is claimed if these are damaged.
    fn visit_xattrs(&mut self, state: &mut State, ino: u32) -> FsResult<Vec<u32>> {
        let place = format!("inode {ino}, extended attributes");
        let read = state.xattrs(ino).and_then(|_| state.xattr_nids(ino));
        match read {
            Err(FsError::Corrupt(fault)) => {
                self.bare.insert(ino, fault);
                Ok(Vec::new())
            }
            read => Ok(self.tolerate(place, read)?.unwrap_or_default()),
        }
    }

    fn visit_pointers(
        &mut self,
        state: &mut State,
        ino: u32,
        range: Range<u32>,
        size: u64,
    ) -> FsResult<u64> {
        let mut pointers = Vec::new();
        state.for_pointers(ino, range, |lblk, pointer| pointers.push((lblk, pointer)))?;
        for &(lblk, pointer) in &pointers {
            match pointer {
                Pointer::Plain(block) => {
                    self.claim(
                        state,
                        Claim {
                            owner: Owner { ino, lblk },
                            is_node: false,
                        },
                        block,
                    );
                }
                Pointer::Preallocated => self.preallocated += 1,
                Pointer::Packed(at) => self.claim_slot(state, Owner { ino, lblk }, at)?,
                Pointer::Hole => {}
            }
            let is_beyond = u64::from(lblk) * BLOCK_BYTES as u64 >= size;
            if is_beyond && pointer.block().is_some() {
                self.beyond.push((ino, lblk));
            }
        }
        let alone = pointers.iter().filter(|(_, pointer)| pointer.has_block());
        self.blocks_taken += alone.count() as u64;
        Ok(pointers.len() as u64)
    }

    fn claim_node(&mut self, state: &mut State, ino: u32, nid: u32) -> FsResult<()> {
        self.nids.add(nid);
        self.blocks_taken += 1;
        let entry = state.nodes.entry(nid)?;
        if let Some(block) =
            Pointer::decode(entry.pointer, state.store.superblock(), nid, 0)?.block()
        {
            self.claim(
                state,
                Claim {
                    owner: Owner { ino, lblk: nid },
                    is_node: true,
                },
                block,
            );
        }
        Ok(())
    }

    /// A logical block lies in a chunk, and that in one slot or two.
    fn claim_slot(&mut self, state: &mut State, owner: Owner, at: Slotted) -> FsResult<()> {
        let chunk = state.read_chunk(owner.ino, owner.lblk, at);
        self.tolerate(
            format_args!("inode {}, logical block {}", owner.ino, owner.lblk),
            chunk,
        )?;
        for (block, slot) in at.places() {
            if state.store.superblock().locate(block).is_none() {
                continue;
            }
            let (segment, index) = state.store.segments().locate(block);
            let slots = u32::from_le_bytes(self.slots.get(block)?);
            if slots == 0 {
                self.used.set(segment, index);
                self.blocks_taken += 1;
            }
            let slots = slots | 1 << slot;
            self.slots.set(block, slots.to_le_bytes())?;
        }
        Ok(())
    }

    fn claim(&mut self, state: &State, claim: Claim, block: u64) {
        let (segment, index) = state.store.segments().locate(block);
        if self.used.set(segment, index) {
            self.shared.insert(block);
        }
        if let Some(claims) = self.claims.get_mut(&block) {
            claims.push(claim);
        }
        if let Some(owners) = self.owners.get_mut(&segment) {
            owners.add(index, claim);
        }
    }

    /// Finds the segments whose summaries do not name the owners of all blocks in use.
    fn read_summaries(&mut self, state: &mut State) -> FsResult<()> {
        for segment in 0..state.store.segments().count() {
            let mut used = (0..SEGMENT_CONTENT as u16)
                .filter(|&index| self.used.get(segment, index))
                .peekable();
            if used.peek().is_none() {
                continue;
            }
            let named = match owners::sealed(state, segment) {
                Err(error) if !is_damage(&error) => return Err(error),
                named => named.unwrap_or_default(),
            };
            let start = state.store.segments().start(segment);
            let mut is_named = |index: u16| {
                let owner = named.get(usize::from(index)).copied()?;
                owners::is_owned(state, owner, start + u64::from(index)).ok()
            };
            if !used.all(|index| is_named(index).unwrap_or(false)) {
                self.unsummarized.insert(segment);
            }
            state.shrink();
        }
        Ok(())
    }

    /// Finds what is in use and no name leads to.
    fn find_lost(&mut self, state: &mut State) -> Result<(), LogError> {
        let (mut unnamed, mut loose) = (Vec::new(), Vec::new());
        let mut is_known_all = true;
        for table_block in 0..state.nodes.nat().table_blocks() {
            let found = state.nodes.used_in(table_block);
            let found = self.tolerate("node address table", found)?;
            is_known_all &= found.is_some();
            for (nid, entry) in found.unwrap_or_default() {
                self.nodes_stated += 1;
                self.inodes += u32::from(entry.ino == nid);
                if self.is_known(nid) {
                    continue;
                }
                if entry.ino != nid {
                    loose.push(nid);
                    continue;
                }
                match state.live(nid) {
                    Ok(_) => unnamed.push(nid),
                    Err(error) if is_damage(&error) && entry.pointer == 0 => {
                        self.inodes -= 1;
                        self.stray.push(nid);
                    }
                    Err(error) => {
                        self.tolerate(
                            format_args!("inode {nid}, which no name leads to"),
                            Err::<(), _>(error),
                        )?;
                    }
                }
                state.shrink();
            }
        }
        if !is_known_all {
            // Of those that cannot be read, nobody knows how many are in use.
            self.nodes_stated = self.nodes_stated.max(state.nodes.nat().used());
            self.inodes = self.inodes.max(state.nodes.inode_count());
        }
        self.adopt(state, &unnamed)?;
        let loose: Vec<u32> = loose
            .into_iter()
            .filter(|&nid| !self.is_known(nid))
            .collect();
        match self.is_whole() {
            true => self.stray.extend(loose),
            false => {
                let text = |nid| format!("node {nid}: belongs to nothing that can be read");
                self.unreadable.extend(loose.into_iter().map(text));
            }
        }
        Ok(())
    }

    /// Visits inodes that no name leads to, each from the one that leads to it, if one does.
    fn adopt(&mut self, state: &mut State, unnamed: &[u32]) -> Result<(), LogError> {
        let mut named = Numbers::new(state.nodes.nat().count_max());
        for &ino in unnamed {
            state.shrink();
            if state.live(ino)?.kind() == FileKind::Directory {
                let listing = Listing::of(state, ino, self.memory.of_directory())?;
                listing.visit(state, &mut |_, found| {
                    named.add(found.named.ino);
                    Ok(())
                })?;
            }
        }
        let first = unnamed.iter().filter(|&&ino| !named.has(ino));
        // What is left then lies in circles: it is entered somewhere.
        for &ino in first.chain(unnamed) {
            if !self.is_known(ino) {
                if state.live(ino)?.kind() == FileKind::Directory {
                    let home = Home {
                        parent: LOST,
                        position: 0,
                    };
                    self.homes.put(ino, home)?;
                }
                self.lost.push(ino);
                self.walk(state, ino)?;
            }
        }
        Ok(())
    }
}
