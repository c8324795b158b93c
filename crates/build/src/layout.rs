//! Every address of the metadata, decided in one place.
//!
//! ```text
//! | superblock | file content … | directories and long links | shared xattrs | inodes … |
//!                               ^ after the data pass        ^ meta_block + 1, about
//!
//! | superblock | file content … | directories and long links | metabox … | shared xattrs | packed, metabox inode |
//!
//! | superblock, shared xattrs, inodes … | file content … | directories and long links |
//! ```
//!
//! Few inodes lie in the block of the superblock, if there is room for all of them.
//!
//! Inodes that are known to be read come first, then all others, both in the order of the tree, as far as room allows:
//! each goes where it leaves the least room, among the blocks that are still open. Those with inline data must lie in one
//! block with it; the others may cross into the next one.
//!
//! Behind the root there are free slots, if the inodes take so much room that the root of a patch would find no place near it
//! otherwise: as many as cost no block.
//!
//! Node ids count from the first inode. So they are known before it is known where in the image that lies: directories
//! can be compressed with the end of the packed inode, which lies behind the file content.
//!
//! Invariant B1 of `docs/design/building.md`: the same source and options give the same bytes, whatever the workers,
//! the memory and the order in which directories are listed.
//!
//! Invariant B8 of `docs/design/building.md`: inodes neither overlap nor cross a block where they must not.

use std::collections::BTreeSet;
use std::ops::Range;

use anteros_core::FileKind;
use anteros_format::patch::ROOT_SLOTS;
use anteros_format::{Nid, SLOT_BYTES};

use crate::base::Record;
use crate::data::{Job, Stored};
use crate::output::Output;
use crate::patch::renewed::Slots;
use crate::patch::{self, Patched};
use crate::plan::{Intent, Plan, WHOLE_FRAGMENT_BYTES};
use crate::special::SpecialInode;
use crate::tree::{NodeId, Tree};
use crate::{Error, Options};

/// Most slots for roots of later patches.
const ROOTS_MAX: u64 = 64;

/// An inode is small if it takes less than this part of a block, with all that lies behind it.
const SMALL_SHARE: u64 = 64;

/// Bytes by which ids of shared xattrs count.
const SHARED_ID_BYTES: u64 = 4;

/// Blocks that are open for inodes of any size, and for those that are not small.
const NEAR_BLOCKS_MAX: usize = 32;
const FAR_BLOCKS_MAX: usize = 1024;

/// Tells where the inodes lie.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Byte at which each inode begins: behind that at which shared xattrs begin, or in the content of the metabox.
    pub inodes: Vec<u64>,
    /// The nodes in the order of their inodes.
    pub order: Vec<NodeId>,
    packer: Packer,
    /// The block of the first inode, counted as `inodes` are.
    first_block: u64,
    home: Home,
    /// Node ids in an image that is patched, some of whose inodes are not among these.
    nids: Vec<u64>,
    /// Inodes in slots of an older image, and the byte of the image at which each begins.
    pub slots: Vec<(NodeId, u64)>,
    /// Bytes of slots that are free.
    pub free_bytes: u64,
}

/// Tells where the inodes of an image lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// In the block of the superblock, behind shared xattrs, which begin at a byte of the image.
    Superblock {
        shared_at: u64,
    },
    /// Behind all content.
    End,
    Metabox,
    /// Behind all content that a patch appends, from this byte of the image on; node ids count from where they did before.
    Patched {
        start: u64,
    },
}

/// Tells where in the image lies what the superblock names.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Origin of node ids: the block in front of the first inode, so that no node id is 0.
    pub meta_block: u32,
    /// Origin of shared xattrs.
    pub xattr_block: u32,
    /// Byte at which the packed inode begins, behind all others, if there is one.
    pub packed: Option<u64>,
    /// Byte at which the metabox inode begins, the last of all, if there is one.
    pub metabox: Option<u64>,
    /// Inodes in the block of the superblock, from the superblock on.
    pub area: Vec<u8>,
    /// The end of the image in bytes, whole blocks.
    pub end: u64,
    block_bytes: u64,
}

impl Layout {
    /// Lays out the inodes. Directories and links learn how they are stored; those that are compressed, where in the packed
    /// inode, which has so many bytes without them. Behind the superblock there is `room`.
    pub fn new(
        job: &Job<'_>,
        stored: &mut [Stored],
        packed_bytes: u64,
        room: &Range<u64>,
        output: &Output,
    ) -> Self {
        let packed_bytes = store(job, stored, packed_bytes);
        let options = job.options;
        if let Some(home) = &job.plan.patched {
            return Self::patched(job, stored, home, output);
        }
        if options.metabox.is_some() {
            return Self::laid(job, stored, Home::Metabox, 0..u64::MAX, 0).expect("it has no end");
        }
        // The packed inode is made later, and an image that is appended to has its superblock.
        let may_be_beside = packed_bytes == 0 && options.append.is_none();
        let shared_bytes = job.plan.shared.area.len() as u64;
        let shared_at = room.start.next_multiple_of(SHARED_ID_BYTES);
        let start = shared_at + shared_bytes;
        let beside = may_be_beside
            .then(|| {
                Self::laid(
                    job,
                    stored,
                    Home::Superblock { shared_at },
                    start..room.end,
                    0,
                )
            })
            .flatten();
        let at_end = |slots| Self::laid(job, stored, Home::End, shared_bytes..u64::MAX, slots);
        let laid = beside.or_else(|| at_end(0));
        let laid = laid.expect("there is room at the end");
        match may_be_beside && laid.needs_slots(options) {
            true => laid.with_slots(job.plan.head_bytes(0).next_multiple_of(SLOT_BYTES), at_end),
            false => laid,
        }
    }

    /// Returns whether a patch would find no place for its root within 2 MiB of the first inode, so that it had to copy inodes.
    fn needs_slots(&self, options: &Options) -> bool {
        let near = ROOT_SLOTS * SLOT_BYTES;
        let end = self.packer.end() + self.packer.block_bytes;
        self.home == Home::End && !options.is_wide() && end > near
    }

    /// The same with free slots for roots of so many bytes, which later patches will have: as many as take no block.
    fn with_slots(self, root_bytes: u64, laid: impl Fn(u64) -> Option<Self>) -> Self {
        let counts = (0..=ROOTS_MAX.ilog2()).rev().map(|bits| 1 << bits);
        let mut with = counts.filter_map(|roots: u64| laid(roots * root_bytes));
        let free = with.find(|with| with.packer.end() <= self.packer.end());
        free.unwrap_or(self)
    }

    /// Lays out the inodes from a byte on, and behind the root so many bytes that are free; `None` if they do not end where
    /// they must.
    fn laid(
        job: &Job<'_>,
        stored: &[Stored],
        home: Home,
        Range { start, end }: Range<u64>,
        free: u64,
    ) -> Option<Self> {
        let Job { tree, plan, .. } = *job;
        let mut packer = Packer::new(0, start, job.options.block_bytes().into());
        let first_block = match home {
            // Node ids count from the beginning of the image.
            Home::Superblock { .. } => packer.block_bytes,
            Home::End | Home::Metabox | Home::Patched { .. } => packer.frontier,
        };
        let mut inodes = vec![0; tree.nodes.len()];
        for id in plan.inodes(tree) {
            let at = packer.place_node(tree, plan, id, &stored[id as usize]);
            inodes[id as usize] = Some(at).filter(|at| *at < end)?;
            if id == 0 && free > 0 {
                packer.place(free, false);
            }
        }
        let mut order: Vec<NodeId> = tree.ids().collect();
        order.sort_unstable_by_key(|&id| inodes[id as usize]);
        (packer.end() <= end).then_some(Self {
            inodes,
            order,
            packer,
            first_block,
            home,
            nids: Vec::new(),
            slots: Vec::new(),
            free_bytes: 0,
        })
    }

    /// Lays out the inodes of a patch that do not stay where they are.
    fn patched(job: &Job<'_>, stored: &[Stored], home: &Patched, output: &Output) -> Self {
        let Job { tree, plan, .. } = *job;
        let block_bytes = u64::from(job.options.block_bytes());
        let in_place = |id| {
            let renewed = home.renewed.as_ref();
            renewed.is_some_and(|renewed| renewed.blocks.contains_key(&id))
        };
        let blocks = tree.ids().map(|id| match stored[id as usize] {
            Stored::Flat { inline, .. }
                if tree.node(id).kind != FileKind::Regular && !in_place(id) =>
            {
                (tree.node(id).size - inline).next_multiple_of(block_bytes)
            }
            _ => 0,
        });
        let start = output.position() + blocks.sum::<u64>();
        let nid_at = |at: u64| (at - home.origin) / SLOT_BYTES;
        let mut packer = Packer::new(0, 0, block_bytes);
        let mut inodes = vec![0; tree.nodes.len()];
        let mut nids = vec![0; tree.nodes.len()];
        let mut order = Vec::new();
        let mut slots = Vec::new();
        let mut room = home
            .renewed
            .as_ref()
            .map(|room| Slots::new(room, block_bytes));
        for id in tree.ids() {
            let slot = match plan.node(id).intent {
                Intent::Stays(at) => Some(at),
                _ => home.root.filter(|_| id == 0).or_else(|| {
                    let at = slot(job, room.as_mut()?, id, &stored[id as usize])?;
                    slots.push((id, at));
                    Some(at)
                }),
            };
            let slot = slot.map(nid_at);
            nids[id as usize] = slot.unwrap_or_else(|| {
                order.push(id);
                let at = packer.place_node(tree, plan, id, &stored[id as usize]);
                inodes[id as usize] = at;
                nid_at(start + at)
            });
        }
        order.sort_unstable_by_key(|&id| inodes[id as usize]);
        Self {
            inodes,
            order,
            first_block: 0,
            packer,
            home: Home::Patched { start },
            nids,
            slots,
            free_bytes: room.map_or(0, |room| room.free_bytes()),
        }
    }

    /// The node id of a node.
    pub fn nid(&self, id: NodeId) -> u64 {
        let at = self.inodes[id as usize];
        match self.home {
            Home::Patched { .. } => self.nids[id as usize],
            Home::Metabox => Nid::of_metabox(at / SLOT_BYTES).0,
            Home::Superblock { .. } | Home::End => {
                (at + self.packer.block_bytes - self.first_block) / SLOT_BYTES
            }
        }
    }

    /// The byte of the image at which shared xattrs begin, if they and the inodes lie in the block of the superblock.
    pub fn beside_superblock(&self) -> Option<u64> {
        match self.home {
            Home::Superblock { shared_at } => Some(shared_at),
            Home::End | Home::Metabox | Home::Patched { .. } => None,
        }
    }

    /// The id of the first shared xattr.
    pub fn first_shared_id(&self) -> u32 {
        let at = self.beside_superblock().unwrap_or(0);
        (at / SHARED_ID_BYTES) as u32 // in the block of the superblock
    }

    /// Bytes of the content of the metabox, whole blocks; `None` if there is none.
    pub fn metabox_bytes(&self) -> Option<u64> {
        (self.home == Home::Metabox).then(|| self.packer.end())
    }

    /// Tells what lies where in an image without metabox, in which shared xattrs begin where the output is now.
    pub fn places(
        &self,
        job: &Job<'_>,
        packed: Option<&SpecialInode>,
        output: &Output,
    ) -> Result<Places, Error> {
        let start = output.position();
        let mut packer = self.packer.clone();
        let append = job.options.append.as_ref();
        if let (Home::Patched { start: laid }, Some(home)) = (self.home, &job.plan.patched) {
            debug_assert_eq!(start, laid);
            return self.places_patched(job, home, output);
        }
        let packed = match append.and_then(|append| append.packed.as_ref()) {
            Some((record, _)) => Some(start + packer.place_kept_at_end(record)),
            None => packed.map(|inode| {
                let bytes = inode.record_bytes(job.plan.packed_index());
                start + packer.place_at_end(bytes, false)
            }),
        };
        Places {
            meta_block: output.block_of(start + self.first_block)? - 1,
            xattr_block: match append {
                Some(append) => append.parsed()?.xattr_block,
                None => output.block_of(start)?,
            },
            packed,
            metabox: None,
            area: Vec::new(),
            end: start + packer.end(),
            block_bytes: packer.block_bytes,
        }
        .aligned(job, output)
    }

    /// Tells what lies where in an image that is patched, in which new inodes begin where the output is now.
    fn places_patched(
        &self,
        job: &Job<'_>,
        home: &Patched,
        output: &Output,
    ) -> Result<Places, Error> {
        let append = patch::appended(job.options)?;
        let start = output.position();
        let mut packer = self.packer.clone();
        let packed = append
            .packed
            .as_ref()
            .map(|(record, _)| match home.stays(record.address) {
                true => record.address,
                false => start + packer.place_kept_at_end(record),
            });
        let has_inodes = !self.order.is_empty() || packed.is_some_and(|at| at >= start);
        let inodes = if has_inodes { packer.end() } else { 0 };
        Places {
            meta_block: output.block_of(home.origin)?,
            xattr_block: append.parsed()?.xattr_block,
            packed,
            metabox: None,
            area: Vec::new(),
            end: start + inodes + patch::record_bytes(job.options),
            block_bytes: self.packer.block_bytes,
        }
        .aligned(job, output)
    }

    /// As [`places`](Self::places), where all inodes lie in the block of the superblock, with `area`.
    pub fn places_beside(
        &self,
        job: &Job<'_>,
        area: Vec<u8>,
        output: &Output,
    ) -> Result<Places, Error> {
        Places {
            meta_block: 0,
            xattr_block: 0,
            packed: None,
            metabox: None,
            area,
            end: output.position(),
            block_bytes: self.packer.block_bytes,
        }
        .aligned(job, output)
    }
}

/// The slot of an older image in which an inode lies, if there is one for it.
fn slot(job: &Job<'_>, room: &mut Slots<'_>, id: NodeId, stored: &Stored) -> Option<u64> {
    let Job { tree, plan, .. } = *job;
    let block_bytes = u64::from(job.options.block_bytes());
    match &plan.node(id).intent {
        Intent::Copied(copied) => {
            let head = plan.head_bytes(id);
            let place = copied.place_in_block(head, block_bytes);
            let is_inline = copied.record.is_inline && place.is_none();
            room.take(id, head + copied.rest_bytes(), is_inline, |at| {
                place.is_none_or(|place| at % block_bytes == place)
            })
        }
        _ => {
            let (bytes, whole) = record_bytes(tree, plan, id, stored);
            room.take(id, bytes, whole, |_| true)
        }
    }
}

/// Decides how directories and links are stored: the compressed ones behind each other, behind so many bytes of the packed
/// inode. Returns how many it has then.
fn store(job: &Job<'_>, stored: &mut [Stored], mut packed_bytes: u64) -> u64 {
    for id in job.plan.inodes(job.tree) {
        let node = job.tree.node(id);
        if matches!(node.kind, FileKind::Regular) || node.size == 0 {
            continue;
        }
        let offset = packed_bytes;
        stored[id as usize] = match job.plan.node(id).intent {
            Intent::Kept(_) | Intent::Stays(_) | Intent::Copied(_) => Stored::Kept,
            Intent::Pack => {
                packed_bytes += node.size;
                Stored::Packed { offset }
            }
            _ => Stored::Flat {
                first_block: 0,
                inline: job.plan.inline_bytes(id, node),
            },
        };
    }
    packed_bytes
}

/// Tells directories and links where their blocks lie, which begin where the output is now.
pub(crate) fn place_blocks(
    job: &Job<'_>,
    stored: &mut [Stored],
    output: &Output,
) -> Result<(), Error> {
    let mut at = output.position();
    for id in job.plan.inodes(job.tree) {
        let node = job.tree.node(id);
        match &mut stored[id as usize] {
            Stored::Flat {
                first_block,
                inline,
            } if node.kind != FileKind::Regular => {
                let renewed = job.plan.renewed();
                if let Some(block) = renewed.and_then(|renewed| renewed.blocks.get(&id)) {
                    *first_block = *block;
                    continue;
                }
                *first_block = output.block_of(at)?;
                at += (node.size - *inline).next_multiple_of(output.block_bytes());
            }
            _ => {}
        }
    }
    Ok(())
}

impl Places {
    /// Lays out what comes behind the content of the metabox, which ends where the output is now.
    pub fn behind(
        job: &Job<'_>,
        packed: Option<&SpecialInode>,
        metabox: &SpecialInode,
        output: &Output,
    ) -> Result<Self, Error> {
        let plan = job.plan;
        let block_bytes = u64::from(job.options.block_bytes());
        let at = output.position();
        let mut packer = Packer::new(at, plan.shared.area.len() as u64, block_bytes);
        let first_block = packer.frontier;
        let mut place =
            |inode: &SpecialInode, index| packer.place_at_end(inode.record_bytes(index), false);
        Self {
            meta_block: output.block_of(first_block)? - 1,
            xattr_block: output.block_of(at)?,
            packed: packed.map(|inode| place(inode, plan.packed_index())),
            metabox: Some(place(metabox, plan.metabox_index())),
            area: Vec::new(),
            end: packer.end(),
            block_bytes,
        }
        .aligned(job, output)
    }

    /// Ends the image where it is to end, and checks that all blocks have numbers.
    fn aligned(mut self, job: &Job<'_>, output: &Output) -> Result<Self, Error> {
        self.end = self.end.next_multiple_of(job.options.image_align_bytes());
        output.block_of(self.end)?;
        Ok(self)
    }

    /// The byte of the image at which the inode begins that a [`Layout`] has at a place; `None` if that is in the metabox.
    pub fn inode(&self, at: u64) -> Option<u64> {
        let origin = u64::from(self.xattr_block) * self.block_bytes;
        self.metabox.is_none().then_some(origin + at)
    }

    /// The node id of the packed inode; 0 if there is none.
    pub fn packed_nid(&self) -> u64 {
        self.packed.map_or(0, |at| self.nid_at(at))
    }

    /// The node id of the metabox inode; 0 if there is none.
    pub fn metabox_nid(&self) -> u64 {
        self.metabox.map_or(0, |at| self.nid_at(at))
    }

    fn nid_at(&self, at: u64) -> u64 {
        (at - u64::from(self.meta_block) * self.block_bytes) / SLOT_BYTES
    }
}

/// Bytes of an inode and all that lies behind it, and whether these must not cross a block.
fn record_bytes(tree: &Tree, plan: &Plan, id: NodeId, stored: &Stored) -> (u64, bool) {
    let node = tree.node(id);
    let head = plan.head_bytes(id);
    match (stored, &plan.node(id).intent) {
        (Stored::Flat { inline, .. }, _) => (head + inline, *inline > 0),
        (Stored::Compressed { body, tail }, _) => {
            let inline = tail.inline_bytes();
            let index = plan.index_with(id, node, body, *tail);
            let index = index.bytes(head, &body.runs(), *tail, node.size);
            (head + index + inline, inline > 0)
        }
        (Stored::Packed { .. }, _) => (head.next_multiple_of(8) + WHOLE_FRAGMENT_BYTES, false),
        (Stored::Elsewhere, Intent::Elsewhere(file)) => (head + file.bytes_behind(head), false),
        (Stored::Chunked { .. }, Intent::Chunks(chunked)) => {
            (head + chunked.bytes_behind(head, node.size), false)
        }
        _ => (head, false),
    }
}

/// Finds places for inodes.
///
/// A small inode goes to one of the blocks that were opened last, so that those of a directory are
/// read together. One that brings much inline data with it takes a read of its own in any case, and
/// may fill a gap farther back.
#[derive(Debug, Clone)]
struct Packer {
    block_bytes: u64,
    /// Blocks with room: those that were opened last, and those before.
    near: OpenBlocks,
    far: OpenBlocks,
    /// Tells where the last block that is in use begins; behind it everything is free.
    frontier: u64,
}

impl Packer {
    /// A packer that begins behind `prefix` bytes at the block-aligned `start`.
    fn new(start: u64, prefix: u64, block_bytes: u64) -> Self {
        let used = start + prefix.next_multiple_of(SLOT_BYTES);
        let frontier = used / block_bytes * block_bytes;
        let mut packer = Self {
            block_bytes,
            near: OpenBlocks::default(),
            far: OpenBlocks::default(),
            frontier,
        };
        packer.open(frontier, block_bytes - (used - frontier));
        packer
    }

    /// Returns where a record of so many bytes goes.
    fn place(&mut self, bytes: u64, whole: bool) -> u64 {
        let bytes = bytes.next_multiple_of(SLOT_BYTES);
        let far = match bytes < self.block_bytes / SMALL_SHARE {
            true => None,
            false => self.far.snuggest(bytes),
        };
        let near = self.near.snuggest(bytes);
        match (near, far) {
            (Some(near), far) if far.is_none_or(|far| near <= far) => {
                self.near.take(near, bytes);
                near.1 + self.block_bytes - near.0
            }
            (_, Some(far)) => {
                self.far.take(far, bytes);
                far.1 + self.block_bytes - far.0
            }
            (_, None) => self.place_at_end(bytes, whole),
        }
    }

    /// Returns where the inode of a node goes, with all that lies behind it.
    fn place_node(&mut self, tree: &Tree, plan: &Plan, id: NodeId, stored: &Stored) -> u64 {
        match &plan.node(id).intent {
            Intent::Kept(record) => self.place_kept(record),
            Intent::Copied(copied) => {
                let head = plan.head_bytes(id);
                let bytes = head + copied.rest_bytes();
                match copied.place_in_block(head, self.block_bytes) {
                    Some(at) => {
                        let start = self.frontier + self.block_bytes + at;
                        self.end_at(start, bytes);
                        start
                    }
                    None => self.place(bytes, copied.record.is_inline),
                }
            }
            _ => {
                let (bytes, whole) = record_bytes(tree, plan, id, stored);
                self.place(bytes, whole)
            }
        }
    }

    /// Returns where the copy of an inode goes that is in the image already.
    fn place_kept(&mut self, record: &Record) -> u64 {
        match record.is_inline && record.bytes > self.block_bytes {
            false => self.place(record.bytes, record.is_inline),
            true => self.place_kept_at_end(record),
        }
    }

    /// Returns where such a copy goes that is the last one.
    fn place_kept_at_end(&mut self, record: &Record) -> u64 {
        if !record.is_inline || record.bytes <= self.block_bytes {
            return self.place_at_end(record.bytes, record.is_inline);
        }
        let start = self.frontier + self.block_bytes + record.address % self.block_bytes;
        self.end_at(start, record.bytes);
        start
    }

    fn place_at_end(&mut self, bytes: u64, whole: bool) -> u64 {
        let behind = self.frontier + self.block_bytes;
        let room = self.near.room_in(self.frontier).filter(|_| !whole);
        let start = behind - room.unwrap_or(0);
        if let Some(room) = room {
            self.near.take((room, self.frontier), room);
        }
        self.end_at(start, bytes);
        start
    }

    /// Takes a record as the last one.
    fn end_at(&mut self, start: u64, bytes: u64) {
        let end = start + bytes.next_multiple_of(SLOT_BYTES);
        self.frontier = (end - 1) / self.block_bytes * self.block_bytes;
        self.open(self.frontier, self.frontier + self.block_bytes - end);
    }

    fn open(&mut self, block: u64, free: u64) {
        self.near.insert((free, block));
        if self.near.0.len() > NEAR_BLOCKS_MAX {
            let oldest = self.near.0.iter().min_by_key(|(_, block)| *block);
            let oldest = *oldest.expect("there are some");
            self.near.0.remove(&oldest);
            self.far.insert(oldest);
        }
        if self.far.0.len() > FAR_BLOCKS_MAX {
            self.far.0.pop_first();
        }
    }

    /// The end of the last block in use.
    fn end(&self) -> u64 {
        self.frontier + self.block_bytes
    }
}

/// The free bytes at the end of a block, and where it begins.
type Room = (u64, u64);

/// Blocks that have room, by how much.
#[derive(Debug, Default, Clone)]
struct OpenBlocks(BTreeSet<Room>);

impl OpenBlocks {
    fn snuggest(&self, bytes: u64) -> Option<Room> {
        self.0.range((bytes, 0)..).next().copied()
    }

    fn room_in(&self, block: u64) -> Option<u64> {
        let mut blocks = self.0.iter();
        blocks.find(|room| room.1 == block).map(|room| room.0)
    }

    fn take(&mut self, room: Room, bytes: u64) {
        self.0.remove(&room);
        self.insert((room.0 - bytes, room.1));
    }

    fn insert(&mut self, room: Room) {
        if room.0 > 0 {
            self.0.insert(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant B8 of `docs/design/building.md`.
    #[test]
    fn records_neither_overlap_nor_cross_blocks_if_they_must_not() {
        let mut packer = Packer::new(8192, 100, 4096);
        let mut state = 1u64;
        let mut places = Vec::new();
        for _ in 0..5000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let whole = state >> 40 & 1 == 0;
            let bytes = 32 + (state >> 33) % if whole { 4065 } else { 20_000 };
            let start = packer.place(bytes, whole);
            assert_eq!(start % 32, 0);
            assert!(!whole || start / 4096 == (start + bytes - 1) / 4096);
            places.push((start, start + bytes));
        }
        places.sort_unstable();
        assert!(places[0].0 >= 8192 + 100);
        assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert!(places[places.len() - 1].1 <= packer.end());
        assert_eq!(packer.end() % 4096, 0);
    }

    #[test]
    fn a_gap_is_filled_by_what_fits_best() {
        let mut packer = Packer::new(4096, 0, 4096);
        assert_eq!(packer.place(3000, true), 4096);
        assert_eq!(packer.place(3500, true), 8192);
        assert_eq!(packer.place(512, true), 8192 + 3520);
        assert_eq!(packer.place(1000, true), 4096 + 3008);
        assert_eq!(packer.place(10_000, false), 8192 + 4032);
        let ends = [0, 0].map(|_| packer.place_at_end(33, false));
        assert_eq!(ends, [22_240, 22_304]);
    }
}
