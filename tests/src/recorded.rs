//! Recorded writes of applications: read from `tests/data/traces`, where their format is described, and done again.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// What a record is made of before path and data.
const HEADER_BYTES: usize = 32;
/// The longest path that is taken for one.
const PATH_BYTES_MAX: u64 = 4096;
/// The longest write that is taken for one.
const DATA_BYTES_MAX: u64 = 16 << 20;
/// What is decoded at once.
const BUFFER_BYTES: usize = 128 << 10;

/// A call of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Microseconds since the recording began.
    pub micros: u64,
    /// A name in a numbered directory: `d0/name`.
    pub path: String,
    /// What was done there.
    pub action: Action,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A write.
    Write {
        /// Where.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// `fsync`, of a file or directory.
    Fsync,
    /// `fdatasync`, of a file or directory.
    Fdatasync,
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
            b'T' => Action::Truncate { size: offset },
            b'U' => Action::Unlink,
            b'R' => Action::Rename {
                from: beside(&path, &self.text(len)?),
            },
            op => return Err(malformed(format!("there is no operation {op:#04x}"))),
        };
        check_path(&path)?;
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
    let directory = path.split('/').next().unwrap_or_default();
    let name = other.rsplit('/').next().unwrap_or_default();
    format!("{directory}/{name}")
}

/// Refuses what would lead out of the directory of a replay.
fn check_path(path: &str) -> io::Result<()> {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('/');
    match path.split_once('/') {
        Some((directory, name)) if is_name(directory) && is_name(name) => Ok(()),
        _ => Err(malformed(format!("`{path}` is no name in a directory"))),
    }
}

/// The content of a Zstandard frame, in the memory of its window.
struct Decoded<R> {
    encoded: R,
    context: DCtx<'static>,
    /// What was read, and how much of it is decoded.
    input: Vec<u8>,
    used: usize,
    /// Whether the frame is over, or has not begun.
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

/// What a replay has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Writes.
    pub writes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of directories.
    pub directory_syncs: u64,
    /// Truncates, unlinks and renames.
    pub others: u64,
    /// Unlinks of what was there before the recording.
    pub skipped: u64,
}

/// Does recorded calls again, as fast as it can, one after the other. Files stay open as long as they have their name.
///
/// Which directory a sync was for is not recorded; it is that of the last call before it, as when SQLite and LevelDB sync
/// the directory in which they have made or removed a file. Where several threads were at work, as in `chromium`, it may be
/// another one.
pub struct Replay {
    root: PathBuf,
    files: HashMap<String, File>,
    /// The directory of the last call.
    directory: PathBuf,
    done: Replayed,
}

impl Replay {
    /// A replay in an empty directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self {
            directory: root.clone(),
            root,
            files: HashMap::new(),
            done: Replayed::default(),
        }
    }

    /// What was done up to now.
    pub fn done(&self) -> Replayed {
        self.done
    }

    /// Does one call.
    ///
    /// # Errors
    ///
    /// What the file system says, with the path in front.
    pub fn step(&mut self, record: &Record) -> io::Result<()> {
        self.do_action(record)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", record.path)))
    }

    fn do_action(&mut self, record: &Record) -> io::Result<()> {
        let path = &record.path;
        match &record.action {
            Action::Write { offset, data } => {
                self.file(path)?.write_all_at(data, *offset)?;
                self.done.writes += 1;
                self.done.written_bytes += data.len() as u64;
            }
            Action::Truncate { size } => {
                self.file(path)?.set_len(*size)?;
                self.done.others += 1;
            }
            Action::Fsync => return self.sync(path, File::sync_all),
            Action::Fdatasync => return self.sync(path, File::sync_data),
            Action::Unlink => self.unlink(path)?,
            Action::Rename { from } => {
                fs::rename(self.root.join(from), self.root.join(path))?;
                let file = self.files.remove(from);
                self.files.remove(path);
                self.files.extend(file.map(|file| (path.clone(), file)));
                self.done.others += 1;
            }
        }
        self.directory = self.directory_of(path);
        Ok(())
    }

    fn directory_of(&self, path: &str) -> PathBuf {
        let directory = path.split('/').next().unwrap_or_default();
        self.root.join(directory)
    }

    /// A file, which is made if it is not there.
    fn file(&mut self, path: &str) -> io::Result<&File> {
        if !self.files.contains_key(path) {
            fs::create_dir_all(self.directory_of(path))?;
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(false);
            let file = file.open(self.root.join(path))?;
            self.files.insert(path.into(), file);
        }
        Ok(&self.files[path])
    }

    fn sync(&mut self, path: &str, sync: fn(&File) -> io::Result<()>) -> io::Result<()> {
        match self.files.get(path) {
            Some(file) => {
                sync(file)?;
                self.directory = self.directory_of(path);
                self.done.syncs += 1;
            }
            None => {
                sync(&File::open(&self.directory)?)?;
                self.done.directory_syncs += 1;
            }
        }
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> io::Result<()> {
        if self.files.remove(path).is_none() {
            self.done.skipped += 1;
            return Ok(());
        }
        self.done.others += 1;
        fs::remove_file(self.root.join(path))
    }
}

/// Does a whole trace again below an empty directory.
///
/// # Errors
///
/// When the trace cannot be read, or the file system fails.
pub fn replay(trace: Trace, root: &Path) -> io::Result<Replayed> {
    let mut replay = Replay::new(root);
    for record in trace {
        replay.step(&record?)?;
    }
    Ok(replay.done())
}
