//! State of a mounted log, and the cache of its nodes and inodes.
//!
//! All of it lies behind one lock. Every operation leaves it whole: what an operation cannot do it refuses
//! before it has changed anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use anteros_core::{FileKind, FsError, FsResult, Timestamp, WritableDevice};

use crate::compress::squeeze::Squeezer;
use crate::layout::checkpoint::HeadKind;
use crate::layout::node::{Attributes, Inode, NodeHeader, NodeKind};
use crate::layout::pointer::Pointer;
use crate::layout::summary::Owner;
use crate::layout::table::NatEntry;
use crate::layout::{BLOCK_BYTES, Block, Corrupt, SEGMENT_CONTENT, Superblock, dir};
use crate::mount::atomic::Staged;
use crate::mount::launches::Version;
use crate::nodes::loaded::{Live, Node};
use crate::nodes::nat::Nat;
use crate::options::Options;
use crate::statistics::{Cause, Statistics};
use crate::store::ahead::Ahead;
use crate::store::medium::{read_block, vanished};
use crate::store::room::Room;
use crate::store::segments::{Moment, Segments};
use crate::store::slots::Slots;
use crate::store::space::Space;
use crate::store::writer::{Batch, Writer};

/// Nodes that are looked at before it is asked again whether there are too many.
const LOOKS_BETWEEN: u64 = 1000;
/// The most of them that are loaded until then.
const LOADED_BETWEEN: usize = 128;

/// Memory of a page or a node, and of an inode without its inline content, with the overhead of heap and tables.
const PAGE_BYTES: usize = 4352;
const INODE_BYTES: usize = 4864;
/// The same of an entry of a table, with the room that the table has for others.
const ENTRY_BYTES: usize = 20;

/// Blocks of a large request.
const REQUEST_BLOCKS: usize = 256;

/// The most blocks that are handed over at once.
const BATCH_MAX: usize = 512;

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
    batch: Batch,
    pub(crate) writer: Arc<Writer>,
    pub(crate) statistics: Statistics,
    nodes: HashMap<u32, Node>,
    /// Each for itself: a table of them would be copied when it grows.
    inodes: HashMap<u32, Box<Live>>,
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
    pub(crate) tables: crate::durable::checkpoint::Tables,
    /// Grows with each flush that begins.
    epoch: u64,
    /// Epoch up to which all writes are on the device.
    flushed: u64,
    /// The first group behind the checkpoint.
    pub(crate) checkpointed: u64,
    /// Time of the checkpoint.
    pub(crate) checkpoint_time: Timestamp,
    pub(crate) dirty_pages: usize,
    dirty_nodes: Arc<AtomicUsize>,
    dirty_inodes: Arc<AtomicUsize>,
    pub(crate) inode_count: u32,
    clock: u64,
    /// Time of the last look at memory use, and the number of nodes and inodes at that time.
    shrunk_at: u64,
    loaded_then: usize,
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
    pub(crate) tables: crate::durable::checkpoint::Tables,
    pub(crate) version: u64,
    pub(crate) sequence: u64,
    pub(crate) inode_count: u32,
}

/// Checks that a node is `kind` of `ino` at this position.
fn check_node(header: &NodeHeader, ino: u32, kind: NodeKind, position: u32) -> FsResult<()> {
    let nid = header.nid;
    let fault = |rule, found| Err(FsError::from(Corrupt::Node { nid, rule, found }));
    if header.ino != ino {
        return fault("the node belongs to another inode", header.ino.into());
    }
    if header.kind != kind || header.position != position {
        return fault(
            "the node has another place in the tree",
            header.position.into(),
        );
    }
    Ok(())
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

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A block of the main area, as it was written last.
    pub(crate) fn fetch(&mut self, place: u64) -> FsResult<Box<Block>> {
        let mut found = None;
        self.visit_leaving(place..place + 1, |_, block| found = Some(Box::new(**block)))?;
        match found {
            Some(block) => Ok(block),
            None => read_block(&*self.device, place),
        }
    }

    /// Calls `visit` for each block of these places that the device has not yet got.
    ///
    /// # Errors
    ///
    /// When it did not take one of them.
    pub(crate) fn visit_leaving(
        &self,
        places: Range<u64>,
        mut visit: impl FnMut(u64, &Arc<Block>),
    ) -> FsResult<()> {
        self.writer.visit(places.clone(), &mut visit)?;
        for (place, block) in self.batch.range(places) {
            visit(*place, block);
        }
        Ok(())
    }

    /// Sends a block to its place. Whoever changes something hands that over in the end.
    pub(crate) fn push(&mut self, place: u64, block: impl Into<Arc<Block>>) {
        self.batch.insert(place, block.into());
    }

    /// Has all that was pushed written by whoever comes to that; says below which number these jobs, and all before,
    /// are.
    pub(crate) fn hand_over(&mut self) -> u64 {
        self.writer.hand_over(&mut self.batch)
    }

    /// The most blocks that may be on their way while more are made: what is dirty at once, with the request that made it too
    /// much. Those who hold the lock have some more.
    pub(crate) fn leaving_max(&self) -> usize {
        (self.options.memory_bytes / 4 / BLOCK_BYTES + REQUEST_BLOCKS).max(BATCH_MAX)
    }

    /// The block of a node that the table has, checked.
    fn read_node(&mut self, nid: u32) -> FsResult<(NodeHeader, Box<Block>)> {
        let entry = self.nat.get(nid)?;
        let pointer = Pointer::decode(entry.pointer, &self.superblock, nid, 0)?;
        let Pointer::Plain(place) = pointer else {
            return Err(Corrupt::Node {
                nid,
                rule: "the node address table has no block for it",
                found: entry.pointer,
            }
            .into());
        };
        let block = self.fetch_near(place)?;
        let header = NodeHeader::check(&block, nid)?;
        if header.ino != entry.ino {
            return Err(Corrupt::Node {
                nid,
                rule: "the node address table has another inode for it",
                found: header.ino.into(),
            }
            .into());
        }
        Ok((header, block))
    }

    /// An inode that is there: named, or held.
    pub(crate) fn live(&mut self, ino: u32) -> FsResult<&mut Live> {
        let stamp = self.tick();
        if !self.inodes.contains_key(&ino) {
            let live = self.load(ino)?;
            self.inodes.insert(ino, Box::new(live));
        }
        let live = self.inodes.get_mut(&ino).ok_or_else(vanished)?;
        live.stamp = stamp;
        Ok(live)
    }

    fn load(&mut self, ino: u32) -> FsResult<Live> {
        if !self.nat.is_valid(ino) || self.nat.get(ino)?.ino != ino {
            return Err(FsError::NotFound);
        }
        let (header, block) = self.read_node(ino)?;
        if header.kind != NodeKind::Inode {
            return Err(Corrupt::Node {
                nid: ino,
                rule: "the node is no inode",
                found: header.kind as u64,
            }
            .into());
        }
        let inode = Inode::parse(&block, ino)?;
        Ok(Live::read(inode, block, &self.dirty_inodes))
    }

    /// Version of the content of an inode, which no earlier or later content has.
    pub(crate) fn content_version(&mut self, ino: u32) -> FsResult<Version> {
        Ok(Version::from(&self.live(ino)?.inode().attributes))
    }

    /// As [`live`](Self::live), of an inode that is in memory already.
    pub(crate) fn loaded(&self, ino: u32) -> Option<&Live> {
        self.inodes.get(&ino).map(|live| &**live)
    }

    /// Another node than an inode that is in memory already, as it is.
    pub(crate) fn loaded_node(&self, nid: u32) -> Option<(&NodeHeader, &Block)> {
        let node = self.nodes.get(&nid)?;
        Some((node.header(), node.block()))
    }

    /// The inodes with content that has to be written.
    pub(crate) fn dirty_inos(&self) -> Vec<u32> {
        self.inos(|live| live.dirty_pages > 0)
    }

    /// The inodes with content that no group has.
    pub(crate) fn changed_inos(&self) -> Vec<u32> {
        self.inos(|live| {
            live.content_changed || live.dirty_pages > 0 || !live.unrecorded.is_empty()
        })
    }

    fn inos(&self, is_wanted: impl Fn(&Live) -> bool) -> Vec<u32> {
        let wanted = self.inodes.iter().filter(|(_, live)| is_wanted(live));
        let mut inos: Vec<u32> = wanted.map(|(&ino, _)| ino).collect();
        inos.sort_unstable();
        inos
    }

    /// A new inode.
    pub(crate) fn insert(&mut self, ino: u32, inode: Inode) {
        let mut live = Live::new(inode, &self.dirty_inodes);
        live.stamp = self.tick();
        self.inode_count += 1;
        self.inodes.insert(ino, Box::new(live));
    }

    /// Forgets an inode that is gone, and its content with it.
    pub(crate) fn remove(&mut self, ino: u32) {
        if self.inodes.remove(&ino).is_some() {
            self.inode_count = self.inode_count.saturating_sub(1);
        }
    }

    /// Another node than an inode, which has to be `kind` of `ino` at this position.
    pub(crate) fn node(
        &mut self,
        ino: u32,
        nid: u32,
        kind: NodeKind,
        position: u32,
    ) -> FsResult<&mut Node> {
        let stamp = self.tick();
        if !self.nodes.contains_key(&nid) {
            let (header, block) = self.read_node(nid)?;
            self.nodes
                .insert(nid, Node::read(header, block, &self.dirty_nodes));
        }
        let node = self.nodes.get_mut(&nid).ok_or_else(vanished)?;
        check_node(node.header(), ino, kind, position)?;
        node.stamp = stamp;
        Ok(node)
    }

    /// A copy of such a node, which does not stay in memory if it is not there already.
    pub(crate) fn copy_node(
        &mut self,
        ino: u32,
        nid: u32,
        kind: NodeKind,
        position: u32,
    ) -> FsResult<Box<Block>> {
        if let Some(node) = self.nodes.get(&nid) {
            let copy = Box::new(*node.block());
            check_node(node.header(), ino, kind, position)?;
            return Ok(copy);
        }
        let (header, block) = self.read_node(nid)?;
        check_node(&header, ino, kind, position)?;
        Ok(block)
    }

    /// Makes a node, empty.
    pub(crate) fn new_node(&mut self, ino: u32, kind: NodeKind, position: u32) -> FsResult<u32> {
        self.space.take(1)?;
        let allocated = self
            .nat
            .allocate()
            .and_then(|nid| nid.ok_or(FsError::NoSpace));
        let nid = allocated.inspect_err(|_| self.space.give(1))?;
        let owner = if kind == NodeKind::Inode { nid } else { ino };
        // What a crash takes had a number as well, which no table says. The versions of checkpoints grow with each mount.
        let generation = self.nat.get(nid)?.generation.max(self.version as u32);
        self.nat.set(
            nid,
            NatEntry {
                pointer: 0,
                ino: owner,
                generation,
            },
        );
        if kind != NodeKind::Inode {
            let header = NodeHeader {
                nid,
                ino,
                version: 0,
                kind,
                position,
            };
            let mut node = Node::new(header, &self.dirty_nodes);
            node.stamp = self.tick();
            self.nodes.insert(nid, node);
            self.live(ino)?.attributes().blocks += 1;
        }
        Ok(nid)
    }

    /// A node is not needed any more.
    pub(crate) fn drop_node(&mut self, ino: u32, nid: u32) -> FsResult<()> {
        self.nodes.remove(&nid);
        self.free_nid(nid)?;
        if ino != nid {
            let blocks = &mut self.live(ino)?.attributes().blocks;
            *blocks = blocks.saturating_sub(1);
        }
        Ok(())
    }

    /// Gives back the number of a node and the block that it lay in.
    pub(crate) fn free_nid(&mut self, nid: u32) -> FsResult<()> {
        let entry = self.nat.get(nid)?;
        let pointer = Pointer::decode(entry.pointer, &self.superblock, nid, 0)?;
        self.nat.free(nid)?;
        self.space.give(1);
        if let Some(block) = pointer.block() {
            let seconds = self.seconds();
            self.segments.invalidate(block, seconds);
        }
        Ok(())
    }

    /// A block from a head, and the summary of its segment if that is full now.
    pub(crate) fn place(
        &mut self,
        kind: HeadKind,
        owner: Owner,
        cause: Cause,
        moment: Moment,
    ) -> FsResult<crate::store::segments::Placed> {
        self.thread(kind)?;
        self.back_heads();
        let mut placed = self
            .segments
            .allocate(kind, owner, moment)
            .ok_or(FsError::NoSpace)?;
        if let Some((at, summary)) = placed.summary.take() {
            self.push(at, summary);
            self.statistics.wrote(Cause::Summary);
        }
        if placed.was_hole {
            self.ahead.forget_block(placed.block);
        }
        self.statistics.wrote(cause);
        if self.batch.len() >= BATCH_MAX {
            self.hand_over();
            self.writer.wake();
            self.writer.relieve(self.leaving_max() + BATCH_MAX);
        }
        Ok(placed)
    }

    /// A flush begins, of all that was submitted. To be told to [`flushed`](Self::flushed) when it has returned.
    pub(crate) fn flushing(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch - 1
    }

    /// A flush has returned.
    pub(crate) fn flushed(&mut self, epoch: u64) {
        self.flushed = self.flushed.max(epoch);
    }

    /// Notes that content of an inode has left outside of a group.
    pub(crate) fn left_early(&mut self, ino: u32) -> FsResult<()> {
        let epoch = self.epoch;
        self.live(ino)?.early = epoch;
        Ok(())
    }

    /// Returns whether content of an inode is under writeback outside of a group.
    pub(crate) fn is_under_way(&self, ino: u32) -> bool {
        self.loaded(ino)
            .is_some_and(|live| live.early > self.flushed)
    }

    /// Returns whether the last checkpoint has everything.
    pub(crate) fn is_settled(&self) -> bool {
        let unrecorded =
            self.names.len() + self.touched.len() + self.dropped.len() + self.dirty_blocks();
        unrecorded == 0 && self.sequence == self.checkpointed && self.segments.emptied_count() == 0
    }

    /// Returns when the device has got all that was sent to it.
    pub(crate) fn submit(&mut self) -> FsResult<()> {
        let end = self.hand_over();
        self.writer.finish(end)
    }

    /// Writes all that is dirty of the nodes, to new places.
    pub(crate) fn write_nodes(&mut self) -> FsResult<()> {
        let nids: BTreeSet<u32> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.is_dirty())
            .map(|(&nid, _)| nid)
            .collect();
        for nid in nids {
            self.write_node(nid, None)?;
        }
        let inos: BTreeSet<u32> = self
            .inodes
            .iter()
            .filter(|(_, live)| live.needs_writing())
            .map(|(&ino, _)| ino)
            .collect();
        for ino in inos {
            self.write_inode(ino, None)?;
        }
        Ok(())
    }

    /// Writes a node that is in memory and no inode, by the head for its kind if no other is said.
    fn write_node(&mut self, nid: u32, heat: Option<HeadKind>) -> FsResult<()> {
        let version = self.version + 1;
        let node = self.nodes.get_mut(&nid).ok_or_else(vanished)?;
        let (header, block) = node.sealed(version);
        let heat = heat.unwrap_or_else(|| self.node_heat(&header));
        self.move_node(&header, block, heat, self.moment())?;
        if let Some(node) = self.nodes.get_mut(&nid) {
            node.written();
        }
        Ok(())
    }

    /// Writes an inode that is in memory, likewise.
    pub(crate) fn write_inode(&mut self, ino: u32, heat: Option<HeadKind>) -> FsResult<()> {
        let version = self.version + 1;
        let live = self.inodes.get_mut(&ino).ok_or_else(vanished)?;
        let (header, block) = live.sealed(ino, version);
        let heat = heat.unwrap_or_else(|| self.node_heat(&header));
        self.move_node(&header, block, heat, self.moment())?;
        if let Some(live) = self.inodes.get_mut(&ino) {
            live.written();
        }
        Ok(())
    }

    fn node_heat(&self, header: &NodeHeader) -> HeadKind {
        let is_directory = self
            .inodes
            .get(&header.ino)
            .is_some_and(|live| live.kind() == FileKind::Directory);
        match header.kind {
            NodeKind::Indirect => HeadKind::ColdNode,
            _ if is_directory => HeadKind::HotNode,
            _ => HeadKind::WarmNode,
        }
    }

    /// Gives a sealed node another place.
    pub(crate) fn move_node(
        &mut self,
        header: &NodeHeader,
        block: Box<Block>,
        heat: HeadKind,
        moment: Moment,
    ) -> FsResult<()> {
        let owner = Owner {
            ino: header.ino,
            lblk: header.nid,
        };
        let placed = self.place(heat, owner, Cause::Node, moment)?;
        let old = self.nat.get(header.nid)?;
        if let Some(block) = Pointer::decode(old.pointer, &self.superblock, header.nid, 0)?.block()
        {
            let seconds = self.seconds();
            self.segments.invalidate(block, seconds);
        }
        self.nat.set(
            header.nid,
            NatEntry {
                pointer: Pointer::Plain(placed.block).encode(),
                ino: header.ino,
                ..old
            },
        );
        self.push(placed.block, block);
        Ok(())
    }

    /// Has a node written again at another place: for the cleaner, or by another head that is said.
    pub(crate) fn relocate_node(
        &mut self,
        nid: u32,
        from: u64,
        heat: Option<HeadKind>,
        moment: Moment,
    ) -> FsResult<()> {
        let entry = self.nat.get(nid)?;
        if entry.pointer != Pointer::Plain(from).encode() {
            return Ok(());
        }
        if entry.ino == nid {
            self.live(nid)?;
            self.write_inode(nid, heat)
        } else if self.nodes.get(&nid).is_some_and(Node::is_dirty) {
            self.write_node(nid, heat)
        } else {
            let (header, block) = self.read_node(nid)?;
            self.move_node(&header, block, HeadKind::ColdNode, moment)
        }
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

    /// Blocks that a checkpoint would write.
    pub(crate) fn dirty_blocks(&self) -> usize {
        let nodes = self.dirty_nodes.load(Ordering::Relaxed);
        self.dirty_pages + nodes + self.dirty_inodes.load(Ordering::Relaxed)
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

    /// Bytes of what is in memory and could be elsewhere, or is on its way there.
    pub(crate) fn cached_bytes(&self) -> usize {
        let inodes = self.inodes.values();
        let inodes = inodes.map(|live| {
            INODE_BYTES + live.inode().inline.capacity() + live.pages.len() * PAGE_BYTES
        });
        let pages = self.staged_pages() + self.nodes.len() + self.writer.blocks();
        inodes.sum::<usize>() + pages * PAGE_BYTES + self.table_bytes()
    }

    /// Bytes of what else grows with the files in use. Should that be most of what there is room for, the rest
    /// still has some.
    fn table_bytes(&self) -> usize {
        let entries = self.known.capacity() + self.nat.newer_count();
        let bytes = self.names.capacity() + entries * ENTRY_BYTES;
        bytes.min(self.options.memory_bytes / 4)
    }

    /// Lets go of what was not used for long, if there is too much. It looks now and then; there is room for what comes until
    /// it looks again.
    pub(crate) fn shrink(&mut self) {
        if self.options.evicts_always {
            return self.evict();
        }
        let loaded = self.nodes.len() + self.inodes.len();
        if self.clock < self.shrunk_at + LOOKS_BETWEEN && loaded < self.loaded_then + LOADED_BETWEEN
        {
            return;
        }
        self.shrunk_at = self.clock;
        if self.cached_bytes() > self.options.memory_bytes / 4 * 3 {
            self.drop_oldest();
        }
        self.loaded_then = self.nodes.len() + self.inodes.len();
    }

    /// Lets go of the older half of what is clean.
    fn drop_oldest(&mut self) {
        let mut stamps: Vec<u64> = self.nodes.values().map(|node| node.stamp).collect();
        stamps.extend(self.inodes.values().map(|live| live.stamp));
        stamps.sort_unstable();
        self.drop_until(stamps.get(stamps.len() / 2).copied().unwrap_or(0));
        // One directory in use may be larger than what there is room for. What leads to many of its blocks goes last.
        for level_kept in [1, u16::MAX] {
            if self.cached_bytes() > self.options.memory_bytes {
                for live in self.inodes.values_mut() {
                    live.pages
                        .retain(|_, page| page.dirty || dir::level(&page.data) >= level_kept);
                }
            }
        }
    }

    /// Lets go of all that is clean, if that is to be done after each operation.
    pub(crate) fn evict(&mut self) {
        if self.options.evicts_always {
            self.drop_until(u64::MAX);
            self.nat.let_go();
        }
    }

    /// Lets go of what is clean and was not used since then.
    fn drop_until(&mut self, oldest: u64) {
        self.nodes
            .retain(|_, node| node.is_dirty() || node.stamp > oldest);
        let kept = |ino: &u32| self.touched.contains(ino);
        self.inodes
            .retain(|ino, live| live.stamp > oldest || !live.is_clean() || kept(ino));
        for live in self.inodes.values_mut().filter(|live| live.stamp <= oldest) {
            live.pages.retain(|_, page| page.dirty);
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
