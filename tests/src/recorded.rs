//! Recorded writes of applications: read from `tests/data/traces`, where their format is described, written, and done
//! again in a directory or in a file system without a mount.

mod content;
mod replay;
mod target;
mod writer;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

pub use content::Content;
pub use replay::{Replay, Replayed, replay};
pub use target::{HostDirectory, Target, Tree};
pub use writer::Writer;

use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// States what a record is made of before path and data.
const HEADER_BYTES: usize = 32;
/// The longest path that is taken for one.
const PATH_BYTES_MAX: u64 = 4096;
/// The longest write that is taken for one.
const DATA_BYTES_MAX: u64 = 16 << 20;
/// States what is decoded at once.
const BUFFER_BYTES: usize = 128 << 10;

/// A call of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Microseconds since the recording began.
    pub micros: u64,
    /// A name in a numbered directory: `d0/name`. Only of [`Action::SyncDirectory`] it is the directory.
    pub path: String,
    /// Holds what was done there.
    pub action: Action,
}

/// Tells what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A write.
    Write {
        /// Tells where.
        offset: u64,
        /// Holds what.
        data: Vec<u8>,
    },
    /// `fsync`, of a file; also of a directory, if the path is that of nothing else.
    Fsync,
    /// `fdatasync`, in the same way.
    Fdatasync,
    /// `fsync` of the directory that the path is: `d0`.
    SyncDirectory,
    /// A file is made, which has nothing yet.
    Create,
    /// `fallocate`: space is promised, and the file is at least so long.
    Allocate {
        /// From here on.
        offset: u64,
        /// So many bytes.
        len: u64,
    },
    /// `ftruncate`.
    Truncate {
        /// The new size.
        size: u64,
    },
    /// `unlink`.
    Unlink,
    /// A rename to the path of the record.
    Rename {
        /// The old path.
        from: String,
    },
}

/// A trace of the repository, by its name.
pub fn path(name: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/traces");
    data.join(format!("{name}.trace.zst"))
}

/// The records of a trace, read as they are asked for.
pub struct Trace {
    path: PathBuf,
    decoded: BufReader<Decoded<File>>,
    count: u64,
    has_failed: bool,
}

impl Trace {
    /// Begins to read.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let file = File::open(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(Self {
            path,
            decoded: BufReader::with_capacity(BUFFER_BYTES, Decoded::new(file)),
            count: 0,
            has_failed: false,
        })
    }

    fn read(&mut self) -> io::Result<Option<Record>> {
        if self.decoded.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        self.decoded.read_exact(&mut header)?;
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        let path_len = number(0) >> 32;
        let (micros, offset, len) = (number(8), number(16), number(24));
        let path = self.text(path_len)?;
        let action = match header[0] {
            b'W' => Action::Write {
                offset,
                data: self.bytes(len, DATA_BYTES_MAX)?,
            },
            b'F' => Action::Fsync,
            b'D' => Action::Fdatasync,
            b'S' => Action::SyncDirectory,
            b'C' => Action::Create,
            b'A' => Action::Allocate { offset, len },
            b'T' => Action::Truncate { size: offset },
            b'U' => Action::Unlink,
            b'R' => Action::Rename {
                from: beside(&path, &self.text(len)?),
            },
            b'V' => Action::Rename {
                from: self.text(len)?,
            },
            op => return Err(malformed(format!("there is no operation {op:#04x}"))),
        };
        match &action {
            Action::SyncDirectory => check_name(&path)?,
            _ => check_path(&path)?,
        }
        if let Action::Rename { from } = &action {
            check_path(from)?;
        }
        Ok(Some(Record {
            micros,
            path,
            action,
        }))
    }

    fn text(&mut self, len: u64) -> io::Result<String> {
        String::from_utf8(self.bytes(len, PATH_BYTES_MAX)?).map_err(malformed)
    }

    fn bytes(&mut self, len: u64, max: u64) -> io::Result<Vec<u8>> {
        if len > max {
            return Err(malformed(format!("{len} bytes are more than {max}")));
        }
        let mut bytes = vec![0; len as usize];
        self.decoded.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Iterator for Trace {
    type Item = io::Result<Record>;

    /// The next record. Behind an error there is nothing.
    fn next(&mut self) -> Option<io::Result<Record>> {
        if self.has_failed {
            return None;
        }
        let record = self.read().map_err(|e| {
            self.has_failed = true;
            let place = format!("{}: record {}", self.path.display(), self.count);
            io::Error::new(e.kind(), format!("{place}: {e}"))
        });
        self.count += 1;
        record.transpose()
    }
}

fn malformed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The last component of one path, in the directory of another.
fn beside(path: &str, other: &str) -> String {
    let directory = directory_of(path);
    let name = other.rsplit('/').next().unwrap_or_default();
    format!("{directory}/{name}")
}

/// Refuses what would lead out of the directory of a replay.
fn check_path(path: &str) -> io::Result<()> {
    match path.split_once('/') {
        Some((directory, name)) => check_name(directory).and_then(|()| check_name(name)),
        None => Err(malformed(format!("`{path}` is no name in a directory"))),
    }
}

fn check_name(name: &str) -> io::Result<()> {
    let is_name = !matches!(name, "" | "." | "..") && !name.contains('/');
    match is_name {
        true => Ok(()),
        false => Err(malformed(format!("`{name}` is no name"))),
    }
}

/// The directory that a path names something in.
fn directory_of(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// The content of a Zstandard frame, in the memory of its window.
struct Decoded<R> {
    encoded: R,
    context: DCtx<'static>,
    /// Holds what was read, and how much of it is decoded.
    input: Vec<u8>,
    used: usize,
    /// Tells whether the frame is over, or has not begun.
    is_between_frames: bool,
}

impl<R: Read> Decoded<R> {
    fn new(encoded: R) -> Self {
        Self {
            encoded,
            context: DCtx::create(),
            input: Vec::new(),
            used: 0,
            is_between_frames: false,
        }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.input.resize(BUFFER_BYTES, 0);
        let len = self.encoded.read(&mut self.input)?;
        self.input.truncate(len);
        self.used = 0;
        Ok(())
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !buf.is_empty() {
            if self.used == self.input.len() {
                self.refill()?;
            }
            let is_at_end = self.input.is_empty();
            if is_at_end && self.is_between_frames {
                break;
            }
            let mut input = InBuffer::around(&self.input[self.used..]);
            let mut output = OutBuffer::around(&mut *buf);
            let hint = self
                .context
                .decompress_stream(&mut output, &mut input)
                .map_err(|code| malformed(zstd_safe::get_error_name(code)))?;
            let decoded = output.pos();
            self.used += input.pos();
            self.is_between_frames = hint == 0;
            if decoded > 0 {
                return Ok(decoded);
            }
            if is_at_end {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(0)
    }
}
