//! Lines of composefs-dump(5).
//!
//! ```text
//! /path SIZE MODE NLINK UID GID RDEV MTIME PAYLOAD CONTENT DIGEST KEY=VALUE…
//! ```
//!
//! A `-` stands for nothing; a mode behind `@` is that of a further name of the payload.

use anteros_core::{FileKind, Timestamp};

use super::entry::{
    Content, Entry, FileEntry, SumKind, What, Xattrs, id, number, path, short, sum, time,
};
use super::escape::undump;
use crate::tar::members::Kind;

/// Fields before the attributes.
const FIELDS: usize = 11;
/// The field that leads to content, or to the target of a link.
const PAYLOAD: usize = 8;

/// Reads lines; each tells all of its file.
pub(super) struct Dump;

impl Dump {
    pub fn line(&self, line: &[u8]) -> Result<Entry, String> {
        let mut words = line.split(|byte| *byte == b' ');
        let fields: Vec<&[u8]> = words.by_ref().take(FIELDS).collect();
        let fields: [&[u8]; FIELDS] = fields.try_into().map_err(|fields: Vec<_>| {
            let count = fields.len();
            format!("a line of {count} fields; {FIELDS} are the least")
        })?;
        let [name, _, mode, ..] = fields;
        let path = absolute(&undump(name)?)?;
        match mode {
            [b'@', ..] => link(path, fields[PAYLOAD]),
            _ => {
                let xattrs = words.map(xattr).collect::<Result<_, _>>()?;
                file(path, fields, xattrs)
            }
        }
    }
}

/// A further name; only its payload counts.
fn link(path: Vec<u8>, payload: &[u8]) -> Result<Entry, String> {
    let target = optional(payload)?.ok_or("a hard link without a payload")?;
    Ok(Entry {
        path,
        what: What::HardLink(absolute(&target)?),
        perm: 0,
        uid: 0,
        gid: 0,
        mtime: Timestamp::default(),
        xattrs: Vec::new(),
    })
}

fn file(path: Vec<u8>, fields: [&[u8]; FIELDS], xattrs: Xattrs) -> Result<Entry, String> {
    let [
        _,
        size,
        mode,
        _,
        uid,
        gid,
        rdev,
        mtime,
        payload,
        content,
        digest,
    ] = fields;
    let mode = number("mode", mode, 8)?;
    let rest = Rest {
        size: number("size", size, 10)?,
        rdev: number("device number", rdev, 10)?,
        payload: optional(payload)?,
        content: optional(content)?,
        digest: (digest != b"-").then_some(digest),
    };
    Ok(Entry {
        path,
        what: rest.what(mode)?,
        perm: (mode & 0o7777) as u16,
        uid: id("owner", uid)?,
        gid: id("group", gid)?,
        mtime: time(mtime)?,
        xattrs,
    })
}

/// Fields whose meaning is that of the kind.
struct Rest<'a> {
    size: u64,
    rdev: u64,
    payload: Option<Vec<u8>>,
    content: Option<Vec<u8>>,
    digest: Option<&'a [u8]>,
}

impl Rest<'_> {
    fn what(self, mode: u64) -> Result<What, String> {
        let kind = u32::try_from(mode).ok().and_then(FileKind::from_mode);
        let kind = kind.filter(|_| mode <= 0o177_777);
        let kind = kind.ok_or_else(|| format!("the mode is {mode:o}, of no known kind of file"))?;
        Ok(What::Other(match kind {
            FileKind::Regular => return self.file(),
            FileKind::Symlink => {
                let target = self.payload.ok_or("a symbolic link without a payload")?;
                Kind::Symlink(target)
            }
            FileKind::Directory => Kind::Directory,
            FileKind::Fifo => Kind::Fifo,
            FileKind::Socket => Kind::Socket,
            FileKind::CharDevice => {
                let (major, minor) = device(self.rdev);
                Kind::CharDevice(major, minor)
            }
            FileKind::BlockDevice => {
                let (major, minor) = device(self.rdev);
                Kind::BlockDevice(major, minor)
            }
        }))
    }

    fn file(self) -> Result<What, String> {
        let content = match (self.payload, self.content) {
            (Some(_), Some(_)) => {
                return Err("a file with a payload and with content; it has one of them".into());
            }
            (Some(payload), None) if payload.starts_with(b"/") => {
                return Err(format!(
                    "the payload `{}` is absolute; it lies below the directory of content",
                    short(&payload)
                ));
            }
            (Some(payload), None) => Content::Path(path(&payload)?),
            (None, content) => Content::Told(content.unwrap_or_default()),
        };
        let digest = self.digest.map(|text| sum(SumKind::Verity, text));
        Ok(What::File(FileEntry {
            size: Some(self.size),
            content,
            sums: digest.transpose()?.into_iter().collect(),
            is_optional: false,
        }))
    }
}

fn optional(field: &[u8]) -> Result<Option<Vec<u8>>, String> {
    match field {
        b"-" => Ok(None),
        field => undump(field).map(Some),
    }
}

/// Splits a number of Linux for a device, which has room for 32 bits of each part.
const fn device(rdev: u64) -> (u32, u32) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & !0xfff);
    let minor = (rdev & 0xff) | (rdev >> 12 & 0xffff_ff00);
    (major as u32, minor as u32)
}

/// The path below the root that an absolute one means.
fn absolute(text: &[u8]) -> Result<Vec<u8>, String> {
    match text {
        [b'/', rest @ ..] => path(rest),
        _ => Err(format!("the path `{}` does not begin at /", short(text))),
    }
}

fn xattr(word: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let equals = word.iter().position(|byte| *byte == b'=');
    let equals = equals.ok_or_else(|| format!("the attribute `{}` has no `=`", short(word)))?;
    Ok((undump(&word[..equals])?, undump(&word[equals + 1..])?))
}
