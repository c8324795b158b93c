//! A record of launches in a file of the host, with which the next mount goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anteros_log::{Launches, Log, RECORD_BYTES_MAX, ROUNDS};

use super::faults::Faults;
use crate::failure::{Failure, Kind};
use crate::output;
use crate::places;

/// States how often a record is written, if anything is new.
pub const SAVE_EVERY: Duration = Duration::from_secs(10);

/// Interval at which a log keeps what it records for itself, if anything is new: with each, up to 1 MiB is written.
pub const KEEP_EVERY: Duration = Duration::from_secs(600);

/// The number of temporary files that were named.
static TEMPORARIES: AtomicU64 = AtomicU64::new(0);

/// The file that a mount records launches in.
pub struct LaunchFile {
    path: PathBuf,
    /// [`Launches::changes`] as the file has it.
    saved: AtomicU64,
    /// Tells whether the last attempt to write it failed.
    fails: AtomicBool,
}

impl LaunchFile {
    /// Has a log record launches behind those that the file has; without one, it is made at once. `rounds` are the
    /// launches of each file that are recorded, if not as many as so far.
    pub fn begin(path: &Path, log: &Log, rounds: Option<u8>) -> Result<Self, Failure> {
        let path = &places::behind_links(path).map_err(|error| Failure::system(path, &error))?;
        let found = found(path)?;
        let is_new = found.is_none();
        let launches = found.unwrap_or_else(|| Launches::new(log.uuid(), ROUNDS));
        if launches.uuid() != log.uuid() {
            return Err(of_another_log(path, launches.uuid(), log.uuid()));
        }
        let rounds = rounds.unwrap_or(launches.rounds());
        log.record_launches(launches.with_rounds(rounds));
        if is_new {
            save(path, log).map_err(|error| Failure::system(path, &error))?;
        }
        Ok(Self {
            // It is replaced where it lies, not a link to it; and the daemon leaves its directory.
            path: path
                .canonicalize()
                .map_err(|error| Failure::system(path, &error))?,
            // That something was forgotten on the way is news.
            saved: AtomicU64::new(0),
            fails: AtomicBool::new(false),
        })
    }

    /// Writes what is new, if anything is. That this fails is told once, until it works again.
    pub fn save(&self, log: &Log, faults: &Faults) {
        let now = changes(log);
        if now == self.saved.load(Ordering::Relaxed) {
            return;
        }
        match save(&self.path, log) {
            Ok(()) => {
                self.saved.store(now, Ordering::Relaxed);
                self.fails.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                if !self.fails.swap(true, Ordering::Relaxed) {
                    let name = self.path.display();
                    faults.note(format!("{name}: launches could not be written: {error}"));
                }
            }
        }
    }
}

fn changes(log: &Log) -> u64 {
    log.with_launches(Launches::changes).unwrap_or(0)
}

/// The record that is there, if any is. A file that holds anything else is refused: before a log is opened, for that changes it.
pub fn found(path: &Path) -> Result<Option<Launches>, Failure> {
    match fs::exists(path).map_err(|error| Failure::system(path, &error))? {
        true => load(path).map(Some),
        false => Ok(None),
    }
}

/// Reads a record.
pub fn load(path: &Path) -> Result<Launches, Failure> {
    let failure = |error: io::Error| Failure::system(path, &error);
    if !fs::metadata(path).map_err(failure)?.is_file() {
        let message = format!("{}: no regular file", path.display());
        return Err(Failure::new(Kind::Usage, message).hint("a record is a file of its own"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failure)?;
    // What is longer is refused for its checksum, or for what lies behind the end.
    file.take(RECORD_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failure)?;
    Launches::parse(&bytes).map_err(|fault| {
        let message = format!("{}: {fault}", path.display());
        Failure::new(Kind::Corrupt, message)
            .hint("name a file that does not exist, or remove it to begin a record anew")
    })
}

/// Puts the record in the place of the one that is there. Whenever that is interrupted, one of the two is whole.
fn save(path: &Path, log: &Log) -> io::Result<()> {
    let Some(bytes) = log.with_launches(Launches::encode) else {
        return Ok(());
    };
    let temporary = temporary(path);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let written = file
        .write_all(&bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A name that nobody else has: what has it was left by a daemon that had the number of this one, or is not ours to remove.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(
        ".{}-{}.new",
        std::process::id(),
        TEMPORARIES.fetch_add(1, Ordering::Relaxed)
    ));
    name.into()
}

fn of_another_log(path: &Path, found: [u8; 16], wanted: [u8; 16]) -> Failure {
    let (found, wanted) = (output::uuid(&found), output::uuid(&wanted));
    let message = format!(
        "{}: launches of the log {found}, not of {wanted}",
        path.display()
    );
    Failure::new(Kind::Usage, message).hint("each log has a record of its own; name another file")
}
