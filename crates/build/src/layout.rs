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

use std::ops::Range;

use anteros_core::FileKind;
use anteros_format::patch::ROOT_SLOTS;
use anteros_format::{Nid, SLOT_BYTES};

use crate::data::{Job, Stored};
use crate::output::Output;
use crate::packer::{Packer, record_bytes};
use crate::patch::renewed::Slots;
use crate::patch::{self, Patched};
use crate::plan::Intent;
use crate::special::SpecialInode;
use crate::tree::NodeId;
use crate::{Error, Options};

/// Most slots for roots of later patches.
const ROOTS_MAX: u64 = 64;

/// Bytes by which ids of shared xattrs count.
const SHARED_ID_BYTES: u64 = 4;

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

    /// Lays out free slots as well, for roots of so many bytes that later patches will have: as many as take no block.
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
            return self.places_patched(job, home, packed, output);
        }
        let packed = place_packed(job, packed, start, &mut packer);
        Places {
            meta_block: output.block_of(start + self.first_block)? - 1,
            xattr_block: match append.filter(|_| job.plan.lower.is_none()) {
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
        packed: Option<&SpecialInode>,
        output: &Output,
    ) -> Result<Places, Error> {
        let append = patch::appended(job.options)?;
        let start = output.position();
        let mut packer = self.packer.clone();
        let packed = place_packed(job, packed, start, &mut packer);
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

/// Returns where the packed inode lies: a new one, or else that of an image which is appended to, which may stay. Inodes are
/// counted from a byte of the image on.
fn place_packed(
    job: &Job<'_>,
    new: Option<&SpecialInode>,
    start: u64,
    packer: &mut Packer,
) -> Option<u64> {
    let append = job.options.append.as_ref();
    let former = append.and_then(|append| append.packed.as_ref());
    let home = job.plan.patched.as_ref();
    match (new, former) {
        (Some(inode), _) => {
            let bytes = inode.record_bytes(job.plan.packed_index(inode));
            Some(start + packer.place_at_end(bytes, false))
        }
        (None, Some((record, _))) if home.is_some_and(|home| home.stays(record.address)) => {
            Some(record.address)
        }
        (None, Some((record, _))) => Some(start + packer.place_kept_at_end(record)),
        (None, None) => None,
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
            packed: packed.map(|inode| place(inode, plan.packed_index(inode))),
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
