//! Piles of nodes: what the layers have of a name, as far as it counts.

use std::path::PathBuf;

use anteros_core::FileKind;

use crate::Error;
use crate::source::layers::{Layers, Origin};
use crate::source::{Link, Scanned};
use crate::tar::whiteout;
use crate::xattr::Xattr;

/// Nodes that a name stands for, from the uppermost layer down: several directories, one of anything
/// else, or none.
pub(super) type Pile = Vec<Origin>;

/// All names in a pile of directories, sorted; of equal ones the uppermost comes first.
pub(super) fn listing<'a>(layers: &'a Layers, pile: &Pile) -> Vec<(&'a [u8], Origin)> {
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
pub(super) fn root(layers: &Layers, below: u32) -> Pile {
    let roots = (0..below).rev().map(|layer| Origin { layer, node: 0 });
    directories(layers, roots)
}

/// Nodes that count of those that a name has, from the uppermost layer down; also a whiteout if these are kept.
pub(super) fn piled(
    layers: &Layers,
    mut found: impl Iterator<Item = Origin>,
    keeps_whiteouts: bool,
) -> Result<Pile, Error> {
    let Some(first) = found.next() else {
        return Ok(Vec::new());
    };
    let first = resolved(layers, first)?;
    Ok(match layers.node(first).kind {
        _ if is_whiteout(layers, first) => match keeps_whiteouts {
            true => vec![first],
            false => Vec::new(),
        },
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
        pile = piled(layers, found.into_iter(), false)?;
        if pile.is_empty() {
            break;
        }
    }
    Ok(pile)
}

pub(super) fn is_implied(layers: &Layers, at: Origin) -> bool {
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

/// Returns whether directories of a name, found in so many layers, hide what layers below the last of them have of it.
pub(super) fn hides_lower(layers: &Layers, pile: &Pile, found: usize) -> bool {
    let is_last_opaque = pile.last().is_some_and(|at| is_opaque(layers, *at));
    pile.len() < found || is_last_opaque
}

/// Refuses what overlayfs has only a reference to: its content is under another name.
pub(super) fn refuse_redirected(layers: &Layers, at: Origin) -> Result<(), Error> {
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
pub(super) fn shown(xattr: &Xattr) -> Option<Xattr> {
    let name = xattr.name();
    let Some(property) = whiteout::of_overlay(name) else {
        return Some(xattr.clone());
    };
    let inner = property.strip_prefix(b"overlay.")?;
    let beginning = &name[..name.len() - property.len()];
    let inner = Xattr::new(&[beginning, inner].concat(), xattr.value());
    Some(inner.expect("it is shorter"))
}

pub(super) fn found_xattrs(layers: &Layers, at: Origin) -> impl Iterator<Item = &Xattr> {
    let tree = &layers.layer(at).tree;
    tree.xattrs.of(&tree.node(at.node).xattrs)
}
