//! The members of an archive, one after the other, each with all that its headers say.

use anteros_core::Timestamp;

use super::fault::{Fault, broken};
use super::feed::Feed;
use super::header::{BLOCK_BYTES, Block, Header};
use super::map::{Part, SparseMap};
use super::pax::{Records, SparseRecords};
use crate::early::ContentPlace;
use crate::sparse::Allocation;

/// Longest name, or target of a link, in a header of its own; Linux takes 4096 bytes at once.
const NAME_BYTES_MAX: u64 = 64 << 10;
/// Longest PAX records of a member: attributes have 64 KiB at most, and maps of holes are here as well.
const RECORDS_BYTES_MAX: u64 = 8 << 20;
/// Longest PAX records of all members. They are copied for each one; attributes are not among them, of which many members
/// would have more than fits the memory.
const GLOBAL_BYTES_MAX: u64 = 64 << 10;

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    pub name: Vec<u8>,
    /// Byte of the archive at which it begins, with the headers in front of it.
    pub offset: u64,
    pub kind: Kind,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    /// Properties for which a header has no field.
    pub records: Records,
}

impl Member {
    /// A member without properties, as a hard link needs none.
    pub fn bare(name: Vec<u8>, kind: Kind) -> Self {
        Self {
            name,
            offset: 0,
            kind,
            perm: 0,
            uid: 0,
            gid: 0,
            mtime: Timestamp::default(),
            records: Records::default(),
        }
    }
}

/// Kind of a member.
#[derive(Debug)]
pub(crate) enum Kind {
    Regular(Content),
    /// A regular file whose content whoever tells of it knows by a number.
    Numbered(Numbered),
    HardLink(Vec<u8>),
    /// A further name of a file whose content comes with this one.
    Refilled(Vec<u8>, Content),
    Symlink(Vec<u8>),
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
    Directory,
    Fifo,
    Socket,
}

/// A regular file whose content is not in an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered {
    pub bytes: u64,
    pub allocation: Allocation,
    pub number: u32,
}

/// The content of a regular file.
#[derive(Debug)]
pub(crate) struct Content {
    pub bytes: u64,
    /// Parts that hold data, ascending and apart.
    pub parts: Vec<Part>,
    /// Tells where the first part lies; the others follow it.
    pub place: ContentPlace,
}

/// The name of a member; the root has one as well.
pub(crate) fn named(path: &[u8]) -> Vec<u8> {
    match path {
        b"" => b".".to_vec(),
        path => path.to_vec(),
    }
}

/// Makes sure that there is no NUL where the kernel ends a name at one.
pub(crate) fn check_names<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> Result<(), Fault> {
    match names.find(|name| name.contains(&0)) {
        None => Ok(()),
        Some(name) => broken(format!("a NUL in `{}`", short(name))),
    }
}

/// A value for messages.
pub(crate) fn short(text: &[u8]) -> String {
    const MOST: usize = 80;
    let dots = if text.len() > MOST { "…" } else { "" };
    format!("{}{dots}", text[..text.len().min(MOST)].escape_ascii())
}

/// Reads the members of an archive.
pub(super) struct Members<'a> {
    pub feed: Feed<'a>,
    /// Records that hold for all members that follow.
    global: Records,
    /// Byte of the archive at which the member begins that is being read, with the headers in front of it.
    pub offset: u64,
    /// Its name, as far as that is known.
    pub name: Vec<u8>,
    /// Things that people should know, to be told as warnings.
    pub warnings: Vec<String>,
    /// Tells whether regular files have no content behind their headers.
    is_bare: bool,
}

/// Properties that the headers in front of that of a member tell.
#[derive(Default)]
struct Ahead {
    records: Option<Records>,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl<'a> Members<'a> {
    pub fn new(feed: Feed<'a>, is_bare: bool) -> Self {
        Self {
            feed,
            global: Records::default(),
            offset: 0,
            name: Vec::new(),
            warnings: Vec::new(),
            is_bare,
        }
    }

    /// Reads the next member; `None` at the end of the archive.
    pub fn next(&mut self) -> Result<Option<Member>, Fault> {
        self.offset = self.feed.position();
        self.name.clear();
        let mut ahead = Ahead::default();
        while let Some(block) = self.header()? {
            let header = match Header::parse(&block) {
                Err(_) if self.feed.position() == BLOCK_BYTES as u64 => return no_archive(),
                header => header?,
            };
            let size = header.size()?;
            match header.typeflag() {
                b'x' | b'X' => {
                    let mut records = self.global.clone();
                    records.add(&self.extra(size, RECORDS_BYTES_MAX)?)?;
                    ahead.records = Some(records);
                }
                b'g' => {
                    let data = self.extra(size, GLOBAL_BYTES_MAX)?;
                    self.global.add(&data)?;
                    if self.global.has_attributes() {
                        return broken("attributes of all members, which are not supported".into());
                    }
                }
                b'L' => ahead.name = Some(self.long_name(size)?),
                b'K' => ahead.link = Some(self.long_name(size)?),
                b'V' => self.feed.skip(size)?, // the archive's label
                _ => return self.member(&block, ahead).map(Some),
            }
        }
        match ahead.records.is_some() || ahead.name.is_some() || ahead.link.is_some() {
            true => Err(Fault::Truncated),
            false => Ok(None),
        }
    }

    /// Reads a header; `None` if a block of zeros, or nothing, is in its place.
    fn header(&mut self) -> Result<Option<Block>, Fault> {
        let is_zero = |block: &Block| block.iter().all(|byte| *byte == 0);
        let first = match self.feed.block() {
            Err(Fault::Truncated) if self.feed.position() < BLOCK_BYTES as u64 => {
                return no_archive();
            }
            block => block?,
        };
        match first {
            Some(block) if is_zero(&block) => {}
            None if self.feed.position() == 0 => {
                return broken(
                    "the archive is empty; an archive of nothing has two blocks of zeros".into(),
                );
            }
            block => return Ok(block),
        }
        let second = match self.feed.block() {
            Err(Fault::Truncated) => None,
            block => block?,
        };
        if !second.is_some_and(|block| is_zero(&block)) {
            let at = self.feed.position();
            self.warnings.push(format!(
                "a block of zeros near byte {at} ends the archive, though no second one follows; what does is left out"
            ));
        }
        Ok(None)
    }

    fn extra(&mut self, size: u64, most: u64) -> Result<Vec<u8>, Fault> {
        match size <= most {
            true => self.feed.padded(size as usize),
            false => broken(format!(
                "a header of {size} bytes in front of the member; {most} are the most"
            )),
        }
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, Fault> {
        let mut name = self.extra(size, NAME_BYTES_MAX)?;
        let end = name.iter().position(|byte| *byte == 0);
        name.truncate(end.unwrap_or(name.len()));
        Ok(name)
    }

    fn member(&mut self, block: &Block, ahead: Ahead) -> Result<Member, Fault> {
        let header = Header::parse(block)?;
        let mut records = ahead.records.unwrap_or_else(|| self.global.clone());
        let sparse = std::mem::take(&mut records.sparse);
        let plain_name = records.path.take().or(ahead.name);
        self.name = (sparse.name.clone())
            .or(plain_name)
            .unwrap_or_else(|| header.name());
        let link = records.link.take().or(ahead.link);
        let link = link.unwrap_or_else(|| header.link().to_vec());
        let stored = records.size.map_or_else(|| header.size(), Ok)?;
        let kind = self.kind(block, link, &sparse, stored)?;
        Ok(Member {
            name: self.name.clone(),
            offset: self.offset,
            kind,
            perm: header.perm()?,
            uid: records.uid.map_or_else(|| header.uid(), Ok)?,
            gid: records.gid.map_or_else(|| header.gid(), Ok)?,
            mtime: match records.mtime {
                Some(mtime) => mtime,
                None => Timestamp {
                    secs: header.mtime()?,
                    nanos: 0,
                },
            },
            records,
        })
    }

    /// Returns the kind of a member, with its content. Only files have some; others may have a size all the same.
    fn kind(
        &mut self,
        block: &Block,
        link: Vec<u8>,
        sparse: &SparseRecords,
        stored: u64,
    ) -> Result<Kind, Fault> {
        let header = Header::parse(block)?;
        Ok(match header.typeflag() {
            b'1' => Kind::HardLink(link),
            b'2' => Kind::Symlink(link),
            b'3' => (header.device()).map(|(major, minor)| Kind::CharDevice(major, minor))?,
            b'4' => (header.device()).map(|(major, minor)| Kind::BlockDevice(major, minor))?,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            b'D' => {
                self.feed.skip(stored)?; // names of what was in it
                Kind::Directory
            }
            b'S' if self.is_bare => {
                return broken("a sparse file of GNU tar, which headers alone do not tell".into());
            }
            b'S' => {
                let map = SparseMap::gnu(block, stored, &mut self.feed)?;
                Kind::Regular(self.sparse(map)?)
            }
            b'M' => {
                return broken(
                    "the rest of a member that begins in another volume; join the volumes first"
                        .into(),
                );
            }
            b'0' | 0 if self.name.ends_with(b"/") => {
                self.feed.skip(if self.is_bare { 0 } else { stored })?;
                Kind::Directory
            }
            typeflag => {
                if !matches!(typeflag, b'0' | b'7' | 0) {
                    let kind = [typeflag].escape_ascii().to_string();
                    let text = format!("its type `{kind}` is unknown; it becomes a regular file");
                    self.warnings.push(text);
                }
                Kind::Regular(self.regular(sparse, stored)?)
            }
        })
    }

    fn regular(&mut self, sparse: &SparseRecords, stored: u64) -> Result<Content, Fault> {
        if self.is_bare {
            return Ok(Content {
                bytes: sparse.size.unwrap_or(stored),
                parts: Vec::new(),
                place: ContentPlace::Bytes(0),
            });
        }
        if sparse.is_told() {
            let map = SparseMap::pax(sparse, stored, &mut self.feed)?;
            return self.sparse(map);
        }
        let all = Part {
            start: 0,
            bytes: stored,
        };
        Ok(Content {
            bytes: stored,
            parts: if stored == 0 { Vec::new() } else { vec![all] },
            place: self.feed.keep_file(stored)?,
        })
    }

    fn sparse(&mut self, map: SparseMap) -> Result<Content, Fault> {
        Ok(Content {
            bytes: map.file_bytes,
            place: ContentPlace::Bytes(self.feed.keep(map.stored())?),
            parts: map.parts,
        })
    }
}

fn no_archive<T>() -> Result<T, Fault> {
    broken("this is no tar archive, and none of cpio".into())
}
