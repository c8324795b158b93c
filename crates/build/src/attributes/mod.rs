//! Owners and labels that lists give to files, whatever the source has.
//!
//! | list | tells | judged by |
//! |---|---|---|
//! | `fs_config` of Android | owner, group, permissions, capabilities | |
//! | `file_contexts` of SELinux | labels | `matchpathcon` |
//!
//! Both know files by the path at which they are when the image is mounted.

mod file_contexts;
mod fs_config;

pub use file_contexts::FileContexts;
pub use fs_config::FsConfig;

use crate::source::Source;
use crate::tree::{NodeId, Tree};
use crate::{Error, Observer, Options};

const CAPABILITY: &[u8] = b"security.capability";
const LABEL: &[u8] = b"security.selinux";

/// Gives all files what the lists tell; says how many warnings there were.
pub(crate) fn assign(
    tree: &mut Tree,
    source: &Source,
    options: &Options,
    observer: &dyn Observer,
) -> Result<u64, Error> {
    if let Some(list) = &options.fs_config {
        for id in tree.ids() {
            own(tree, id, list, options).map_err(|reason| Error::Unstorable {
                path: source.full_path(tree, id),
                reason,
            })?;
        }
    }
    match &options.file_contexts {
        Some(list) if options.xattr_share_above.is_some() => {
            Ok(label(tree, list, source, options, observer))
        }
        _ => Ok(0),
    }
}

/// Gives a file its owner, its permissions and its capabilities.
fn own(tree: &mut Tree, id: NodeId, list: &FsConfig, options: &Options) -> Result<(), String> {
    let path = match id {
        0 => Vec::new(), // the list has the root by no name
        _ => mounted(tree, id, options),
    };
    let entry = list.entry(&path).ok_or_else(|| {
        let path = path.escape_ascii();
        format!("the fs_config file has no line for `{path}`")
    })?;
    let (uid, gid) = options.owner_of(entry.owner)?;
    let node = &mut tree.nodes[id as usize];
    (node.uid, node.gid, node.perm) = (uid, gid, entry.perm);
    if options.xattr_share_above.is_some() {
        let capability = entry.capability();
        tree.set_xattr(id, CAPABILITY, capability.as_ref().map(|value| &value[..]));
    }
    Ok(())
}

/// Gives all files their labels. Of those that have none, it warns once.
fn label(
    tree: &mut Tree,
    list: &FileContexts,
    source: &Source,
    options: &Options,
    observer: &dyn Observer,
) -> u64 {
    let mut without = Vec::new();
    for id in tree.ids() {
        let path = [b"/", &mounted(tree, id, options)[..]].concat();
        let label = list.label(&path, tree.node(id).kind);
        if label.is_none() {
            without.push(id);
        }
        tree.set_xattr(id, LABEL, label.flatten());
    }
    let Some(&first) = without.first() else {
        return 0;
    };
    let text = match without.len() {
        1 => "no line of the file_contexts gives it a label".to_owned(),
        2 => "no line of the file_contexts gives a label to it and another one".to_owned(),
        count => format!(
            "no line of the file_contexts gives a label to it and {} others",
            count - 1
        ),
    };
    observer.warn(&source.full_path(tree, first), &text);
    1
}

/// Returns where a file lies when the image is mounted, without leading slash.
pub(crate) fn mounted(tree: &Tree, id: NodeId, options: &Options) -> Vec<u8> {
    let point = options.mount_point.split(|byte| *byte == b'/');
    let path = tree.path(id);
    let names = point.chain(path.split(|byte| *byte == b'/'));
    let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    names.join(&b'/')
}
