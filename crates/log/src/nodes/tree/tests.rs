use std::sync::Arc;

use anteros_core::{Caller, MemoryDevice, WritableDevice};

use super::*;
use crate::compress::policy::Policy;
use crate::durable::{Durable, recover};
use crate::files::names::Birth;
use crate::layout::{BLOCK_BYTES, ROOT};
use crate::options::Options;
use crate::{Shape, mkfs, system_clock};

/// A log with an empty file, and its inode.
fn with_file(policy: Policy) -> (Durable, u32) {
    let device: Arc<dyn WritableDevice> = Arc::new(MemoryDevice::new(vec![0; 32 << 20]));
    let options = Options {
        policy,
        ..Options::new(system_clock)
    };
    mkfs(&device, &Shape::default(), Caller::default(), &options).unwrap();
    let mut state = recover::open(device, options).unwrap().0;
    let birth = Birth::of_empty_file();
    let ino = state.make(ROOT, b"file-journal", &birth).unwrap();
    (state, ino)
}

fn fill(state: &mut Durable, ino: u32, first: u32, blocks: usize) {
    let offset = u64::from(first) * BLOCK_BYTES as u64;
    let content = vec![1; blocks * BLOCK_BYTES];
    state.write(ino, offset, &content).unwrap();
    state.commit(&[ino]).unwrap();
}

/// Tests that a broken pointer leaves those beside it as they are, for a repair to find.
#[test]
fn pointers_of_a_node_are_cleared_all_or_not_at_all() {
    let (mut state, ino) = with_file(Policy::None);
    fill(&mut state, ino, 0, 3);
    let first = state.pointer(ino, 0).unwrap();
    let pointers = state.live(ino).unwrap().pointers_mut();
    node::set_pointer(pointers, NodeKind::Inode, 2, u64::MAX);
    let cleared = state.clear_pointers(ino, 0..FILE_BLOCKS);
    assert!(matches!(cleared, Err(FsError::Corrupt(_))), "{cleared:?}");
    assert!(matches!(first, Pointer::Plain(..)));
    assert_eq!(state.pointer(ino, 0).unwrap(), first);
}

/// Tests that a chunk is given back with the last of its pointers, some of which lie in another node.
#[test]
fn a_chunk_goes_with_the_last_of_its_pointers() {
    let (mut state, ino) = with_file(Policy::Force);
    let slots = |state: &Durable| state.store.bst().occupancy().1;
    let first = INODE_POINTERS - 8;
    fill(&mut state, ino, first, 16);
    let chunk = state.pointer(ino, first).unwrap().chunk();
    let last = state.pointer(ino, first + 15).unwrap();
    assert!(chunk.is_some() && last.chunk() == chunk);
    let (used, valid) = (state.store.space().used(), slots(&state));
    state.clear_pointers(ino, 0..first + 15).unwrap();
    assert_eq!(
        (slots(&state), state.pointer(ino, first + 15).unwrap()),
        (valid, last)
    );
    state.clear_pointers(ino, 0..FILE_BLOCKS).unwrap();
    assert_eq!(slots(&state), valid - 1);
    assert!(state.store.space().used() < used);
    // That of the inode is left.
    assert_eq!(state.live(ino).unwrap().inode().attributes.blocks, 0);
}

#[test]
fn a_way_leads_through_the_subtrees_that_have_the_block() {
    let inner = DIRECT_POINTERS * INDIRECT_NIDS;
    let edges = [
        INODE_POINTERS,
        INODE_POINTERS + DIRECT_POINTERS,
        INODE_POINTERS + 2 * DIRECT_POINTERS,
        INODE_POINTERS + 2 * DIRECT_POINTERS + inner,
        INODE_POINTERS + 2 * DIRECT_POINTERS + 2 * inner,
        INODE_POINTERS + 2 * DIRECT_POINTERS + 5 * inner,
    ];
    for lblk in edges
        .into_iter()
        .flat_map(|edge| [edge, edge + 600])
        .chain([FILE_BLOCKS - 1])
    {
        let path = Path::to(lblk).unwrap();
        let root = path.root.unwrap();
        let mut tree = Subtree::all([1; 5]).nth(root.into()).unwrap();
        for step in path.steps() {
            assert!((tree.first..tree.end()).contains(&lblk), "block {lblk}");
            let place = (tree.level, tree.position);
            assert_eq!(place, (step.level, step.position), "block {lblk}");
            if step.level > 0 {
                tree = tree.child(1, step.index.into());
            }
        }
        assert_eq!(tree.first, path.first, "block {lblk}");
    }
}
