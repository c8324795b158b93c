//! Writing the tree of an image as a tar archive.
//!
//! The archive is one of POSIX.1-2001 (pax). Entries come as the image has them: the names of a directory in order, what is
//! below one right behind it. The same image gives the same bytes each time, as nothing but the image goes in.
//!
//! One thread walks the tree and writes. The content of files is decoded by others meanwhile, and written when it is its turn.
//!
//! - `decoding`: asking for content, and taking it in order.
//! - `record`: an entry's header, and the records in front of it for what a header does not hold.
//! - `acl`: access control lists as text.
//! - `names`: the first names of files that have several.
//! - `diff`: what changed from one image to another.
//! - `sparse`: files with holes, if so wished.
//!
//! Memory is bounded whatever the image says: data is read by the piece, and notes of inodes go to temporary files when there
//! are many.

mod acl;
mod decoding;
mod diff;
mod names;
mod record;
mod sparse;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::{FileKind, zeros};
use anteros_format::inode::Inode;

use crate::walk::{NOTES_BYTES, Walk, path_below};
use crate::{Error, Image, ImagePath, Map, Result, WalkProblem, Xattr};
use decoding::{Decoding, Run, Runs, parts, with_decoding};
use names::FirstNames;
use record::{BLOCK_BYTES, Entry, Type};
use sparse::{Shape, line, segments};

/// Archives end at a multiple of this, as tar writes them.
const RECORD_BYTES: u64 = 10_240;

/// Headers that wait for content in front of them take no more than this, but for one.
const HEADERS_MAX: usize = 1 << 20;

/// Bytes that follow the header of what has no content, and its size if it has holes.
const NOTHING: (u64, Option<u64>) = (0, None);

/// Describes how to write an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarOptions {
    /// Tells how many threads decode, 1 to 16; one more writes. The archive is the same with any number.
    pub workers: usize,
    /// Tells whether holes are left out, as `tar --sparse` does; else they are zeros.
    pub sparse: bool,
}

impl Default for TarOptions {
    /// One worker for each core.
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, NonZero::get),
            sparse: false,
        }
    }
}

/// Hears how an archive grows.
pub trait TarObserver {
    /// So many more bytes of files were written, holes included.
    fn wrote(&self, _bytes: u64) {}

    /// A socket was left out, which no archive can hold.
    fn left_out(&self, _path: &ImagePath) {}
}

/// Hears nothing.
impl TarObserver for () {}

/// Tells why an archive could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct TarError {
    /// The file.
    pub path: ImagePath,
    /// Tells why.
    pub problem: TarProblem,
}

/// Tells what can go wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum TarProblem {
    /// The walk of the tree came to an end there.
    #[error(transparent)]
    Walk(#[from] WalkProblem),
    /// The walk of the older image, with which this one is compared, came to an end there.
    #[error("in the older image: {0}")]
    Old(Box<WalkProblem>),
    /// The name begins as those of marks do.
    #[error("in a layer its name, which begins with `.wh.`, would stand for what is gone")]
    MarkName,
    /// The archive could not be written.
    #[error("cannot write it to the archive: {0}")]
    Output(io::Error),
}

impl From<Error> for TarProblem {
    fn from(error: Error) -> Self {
        Self::Walk(error.into())
    }
}

impl TarProblem {
    /// Returns whether the image itself is broken.
    pub const fn is_corrupt(&self) -> bool {
        match self {
            Self::Walk(problem) => problem.is_corrupt(),
            Self::Old(problem) => problem.is_corrupt(),
            Self::MarkName | Self::Output(_) => false,
        }
    }
}

/// Holds what an archive has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TarSummary {
    /// Entries, those of directories and further names of files included.
    pub entries: u64,
    /// Bytes of files, each counted once.
    pub bytes: u64,
    /// Sockets that were left out.
    pub left_out: u64,
}

/// Writes what lies at the path `from` of an image as a tar archive; empty means all.
///
/// The names of a directory are relative to it, and it is an entry itself, `./`. Anything else has the last name of its path.
/// After an error the archive has no end, and readers tell that it is cut off.
///
/// # Errors
///
/// The first error. `cancel` is looked at before each name, and each piece of data.
pub fn tar(
    image: &Image,
    from: &[u8],
    options: &TarOptions,
    out: &mut dyn Write,
    observer: &dyn TarObserver,
    cancel: &AtomicBool,
) -> Result<TarSummary, TarError> {
    write(image, from, options, out, observer, cancel, |archive| {
        archive.write(from)
    })
}

/// Writes what changed from an older image to this one as a layer: a tar archive that has what is new or different, and marks
/// of OCI (`.wh.NAME`, `.wh..wh..opq`) for what is gone. The same images give the same bytes each time.
///
/// # Errors
///
/// As [`tar`]; a name that begins with `.wh.` is one.
pub fn tar_diff(
    old: &Image,
    new: &Image,
    options: &TarOptions,
    out: &mut dyn Write,
    observer: &dyn TarObserver,
    cancel: &AtomicBool,
) -> Result<TarSummary, TarError> {
    write(new, b"", options, out, observer, cancel, |archive| {
        archive.changes(old)
    })
}

/// Has an archive written, of what lies at a path.
fn write(
    image: &Image,
    from: &[u8],
    options: &TarOptions,
    out: &mut dyn Write,
    observer: &dyn TarObserver,
    cancel: &AtomicBool,
    fill: impl FnOnce(&mut Archive<'_>) -> Result<(), TarProblem>,
) -> Result<TarSummary, TarError> {
    with_decoding(image, options.workers, |decoding| {
        let mut archive = Archive {
            image,
            out,
            observer,
            cancel,
            keeps_holes: options.sparse,
            decoding,
            waiting: VecDeque::new(),
            parts_waiting: 0,
            headers_waiting: 0,
            path: Vec::new(),
            names: FirstNames::new(NOTES_BYTES),
            written: 0,
            summary: TarSummary::default(),
        };
        match fill(&mut archive) {
            Ok(()) => Ok(archive.summary),
            Err(problem) => Err(TarError {
                path: path_below(from, &archive.path),
                problem,
            }),
        }
    })
}

/// A piece of the archive that waits for those in front of it.
enum Waiting {
    /// Headers, and what fills blocks.
    Bytes(Vec<u8>),
    /// A part of the file of this name.
    Part(Arc<[u8]>, Runs),
}

/// An archive that is being written.
struct Archive<'a> {
    image: &'a Image,
    out: &'a mut dyn Write,
    observer: &'a dyn TarObserver,
    cancel: &'a AtomicBool,
    /// Tells whether holes are left out.
    keeps_holes: bool,
    decoding: Decoding,
    /// Pieces in order.
    waiting: VecDeque<Waiting>,
    /// Parts of files among them.
    parts_waiting: usize,
    /// Bytes of headers among them.
    headers_waiting: usize,
    /// The name of the entry that the walk has come to, or that an error is about.
    path: Vec<u8>,
    names: FirstNames,
    /// Bytes of the archive.
    written: u64,
    summary: TarSummary,
}

impl Archive<'_> {
    fn write(&mut self, from: &[u8]) -> Result<(), TarProblem> {
        let start = self.image.find(from)?;
        match start.kind {
            FileKind::Directory => self.tree(start)?,
            _ => {
                let last = from
                    .rsplit(|&byte| byte == b'/')
                    .find(|name| !name.is_empty());
                self.path.extend_from_slice(last.unwrap_or_default());
                self.file(&start)?;
            }
        }
        self.path.clear();
        self.end()
    }

    /// Two blocks of zeros, and what fills the record.
    fn end(&mut self) -> Result<(), TarProblem> {
        while let Some(piece) = self.waiting.pop_front() {
            self.take(piece)?;
        }
        self.put(&[0; 2 * BLOCK_BYTES])?;
        let rest = self.written.next_multiple_of(RECORD_BYTES) - self.written;
        zeros(rest).try_for_each(|piece| self.put(piece))?;
        self.out.flush().map_err(TarProblem::Output)
    }

    /// Writes a directory and all below.
    fn tree(&mut self, root: Inode) -> Result<(), TarProblem> {
        let mut walk = Walk::new(self.image, root);
        loop {
            let met = walk.next();
            self.path.clear();
            self.path.extend_from_slice(walk.path());
            let Some(inode) = met? else {
                return Ok(());
            };
            self.check_cancel()?;
            match inode.kind {
                FileKind::Directory => self.directory(&inode)?,
                _ => self.file(&inode)?,
            }
        }
    }

    /// Writes the entry of a directory.
    fn directory(&mut self, inode: &Inode) -> Result<(), TarProblem> {
        let name: &[u8] = match self.path.is_empty() {
            true => b"./",
            false => b"/",
        };
        self.path.extend_from_slice(name);
        self.header(Type::Directory, &[], inode, NOTHING)
    }

    /// Writes anything but a directory: its first name with all there is, a further one as a link to it.
    fn file(&mut self, inode: &Inode) -> Result<(), TarProblem> {
        if inode.kind == FileKind::Socket {
            self.observer.left_out(&ImagePath::from(self.path.clone()));
            self.summary.left_out += 1;
            return Ok(());
        }
        if inode.nlink > 1 {
            if let Some(first) = self.names.get(inode.nid).map_err(WalkProblem::Note)? {
                return self.header(Type::HardLink, &first, inode, NOTHING);
            }
            let noted = self.names.insert(inode.nid, &self.path);
            noted.map_err(WalkProblem::Note)?;
        }
        match inode.kind {
            FileKind::Symlink => {
                let target = self.image.read_link(inode)?;
                self.header(Type::Symlink, &target, inode, NOTHING)
            }
            FileKind::CharDevice => self.header(Type::CharDevice, &[], inode, NOTHING),
            FileKind::BlockDevice => self.header(Type::BlockDevice, &[], inode, NOTHING),
            FileKind::Fifo => self.header(Type::Fifo, &[], inode, NOTHING),
            _ => self.regular(inode),
        }
    }

    /// Writes a regular file, with its holes if that is wished and worth it.
    fn regular(&mut self, inode: &Inode) -> Result<(), TarProblem> {
        if self.keeps_holes {
            let map = self.image.map(inode)?;
            if let Some(shape) = Shape::of(self.image, inode, &map)? {
                return self.sparse(inode, &map, &shape);
            }
        }
        self.header(Type::Regular, &[], inode, (inode.size, None))?;
        self.data(&Arc::new(inode.clone()), 0..inode.size)?;
        self.fill_block(inode.size)
    }

    /// Writes the segments of a file with holes, behind the list of them.
    fn sparse(&mut self, inode: &Inode, map: &Map, shape: &Shape) -> Result<(), TarProblem> {
        let image = self.image;
        self.header(Type::Regular, &[], inode, (shape.bytes(), Some(inode.size)))?;
        self.append(shape.head().into_bytes())?;
        segments(image, inode, map, |segment| {
            self.append(line(&segment).into_bytes())
        })?;
        self.append(vec![0; shape.padding() as usize])?;
        let shared = Arc::new(inode.clone());
        segments(image, inode, map, |segment| self.data(&shared, segment))?;
        self.fill_block(shape.bytes())
    }

    fn header(
        &mut self,
        kind: Type,
        link: &[u8],
        inode: &Inode,
        (size, sparse_size): (u64, Option<u64>),
    ) -> Result<(), TarProblem> {
        // A further name adds nothing to what the first one has said.
        let xattrs = match kind {
            Type::HardLink => Vec::new(),
            _ => self.xattrs(inode)?,
        };
        let entry = Entry {
            kind,
            path: &self.path,
            link,
            perm: inode.perm,
            uid: inode.uid,
            gid: inode.gid,
            size,
            sparse_size,
            mtime: inode.mtime,
            rdev: inode.rdev,
            xattrs: &xattrs,
        };
        let blocks = entry.blocks();
        self.summary.entries += 1;
        self.append(blocks)
    }

    /// Attributes in the order of their names, whatever order the image keeps them in.
    fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let mut xattrs = self.image.xattrs(inode)?;
        xattrs.sort();
        Ok(xattrs)
    }

    /// Asks for a segment of a file.
    fn data(&mut self, inode: &Arc<Inode>, segment: Range<u64>) -> Result<(), TarProblem> {
        let path: Arc<[u8]> = self.path.as_slice().into();
        for part in parts(segment) {
            self.check_cancel()?;
            while self.decoding.is_full(self.parts_waiting) {
                self.take_first()?;
            }
            let runs = self.decoding.ask(inode, part);
            self.waiting.push_back(Waiting::Part(path.clone(), runs));
            self.parts_waiting += 1;
        }
        Ok(())
    }

    /// Fills the last block behind so many bytes.
    fn fill_block(&mut self, bytes: u64) -> Result<(), TarProblem> {
        let rest = bytes.next_multiple_of(BLOCK_BYTES as u64) - bytes;
        self.append(vec![0; rest as usize])
    }

    /// Adds bytes behind all that waits.
    fn append(&mut self, bytes: Vec<u8>) -> Result<(), TarProblem> {
        self.headers_waiting += bytes.len();
        match self.waiting.back_mut() {
            Some(Waiting::Bytes(last)) => last.extend(bytes),
            _ => self.waiting.push_back(Waiting::Bytes(bytes)),
        }
        while self.headers_waiting > HEADERS_MAX {
            self.take_first()?;
        }
        Ok(())
    }

    fn take_first(&mut self) -> Result<(), TarProblem> {
        let first = self.waiting.pop_front();
        first.map_or(Ok(()), |piece| self.take(piece))
    }

    /// Writes a piece whose turn it is.
    fn take(&mut self, piece: Waiting) -> Result<(), TarProblem> {
        let (path, runs) = match piece {
            Waiting::Bytes(bytes) => {
                self.headers_waiting -= bytes.len();
                return self.put(&bytes);
            }
            Waiting::Part(path, runs) => (path, runs),
        };
        self.parts_waiting -= 1;
        let written = runs.iter().try_for_each(|run| match run? {
            Run::Data(data) => self.content(&data),
            Run::Hole(len) => zeros(len).try_for_each(|piece| self.content(piece)),
        });
        if written.is_err() {
            self.path = path.to_vec();
        }
        written
    }

    fn content(&mut self, piece: &[u8]) -> Result<(), TarProblem> {
        self.check_cancel()?;
        self.put(piece)?;
        self.summary.bytes += piece.len() as u64;
        self.observer.wrote(piece.len() as u64);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TarProblem> {
        self.out.write_all(bytes).map_err(TarProblem::Output)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn check_cancel(&self) -> Result<(), TarProblem> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(WalkProblem::Cancelled.into()),
            false => Ok(()),
        }
    }
}
