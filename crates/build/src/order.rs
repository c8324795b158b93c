//! The order in which files are read and stored.
//!
//! Like files had best lie together where clusters are large: then one is a few references to the other. Which names a
//! tree has tells much of that for nothing: translations of a program, licences, indexes of manuals have the same name in
//! many directories.

use std::collections::HashMap;
use std::ops::Range;

use anteros_core::FileKind;

use crate::kinds::{HEAD_BYTES, Kind, extension};
use crate::look::Look;
use crate::tree::{NodeId, Tree};
use crate::{Error, Order};

/// Bytes of the files of a group, but for a last one that is larger.
const GROUP_BYTES: u64 = 16 << 20;

impl Order {
    /// All nodes in this order.
    fn of(self, look: &Look<'_>) -> Result<Vec<NodeId>, Error> {
        Ok(match self {
            Self::Path | Self::Stream => look.tree.ids().collect(),
            Self::Group => by_group(look.tree, GROUP_BYTES),
            Self::Name => by_name(look.tree, look.tree.ids()),
            Self::Kind => by_kind(look.tree, &look.kinds()?),
        })
    }
}

/// Some nodes in a row, files of one name where the first of them is listed.
fn by_name(tree: &Tree, ids: Range<NodeId>) -> Vec<NodeId> {
    let mut named = HashMap::new();
    let place = |id| match tree.node(id) {
        node if node.kind == FileKind::Regular => *named.entry(tree.name(node.name)).or_insert(id),
        _ => id,
    };
    let places: Vec<NodeId> = ids.clone().map(place).collect();
    let mut order: Vec<NodeId> = ids.clone().collect();
    order.sort_by_key(|&id| places[(id - ids.start) as usize]);
    order
}

/// All nodes, group by group.
fn by_group(tree: &Tree, group_bytes: u64) -> Vec<NodeId> {
    let mut order = Vec::new();
    let all = tree.ids();
    let mut start = all.start;
    while start < all.end {
        let end = group_end(tree, start, group_bytes);
        order.extend(by_name(tree, start..end));
        start = end;
    }
    order
}

/// The node at which the group ends that begins at one: in its second half, where the directories on both sides
/// have the least in common.
fn group_end(tree: &Tree, start: NodeId, group_bytes: u64) -> NodeId {
    let end = tree.ids().end;
    let (mut bytes, mut best) = (0, None);
    for id in start..end {
        let node = tree.node(id);
        if node.kind == FileKind::Regular {
            bytes += node.size;
        }
        if bytes > group_bytes {
            return best.map_or(id + 1, |(_, end)| end);
        }
        if bytes > group_bytes / 2 && id + 1 < end {
            let shared = shared_directories(tree, id, id + 1);
            if best.is_none_or(|(least, _)| shared <= least) {
                best = Some((shared, id + 1));
            }
        }
    }
    end
}

/// Directories from the root on that lead to both of two nodes; as many as can be, if one directory has both of them.
fn shared_directories(tree: &Tree, left: NodeId, right: NodeId) -> usize {
    let [left, right] = [left, right].map(|id| tree.node(id).parent);
    if left == right {
        return usize::MAX;
    }
    let [left, right] = [left, right].map(|id| tree.ancestors(id));
    left.zip(right).take_while(|(a, b)| a == b).count()
}

/// All nodes, files of one kind together, and of these such with one extension where the first of them is by name.
fn by_kind(tree: &Tree, kinds: &[Kind]) -> Vec<NodeId> {
    let mut order = by_name(tree, tree.ids());
    let mut firsts = HashMap::new();
    let mut places = vec![(Kind::Empty, 0); order.len()];
    for (place, &id) in order.iter().enumerate() {
        let kind = kinds[id as usize];
        let extension = extension(tree.name(tree.node(id).name));
        let first = *firsts.entry((kind, extension)).or_insert(place);
        places[id as usize] = (kind, first);
    }
    order.sort_by_key(|&id| places[id as usize]);
    order
}

impl Look<'_> {
    /// The kind of each node's content.
    fn kinds(&self) -> Result<Vec<Kind>, Error> {
        let ids: Vec<NodeId> = self.tree.ids().collect();
        self.all(&ids, |look, &id| look.kind(id))
    }

    fn kind(&self, id: NodeId) -> Result<Kind, Error> {
        let node = self.tree.node(id);
        if node.kind != FileKind::Regular || node.size == 0 {
            return Ok(Kind::Empty);
        }
        let mut head = vec![0; HEAD_BYTES.min(node.size as usize)];
        let file = self.source.open_file(self.tree, id)?;
        file.read(0, &mut head)?;
        file.finish()?;
        Ok(Kind::of(&head))
    }
}

/// All nodes in the order in which their content is stored: those of a list in front.
pub(crate) fn of(look: &Look<'_>) -> Result<Vec<NodeId>, Error> {
    let Look { tree, options, .. } = *look;
    let mut order = options.order.of(look)?;
    put_first(&mut order, tree, &options.first);
    Ok(order)
}

/// Puts the nodes of a list in front.
fn put_first(order: &mut [NodeId], tree: &Tree, list: &[Vec<u8>]) {
    if !list.is_empty() {
        let places = places(tree, list);
        order.sort_by_key(|&id| places[id as usize]);
    }
}

/// The place of each node in a list of paths; that of its directory, if only that one is listed.
fn places(tree: &Tree, list: &[Vec<u8>]) -> Vec<usize> {
    let mut places = vec![list.len(); tree.nodes.len()];
    let mut is_listed = vec![false; tree.nodes.len()];
    for (place, path) in list.iter().enumerate() {
        let Some(id) = tree.find(path) else {
            continue;
        };
        if !std::mem::replace(&mut is_listed[id as usize], true) {
            places[id as usize] = place;
        }
    }
    // A directory comes in front of what lies in it.
    for id in tree.ids() {
        if !is_listed[id as usize] {
            places[id as usize] = places[tree.node(id).parent as usize];
        }
    }
    places
}

/// Warns of paths in the list that lead to nothing.
pub(crate) fn missing(tree: &Tree, list: &[Vec<u8>]) -> Option<String> {
    let mut missing = list.iter().filter(|path| tree.find(path).is_none());
    let first = String::from_utf8_lossy(missing.next()?);
    let count = missing.count() + 1;
    let all = list.len();
    Some(format!(
        "{count} of the {all} paths that are to be stored first are not there; the first of them is {first}"
    ))
}

#[cfg(test)]
mod tests {
    use anteros_core::Timestamp;

    use super::*;
    use crate::sparse::Allocation;
    use crate::tree::{Entry, Fingerprint, NameRef, Node};

    fn node(kind: FileKind, name: NameRef) -> Node {
        let time = Timestamp::default();
        Node {
            kind,
            perm: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            allocation: Allocation::Whole,
            mtime: time,
            rdev: 0,
            parent: 0,
            name,
            xattrs: 0..0,
            fingerprint: Fingerprint::default(),
            entries: 0..0,
            target: NameRef::default(),
        }
    }

    fn tree(names: &[&str]) -> Tree {
        let mut tree = Tree::default();
        for name in names {
            let kind = match *name {
                "directory" => FileKind::Directory,
                _ => FileKind::Regular,
            };
            let name = tree.intern(name.as_bytes());
            tree.nodes.push(node(kind, name));
        }
        tree
    }

    /// A root with the files `a` and `b` and the directory `d`, and in that a file `c`.
    fn nested() -> Tree {
        let mut tree = tree(&["", "a", "b", "directory", "c"]);
        tree.nodes[0].kind = FileKind::Directory;
        tree.nodes[4].parent = 3;
        let d = tree.intern(b"d");
        let names = [1, 2, 3, 4].map(|id| tree.node(id).name);
        for (name, node) in [names[0], names[1], d, names[3]].into_iter().zip(1..) {
            tree.entries.push(Entry { name, node });
        }
        tree.nodes[0].entries = 0..3;
        tree.nodes[3].entries = 3..4;
        tree
    }

    #[test]
    fn namesakes_lie_where_the_first_one_does() {
        let tree = tree(&["b", "a", "directory", "a", "b", "d", "a", "directory"]);
        assert_eq!(by_name(&tree, tree.ids()), [0, 4, 1, 3, 6, 2, 5, 7]);
    }

    #[test]
    fn groups_end_where_directories_have_the_least_in_common() {
        // Three directories with two files each, and in the last a further one with two.
        let mut tree = tree(&[
            "", "x", "y", "z", "a", "b", "a", "b", "a", "b", "w", "a", "b",
        ]);
        let parents = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 10, 10];
        for (node, parent) in tree.nodes.iter_mut().zip(parents) {
            node.parent = parent;
        }
        for id in [0, 1, 2, 3, 10] {
            tree.nodes[id].kind = FileKind::Directory;
        }
        for node in &mut tree.nodes {
            node.size = 10;
        }
        let ends = |bytes: u64| {
            let mut ends = vec![0];
            while ends.last() < Some(&13) {
                ends.push(group_end(&tree, *ends.last().unwrap(), bytes));
            }
            ends
        };
        assert_eq!(ends(80), [0, 13]);
        assert_eq!(ends(79), [0, 8, 13]);
        assert_eq!(ends(35), [0, 6, 8, 11, 13]);
        assert_eq!(ends(5), [0, 5, 6, 7, 8, 9, 10, 12, 13]);
        let order = [0, 1, 2, 3, 4, 6, 5, 7, 8, 11, 9, 12, 10];
        assert_eq!(by_group(&tree, 79), order);
        assert_eq!(by_group(&tree, 1000), by_name(&tree, tree.ids()));
    }

    #[test]
    fn kinds_lie_together_and_in_them_extensions() {
        let tree = tree(&[
            "x.c",
            "a.h",
            "b.c",
            "run",
            "x.c",
            "directory",
            "b.h",
            "empty",
        ]);
        let mut kinds = [Kind::Text; 8];
        kinds[3] = Kind::Code;
        kinds[5] = Kind::Empty;
        kinds[7] = Kind::Empty;
        assert_eq!(by_kind(&tree, &kinds), [3, 0, 4, 2, 1, 6, 5, 7]);
    }

    #[test]
    fn listed_files_lie_in_front_of_all_others() {
        let tree = nested();
        let list = |paths: &[&str]| {
            let list: Vec<_> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
            let mut order: Vec<NodeId> = tree.ids().collect();
            put_first(&mut order, &tree, &list);
            (order, missing(&tree, &list))
        };
        assert_eq!(list(&["d/c", "a"]), (vec![4, 1, 0, 2, 3], None));
        assert_eq!(list(&["b", "d", "a", "/b/"]), (vec![2, 3, 4, 1, 0], None));
        let (order, missing) = list(&["a/a", "c", "d", "d/c", ".."]);
        assert_eq!(order, [3, 4, 0, 1, 2]);
        assert_eq!(missing.unwrap().split(' ').next(), Some("3"));
    }
}
