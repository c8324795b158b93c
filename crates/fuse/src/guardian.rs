//! A process that ends the connection of a mount whose server was killed.
//!
//! A killed server closes `/dev/fuse` when its last thread is gone, and only then does the kernel fail what
//! waits for an answer. A thread that hands the kernel content unasked waits for pages that are being read,
//! uninterruptibly; once nobody answers that read, the thread never goes, the device stays open, and with
//! the readers every `sync` of the machine waits for ever. So another process looks on:
//!
//! ```text
//!   server ──┬── workers
//!            ├── a thread that may sleep in the kernel for ever
//!            └── witness ◄── its pidfd ── guardian ──► /sys/fs/fuse/connections/N/abort
//! ```
//!
//! The witness is a thread that does nothing but wait, so it goes at once when the server is killed. The
//! guardian, which is this program again, has its pidfd for its standard input (the pidfd of the server
//! itself would tell no more than the closed device) and the connection's file `abort` for its standard output:
//! opened while the server lives, that can never mean a later connection with the same number. Of a mount that is
//! gone it does nothing. The guardian holds nothing else: neither the device, nor what the server has inherited, nor
//! a place in its group.
//!
//! Where there is no such file (fusectl is not mounted, as in most chroots and containers), root unmounts by force,
//! which ends the connection as well; the guardian holds the root meanwhile, so that the mount stays.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::thread::gettid;

use crate::ioctl;

/// The name by which this program is started as a guardian, and the one that `ps` shows.
const NAME: &str = "anteros-guardian";
const SHORT_NAME: &std::ffi::CStr = c"anteros-guard";

/// Stands for `PIDFD_THREAD` of `linux/pidfd.h` (Linux 6.9): the thread alone is meant.
const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());

/// States how often a kernel is asked that does not tell of a thread.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The server's end of it: while it lives, somebody looks on.
pub struct Guardian {
    process: Child,
    /// Its end ends the witness.
    stays: Option<Sender<()>>,
    witness: Option<JoinHandle<()>>,
}

impl Guardian {
    /// Starts this program as the guardian of the mount whose root is `root`, which need not be served yet.
    pub fn start(root: &Path) -> io::Result<Self> {
        let stat = statx(CWD, root, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
        let (major, minor) = (stat.stx_dev_major, stat.stx_dev_minor);
        let abort = format!("/sys/fs/fuse/connections/{minor}/abort");
        let abort = File::options().write(true).open(abort).ok();
        let (stays, ended) = channel();
        let (tell, told) = channel();
        let witness = thread::Builder::new().name("witness".into());
        let witness = witness.spawn(move || {
            let _ = tell.send(watched());
            stay(&ended);
        })?;
        let (pidfd, thread) = told.recv().map_err(io::Error::other)??;
        let process = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(thread)
            .arg(if abort.is_some() { "abort" } else { "force" })
            .arg(format!("{major}:{minor}"))
            .arg(root)
            .current_dir("/")
            .process_group(0)
            .stdin(pidfd)
            .stdout(abort.map_or(Stdio::null(), Stdio::from))
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            process,
            stays: Some(stays),
            witness: Some(witness),
        })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        drop(self.stays.take());
        self.witness.take().map(JoinHandle::join);
    }
}

/// Returns when the server lets go of its guardian.
fn stay(ended: &Receiver<()>) {
    let _ = ended.recv();
}

/// Returns what shows that the calling thread has ended: its pidfd; or, of a kernel that knows none of threads, that of
/// the process, and the directory that goes with the thread.
fn watched() -> io::Result<(OwnedFd, String)> {
    match pidfd_open(gettid(), OF_THREAD) {
        Ok(pidfd) => Ok((pidfd, String::new())),
        Err(_) => {
            let pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
            let (process, thread) = (getpid().as_raw_nonzero(), gettid().as_raw_nonzero());
            Ok((pidfd, format!("/proc/{process}/task/{thread}")))
        }
    }
}

/// Returns whether this process was started as a guardian: then it is to do nothing but [`guard`].
pub fn is_guardian() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Waits until the server that started this process has gone, and ends the connection if the mount has not.
///
/// Whoever calls it has seen to it that no signal but SIGKILL ends it: an administrator, or a service manager, sends
/// SIGTERM to every process of a service, whose server then unmounts.
///
/// # Errors
///
/// When this process was not started by `Guardian::start`.
pub fn guard() -> io::Result<()> {
    ioctl::close_beyond_streams()?;
    let _ = rustix::thread::set_name(SHORT_NAME);
    let mut args = std::env::args_os().skip(1);
    let mut next = || args.next().ok_or(Errno::INVAL);
    let (thread, how, device, root) = (next()?, next()?, next()?, next()?);
    wait(io::stdin().as_fd(), Path::new(&thread))?;
    match how == "abort" {
        // The mount may be gone, and then this does nothing.
        true => drop(rustix::io::write(io::stdout(), b"1")),
        false => force(Path::new(&root), &device.to_string_lossy()),
    }
    Ok(())
}

/// Waits for the end of what `pidfd` is of, or until the directory `thread`, if it has a name, is there no more.
fn wait(pidfd: impl AsFd, thread: &Path) -> io::Result<()> {
    // That it is there now proves nothing: the thread may have ended before this process began.
    let looks = (!thread.as_os_str().is_empty()).then_some(&LOOK_EVERY);
    let ends = || poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], looks);
    while retry_on_intr(ends)? == 0 {
        if !thread.exists() {
            break;
        }
    }
    Ok(())
}

/// Ends the connection of the mount on `root`, if it is still that of this device number.
fn force(root: &Path, device: &str) {
    // Neither this nor what follows asks the server.
    let Ok(held) = open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
        return;
    };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let is_it = |stat: rustix::fs::Statx| format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    if statx(&held, "", flags, StatxFlags::empty())
        .map(is_it)
        .as_deref()
        == Ok(device)
    {
        // Busy, for we hold it; but that is found out behind the end of the connection.
        let _ = unmount(root, UnmountFlags::FORCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_ended_is_noticed() {
        let (stays, ended) = channel();
        let (tell, told) = channel();
        let witness = thread::spawn(move || {
            tell.send(watched()).unwrap();
            stay(&ended);
        });
        let (pidfd, directory) = told.recv().unwrap().unwrap();
        let waiter = thread::spawn(move || wait(&pidfd, Path::new(&directory)));
        drop(stays);
        witness.join().unwrap();
        waiter.join().unwrap().unwrap();
    }

    /// As on a kernel before 6.9: the process lives, its pidfd says nothing.
    #[test]
    fn a_thread_that_has_ended_is_noticed_by_looking() {
        let (stays, ended) = channel();
        let (tell, told) = channel();
        let witness = thread::spawn(move || {
            tell.send(gettid().as_raw_nonzero()).unwrap();
            stay(&ended);
        });
        let directory = format!("/proc/self/task/{}", told.recv().unwrap());
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let waiter = thread::spawn(move || wait(&pidfd, Path::new(&directory)));
        drop(stays);
        witness.join().unwrap();
        waiter.join().unwrap().unwrap();
    }

    #[test]
    fn a_thread_that_has_ended_before_is_noticed_by_looking() {
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        wait(&pidfd, Path::new("/proc/self/task/0")).unwrap();
    }
}
