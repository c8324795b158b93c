//! State of a mounted log: what the floors own, in one place.
//!
//! All of it lies behind one lock. Every operation leaves it whole: what an operation cannot do it refuses
//! before it has changed anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, RwLock};

use anteros_core::{FsError, FsResult, Timestamp, WritableDevice};

use crate::compress::squeeze::Squeezer;
use crate::files::staged::Staged;
use crate::layout::node::Attributes;
use crate::layout::{BLOCK_BYTES, SEGMENT_CONTENT, Superblock};
use crate::nodes::loaded::{Live, Node};
use crate::nodes::nat::Nat;
use crate::options::Options;
use crate::statistics::Statistics;
use crate::store::ahead::Ahead;
use crate::store::room::Room;
use crate::store::segments::{Moment, Segments};
use crate::store::slots::Slots;
use crate::store::space::Space;
use crate::store::table::Tables;
use crate::store::writer::{Batch, Writer};

/// A mounted log.
pub(crate) struct State {
    pub(crate) device: Arc<dyn WritableDevice>,
    pub(crate) superblock: Superblock,
    pub(crate) options: Options,
    pub(crate) segments: Segments,
    /// Valid slots of packed blocks.
    pub(crate) slots: Slots,
    pub(crate) squeezer: Squeezer,
    pub(crate) nat: Nat,
    pub(crate) space: Space,
    /// Blocks that were given places; see [`push`](Self::push).
    pub(crate) batch: Batch,
    pub(crate) writer: Arc<Writer>,
    pub(crate) statistics: Statistics,
    pub(crate) nodes: HashMap<u32, Node>,
    /// Each for itself: a table of them would be copied when it grows.
    pub(crate) inodes: HashMap<u32, Box<Live>>,
    /// Lookup count of each inode: by name or open.
    pub(crate) known: HashMap<u32, u64>,
    /// Number of open handles of each inode that can write.
    pub(crate) writers: HashMap<u32, u64>,
    /// Blocks that were read before anyone asked.
    pub(crate) ahead: Arc<Ahead>,
    /// Inodes without a name that are still held.
    pub(crate) orphans: BTreeSet<u32>,
    /// Those of them that are given back in pieces, and up to which block they still have content.
    pub(crate) doomed: BTreeMap<u32, u32>,
    /// Atomic writes that are staged, not committed.
    pub(crate) staged: BTreeMap<u32, Staged>,
    /// Number of files that were opened for writing.
    pub(crate) opened: u64,
    /// Changes of names that no group has.
    pub(crate) names: Vec<u8>,
    /// Bytes of extended attributes that no group has.
    pub(crate) unrecorded_xattrs: usize,
    /// Inodes whose attributes no group has.
    pub(crate) touched: BTreeSet<u32>,
    /// Inodes whose content has to be in the next group with names.
    pub(crate) wanted: BTreeSet<u32>,
    /// Inodes that are gone, which no group has said.
    pub(crate) dropped: Vec<(u32, Attributes)>,
    /// The last checkpoint.
    pub(crate) version: u64,
    /// The next group.
    pub(crate) sequence: u64,
    /// All groups below are on the device for sure.
    pub(crate) durable: u64,
    /// Blocks of the segment table and the block state table: which copy counts, and what is newer.
    pub(crate) tables: Tables,
    /// Grows with each flush that begins.
    pub(crate) epoch: u64,
    /// Epoch up to which all writes are on the device.
    pub(crate) flushed: u64,
    /// The first group behind the checkpoint.
    pub(crate) checkpointed: u64,
    /// Time of the checkpoint.
    pub(crate) checkpoint_time: Timestamp,
    pub(crate) dirty_pages: usize,
    pub(crate) dirty_nodes: Arc<AtomicUsize>,
    pub(crate) dirty_inodes: Arc<AtomicUsize>,
    pub(crate) inode_count: u32,
    pub(crate) clock: u64,
    /// Time of the last look at memory use, and the number of nodes and inodes at that time.
    pub(crate) shrunk_at: u64,
    pub(crate) loaded_then: usize,
    /// Held by those who read content from the device without the lock of this: no segment becomes free meanwhile.
    pub(crate) reading: Arc<RwLock<()>>,
    /// Segments that could not be cleaned.
    pub(crate) set_aside: BTreeSet<u32>,
    /// Free and emptied segments and the last checkpoint when there was nothing to win by cleaning.
    pub(crate) futile: Option<(u32, u32, u64)>,
    /// The one that is being cleaned.
    pub(crate) victim: Option<u32>,
    /// The room of the device that is reserved.
    pub(crate) room: Room,
    /// Why nothing can be changed any more.
    pub(crate) failed: Option<String>,
    /// Tells whether free blocks are discarded on the device.
    pub(crate) discards: bool,
    /// Warnings that were not taken yet.
    pub(crate) complaints: Vec<String>,
    /// Troubles of the device that take nothing away, and were not yet told.
    pub(crate) notes: Vec<String>,
}

/// See [`State::footprint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) names: usize,
    touched: usize,
    dirty: usize,
    blocks: [u64; 4],
}

/// Parts of a [`State::new`].
pub(crate) struct Parts {
    pub(crate) device: Arc<dyn WritableDevice>,
    pub(crate) superblock: Superblock,
    pub(crate) options: Options,
    pub(crate) segments: Segments,
    pub(crate) slots: Slots,
    pub(crate) nat: Nat,
    pub(crate) space: Space,
    pub(crate) tables: Tables,
    pub(crate) version: u64,
    pub(crate) sequence: u64,
    pub(crate) inode_count: u32,
}

impl State {
    pub(crate) fn new(parts: Parts) -> Self {
        let prefetch_bytes = parts.options.prefetch_bytes;
        Self {
            writer: Arc::new(Writer::new(parts.device.clone())),
            device: parts.device,
            superblock: parts.superblock,
            options: parts.options,
            segments: parts.segments,
            slots: parts.slots,
            squeezer: Squeezer::default(),
            nat: parts.nat,
            space: parts.space,
            batch: Batch::default(),
            statistics: Statistics::default(),
            nodes: HashMap::new(),
            inodes: HashMap::new(),
            known: HashMap::new(),
            orphans: BTreeSet::new(),
            doomed: BTreeMap::new(),
            staged: BTreeMap::new(),
            opened: 0,
            names: Vec::new(),
            unrecorded_xattrs: 0,
            touched: BTreeSet::new(),
            wanted: BTreeSet::new(),
            dropped: Vec::new(),
            version: parts.version,
            sequence: parts.sequence,
            durable: parts.sequence,
            tables: parts.tables,
            epoch: 1,
            flushed: 0,
            checkpointed: parts.sequence,
            checkpoint_time: Timestamp::default(),
            dirty_pages: 0,
            dirty_nodes: Arc::default(),
            dirty_inodes: Arc::default(),
            inode_count: parts.inode_count,
            clock: 0,
            shrunk_at: 0,
            loaded_then: 0,
            reading: Arc::default(),
            writers: HashMap::new(),
            ahead: Arc::new(Ahead::new(prefetch_bytes)),
            set_aside: BTreeSet::new(),
            futile: None,
            victim: None,
            room: Room::default(),
            failed: None,
            discards: true,
            complaints: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The time of day.
    pub(crate) fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    pub(crate) fn seconds(&self) -> u64 {
        u64::try_from(self.now().secs).unwrap_or(0)
    }

    /// That of what is written now.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            clock: self.segments.clock(),
            seconds: self.seconds(),
        }
    }

    /// Returns whether the last checkpoint has everything.
    pub(crate) fn is_settled(&self) -> bool {
        let unrecorded =
            self.names.len() + self.touched.len() + self.dropped.len() + self.dirty_blocks();
        unrecorded == 0 && self.sequence == self.checkpointed && self.segments.emptied_count() == 0
    }

    /// Dirty blocks above which they are written, of content and of nodes each: what memory allows, and what
    /// the segments in reserve have room for.
    pub(crate) fn dirty_max(&self) -> usize {
        let reserved = self.superblock.reserved_segments as usize;
        let room = if self.segments.are_few() {
            SEGMENT_CONTENT as usize
        } else {
            reserved.saturating_sub(30).max(2) * 256
        };
        room.min(self.options.memory_bytes / 4 / BLOCK_BYTES)
    }

    /// Bytes of changes of names that wait for a group, above which a checkpoint takes them.
    pub(crate) fn records_max(&self) -> usize {
        self.options.memory_bytes / 16
    }

    /// Summary of the state by which changes are recognised.
    pub(crate) fn footprint(&self) -> Footprint {
        let blocks = [
            self.space.used(),
            self.space.promised(),
            self.segments.valid(),
            self.nat.used().into(),
        ];
        Footprint {
            names: self.names.len(),
            touched: self.touched.len(),
            dirty: self.dirty_blocks(),
            blocks,
        }
    }

    /// A checkpoint has everything.
    pub(crate) fn forget_unrecorded(&mut self) {
        for live in self.inodes.values_mut() {
            live.unrecorded.clear();
            live.content_changed = false;
            live.xattrs_changed = false;
        }
        self.names.clear();
        self.unrecorded_xattrs = 0;
        self.touched.clear();
        self.wanted.clear();
        self.dropped.clear();
    }

    /// Refuses what would change anything when that cannot be.
    pub(crate) fn check_writable(&self) -> FsResult<()> {
        match self.failed {
            Some(_) => Err(FsError::ReadOnly),
            None if self.options.read_only => Err(FsError::ReadOnly),
            None => Ok(()),
        }
    }

    /// Takes what is wrong with the device and takes nothing away.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes the faults that were found since this was called last, and what there was to note.
    pub(crate) fn take_complaints(&mut self) -> Vec<String> {
        let mut complaints = std::mem::take(&mut self.complaints);
        complaints.append(&mut self.notes);
        complaints.append(&mut self.nat.take_complaints());
        complaints
    }

    /// Notes that the device did not take a block.
    pub(crate) fn note_failure(&mut self) {
        if let Some(error) = self.writer.failure() {
            self.fail("a write to the device failed", &error);
        }
    }

    /// Nothing is changed from here on: what is on the device is whole, what is in memory may not be.
    pub(crate) fn fail(&mut self, what: &str, error: &FsError) {
        if self.failed.is_none() {
            self.failed = Some(format!("{what}: {error}"));
        }
    }
}
