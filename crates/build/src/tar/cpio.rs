//! Archives of cpio, as Linux reads them as an initramfs: newc, and crc, which has sums of content.
//!
//! ```text
//! 070701 ino mode uid gid nlink mtime size major minor rmajor rminor namesize check   name\0 ..  data ..
//! └ 6 ─┘└────────────── 13 numbers, each of eight hexadecimal digits ─────────────┘     to 4 bytes
//! ```
//!
//! Of a file with several names, the last one has its content. Archives end with a member `TRAILER!!!`;
//! others may follow, behind zeros, and each of them may be compressed.

use std::collections::HashMap;

use anteros_core::{FileKind, Timestamp};

use super::fault::{Fault, broken};
use super::feed::Feed;
use super::header::{BLOCK_BYTES, Block, Header};
use super::map::Part;
use super::members::{Content, Kind, Member};
use crate::early::ContentPlace;

/// Bytes of the magic, the first of a header.
const MAGIC_BYTES: usize = 6;
/// Beginnings of headers: newc, crc, and the older format of POSIX.
const NEWC: &[u8] = b"070701";
const CRC: &[u8] = b"070702";
const ODC: &[u8] = b"070707";
/// Numbers of a header, and the digits of each.
const FIELDS: usize = 13;
const DIGITS: usize = 8;
const HEADER_BYTES: usize = MAGIC_BYTES + FIELDS * DIGITS;
/// Names and content are filled up to so many bytes.
const UNIT_BYTES: u64 = 4;
/// Longest name, or target of a link, as in other archives.
const NAME_BYTES_MAX: u32 = 64 << 10;
/// Name of the member that ends an archive.
const TRAILER: &[u8] = b"TRAILER!!!";

/// Returns whether an archive that begins so is one of cpio. Names in those of tar may begin like anything.
pub(super) fn is_cpio(start: &[u8]) -> bool {
    let magics = [NEWC, CRC, ODC];
    let block = start.get(..BLOCK_BYTES);
    let block: Option<&Block> = block.and_then(|block| block.try_into().ok());
    let is_tar = block.is_some_and(|block| Header::parse(block).is_ok());
    magics.iter().any(|magic| start.starts_with(magic)) && !is_tar
}

/// Returns whether an archive follows in a file that is compressed.
pub(super) fn has_compressed_part(feed: Feed<'_>) -> bool {
    let mut cpio = Cpio::new(feed);
    while let Ok(Some(_)) = cpio.next() {}
    cpio.is_cut
}

/// A header, its numbers as they come.
struct Newc {
    has_sum: bool,
    ino: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    mtime: u32,
    size: u32,
    device: (u32, u32),
    rdev: (u32, u32),
    name_bytes: u32,
    sum: u32,
}

impl Newc {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Fault> {
        let (magic, digits) = bytes.split_at(MAGIC_BYTES);
        let has_sum = match magic {
            NEWC => false,
            CRC => true,
            ODC => {
                let text = "a format of cpio that Linux does not read; `cpio -H newc` makes one that it does";
                return broken(text.into());
            }
            magic => {
                let magic = magic.escape_ascii();
                return broken(format!(
                    "a header that begins with `{magic}`, not 070701 or 070702"
                ));
            }
        };
        let mut numbers = [0; FIELDS];
        for (number, digits) in numbers.iter_mut().zip(digits.chunks_exact(DIGITS)) {
            *number = field(digits)?;
        }
        let [ino, mode, uid, gid, nlink, mtime, size, rest @ ..] = numbers;
        let [major, minor, rmajor, rminor, name_bytes, sum] = rest;
        Ok(Self {
            has_sum,
            ino,
            mode,
            uid,
            gid,
            nlink,
            mtime,
            size,
            device: (major, minor),
            rdev: (rmajor, rminor),
            name_bytes,
            sum,
        })
    }
}

fn field(digits: &[u8]) -> Result<u32, Fault> {
    let text = std::str::from_utf8(digits).ok();
    let text = text.filter(|text| text.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let number = text.and_then(|text| u32::from_str_radix(text, 16).ok());
    number.ok_or_else(|| {
        let digits = digits.escape_ascii();
        Fault::Broken(format!("`{digits}` in its header is no hexadecimal number"))
    })
}

/// Reads the members of archives that follow each other.
pub(super) struct Cpio<'a> {
    pub feed: Feed<'a>,
    /// Byte at which the member begins that is being read.
    pub offset: u64,
    /// Its name, as far as that is known.
    pub name: Vec<u8>,
    /// Names of files of this archive that have several, by inode and device.
    linked: HashMap<(u32, (u32, u32)), Vec<u8>>,
    /// Tells whether a compressed archive follows that cannot be read in place.
    is_cut: bool,
}

impl<'a> Cpio<'a> {
    pub fn new(mut feed: Feed<'a>) -> Self {
        feed.go_on();
        Self {
            feed,
            offset: 0,
            name: Vec::new(),
            linked: HashMap::new(),
            is_cut: false,
        }
    }

    /// Reads the next member; `None` at the end of the last archive.
    pub fn next(&mut self) -> Result<Option<Member>, Fault> {
        let mut is_ended = false;
        loop {
            self.name.clear();
            self.offset = self.feed.position();
            let mut header = [0; HEADER_BYTES];
            if !self.feed.exact(&mut header)? {
                return match is_ended {
                    true => Ok(None),
                    false => broken("the archive ends without a trailer; was it cut short?".into()),
                };
            }
            let header = Newc::parse(&header)?;
            self.name = self.name(&header)?;
            if self.name != TRAILER {
                return self.member(&header).map(Some);
            }
            self.linked.clear();
            is_ended = true;
            self.feed.skip_bytes(u64::from(header.size))?;
            if self.feed.gap()? {
                self.is_cut = true;
                return Ok(None);
            }
        }
    }

    /// Reads a name and what fills it up.
    fn name(&mut self, header: &Newc) -> Result<Vec<u8>, Fault> {
        if header.name_bytes > NAME_BYTES_MAX {
            let found = header.name_bytes;
            return broken(format!(
                "a name of {found} bytes; {NAME_BYTES_MAX} are the most"
            ));
        }
        let filled = filled(HEADER_BYTES as u64 + u64::from(header.name_bytes));
        self.text(u64::from(header.name_bytes), filled - HEADER_BYTES as u64)
    }

    /// Reads text up to a NUL, and what fills it up.
    fn text(&mut self, bytes: u64, filled: u64) -> Result<Vec<u8>, Fault> {
        let mut text = vec![0; filled as usize];
        if !self.feed.exact(&mut text)? {
            return Err(Fault::Truncated);
        }
        let nul = text.iter().position(|byte| *byte == 0);
        text.truncate(nul.unwrap_or(text.len()).min(bytes as usize));
        Ok(text)
    }

    fn member(&mut self, header: &Newc) -> Result<Member, Fault> {
        let kind = self.kind(header)?;
        Ok(Member {
            offset: self.offset,
            perm: (header.mode & 0o7777) as u16,
            uid: header.uid,
            gid: header.gid,
            mtime: Timestamp {
                secs: header.mtime.into(),
                nanos: 0,
            },
            ..Member::bare(self.name.clone(), kind)
        })
    }

    fn kind(&mut self, header: &Newc) -> Result<Kind, Fault> {
        let kind = FileKind::from_mode(header.mode).filter(|_| header.mode <= 0o177_777);
        let Some(kind) = kind else {
            let mode = header.mode;
            return broken(format!("its mode {mode:#o} is of no known kind of file"));
        };
        if kind == FileKind::Symlink {
            return self.target(header).map(Kind::Symlink);
        }
        let first = self.known(header, kind);
        if kind == FileKind::Regular {
            let content = self.content(header)?;
            return Ok(match first {
                None => Kind::Regular(content),
                Some(first) if content.bytes == 0 => Kind::HardLink(first),
                Some(first) => Kind::Refilled(first, content),
            });
        }
        self.feed.skip_bytes(filled(header.size.into()))?;
        let (major, minor) = header.rdev;
        Ok(match (kind, first) {
            (_, Some(first)) => Kind::HardLink(first),
            (FileKind::Directory, _) => Kind::Directory,
            (FileKind::CharDevice, _) => Kind::CharDevice(major, minor),
            (FileKind::BlockDevice, _) => Kind::BlockDevice(major, minor),
            (FileKind::Fifo, _) => Kind::Fifo,
            _ => Kind::Socket,
        })
    }

    fn target(&mut self, header: &Newc) -> Result<Vec<u8>, Fault> {
        match header.size {
            0..=NAME_BYTES_MAX => {
                let bytes = u64::from(header.size);
                self.text(bytes, filled(bytes))
            }
            bytes => broken(format!(
                "a target of {bytes} bytes; {NAME_BYTES_MAX} are the most"
            )),
        }
    }

    /// Returns the first name of a file that has several, unless this is the first.
    fn known(&mut self, header: &Newc, kind: FileKind) -> Option<Vec<u8>> {
        if header.nlink < 2 || kind == FileKind::Directory {
            return None;
        }
        let key = (header.ino, header.device);
        if let Some(first) = self.linked.get(&key) {
            return Some(first.clone());
        }
        self.linked.insert(key, self.name.clone());
        None
    }

    fn content(&mut self, header: &Newc) -> Result<Content, Fault> {
        let bytes = u64::from(header.size);
        let place = match header.has_sum && bytes > 0 {
            false => self.feed.keep_file_bytes(bytes)?,
            true => {
                let (place, sum) = self.feed.keep_summed(bytes)?;
                if sum != header.sum {
                    let told = header.sum;
                    return broken(format!(
                        "the sum of its content is {sum:#010x}, not {told:#010x}"
                    ));
                }
                ContentPlace::Bytes(place)
            }
        };
        self.feed.skip_bytes(filled(bytes) - bytes)?;
        let all = Part { start: 0, bytes };
        Ok(Content {
            bytes,
            parts: if bytes == 0 { Vec::new() } else { vec![all] },
            place,
        })
    }
}

/// Bytes with those that fill them up.
const fn filled(bytes: u64) -> u64 {
    bytes.next_multiple_of(UNIT_BYTES)
}
