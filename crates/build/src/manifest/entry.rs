//! Entries of a manifest, whatever its format.

use anteros_core::Timestamp;
use anteros_verity::{Algorithm, FileDigest};
use sha2::{Digest, Sha256, Sha512};

use crate::tar::members::Kind;
pub(super) use crate::tar::members::short;

/// Longest path, as the kernel has it: each line costs as much as its path, however short the line is.
const PATH_BYTES_MAX: usize = 4096;

/// A file as a line tells of it.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its path below the root, without slashes around it.
    pub path: Vec<u8>,
    pub what: What,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    pub xattrs: Xattrs,
}

/// Attributes with their full names.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Kind of an entry.
#[derive(Debug)]
pub(super) enum What {
    File(FileEntry),
    /// A further name of what is at this path.
    HardLink(Vec<u8>),
    Other(Kind),
}

/// A hard link.
#[derive(Debug)]
pub(super) struct Linked {
    pub path: Vec<u8>,
    pub target: Vec<u8>,
}

/// A regular file as a line tells of it.
#[derive(Debug)]
pub(super) struct FileEntry {
    pub size: Option<u64>,
    pub content: Content,
    /// Digests that the content must have.
    pub sums: Vec<Sum>,
    /// Tells whether the file is left out if its content is not there.
    pub is_optional: bool,
}

/// Place of a file's content.
#[derive(Debug)]
pub(super) enum Content {
    /// The line tells it.
    Told(Vec<u8>),
    /// It lies at this path below the directory of content.
    Path(Vec<u8>),
}

/// A digest that the content of a file must have.
#[derive(Debug)]
pub(super) struct Sum {
    pub kind: SumKind,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SumKind {
    Sha256,
    Sha512,
    /// The digest that fs-verity gives a file, by SHA-256 and blocks of 4096 bytes.
    Verity,
}

impl SumKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
            Self::Verity => "fs-verity",
        }
    }

    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 | Self::Verity => 32,
            Self::Sha512 => 64,
        }
    }

    pub fn start(self) -> Running {
        match self {
            Self::Sha256 => Running::Sha256(Sha256::new()),
            Self::Sha512 => Running::Sha512(Box::new(Sha512::new())),
            Self::Verity => Running::Verity(Box::new(FileDigest::new(Algorithm::Sha256))),
        }
    }
}

/// A digest while content comes.
pub(super) enum Running {
    Sha256(Sha256),
    Sha512(Box<Sha512>),
    Verity(Box<FileDigest>),
}

impl Running {
    pub fn update(&mut self, content: &[u8]) {
        match self {
            Self::Sha256(sum) => sum.update(content),
            Self::Sha512(sum) => sum.update(content),
            Self::Verity(sum) => sum.update(content),
        }
    }

    pub fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha256(sum) => sum.finalize().to_vec(),
            Self::Sha512(sum) => sum.finalize().to_vec(),
            Self::Verity(sum) => sum.finish().as_bytes().to_vec(),
        }
    }
}

/// Reads a digest of some kind from its hexadecimal digits.
pub(super) fn sum(kind: SumKind, text: &[u8]) -> Result<Sum, String> {
    let bytes = std::str::from_utf8(text).ok();
    let bytes = bytes.and_then(anteros_verity::hex::decode);
    match bytes.filter(|bytes| bytes.len() == kind.bytes()) {
        Some(bytes) => Ok(Sum { kind, bytes }),
        None => Err(format!(
            "`{}` is no digest of {}, which has {} hexadecimal digits",
            short(text),
            kind.name(),
            2 * kind.bytes()
        )),
    }
}

/// Splits a path into names, drops what stands for nothing, and joins them again.
pub(super) fn path(text: &[u8]) -> Result<Vec<u8>, String> {
    let names: Vec<&[u8]> = text
        .split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
        .collect();
    if names.contains(&&b".."[..]) {
        return Err(format!("`..` in the path `{}`", short(text)));
    }
    if text.len() > PATH_BYTES_MAX {
        let len = text.len();
        return Err(format!(
            "a path of {len} bytes; {PATH_BYTES_MAX} are the most"
        ));
    }
    if text.contains(&0) {
        return Err(format!("a NUL in the path `{}`", short(text)));
    }
    Ok(names.join(&b'/'))
}

/// Reads a number of some base.
pub(super) fn number(what: &str, text: &[u8], base: u32) -> Result<u64, String> {
    let digits = std::str::from_utf8(text).ok();
    let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let number = digits.and_then(|digits| u64::from_str_radix(digits, base).ok());
    number.ok_or_else(|| {
        let of = if base == 8 { "octal number" } else { "number" };
        format!("the {what} is `{}`, which is no {of}", short(text))
    })
}

/// Reads an owner or a group.
pub(super) fn id(what: &str, text: &[u8]) -> Result<u32, String> {
    let id = number(what, text, 10)?;
    u32::try_from(id).map_err(|_| format!("the {what} is {id}, which is beyond 32 bits"))
}

/// Reads seconds, which may be negative, and nanoseconds behind a dot.
///
/// Digits behind the dot are a number of nanoseconds: `5.7` is seven of them, as all programs of these formats have it.
pub(super) fn time(text: &[u8]) -> Result<Timestamp, String> {
    let dot = text.iter().position(|byte| *byte == b'.');
    let (secs, nanos) = match dot {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    let secs = std::str::from_utf8(secs)
        .ok()
        .and_then(|secs| secs.parse().ok());
    let nanos = number("time", nanos, 10)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000);
    match (secs, nanos) {
        (Some(secs), Some(nanos)) => Ok(Timestamp {
            secs,
            nanos: nanos as u32, // less than a second of them
        }),
        _ => Err(format!(
            "the time is `{}`, which is not seconds, a dot, and nanoseconds",
            short(text)
        )),
    }
}
