//! The walk over both trees, side by side.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anteros_core::{FileKind, Rdev};
use anteros_format::inode::Inode;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};

use super::data::{DATA, FilePair};
use super::difference::{ImageText, Mismatch};
use super::links::Links;
use super::names::Name;
use super::report::VerifyProblem;
use super::run::Run;
use crate::host::descent::{Descent, identity, open_dir};
use crate::host::descriptor::descriptor_path;
use crate::host::xattrs::host_xattrs;
use crate::parts::Feeder;
use crate::trail::Trail;

/// Names what a file has in messages about what cannot be read.
const INODE: &str = "inode";
const NAMES: &str = "names";

/// The thread that compares names.
pub(super) struct Walker<'a> {
    run: &'a Run<'a>,
    feeder: Feeder<FilePair>,
    descent: Descent,
    /// Holds what is still to be compared of the directories of the descent.
    levels: Vec<std::vec::IntoIter<Name>>,
    links: Links,
}

impl<'a> Walker<'a> {
    pub(super) fn new(
        run: &'a Run<'a>,
        feeder: Feeder<FilePair>,
        root: Arc<Trail>,
        source: OwnedFd,
    ) -> Self {
        Self {
            run,
            feeder,
            descent: Descent::new(root, source),
            levels: Vec::new(),
            links: Links::default(),
        }
    }

    pub(super) fn walk(mut self) {
        let root = self.descent.trail().clone();
        let started = self.start(&root);
        started.unwrap_or_else(|problem| self.run.fail(&root, problem));
        while let Some(level) = self.levels.last_mut() {
            if self.run.stopped() {
                break;
            }
            let (trail, done) = match level.next() {
                Some(name) => {
                    let trail = self.descent.trail().child(&name.name);
                    let done = self.compare_name(&trail, &name);
                    (trail, done)
                }
                None => (self.descent.trail().clone(), self.leave()),
            };
            done.unwrap_or_else(|problem| self.run.fail(&trail, problem));
        }
        self.feeder.flush();
    }

    fn start(&mut self, root: &Arc<Trail>) -> Result<(), VerifyProblem> {
        let inode = self.run.image.root()?;
        let stat = rustix::fs::fstat(self.descent.dir())?;
        let path = descriptor_path(self.descent.dir(), b"");
        self.run
            .compare_attributes(root, &inode, &stat, &|| host_xattrs(&path, true));
        let names = self.run.told(
            root,
            NAMES,
            self.run.names(root, &inode, self.descent.dir()),
        );
        self.levels.push(names.unwrap_or_default().into_iter());
        Ok(())
    }

    fn leave(&mut self) -> Result<(), VerifyProblem> {
        self.levels.pop();
        if !self.levels.is_empty() {
            self.descent.leave()?;
        }
        Ok(())
    }

    fn compare_name(&mut self, trail: &Arc<Trail>, name: &Name) -> Result<(), VerifyProblem> {
        self.run.check_cancel()?;
        let nid = match (name.in_image, name.in_source) {
            (Some(nid), true) => nid,
            (Some(_), false) => {
                self.run.differ(trail, Mismatch::OnlyInImage);
                return Ok(());
            }
            (None, _) => {
                self.run.differ(trail, Mismatch::OnlyInSource);
                return Ok(());
            }
        };
        let dir = self.descent.dir();
        let stat = rustix::fs::statat(dir, &*name.name, AtFlags::SYMLINK_NOFOLLOW);
        let inode = self.run.told(trail, INODE, self.run.image.inode(nid));
        let (Some(inode), Some(stat)) = (inode, self.run.told(trail, INODE, stat)) else {
            return Ok(());
        };
        let path = descriptor_path(dir, &name.name);
        let xattrs = || host_xattrs(&path, false);
        if !self.run.compare_attributes(trail, &inode, &stat, &xattrs) {
            return Ok(());
        }
        let is_linked = inode.nlink > 1 || stat.st_nlink > 1;
        let is_linked = is_linked && inode.kind != FileKind::Directory && self.run.options.links;
        if is_linked
            && self
                .links
                .compare(self.run, trail, inode.nid, identity(&stat))
        {
            return Ok(());
        }
        self.compare_content(trail, inode, &stat);
        Ok(())
    }

    fn compare_content(&mut self, trail: &Arc<Trail>, inode: Inode, stat: &Stat) {
        match inode.kind {
            FileKind::Regular => self.compare_file(trail, inode, stat),
            FileKind::Directory => {
                let entered = self.enter(trail, &inode);
                let _ = self.run.told(trail, NAMES, entered);
            }
            FileKind::Symlink => {
                let compared = self.compare_target(trail, &inode);
                let _ = self.run.told(trail, "target", compared);
            }
            FileKind::CharDevice | FileKind::BlockDevice => {
                self.compare_device(trail, inode.rdev, stat.st_rdev);
            }
            FileKind::Fifo | FileKind::Socket => {}
        }
    }

    fn compare_file(&mut self, trail: &Arc<Trail>, inode: Inode, stat: &Stat) {
        let size = stat.st_size as u64;
        if size != inode.size {
            self.run.differ(
                trail,
                Mismatch::Size {
                    image: inode.size,
                    source: size,
                },
            );
            return;
        }
        if size == 0 {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = rustix::fs::openat(self.descent.dir(), &*trail.name, flags, Mode::empty());
        if let Some(source) = self.run.told(trail, DATA, source) {
            self.run.hand_over(&mut self.feeder, trail, source, inode);
        }
    }

    /// Goes into a directory. Of one that can be opened but not listed, there is nothing to compare.
    fn enter(&mut self, trail: &Arc<Trail>, inode: &Inode) -> Result<(), VerifyProblem> {
        let dir = open_dir(self.descent.dir(), &trail.name)?;
        self.descent.enter(trail.clone(), dir)?;
        let names = self.run.told(
            trail,
            NAMES,
            self.run.names(trail, inode, self.descent.dir()),
        );
        self.levels.push(names.unwrap_or_default().into_iter());
        Ok(())
    }

    fn compare_target(&self, trail: &Trail, inode: &Inode) -> Result<(), VerifyProblem> {
        let image = self.run.image.read_link(inode)?;
        let source = rustix::fs::readlinkat(self.descent.dir(), &*trail.name, Vec::new())?;
        let source = source.into_bytes();
        if image != source {
            let (image, source) = (ImageText(image), ImageText(source));
            self.run.differ(trail, Mismatch::Target { image, source });
        }
        Ok(())
    }

    fn compare_device(&self, trail: &Trail, image: Rdev, source: u64) {
        let image = (image.major, image.minor);
        let source = (rustix::fs::major(source), rustix::fs::minor(source));
        if image != source {
            self.run.differ(trail, Mismatch::Device { image, source });
        }
    }
}
