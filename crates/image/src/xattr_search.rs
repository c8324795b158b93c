//! Search of an image for extended attributes. A kernel that is told that there are none asks no more.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use anteros_core::FileKind;
use anteros_format::Nid;

use crate::{DirCursor, Image};

/// So many requests in vain come from a walk that asks of every file, as `ls -l` does.
const ASKED_IN_VAIN: u32 = 512;

/// The most names that are looked at, and directories that are remembered.
const NAMES_MAX: usize = 1 << 22;
const DIRECTORIES_MAX: usize = 1 << 14;

/// Knowledge of whether an image has extended attributes.
#[derive(Default)]
pub(crate) struct XattrSearch {
    asked_in_vain: AtomicU32,
    has_none: AtomicBool,
}

impl XattrSearch {
    /// Returns whether the image is known to have none.
    pub(crate) fn has_none(&self) -> bool {
        self.has_none.load(Ordering::Relaxed)
    }

    /// Counts a request for attributes of an inode that has none, and begins the search when there were enough of them. It
    /// reads about what the walk that asks for them reads.
    pub(crate) fn asked_in_vain(self: &Arc<Self>, image: &Arc<Image>) {
        if self.asked_in_vain.fetch_add(1, Ordering::Relaxed) + 1 != ASKED_IN_VAIN {
            return;
        }
        let (search, image) = (self.clone(), Arc::downgrade(image));
        // Without the thread all goes on as it is.
        let _ = std::thread::Builder::new()
            .name("xattrs".into())
            .spawn(move || search.has_none.store(finds_none(&image), Ordering::Relaxed));
    }
}

/// Walks the whole tree. Returns `false` where an inode has attributes, where something cannot be read, where the tree is too
/// large, and when the image is used no more.
fn finds_none(image: &Weak<Image>) -> bool {
    let Some(root) = image.upgrade().map(|image| image.superblock().root) else {
        return false;
    };
    let mut seen = HashSet::from([root]);
    let mut pending = vec![root];
    let mut names = 0;
    while let Some(dir) = pending.pop() {
        let Some(image) = image.upgrade() else {
            return false;
        };
        let found = image.directories_without_xattrs(dir, &mut names);
        let Some(directories) = found.filter(|_| seen.len() <= DIRECTORIES_MAX) else {
            return false;
        };
        pending.extend(directories.into_iter().filter(|nid| seen.insert(*nid)));
    }
    true
}

impl Image {
    /// The directories in a directory, if neither that nor anything in it has attributes.
    fn directories_without_xattrs(&self, dir: Nid, names: &mut usize) -> Option<Vec<Nid>> {
        let dir = self.inode(dir).ok().filter(|dir| dir.xattr_bytes == 0)?;
        let mut directories = Vec::new();
        let mut found = false;
        let walked = self.visit_dir(&dir, DirCursor::default(), |entry, _| {
            *names += 1;
            match entry.kind {
                _ if matches!(entry.name, b"." | b"..") => {}
                FileKind::Directory => directories.push(entry.nid),
                _ => {
                    found |= !self
                        .inode(entry.nid)
                        .is_ok_and(|inode| inode.xattr_bytes == 0)
                }
            }
            match found || *names > NAMES_MAX || directories.len() > DIRECTORIES_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let is_whole = *names <= NAMES_MAX && directories.len() <= DIRECTORIES_MAX;
        (walked.is_ok() && !found && is_whole).then_some(directories)
    }
}
