//! Layers one over another, merged into one [`Tree`].
//!
//! ```text
//! layer 2    a/  b        d (whiteout)   e/ (opaque)
//! layer 1    a/           d/             e/
//! layer 0    a/  b  c     d/             e/
//!            ──────────────────────────────────────
//! tree       a/  b  c                    e/
//!            │   │  └ of layer 0         └ what layer 2 has in it
//!            │   └ of layer 2
//!            └ what all layers have in it, with the properties of layer 2
//! ```
//!
//! A directory of the tree is made of a pile of directories: those of its name in all layers, from the
//! uppermost down to one that is opaque, or to a layer that has something else there. Anything else is
//! one node of the uppermost layer that has the name. Nodes are numbered as those of a directory are.
//!
//! A hard link of an archive to what no member of it is leads to the inode that the layers below have
//! there; both are names of it then. Marks of layers, which are whiteouts and the attributes of
//! overlayfs, are not in the tree.

use std::path::PathBuf;

use anteros_core::FileKind;

use crate::source::layers::{Layers, Origin};
use crate::source::{Gaps, Link, Scanned, Source};
use crate::tar::whiteout;
use crate::times;
use crate::tree::{Entry, Node, NodeId, Tree};
use crate::xattr::Xattr;
use crate::{Error, Options};

/// Nodes that a name stands for, from the uppermost layer down: several directories, one of anything
/// else, or none.
type Pile = Vec<Origin>;

/// Merges layers, the lowest first.
pub(crate) fn merge(layers: Vec<Scanned>, options: &Options) -> Result<Scanned, Error> {
    if layers.is_empty() {
        return Err(Error::Option(
            "there is no layer to build an image of".into(),
        ));
    }
    let layers = Layers::new(layers);
    check_count(&layers)?;
    let nodes_of = |layer: &Scanned| vec![None; layer.tree.nodes.len()];
    let mut merge = Merge {
        nodes_of: layers.all().iter().map(nodes_of).collect(),
        layers: &layers,
        options,
        tree: Tree::default(),
        origins: Vec::new(),
        implied: Vec::new(),
    };
    let root = root(&layers, layers.count());
    merge.add(&root, 0, b"")?;
    let mut directories = vec![(0, root)];
    while let Some((id, pile)) = directories.pop() {
        let subdirectories = merge.directory(id, &pile)?;
        directories.extend(subdirectories.into_iter().rev());
    }
    let Merge {
        mut tree,
        origins,
        implied,
        ..
    } = merge;
    times::give_implied(&mut tree, &implied, options);
    Ok(Scanned {
        tree,
        warnings: layers.all().iter().map(|layer| layer.warnings).sum(),
        source: Source::Layers(layers.with(origins)),
        gaps: Gaps::default(),
    })
}

/// Makes sure that numbers of nodes and entries suffice.
fn check_count(layers: &Layers) -> Result<(), Error> {
    let names = |layer: &Scanned| layer.tree.entries.len() as u64 + 1;
    match layers.all().iter().map(names).sum::<u64>() < u32::MAX.into() {
        true => Ok(()),
        false => Err(Error::Unstorable {
            path: layers.path().to_owned(),
            reason: "all layers have more names than 32 bits can count".into(),
        }),
    }
}

/// The way through all layers at once.
struct Merge<'a> {
    layers: &'a Layers,
    options: &'a Options,
    tree: Tree,
    /// The origin of each node.
    origins: Vec<Origin>,
    /// Directories that no layer names.
    implied: Vec<NodeId>,
    /// For each node of each layer the one that it is in the tree.
    nodes_of: Vec<Vec<Option<NodeId>>>,
}

impl Merge<'_> {
    /// Adds the children of a directory; answers which of them are directories.
    fn directory(&mut self, id: NodeId, pile: &Pile) -> Result<Vec<(NodeId, Pile)>, Error> {
        let layers = self.layers;
        let path = match self.options.exclude.is_empty() {
            true => Vec::new(),
            false => self.tree.path(id),
        };
        let start = self.tree.entries.len() as u32;
        let mut subdirectories = Vec::new();
        for same in listing(layers, pile).chunk_by(|one, other| one.0 == other.0) {
            let name = same[0].0;
            if self.options.is_excluded(&path, name) {
                continue;
            }
            let pile = piled(layers, same.iter().map(|(_, at)| *at))?;
            if pile.is_empty() {
                continue;
            }
            let node = self.entry(&pile, id, name)?;
            if self.tree.node(node).kind == FileKind::Directory {
                subdirectories.push((node, pile));
            }
        }
        let end = self.tree.entries.len() as u32;
        let node = &mut self.tree.nodes[id as usize];
        node.entries = start..end;
        node.nlink = 2 + subdirectories.len() as u32;
        Ok(subdirectories)
    }

    /// Adds an entry, and its node unless that is known by another name.
    fn entry(&mut self, pile: &Pile, parent: NodeId, name: &[u8]) -> Result<NodeId, Error> {
        let at = pile[0];
        let known = self.nodes_of[at.layer as usize][at.node as usize];
        let (node, name) = match known.filter(|_| !self.options.hard_dereference) {
            Some(node) => {
                self.tree.nodes[node as usize].nlink += 1;
                (node, self.tree.intern(name))
            }
            None => {
                let node = self.add(pile, parent, name)?;
                (node, self.tree.node(node).name)
            }
        };
        self.tree.entries.push(Entry { name, node });
        Ok(node)
    }

    fn add(&mut self, pile: &Pile, parent: NodeId, name: &[u8]) -> Result<NodeId, Error> {
        let layers = self.layers;
        for &at in pile {
            refuse_redirected(layers, at)?;
        }
        let id = self.tree.nodes.len() as NodeId;
        let named = pile.iter().find(|at| !is_implied(layers, **at));
        if named.is_none() {
            self.implied.push(id);
        }
        let at = *named.unwrap_or(&pile[0]);
        let tree = &layers.layer(at).tree;
        let node = tree.node(at.node);
        let node = Node {
            nlink: 1,
            parent,
            name: self.tree.intern(name),
            xattrs: self.tree.xattrs.add(self.xattrs(at)),
            entries: 0..0,
            target: self.tree.intern(tree.name(node.target)),
            ..node.clone()
        };
        self.tree.nodes.push(node);
        self.origins.push(at);
        let first = pile[0];
        self.nodes_of[first.layer as usize][first.node as usize] = Some(id);
        Ok(id)
    }

    /// Returns the attributes of a node as overlayfs shows them.
    fn xattrs(&self, at: Origin) -> Vec<Xattr> {
        match self.options.xattr_share_above {
            None => Vec::new(),
            Some(_) => found_xattrs(self.layers, at).filter_map(shown).collect(),
        }
    }
}

/// All names in a pile of directories, sorted; of equal ones the uppermost comes first.
fn listing<'a>(layers: &'a Layers, pile: &Pile) -> Vec<(&'a [u8], Origin)> {
    let mut names = Vec::new();
    for &Origin { layer, node } in pile {
        let tree = &layers.all()[layer as usize].tree;
        let entries = tree.entries_of(node).iter();
        names.extend(entries.map(|entry| {
            let node = entry.node;
            (tree.name(entry.name), Origin { layer, node })
        }));
    }
    names.sort_by(|one, other| one.0.cmp(other.0));
    names
}

/// The root of the layers below a number.
fn root(layers: &Layers, below: u32) -> Pile {
    let roots = (0..below).rev().map(|layer| Origin { layer, node: 0 });
    directories(layers, roots)
}

/// Nodes that count of those that a name has, from the uppermost layer down.
fn piled(layers: &Layers, mut found: impl Iterator<Item = Origin>) -> Result<Pile, Error> {
    let Some(first) = found.next() else {
        return Ok(Vec::new());
    };
    let first = resolved(layers, first)?;
    Ok(match layers.node(first).kind {
        _ if is_whiteout(layers, first) => Vec::new(),
        FileKind::Directory => directories(layers, std::iter::once(first).chain(found)),
        _ => vec![first],
    })
}

/// Directories from the first one down, as far as they are merged.
fn directories(layers: &Layers, found: impl Iterator<Item = Origin>) -> Pile {
    let mut pile = Vec::new();
    for at in found {
        if layers.node(at).kind != FileKind::Directory {
            break;
        }
        pile.push(at);
        if is_opaque(layers, at) {
            break;
        }
    }
    pile
}

/// The node itself, or of a hard link to a lower layer its target.
fn resolved(layers: &Layers, at: Origin) -> Result<Origin, Error> {
    let Some(link) = layers.layer(at).gaps.links.get(&at.node) else {
        return Ok(at);
    };
    let fail = |what: &str| {
        let Scanned { source, tree, .. } = layers.layer(at);
        let target = link.target.escape_ascii();
        Error::Archive {
            path: source.path().to_owned(),
            member: tree.path(at.node),
            offset: link.offset,
            reason: format!("it is a hard link to `{target}`, {what}"),
        }
    };
    match below(layers, at.layer, link)?[..] {
        [] => Err(fail(
            "which neither a member before it nor a layer below it has",
        )),
        [found, ..] if layers.node(found).kind == FileKind::Directory => Err(fail("a directory")),
        [found, ..] => Ok(found),
    }
}

/// Nodes that the target of a link stands for in the layers below that of the link.
fn below(layers: &Layers, layer: u32, link: &Link) -> Result<Pile, Error> {
    let mut pile = root(layers, layer);
    for name in link.target.split(|byte| *byte == b'/') {
        let entry = |at: &Origin| {
            let node = layers.layer(*at).tree.entry(at.node, name)?;
            Some(Origin { node, ..*at })
        };
        let found: Pile = pile.iter().filter_map(entry).collect();
        pile = piled(layers, found.into_iter())?;
        if pile.is_empty() {
            break;
        }
    }
    Ok(pile)
}

fn is_implied(layers: &Layers, at: Origin) -> bool {
    let implied = &layers.layer(at).gaps.implied;
    implied.binary_search(&at.node).is_ok()
}

/// Returns whether a name is gone: a device is there, or an empty file with an attribute, for devices need more rights.
fn is_whiteout(layers: &Layers, at: Origin) -> bool {
    let node = layers.node(at);
    let is_empty = node.kind == FileKind::Regular && node.size == 0;
    let mark = |xattr: &Xattr| whiteout::of_overlay(xattr.name()) == Some(b"whiteout");
    whiteout::is_whiteout(node.kind, node.rdev) || is_empty && found_xattrs(layers, at).any(mark)
}

/// Returns whether a directory hides what lower layers have in it.
fn is_opaque(layers: &Layers, at: Origin) -> bool {
    found_xattrs(layers, at).any(|xattr| {
        whiteout::of_overlay(xattr.name()) == Some(b"opaque")
            && xattr.value() == whiteout::IS_OPAQUE
    })
}

/// Refuses what overlayfs has only a reference to: its content is under another name.
fn refuse_redirected(layers: &Layers, at: Origin) -> Result<(), Error> {
    let is_reference = |xattr: &&Xattr| {
        let property = whiteout::of_overlay(xattr.name());
        matches!(property, Some(b"redirect" | b"metacopy"))
    };
    let unstorable = |xattr: &Xattr, path: PathBuf| Error::Unstorable {
        path,
        reason: format!(
            "its attribute {} says that its content is elsewhere; mount the layers, and pack that",
            xattr.name().escape_ascii()
        ),
    };
    match found_xattrs(layers, at).find(is_reference) {
        Some(xattr) => Err(unstorable(xattr, layers.place(at))),
        None => Ok(()),
    }
}

/// The attribute that overlayfs shows of one that a layer has: none of its own, and those of another overlayfs, which it
/// has put below its own, by their names.
fn shown(xattr: &Xattr) -> Option<Xattr> {
    let name = xattr.name();
    let Some(property) = whiteout::of_overlay(name) else {
        return Some(xattr.clone());
    };
    let inner = property.strip_prefix(b"overlay.")?;
    let beginning = &name[..name.len() - property.len()];
    let inner = Xattr::new(&[beginning, inner].concat(), xattr.value());
    Some(inner.expect("it is shorter"))
}

fn found_xattrs(layers: &Layers, at: Origin) -> impl Iterator<Item = &Xattr> {
    let tree = &layers.layer(at).tree;
    tree.xattrs.of(&tree.node(at.node).xattrs)
}
