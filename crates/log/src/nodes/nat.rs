//! Node address table: the block in which each node lies.
//!
//! The table lies on the device; what was changed since it was written there is kept here, and in the journal
//! of each checkpoint until it has grown too long for that.
//!
//! Invariant L6 of `docs/design/log.md`: a node number is not given again before a checkpoint.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::layout::bits::Bits;
use crate::layout::table::{NAT_PER_BLOCK, NatEntry};
use crate::layout::{BLOCK_BYTES, Block, ROOT, Superblock};
use crate::nodes::rebuild::{Rebuilt, rebuild};
use crate::store::by_number::{NumberMap, NumberSet};
use crate::store::medium;
use crate::store::table::{CopiedTable, Stated};

/// Blocks of the table that are kept in memory.
const CACHED_MAX: usize = 128;

/// Those that are read at once: of 16,384 nodes.
const NEAR: u32 = 64;

/// Fewer numbers than these are few.
const FEW: u32 = 64;
/// With fewer than these, what needs several may find none.
const NEXT_TO_NONE: u32 = 8;

/// Blocks of the table that may stay in the journal for good, with all their entries: a pack has room for these.
const STUCK_MAX: usize = 3;

pub(crate) struct Nat {
    device: Arc<dyn WritableDevice>,
    table: CopiedTable,
    nids: u32,
    /// Entries that the table does not have.
    newer: BTreeMap<u32, NatEntry>,
    cached: NumberMap<Box<Block>>,
    /// Freed since the last checkpoint: records of groups may still name them.
    freed: NumberSet,
    cursor: u32,
    used: u32,
    /// Parts of the table, of [`NEAR`] blocks, that the device has room for; `None` if it has for all.
    backed: Option<BTreeSet<u32>>,
    superblock: Superblock,
    /// Blocks of the table that could not be read, all of whose entries are newer: those are what the nodes say.
    rebuilt: BTreeSet<u32>,
    /// Blocks of the table that cannot be read, of which some entries nobody knows; and why.
    unknown: BTreeMap<u32, String>,
    /// Blocks of the table that cannot be written to: what they lack stays in the journal.
    stuck: BTreeMap<u32, String>,
    /// The faults that were found since somebody asked.
    warnings: Vec<String>,
    /// Blocks of the table in which no entry has changed since their files were looked at; see [`crate::mount::sweep`].
    swept: Bits,
}

impl Nat {
    pub(crate) fn new(
        device: Arc<dyn WritableDevice>,
        superblock: &Superblock,
        bits: Bits,
        newer: impl IntoIterator<Item = (u32, NatEntry)>,
        cursor: u32,
        used: u32,
    ) -> Self {
        Self {
            device,
            table: CopiedTable::new(superblock.nat_start, superblock.nat_blocks, bits),
            nids: superblock.nids,
            newer: newer.into_iter().collect(),
            cached: NumberMap::default(),
            freed: NumberSet::default(),
            cursor,
            used,
            backed: None,
            superblock: superblock.clone(),
            rebuilt: BTreeSet::new(),
            unknown: BTreeMap::new(),
            stuck: BTreeMap::new(),
            warnings: Vec::new(),
            swept: Bits::new(superblock.nids.div_ceil(NAT_PER_BLOCK) as usize),
        }
    }

    /// From here on, has the device take the room for a part of the table before a number of it is given to a node; and now
    /// for those parts where there are some.
    pub(super) fn begin_backing(&mut self) -> FsResult<()> {
        self.backed = Some(BTreeSet::new());
        let newest = self.newer.keys().next_back().copied().unwrap_or(0);
        let last = self.cursor.max(self.used).max(newest).min(self.nids - 1);
        (0..=last / NAT_PER_BLOCK / NEAR).try_for_each(|part| self.back(part))
    }

    /// Has the device take the room for both copies of a part of the table.
    fn back(&mut self, part: u32) -> FsResult<()> {
        let Some(backed) = self
            .backed
            .as_mut()
            .filter(|backed| !backed.contains(&part))
        else {
            return Ok(());
        };
        let first = u64::from(part * NEAR);
        let blocks = u64::from(self.table.blocks())
            .saturating_sub(first)
            .min(NEAR.into());
        for copy in self.table.copies() {
            medium::reserve(&*self.device, copy + first, blocks)?;
        }
        backed.insert(part);
        Ok(())
    }

    /// Number of nodes.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Corrects how many nodes there are.
    pub(super) fn recount(&mut self, used: u32) {
        self.used = used;
    }

    /// Number of entries that are newer than the table.
    pub(crate) fn newer_count(&self) -> usize {
        self.newer.len()
    }

    /// Number of node numbers that can be allocated before the next checkpoint.
    pub(crate) fn available(&self) -> u32 {
        let freed = u32::try_from(self.freed.len()).unwrap_or(u32::MAX);
        self.count_max()
            .saturating_sub(self.used)
            .saturating_sub(freed)
    }

    /// Tells whether a checkpoint would make many numbers available where few are, or any where next to none is.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        let many = match self.available() {
            0..NEXT_TO_NONE => 1,
            NEXT_TO_NONE..FEW => FEW / 4,
            _ => return false,
        };
        self.freed.len() >= many as usize
    }

    /// Largest possible number of nodes.
    pub(crate) fn count_max(&self) -> u32 {
        self.nids - 1
    }

    /// Start of the search for a free number.
    pub(crate) fn cursor(&self) -> u32 {
        self.cursor
    }

    fn table_block(&mut self, table_block: u32) -> FsResult<&mut Block> {
        if !self.cached.contains_key(&table_block) {
            if self.cached.len() >= CACHED_MAX {
                self.cached.clear();
            }
            self.load(table_block)?;
        }
        self.cached
            .get_mut(&table_block)
            .map(|block| &mut **block)
            .ok_or_else(medium::vanished)
    }

    /// Reads a block of the table, and with it those around it in the same copy that count.
    fn load(&mut self, table_block: u32) -> FsResult<()> {
        let copy = self.table.place(table_block) - u64::from(table_block);
        let first = table_block - table_block % NEAR;
        // Behind the number that was given last there are mostly none yet.
        let last = table_block.max(self.cursor / NAT_PER_BLOCK);
        let near = first..self.table.blocks().min(first + NEAR).min(last + 1);
        match self.read(copy, near) {
            // It may be one of the others.
            Err(_) => self.read(copy, table_block..table_block + 1),
            done => done,
        }
    }

    /// Reads blocks of a copy, and keeps those that count.
    fn read(&mut self, copy: u64, range: Range<u32>) -> FsResult<()> {
        let mut bytes = vec![0; range.len() * BLOCK_BYTES];
        let first = copy + u64::from(range.start);
        self.device
            .read_at(first * BLOCK_BYTES as u64, &mut bytes)
            .map_err(|error| medium::named(first, &error))?;
        let blocks = bytes.chunks_exact(BLOCK_BYTES).flat_map(<&Block>::try_from);
        for (index, block) in range.zip(blocks) {
            if self.table.place(index) == copy + u64::from(index) {
                self.cached.entry(index).or_insert_with(|| Box::new(*block));
            }
        }
        Ok(())
    }

    /// The entry of a node; of a free number too.
    pub(super) fn get(&mut self, nid: u32) -> FsResult<NatEntry> {
        if nid >= self.nids {
            return Ok(NatEntry::default());
        }
        if let Some(entry) = self.newer.get(&nid) {
            return Ok(*entry);
        }
        match self.table_block(nid / NAT_PER_BLOCK) {
            Ok(block) => Ok(NatEntry::read(block, nid % NAT_PER_BLOCK)),
            Err(error) => {
                let error = self.rebuild(nid / NAT_PER_BLOCK, error);
                self.newer.get(&nid).copied().ok_or(error)
            }
        }
    }

    /// Finds the entries of a block of the table that cannot be read elsewhere, as far as possible: they are newer from here on. Gives
    /// the error back for those that were not found.
    fn rebuild(&mut self, table_block: u32, error: FsError) -> FsError {
        if self.rebuilt.contains(&table_block) {
            return error;
        }
        if let Some(text) = self.unknown.get(&table_block) {
            return FsError::Io(std::io::Error::other(text.clone()));
        }
        let second = self.table.is_second(table_block);
        let rebuilt = rebuild(&self.device, &self.superblock, table_block, second);
        let is_whole = rebuilt.as_ref().is_ok_and(|rebuilt| rebuilt.is_whole);
        let Rebuilt { entries, .. } = rebuilt.unwrap_or_else(|_| Rebuilt::nothing());
        for (nid, entry) in entries {
            self.newer.entry(nid).or_insert(entry);
        }
        match is_whole {
            true => {
                let what = "its entries are those that the nodes tell of";
                self.warnings
                    .push(format!("node address table: {error}; {what}"));
                self.rebuilt.insert(table_block);
            }
            false => drop(self.unknown.insert(table_block, error.to_string())),
        }
        error
    }

    /// Takes the faults that were found since this was called last.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns the reasons why blocks of the table are not up to date.
    pub(crate) fn unwritten(&self) -> Vec<String> {
        self.stuck.values().cloned().collect()
    }

    /// Returns the reason why nothing more may be changed: with one more block of the table that cannot be written, no
    /// checkpoint would have room for what the table lacks.
    pub(crate) fn overflow(&self) -> Option<&str> {
        let is_many = self.stuck.len() > STUCK_MAX;
        let last = self.stuck.values().next_back().filter(|_| is_many);
        last.map(String::as_str)
    }

    /// Evicts what is cached of the table: the device has it.
    pub(super) fn evict(&mut self) {
        self.cached.clear();
    }

    /// Number of blocks of the table.
    pub(crate) fn table_blocks(&self) -> u32 {
        self.nids.div_ceil(NAT_PER_BLOCK)
    }

    /// The numbers in use among those of a block of the table, and their entries.
    pub(super) fn used_in(&mut self, table_block: u32) -> FsResult<Vec<(u32, NatEntry)>> {
        let block = self.read_whole(table_block)?;
        let first = table_block * NAT_PER_BLOCK;
        let numbers = first.max(ROOT)..self.nids.min(first + NAT_PER_BLOCK);
        let entries = numbers.map(|nid| {
            let newer = self.newer.get(&nid).copied();
            (
                nid,
                newer.unwrap_or_else(|| NatEntry::read(&block, nid - first)),
            )
        });
        Ok(entries.filter(|(_, entry)| entry.ino != 0).collect())
    }

    /// The numbers in use among those of a block of the table that cannot be read, as far as they were found elsewhere.
    pub(crate) fn found_in(&self, table_block: u32) -> Vec<(u32, NatEntry)> {
        let first = table_block * NAT_PER_BLOCK;
        let numbers = first.max(ROOT)..self.nids.min(first + NAT_PER_BLOCK);
        let found = self.newer.range(numbers);
        let used = found.filter(|(_, entry)| entry.ino != 0);
        used.map(|(&nid, &entry)| (nid, entry)).collect()
    }

    /// A block of the table from the device; if it cannot be read, whatever where all its entries are newer.
    fn read_whole(&mut self, table_block: u32) -> FsResult<Box<Block>> {
        medium::read_block(&*self.device, self.table.place(table_block)).or_else(|error| {
            let error = self.rebuild(table_block, error);
            match self.rebuilt.contains(&table_block) {
                true => Ok(medium::zeroed()),
                false => Err(error),
            }
        })
    }

    /// Says where a node lies now.
    pub(super) fn set(&mut self, nid: u32, entry: NatEntry) {
        self.newer.insert(nid, entry);
        self.set_swept(nid / NAT_PER_BLOCK, false);
    }

    /// Notes whether the files of a block of the table were looked at.
    pub(super) fn set_swept(&mut self, table_block: u32, is_swept: bool) {
        self.swept.set(table_block as usize, is_swept);
    }

    /// The first block of the table, from this one on, whose files were not looked at since one of its entries changed.
    pub(super) fn next_unswept(&self, from: u32) -> Option<u32> {
        (from..self.table_blocks()).find(|&table_block| !self.swept.get(table_block as usize))
    }

    /// A number that no node has; it counts as used from here on. `None` if there is none.
    pub(super) fn allocate(&mut self) -> FsResult<Option<u32>> {
        if self.used >= self.count_max() {
            return Ok(None);
        }
        for _ in 0..self.nids {
            let nid = if self.cursor < self.nids {
                self.cursor.max(ROOT + 1)
            } else {
                ROOT + 1
            };
            self.cursor = if nid + 1 >= self.nids {
                ROOT + 1
            } else {
                nid + 1
            };
            if self.freed.contains(&nid) {
                continue;
            }
            let entry = match self.get(nid) {
                Ok(entry) => entry,
                // Whether it is in use cannot be read; nor of its neighbours.
                Err(_) => {
                    self.cursor =
                        nid.max(nid / NAT_PER_BLOCK * NAT_PER_BLOCK + NAT_PER_BLOCK - 1) + 1;
                    continue;
                }
            };
            if entry.ino == 0 {
                if let Err(error) = self.back(nid / NAT_PER_BLOCK / NEAR) {
                    self.cursor = nid;
                    return Err(error);
                }
                self.used += 1;
                return Ok(Some(nid));
            }
        }
        Ok(None)
    }

    /// Gives a number back; it is used again after the next checkpoint.
    pub(super) fn free(&mut self, nid: u32) -> FsResult<()> {
        let generation = self.get(nid)?.generation.wrapping_add(1);
        self.set(
            nid,
            NatEntry {
                pointer: 0,
                ino: 0,
                generation,
            },
        );
        self.freed.insert(nid);
        // A count that was wrong from the beginning is told by a check.
        self.used = self.used.saturating_sub(1);
        Ok(())
    }

    /// Keeps a number from being given to another node before the next checkpoint: a record will name it.
    pub(super) fn reserve(&mut self, nid: u32) {
        self.freed.insert(nid);
    }

    /// Counts a number that a record names as used.
    pub(super) fn claim(&mut self, nid: u32, ino: u32, generation: u32) -> FsResult<()> {
        let entry = self.get(nid)?;
        if entry.ino == 0 {
            self.used = self.used.saturating_add(1);
            let entry = NatEntry {
                ino,
                generation,
                ..entry
            };
            self.set(nid, entry);
        }
        Ok(())
    }

    pub(crate) fn is_valid(&self, nid: u32) -> bool {
        nid >= ROOT && nid < self.nids
    }

    /// What a checkpoint has to say: the entries that are newer than the table, of which there are at most
    /// `journal_max`; others go to the table, to the copies that do not count yet. So do those of a block that cannot be
    /// read, and nothing but those stays newer of which the block cannot be written either.
    pub(super) fn checkpoint(&mut self, journal_max: usize) -> FsResult<Stated<(u32, NatEntry)>> {
        let has_lost = self
            .rebuilt
            .iter()
            .any(|block| !self.stuck.contains_key(block));
        let written = match self.newer.len() > journal_max || has_lost {
            true => self.write_table(),
            false => 0,
        };
        let journal = self
            .newer
            .iter()
            .map(|(&nid, &entry)| (nid, entry))
            .collect();
        Ok(Stated {
            bits: self.table.bits(),
            journal,
            written,
        })
    }

    /// Writes all that is newer, and says how many blocks of the table that took.
    fn write_table(&mut self) -> u64 {
        let blocks: BTreeSet<u32> = self.newer.keys().map(|nid| nid / NAT_PER_BLOCK).collect();
        let mut written = 0;
        for table_block in blocks {
            match self.write_block(table_block) {
                Ok(()) => {
                    self.rebuilt.remove(&table_block);
                    self.stuck.remove(&table_block);
                    written += 1;
                }
                // Its entries stay newer than the table.
                Err(error) => self.note_stuck(table_block, &error),
            }
        }
        written
    }

    /// Writes a block of the table with what is newer, to the copy that does not count yet.
    fn write_block(&mut self, table_block: u32) -> FsResult<()> {
        let mut block = match self.rebuilt.contains(&table_block) {
            true => *medium::zeroed(),
            false => match self.table_block(table_block) {
                Ok(block) => *block,
                Err(error) => {
                    let error = self.rebuild(table_block, error);
                    match self.rebuilt.contains(&table_block) {
                        true => *medium::zeroed(),
                        false => return Err(error),
                    }
                }
            },
        };
        let first = table_block * NAT_PER_BLOCK;
        let newer: Vec<u32> = self
            .newer
            .range(first..=first + (NAT_PER_BLOCK - 1))
            .map(|(&nid, entry)| {
                entry.write(&mut block, nid - first);
                nid
            })
            .collect();
        self.table
            .write(&*self.device, table_block, &block)
            .map_err(|(place, error)| medium::named(place, &error))?;
        self.cached.insert(table_block, Box::new(block));
        for nid in newer {
            self.newer.remove(&nid);
        }
        Ok(())
    }

    fn note_stuck(&mut self, table_block: u32, error: &FsError) {
        let text = format!("node address table: {error}");
        if self.stuck.insert(table_block, text.clone()).is_none() {
            let what = "what it lacks is kept in each checkpoint";
            self.warnings.push(format!("{text}; {what}"));
        }
    }

    /// The highest number that is in use.
    pub(super) fn highest(&mut self) -> FsResult<u32> {
        for index in (0..self.table.blocks()).rev() {
            let block = self.current(index)?;
            let in_use = |at: &u32| NatEntry::read(&block, *at).ino != 0;
            if let Some(at) = (0..NAT_PER_BLOCK).rev().find(in_use) {
                return Ok(index * NAT_PER_BLOCK + at);
            }
        }
        Ok(ROOT)
    }

    /// A block of the table with all that is newer.
    fn current(&mut self, index: u32) -> FsResult<Box<Block>> {
        let mut block = self.read_whole(index)?;
        let first = index * NAT_PER_BLOCK;
        for (nid, entry) in self.newer.range(first..=first + (NAT_PER_BLOCK - 1)) {
            entry.write(&mut block, nid - first);
        }
        for nid in self.nids.max(first)..=first + (NAT_PER_BLOCK - 1) {
            NatEntry::default().write(&mut block, nid - first);
        }
        Ok(block)
    }

    /// Writes the table as it is to where another superblock has it, which reads as zeros there.
    pub(super) fn copy_to(&mut self, superblock: &Superblock) -> FsResult<()> {
        for index in 0..self.table.blocks().min(superblock.nat_blocks) {
            let block = self.current(index)?;
            if block.iter().any(|&byte| byte != 0) {
                let place = superblock.nat_start + u64::from(index);
                self.device.write_at(place * BLOCK_BYTES as u64, &*block)?;
            }
        }
        Ok(())
    }

    /// A checkpoint has been written.
    pub(super) fn release(&mut self) {
        self.freed.clear();
    }
}
