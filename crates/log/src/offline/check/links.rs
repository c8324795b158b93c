//! Names and what they refer to, held against each other: kinds, counts, and whether a way leads there from the root.

use anteros_core::{FileKind, FsResult, Sorted};

use super::finding::Place;
use super::records::{About, Child, Edge, Number};
use super::{Checker, Numbers};
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

impl Checker {
    /// Finds what no way leads to from the root.
    ///
    /// # Errors
    ///
    /// Those of the temporary file.
    pub(super) fn reach(&mut self) -> FsResult<()> {
        let children = self.sorter();
        let children = std::mem::replace(&mut self.children, children).finish()?;
        let mut reached = Numbers::new(self.state.nodes.nat().count_max());
        reached.add(ROOT);
        let mut next = self.sorter();
        next.push(Number { nid: ROOT })?;
        loop {
            let level = next.finish()?;
            next = self.sorter();
            if level.is_empty() {
                self.reached = reached;
                return Ok(());
            }
            let mut meet = |child: Child| {
                let is_new = !reached.add(child.ino);
                match is_new && self.directories.has(child.ino) {
                    true => next.push(Number { nid: child.ino }),
                    false => Ok(()),
                }
            };
            match level.len().saturating_mul(FEW) < children.len() {
                true => look_up(&level, &children, &mut meet)?,
                false => go_along(&level, &children, &mut meet)?,
            }
        }
    }

    /// Holds inodes and names against each other.
    ///
    /// # Errors
    ///
    /// Those of the temporary file.
    pub(super) fn compare_links(&mut self) -> FsResult<()> {
        let abouts = self.sorter();
        let abouts = std::mem::replace(&mut self.abouts, abouts).finish()?;
        let edges = self.sorter();
        let edges = std::mem::replace(&mut self.edges, edges).finish()?;
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
            self.compare_inode(&about, &met);
        }
        for edge in names {
            self.note_dangling(edge?);
        }
        self.names = Some(edges);
        Ok(())
    }

    fn note_dangling(&mut self, edge: Edge) {
        let ino = edge.ino;
        let text = format!("names inode {ino}, which is not there");
        self.note_at(Place::Position(edge.parent, edge.position), text);
    }

    fn meet_name(&mut self, about: &About, edge: Edge, met: &mut Met) {
        met.names += 1;
        met.is_at_home |= edge.parent == about.parent;
        if about.is_known() && edge.kind != about.kind {
            let (named, is) = (kind_of(edge.kind).name(), kind_of(about.kind).name());
            let ino = about.ino;
            self.note_at(
                Place::Position(edge.parent, edge.position),
                format_args!("inode {ino} is named as a {named}, but is a {is}"),
            );
        } else if about.is_nothing() {
            self.note_dangling(edge);
        }
    }

    fn compare_inode(&mut self, about: &About, met: &Met) {
        let ino = about.ino;
        let place = || Place::Inode(ino);
        if about.is_nothing() {
            return;
        }
        if !self.reached.has(ino) {
            let text = match met.names {
                0 => "no name leads to it",
                _ => "only names that nothing leads to lead to it",
            };
            self.note_at(place(), text);
        }
        if !about.is_known() {
            return;
        }
        if kind_of(about.kind) == FileKind::Directory {
            self.compare_directory(about, met);
        } else if u64::from(about.nlink) != met.names && met.names > 0 {
            self.note_links(about, met.names);
        }
        let (stated, counted) = (about.blocks, about.counted);
        if stated != counted && about.marks & About::TORN == 0 {
            let text = format!("says that it takes {stated} blocks, but takes {counted}");
            self.note_at(place(), text);
        }
    }

    fn note_links(&mut self, about: &About, counted: u64) {
        let stated = about.nlink;
        let text = format!("says that it has {stated} links, but has {counted}");
        self.note_at(Place::Inode(about.ino), text);
    }

    fn compare_directory(&mut self, about: &About, met: &Met) {
        let place = || Place::Inode(about.ino);
        let names = met.names + u64::from(about.ino == ROOT);
        if names > 1 {
            self.note_at(place(), format_args!("is a directory with {names} names"));
        } else if u64::from(about.nlink) != 2 + about.below && about.is_listed() {
            self.note_links(about, 2 + about.below);
        }
        if met.names == 1 && !met.is_at_home && about.ino != ROOT {
            let parent = about.parent;
            let text = format!("says that it lies in directory {parent}, but does not");
            self.note_at(place(), text);
        }
        let (stated, counted) = (about.entries, about.names);
        if u64::from(stated) != counted && about.is_listed() {
            let text = format!("says that it has {stated} names, but has {counted}");
            self.note_at(place(), text);
        }
    }
}

impl About {
    /// Tells whether its node could be read.
    fn is_known(&self) -> bool {
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
    meet: &mut dyn FnMut(Child) -> std::io::Result<()>,
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
    meet: &mut dyn FnMut(Child) -> std::io::Result<()>,
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
