//! Slots of packed blocks that are valid (the block state table of FPC, 4.2).
//!
//! In memory are the entries of all segments of packed blocks: 2.5 KiB for each. What the table on the device does not
//! have yet is in the journal of each checkpoint until that has grown too long. Only memory knows how many slots of a
//! block were filled, valid or not; of what was there before the mount, those behind the last valid one are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::layout::bits::Bits;
use crate::layout::table::{BST_SEGMENTS_PER_BLOCK, bst_get, bst_set};
use crate::layout::{SEGMENT_BLOCKS, Superblock};
use crate::store::medium::{read_block, zeroed};
use crate::store::table::{CopiedTable, Stated};

/// Entries that a pack has in its journal; with more, they go to the table.
const JOURNAL_MAX: usize = 512;

/// The blocks of a segment.
struct Entries {
    /// Valid slots, the lowest bit for slot 0.
    valid: Box<[u32; SEGMENT_BLOCKS as usize]>,
    /// Number of slots that were filled, of blocks that have valid ones.
    filled: Box<[u8; SEGMENT_BLOCKS as usize]>,
}

impl Entries {
    fn none() -> Self {
        Self {
            valid: Box::new([0; SEGMENT_BLOCKS as usize]),
            filled: Box::new([0; SEGMENT_BLOCKS as usize]),
        }
    }

    fn set(&mut self, index: usize, valid: u32) {
        let filled = (u32::BITS - valid.leading_zeros()) as u8;
        self.valid[index] = valid;
        self.filled[index] = match valid {
            0 => 0,
            _ => filled.max(self.filled[index]),
        };
    }

    /// Blocks that what is valid could do without, if all slots were of one size.
    fn loose(&self) -> f64 {
        let blocks = self.valid.iter().zip(self.filled.iter());
        let loose = |(valid, filled): (&u32, &u8)| match filled {
            0 => 0.0,
            _ => 1.0 - f64::from(valid.count_ones()) / f64::from(*filled),
        };
        blocks.map(loose).sum()
    }
}

pub(crate) struct BlockStateTable {
    device: Arc<dyn WritableDevice>,
    table: CopiedTable,
    main_start: u64,
    entries: BTreeMap<u32, Entries>,
    /// Blocks whose entries the table does not have.
    newer: BTreeSet<u64>,
    /// Number of times that slots were given up.
    given_up: u64,
    /// Blocks of the table that cannot be read, and why.
    unreadable: BTreeMap<u32, FsError>,
}

impl BlockStateTable {
    /// None at all.
    pub(crate) fn new(
        device: Arc<dyn WritableDevice>,
        superblock: &Superblock,
        bits: Bits,
    ) -> Self {
        Self {
            device,
            table: CopiedTable::new(superblock.bst_start, superblock.bst_blocks, bits),
            main_start: superblock.main_start,
            entries: BTreeMap::new(),
            newer: BTreeSet::new(),
            given_up: 0,
            unreadable: BTreeMap::new(),
        }
    }

    /// As the checkpoint has them. `packed` are the segments that may have entries.
    pub(crate) fn load(
        device: Arc<dyn WritableDevice>,
        superblock: &Superblock,
        bits: Bits,
        journal: &[(u64, u32)],
        packed: impl IntoIterator<Item = u32>,
    ) -> FsResult<Self> {
        let mut slots = Self::new(device, superblock, bits);
        for segment in packed {
            slots.read(segment)?;
        }
        for &(block, valid) in journal {
            slots.set(block, valid);
        }
        Ok(slots)
    }

    fn read(&mut self, segment: u32) -> FsResult<()> {
        let table_block = segment / BST_SEGMENTS_PER_BLOCK;
        let table = match read_block(&*self.device, self.table.place(table_block)) {
            Ok(table) => table,
            Err(error @ FsError::Io(_)) => {
                self.unreadable.insert(table_block, error);
                zeroed()
            }
            Err(error) => return Err(error),
        };
        let first = segment % BST_SEGMENTS_PER_BLOCK * SEGMENT_BLOCKS;
        let entries = self.entries_mut(segment);
        for (at, index) in (0..SEGMENT_BLOCKS as usize).zip(first..) {
            entries.set(at, bst_get(&table, index));
        }
        Ok(())
    }

    fn locate(&self, block: u64) -> (u32, usize) {
        let (at, per_segment) = (block - self.main_start, u64::from(SEGMENT_BLOCKS));
        ((at / per_segment) as u32, (at % per_segment) as usize)
    }

    fn entries_mut(&mut self, segment: u32) -> &mut Entries {
        self.entries.entry(segment).or_insert_with(Entries::none)
    }

    /// The valid slots of a block, the lowest bit for slot 0.
    pub(crate) fn valid(&self, block: u64) -> u32 {
        let (segment, index) = self.locate(block);
        self.entries
            .get(&segment)
            .map_or(0, |entries| entries.valid[index])
    }

    /// Says that the slots of a block are these.
    pub(super) fn set(&mut self, block: u64, valid: u32) {
        let (segment, index) = self.locate(block);
        let entries = self.entries_mut(segment);
        let has_lost = entries.valid[index] & !valid != 0;
        entries.set(index, valid);
        self.given_up += u64::from(has_lost);
        self.newer.insert(block);
    }

    /// Number of times that slots were given up: as long as it stays, no segment gets looser.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns how many blocks of a segment what is valid there could do without, about: the share of slots that were given
    /// up, of each block.
    pub(super) fn loose_blocks(&self, segment: u32) -> u32 {
        let entries = self.entries.get(&segment);
        entries.map_or(0, |entries| entries.loose() as u32)
    }

    /// Refuses a table of which something cannot be read: what is valid there is not known, and no block of it may be
    /// written over.
    pub(crate) fn check_readable(&self) -> FsResult<()> {
        match self.unreadable.values().next() {
            Some(error) => Err(io::Error::other(format!("block state table: {error}")).into()),
            None => Ok(()),
        }
    }

    /// The table will lie elsewhere: nothing is there yet.
    pub(super) fn move_to(&mut self, superblock: &Superblock) {
        self.table = CopiedTable::first(superblock.bst_start, superblock.bst_blocks);
        let main_start = self.main_start;
        let start = |segment: u32| main_start + u64::from(segment) * u64::from(SEGMENT_BLOCKS);
        self.newer = self
            .entries
            .iter()
            .flat_map(|(&segment, entries)| (start(segment)..).zip(entries.valid.iter()))
            .filter(|(_, entry)| **entry != 0)
            .map(|(block, _)| block)
            .collect();
    }

    /// Returns whether blocks of a segment may have valid slots.
    pub(crate) fn has(&self, segment: u32) -> bool {
        self.entries.contains_key(&segment)
    }

    /// Returns how many blocks have valid slots, and how many slots these are.
    pub(crate) fn occupancy(&self) -> (u64, u64) {
        let entries = self.entries.values();
        let entries = entries.flat_map(|entries| entries.valid.iter());
        entries
            .filter(|entry| **entry != 0)
            .fold((0, 0), |(blocks, slots), entry| {
                (blocks + 1, slots + u64::from(entry.count_ones()))
            })
    }

    /// Returns what a checkpoint says; where the journal has grown too long, the table is written.
    pub(super) fn checkpoint(&mut self) -> FsResult<Stated<(u64, u32)>> {
        let mut written = 0;
        if self.newer.len() > JOURNAL_MAX || !self.unreadable.is_empty() {
            let newer = std::mem::take(&mut self.newer);
            let mut blocks: BTreeSet<u32> = newer
                .iter()
                .map(|&block| self.locate(block).0 / BST_SEGMENTS_PER_BLOCK)
                .collect();
            // The other copy of them counts from now on.
            blocks.extend(self.unreadable.keys());
            for &table_block in &blocks {
                self.write(table_block)?;
            }
            self.unreadable.clear();
            written = blocks.len() as u64;
            self.entries
                .retain(|_, entries| entries.valid.iter().any(|&entry| entry != 0));
        }
        let newer = self.newer.iter();
        Ok(Stated {
            bits: self.table.bits(),
            journal: newer.map(|&block| (block, self.valid(block))).collect(),
            written,
        })
    }

    fn write(&mut self, table_block: u32) -> FsResult<()> {
        let mut block = zeroed();
        for within in 0..BST_SEGMENTS_PER_BLOCK {
            let segment = table_block * BST_SEGMENTS_PER_BLOCK + within;
            let Some(entries) = self.entries.get(&segment) else {
                continue;
            };
            for (index, &entry) in (within * SEGMENT_BLOCKS..).zip(entries.valid.iter()) {
                bst_set(&mut block, index, entry);
            }
        }
        let written = self.table.write(&*self.device, table_block, &block);
        written.map_err(|(_, error)| error.into())
    }
}
