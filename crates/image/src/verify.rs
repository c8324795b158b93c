//! Comparing an image with the directory it was made from.
//!
//! One thread walks both trees side by side and compares names and attributes. Workers compare the
//! data of files, byte for byte. Symbolic links of the source are compared, never followed. Whatever
//! cannot be read of either is told as a difference, and the rest is compared all the same.

mod difference;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{self, AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use anteros_core::{FileKind, Rdev, Timestamp};
use anteros_format::Nid;
use anteros_format::inode::Inode;
use crossbeam_channel::Receiver;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

pub use self::difference::{Difference, ImageText, Mismatch, Side};
use crate::descent::{Descent, Identity, identity, open_dir};
use crate::extract::{XattrScope, descriptor_path};
use crate::parts::{Batch, Feeder, Part, PartReader, Piece, with_workers};
use crate::trail::Trail;
use crate::{Error, Image, ImagePath, Result, Xattr};

/// Names of what a file has, as people are told of those that cannot be read.
const INODE: &str = "inode";
const ATTRIBUTES: &str = "attributes";
const NAMES: &str = "names";
const DATA: &str = "data";

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
    /// Tells whether to compare permissions.
    pub permissions: bool,
    /// Tells which extended attributes to compare.
    pub xattrs: XattrScope,
    /// Tells whether names that are hard links of each other must be so in the image, and the reverse.
    pub links: bool,
    /// Tells whether the image was made without this path of the source and what is below, given
    /// without a leading `/`.
    pub excluded: &'a (dyn Fn(&[u8]) -> bool + Sync),
    /// Tells how many differences to keep, and how many of what cannot be read besides, so that the
    /// ones do not hide the others; the rest is only counted.
    pub differences_max: usize,
}

impl Default for VerifyOptions<'_> {
    /// Everything is compared, by one worker for each core, and 100 differences are kept.
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, NonZero::get),
            owner: &Some,
            time: &Some,
            permissions: true,
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
    /// Those among them that are [`Mismatch::Unreadable`].
    pub unreadable_count: u64,
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

/// Tells what can stop a comparison, at its root or anywhere.
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
/// link targets, hard links, extended attributes and data. Holes are the same as zeros. A part that
/// cannot be read on either side is a difference, and the others are compared.
///
/// # Errors
///
/// If the root of one of them cannot be read, if the way back from a directory of the source is gone,
/// or if `cancel` is set; it is looked at before each name and each piece of data.
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
    /// Counts the parts that could not be read.
    parts_failed: AtomicU32,
    /// The first of them, and why.
    unread: Mutex<Option<(u64, VerifyProblem)>>,
}

/// A file is given up after so many parts that could not be read: an image of a few KiB can have
/// files of 2^60 bytes, and so can a source that stores none of them.
const PARTS_FAILED_MAX: u32 = 256;

/// Tells why the walking thread hands over no more of a file.
enum End {
    Problem(VerifyProblem),
    /// Too many of its parts cannot be read.
    GivenUp,
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Problem(error.into())
    }
}

impl FilePair {
    /// Notes that a part could not be read.
    fn leave_out(&self, offset: u64, problem: VerifyProblem) {
        self.parts_failed.fetch_add(1, atomic::Ordering::Relaxed);
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if unread.as_ref().is_none_or(|(first, _)| offset < *first) {
            *unread = Some((offset, problem));
        }
    }

    fn is_given_up(&self) -> bool {
        self.parts_failed.load(atomic::Ordering::Relaxed) >= PARTS_FAILED_MAX
    }
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
        let is_unreadable = matches!(what, Mismatch::Unreadable { .. });
        self.count(|report| {
            report.difference_count += 1;
            report.unreadable_count += u64::from(is_unreadable);
            let of_a_kind = match report.unreadable_count {
                unreadable if is_unreadable => unreadable,
                unreadable => report.difference_count - unreadable,
            };
            if of_a_kind <= self.options.differences_max as u64 {
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

    /// Returns what could be read, and tells of what could not.
    fn told<T>(
        &self,
        trail: &Trail,
        part: &'static str,
        result: Result<T, impl Into<VerifyProblem>>,
    ) -> Option<T> {
        let told = |problem: VerifyProblem| self.leave_out(trail, part, problem);
        result.map_err(Into::into).map_err(told).ok()
    }

    /// Tells of a part that cannot be read, and goes on, unless the caller wishes to stop.
    fn leave_out(&self, trail: &Trail, part: &'static str, problem: VerifyProblem) {
        let (side, why) = match problem {
            VerifyProblem::Image(error) => (Side::Image, error.to_string()),
            VerifyProblem::Source(error) => (Side::Source, error.to_string()),
            VerifyProblem::Cancelled => return self.fail(trail, problem),
        };
        self.differ(trail, Mismatch::Unreadable { side, part, why });
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

    /// Takes parts until there are no more. Once the comparison has failed they are only let go of.
    fn work(&self, jobs: Receiver<Batch<FilePair>>) {
        let mut reader = PartReader::new(self.image);
        let mut buf = Vec::new();
        for Part { file, range } in jobs.into_iter().flatten() {
            if !self.stopped() && !file.is_given_up() {
                match self.compare_part(&mut reader, &mut buf, &file, &range) {
                    Ok(()) => {}
                    Err(VerifyProblem::Cancelled) => {
                        self.fail(&file.trail, VerifyProblem::Cancelled);
                    }
                    Err(problem) => file.leave_out(range.start, problem),
                }
            }
            self.let_go(file);
        }
    }

    /// Reports what was found in a file, if nobody else has it.
    fn let_go(&self, file: Arc<FilePair>) {
        let Some(file) = Arc::into_inner(file) else {
            return;
        };
        match file.differs_at.into_inner() {
            u64::MAX => {}
            offset => self.differ(&file.trail, Mismatch::Data { offset }),
        }
        let unread = file.unread.into_inner();
        if let Some((_, problem)) = unread.unwrap_or_else(PoisonError::into_inner) {
            self.leave_out(&file.trail, DATA, problem);
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
        self.compare_attributes(root, &inode, &stat, &|| rustix_xattrs(&path, true));
        let names = self.run.told(root, NAMES, self.names(root, &inode));
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
        let dir = self.descent.dir();
        let stat = rustix::fs::statat(dir, &*name.name, AtFlags::SYMLINK_NOFOLLOW);
        let inode = self.run.told(trail, INODE, self.run.image.inode(nid));
        let (Some(inode), Some(stat)) = (inode, self.run.told(trail, INODE, stat)) else {
            return Ok(());
        };
        let path = descriptor_path(dir, &name.name);
        let xattrs = || rustix_xattrs(&path, false);
        if !self.compare_attributes(trail, &inode, &stat, &xattrs) {
            return Ok(());
        }
        let is_linked = inode.nlink > 1 || stat.st_nlink > 1;
        let is_linked = is_linked && inode.kind != FileKind::Directory && self.run.options.links;
        if is_linked && self.compare_links(trail, inode.nid, identity(&stat)) {
            return Ok(());
        }
        self.compare_content(trail, inode, &stat);
        Ok(())
    }

    /// Compares what all kinds have, and says whether there is reason to compare the content.
    fn compare_attributes(
        &self,
        trail: &Trail,
        inode: &Inode,
        stat: &Stat,
        xattrs: &dyn Fn() -> rustix::io::Result<Vec<Xattr>>,
    ) -> bool {
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
            return false;
        }
        let mode = (stat.st_mode & 0o7777) as u16;
        if self.run.options.permissions && mode != inode.perm && inode.kind != FileKind::Symlink {
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
        self.compare_xattrs(trail, inode, xattrs);
        true
    }

    fn compare_xattrs(
        &self,
        trail: &Trail,
        inode: &Inode,
        in_source: &dyn Fn() -> rustix::io::Result<Vec<Xattr>>,
    ) {
        let scope = self.run.options.xattrs;
        if scope == XattrScope::None {
            return;
        }
        let sorted = |xattrs: Vec<Xattr>| -> HashMap<Vec<u8>, Vec<u8>> {
            let all = xattrs
                .into_iter()
                .filter(|xattr| scope.contains(&xattr.name));
            all.map(|Xattr { name, value }| (name, value)).collect()
        };
        let image = self
            .run
            .told(trail, ATTRIBUTES, self.run.image.xattrs(inode));
        let source = self.run.told(trail, ATTRIBUTES, in_source());
        let (Some(image), Some(mut source)) = (image.map(sorted), source.map(sorted)) else {
            return;
        };
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
            self.hand_over(trail, source, inode);
        }
    }

    /// Has the workers compare a file.
    fn hand_over(&mut self, trail: &Arc<Trail>, source: OwnedFd, inode: Inode) {
        let file = Arc::new(FilePair {
            source,
            inode,
            trail: trail.clone(),
            differs_at: AtomicU64::new(u64::MAX),
            parts_failed: AtomicU32::new(0),
            unread: Mutex::default(),
        });
        let go_on = || match () {
            () if self.run.stopped() => Err(End::Problem(VerifyProblem::Cancelled)),
            () if file.is_given_up() => Err(End::GivenUp),
            () => self.run.check_cancel().map_err(End::Problem),
        };
        let image = self.run.image;
        match self.feeder.file(image, &file.inode, &file, go_on) {
            Ok(()) | Err(End::GivenUp) => {}
            Err(End::Problem(VerifyProblem::Cancelled)) => {
                self.run.fail(trail, VerifyProblem::Cancelled);
            }
            // What a part says of itself comes first.
            Err(End::Problem(problem)) => file.leave_out(u64::MAX, problem),
        }
        self.run.let_go(file);
    }

    /// Goes into a directory. Of one that can be opened but not listed, there is nothing to compare.
    fn enter(&mut self, trail: &Arc<Trail>, inode: &Inode) -> Result<(), VerifyProblem> {
        let dir = open_dir(self.descent.dir(), &trail.name)?;
        self.descent.enter(trail.clone(), dir)?;
        let names = self.run.told(trail, NAMES, self.names(trail, inode));
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
