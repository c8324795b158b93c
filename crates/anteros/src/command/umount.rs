//! `anteros umount`

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, XattrFlags, major, minor, setxattr, syncfs};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::stat::attribute;
use super::stat::numbers::Numbers;
use crate::daemon::controls::{LOG_WRITING, MIRROR_WRITING, WRITE_ALL};
use crate::daemon::exposition::{ATTRIBUTE, PROCESS, pid_namespace};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;
use crate::places::{LOG, OURS, Place};

/// Time before a message says what is waited for.
const PATIENCE: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// Unmount what anteros has mounted, and nothing else, and wait until its daemon has written all that it has
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point
    directory: PathBuf,

    /// Neither ask the daemon who it is nor wait for it, for one that does not answer
    #[arg(long)]
    no_wait: bool,

    /// Unmount also where not all that was written could be stored, which is lost then
    #[arg(long)]
    force: bool,
}

impl Args {
    /// Arguments to unmount a directory.
    pub const fn of(directory: PathBuf) -> Self {
        Self {
            directory,
            no_wait: false,
            force: false,
        }
    }

    pub fn run(self) -> Outcome {
        let place = self.check()?;
        if let (Some(place), false) = (place, self.no_wait || self.force) {
            self.write(&place)?;
        }
        let daemon = (!self.no_wait).then(|| Daemon::of(&self.directory));
        anteros_fuse::unmount(&self.directory)
            .map_err(|error| Failure::new(Kind::System, &error).hint_if(error.hint()))?;
        match daemon.flatten() {
            Some(daemon) if !daemon.still_serves() => daemon.wait()?,
            _ => {}
        }
        Ok(Verdict::Good)
    }
}

impl Args {
    /// Refuses to take away what others have mounted.
    fn check(&self) -> Result<Option<Place>, Failure> {
        // What cannot be looked up, the kernel refuses with its reason.
        let Ok(found) = Place::at(&self.directory) else {
            return Ok(None);
        };
        let name = self.directory.display();
        match found {
            Some(place) if place.is_ours() => Ok(Some(place)),
            Some(place) => {
                let kind = place.kind;
                let message = format!("{name}: what is mounted here is not anteros' ({kind})");
                Err(Failure::new(Kind::System, message).hint("umount(8) unmounts anything"))
            }
            None => Err(Failure::new(
                Kind::System,
                format_args!("{name}: nothing is mounted here"),
            )),
        }
    }

    /// Has the daemon store all that was written, as long as there is somebody who can be told that it cannot.
    fn write(&self, place: &Place) -> Result<(), Failure> {
        let writing = match place.kind.as_str() {
            LOG => LOG_WRITING,
            OURS => MIRROR_WRITING,
            _ => return Ok(()),
        };
        // A daemon that has died stores nothing, and what does not know the order must not get an attribute.
        if !matches!(attribute(&self.directory, writing), Ok(Some(_))) {
            return Ok(());
        }
        let written = self.order(writing);
        match written {
            Ok(()) => Ok(()),
            // Who may not ask for it may not unmount it either, and what is mounted for reading has nothing to be stored.
            Err(
                Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::NOTCONN | Errno::CONNABORTED,
            ) => Ok(()),
            Err(errno) => Err(self.unwritten(writing, errno)),
        }
    }

    /// Has what the kernel has still, of mappings, written first. Whether it failed to write some, it has told those who sync,
    /// and would tell that again here.
    fn order(&self, writing: &str) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(directory) = rustix::fs::open(&self.directory, flags, Mode::empty()) {
            let _ = syncfs(directory);
        }
        setxattr(&self.directory, writing, WRITE_ALL, XattrFlags::empty())
    }

    fn unwritten(&self, writing: &str, errno: Errno) -> Failure {
        let name = self.directory.display();
        let told = attribute(&self.directory, writing).ok().flatten();
        let why = told
            .filter(|why| !why.is_empty())
            .unwrap_or_else(|| io::Error::from(errno).to_string());
        let message = format!("{name}: not all that was written could be stored: {why}");
        Failure::new(Kind::System, message)
            .hint("it is still mounted; --force unmounts it, and what is not stored is lost")
    }
}

/// The process that serves a mount.
struct Daemon {
    pid: Pid,
    process: OwnedFd,
    /// Path that the kernel shows as long as anyone has the file system, here or in another namespace.
    shown: PathBuf,
}

impl Daemon {
    /// `None` if there is none, it has died, or it cannot be seen from here.
    fn of(directory: &Path) -> Option<Self> {
        let text = attribute(directory, ATTRIBUTE).ok()??;
        let process = Numbers::parse(&text).words(PROCESS)?;
        if process.get("namespace")? != &pid_namespace()? {
            return None;
        }
        let pid = Pid::from_raw(process.get("pid")?.parse().ok()?)?;
        let device = fs::metadata(directory).ok()?.dev();
        Some(Self {
            pid,
            process: pidfd_open(pid, PidfdFlags::empty()).ok()?,
            shown: format!("/sys/class/bdi/{}:{}", major(device), minor(device)).into(),
        })
    }

    /// Returns whether the file system is mounted elsewhere as well.
    fn still_serves(&self) -> bool {
        self.shown.exists()
    }

    fn wait(&self) -> Result<(), Failure> {
        if !self.ends_within(Some(&PATIENCE))? {
            let pid = self.pid;
            output::complain("note", format_args!("process {pid} still writes; waiting"));
            self.ends_within(None)?;
        }
        Ok(())
    }

    fn ends_within(&self, time: Option<&Timespec>) -> Result<bool, Failure> {
        let ended = || poll(&mut [PollFd::new(&self.process, PollFlags::IN)], time);
        let ready = retry_on_intr(ended).map_err(|errno| Failure::os(errno.into()))?;
        Ok(ready > 0)
    }
}
