//! Layout of what lies where, for whoever wants to see it: of whole logs, and of damaged ones as far as they can be
//! read.
//!
//! A log that a mount would open is seen as that mount would see it, groups behind the checkpoint included; another
//! one as its newest whole checkpoint says.

#![deny(clippy::indexing_slicing)]

use std::io;
use std::sync::Arc;

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::durable::Durable;
use crate::durable::owners;
use crate::durable::recover::{self, Recovery};
use crate::error::LogError;
use crate::files::dir::Named;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::node::{FILE_BLOCKS, NodeHeader, Path};
use crate::layout::packed;
use crate::layout::pointer::Pointer;
use crate::layout::summary;
use crate::layout::superblock::SUPERBLOCK_BYTES;
use crate::layout::{
    Block, Corrupt, Fault, ROOT, SEGMENT_BLOCKS, SEGMENT_CONTENT, Superblock, dir,
};
use crate::nodes::place::NodePlace;
use crate::options::Options;
use crate::store::medium::read_block;
use crate::store::{packs, superblock};

mod view;

pub use view::{Area, Content, Group, InodeView, NodeView, Place, Run};

/// Faults of one inode that are told; with more, nothing of it is read any more.
const FAULTS_MAX: usize = 100;

/// Looks into a log on a device, which is not changed.
pub struct Inspector {
    device: Arc<dyn WritableDevice>,
    superblock: Superblock,
    copies: [Result<Superblock, Fault>; 2],
    packs: [Result<Checkpoint, Corrupt>; 2],
    /// There if a checkpoint is whole.
    state: Option<Durable>,
    recovery: Result<Recovery, LogError>,
}

impl Inspector {
    /// Looks for the log on a device.
    ///
    /// # Errors
    ///
    /// When the device cannot be read, or neither superblock.
    pub fn open(device: Arc<dyn WritableDevice>, options: &Options) -> Result<Self, LogError> {
        let copies = superblock::superblock_copies(&*device);
        let copies = copies.map(|copy| copy.unwrap_or([0; SUPERBLOCK_BYTES]));
        let superblock = match Superblock::choose(&copies[0], &copies[1]) {
            Ok(superblock) => superblock,
            // It says which block cannot be read.
            Err(fault) => {
                return Err(superblock::read_superblock(&*device)
                    .err()
                    .unwrap_or(fault.into()));
            }
        };
        let pack = |which| packs::read_pack(&*device, &superblock, which).or_else(unreadable);
        let packs = [pack(0)?, pack(1)?];
        let (state, recovery) = match recover::open(device.clone(), options.clone().reading()) {
            Ok((state, recovery)) => (Some(state), Ok(recovery)),
            Err(error) => {
                let newest = newest(&packs);
                let state = newest.map(|newest| {
                    recover::as_is(device.clone(), &superblock, newest, options.clone())
                });
                (state.transpose()?, Err(error))
            }
        };
        let copies = copies.map(|copy| Superblock::parse(&copy));
        Ok(Self {
            device,
            superblock,
            copies,
            packs,
            state,
            recovery,
        })
    }

    /// The superblock that counts.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Both copies of it.
    pub fn superblocks(&self) -> &[Result<Superblock, Fault>; 2] {
        &self.copies
    }

    /// Both checkpoints.
    pub fn packs(&self) -> &[Result<Checkpoint, Corrupt>; 2] {
        &self.packs
    }

    /// The checkpoint that counts.
    pub fn newest(&self) -> Option<&Checkpoint> {
        newest(&self.packs)
    }

    /// Returns what a mount would have to replay, or why there could be none.
    pub fn recovery(&self) -> Result<Recovery, &LogError> {
        self.recovery.as_ref().copied()
    }

    /// The groups behind the checkpoint, and whether there is a beginning of one more.
    ///
    /// # Errors
    ///
    /// When the device cannot be read, or no checkpoint is whole.
    pub fn groups(&self) -> Result<(Vec<Group>, bool), LogError> {
        let newest = self.newest().ok_or_else(no_checkpoint::<LogError>)?;
        let (groups, is_broken) = recover::groups(&*self.device, &self.superblock, newest)?;
        let groups = groups.into_iter().map(|group| {
            let recover::Group {
                sequence,
                durable,
                stream,
                ..
            } = group;
            Group {
                sequence,
                durable,
                stream,
            }
        });
        Ok((groups.collect(), is_broken))
    }

    fn state(&mut self) -> FsResult<&mut Durable> {
        self.state.as_mut().ok_or_else(no_checkpoint)
    }

    /// The inode of a path, which begins at the root.
    ///
    /// # Errors
    ///
    /// When there is none, or a directory on the way cannot be read.
    pub fn find(&mut self, path: &[u8]) -> FsResult<u32> {
        let state = self.state()?;
        let mut ino = ROOT;
        for name in path
            .split(|&byte| byte == b'/')
            .filter(|name| !matches!(*name, b"" | b"."))
        {
            ino = match state.find(ino, name)? {
                Some(Named { ino, .. }) => ino,
                None => return Err(FsError::NotFound),
            };
        }
        Ok(ino)
    }

    /// An inode and all that belongs to it.
    ///
    /// # Errors
    ///
    /// When its own node cannot be read.
    pub fn inode(&mut self, ino: u32) -> FsResult<InodeView> {
        let state = self.state()?;
        let inode = state.live(ino)?.inode().clone();
        let mut view = InodeView {
            ino,
            attributes: inode.attributes,
            entries: inode.entries,
            xattrs: Vec::new(),
            nodes: Vec::new(),
            runs: Vec::new(),
            faults: Vec::new(),
        };
        match state.xattrs(ino) {
            Ok(xattrs) => {
                let value_len = |name: &[u8]| xattrs.get(name).map_or(0, <[u8]>::len);
                view.xattrs = xattrs
                    .names()
                    .map(|name| (name.to_vec(), value_len(name)))
                    .collect();
            }
            Err(error) => view.faults.push(format!("extended attributes: {error}")),
        }
        let mut nids = vec![ino];
        match state.xattr_nids(ino) {
            Ok(further) => nids.extend(further),
            // Why is told by the attributes themselves.
            Err(_) => nids.push(inode.xattr_nid),
        }
        let faults = &mut view.faults;
        state.for_nodes(ino, &mut |nid, read| {
            nids.push(nid);
            faults.extend(read.err().map(|error| error.to_string()));
        })?;
        for nid in nids {
            match node_view(state, nid) {
                Ok(node) => view.nodes.push(node),
                Err(error) => view.faults.push(error.to_string()),
            }
        }
        find_runs(state, ino, &mut view);
        Ok(view)
    }

    /// A block, by its number on the device.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn block(&mut self, block: u64) -> FsResult<Place> {
        let bytes = read_block(&*self.device, block)?;
        let area = self.area(block);
        let mut place = Place {
            area,
            segment: None,
            is_valid: None,
            owner: None,
            is_owned: None,
            content: content(&bytes),
        };
        let (Area::Main { segment, index }, Some(state)) = (area, self.state.as_mut()) else {
            return Ok(place);
        };
        let entry = state.store.segments().segment(segment).clone();
        place.segment = HeadKind::from_raw(entry.kind).map(|kind| (kind, entry.state));
        if u32::from(index) == SEGMENT_CONTENT {
            if let Ok(owners) = summary::parse(&bytes, entry.serial) {
                place.content = Content::Summary(owners);
            }
            return Ok(place);
        }
        place.is_valid = Some(entry.is_valid(index));
        place.owner = owners::of(state, newest(&self.packs), block);
        place.is_owned = place
            .owner
            .map(|owner| owners::is_owned(state, owner, block).unwrap_or(false));
        Ok(place)
    }

    fn area(&self, block: u64) -> Area {
        let Superblock {
            checkpoint_start,
            checkpoint_blocks,
            main_start,
            segments,
            ..
        } = self.superblock;
        if block < 2 {
            return Area::Superblock(block as u8);
        }
        if let Some((pack, index)) = copy_of(block, checkpoint_start, checkpoint_blocks) {
            return Area::Checkpoint { pack, index };
        }
        let newest = self.newest();
        let tables = [
            (
                "segment table",
                self.superblock.sit_start,
                self.superblock.sit_blocks,
                newest.map(|pack| &pack.sit_bits),
            ),
            (
                "block state table",
                self.superblock.bst_start,
                self.superblock.bst_blocks,
                newest.map(|pack| &pack.bst_bits),
            ),
            (
                "node address table",
                self.superblock.nat_start,
                self.superblock.nat_blocks,
                newest.map(|pack| &pack.nat_bits),
            ),
        ];
        for (name, start, blocks, bits) in tables {
            if let Some((copy, index)) = copy_of(block, start, blocks) {
                let counts = bits.map(|bits| bits.get(index as usize) == (copy == 1));
                return Area::Table {
                    name,
                    copy,
                    index,
                    counts,
                };
            }
        }
        let at = block.checked_sub(main_start);
        let segment = at
            .map(|at| at / u64::from(SEGMENT_BLOCKS))
            .filter(|&segment| segment < segments.into());
        match (at, segment) {
            (Some(at), Some(segment)) => Area::Main {
                segment: segment as u32,
                index: (at % u64::from(SEGMENT_BLOCKS)) as u16,
            },
            _ => Area::Unused,
        }
    }
}

fn no_checkpoint<E: From<FsError>>() -> E {
    FsError::Corrupt("neither checkpoint is whole".into()).into()
}

/// A pack that lies beyond the end of the device is one that is not whole.
fn unreadable(error: LogError) -> Result<Result<Checkpoint, Corrupt>, LogError> {
    match error {
        LogError::Device(found) | LogError::Fs(FsError::Io(found))
            if found.kind() == io::ErrorKind::UnexpectedEof =>
        {
            Ok(Err(Corrupt::Checkpoint {
                rule: "the device ends before it",
                found: 0,
            }))
        }
        error => Err(error),
    }
}

fn newest(packs: &[Result<Checkpoint, Corrupt>; 2]) -> Option<&Checkpoint> {
    packs.iter().flatten().max_by_key(|pack| pack.version)
}

/// Returns which of the two copies of an area a block lies in, and where.
fn copy_of(block: u64, start: u64, blocks: u32) -> Option<(u8, u32)> {
    let at = block
        .checked_sub(start)
        .filter(|&at| at < 2 * u64::from(blocks))?;
    Some((
        (at / u64::from(blocks)) as u8,
        (at % u64::from(blocks)) as u32,
    ))
}

fn node_view(state: &mut Durable, nid: u32) -> FsResult<NodeView> {
    let place = state.place_of(nid)?;
    let header = match place.block() {
        Some(block) => {
            let block = read_block(state.store.device(), block)?;
            let node = place.node_in(nid, &block).ok();
            node.and_then(|node| NodeHeader::parse(&node).ok())
        }
        None => None,
    };
    Ok(NodeView {
        nid,
        block: place.block(),
        slot: match place {
            NodePlace::Slot(_, slot) => Some(slot),
            _ => None,
        },
        place: header.map(|header| (header.kind, header.position)),
    })
}

/// Collects where the content of an inode lies; what is below a node that cannot be read is left out.
fn find_runs(state: &mut Durable, ino: u32, view: &mut InodeView) {
    let mut at = 0;
    while at < FILE_BLOCKS && view.faults.len() < FAULTS_MAX {
        let runs = &mut view.runs;
        let read = state.next_leaf(ino, at).and_then(|leaf| {
            let Some(range) = leaf else {
                return Ok(FILE_BLOCKS);
            };
            let end = range.end;
            state.for_pointers(ino, range, |lblk, pointer| extend(runs, lblk, pointer))?;
            Ok(end)
        });
        at = read.unwrap_or_else(|error| {
            let error = error.to_string();
            if !view.faults.contains(&error) {
                view.faults.push(error);
            }
            Path::to(at).map_or(FILE_BLOCKS, |path| path.first + path.count)
        });
    }
}

/// Adds a logical block to the runs before it.
fn extend(runs: &mut Vec<Run>, lblk: u32, pointer: Pointer) {
    if let Some(run) = runs.last_mut().filter(|run| run.lblk + run.count == lblk) {
        let goes_on = match (run.pointer, pointer) {
            (Pointer::Plain(first, _), Pointer::Plain(block, _)) => {
                first + u64::from(run.count) == block
            }
            (first, pointer) => first == Pointer::Preallocated && pointer == first,
        };
        if goes_on {
            run.count += 1;
            return;
        }
    }
    runs.push(Run {
        lblk,
        count: 1,
        pointer,
    });
}

fn content(bytes: &Block) -> Content {
    if bytes.iter().all(|&byte| byte == 0) {
        return Content::Zeros;
    }
    if let Ok(header) = NodeHeader::parse(bytes) {
        return Content::Node(header);
    }
    if let Ok((header, slots)) = packed::parse(bytes) {
        let slots = slots
            .into_iter()
            .map(|slot| (slot, slot.bytes(bytes).to_vec()));
        return Content::Packed(header, slots.collect());
    }
    if dir::check(bytes, 0).is_ok() {
        let names = dir::leaf_entries(bytes)
            .into_iter()
            .flatten()
            .map_while(Result::ok);
        return Content::Directory(
            dir::level(bytes),
            names
                .map(|entry| (entry.name.to_vec(), entry.ino))
                .collect(),
        );
    }
    let mut head = [0; 32];
    head.copy_from_slice(&bytes[..32]);
    Content::Bytes(head)
}
