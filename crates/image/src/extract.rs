//! Writing the tree of an image into a directory.
//!
//! One thread walks the tree and creates what has a name: directories, files, links, nodes. Workers
//! fill the files with data and give them their owners, modes, attributes and times. Whoever lets go
//! of a file last finishes it. Files that are packed together in large extents wait until the walk
//! has found many of them (`packed`). A directory is finished when the walk leaves it, as nothing is
//! created in it from then on; until then it is open to its owner alone. The root, and directories
//! that would not let their owner in, are finished at the end.
//!
//! Nothing is written outside the target. Everything is created by its name in an open directory,
//! symbolic links are never followed, and what exists is never written into: it is an error or, if
//! so wished, replaced. A hard link to anything but what this run created is taken back.
//!
//! What is created is asked for its state, and only what differs is changed. Extracting an ordinary
//! file takes openat, pwrite, fstat, utimensat and close.

mod links;
mod packed;
mod privileges;

use std::fmt;
use std::io;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anteros_core::{FileKind, Timestamp};
use anteros_format::Nid;
use anteros_format::inode::Inode;
use crossbeam_channel::Receiver;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::descent::{Descent, identity, open_below, open_dir};
use crate::parts::{Batch, Feeder, Part, PartReader, Piece, with_workers};
use crate::trail::Trail;
use crate::{DirCursor, Error, Image, ImagePath, NidSet, OwnedDirent, Reader, Result, Xattr};
use links::{FirstName, Links, NEAR_MAX};
use packed::{Notes, PackedJob};
use privileges::{is_device, is_privileged_attribute, permitted, withheld};

/// Tells which extended attributes matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrScope {
    /// None.
    None,
    /// Those in the namespace `user`.
    User,
    /// All, access control lists included.
    All,
}

impl XattrScope {
    /// Returns whether an attribute of this name matters.
    pub fn contains(self, name: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::User => name.starts_with(b"user."),
            Self::All => true,
        }
    }
}

/// Describes how to extract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractOptions {
    /// Tells how many threads write data, 1 to 64; one more creates names.
    pub workers: usize,
    /// Tells whether to replace what exists. Directories are kept, and never replaced by anything else.
    pub overwrite: bool,
    /// Tells whether to go on with the next file after an error.
    pub keep_going: bool,
    /// Tells whether to set owners and groups. If not, privileges are withheld as well: set-id bits
    /// are dropped, devices and attributes of the namespaces `security` and `trusted` left out.
    pub owners: bool,
    /// Tells whether to set modification times; access times are set to the same.
    pub times: bool,
    /// Tells which extended attributes to set.
    pub xattrs: XattrScope,
    /// Bits of permissions that nothing gets, such as 0o022.
    pub umask: u16,
    /// Lets the owner read everything, whatever the permissions say, for lists keep those. It changes nothing if owners are
    /// set.
    pub readable: bool,
    /// Files that are never replaced, by device and inode, as the system numbers them: those that the image lies in.
    pub spared: Vec<(u64, u64)>,
}

impl Default for ExtractOptions {
    /// One worker for each core. Root sets everything; others set no owners, and attributes in the
    /// namespace `user` alone.
    fn default() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            workers: std::thread::available_parallelism().map_or(1, NonZero::get),
            overwrite: false,
            keep_going: false,
            owners: is_root,
            times: true,
            xattrs: if is_root {
                XattrScope::All
            } else {
                XattrScope::User
            },
            umask: 0,
            readable: false,
            spared: Vec::new(),
        }
    }
}

/// Hears how an extraction goes on, from several threads.
pub trait ExtractObserver: Sync {
    /// A name was created.
    fn created(&self, _path: &ImagePath, _kind: FileKind) {}

    /// So many more bytes of data were written.
    fn wrote(&self, _bytes: u64) {}

    /// Something was left out, and the extraction goes on.
    fn warning(&self, _warning: &Warning) {}

    /// Returns whether [`created`](Self::created) should be called at all: paths take time to put together.
    fn wants_names(&self) -> bool {
        false
    }
}

/// Hears nothing.
impl ExtractObserver for () {}

/// Something that was left out because the system does not permit or know it, or because it would be
/// a privilege of whoever extracts.
#[derive(Debug)]
pub struct Warning {
    /// The file.
    pub path: ImagePath,
    /// Holds what was left out.
    pub omitted: Omitted,
    /// Holds what the system says.
    pub source: io::Error,
}

/// Tells what may be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Omitted {
    /// A device.
    Device,
    /// An extended attribute of this name.
    Xattr(Vec<u8>),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            omitted,
            source,
        } = self;
        match omitted {
            Omitted::Device => write!(f, "{path}: the device was left out: {source}"),
            Omitted::Xattr(name) => {
                let name = name.escape_ascii();
                write!(f, "{path}: the attribute {name} was left out: {source}")
            }
        }
    }
}

/// Holds what was extracted.
#[derive(Debug, Default)]
pub struct ExtractSummary {
    /// Directories.
    pub directories: u64,
    /// Regular files, each counted once.
    pub files: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub nodes: u64,
    /// Bytes of data written; holes are not.
    pub bytes: u64,
    /// Devices that were left out.
    pub devices_omitted: u64,
    /// Extended attributes that were left out.
    pub xattrs_omitted: u64,
    /// The first errors, [`ERRORS_KEPT`] at the most. Of a file with an error, what could be read
    /// stays.
    pub errors: Vec<ExtractError>,
    /// All errors.
    pub error_count: u64,
}

/// States how many errors [`ExtractSummary::errors`] keeps.
pub const ERRORS_KEPT: usize = 100;

impl ExtractSummary {
    /// Returns whether all of the tree is there.
    pub const fn is_complete(&self) -> bool {
        self.devices_omitted == 0 && self.xattrs_omitted == 0 && self.error_count == 0
    }
}

/// Tells why a file could not be extracted.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ExtractError {
    /// The file.
    pub path: ImagePath,
    /// Tells why.
    pub problem: ExtractProblem,
}

/// Tells what can go wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum ExtractProblem {
    /// The image could not be read.
    #[error(transparent)]
    Image(#[from] Error),
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    Os {
        /// Holds what.
        action: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The target could not be opened.
    #[error("cannot open the target {}: {source}", target.display())]
    Target {
        /// The target.
        target: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The target has this name already.
    #[error("it exists in the target; choose an empty target, or overwrite")]
    Exists,
    /// The name is that of a file that must not be replaced.
    #[error("the image that is extracted lies here, and is not replaced; choose another target")]
    Spared,
    /// A directory has this name in the target, and is no directory in the image.
    #[error("the target has a directory of this name, which is never replaced; remove it")]
    DirectoryInTheWay,
    /// A directory has two names: no tree has that, and a loop is one way to get there.
    #[error("directory inode {nid} has a second name, or contains itself")]
    DirectoryTwice {
        /// The inode.
        nid: Nid,
    },
    /// A directory entry says otherwise than its inode.
    #[error("the directory says that this is a {}, but it is a {}", .says.name(), .is.name())]
    Kind {
        /// Holds what the directory says.
        says: FileKind,
        /// Holds what the inode is.
        is: FileKind,
    },
    /// The name is one that no directory entry may have.
    #[error("a file cannot have this name")]
    Name,
    /// While it was to be linked, the first name of a file came to stand for another.
    #[error("somebody else replaced {first}, which this is a hard link to")]
    Replaced {
        /// The first name.
        first: ImagePath,
    },
    /// Before it had its data, it came to stand for another file.
    #[error("somebody else replaced it before its data were written")]
    Exchanged,
    /// So many parts of a large file could not be extracted that the rest was not tried.
    #[error("{PARTS_FAILED_MAX} parts of it cannot be extracted, and the rest was not tried")]
    Abandoned,
    /// The caller wished to stop.
    #[error("the extraction was cancelled here")]
    Cancelled,
}

/// A file is given up after so many parts that could not be extracted: an image of a few KiB can have
/// files of 2^60 bytes.
const PARTS_FAILED_MAX: u32 = 256;

impl ExtractProblem {
    /// Returns whether the image itself is broken.
    pub const fn is_corrupt(&self) -> bool {
        match self {
            Self::Image(error) => error.is_corrupt(),
            Self::DirectoryTwice { .. } | Self::Kind { .. } | Self::Name => true,
            _ => false,
        }
    }
}

/// Says what was attempted when the system refuses.
fn os<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> ExtractProblem {
    move |source| ExtractProblem::Os {
        action,
        source: source.into(),
    }
}

/// Extracts what lies at the path `from` of an image; empty means all.
///
/// Of a directory, the content goes into the directory `target`, which is made if it is missing and
/// which gets the attributes of the one in the image. Anything else becomes `target` itself or, if
/// that is a directory, lies in it by the name it has in the image.
///
/// # Errors
///
/// The first error, and what was extracted stays; with [`ExtractOptions::keep_going`] only if there
/// is nothing to go on with: `from` or the target cannot be opened, or `cancel` is set. `cancel` is
/// looked at before each name, and each piece of data.
pub fn extract(
    image: &Image,
    from: &[u8],
    target: &Path,
    options: &ExtractOptions,
    observer: &dyn ExtractObserver,
    cancel: &AtomicBool,
) -> Result<ExtractSummary, ExtractError> {
    let root = Trail::root(from);
    let inode = image.find(from).map_err(|e| error_at(&root, e.into()))?;
    let place = match inode.kind {
        FileKind::Directory => open_target_dir(target).map(|dir| (dir, None)),
        _ => open_target_parent(target, from).map(|(dir, name)| (dir, Some(name))),
    };
    let place = place.and_then(|(dir, name)| Ok((dir.try_clone()?, dir, name)));
    let (top, dir, name) = place.map_err(|source| {
        error_at(
            &root,
            ExtractProblem::Target {
                target: target.to_owned(),
                source,
            },
        )
    })?;
    let run = Run {
        image,
        options,
        observer,
        cancel,
        root: top,
        stop: AtomicBool::new(false),
        summary: Mutex::default(),
    };
    let walk = |feeder| Walker::new(&run, feeder, root, dir).extract(&inode, name);
    let unfinished = with_workers(options.workers, |jobs| run.work(jobs), walk);
    unfinished.finish(&run);
    run.finish()
}

fn error_at(trail: &Trail, problem: ExtractProblem) -> ExtractError {
    ExtractError {
        path: trail.path(),
        problem,
    }
}

/// Opens the target for the content of a directory. That the caller names it by symbolic links is
/// their own wish.
fn open_target_dir(target: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(target, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    open_given_dir(target)
}

fn open_given_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The directory, and the name in it, of a target that is a single file.
fn open_target_parent(target: &Path, from: &[u8]) -> io::Result<(OwnedFd, Vec<u8>)> {
    if target.is_dir() {
        let mut names = from.split(|&b| b == b'/').filter(|name| !name.is_empty());
        let name = names.next_back().ok_or(io::ErrorKind::InvalidInput)?;
        return Ok((open_given_dir(target)?, name.to_vec()));
    }
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = open_given_dir(parent.unwrap_or(Path::new(".")))?;
    Ok((parent, name.as_bytes().to_vec()))
}

/// Holds what the threads share.
struct Run<'a> {
    image: &'a Image,
    options: &'a ExtractOptions,
    observer: &'a dyn ExtractObserver,
    cancel: &'a AtomicBool,
    /// The directory of the target.
    root: OwnedFd,
    /// Set by the first error that ends the run.
    stop: AtomicBool,
    summary: Mutex<ExtractSummary>,
}

/// Holds what a worker takes at a time.
enum Job {
    /// Parts of files, as the walk met them.
    Parts(Batch<OpenFile>),
    /// Parts of files that lie in one extent of the packed inode.
    Packed(PackedJob),
}

impl From<Batch<OpenFile>> for Job {
    fn from(parts: Batch<OpenFile>) -> Self {
        Self::Parts(parts)
    }
}

/// A file that was just created.
struct Created<'a> {
    fd: OwnedFd,
    inode: &'a Inode,
    trail: &'a Arc<Trail>,
    inherits_acl: bool,
}

/// A file that was created and waits for its data.
struct OpenFile {
    fd: OwnedFd,
    inode: Inode,
    trail: Arc<Trail>,
    inherits_acl: bool,
    /// Tells how many parts of its data could not be had; if any, it is left as it is.
    parts_failed: AtomicU32,
}

impl Run<'_> {
    fn finish(self) -> Result<ExtractSummary, ExtractError> {
        let mut summary = self
            .summary
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match self.stop.into_inner() {
            true => Err(summary.errors.swap_remove(0)),
            false => Ok(summary),
        }
    }

    fn count(&self, count: impl FnOnce(&mut ExtractSummary)) {
        count(&mut self.summary.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn fail(&self, trail: &Trail, problem: ExtractProblem) {
        let ends = !self.options.keep_going || matches!(problem, ExtractProblem::Cancelled);
        let error = error_at(trail, problem);
        self.count(|summary| {
            // The error that ends the run is the first, and is there before others see the end.
            match ends && !self.stop.swap(true, Ordering::Relaxed) {
                true => summary.errors.insert(0, error),
                false if summary.errors.len() < ERRORS_KEPT => summary.errors.push(error),
                false => {}
            }
            summary.error_count += 1;
        });
    }

    fn warn(&self, trail: &Trail, omitted: Omitted, source: io::Error) {
        self.count(|summary| match omitted {
            Omitted::Device => summary.devices_omitted += 1,
            Omitted::Xattr(_) => summary.xattrs_omitted += 1,
        });
        self.observer.warning(&Warning {
            path: trail.path(),
            omitted,
            source,
        });
    }

    fn check_cancel(&self) -> Result<(), ExtractProblem> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(ExtractProblem::Cancelled),
            false => Ok(()),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Fails when there is no use in further parts of a file.
    fn may_go_on_with(&self, file: &OpenFile) -> Result<(), ExtractProblem> {
        self.check_cancel()?;
        if self.stopped() {
            return Err(ExtractProblem::Cancelled);
        }
        match file.parts_failed.load(Ordering::Relaxed) {
            PARTS_FAILED_MAX.. => Err(ExtractProblem::Abandoned),
            _ => Ok(()),
        }
    }

    /// Takes jobs until there are no more. After the end of a run they are only let go of.
    fn work(&self, jobs: Receiver<Job>) {
        let mut reader = PartReader::new(self.image);
        let mut decoder = Reader::new(self.image);
        for job in jobs {
            match job {
                Job::Parts(parts) => self.write_parts(&mut reader, parts),
                Job::Packed(packed) => self.unpack(&mut decoder, &mut reader, packed),
            }
        }
    }

    fn write_parts(&self, reader: &mut PartReader<'_>, parts: Batch<OpenFile>) {
        for Part { file, range } in parts {
            if !self.stopped() {
                let written = self.write(reader, &file, range);
                self.note(&file, written);
            }
            self.let_go(file);
        }
    }

    /// Notes that a part of a file could not be had.
    fn note(&self, file: &OpenFile, written: Result<(), ExtractProblem>) {
        if let Err(problem) = written {
            file.parts_failed.fetch_add(1, Ordering::Relaxed);
            self.fail(&file.trail, problem);
        }
    }

    fn write(
        &self,
        reader: &mut PartReader<'_>,
        file: &OpenFile,
        part: std::ops::Range<u64>,
    ) -> Result<(), ExtractProblem> {
        reader.read(&file.inode, &part, |offset, piece| match piece {
            Piece::Data(data) => self.put(file, offset, data),
            Piece::Hole(_) => self.check_cancel(),
        })
    }

    fn put(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<(), ExtractProblem> {
        self.check_cancel()?;
        write_all_at(&file.fd, data, offset).map_err(os("write the data"))?;
        self.count(|summary| summary.bytes += data.len() as u64);
        self.observer.wrote(data.len() as u64);
        Ok(())
    }

    /// Finishes a file if nobody else has it.
    fn let_go(&self, file: Arc<OpenFile>) {
        let Some(file) = Arc::into_inner(file).filter(|_| !self.stopped()) else {
            return;
        };
        let OpenFile {
            fd,
            inode,
            trail,
            inherits_acl,
            parts_failed,
        } = file;
        if parts_failed.into_inner() > 0 {
            return;
        }
        let object = Object::Open(fd.as_fd());
        let dressed = self.dress(object, &trail, &inode, inherits_acl);
        dressed.unwrap_or_else(|problem| self.fail(&trail, problem));
    }

    /// Gives what was created its size, owner, attributes, mode and times.
    ///
    /// The size is missing if the end of the file is a hole.
    /// A change of the owner clears set-id bits and capabilities, so it comes first. Attributes of
    /// the namespace `user` need write permission, so they come before the mode.
    fn dress(
        &self,
        object: Object<'_>,
        trail: &Trail,
        inode: &Inode,
        inherits_acl: bool,
    ) -> Result<(), ExtractProblem> {
        let stat = object.stat().map_err(os("ask for its state"))?;
        if inode.kind == FileKind::Regular && stat.st_size as u64 != inode.size {
            object.truncate(inode.size).map_err(os("set its size"))?;
        }
        if self.options.owners && (stat.st_uid, stat.st_gid) != (inode.uid, inode.gid) {
            object.chown(inode).map_err(os("set its owner"))?;
        }
        if inherits_acl {
            object
                .remove_acls()
                .map_err(os("remove its inherited access control list"))?;
        }
        for xattr in self.image.xattrs(inode)? {
            if self.options.xattrs.contains(&xattr.name) {
                self.set_xattr(object, trail, xattr)?;
            }
        }
        let perm = permitted(inode, self.options) & !self.options.umask;
        let differs = stat.st_mode & 0o7777 != u32::from(perm);
        if (differs || inherits_acl) && inode.kind != FileKind::Symlink {
            object.chmod(perm).map_err(os("set its mode"))?;
        }
        if self.options.times {
            object.set_times(inode.mtime).map_err(os("set its times"))?;
        }
        Ok(())
    }

    fn dress_dir(
        &self,
        dir: BorrowedFd<'_>,
        trail: &Trail,
        level: &Level,
    ) -> Result<(), ExtractProblem> {
        self.dress(Object::Open(dir), trail, &level.inode, level.hands_down_acl)
    }

    fn set_xattr(
        &self,
        object: Object<'_>,
        trail: &Trail,
        xattr: Xattr,
    ) -> Result<(), ExtractProblem> {
        if !self.options.owners && is_privileged_attribute(&xattr.name) {
            self.warn(trail, Omitted::Xattr(xattr.name), withheld());
            return Ok(());
        }
        match object.set_xattr(&xattr) {
            Err(error @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)) => {
                self.warn(trail, Omitted::Xattr(xattr.name), error.into());
                Ok(())
            }
            set => set.map_err(os("set an extended attribute")),
        }
    }
}

fn write_all_at(fd: &OwnedFd, mut data: &[u8], mut offset: u64) -> io::Result<()> {
    while !data.is_empty() {
        match rustix::io::pwrite(fd, data, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                data = &data[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Something that was created: an open file, or a name in a directory.
#[derive(Clone, Copy)]
enum Object<'a> {
    Open(BorrowedFd<'a>),
    Named(BorrowedFd<'a>, &'a [u8]),
}

impl Object<'_> {
    fn stat(self) -> rustix::io::Result<Stat> {
        match self {
            Self::Open(fd) => rustix::fs::fstat(fd),
            Self::Named(dir, name) => rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    fn truncate(self, size: u64) -> rustix::io::Result<()> {
        match self {
            Self::Open(fd) => rustix::fs::ftruncate(fd, size),
            Self::Named(..) => Err(Errno::INVAL),
        }
    }

    fn chown(self, inode: &Inode) -> rustix::io::Result<()> {
        // The system takes the highest number for `no change`.
        if inode.uid == u32::MAX || inode.gid == u32::MAX {
            return Err(Errno::INVAL);
        }
        let owner = (
            Some(Uid::from_raw(inode.uid)),
            Some(Gid::from_raw(inode.gid)),
        );
        match self {
            Self::Open(fd) => rustix::fs::fchown(fd, owner.0, owner.1),
            Self::Named(dir, name) => {
                rustix::fs::chownat(dir, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    fn chmod(self, perm: u16) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(perm.into());
        match self {
            Self::Open(fd) => rustix::fs::fchmod(fd, mode),
            Self::Named(dir, name) => {
                // There is no way to change the mode of a name without following it.
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let node = rustix::fs::openat(dir, name, flags, Mode::empty())?;
                rustix::fs::chmod(descriptor_path(&node, b""), mode)
            }
        }
    }

    fn set_xattr(self, xattr: &Xattr) -> rustix::io::Result<()> {
        let Xattr { name, value } = xattr;
        let flags = XattrFlags::empty();
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
            Self::Named(dir, of) => {
                rustix::fs::lsetxattr(descriptor_path(dir, of), name, value, flags)
            }
        }
    }

    fn remove_acls(self) -> rustix::io::Result<()> {
        for name in ["system.posix_acl_access", "system.posix_acl_default"] {
            let removed = match self {
                Self::Open(fd) => rustix::fs::fremovexattr(fd, name),
                Self::Named(dir, of) => rustix::fs::lremovexattr(descriptor_path(dir, of), name),
            };
            match removed {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => {}
                error => return error,
            }
        }
        Ok(())
    }

    fn set_times(self, mtime: Timestamp) -> rustix::io::Result<()> {
        let time = Timespec {
            tv_sec: mtime.secs,
            tv_nsec: mtime.nanos.into(),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        match self {
            Self::Open(fd) => rustix::fs::futimens(fd, &times),
            Self::Named(dir, name) => {
                rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}

/// A path by which system calls that take no descriptor reach a name in an open directory, or with
/// an empty name what is open itself.
pub(crate) fn descriptor_path(fd: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into_bytes();
    if !name.is_empty() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

/// The thread that creates names.
struct Walker<'a> {
    run: &'a Run<'a>,
    feeder: Feeder<OpenFile, Job>,
    packed: Notes,
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
struct Unfinished(Vec<(Arc<Trail>, Level)>);

impl Unfinished {
    fn finish(self, run: &Run<'_>) {
        for (trail, level) in self.0 {
            if run.stopped() {
                return;
            }
            let dir = open_below(run.root.as_fd(), &trail).map_err(os("open the directory"));
            let finished = dir.and_then(|dir| run.dress_dir(dir.as_fd(), &trail, &level));
            finished.unwrap_or_else(|problem| run.fail(&trail, problem));
        }
    }
}

/// Memory for the set of directories that were made, in bytes.
const ENTERED_BYTES: usize = 1 << 20;

/// States what fails where a temporary file does.
const NOTED: &str = "note it in a temporary file";

/// Entries of a directory that are read at a time.
const PAGE_ENTRIES: usize = 4096;

/// A directory on the way.
struct Level {
    inode: Inode,
    page: std::vec::IntoIter<OwnedDirent>,
    /// Tells where the next page begins.
    next_page: Option<DirCursor>,
    /// Tells whether what is created here gets an access control list from the directory.
    hands_down_acl: bool,
}

impl<'a> Walker<'a> {
    fn new(
        run: &'a Run<'a>,
        feeder: Feeder<OpenFile, Job>,
        root: Arc<Trail>,
        target: OwnedFd,
    ) -> Self {
        Self {
            run,
            feeder,
            packed: Notes::new(run.image),
            descent: Descent::new(root, target),
            levels: Vec::new(),
            entered: NidSet::new(ENTERED_BYTES),
            links: Links::new(NEAR_MAX),
            unfinished: Unfinished::default(),
        }
    }

    /// Extracts a directory, or anything else by a name.
    fn extract(mut self, inode: &Inode, name: Option<Vec<u8>>) -> Unfinished {
        let root = self.descent.trail().clone();
        match name {
            Some(name) => {
                // Its trail is the path in the image.
                self.packed = Notes::with_max(0);
                if let Err(problem) = self.create(&root, &name, inode, false) {
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
        self.feeder.flush();
        self.hand_over_packed();
        self.unfinished
    }

    fn hand_over_packed(&mut self) {
        let Self { packed, feeder, .. } = self;
        let hand_over = |job| feeder.send(Job::Packed(job));
        packed.sort(self.run, feeder.batch_max(), hand_over);
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
        let created = self.create(trail, &trail.name, &inode, inherits_acl)?;
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

    fn report(&self, trail: &Trail, kind: FileKind) {
        if self.run.observer.wants_names() {
            self.run.observer.created(&trail.path(), kind);
        }
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
        self.report(trail, FileKind::Directory);
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
        self.make(name, make, "create the directory").map(|()| true)
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
        self.run.dress_dir(dir.as_fd(), trail, &level)
    }

    /// Creates anything but a directory, and says whether it is there now.
    fn create(
        &mut self,
        trail: &Arc<Trail>,
        name: &[u8],
        inode: &Inode,
        inherits_acl: bool,
    ) -> Result<bool, ExtractProblem> {
        match inode.kind {
            FileKind::Regular => self.create_file(trail, name, inode, inherits_acl)?,
            FileKind::Symlink => self.create_symlink(name, inode)?,
            _ if !self.run.options.owners && is_device(inode) => {
                self.run.warn(trail, Omitted::Device, withheld());
                return Ok(false);
            }
            _ => match self.create_node(name, inode) {
                Err(ExtractProblem::Os { source, .. }) if is_refused_device(inode, &source) => {
                    self.run.warn(trail, Omitted::Device, source);
                    return Ok(false);
                }
                created => created?,
            },
        }
        if inode.kind != FileKind::Regular {
            let object = Object::Named(self.descent.dir(), name);
            self.run.dress(object, trail, inode, inherits_acl)?;
        }
        self.run.count(|summary| match inode.kind {
            FileKind::Regular => summary.files += 1,
            FileKind::Symlink => summary.symlinks += 1,
            _ => summary.nodes += 1,
        });
        self.report(trail, inode.kind);
        Ok(true)
    }

    fn create_file(
        &mut self,
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
        let dir = self.descent.dir();
        let open = || rustix::fs::openat(dir, name, flags, mode);
        let fd = self.make(name, open, "create the file")?;
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

    fn create_symlink(&self, name: &[u8], inode: &Inode) -> Result<(), ExtractProblem> {
        let target = self.run.image.read_link(inode)?;
        let dir = self.descent.dir();
        let link = || rustix::fs::symlinkat(&target, dir, name);
        self.make(name, link, "create the symbolic link")
    }

    fn create_node(&self, name: &[u8], inode: &Inode) -> Result<(), ExtractProblem> {
        let kind = FileType::from_raw_mode(inode.kind.mode_bits());
        let mode = Mode::from_raw_mode(u32::from(inode.perm) & 0o777);
        let device = rustix::fs::makedev(inode.rdev.major, inode.rdev.minor);
        let dir = self.descent.dir();
        let node = || rustix::fs::mknodat(dir, name, kind, mode, device);
        self.make(name, node, "create it")
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
        self.make(&trail.name, link, "create the hard link")?;
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
            self.report(trail, kind);
        }
        self.links.count_down(nid).map_err(os(NOTED))
    }

    fn is_spared(&self, name: &[u8]) -> bool {
        let spared = &self.run.options.spared;
        let found = Object::Named(self.descent.dir(), name).stat();
        found.is_ok_and(|found| spared.contains(&(found.st_dev, found.st_ino)))
    }

    /// Creates a name, and if so wished replaces what has it.
    fn make<T>(
        &self,
        name: &[u8],
        make: impl Fn() -> rustix::io::Result<T>,
        action: &'static str,
    ) -> Result<T, ExtractProblem> {
        if matches!(name, b"." | b"..") {
            return Err(ExtractProblem::Name);
        }
        match make() {
            Err(Errno::EXIST) if self.run.options.overwrite => {
                if self.is_spared(name) {
                    return Err(ExtractProblem::Spared);
                }
                match rustix::fs::unlinkat(self.descent.dir(), name, AtFlags::empty()) {
                    Err(Errno::ISDIR) => return Err(ExtractProblem::DirectoryInTheWay),
                    removed => removed.map_err(os("remove what exists"))?,
                }
                make().map_err(os(action))
            }
            Err(Errno::EXIST) => Err(ExtractProblem::Exists),
            made => made.map_err(os(action)),
        }
    }
}

/// Returns whether this is a device that only root may create.
fn is_refused_device(inode: &Inode, error: &io::Error) -> bool {
    matches!(inode.kind, FileKind::CharDevice | FileKind::BlockDevice)
        && error.kind() == io::ErrorKind::PermissionDenied
}

fn hands_down_acl(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fgetxattr_query(dir, "system.posix_acl_default").is_ok_and(|len| len > 0)
}

impl Level {
    fn new(inode: Inode, hands_down_acl: bool) -> Self {
        let page = Vec::new().into_iter();
        Self {
            inode,
            page,
            next_page: Some(DirCursor::default()),
            hands_down_acl,
        }
    }

    /// The next entry other than `.` and `..`.
    fn next(&mut self, image: &Image) -> Option<Result<OwnedDirent>> {
        loop {
            match self.page.next() {
                Some(entry) if matches!(&*entry.name, b"." | b"..") => {}
                Some(entry) => return Some(Ok(entry)),
                None => {
                    let page = self.next_page.take()?;
                    if let Err(error) = self.turn_to(image, page) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// Reads a page; in front of an error, what there is of it.
    fn turn_to(&mut self, image: &Image, from: DirCursor) -> Result<()> {
        let mut page = Vec::new();
        let read = image.visit_dir(&self.inode, from, |entry, next| {
            page.push(OwnedDirent {
                nid: entry.nid,
                kind: entry.kind,
                name: entry.name.to_vec(),
            });
            if page.len() < PAGE_ENTRIES {
                return ControlFlow::Continue(());
            }
            self.next_page = Some(next);
            ControlFlow::Break(())
        });
        self.page = page.into_iter();
        read
    }
}
