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
//! overlayfs, are not in the tree, unless it is to be a layer itself.

mod pile;

use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::FileKind;

use crate::source::layers::{Layers, Origin};
use crate::source::{Gaps, Scanned, Source};
use crate::tar::whiteout;
use crate::times;
use crate::tree::{Entry, Node, NodeId, Tree};
use crate::xattr::Xattr;
use crate::{Error, Options};
use pile::{
    Pile, found_xattrs, hides_lower, is_implied, listing, piled, refuse_redirected, root, shown,
};

/// Most layers, as many as overlayfs takes.
const LAYERS_MAX: usize = 500;

/// Merges layers, the lowest first.
pub(crate) fn merge(
    layers: Vec<Scanned>,
    options: &Options,
    cancel: &AtomicBool,
) -> Result<Scanned, Error> {
    let layers = Layers::new(layers);
    check_names(&layers)?;
    let nodes_of = |layer: &Scanned| vec![None; layer.tree.nodes.len()];
    let mut merge = Merge {
        nodes_of: layers.all().iter().map(nodes_of).collect(),
        layers: &layers,
        options,
        cancel,
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

/// Makes sure that layers are not too many, for links lead from one to another.
pub(crate) fn check_count(count: usize) -> Result<(), Error> {
    match count {
        0 => Err(Error::Option(
            "there is no layer to build an image of".into(),
        )),
        1..=LAYERS_MAX => Ok(()),
        _ => Err(Error::Option(format!(
            "{count} layers; {LAYERS_MAX} are the most"
        ))),
    }
}

/// Makes sure that numbers of nodes and entries suffice.
fn check_names(layers: &Layers) -> Result<(), Error> {
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
    cancel: &'a AtomicBool,
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
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let name = same[0].0;
            if self.options.is_excluded(&path, name) {
                continue;
            }
            let pile = piled(
                layers,
                same.iter().map(|(_, at)| *at),
                self.options.keep_overlay,
            )?;
            if pile.is_empty() {
                continue;
            }
            let node = self.entry(&pile, id, name)?;
            self.mark(id, node, &pile, same.len());
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

    /// Has the image tell what it hides of layers below it, if it is to be a layer itself: a directory that hides what others
    /// have of it is opaque, and one with whiteouts in it has been copied up, so that overlayfs looks for them.
    fn mark(&mut self, parent: NodeId, id: NodeId, pile: &Pile, same: usize) {
        if !self.options.keep_overlay {
            return;
        }
        let node = self.tree.node(id);
        if whiteout::is_whiteout(node.kind, node.rdev) {
            self.tree.set_xattr(parent, whiteout::ORIGIN, Some(b""));
        } else if node.kind == FileKind::Directory && hides_lower(self.layers, pile, same) {
            let value = Some(whiteout::IS_OPAQUE);
            self.tree.set_xattr(id, whiteout::OPAQUE, value);
        }
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
            Some(_) if self.options.keep_overlay => {
                found_xattrs(self.layers, at).cloned().collect()
            }
            Some(_) => found_xattrs(self.layers, at).filter_map(shown).collect(),
        }
    }
}
