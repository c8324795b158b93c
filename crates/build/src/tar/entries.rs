//! Files that a program lists one by one, in place of an archive.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;

use anteros_core::Timestamp;

use super::fault::{Fault, broken};
use super::feed::Feed;
use super::map::Part;
use super::members::{Content, Kind, Member, check_names, named};
use super::pax::Records;

/// The bits of permissions, with those of set-id and of restricted deletion.
const PERM: u16 = 0o7777;

/// A file that a program lists.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The path relative to the root of the image; empty for the root itself.
    pub path: Vec<u8>,
    /// Kind and content.
    pub kind: EntryKind<'a>,
    /// Permissions, with the bits of set-id and of restricted deletion: 0o7777 at most.
    pub perm: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time of the last change of content.
    pub mtime: Timestamp,
    /// Extended attributes: full names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry<'_> {
    /// The names that the kernel ends at a NUL.
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        let target = match &self.kind {
            EntryKind::Symlink(target) | EntryKind::HardLink(target) => Some(&target[..]),
            _ => None,
        };
        let xattrs = self.xattrs.iter().map(|(name, _)| &name[..]);
        xattrs.chain(target).chain([&self.path[..]])
    }
}

/// The kind of a file that a program lists, with its content.
#[non_exhaustive]
pub enum EntryKind<'a> {
    /// A regular file.
    Regular {
        /// Bytes of its content.
        bytes: u64,
        /// Gives as many bytes and then ends. It is read before the next entry is asked for.
        content: Box<dyn Read + 'a>,
    },
    /// A further name of the file at a path that was listed before.
    HardLink(Vec<u8>),
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// A directory. What lies in it is listed by itself.
    Directory,
    /// A character device: major and minor number.
    CharDevice(u32, u32),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl fmt::Debug for EntryKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regular { bytes, .. } => f.debug_tuple("Regular").field(bytes).finish(),
            Self::HardLink(target) => f.debug_tuple("HardLink").field(target).finish(),
            Self::Symlink(target) => f.debug_tuple("Symlink").field(target).finish(),
            Self::Directory => f.write_str("Directory"),
            Self::CharDevice(major, minor) => write!(f, "CharDevice({major}, {minor})"),
            Self::BlockDevice(major, minor) => write!(f, "BlockDevice({major}, {minor})"),
            Self::Fifo => f.write_str("Fifo"),
            Self::Socket => f.write_str("Socket"),
        }
    }
}

/// Whatever lists files: without the lifetime of their content, so that lists can be used wherever archives can.
pub(super) trait List {
    /// Takes the next file, whose content is what is read then.
    fn next(&mut self) -> Option<io::Result<Entry<'static>>>;

    /// Reads the content of the file that was taken last.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;
}

/// Files of an iterator.
pub(super) struct Listed<'e, I> {
    entries: I,
    content: Box<dyn Read + 'e>,
}

impl<I> Listed<'_, I> {
    pub fn new(entries: I) -> Self {
        Self {
            entries,
            content: Box::new(io::empty()),
        }
    }
}

impl<'e, I: Iterator<Item = io::Result<Entry<'e>>>> List for Listed<'e, I> {
    fn next(&mut self) -> Option<io::Result<Entry<'static>>> {
        let taken = self.entries.next()?;
        Some(taken.map(|entry| {
            let (kind, content) = entry.kind.split();
            self.content = content;
            Entry {
                path: entry.path,
                kind,
                perm: entry.perm,
                uid: entry.uid,
                gid: entry.gid,
                mtime: entry.mtime,
                xattrs: entry.xattrs,
            }
        }))
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.content.read(buf)
    }
}

impl<'e> EntryKind<'e> {
    /// The kind without its content, and that.
    fn split(self) -> (EntryKind<'static>, Box<dyn Read + 'e>) {
        let kind = match self {
            Self::Regular { bytes, content } => {
                let empty = Box::new(io::empty());
                let kind = EntryKind::Regular {
                    bytes,
                    content: empty,
                };
                return (kind, content);
            }
            Self::HardLink(target) => EntryKind::HardLink(target),
            Self::Symlink(target) => EntryKind::Symlink(target),
            Self::Directory => EntryKind::Directory,
            Self::CharDevice(major, minor) => EntryKind::CharDevice(major, minor),
            Self::BlockDevice(major, minor) => EntryKind::BlockDevice(major, minor),
            Self::Fifo => EntryKind::Fifo,
            Self::Socket => EntryKind::Socket,
        };
        (kind, Box::new(io::empty()))
    }
}

/// A list, and whoever reads the content of its files.
type Shared<'l> = Rc<RefCell<Box<dyn List + 'l>>>;

/// The content of the file that was taken last.
struct Current<'l>(Shared<'l>);

impl Read for Current<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buf)
    }
}

/// Takes listed files as members.
pub(super) struct Entries<'a, 'l: 'a> {
    pub feed: Feed<'a>,
    list: Shared<'l>,
    /// Bytes of content in front of the entry that is being read.
    pub offset: u64,
    /// Its path.
    pub name: Vec<u8>,
}

impl<'a, 'l: 'a> Entries<'a, 'l> {
    pub fn new(feed: Feed<'a>, list: Box<dyn List + 'l>) -> Self {
        Self {
            feed,
            list: Rc::new(RefCell::new(list)),
            offset: 0,
            name: Vec::new(),
        }
    }

    /// Takes the next file; `None` at the end of the list.
    pub fn next(&mut self) -> Result<Option<Member>, Fault> {
        self.offset = self.feed.position();
        self.name.clear();
        self.feed.check_cancelled()?;
        let Some(entry) = self.list.borrow_mut().next() else {
            return Ok(None);
        };
        let entry = entry.map_err(Fault::Read)?;
        self.name.clone_from(&entry.path);
        check_names(entry.names())?;
        if entry.perm & !PERM != 0 {
            let perm = entry.perm;
            return broken(format!("its permissions are {perm:#o}; 0o7777 is the most"));
        }
        Ok(Some(Member {
            offset: self.offset,
            kind: self.kind(entry.kind)?,
            perm: entry.perm,
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            records: Records::of_attributes(entry.xattrs),
            name: named(&entry.path),
        }))
    }

    fn kind(&mut self, kind: EntryKind<'_>) -> Result<Kind, Fault> {
        Ok(match kind {
            EntryKind::Regular { bytes, .. } => Kind::Regular(self.content(bytes)?),
            EntryKind::HardLink(target) => Kind::HardLink(target),
            EntryKind::Symlink(target) => Kind::Symlink(target),
            EntryKind::Directory => Kind::Directory,
            EntryKind::CharDevice(major, minor) => Kind::CharDevice(major, minor),
            EntryKind::BlockDevice(major, minor) => Kind::BlockDevice(major, minor),
            EntryKind::Fifo => Kind::Fifo,
            EntryKind::Socket => Kind::Socket,
        })
    }

    fn content(&mut self, bytes: u64) -> Result<Content, Fault> {
        let start = self.feed.position();
        self.feed.go_on_with(Box::new(Current(self.list.clone())));
        let place = match self.feed.keep_file_bytes(bytes) {
            Err(Fault::Truncated) => {
                let found = self.feed.position() - start;
                return broken(format!("it has {found} bytes of content, not {bytes}"));
            }
            place => place?,
        };
        if self.feed.exact(&mut [0])? {
            return broken(format!("it has more content than its {bytes} bytes"));
        }
        let all = Part { start: 0, bytes };
        Ok(Content {
            bytes,
            parts: if bytes == 0 { Vec::new() } else { vec![all] },
            place,
        })
    }
}
