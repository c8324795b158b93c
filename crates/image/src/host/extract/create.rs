//! Creating what has a name, but for directories and further names of files.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anteros_core::FileKind;
use anteros_format::inode::Inode;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::object::Object;
use super::packed::Notes;
use super::privileges::{is_device, withheld};
use super::problem::{ExtractProblem, os};
use super::report::Omitted;
use super::run::{Created, OpenFile, Run};
use super::work::Job;
use crate::parts::Feeder;
use crate::trail::Trail;

/// Creates what is no directory, and hands its data to the workers.
pub(super) struct Creator<'a> {
    run: &'a Run<'a>,
    feeder: Feeder<OpenFile, Job>,
    packed: Notes,
}

impl<'a> Creator<'a> {
    pub(super) fn new(run: &'a Run<'a>, feeder: Feeder<OpenFile, Job>) -> Self {
        let packed = Notes::new(run.image);
        Self {
            run,
            feeder,
            packed,
        }
    }

    /// Notes no packed files from now on.
    pub(super) fn write_at_once(&mut self) {
        self.packed = Notes::with_max(0);
    }

    /// Creates anything but a directory, and says whether it is there now.
    pub(super) fn create(
        &mut self,
        dir: BorrowedFd<'_>,
        trail: &Arc<Trail>,
        name: &[u8],
        inode: &Inode,
        inherits_acl: bool,
    ) -> Result<bool, ExtractProblem> {
        match inode.kind {
            FileKind::Regular => self.create_file(dir, trail, name, inode, inherits_acl)?,
            FileKind::Symlink => self.create_symlink(dir, name, inode)?,
            _ if !self.run.options.owners && is_device(inode) => {
                self.run.warn(trail, Omitted::Device, withheld());
                return Ok(false);
            }
            _ => match self.create_node(dir, name, inode) {
                Err(ExtractProblem::Os { source, .. }) if is_refused_device(inode, &source) => {
                    self.run.warn(trail, Omitted::Device, source);
                    return Ok(false);
                }
                created => created?,
            },
        }
        if inode.kind != FileKind::Regular {
            let object = Object::Named(dir, name);
            self.run.dress(object, trail, inode, inherits_acl)?;
        }
        self.run.count(|summary| match inode.kind {
            FileKind::Regular => summary.files += 1,
            FileKind::Symlink => summary.symlinks += 1,
            _ => summary.nodes += 1,
        });
        self.run.report(trail, inode.kind);
        Ok(true)
    }

    fn create_file(
        &mut self,
        dir: BorrowedFd<'_>,
        trail: &Arc<Trail>,
        name: &[u8],
        inode: &Inode,
        inherits_acl: bool,
    ) -> Result<(), ExtractProblem> {
        // Attributes can be set only while it is writable.
        let writable = if inode.xattr_bytes > 0 { 0o200 } else { 0 };
        let mode = Mode::from_raw_mode(u32::from(inode.perm) & 0o777 | writable);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(dir, name, flags, mode);
        let fd = self.make(dir, name, open, "create the file")?;
        let created = Created {
            fd,
            inode,
            trail,
            inherits_acl,
        };
        match self.packed.place_of(self.run.image, inode) {
            Some(place) => self.put_off(created, place),
            None => self.feed(created),
        }
    }

    /// Notes a file that is packed at this place.
    fn put_off(&mut self, created: Created<'_>, place: u64) -> Result<(), ExtractProblem> {
        self.packed.push(place, created)?;
        if self.packed.is_full() {
            self.hand_over_packed();
        }
        Ok(())
    }

    /// Lets the workers write a file.
    fn feed(&mut self, created: Created<'_>) -> Result<(), ExtractProblem> {
        let file = Arc::new(OpenFile {
            fd: created.fd,
            inode: created.inode.clone(),
            trail: created.trail.clone(),
            inherits_acl: created.inherits_acl,
            parts_failed: AtomicU32::new(0),
        });
        let go_on = || self.run.may_go_on_with(&file);
        let fed = self.feeder.file(self.run.image, &file.inode, &file, go_on);
        if fed.is_err() {
            file.parts_failed.fetch_add(1, Ordering::Relaxed);
        }
        self.run.let_go(file);
        fed
    }

    /// Hands over what has gathered.
    pub(super) fn flush(&mut self) {
        self.feeder.flush();
        self.hand_over_packed();
    }

    fn hand_over_packed(&mut self) {
        let Self { packed, feeder, .. } = self;
        let hand_over = |job| feeder.send(Job::Packed(job));
        packed.sort(self.run, feeder.batch_max(), hand_over);
    }

    fn create_symlink(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        inode: &Inode,
    ) -> Result<(), ExtractProblem> {
        let target = self.run.image.read_link(inode)?;
        let link = || rustix::fs::symlinkat(&target, dir, name);
        self.make(dir, name, link, "create the symbolic link")
    }

    fn create_node(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        inode: &Inode,
    ) -> Result<(), ExtractProblem> {
        let kind = FileType::from_raw_mode(inode.kind.mode_bits());
        let mode = Mode::from_raw_mode(u32::from(inode.perm) & 0o777);
        let device = rustix::fs::makedev(inode.rdev.major, inode.rdev.minor);
        let node = || rustix::fs::mknodat(dir, name, kind, mode, device);
        self.make(dir, name, node, "create it")
    }

    /// Creates a name, and if so wished replaces what has it.
    pub(super) fn make<T>(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        make: impl Fn() -> rustix::io::Result<T>,
        action: &'static str,
    ) -> Result<T, ExtractProblem> {
        if matches!(name, b"." | b"..") {
            return Err(ExtractProblem::Name);
        }
        match make() {
            Err(Errno::EXIST) if self.run.options.overwrite => {
                if self.is_spared(dir, name) {
                    return Err(ExtractProblem::Spared);
                }
                match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                    Err(Errno::ISDIR) => return Err(ExtractProblem::DirectoryInTheWay),
                    removed => removed.map_err(os("remove what exists"))?,
                }
                make().map_err(os(action))
            }
            Err(Errno::EXIST) => Err(ExtractProblem::Exists),
            made => made.map_err(os(action)),
        }
    }

    fn is_spared(&self, dir: BorrowedFd<'_>, name: &[u8]) -> bool {
        let spared = &self.run.options.spared;
        let found = Object::Named(dir, name).stat();
        found.is_ok_and(|found| spared.contains(&(found.st_dev, found.st_ino)))
    }
}

/// Returns whether this is a device that only root may create.
fn is_refused_device(inode: &Inode, error: &io::Error) -> bool {
    matches!(inode.kind, FileKind::CharDevice | FileKind::BlockDevice)
        && error.kind() == io::ErrorKind::PermissionDenied
}
