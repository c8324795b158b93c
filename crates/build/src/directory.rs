//! The content of directories.

use anteros_core::FileKind;
use anteros_format::dirent::{DIRENT_BYTES, RawDirent, file_type_of};
use zerocopy::IntoBytes;

use crate::Options;
use crate::tree::{NodeId, Tree};

/// Bytes of a directory's content: whole blocks, the last one up to its last name.
pub(crate) fn bytes(tree: &Tree, id: NodeId, options: &Options) -> u64 {
    let block_bytes = options.block_bytes();
    let entries = entries(tree, id, options);
    let (mut full, mut last) = (0, 0);
    for block in blocks(&entries, block_bytes as usize) {
        full += u64::from(last != 0);
        last = block_len(block);
    }
    full * u64::from(block_bytes) + last as u64
}

/// A directory's content; `nid` says where each node's inode lies.
pub(crate) fn encode(
    tree: &Tree,
    id: NodeId,
    options: &Options,
    nid: impl Fn(NodeId) -> u64,
) -> Vec<u8> {
    let block_bytes = options.block_bytes() as usize;
    let entries = entries(tree, id, options);
    let mut out = Vec::new();
    for block in blocks(&entries, block_bytes) {
        out.resize(out.len().next_multiple_of(block_bytes), 0);
        let mut nameoff = block.len() * DIRENT_BYTES;
        for &(name, node) in block {
            let raw = RawDirent {
                nid: nid(node).into(),
                nameoff: (nameoff as u16).into(), // less than a block
                file_type: file_type_of(tree.node(node).kind),
                reserved: 0,
            };
            out.extend_from_slice(raw.as_bytes());
            nameoff += name.len();
        }
        block
            .iter()
            .for_each(|(name, _)| out.extend_from_slice(name));
    }
    out
}

type NamedNode<'a> = (&'a [u8], NodeId);

/// All entries in the order of their bytes, `..` and, unless it is omitted, `.` where they belong.
fn entries<'a>(tree: &'a Tree, id: NodeId, options: &Options) -> Vec<NamedNode<'a>> {
    let node = tree.node(id);
    debug_assert_eq!(node.kind, FileKind::Directory);
    let named = tree
        .entries_of(id)
        .iter()
        .map(|e| (tree.name(e.name), e.node));
    let mut entries: Vec<NamedNode<'_>> = named.collect();
    let dots = [(&b"."[..], id), (b"..", node.parent)];
    for dots in dots.into_iter().skip(options.dot_omitted.into()) {
        let at = entries.partition_point(|(name, _)| *name < dots.0);
        entries.insert(at, dots);
    }
    entries
}

/// Cuts entries into blocks, as many in each as fit.
fn blocks<'a, 'n>(
    entries: &'a [NamedNode<'n>],
    block_bytes: usize,
) -> impl Iterator<Item = &'a [NamedNode<'n>]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let mut used = 0;
        let overflows = |(name, _): &NamedNode<'_>| {
            used += DIRENT_BYTES + name.len();
            used > block_bytes
        };
        let count = rest.iter().position(overflows).unwrap_or(rest.len());
        let (block, after) = rest.split_at(count);
        rest = after;
        (!block.is_empty()).then_some(block)
    })
}

fn block_len(block: &[NamedNode<'_>]) -> usize {
    block
        .iter()
        .map(|(name, _)| DIRENT_BYTES + name.len())
        .sum()
}
