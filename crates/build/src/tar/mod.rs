//! From an archive of tar or cpio to a [`Tree`](crate::tree::Tree).
//!
//! ```text
//! file ─────────────► feed ─► header, pax, map ─► members ─► draft ─► walk ─► tree
//!                      │   or cpio ──────────────────────────┘
//! stream ─► unpack ─►  │     or entries, as a program lists them
//!                      └───► content: its places in the file, or in the spool, compressed (`early`);
//!                            or in the image (`direct`)
//! ```
//!
//! An archive in a regular file is read in place: headers now, content by workers when it is needed.
//! A stream, and an archive that is compressed, is read once; content goes into a file without a name.
//! Memory is taken by the tree alone. Every byte is hostile: what headers in front of a member say is
//! bounded, and numbers are checked before they are used.
//!
//! Of an archive that lies over others, the tree has gaps: what only the layers below it tell.
//!
//! Formats are those of V7, POSIX (ustar and PAX) and GNU tar, with sparse files of the latter, and
//! those of cpio that Linux reads as an initramfs.
//!
//! Invariant B9 of `docs/design/building.md`: an archive, a stream of one and a list give the image of the directory.

pub(crate) mod acl;
pub(crate) mod attributes;
mod cpio;
pub(crate) mod direct;
pub(crate) mod draft;
mod early;
mod entries;
pub(crate) mod fault;
mod feed;
mod header;
pub(crate) mod inode;
mod map;
pub(crate) mod members;
pub(crate) mod pax;
mod spool;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_cpio;
mod unpack;
pub(crate) mod walk;
pub(crate) mod whiteout;

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::SeekFrom;

use crate::early::ContentPlace;
use crate::output::{Output, parent};
use crate::source::archive::Contents;
use crate::source::{Scanned, Source};
use crate::stream::{self, Bytes};
use crate::{Error, Observer, Options};
use cpio::Cpio;
use direct::Direct;
use draft::Draft;
pub use entries::{Entry, EntryKind};

use early::Early;
use entries::{Entries, List, Listed};
use fault::{Fault, broken};
use feed::{Feed, Taker};
use header::BLOCK_BYTES;
use members::{Member, Members};
use spool::Spool;
use unpack::{Format, Unpacked};

/// Directory of the spool where that of the image has no room for files, as that of devices.
pub(crate) const SPOOL_OF_DEVICES: &str = "/var/tmp";

/// An archive of tar or cpio to make an image of: plain, or compressed by gzip, bzip2, xz, lzma or Zstandard.
pub struct Archive<'a> {
    name: PathBuf,
    form: Form<'a>,
    check: Option<Check<'a>>,
}

/// Ways in which members come.
enum Form<'a> {
    /// By bytes.
    Bytes(Bytes<'a>),
    /// One by one.
    Entries(Box<dyn List + 'a>),
}

/// Tells whether a stream was what it should be, once all of the archive is read.
type Check<'a> = Box<dyn FnOnce() -> Result<(), String> + 'a>;

impl<'a> Archive<'a> {
    /// Opens an archive.
    ///
    /// # Errors
    ///
    /// [`Error::Source`] if it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = stream::open(path).map_err(|cause| Error::Source {
            path: path.to_owned(),
            action: "open the archive",
            cause,
        })?;
        Ok(Self::from_file(path, file))
    }

    /// An archive from the file's position on. `name` stands for it in messages.
    ///
    /// In a regular file it stays where it is and is read at any place, unless it is compressed.
    pub fn from_file(name: impl Into<PathBuf>, file: File) -> Self {
        Self {
            name: name.into(),
            form: Form::Bytes(Bytes::File(file)),
            check: None,
        }
    }

    /// An archive that can be read but once, such as a pipe. `name` stands for it in messages.
    ///
    /// The content of files is kept on disk meanwhile, see [`Options::spool`].
    pub fn from_reader(name: impl Into<PathBuf>, reader: impl Read + 'a) -> Self {
        Self {
            name: name.into(),
            form: Form::Bytes(Bytes::Stream(Box::new(reader))),
            check: None,
        }
    }

    /// An archive of files that a program lists, as if it were a stream with these members: in any order, and of the same path
    /// the last one counts. `name` stands for it in messages.
    ///
    /// The content of a file is read before the next one is asked for.
    ///
    /// ```
    /// use std::io::Cursor;
    /// use std::sync::atomic::AtomicBool;
    ///
    /// use anteros_build::{Archive, Entry, EntryKind, Options, build_into};
    /// use anteros_core::Timestamp;
    ///
    /// let entries = ["one", "two"].map(|name| {
    ///     Ok(Entry {
    ///         path: name.into(),
    ///         kind: EntryKind::Regular {
    ///             bytes: name.len() as u64,
    ///             content: Box::new(name.as_bytes()),
    ///         },
    ///         perm: 0o644,
    ///         uid: 0,
    ///         gid: 0,
    ///         mtime: Timestamp::default(),
    ///         xattrs: Vec::new(),
    ///     })
    /// });
    /// let archive = Archive::from_entries("numbers", entries);
    /// let mut image = Cursor::new(Vec::new());
    /// let built = build_into(&mut image, archive, &Options::default(), &(), &AtomicBool::new(false))?;
    /// assert_eq!(built.files, 2);
    /// # Ok::<(), anteros_build::Error>(())
    /// ```
    pub fn from_entries<I>(name: impl Into<PathBuf>, entries: I) -> Self
    where
        I: IntoIterator<Item = io::Result<Entry<'a>>>,
        I::IntoIter: 'a,
    {
        Self {
            name: name.into(),
            form: Form::Entries(Box::new(Listed::new(entries.into_iter()))),
            check: None,
        }
    }

    /// Adds a check that is made when all of the archive is read, such as that of a digest. It tells the reason if the
    /// archive is wrong. Nothing is built then.
    #[must_use]
    pub fn checked(self, check: impl FnOnce() -> Result<(), String> + 'a) -> Self {
        Self {
            check: Some(Box::new(check)),
            ..self
        }
    }
}

/// A regular file in an archive of tar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedFile {
    /// Its name, without `./` in front.
    pub name: Vec<u8>,
    /// Byte of the archive at which its content begins.
    pub offset: u64,
    /// Bytes of its content.
    pub len: u64,
}

impl ArchivedFile {
    /// Lists the regular files of an archive of tar that is not compressed, but for sparse ones.
    ///
    /// # Errors
    ///
    /// [`Error::Source`] if the archive cannot be read, and [`Error::Archive`] if it breaks a rule.
    pub fn list(path: &Path, archive: File) -> Result<Vec<Self>, Error> {
        let cancel = AtomicBool::new(false);
        let feed = Feed::in_place(archive, &cancel).map_err(Fault::Read);
        let feed = feed.map_err(|fault| at(path, b"", 0, fault))?;
        let mut members = Members::new(feed, false);
        let mut files = Vec::new();
        loop {
            let member = members.next();
            match member.map_err(|fault| at(path, &members.name, members.offset, fault))? {
                None => return Ok(files),
                Some(member) => files.extend(Self::of(member)),
            }
        }
    }

    fn of(member: Member) -> Option<Self> {
        let members::Kind::Regular(content) = member.kind else {
            return None;
        };
        let ContentPlace::Bytes(offset) = content.place else {
            return None;
        };
        let is_whole = match content.parts[..] {
            [] => content.bytes == 0,
            [map::Part { start: 0, bytes }] => bytes == content.bytes,
            _ => false,
        };
        let name = member.name.strip_prefix(b"./").unwrap_or(&member.name);
        is_whole.then(|| Self {
            name: name.to_vec(),
            offset,
            len: content.bytes,
        })
    }
}

impl fmt::Debug for Archive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("name", &self.name).finish()
    }
}

/// Scans an archive. With layers below it, hard links may lead to what only these have. Where there is an image to write to
/// already, content goes there.
pub(crate) fn scan<'a, 'e: 'a>(
    archive: Archive<'e>,
    image: &Path,
    options: &'a Options,
    has_lower: bool,
    output: Option<&mut Output>,
    observer: &dyn Observer,
    cancel: &'a AtomicBool,
) -> Result<Scanned, Error> {
    let Archive { name, form, check } = archive;
    let at_front = |fault| at(&name, b"", 0, fault);
    let setting = Setting {
        name: &name,
        check,
        options,
        has_lower,
        observer,
    };
    let opened = Opened::of(form, cancel).map_err(Fault::Read);
    let (reader, entries) = match opened.map_err(at_front)? {
        Opened::InPlace(feed) => return setting.scan(*feed, None),
        Opened::Stream(reader) => (*reader, None),
        Opened::Entries(entries) => (
            Unpacked::plain(Box::new(io::empty()) as Box<_>),
            Some(entries),
        ),
    };
    let spool = Spool::create(&spool_directory(image, options)).map_err(at_front)?;
    if let Some(output) = output {
        let taker = Taker::Direct(Direct::new(output, options));
        return setting.scan(Feed::stream(reader, spool, Some(taker), cancel), entries);
    }
    Early::beside(options, cancel, |early| {
        let taker = early.map(|early| Taker::Early(Box::new(early)));
        setting.scan(Feed::stream(reader, spool, taker, cancel), entries)
    })
}

/// An archive that was opened.
enum Opened<'a, 'e> {
    /// It is read in place.
    InPlace(Box<Feed<'a>>),
    /// It is read once.
    Stream(Box<Unpacked<Box<dyn Read + 'a>>>),
    /// It is listed.
    Entries(Box<dyn List + 'e>),
}

impl<'a, 'e: 'a> Opened<'a, 'e> {
    fn of(form: Form<'e>, cancel: &'a AtomicBool) -> io::Result<Self> {
        Ok(match form {
            Form::Bytes(Bytes::File(file)) if is_plain(&file, cancel)? => {
                Self::InPlace(Box::new(Feed::in_place(file, cancel)?))
            }
            Form::Bytes(bytes) => {
                let bytes: Bytes<'a> = bytes;
                Self::Stream(Box::new(Unpacked::new(bytes.reader(cancel))?))
            }
            Form::Entries(entries) => Self::Entries(entries),
        })
    }
}

/// All that is known of an archive before its first byte.
struct Setting<'a> {
    name: &'a Path,
    check: Option<Check<'a>>,
    options: &'a Options,
    has_lower: bool,
    observer: &'a dyn Observer,
}

impl Setting<'_> {
    /// Scans the archive, or what is listed.
    fn scan<'b, 'e: 'b>(
        self,
        feed: Feed<'b>,
        entries: Option<Box<dyn List + 'e>>,
    ) -> Result<Scanned, Error> {
        let Self {
            name,
            check,
            options,
            has_lower,
            observer,
        } = self;
        let at_front = |fault| at(name, b"", 0, fault);
        let mut scan = Scan {
            path: name,
            members: match entries {
                Some(entries) => Listing::Entries(Box::new(Entries::new(feed, entries))),
                None => Listing::new(feed, options.bare_headers).map_err(at_front)?,
            },
            draft: Draft::new(options, has_lower).map_err(at_front)?,
            observer,
            warnings: 0,
        };
        let scanned = scan.all();
        match (check, &scanned) {
            (None, _) | (_, Err(Error::Cancelled)) => {}
            // Whatever is wrong with an archive that is another is of no interest.
            (Some(check), _) => check().map_err(|reason| at_front(Fault::Broken(reason)))?,
        }
        scanned?;
        scan.finish()
    }
}

/// An archive on the way into a draft.
struct Scan<'a, 'b, 'e: 'b> {
    path: &'a Path,
    members: Listing<'b, 'e>,
    draft: Draft<'a>,
    observer: &'a dyn Observer,
    warnings: u64,
}

impl Scan<'_, '_, '_> {
    /// The tree and its content.
    fn finish(self) -> Result<Scanned, Error> {
        let content = self.members.into_feed().into_content();
        let content = content.map_err(|fault| at(self.path, b"", 0, fault))?;
        let contents = Contents::new(self.path.to_owned(), content.file, content.before.is_some());
        let finished = walk::finish(self.draft, content.before.unwrap_or_default());
        let contents = contents.with(finished.extents, finished.nodes);
        Ok(Scanned {
            source: Source::Archive(contents.with_segments(content.segments)),
            tree: finished.tree,
            warnings: self.warnings,
            gaps: finished.gaps,
        })
    }

    fn all(&mut self) -> Result<(), Error> {
        while self.next()? {}
        Ok(())
    }

    /// Takes a member; answers whether there was one.
    fn next(&mut self) -> Result<bool, Error> {
        let done = self.take();
        let warnings = self.members.warnings().into_iter();
        for text in warnings.chain(self.draft.warnings.drain(..)) {
            let path = full(self.path, self.members.name());
            self.observer.warn(&path, &text);
            self.warnings += 1;
        }
        done.map_err(|fault| at(self.path, self.members.name(), self.members.offset(), fault))
    }

    fn take(&mut self) -> Result<bool, Fault> {
        match self.members.next()? {
            Some(member) => self.draft.put(member).map(|()| true),
            None => self.members.feed().drain().map(|()| false),
        }
    }
}

/// The members of an archive, whatever its format.
enum Listing<'a, 'e: 'a> {
    Entries(Box<Entries<'a, 'e>>),
    Tar(Box<Members<'a>>),
    Cpio(Cpio<'a>),
}

impl<'a> Listing<'a, '_> {
    /// The members of an archive; `is_bare` if it is one of headers alone.
    fn new(mut feed: Feed<'a>, is_bare: bool) -> Result<Self, Fault> {
        let start = feed.look(BLOCK_BYTES)?;
        Ok(match cpio::is_cpio(&start) {
            true if is_bare => {
                return broken("an archive of cpio, which is none of headers alone".into());
            }
            true => Self::Cpio(Cpio::new(feed)),
            false => Self::Tar(Box::new(Members::new(feed, is_bare))),
        })
    }

    fn next(&mut self) -> Result<Option<Member>, Fault> {
        match self {
            Self::Tar(members) => members.next(),
            Self::Cpio(members) => members.next(),
            Self::Entries(members) => members.next(),
        }
    }

    /// Byte of the archive at which the member begins that is being read.
    fn offset(&self) -> u64 {
        match self {
            Self::Tar(members) => members.offset,
            Self::Cpio(members) => members.offset,
            Self::Entries(members) => members.offset,
        }
    }

    /// Its name, as far as that is known.
    fn name(&self) -> &[u8] {
        match self {
            Self::Tar(members) => &members.name,
            Self::Cpio(members) => &members.name,
            Self::Entries(members) => &members.name,
        }
    }

    /// Things that people should know, to be told as warnings.
    fn warnings(&mut self) -> Vec<String> {
        match self {
            Self::Tar(members) => std::mem::take(&mut members.warnings),
            Self::Cpio(_) | Self::Entries(_) => Vec::new(),
        }
    }

    fn feed(&mut self) -> &mut Feed<'a> {
        match self {
            Self::Tar(members) => &mut members.feed,
            Self::Cpio(members) => &mut members.feed,
            Self::Entries(members) => &mut members.feed,
        }
    }

    fn into_feed(self) -> Feed<'a> {
        match self {
            Self::Tar(members) => members.feed,
            Self::Cpio(members) => members.feed,
            Self::Entries(members) => members.feed,
        }
    }
}

/// The error that a fault in a member is.
fn at(path: &Path, member: &[u8], offset: u64, fault: Fault) -> Error {
    let archive = |reason| Error::Archive {
        path: path.to_owned(),
        member: member.to_vec(),
        offset,
        reason,
    };
    let truncated = "the archive ends within it; was it cut short?";
    let place = || full(path, member);
    fault.error(path, "read the archive", truncated, place, archive)
}

/// Returns whether this is a regular file that is not compressed, nor has a part that is.
fn is_plain(file: &File, cancel: &AtomicBool) -> io::Result<bool> {
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let position = rustix::fs::tell(file)?;
    let start = feed::look_at(file, position, BLOCK_BYTES)?;
    if Format::of(&start).is_some() {
        return Ok(false);
    }
    if !cpio::is_cpio(&start) {
        return Ok(true);
    }
    let feed = Feed::in_place(file.try_clone()?, cancel)?;
    let is_plain = !cpio::has_compressed_part(feed);
    rustix::fs::seek(file, SeekFrom::Start(position))?;
    Ok(is_plain)
}

fn spool_directory(image: &Path, options: &Options) -> PathBuf {
    match &options.spool {
        Some(directory) => directory.clone(),
        None if std::fs::metadata(image).is_ok_and(|found| !found.is_file()) => {
            SPOOL_OF_DEVICES.into()
        }
        None => parent(image).to_owned(),
    }
}

/// The place of a member, for messages.
fn full(archive: &Path, member: &[u8]) -> PathBuf {
    // An absolute name would take the place of the archive's.
    let start = member.iter().position(|byte| *byte != b'/');
    match start {
        Some(start) => archive.join(OsStr::from_bytes(&member[start..])),
        None => archive.to_owned(),
    }
}
