//! An empty log on a device.

use std::sync::Arc;

use anteros_core::{Caller, FileKind, Rdev, Timestamp, WritableDevice};

use crate::durable::Durable;
use crate::error::LogError;
use crate::files::Files;
use crate::layout::bits::Bits;
use crate::layout::node::{Attributes, Inode};
use crate::layout::superblock::Shape;
use crate::layout::{BLOCK_BYTES, ROOT, Superblock, dir};
use crate::nodes::Nodes;
use crate::nodes::nat::Nat;
use crate::options::Options;
use crate::packing::Packer;
use crate::store::bst::BlockStateTable;
use crate::store::segments::Segments;
use crate::store::space::Space;
use crate::store::superblock::write_superblock;
use crate::store::table::{CopiedTable, SIT_JOURNAL_MAX, SegmentTable};
use crate::store::{Parts, Store};

/// Makes an empty log on a device, whose content is lost. The root directory belongs to `owner`.
///
/// # Errors
///
/// When the device is too small, or cannot be read or written.
pub fn mkfs(
    device: &Arc<dyn WritableDevice>,
    shape: &Shape,
    owner: Caller,
    options: &Options,
) -> Result<(), LogError> {
    let superblock = Superblock::plan(device.size() / BLOCK_BYTES as u64, shape)?;
    // From here on there is no log on the device until there is a new one.
    clear(device, 0..superblock.main_start)?;
    device.flush()?;
    let mut state = empty(device, superblock.clone(), options.clone());
    make_root(&mut state, owner);
    state.checkpoint(true)?;
    write_superblock(&**device, &superblock)
}

/// Makes blocks zero. That they read as zeros says nothing: they may have been discarded.
pub(crate) fn clear(
    device: &Arc<dyn WritableDevice>,
    blocks: std::ops::Range<u64>,
) -> Result<(), LogError> {
    let unit = BLOCK_BYTES as u64;
    Ok(device.zero(blocks.start * unit, (blocks.end - blocks.start) * unit)?)
}

fn empty(device: &Arc<dyn WritableDevice>, superblock: Superblock, options: Options) -> Durable {
    let entries = vec![Default::default(); superblock.segments as usize];
    let sequence = first_sequence(&superblock, (options.clock)());
    let nat = Nat::new(
        device.clone(),
        &superblock,
        Bits::new(superblock.nat_blocks as usize),
        [],
        ROOT + 1,
        1,
    );
    let store = Store::new(Parts {
        device: device.clone(),
        segments: Segments::new(&superblock, &entries, 0),
        bst: BlockStateTable::new(
            device.clone(),
            &superblock,
            Bits::new(superblock.bst_blocks as usize),
        ),
        space: Space::new(superblock.capacity(), 1, 0),
        sit: SegmentTable {
            table: CopiedTable::first(superblock.sit_start, superblock.sit_blocks),
            newer: Default::default(),
            journal_max: SIT_JOURNAL_MAX,
        },
        superblock,
        options,
        version: 0,
    });
    let nodes = Nodes::new(store, nat, 0);
    Durable::new(Files::new(Packer::new(nodes)), sequence)
}

/// Returns where the numbers of groups begin: anywhere, so that those of a log that was here before are not taken for
/// this one's, even if that had the same UUID.
fn first_sequence(superblock: &Superblock, made: Timestamp) -> u64 {
    let made = [&made.secs.to_le_bytes()[..], &made.nanos.to_le_bytes()];
    let birth = [&superblock.uuid[..], made[0], made[1]].concat();
    dir::hash(&birth, &superblock.hash_seed) >> 1 | 1
}

fn make_root(state: &mut Durable, owner: Caller) {
    let now = state.store.now();
    let attributes = Attributes {
        kind: FileKind::Directory,
        perm: 0o755,
        is_inline: true,
        is_launched: false,
        is_settled: false,
        is_own: false,
        nlink: 2,
        uid: owner.uid,
        gid: owner.gid,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        generation: 0,
        parent: ROOT,
        rdev: Rdev::default(),
    };
    state.nodes.make_root(Inode::empty(attributes));
}
