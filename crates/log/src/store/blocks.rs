//! The store: what it owns, in one place.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, RwLock};

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::error::LogError;
use crate::layout::Superblock;
use crate::options::Options;
use crate::statistics::Statistics;
use crate::store::ahead::Ahead;
use crate::store::bst::BlockStateTable;
use crate::store::loan::Lent;
use crate::store::reserved::Room;
use crate::store::segments::Segments;
use crate::store::space::Space;
use crate::store::superblock;
use crate::store::table::{CopiedTable, SegmentTable};
use crate::store::writer::{Batch, Writer};

/// Blocks of the device of a mounted log.
pub(crate) struct Store {
    pub(super) device: Arc<dyn WritableDevice>,
    pub(super) superblock: Superblock,
    pub(super) options: Options,
    pub(super) segments: Segments,
    /// Block state table: the valid slots of packed blocks.
    pub(super) bst: BlockStateTable,
    pub(super) space: Space,
    /// Blocks that were given places; see [`push`](Self::push).
    pub(super) batch: Batch,
    /// Tells whether what is pushed belongs to a group.
    pub(super) is_in_group: bool,
    pub(super) writer: Arc<Writer>,
    pub(super) statistics: Statistics,
    /// Blocks that were read before anyone asked.
    pub(super) ahead: Arc<Ahead>,
    /// The segment table on the device.
    pub(super) sit: SegmentTable,
    /// The last checkpoint.
    pub(super) version: u64,
    /// Grows with each flush that begins.
    pub(super) epoch: u64,
    /// Epoch up to which all writes are on the device.
    pub(super) flushed: u64,
    /// Blocks that have no place yet.
    pub(super) dirty_pages: usize,
    pub(super) dirty_nodes: Arc<AtomicUsize>,
    pub(super) dirty_inodes: Arc<AtomicUsize>,
    /// Held by those who read content from the device without the lock of the log: no segment becomes free meanwhile.
    pub(super) reading: Arc<RwLock<()>>,
    /// Segments that could not be cleaned.
    pub(super) quarantined: BTreeSet<u32>,
    /// The one that is being cleaned.
    pub(super) victim: Option<u32>,
    /// The room of the device that is reserved.
    pub(super) room: Room,
    /// Why nothing can be changed any more.
    pub(super) failed: Option<String>,
    /// Tells whether free blocks are discarded on the device.
    pub(super) discards: bool,
    /// Memory that is missing meanwhile.
    pub(super) lent: Lent,
    /// Warnings that were not taken yet.
    pub(super) warnings: Vec<String>,
    /// Troubles of the device that take nothing away, and were not yet told.
    pub(super) notes: Vec<String>,
}

/// Parts of a [`Store::new`].
pub(crate) struct Parts {
    pub(crate) device: Arc<dyn WritableDevice>,
    pub(crate) superblock: Superblock,
    pub(crate) options: Options,
    pub(crate) segments: Segments,
    pub(crate) bst: BlockStateTable,
    pub(crate) space: Space,
    pub(crate) sit: SegmentTable,
    pub(crate) version: u64,
}

impl Store {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            writer: Arc::new(Writer::new(parts.device.clone())),
            ahead: Arc::new(Ahead::new(parts.options.prefetch_bytes)),
            device: parts.device,
            superblock: parts.superblock,
            options: parts.options,
            segments: parts.segments,
            bst: parts.bst,
            space: parts.space,
            batch: Batch::default(),
            is_in_group: false,
            statistics: Statistics::default(),
            sit: parts.sit,
            version: parts.version,
            epoch: 1,
            flushed: 0,
            dirty_pages: 0,
            dirty_nodes: Arc::default(),
            dirty_inodes: Arc::default(),
            reading: Arc::default(),
            quarantined: BTreeSet::new(),
            victim: None,
            room: Room::default(),
            failed: None,
            discards: true,
            lent: Lent::default(),
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn device(&self) -> &dyn WritableDevice {
        &*self.device
    }

    pub(crate) fn shared_device(&self) -> Arc<dyn WritableDevice> {
        self.device.clone()
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Segments, for those who put them together anew: recovery, a repair, a change of size.
    pub(crate) fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    pub(crate) fn bst(&self) -> &BlockStateTable {
        &self.bst
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Space, for each block that is counted from here on, or no more: users of it are on all floors above.
    pub(crate) fn space_mut(&mut self) -> &mut Space {
        &mut self.space
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Statistics, for whoever counts something; nothing goes by them.
    pub(crate) fn statistics_mut(&mut self) -> &mut Statistics {
        &mut self.statistics
    }

    pub(crate) fn ahead(&self) -> &Arc<Ahead> {
        &self.ahead
    }

    pub(crate) fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    pub(crate) fn reading(&self) -> Arc<RwLock<()>> {
        self.reading.clone()
    }

    /// The last checkpoint.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Notes that a checkpoint has been written.
    pub(crate) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Says in the superblock that the log makes use of a feature, before it does.
    pub(crate) fn admit(&mut self, add: impl FnOnce(&mut Superblock)) -> Result<(), LogError> {
        let mut superblock = self.superblock.clone();
        add(&mut superblock);
        superblock.generation += 1;
        superblock::write_superblock(&*self.device, &superblock)?;
        self.superblock = superblock;
        Ok(())
    }

    /// As [`admit`](Self::admit), while the log is in use: if that fails nothing is written any more.
    pub(crate) fn admit_in_use(&mut self, add: impl FnOnce(&mut Superblock)) -> FsResult<()> {
        self.admit(add).map_err(|error| {
            let error = FsError::Io(std::io::Error::other(error));
            // One copy may be the new one.
            self.fail("the superblock could not be written", &error);
            error
        })
    }

    /// Ends that the log is read-only.
    pub(crate) fn allow_writes(&mut self) {
        self.options.read_only = false;
    }

    /// Has everything lie where another superblock says, but for the node address table.
    pub(crate) fn move_tables(&mut self, new: &Superblock) -> FsResult<()> {
        let kept = 0..new.segments.min(self.segments.count());
        let mut entries: Vec<_> = kept.map(|segment| self.segments.entry(segment)).collect();
        entries.resize(new.segments as usize, Default::default());
        let (heads, owners) = self.segments.heads();
        let mut segments = Segments::new(new, &entries, self.segments.serial());
        segments.open_heads(&heads, &owners)?;
        self.segments = segments;
        self.bst.move_to(new);
        self.sit = SegmentTable {
            table: CopiedTable::first(new.sit_start, new.sit_blocks),
            newer: (0..new.segments).collect(),
            journal_max: 0,
        };
        self.space = Space::new(new.capacity(), self.space.used(), self.space.preallocated());
        self.superblock = new.clone();
        Ok(())
    }

    /// Counts anew what is used.
    pub(crate) fn recount_space(&mut self, space: Space) {
        self.space = space;
    }
}
