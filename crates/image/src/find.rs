//! Finding the name of an inode, which only directories know.

use std::collections::HashSet;
use std::ops::ControlFlow;

use anteros_core::FileKind;
use anteros_format::Nid;

use crate::trail::Trail;
use crate::{DirCursor, Image, ImagePath};

/// The most names that are looked at, and directories that are remembered.
const NAMES_MAX: usize = 1 << 22;
const DIRECTORIES_MAX: usize = 1 << 14;

impl Image {
    /// A path of an inode: the first that a walk of the tree comes by. `None` if there is none, if it
    /// is behind a directory that cannot be read, or if it takes too long to find.
    pub fn path_of(&self, wanted: Nid) -> Option<ImagePath> {
        let root = self.superblock().root;
        let mut pending = vec![(root, Trail::root(b""))];
        let mut seen = HashSet::from([root]);
        let mut names = 0;
        if wanted == root {
            return Some(pending[0].1.path());
        }
        while let Some((nid, trail)) = pending.pop() {
            let Ok(dir) = self.inode(nid) else { continue };
            let mut found = None;
            // What cannot be read is not what was asked for.
            let _ = self.visit_dir(&dir, DirCursor::default(), |entry, _| {
                names += 1;
                if matches!(entry.name, b"." | b"..") {
                    return ControlFlow::Continue(());
                }
                if entry.nid == wanted {
                    found = Some(trail.child(entry.name).path());
                }
                let is_new = entry.kind == FileKind::Directory
                    && seen.len() < DIRECTORIES_MAX
                    && seen.insert(entry.nid);
                if is_new {
                    pending.push((entry.nid, trail.child(entry.name)));
                }
                match found.is_some() || names > NAMES_MAX {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            if found.is_some() || names > NAMES_MAX {
                return found;
            }
        }
        None
    }
}
