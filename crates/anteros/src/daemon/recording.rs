//! A record of what is read from and written to a mount, for `anteros trace`.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use anteros_core::{FileKind, FileSystem};
use anteros_fuse::{Answered, Operation};
use anteros_image::ImageFs;
use anteros_trace::{Access, MAGIC, Names, Recorder, mode};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::exposition::Exposition;
use super::faults::Faults;
use crate::failure::{Failure, Kind};

/// The attribute of the root directory whose value is the path of the record. Whoever asks for it can rely on
/// everything being in there that was answered before.
pub const ATTRIBUTE: &str = "user.anteros.trace";

/// A record that is being written.
pub struct Recording {
    recorder: Recorder,
    path: PathBuf,
    begun: Instant,
    /// Waits for what was answered and is not noted yet.
    catch_up: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Recording {
    /// Begins a record. What stands there already is lost if it is a record, and refused if it is anything else. If
    /// the record cannot be written to later, `faults` is told, and what is recorded.
    pub fn begin(path: &Path, names: impl Names, faults: Arc<Faults>) -> Result<Self, Failure> {
        let failure = |error: io::Error| Failure::system(path, &error);
        let is_new = !path.exists();
        let file = open(path)?;
        let path = path.canonicalize().map_err(failure)?;
        let name = path.display().to_string();
        let complain = move |error: io::Error| {
            faults.tell(format!(
                "{name}: {error}; accesses are not recorded until it can be written to again"
            ));
        };
        let recorder = Recorder::start(file, SystemTime::now(), names, complain);
        if recorder.is_err() && is_new {
            // What is no record need not lie about.
            let _ = fs::remove_file(&path);
        }
        let recorder = recorder.map_err(failure)?;
        Ok(Self {
            recorder,
            path,
            begun: Instant::now(),
            catch_up: OnceLock::new(),
        })
    }

    /// Takes a function that waits until everything is noted that was answered. Only the first one counts.
    pub fn catch_up_by(&self, wait: impl Fn() + Send + Sync + 'static) {
        let _ = self.catch_up.set(Box::new(wait));
    }

    /// Records what reads, writes or syncs.
    pub fn note(&self, answered: &Answered) {
        let operation = match answered.operation {
            Operation::Read => anteros_trace::Operation::Read,
            Operation::Write => anteros_trace::Operation::Write,
            Operation::Fsync => anteros_trace::Operation::Fsync,
            _ => return,
        };
        self.recorder.note(Access {
            at: self.begun.elapsed().saturating_sub(answered.took),
            took: answered.took,
            operation,
            file: answered.ino.0,
            pid: answered.pid,
            offset: answered.offset,
            len: answered.len,
            modes: modes(answered.open_flags),
            error: answered
                .error
                .map_or(0, |errno| errno.raw_os_error() as u32),
        });
    }

    /// The value of [`ATTRIBUTE`].
    pub fn told(&self) -> Vec<u8> {
        self.catch_up.get().into_iter().for_each(|wait| wait());
        // A disk that takes very long is no reason to tell nothing.
        let _ = self.recorder.flush();
        self.path.as_os_str().as_encoded_bytes().to_vec()
    }

    /// Adds what became of the recording.
    pub fn count(&self, text: &mut Exposition) {
        let counts = self.recorder.counts();
        text.counter("trace_accesses", counts.recorded);
        text.counter("trace_dropped", counts.dropped);
        text.gauge("trace_bytes", counts.bytes as f64);
    }

    /// Closes the record.
    pub fn finish(&self) {
        self.recorder.finish(self.begun.elapsed());
    }
}

/// Refuses a record that the mount would hide.
pub fn check_place(path: &Path, target: &Path) -> Result<(), Failure> {
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    let directory = directory
        .canonicalize()
        .map_err(|error| Failure::system(directory, &error))?;
    if !directory.starts_with(target) {
        return Ok(());
    }
    let message = format!(
        "{}: lies in {}, where the mount would hide it",
        path.display(),
        target.display()
    );
    Err(Failure::new(Kind::Usage, message).hint("put the record elsewhere"))
}

fn open(path: &Path) -> Result<File, Failure> {
    let failure = |error: io::Error| Failure::system(path, &error);
    let usage = |text: &str, hint: &str| {
        let message = format!("{}: {text}", path.display());
        Failure::new(Kind::Usage, message).hint(hint)
    };
    let mut options = OpenOptions::new();
    // Names of files are not for everybody. Opening a pipe would wait.
    options.read(true).write(true).create(true).truncate(false);
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let mut file = options
        .mode(0o600)
        .custom_flags(nonblock)
        .open(path)
        .map_err(failure)?;
    let metadata = file.metadata().map_err(failure)?;
    let kind = metadata.file_type();
    if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
        return Err(usage("no regular file", "a record is a file of its own"));
    }
    let mut begin = [0; MAGIC.len()];
    let found = file.read(&mut begin).map_err(failure)?;
    if found > 0 && begin != MAGIC {
        let hint = "name a file that does not exist, or a record to begin anew";
        return Err(usage(
            "exists and is no record; it is not overwritten",
            hint,
        ));
    }
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let hint = "name another file, or end the mount that records";
        return Err(usage("another mount is writing this record", hint));
    }
    Ok(file)
}

fn modes(open_flags: u32) -> u32 {
    let flags = OFlags::from_bits_retain(open_flags);
    let mut modes = 0;
    if flags.contains(OFlags::DSYNC) {
        modes |= mode::SYNC;
    }
    if flags.contains(OFlags::DIRECT) {
        modes |= mode::DIRECT;
    }
    modes
}

/// Names in an image, which never change: one walk finds them all, when the first is asked for.
pub struct ImageNames {
    fs: Arc<ImageFs>,
    paths: Option<HashMap<u64, Vec<u8>>>,
}

/// States how many names of an image are looked at, and how long a path may be. Files beyond are told by their inodes.
const NAMES_MAX: usize = 1 << 17;
const PATH_LEN_MAX: usize = 4096;

impl ImageNames {
    pub fn new(fs: Arc<ImageFs>) -> Self {
        Self { fs, paths: None }
    }
}

impl Names for ImageNames {
    fn serial(&mut self, _ino: u64) -> Option<u64> {
        // Nothing is known of an inode that could change. The first name that is found stays.
        None
    }

    fn path(&mut self, ino: u64) -> Option<Vec<u8>> {
        let fs = &*self.fs;
        self.paths
            .get_or_insert_with(|| walk(fs))
            .get(&ino)
            .cloned()
    }

    fn process(&mut self, pid: u32) -> Option<Vec<u8>> {
        process(pid)
    }
}

/// A path of each file that is no directory, by inode number, as far as names are looked at.
pub fn walk(fs: &dyn FileSystem) -> HashMap<u64, Vec<u8>> {
    let mut pending = vec![(fs.root(), Vec::new())];
    let mut directories = HashSet::from([fs.root()]);
    let mut paths = HashMap::new();
    let mut names = 0;
    while let Some((ino, directory)) = pending.pop() {
        // Of a broken directory, what can be read is told.
        let _ = fs.readdir(ino, 0, &mut |entry| {
            names += 1;
            let path = [&directory[..], b"/", entry.name].concat();
            if matches!(entry.name, b"." | b"..") || path.len() > PATH_LEN_MAX {
                return ControlFlow::Continue(());
            }
            if entry.kind != FileKind::Directory {
                paths.entry(entry.ino.0).or_insert(path);
            } else if directories.insert(entry.ino) {
                pending.push((entry.ino, path));
            }
            match names < NAMES_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        if names >= NAMES_MAX {
            break;
        }
    }
    paths
}

/// The name of a process, as far as it is still there.
pub fn process(pid: u32) -> Option<Vec<u8>> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_ascii_end().to_vec())
}
