//! Reads of a mount of our own, which are known to the byte.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anteros_trace::profile::Profile;
use tempfile::TempDir;

use super::source::Source;
use crate::command::profile::reads::Reads;
use crate::command::stat::attribute;
use crate::daemon::recording::ATTRIBUTE;
use crate::failure::{Failure, Kind};

/// Time for a daemon to close its record.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks at it.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// An image that is mounted for each round.
pub struct Mounts {
    image: PathBuf,
    mount: PathBuf,
    /// Has the records.
    records: TempDir,
    rounds: u64,
    is_mounted: bool,
}

impl Mounts {
    /// Makes ready to mount an image on a directory.
    pub fn new(image: &Path, mount: &Path) -> Result<Self, Failure> {
        let absolute = |path: &Path| path.canonicalize().map_err(|e| Failure::system(path, &e));
        Ok(Self {
            image: absolute(image)?,
            mount: absolute(mount)?,
            records: TempDir::with_prefix("anteros-profile.").map_err(Failure::os)?,
            rounds: 0,
            is_mounted: false,
        })
    }

    fn record(&self) -> PathBuf {
        self.records.path().join(self.rounds.to_string())
    }

    fn umount(&mut self) -> Result<(), Failure> {
        self.is_mounted = false;
        ours(Command::new("").arg("umount").arg(&self.mount))
    }
}

impl Source for Mounts {
    fn begin(&mut self) -> Result<(), Failure> {
        self.rounds += 1;
        let mut mount = Command::new("");
        // What the kernel reads ahead, nobody has asked for.
        mount.args(["mount", "--fuse", "--readahead", "0", "--trace"]);
        ours(mount.arg(self.record()).arg(&self.image).arg(&self.mount))?;
        self.is_mounted = true;
        Ok(())
    }

    fn end(&mut self) -> Result<Profile, Failure> {
        self.umount()?;
        let started = Instant::now();
        loop {
            let reads = Reads::of(&self.record(), 0)?;
            if reads.is_closed {
                return Ok(reads.profile());
            }
            if started.elapsed() > PATIENCE {
                let message = format!("{}: its daemon does not end", self.mount.display());
                return Err(Failure::new(Kind::System, message));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = self.umount();
        }
    }
}

/// Runs this program with the arguments of a command; what it says, people see.
fn ours(command: &mut Command) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::os)?;
    let mut ours = Command::new(program);
    ours.args(command.get_args());
    ours.stdin(Stdio::null()).stdout(Stdio::null());
    let status = ours.status().map_err(Failure::os)?;
    if status.success() {
        return Ok(());
    }
    let name = command.get_args().next().unwrap_or_default();
    let message = format!("anteros {}: {status}", Path::new(name).display());
    Err(Failure::new(Kind::System, message))
}

/// A mount of our own that is being recorded.
pub struct Recorded {
    mount: PathBuf,
    /// Accesses that the record had before the round.
    before: u64,
}

impl Recorded {
    /// Finds the record of a mount; `Err` says why there is none.
    pub fn of(mount: &Path) -> Result<Self, String> {
        match attribute(mount, ATTRIBUTE) {
            Ok(Some(_)) => Ok(Self {
                mount: mount.into(),
                before: 0,
            }),
            _ => Err("this is no mount of anteros with `--trace`".into()),
        }
    }

    /// Reads the record as it is, but for its first accesses.
    fn reads(&self, skipped: u64) -> Result<Reads, Failure> {
        // Asking for it, everything gets into the record that was answered before.
        let path =
            attribute(&self.mount, ATTRIBUTE).map_err(|e| Failure::system(&self.mount, &e))?;
        Reads::of(&PathBuf::from(path.unwrap_or_default()), skipped)
    }
}

impl Source for Recorded {
    fn begin(&mut self) -> Result<(), Failure> {
        self.before = self.reads(u64::MAX)?.accesses;
        Ok(())
    }

    fn end(&mut self) -> Result<Profile, Failure> {
        Ok(self.reads(self.before)?.profile())
    }
}
