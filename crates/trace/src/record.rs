//! Bytes of a record to items and back. `docs/trace.md` has the same in words.
//!
//! A header, then blocks, each with its length and checksum, so that damage is found and has a place. A block holds
//! whole items; their numbers are of variable length (LEB128), times are told as differences.

use std::io::{self, Read};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Access, Operation};

/// States what a record begins with.
pub const MAGIC: [u8; 8] = *b"ANTTRACE";
const VERSION: u32 = 1;
/// Magic, version, four bytes of nothing, and when it was begun.
const HEADER_LEN: usize = 24;
/// Length and checksum of a block.
pub(crate) const FRAME_LEN: usize = 8;
/// The most that a block holds. Writers keep far below.
const BLOCK_LEN_MAX: u32 = 1 << 20;
/// The longest path or name: what Linux takes.
pub(crate) const NAME_LEN_MAX: usize = 4096;
/// States where a file ends at the latest.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// The most bytes of a number of 64 bits.
const NUMBER_LEN_MAX: usize = 10;

mod tag {
    pub const READ: u8 = 1;
    pub const WRITE: u8 = 2;
    pub const FSYNC: u8 = 3;
    pub const FILE: u8 = 4;
    pub const PROCESS: u8 = 5;
    pub const DROPPED: u8 = 6;
    pub const END: u8 = 7;
}

/// Holds what a record says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Tells when it was begun, since 1970.
    pub started: Duration,
}

/// Tells what a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// A request that was answered. Its file was named before.
    Access(Access),
    /// From here on a file has this path.
    File {
        /// The number that accesses name it by.
        number: u64,
        /// Its inode.
        ino: u64,
        /// Its path, from the root of the mount; empty if that is not known.
        path: &'a [u8],
    },
    /// The name of a process.
    Process {
        /// Its number.
        pid: u32,
        /// Its name, as `comm` has it.
        name: &'a [u8],
    },
    /// So many accesses were dropped, somewhere before.
    Dropped(u64),
    /// The recorder was stopped.
    End(Duration),
}

/// Tells how a record that is right as far as it goes ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its recorder closed it.
    Closed,
    /// After a block: its recorder is at work, or was killed.
    Open,
    /// Within a block: the disk was full, or it was copied meanwhile.
    CutShort {
        /// Tells where the block begins.
        at: u64,
        /// Tells how long it would be.
        wanted: u64,
        /// Tells how long it is.
        found: u64,
    },
}

/// Tells why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The medium.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The content.
    #[error("byte {at}: {fault}")]
    Corrupt {
        /// Tells where.
        at: u64,
        /// Holds what is wrong there.
        fault: Fault,
    },
}

/// Tells what can be wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is something else.
    #[error("no record of anteros: it begins with \"{}\"", .0.escape_ascii())]
    Magic(Vec<u8>),
    /// It ends within the header.
    #[error("a record begins with {HEADER_LEN} bytes, of which {0} are there")]
    Header(usize),
    /// It is of a later version.
    #[error("a record of version {0}, of which only {VERSION} is known")]
    Version(u32),
    /// A block is impossibly long, or empty.
    #[error("a block of {0} bytes; they have 1 to {BLOCK_LEN_MAX}")]
    BlockLen(u32),
    /// A block was damaged.
    #[error("the block's checksum is {found:#010x}, that of its bytes {computed:#010x}")]
    Checksum {
        /// As it lies there.
        found: u32,
        /// As it should be.
        computed: u32,
    },
    /// An item of an unknown kind.
    #[error("an item of the unknown kind {0}")]
    Tag(u8),
    /// A number does not end within its block, or has more than 64 bits.
    #[error("the {0} is no number that ends within its block and has at most 64 bits")]
    Number(&'static str),
    /// A number is too large.
    #[error("the {what} is {value}, more than {most}")]
    Value {
        /// Of what.
        what: &'static str,
        /// Holds what it is.
        value: u64,
        /// Holds what it may be.
        most: u64,
    },
    /// A name does not end within its block.
    #[error("a name of {wanted} bytes, of which {found} are there")]
    Name {
        /// Tells how long it would be.
        wanted: u64,
        /// Holds what is left of the block.
        found: usize,
    },
    /// An access to something that was never named.
    #[error("an access to file {0}, which was not named before")]
    File(u64),
    /// Something follows the end.
    #[error("there is more behind the end")]
    BehindEnd,
}

/// The header of a record that was begun so long after 1970.
pub(crate) fn header(started: SystemTime) -> Vec<u8> {
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(nanos(started).to_le_bytes());
    bytes
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A block that is being filled.
#[derive(Debug)]
pub(crate) struct Block {
    /// With room for the frame in front.
    bytes: Vec<u8>,
    /// Tells when the last access came.
    last: u64,
    /// Tells how many accesses there are.
    pub accesses: u64,
}

impl Block {
    pub fn new() -> Self {
        Self {
            bytes: vec![0; FRAME_LEN],
            last: 0,
            accesses: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.len() == FRAME_LEN
    }

    pub fn access(&mut self, access: &Access) {
        let at = nanos(access.at);
        self.bytes.push(match access.operation {
            Operation::Read => tag::READ,
            Operation::Write => tag::WRITE,
            Operation::Fsync => tag::FSYNC,
        });
        let passed = at.wrapping_sub(self.last) as i64;
        self.number(((passed << 1) ^ (passed >> 63)) as u64);
        self.number(nanos(access.took));
        self.number(access.file);
        self.number(access.pid.into());
        self.number(access.error.into());
        if access.operation != Operation::Fsync {
            self.number(access.offset);
            self.number(access.len);
            self.number(access.modes.into());
        }
        self.last = at;
        self.accesses += 1;
    }

    pub fn file(&mut self, number: u64, ino: u64, path: &[u8]) {
        self.bytes.push(tag::FILE);
        self.number(number);
        self.number(ino);
        self.name(path);
    }

    pub fn process(&mut self, pid: u32, name: &[u8]) {
        self.bytes.push(tag::PROCESS);
        self.number(pid.into());
        self.name(name);
    }

    pub fn dropped(&mut self, count: u64) {
        self.bytes.push(tag::DROPPED);
        self.number(count);
    }

    pub fn end(&mut self, at: Duration) {
        self.bytes.push(tag::END);
        self.number(nanos(at));
    }

    /// The block with its frame; an empty one takes its place.
    pub fn finish(&mut self) -> Self {
        let mut block = std::mem::replace(self, Self::new());
        let (frame, payload) = block.bytes.split_at_mut(FRAME_LEN);
        frame[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        frame[4..].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        block
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn name(&mut self, name: &[u8]) {
        let name = &name[..name.len().min(NAME_LEN_MAX)];
        self.number(name.len() as u64);
        self.bytes.extend(name);
    }
}

/// Reads a record to its end, and has each item visited.
///
/// # Errors
///
/// [`Error`] if it cannot be read or is no record from some byte on; what comes before was visited.
pub fn read(
    mut source: impl Read,
    visit: &mut dyn FnMut(Item<'_>),
) -> Result<(Header, Ending), Error> {
    let header = read_header(&mut source)?;
    let mut at = HEADER_LEN as u64;
    let mut state = State::default();
    let mut payload = Vec::new();
    let ending = loop {
        let mut frame = [0; FRAME_LEN];
        let cut_short = |wanted: u64, found: usize| Ending::CutShort {
            at,
            wanted,
            found: found as u64,
        };
        match fill(&mut source, &mut frame)? {
            0 if state.is_over => break Ending::Closed,
            0 => break Ending::Open,
            _ if state.is_over => return Err(corrupt(at, Fault::BehindEnd)),
            FRAME_LEN => {}
            found => break cut_short(FRAME_LEN as u64, found),
        }
        let [len, checksum] = [0, 4].map(|from| word(&frame[from..]));
        if !(1..=BLOCK_LEN_MAX).contains(&len) {
            return Err(corrupt(at, Fault::BlockLen(len)));
        }
        payload.resize(len as usize, 0);
        let found = fill(&mut source, &mut payload)?;
        if found < payload.len() {
            break cut_short(u64::from(len) + FRAME_LEN as u64, FRAME_LEN + found);
        }
        let computed = crc32c::crc32c(&payload);
        if computed != checksum {
            let fault = Fault::Checksum {
                found: checksum,
                computed,
            };
            return Err(corrupt(at, fault));
        }
        at += FRAME_LEN as u64;
        state.read_block(at, &payload, visit)?;
        at += u64::from(len);
    };
    Ok((header, ending))
}

fn corrupt(at: u64, fault: Fault) -> Error {
    Error::Corrupt { at, fault }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn read_header(source: &mut impl Read) -> Result<Header, Error> {
    let mut bytes = [0; HEADER_LEN];
    let found = fill(source, &mut bytes)?;
    let begin = &bytes[..found.min(MAGIC.len())];
    if !MAGIC.starts_with(begin) || found == 0 {
        return Err(corrupt(0, Fault::Magic(begin.to_vec())));
    }
    if found < HEADER_LEN {
        return Err(corrupt(found as u64, Fault::Header(found)));
    }
    let version = word(&bytes[8..]);
    if version != VERSION {
        return Err(corrupt(8, Fault::Version(version)));
    }
    let [low, high] = [16, 20].map(|from| u64::from(word(&bytes[from..])));
    Ok(Header {
        started: Duration::from_nanos(high << 32 | low),
    })
}

/// Reads until `buf` is full or the end is reached, and says how much there was.
fn fill(source: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match source.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Holds what is known from earlier blocks.
#[derive(Debug, Default)]
struct State {
    /// Files are numbered in the order in which they are named first.
    files: u64,
    is_over: bool,
}

impl State {
    fn read_block(
        &mut self,
        at: u64,
        payload: &[u8],
        visit: &mut dyn FnMut(Item<'_>),
    ) -> Result<(), Error> {
        let mut items = Items {
            payload,
            done: 0,
            last: 0,
        };
        while items.done < payload.len() {
            let start = at + items.done as u64;
            let item = items.next().and_then(|item| {
                self.check(&item)?;
                Ok(item)
            });
            visit(item.map_err(|fault| corrupt(start, fault))?);
        }
        Ok(())
    }

    fn check(&mut self, item: &Item<'_>) -> Result<(), Fault> {
        if self.is_over {
            return Err(Fault::BehindEnd);
        }
        match item {
            Item::Access(access) if access.file >= self.files => Err(Fault::File(access.file)),
            Item::File { number, .. } => {
                let most = self.files;
                self.files += u64::from(*number == most);
                within("number of a file", *number, most).map(drop)
            }
            Item::End(_) => {
                self.is_over = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The items of a block, from the front.
struct Items<'a> {
    payload: &'a [u8],
    done: usize,
    last: u64,
}

impl<'a> Items<'a> {
    fn next(&mut self) -> Result<Item<'a>, Fault> {
        let tag = self.payload[self.done];
        let operation = match tag {
            tag::READ => Operation::Read,
            tag::WRITE => Operation::Write,
            tag::FSYNC => Operation::Fsync,
            tag::FILE..=tag::END => {
                self.done += 1;
                return self.other(tag);
            }
            _ => return Err(Fault::Tag(tag)),
        };
        self.done += 1;
        self.access(operation).map(Item::Access)
    }

    fn other(&mut self, tag: u8) -> Result<Item<'a>, Fault> {
        Ok(match tag {
            tag::FILE => Item::File {
                number: self.number("number of a file")?,
                ino: self.number("inode")?,
                path: self.name()?,
            },
            tag::PROCESS => Item::Process {
                pid: self.small("process")?,
                name: self.name()?,
            },
            tag::DROPPED => Item::Dropped(self.number("count of what was dropped")?),
            _ => Item::End(Duration::from_nanos(self.number("time of the end")?)),
        })
    }

    fn access(&mut self, operation: Operation) -> Result<Access, Fault> {
        let passed = self.number("time of an access")?;
        let passed = (passed >> 1) as i64 ^ -((passed & 1) as i64);
        self.last = self.last.wrapping_add(passed as u64);
        let mut access = Access {
            at: Duration::from_nanos(self.last),
            took: Duration::from_nanos(self.number("time an answer took")?),
            operation,
            file: self.number("number of a file")?,
            pid: self.small("process")?,
            error: self.small("error")?,
            offset: 0,
            len: 0,
            modes: 0,
        };
        if operation != Operation::Fsync {
            access.offset = within("offset", self.number("offset")?, OFFSET_MAX)?;
            let most = u32::MAX.into();
            access.len = within("length", self.number("length")?, most)?;
            access.modes = self.small("modes of an open file")?;
        }
        Ok(access)
    }

    fn small(&mut self, what: &'static str) -> Result<u32, Fault> {
        let value = within(what, self.number(what)?, u32::MAX.into())?;
        Ok(value as u32)
    }

    fn number(&mut self, what: &'static str) -> Result<u64, Fault> {
        let rest = &self.payload[self.done..];
        let mut value = 0;
        for (index, &byte) in rest.iter().enumerate().take(NUMBER_LEN_MAX) {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if index == NUMBER_LEN_MAX - 1 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte < 0x80 {
                self.done += index + 1;
                return Ok(value);
            }
        }
        Err(Fault::Number(what))
    }

    fn name(&mut self) -> Result<&'a [u8], Fault> {
        let wanted = self.number("length of a name")?;
        within("length of a name", wanted, NAME_LEN_MAX as u64)?;
        let rest = &self.payload[self.done..];
        let name = rest.get(..wanted as usize).ok_or(Fault::Name {
            wanted,
            found: rest.len(),
        })?;
        self.done += name.len();
        Ok(name)
    }
}

fn within(what: &'static str, value: u64, most: u64) -> Result<u64, Fault> {
    match value <= most {
        true => Ok(value),
        false => Err(Fault::Value { what, value, most }),
    }
}

#[cfg(test)]
mod tests;
