//! Names compared with what they refer to: kinds, counts, and whether a way leads there from the root.

use anteros_core::{FileKind, FsResult, Sorted, Sorter};

use super::finding::{Fault, Place};
use super::records::{About, Child, Edge, Number};
use super::{Sink, Walk};
use crate::files::dir::kind_of;
use crate::layout::ROOT;

/// The part of all names below which the directories of a level are looked up one by one.
const FEW: u64 = 64;
/// Bytes that are read at once of the names of one directory.
const STEP_BYTES: usize = 4 << 10;

/// Facts about the names of an inode.
#[derive(Default)]
struct Met {
    names: u64,
    /// Those that name the directory as its parent.
    is_at_home: bool,
}

impl<S: Sink> Walk<'_, S> {
    /// Goes from directories that are reached to all that their names lead to. `visit` gets the first name that leads to a
    /// directory.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file, and of `visit`.
    pub(in crate::offline) fn reach(
        &mut self,
        from: Sorter<Number>,
        children: &Sorted<Child>,
        visit: &mut dyn FnMut(&Child) -> FsResult<()>,
    ) -> FsResult<()> {
        let mut level = from.finish()?;
        while !level.is_empty() {
            let mut next = self.sorter();
            let mut meet = |child: Child| {
                let is_new = !self.reached.add(child.ino);
                if is_new && self.directories.has(child.ino) {
                    visit(&child)?;
                    next.push(Number { nid: child.ino })?;
                }
                Ok(())
            };
            match level.len().saturating_mul(FEW) < children.len() {
                true => look_up(&level, children, &mut meet)?,
                false => go_along(&level, children, &mut meet)?,
            }
            level = next.finish()?;
        }
        Ok(())
    }

    /// Finds what a way leads to from the root, as [`reach`](Self::reach).
    ///
    /// # Errors
    ///
    /// Errors of the temporary file, and of `visit`.
    pub(in crate::offline) fn reach_from_root(
        &mut self,
        children: &Sorted<Child>,
        visit: &mut dyn FnMut(&Child) -> FsResult<()>,
    ) -> FsResult<()> {
        let mut root = self.sorter();
        root.push(Number { nid: ROOT })?;
        self.reached.add(ROOT);
        self.reach(root, children, visit)
    }

    /// Compares inodes with names.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub(in crate::offline) fn compare_links(
        &mut self,
        abouts: &Sorted<About>,
        edges: &Sorted<Edge>,
    ) -> FsResult<()> {
        let record = self.own_record();
        let mut names = edges.iter().peekable();
        for about in abouts.iter() {
            let about = about?;
            while let Some(edge) = names.next_if(|edge| is_before(edge, about.ino)) {
                self.note_dangling(edge?);
            }
            let mut met = Met::default();
            let is_of = |edge: &Edge| edge.ino == about.ino;
            while let Some(edge) = names.next_if(|edge| edge.as_ref().map_or(true, is_of)) {
                self.meet_name(&about, edge?, &mut met);
            }
            self.compare_inode(&about, &met, record);
        }
        for edge in names {
            self.note_dangling(edge?);
        }
        Ok(())
    }

    fn note_dangling(&mut self, edge: Edge) {
        let fault = Fault::Dangling { ino: edge.ino };
        self.sink.find(edge.place(), fault);
    }

    fn meet_name(&mut self, about: &About, edge: Edge, met: &mut Met) {
        met.names += 1;
        met.is_at_home |= edge.parent == about.parent;
        if about.is_known() && edge.kind != about.kind {
            let fault = Fault::Misnamed {
                ino: about.ino,
                named: edge.kind,
                is: about.kind,
            };
            self.sink.find(edge.place(), fault);
        } else if about.is_nothing() {
            self.note_dangling(edge);
        }
    }

    fn compare_inode(&mut self, about: &About, met: &Met, record: Option<u32>) {
        let (ino, names) = (about.ino, met.names);
        if about.is_nothing() {
            return;
        }
        if !self.reached.has(ino) {
            self.find_in(ino, Fault::Unreached { names });
        }
        if !about.is_known() {
            return;
        }
        if about.is_own() {
            self.compare_own(about, names, record);
        }
        if kind_of(about.kind) == FileKind::Directory {
            self.compare_directory(about, met);
        } else if u64::from(about.nlink) != names && names > 0 {
            self.note_links(about, names, false);
        }
        let (stated, counted) = (about.blocks, about.counted);
        if stated != counted && about.marks & About::TORN == 0 {
            self.find_in(ino, Fault::Blocks { stated, counted });
        }
    }

    fn note_links(&mut self, about: &About, counted: u64, is_directory: bool) {
        let fault = Fault::Links {
            stated: about.nlink,
            counted,
            is_directory,
        };
        self.find_in(about.ino, fault);
    }

    fn compare_directory(&mut self, about: &About, met: &Met) {
        let names = met.names + u64::from(about.ino == ROOT);
        if names > 1 {
            self.find_in(about.ino, Fault::Names(names));
        } else if u64::from(about.nlink) != 2 + about.below && about.is_listed() {
            self.note_links(about, 2 + about.below, true);
        }
        if met.names == 1 && !met.is_at_home && about.ino != ROOT {
            self.find_in(about.ino, Fault::Parent(about.parent));
        }
        let (stated, counted) = (about.entries, about.names);
        if u64::from(stated) != counted && about.is_listed() {
            self.find_in(about.ino, Fault::Entries { stated, counted });
        }
    }
}

impl Edge {
    fn place(&self) -> Place {
        Place::Position(self.parent, self.position)
    }
}

impl About {
    /// Tells whether its node could be read.
    pub(in crate::offline) fn is_known(&self) -> bool {
        self.rank == 0 && self.marks & Self::BROKEN == 0
    }

    /// Tells whether there is no such inode, but something else that claims to belong to it.
    fn is_nothing(&self) -> bool {
        self.rank != 0 && self.marks & Self::BROKEN == 0
    }

    fn is_listed(&self) -> bool {
        self.marks & Self::UNLISTED == 0
    }
}

fn is_before(edge: &std::io::Result<Edge>, ino: u32) -> bool {
    edge.as_ref().map_or(true, |edge| edge.ino < ino)
}

/// Calls `meet` with what lies in the directories of one level, of which there are few.
fn look_up(
    level: &Sorted<Number>,
    children: &Sorted<Child>,
    meet: &mut dyn FnMut(Child) -> FsResult<()>,
) -> FsResult<()> {
    for directory in level.iter() {
        let parent = directory?.nid;
        let first = children.partition_point(|child| child.parent < parent)?;
        for child in children.iter_from(first, STEP_BYTES) {
            let child = child?;
            if child.parent != parent {
                break;
            }
            meet(child)?;
        }
    }
    Ok(())
}

/// Hands on the children of many directories, in one pass over all children.
fn go_along(
    level: &Sorted<Number>,
    children: &Sorted<Child>,
    meet: &mut dyn FnMut(Child) -> FsResult<()>,
) -> FsResult<()> {
    let mut directories = level.iter().peekable();
    for child in children.iter() {
        let child = child?;
        let is_before = |number: &Number| number.nid < child.parent;
        while let Some(passed) =
            directories.next_if(|number| number.as_ref().map_or(true, is_before))
        {
            passed?;
        }
        match directories.peek() {
            Some(Ok(number)) if number.nid == child.parent => meet(child)?,
            Some(_) => {}
            None => break,
        }
    }
    Ok(())
}
