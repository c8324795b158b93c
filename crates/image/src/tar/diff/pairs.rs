//! Walking two trees side by side, in the order of names, in bounded memory.

use std::cmp::Ordering;
use std::collections::VecDeque;

use anteros_core::FileKind;
use anteros_format::inode::Inode;

use super::TarProblem;
use crate::walk::{NOTES_BYTES, PATH_BYTES_MAX, inode_of, page};
use crate::{DirCursor, Image, NidSet, OwnedDirent, Result, WalkProblem};

/// So many names or more that are all gone take one mark.
const OPAQUE_NAMES_MIN: u64 = 2;

/// Inodes of a name in the older tree, and in the newer one.
type Both<T> = (Option<T>, Option<T>);

/// The files that have a name in both trees, or in one.
pub(super) struct Pair {
    pub old: Option<Inode>,
    pub new: Option<Inode>,
    /// Tells of a directory in both that it had some names, none of which it has any more. They are not handed over.
    pub is_opaque: bool,
}

/// A walk that is under way.
pub(super) struct Pairs<'a> {
    old: &'a Image,
    new: &'a Image,
    roots: Option<(Inode, Inode)>,
    levels: Vec<Level>,
    path: Vec<u8>,
    entered: NidSet,
}

/// A directory on the way.
struct Level {
    old: Option<Entries>,
    new: Entries,
    path_bytes: usize,
}

/// The entries of a directory that have not been taken.
struct Entries {
    inode: Inode,
    next: DirCursor,
    page: VecDeque<(OwnedDirent, DirCursor)>,
}

impl Entries {
    fn new(inode: &Inode) -> Self {
        Self {
            inode: inode.clone(),
            next: DirCursor::default(),
            page: VecDeque::new(),
        }
    }

    fn peek(&mut self, image: &Image) -> Result<Option<&[u8]>> {
        if self.page.is_empty() {
            self.page = page(image, &self.inode, self.next)?;
        }
        Ok(self.page.front().map(|(entry, _)| &entry.name[..]))
    }

    /// Takes the entry that was seen.
    fn take(&mut self) -> Option<OwnedDirent> {
        let (entry, next) = self.page.pop_front()?;
        self.next = next;
        Some(entry)
    }
}

/// Says that the older image is at fault.
fn of_old<E: Into<WalkProblem>>(error: E) -> TarProblem {
    TarProblem::Old(Box::new(error.into()))
}

impl<'a> Pairs<'a> {
    pub fn new(old: &'a Image, new: &'a Image) -> Result<Self, TarProblem> {
        Ok(Self {
            roots: Some((old.root().map_err(of_old)?, new.root()?)),
            old,
            new,
            levels: Vec::new(),
            path: Vec::new(),
            entered: NidSet::new(NOTES_BYTES),
        })
    }

    /// The path of what was met last, or of what an error is about.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    pub fn next(&mut self) -> Result<Option<Pair>, TarProblem> {
        let (old, new) = match self.roots.take() {
            Some((old, new)) => (Some(old), Some(new)),
            None => match self.entries()? {
                Some((old, new)) => self.inodes(old, new)?,
                None => return Ok(None),
            },
        };
        let mut pair = Pair {
            old,
            new,
            is_opaque: false,
        };
        if let Some(new) = pair.new.as_ref().filter(|new| is_directory(new)) {
            pair.is_opaque = self.enter(pair.old.as_ref().filter(|old| is_directory(old)), new)?;
        }
        Ok(Some(pair))
    }

    /// The entries of the next name.
    fn entries(&mut self) -> Result<Option<Both<OwnedDirent>>, TarProblem> {
        while let Some(level) = self.levels.last_mut() {
            self.path.truncate(level.path_bytes);
            let new = level.new.peek(self.new)?;
            let old = match &mut level.old {
                Some(old) => old.peek(self.old).map_err(of_old)?,
                None => None,
            };
            let Some(order) = order(old, new) else {
                self.levels.pop();
                continue;
            };
            let old = level.old.as_mut().filter(|_| order.is_le());
            let old = old.and_then(Entries::take);
            let new = Some(&mut level.new).filter(|_| order.is_ge());
            let new = new.and_then(Entries::take);
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            let name = old.as_ref().or(new.as_ref()).map(|entry| &entry.name[..]);
            self.path.extend_from_slice(name.unwrap_or_default());
            if self.path.len() > PATH_BYTES_MAX {
                return Err(WalkProblem::PathLength.into());
            }
            return Ok(Some((old, new)));
        }
        Ok(None)
    }

    fn inodes(
        &self,
        old: Option<OwnedDirent>,
        new: Option<OwnedDirent>,
    ) -> Result<Both<Inode>, TarProblem> {
        let old = old.map(|entry| inode_of(self.old, &entry).map_err(of_old));
        let new = new.map(|entry| inode_of(self.new, &entry));
        Ok((old.transpose()?, new.transpose()?))
    }

    /// Goes into a directory; says whether all of several names that it had are gone. Of the directories on the way only the
    /// innermost has entries in memory.
    fn enter(&mut self, old: Option<&Inode>, new: &Inode) -> Result<bool, TarProblem> {
        if !self.entered.insert(new.nid).map_err(WalkProblem::Note)? {
            return Err(WalkProblem::DirectoryTwice { nid: new.nid }.into());
        }
        if let Some(level) = self.levels.last_mut() {
            level.new.page.clear();
            level.old.iter_mut().for_each(|old| old.page.clear());
        }
        let is_opaque = match old {
            Some(old) => self.is_opaque(old, new)?,
            None => false,
        };
        self.levels.push(Level {
            old: old.filter(|_| !is_opaque).map(Entries::new),
            new: Entries::new(new),
            path_bytes: self.path.len(),
        });
        Ok(is_opaque)
    }

    fn is_opaque(&self, old: &Inode, new: &Inode) -> Result<bool, TarProblem> {
        let (mut old, mut new) = (Entries::new(old), Entries::new(new));
        let mut gone = 0;
        loop {
            let order = order(old.peek(self.old).map_err(of_old)?, new.peek(self.new)?);
            match order {
                None => return Ok(gone >= OPAQUE_NAMES_MIN),
                Some(Ordering::Equal) => return Ok(false),
                Some(Ordering::Less) => {
                    gone += 1;
                    old.take();
                }
                Some(Ordering::Greater) => drop(new.take()),
            }
        }
    }
}

fn is_directory(inode: &Inode) -> bool {
    inode.kind == FileKind::Directory
}

/// Tells which of two names comes first, or that they are the same; `None` if there are none.
fn order(old: Option<&[u8]>, new: Option<&[u8]>) -> Option<Ordering> {
    match (old, new) {
        (None, None) => None,
        (Some(_), None) => Some(Ordering::Less),
        (None, Some(_)) => Some(Ordering::Greater),
        (Some(old), Some(new)) => Some(old.cmp(new)),
    }
}
