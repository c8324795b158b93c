//! The walk that creates names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anteros_core::FileKind;
use anteros_format::Nid;
use anteros_format::inode::Inode;
use rustix::fs::{AtFlags, FileType, Mode};

use super::create::Creator;
use super::level::{Level, hands_down_acl};
use super::links::{FirstName, Links, NEAR_MAX};
use super::object::Object;
use super::problem::{ExtractProblem, os};
use super::run::{OpenFile, Run};
use super::work::Job;
use crate::host::descent::{Descent, identity, open_below, open_dir};
use crate::parts::Feeder;
use crate::trail::Trail;
use crate::{NidSet, OwnedDirent};

/// Memory for the set of directories that were made, in bytes.
const ENTERED_BYTES: usize = 1 << 20;

/// States what fails where a temporary file does.
const NOTED: &str = "note it in a temporary file";

/// The thread that creates names.
pub(super) struct Walker<'a> {
    run: &'a Run<'a>,
    creator: Creator<'a>,
    descent: Descent,
    /// The directories of the descent.
    levels: Vec<Level>,
    entered: NidSet,
    links: Links,
    unfinished: Unfinished,
}

/// Directories that are finished when nothing is left to be done in them, innermost first: those that
/// will not let their owner in, and the root.
#[derive(Default)]
pub(super) struct Unfinished(Vec<(Arc<Trail>, Level)>);

impl Unfinished {
    pub(super) fn finish(self, run: &Run<'_>) {
        for (trail, level) in self.0 {
            if run.stopped() {
                return;
            }
            let dir = open_below(run.root.as_fd(), &trail).map_err(os("open the directory"));
            let finished = dir.and_then(|dir| dress_dir(run, dir.as_fd(), &trail, &level));
            finished.unwrap_or_else(|problem| run.fail(&trail, problem));
        }
    }
}

impl<'a> Walker<'a> {
    pub(super) fn new(
        run: &'a Run<'a>,
        feeder: Feeder<OpenFile, Job>,
        root: Arc<Trail>,
        target: OwnedFd,
    ) -> Self {
        Self {
            run,
            creator: Creator::new(run, feeder),
            descent: Descent::new(root, target),
            levels: Vec::new(),
            entered: NidSet::new(ENTERED_BYTES),
            links: Links::new(NEAR_MAX),
            unfinished: Unfinished::default(),
        }
    }

    /// Extracts a directory, or anything else by a name.
    pub(super) fn extract(mut self, inode: &Inode, name: Option<Vec<u8>>) -> Unfinished {
        let root = self.descent.trail().clone();
        match name {
            Some(name) => {
                // Its trail is the path in the image.
                self.creator.write_at_once();
                if let Err(problem) =
                    self.creator
                        .create(self.descent.dir(), &root, &name, inode, false)
                {
                    self.run.fail(&root, problem);
                }
            }
            None => {
                // The set is empty, so nothing of it is in a file.
                let _ = self.entered.insert(inode.nid);
                self.levels.push(Level::new(
                    inode.clone(),
                    hands_down_acl(self.descent.dir()),
                ));
                self.walk();
            }
        }
        self.creator.flush();
        self.unfinished
    }

    fn walk(&mut self) {
        while let Some(level) = self.levels.last_mut() {
            if self.run.stopped() {
                return;
            }
            match level.next(self.run.image) {
                Some(Ok(entry)) => {
                    let trail = self.descent.trail().child(&entry.name);
                    let done = self.entry(&trail, &entry);
                    done.unwrap_or_else(|problem| self.run.fail(&trail, problem));
                }
                Some(Err(error)) => self.run.fail(self.descent.trail(), error.into()),
                None => self.leave(),
            }
        }
    }

    fn entry(&mut self, trail: &Arc<Trail>, entry: &OwnedDirent) -> Result<(), ExtractProblem> {
        self.run.check_cancel()?;
        let nid = entry.nid;
        let inode = self.run.image.inode(nid)?;
        if inode.kind != entry.kind {
            // The inode is what readers go by.
            let (says, is) = (entry.kind, inode.kind);
            self.run.fail(trail, ExtractProblem::Kind { says, is });
            if self.run.stopped() {
                return Ok(());
            }
        }
        if inode.kind == FileKind::Directory {
            return self.enter(trail, inode);
        }
        if self.links.contains(nid).map_err(os(NOTED))? {
            return self.link(trail, nid);
        }
        let inherits_acl = self.levels.last().is_some_and(|level| level.hands_down_acl);
        let dir = self.descent.dir();
        let created = self
            .creator
            .create(dir, trail, &trail.name, &inode, inherits_acl)?;
        if created && inode.nlink > 1 {
            let stat = Object::Named(self.descent.dir(), &trail.name).stat();
            let identity = identity(&stat.map_err(os("ask for its state"))?);
            let left = inode.nlink - 1;
            let first = FirstName {
                trail: trail.clone(),
                identity,
                left,
            };
            self.links.insert(nid, first).map_err(os(NOTED))?;
        }
        Ok(())
    }

    fn enter(&mut self, trail: &Arc<Trail>, inode: Inode) -> Result<(), ExtractProblem> {
        let is_new = self.entered.insert(inode.nid);
        if !is_new.map_err(os(NOTED))? {
            return Err(ExtractProblem::DirectoryTwice { nid: inode.nid });
        }
        let inherits_acl = self.levels.last().is_some_and(|level| level.hands_down_acl);
        let fresh = self.make_dir(&trail.name)?;
        let dir = open_dir(self.descent.dir(), &trail.name).map_err(os("open the directory"))?;
        if fresh && inherits_acl {
            let removed = Object::Open(dir.as_fd()).remove_acls();
            removed.map_err(os("remove its inherited access control list"))?;
        }
        let hands_down_acl = !fresh && hands_down_acl(dir.as_fd());
        self.descent
            .enter(trail.clone(), dir)
            .map_err(os("open the directory"))?;
        self.levels.push(Level::new(inode, hands_down_acl));
        self.run.count(|summary| summary.directories += 1);
        self.run.report(trail, FileKind::Directory);
        Ok(())
    }

    /// Makes a directory that is open to its owner alone, unless it is there and may be used.
    fn make_dir(&self, name: &[u8]) -> Result<bool, ExtractProblem> {
        let dir = self.descent.dir();
        let make = || rustix::fs::mkdirat(dir, name, Mode::RWXU);
        if self.run.options.overwrite {
            let stat = Object::Named(dir, name).stat();
            if stat.is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory) {
                return Ok(false);
            }
        }
        self.creator
            .make(dir, name, make, "create the directory")
            .map(|()| true)
    }

    /// Leaves the innermost directory and finishes it.
    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else {
            return;
        };
        let trail = self.descent.trail().clone();
        if self.levels.is_empty() {
            self.unfinished.0.push((trail, level));
            return;
        }
        let left = self.leave_inner(&trail, level);
        left.unwrap_or_else(|problem| self.run.fail(&trail, problem));
    }

    fn leave_inner(&mut self, trail: &Arc<Trail>, level: Level) -> Result<(), ExtractProblem> {
        let dir = self.descent.leave().map_err(|error| {
            // Where the walk stands is lost: nothing can be created any more.
            self.levels.clear();
            os("go back to its parent directory")(error)
        })?;
        if level.inode.perm & 0o500 != 0o500 {
            self.unfinished.0.push((trail.clone(), level));
            return Ok(());
        }
        dress_dir(self.run, dir.as_fd(), trail, &level)
    }

    /// Gives a file a further name.
    fn link(&mut self, trail: &Arc<Trail>, nid: Nid) -> Result<(), ExtractProblem> {
        let found = self.links.get(nid, &self.descent).map_err(os(NOTED))?;
        let (first, expected) = found.expect("it was just found");
        let first_name = &*first.name;
        let above = first.parent.as_ref().expect("it was found in a directory");
        let above = self
            .descent
            .open(above)
            .map_err(os("open the directory of its first name"))?;
        let dir = self.descent.dir();
        let link = || rustix::fs::linkat(&above, first_name, dir, &*trail.name, AtFlags::empty());
        self.creator
            .make(dir, &trail.name, link, "create the hard link")?;
        let stat = Object::Named(dir, &trail.name)
            .stat()
            .map_err(os("ask for its state"))?;
        if identity(&stat) != expected {
            let first = first.path();
            rustix::fs::unlinkat(dir, &*trail.name, AtFlags::empty())
                .map_err(os("take back a hard link to what somebody else put there"))?;
            return Err(ExtractProblem::Replaced { first });
        }
        self.run.count(|summary| summary.hard_links += 1);
        if let Some(kind) = FileKind::from_mode(stat.st_mode) {
            self.run.report(trail, kind);
        }
        self.links.count_down(nid).map_err(os(NOTED))
    }
}

/// Finishes a directory.
fn dress_dir(
    run: &Run<'_>,
    dir: BorrowedFd<'_>,
    trail: &Trail,
    level: &Level,
) -> Result<(), ExtractProblem> {
    run.dress(Object::Open(dir), trail, &level.inode, level.hands_down_acl)
}
