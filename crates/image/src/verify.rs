//! Comparing an image with the directory it was made from.
//!
//! One thread walks both trees side by side and compares names and attributes. Workers compare the
//! data of files, byte for byte. Symbolic links of the source are compared, never followed.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{self, AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use anteros_core::{FileKind, Rdev, Timestamp};
use anteros_format::Nid;
use anteros_format::inode::Inode;
use crossbeam_channel::Receiver;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::descent::{Descent, Identity, identity, open_dir};
use crate::extract::{XattrScope, descriptor_path};
use crate::parts::{Batch, Feeder, Part, PartReader, Piece, with_workers};
use crate::trail::Trail;
use crate::{Error, Image, ImagePath, Result, Xattr};

/// Holds what to compare, and how.
#[derive(Clone, Copy)]
pub struct VerifyOptions<'a> {
    /// Tells how many threads compare data, 1 to 64; one more compares names.
    pub workers: usize,
    /// Owner and group that a file of the image should have, told by those of its source; `None`
    /// for any.
    pub owner: &'a (dyn Fn((u32, u32)) -> Option<(u32, u32)> + Sync),
    /// The modification time that a file of the image should have, told by that of its source;
    /// `None` for any.
    pub time: &'a (dyn Fn(Timestamp) -> Option<Timestamp> + Sync),
    /// Tells which extended attributes to compare.
    pub xattrs: XattrScope,
    /// Tells whether names that are hard links of each other must be so in the image, and the reverse.
    pub links: bool,
    /// Tells whether the image was made without this path of the source and what is below, given
    /// without a leading `/`.
    pub excluded: &'a (dyn Fn(&[u8]) -> bool + Sync),
    /// Tells how many differences to keep; the others are only counted.
    pub differences_max: usize,
}

impl Default for VerifyOptions<'_> {
    /// Everything is compared, by one worker for each core, and 100 differences are kept.
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, NonZero::get),
            owner: &Some,
            time: &Some,
            xattrs: XattrScope::All,
            links: true,
            excluded: &|_| false,
            differences_max: 100,
        }
    }
}

/// Hears how a comparison goes on, from several threads.
pub trait VerifyObserver: Sync {
    /// One more name was compared.
    fn compared_name(&self) {}

    /// So many more bytes were compared.
    fn compared_bytes(&self, _bytes: u64) {}
}

/// Hears nothing.
impl VerifyObserver for () {}

/// A path at which an image and its source differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {what}")]
pub struct Difference {
    /// The path in both.
    pub path: ImagePath,
    /// Tells how they differ.
    pub what: Mismatch,
}

/// Tells how an image and its source differ at a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the fields are the two sides
pub enum Mismatch {
    /// The source has no such name, or it was to be excluded.
    OnlyInImage,
    /// The image has no such name.
    OnlyInSource,
    /// They are of different kinds.
    Kind {
        image: &'static str,
        source: &'static str,
    },
    /// Permission, set-id and sticky bits.
    Mode { image: u16, source: u16 },
    /// Owner and group.
    Owner {
        image: (u32, u32),
        expected: (u32, u32),
    },
    /// Seconds and nanoseconds of the last modification.
    Time {
        image: (i64, u32),
        expected: (i64, u32),
    },
    /// Size of a file in bytes.
    Size { image: u64, source: u64 },
    /// Device numbers, major and minor.
    Device {
        image: (u32, u32),
        source: (u32, u32),
    },
    /// Targets of a symbolic link.
    Target { image: ImageText, source: ImageText },
    /// In one of both this name is a hard link of another, in the other it is not.
    Links { in_image: bool, other: ImagePath },
    /// The source has no such attribute.
    XattrOnlyInImage { name: ImageText },
    /// The image has no such attribute.
    XattrOnlyInSource { name: ImageText },
    /// The values of an attribute differ.
    XattrValue { name: ImageText },
    /// The first byte that differs in a file of the same size.
    Data { offset: u64 },
}

/// Bytes that are nearly always text; shown with all else escaped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageText(pub Vec<u8>);

impl fmt::Display for ImageText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.escape_ascii())
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyInImage => f.write_str("only in the image"),
            Self::OnlyInSource => f.write_str("only in the source"),
            Self::Kind { image, source } => {
                write!(f, "a {image} in the image, a {source} in the source")
            }
            Self::Mode { image, source } => {
                write!(
                    f,
                    "mode {image:04o} in the image, {source:04o} in the source"
                )
            }
            Self::Owner { image, expected } => {
                let ((uid, gid), (to_be, group)) = (image, expected);
                write!(
                    f,
                    "owner {uid}:{gid} in the image instead of {to_be}:{group}"
                )
            }
            Self::Time { image, expected } => {
                let ((secs, nanos), (to_be, fraction)) = (image, expected);
                write!(
                    f,
                    "time {secs}.{nanos:09} in the image instead of {to_be}.{fraction:09}"
                )
            }
            Self::Size { image, source } => {
                write!(f, "{image} bytes in the image, {source} in the source")
            }
            Self::Device { image, source } => {
                let ((major, minor), (to_be, unit)) = (image, source);
                write!(
                    f,
                    "device {major}:{minor} in the image, {to_be}:{unit} in the source"
                )
            }
            Self::Target { image, source } => {
                write!(
                    f,
                    "links to {image} in the image, to {source} in the source"
                )
            }
            Self::Links {
                in_image: true,
                other,
            } => {
                write!(f, "a hard link of {other} in the image alone")
            }
            Self::Links {
                in_image: false,
                other,
            } => {
                write!(f, "a hard link of {other} in the source alone")
            }
            Self::XattrOnlyInImage { name } => write!(f, "attribute {name} only in the image"),
            Self::XattrOnlyInSource { name } => write!(f, "attribute {name} only in the source"),
            Self::XattrValue { name } => write!(f, "attribute {name} has another value"),
            Self::Data { offset } => write!(f, "the data differs at byte {offset}"),
        }
    }
}

/// Holds what a comparison found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Names that both have, the root included.
    pub names: u64,
    /// Bytes of data compared.
    pub bytes: u64,
    /// The differences that were kept, sorted by path.
    pub differences: Vec<Difference>,
    /// All differences.
    pub difference_count: u64,
}

/// Tells why a comparison could not be finished.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct VerifyError {
    /// Tells where.
    pub path: ImagePath,
    /// Tells why.
    pub problem: VerifyProblem,
}

/// Tells what can stop a comparison.
#[derive(Debug, thiserror::Error)]
pub enum VerifyProblem {
    /// The image could not be read.
    #[error(transparent)]
    Image(#[from] Error),
    /// The source could not be read.
    #[error("the source: {0}")]
    Source(#[from] io::Error),
    /// The caller wished to stop.
    #[error("the comparison was cancelled here")]
    Cancelled,
}

impl From<Errno> for VerifyProblem {
    fn from(error: Errno) -> Self {
        Self::Source(error.into())
    }
}

/// Compares an image with a directory: names, kinds, modes, owners, times, sizes, device numbers,
/// link targets, hard links, extended attributes and data. Holes are the same as zeros.
///
/// # Errors
///
/// If one of them cannot be read, or `cancel` is set; it is looked at before each name and each
/// piece of data.
pub fn verify(
    image: &Image,
    source: &Path,
    options: &VerifyOptions<'_>,
    observer: &dyn VerifyObserver,
    cancel: &AtomicBool,
) -> Result<VerifyReport, VerifyError> {
    let root = Trail::root(b"");
    let at_root = |problem| VerifyError {
        path: root.path(),
        problem,
    };
    let dir = open_source(source).map_err(|error| at_root(error.into()))?;
    let run = Run {
        image,
        options,
        observer,
        cancel,
        failed: AtomicBool::new(false),
        outcome: Mutex::default(),
    };
    let walk = |feeder| Walker::new(&run, feeder, root.clone(), dir).walk();
    with_workers(options.workers, |jobs| run.work(jobs), walk);
    run.finish()
}

fn open_source(source: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(source, flags, Mode::empty())
}

/// Holds what the threads share.
struct Run<'a> {
    image: &'a Image,
    options: &'a VerifyOptions<'a>,
    observer: &'a dyn VerifyObserver,
    cancel: &'a AtomicBool,
    failed: AtomicBool,
    outcome: Mutex<(VerifyReport, Option<VerifyError>)>,
}

/// A file that both have, with the same size.
struct FilePair {
    source: OwnedFd,
    inode: Inode,
    trail: Arc<Trail>,
    /// The lowest offset at which a difference was found.
    differs_at: AtomicU64,
}

impl Run<'_> {
    fn finish(self) -> Result<VerifyReport, VerifyError> {
        let outcome = self
            .outcome
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let (mut report, error) = outcome;
        report.differences.sort_unstable();
        error.map_or(Ok(report), Err)
    }

    fn count(&self, count: impl FnOnce(&mut VerifyReport)) {
        count(
            &mut self
                .outcome
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .0,
        );
    }

    fn differ(&self, trail: &Trail, what: Mismatch) {
        self.count(|report| {
            report.difference_count += 1;
            if report.differences.len() < self.options.differences_max {
                report.differences.push(Difference {
                    path: trail.path(),
                    what,
                });
            }
        });
    }

    fn fail(&self, trail: &Trail, problem: VerifyProblem) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.1.get_or_insert_with(|| VerifyError {
            path: trail.path(),
            problem,
        });
        self.failed.store(true, atomic::Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.failed.load(atomic::Ordering::Relaxed)
    }

    fn check_cancel(&self) -> Result<(), VerifyProblem> {
        match self.cancel.load(atomic::Ordering::Relaxed) {
            true => Err(VerifyProblem::Cancelled),
            false => Ok(()),
        }
    }

    /// Takes parts until there are no more. After an error they are only let go of.
    fn work(&self, jobs: Receiver<Batch<FilePair>>) {
        let mut reader = PartReader::new(self.image);
        let mut buf = Vec::new();
        for Part { file, range } in jobs.into_iter().flatten() {
            if !self.stopped() {
                let compared = self.compare_part(&mut reader, &mut buf, &file, &range);
                compared.unwrap_or_else(|problem| self.fail(&file.trail, problem));
            }
            self.let_go(file);
        }
    }

    /// Reports what was found in a file, if nobody else has it.
    fn let_go(&self, file: Arc<FilePair>) {
        if let Some(file) = Arc::into_inner(file) {
            match file.differs_at.into_inner() {
                u64::MAX => {}
                offset => self.differ(&file.trail, Mismatch::Data { offset }),
            }
        }
    }

    fn compare_part(
        &self,
        reader: &mut PartReader<'_>,
        buf: &mut Vec<u8>,
        file: &FilePair,
        part: &Range<u64>,
    ) -> Result<(), VerifyProblem> {
        reader.read(&file.inode, part, |offset, piece| {
            self.check_cancel()?;
            let (len, differs_at) = match piece {
                Piece::Data(data) => {
                    buf.resize(data.len(), 0);
                    let count = read_at(&file.source, offset, buf)?;
                    (data.len() as u64, first_difference(data, &buf[..count]))
                }
                Piece::Hole(len) => (len, first_data(&file.source, offset, len, buf)?),
            };
            if let Some(skip) = differs_at {
                file.differs_at
                    .fetch_min(offset + skip, atomic::Ordering::Relaxed);
            }
            self.count(|report| report.bytes += len);
            self.observer.compared_bytes(len);
            Ok(())
        })
    }
}

/// Returns where the first byte differs; the end of the shorter one is a difference.
fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    let equal = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    Some(equal as u64)
}

/// Fills `buf`, unless the file ends before.
fn read_at(file: &OwnedFd, offset: u64, buf: &mut [u8]) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(file, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Returns where the first byte other than zero lies, counted from `offset`. What the source does
/// not store is not read.
fn first_data(
    file: &OwnedFd,
    offset: u64,
    len: u64,
    buf: &mut Vec<u8>,
) -> rustix::io::Result<Option<u64>> {
    const STEP: u64 = 1 << 20;
    let end = offset + len;
    let mut at = offset;
    while at < end {
        at = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(None),
            found => found?.max(at),
        };
        let step = STEP.min(end.saturating_sub(at));
        buf.resize(step as usize, 0);
        let count = read_at(file, at, buf)?;
        if let Some(skip) = buf[..count].iter().position(|&b| b != 0) {
            return Ok(Some(at + skip as u64 - offset));
        }
        at += step.max(1);
    }
    Ok(None)
}

/// The thread that compares names.
struct Walker<'a> {
    run: &'a Run<'a>,
    feeder: Feeder<FilePair>,
    descent: Descent,
    /// Holds what is still to be compared of the directories of the descent.
    levels: Vec<std::vec::IntoIter<Name>>,
    in_image: HashMap<Nid, Linked<Identity>>,
    in_source: HashMap<Identity, Linked<Nid>>,
}

/// The first name of a file, and who has it on the other side.
struct Linked<T> {
    other: T,
    trail: Arc<Trail>,
}

/// A name of one side, or of both.
struct Name {
    name: Vec<u8>,
    in_image: Option<Nid>,
    in_source: bool,
}

impl<'a> Walker<'a> {
    fn new(run: &'a Run<'a>, feeder: Feeder<FilePair>, root: Arc<Trail>, source: OwnedFd) -> Self {
        Self {
            run,
            feeder,
            descent: Descent::new(root, source),
            levels: Vec::new(),
            in_image: HashMap::new(),
            in_source: HashMap::new(),
        }
    }

    fn walk(mut self) {
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
        self.compare_attributes(root, &inode, &stat, &|| rustix_xattrs(&path, true))?;
        let names = self.names(root, &inode)?;
        self.levels.push(names.into_iter());
        Ok(())
    }

    fn leave(&mut self) -> Result<(), VerifyProblem> {
        self.levels.pop();
        if !self.levels.is_empty() {
            self.descent.leave()?;
        }
        Ok(())
    }

    /// The names of the innermost directory on both sides.
    fn names(&self, trail: &Trail, inode: &Inode) -> Result<Vec<Name>, VerifyProblem> {
        let mut in_image = self.run.image.read_dir(inode)?;
        in_image.retain(|entry| !matches!(&*entry.name, b"." | b".."));
        let in_source = self.source_names(trail)?;
        let mut names = Vec::with_capacity(in_image.len().max(in_source.len()));
        let mut in_source = in_source.into_iter().peekable();
        for entry in in_image {
            while let Some(name) = in_source.next_if(|name| name.cmp(&entry.name) == Ordering::Less)
            {
                names.push(Name {
                    name,
                    in_image: None,
                    in_source: true,
                });
            }
            let both = in_source.next_if_eq(&entry.name).is_some();
            names.push(Name {
                name: entry.name,
                in_image: Some(entry.nid),
                in_source: both,
            });
        }
        names.extend(in_source.map(|name| Name {
            name,
            in_image: None,
            in_source: true,
        }));
        Ok(names)
    }

    fn source_names(&self, trail: &Trail) -> Result<Vec<Vec<u8>>, VerifyProblem> {
        let mut names = Vec::new();
        let mut path = trail.path().as_bytes().to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        let above = path.len();
        for entry in Dir::read_from(self.descent.dir())? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            path.truncate(above);
            path.extend_from_slice(name);
            if !matches!(name, b"." | b"..") && !(self.run.options.excluded)(&path) {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
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
        let inode = self.run.image.inode(nid)?;
        let dir = self.descent.dir();
        let stat = rustix::fs::statat(dir, &*name.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let path = descriptor_path(dir, &name.name);
        let xattrs = || rustix_xattrs(&path, false);
        if !self.compare_attributes(trail, &inode, &stat, &xattrs)? {
            return Ok(());
        }
        let is_linked = inode.nlink > 1 || stat.st_nlink > 1;
        let is_linked = is_linked && inode.kind != FileKind::Directory && self.run.options.links;
        if is_linked && self.compare_links(trail, inode.nid, identity(&stat)) {
            return Ok(());
        }
        self.compare_content(trail, inode, &stat)
    }

    /// Compares what all kinds have, and says whether there is reason to compare the content.
    fn compare_attributes(
        &self,
        trail: &Trail,
        inode: &Inode,
        stat: &Stat,
        xattrs: &dyn Fn() -> rustix::io::Result<Vec<Xattr>>,
    ) -> Result<bool, VerifyProblem> {
        self.run.count(|report| report.names += 1);
        self.run.observer.compared_name();
        let differ = |what| self.run.differ(trail, what);
        let kind = FileKind::from_mode(stat.st_mode);
        if kind != Some(inode.kind) {
            let source = kind.map_or("file of unknown kind", FileKind::name);
            differ(Mismatch::Kind {
                image: inode.kind.name(),
                source,
            });
            return Ok(false);
        }
        let mode = (stat.st_mode & 0o7777) as u16;
        if mode != inode.perm && inode.kind != FileKind::Symlink {
            differ(Mismatch::Mode {
                image: inode.perm,
                source: mode,
            });
        }
        let image = (inode.uid, inode.gid);
        let expected = (self.run.options.owner)((stat.st_uid, stat.st_gid)).unwrap_or(image);
        if expected != image {
            differ(Mismatch::Owner { image, expected });
        }
        let source = Timestamp {
            secs: stat.st_mtime,
            nanos: stat.st_mtime_nsec as u32,
        };
        let expected = (self.run.options.time)(source).unwrap_or(inode.mtime);
        if expected != inode.mtime {
            let pair = |time: Timestamp| (time.secs, time.nanos);
            differ(Mismatch::Time {
                image: pair(inode.mtime),
                expected: pair(expected),
            });
        }
        self.compare_xattrs(trail, inode, xattrs)?;
        Ok(true)
    }

    fn compare_xattrs(
        &self,
        trail: &Trail,
        inode: &Inode,
        in_source: &dyn Fn() -> rustix::io::Result<Vec<Xattr>>,
    ) -> Result<(), VerifyProblem> {
        let scope = self.run.options.xattrs;
        if scope == XattrScope::None {
            return Ok(());
        }
        let sorted = |xattrs: Vec<Xattr>| -> HashMap<Vec<u8>, Vec<u8>> {
            let all = xattrs
                .into_iter()
                .filter(|xattr| scope.contains(&xattr.name));
            all.map(|Xattr { name, value }| (name, value)).collect()
        };
        let image = sorted(self.run.image.xattrs(inode)?);
        let mut source = sorted(in_source()?);
        for (name, value) in image {
            let other = source.remove(&name);
            let name = ImageText(name);
            match other {
                None => self.run.differ(trail, Mismatch::XattrOnlyInImage { name }),
                Some(other) if other != value => {
                    self.run.differ(trail, Mismatch::XattrValue { name });
                }
                Some(_) => {}
            }
        }
        for name in source.into_keys().map(ImageText) {
            self.run.differ(trail, Mismatch::XattrOnlyInSource { name });
        }
        Ok(())
    }

    /// Names that lead to the same file on one side must do so on the other. Says whether both files
    /// were compared before, by other names.
    fn compare_links(&mut self, trail: &Arc<Trail>, nid: Nid, file: Identity) -> bool {
        let linked = Linked {
            other: file,
            trail: trail.clone(),
        };
        let in_image = self.in_image.entry(nid).or_insert(linked);
        let linked = Linked {
            other: nid,
            trail: trail.clone(),
        };
        let in_source = self.in_source.entry(file).or_insert(linked);
        if in_image.other != file {
            let other = in_image.trail.path();
            self.run.differ(
                trail,
                Mismatch::Links {
                    in_image: true,
                    other,
                },
            );
        }
        if in_source.other != nid {
            let other = in_source.trail.path();
            self.run.differ(
                trail,
                Mismatch::Links {
                    in_image: false,
                    other,
                },
            );
        }
        in_image.other == file && !Arc::ptr_eq(&in_image.trail, trail)
    }

    fn compare_content(
        &mut self,
        trail: &Arc<Trail>,
        inode: Inode,
        stat: &Stat,
    ) -> Result<(), VerifyProblem> {
        match inode.kind {
            FileKind::Regular => self.compare_file(trail, inode, stat),
            FileKind::Directory => self.enter(trail, &inode),
            FileKind::Symlink => self.compare_target(trail, &inode),
            FileKind::CharDevice | FileKind::BlockDevice => {
                self.compare_device(trail, inode.rdev, stat.st_rdev);
                Ok(())
            }
            FileKind::Fifo | FileKind::Socket => Ok(()),
        }
    }

    fn compare_file(
        &mut self,
        trail: &Arc<Trail>,
        inode: Inode,
        stat: &Stat,
    ) -> Result<(), VerifyProblem> {
        let size = stat.st_size as u64;
        if size != inode.size {
            self.run.differ(
                trail,
                Mismatch::Size {
                    image: inode.size,
                    source: size,
                },
            );
            return Ok(());
        }
        if size == 0 {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = rustix::fs::openat(self.descent.dir(), &*trail.name, flags, Mode::empty())?;
        let differs_at = AtomicU64::new(u64::MAX);
        let file = Arc::new(FilePair {
            source,
            inode,
            trail: trail.clone(),
            differs_at,
        });
        let go_on = || match self.run.stopped() {
            true => Err(VerifyProblem::Cancelled),
            false => self.run.check_cancel(),
        };
        self.feeder
            .file(self.run.image, &file.inode, &file, go_on)?;
        self.run.let_go(file);
        Ok(())
    }

    fn enter(&mut self, trail: &Arc<Trail>, inode: &Inode) -> Result<(), VerifyProblem> {
        let dir = open_dir(self.descent.dir(), &trail.name)?;
        self.descent.enter(trail.clone(), dir)?;
        let names = self.names(trail, inode)?;
        self.levels.push(names.into_iter());
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

/// The extended attributes of a path, none if its file system knows none. Only a magic link, as
/// [`descriptor_path`] makes, is followed.
fn rustix_xattrs(path: &[u8], follow: bool) -> rustix::io::Result<Vec<Xattr>> {
    // The system's own limits for a list, and for a value.
    let mut buf = vec![0; 1 << 16];
    let listed = match follow {
        true => rustix::fs::listxattr(path, &mut buf[..]),
        false => rustix::fs::llistxattr(path, &mut buf[..]),
    };
    let len = match listed {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    if len == 0 {
        return Ok(Vec::new());
    }
    let list = buf[..len].to_vec();
    let mut xattrs = Vec::new();
    for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let len = match follow {
            true => rustix::fs::getxattr(path, name, &mut buf[..])?,
            false => rustix::fs::lgetxattr(path, name, &mut buf[..])?,
        };
        xattrs.push(Xattr {
            name: name.to_vec(),
            value: buf[..len].to_vec(),
        });
    }
    Ok(xattrs)
}
