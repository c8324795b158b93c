//! Names that share a file: whether they are the same in both trees.
//!
//! A file of the newer tree and one of the older belong together if they have a name in common. If a file belongs to several
//! others, in whichever direction, or has a name that is new, a layer has to tell which names it has.

use anteros_core::{FileKind, Table};
use anteros_format::inode::Inode;

use super::TarProblem;
use super::pairs::Pair;
use crate::walk::NOTES_BYTES;
use crate::{NidSet, WalkProblem};

/// Notes of files with several names.
pub(super) struct Links {
    /// The inode of the other tree that belongs to one, plus one.
    old_of: Table<8>,
    new_of: Table<8>,
    /// Inodes of the newer tree that have other names.
    changed: NidSet,
}

impl Links {
    pub fn new() -> Self {
        Self {
            old_of: Table::new(NOTES_BYTES),
            new_of: Table::new(NOTES_BYTES),
            changed: NidSet::new(NOTES_BYTES),
        }
    }

    /// Notes the files of a name.
    pub fn note(&mut self, pair: &Pair) -> Result<(), TarProblem> {
        let is_file = |inode: &&Inode| inode.kind != FileKind::Directory;
        let old = pair.old.as_ref().filter(is_file);
        let Some(new) = pair.new.as_ref().filter(is_file) else {
            return Ok(());
        };
        let has_names = |inode: &Inode| inode.nlink > 1;
        if !has_names(new) && !old.is_some_and(has_names) {
            return Ok(());
        }
        let is_known = match old {
            Some(old) => self.belong(old.nid.0, new.nid.0),
            None => Ok(false),
        };
        if !is_known.map_err(WalkProblem::Note)? {
            self.changed.insert(new.nid).map_err(WalkProblem::Note)?;
        }
        Ok(())
    }

    /// Notes that two files belong together; says whether each belongs to no other.
    fn belong(&mut self, old: u64, new: u64) -> std::io::Result<bool> {
        let noted = |nid: u64| nid.wrapping_add(1).to_le_bytes();
        let known = (self.old_of.get(new)?, self.new_of.get(old)?);
        if known == ([0; 8], [0; 8]) {
            self.old_of.set(new, noted(old))?;
            self.new_of.set(old, noted(new))?;
            return Ok(true);
        }
        Ok(known == (noted(old), noted(new)))
    }

    /// Returns whether a file of the newer tree has other names than before.
    pub fn has_changed(&mut self, new: &Inode) -> Result<bool, TarProblem> {
        let changed = self.changed.contains(new.nid);
        Ok(changed.map_err(WalkProblem::Note)?)
    }
}
