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
//!
//! A user may do neither. The user's guardian has the device for its standard output, and answers for the server until
//! that one's last thread has gone. It fails the requests that wait in the kernel, and those that the server had taken.
//! It does not know the numbers of these. But the kernel counts requests, so it answers all numbers below that of a
//! request that it causes itself; the kernel refuses an answer for which nobody waits. An answer has to come through the
//! descriptor by which the request was taken, so all workers of such a server share one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{PidfdFlags, geteuid, getpid, pidfd_open};
use rustix::stdio::dup2_stdout;
use rustix::thread::gettid;
use zerocopy::FromBytes;

use crate::device::{Device, Request};
use crate::ioctl;
use crate::proto::InHeader;

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

/// The longest time for which a guardian answers.
const ANSWERS_FOR: Duration = Duration::from_secs(30);
/// The longest time between two looks at the threads of the server.
const LOOKS_AFTER: Duration = Duration::from_millis(20);
/// The time for which a guardian waits for a request.
const WAITS_FOR: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Numbers of requests that are answered between two looks at what waits, and how far apart they are.
const NUMBERS: u64 = 1 << 16;
const NUMBER_STEP: u64 = 2;

/// Names the way in which a guardian ends a connection, where a test wants another than is usual.
const WAY_VARIABLE: &str = "ANTEROS_GUARDIAN";

/// The way in which a guardian ends a connection.
enum Way {
    Abort(File),
    Force,
    Answer,
}

impl Way {
    /// The best way that the system offers for the connection with this number.
    fn find(connection: u32) -> Self {
        if std::env::var_os(WAY_VARIABLE).is_some_and(|way| way == "answer") {
            return Self::Answer;
        }
        let abort = format!("/sys/fs/fuse/connections/{connection}/abort");
        match File::options().write(true).open(abort) {
            Ok(abort) => Self::Abort(abort),
            Err(_) if geteuid().is_root() => Self::Force,
            Err(_) => Self::Answer,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Abort(_) => "abort",
            Self::Force => "force",
            Self::Answer => "answer",
        }
    }
}

/// The device number of the mount whose root this is. That need not be served.
fn device_number(root: &Path) -> io::Result<(u32, u32)> {
    let stat = statx(CWD, root, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Returns whether the guardian of the mount whose root is `root` can do no more than answer. Requests must not come over
/// io_uring then: only the server can answer those.
pub fn only_answers(root: &Path) -> bool {
    device_number(root).is_ok_and(|(_, minor)| matches!(Way::find(minor), Way::Answer))
}

/// The server's end of it: while it lives, somebody looks on.
pub struct Guardian {
    process: Child,
    /// Tells whether the guardian answers by the device of the server, which then must not have another.
    pub answers: bool,
    /// Its end ends the witness.
    stays: Option<Sender<()>>,
    witness: Option<JoinHandle<()>>,
}

impl Guardian {
    /// Starts this program as the guardian of the mount of a device whose root is `root`, which need not be served yet. A
    /// request has at most so many bytes.
    pub fn start(root: &Path, device: &Device, request_len_max: usize) -> io::Result<Self> {
        let (major, minor) = device_number(root)?;
        let way = Way::find(minor);
        let (name, answers) = (way.name(), matches!(way, Way::Answer));
        let stdout = match way {
            Way::Abort(abort) => abort.into(),
            Way::Force => Stdio::null(),
            Way::Answer => device.as_fd().try_clone_to_owned()?.into(),
        };
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
            .arg(name)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(request_len_max.to_string())
            .arg(format!("{major}:{minor}"))
            .arg(root)
            .current_dir("/")
            .process_group(0)
            .stdin(pidfd)
            .stdout(stdout)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            process,
            answers,
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
    let (thread, way, server, request_len_max) = (next()?, next()?, next()?, next()?);
    let mount = Mount {
        device: next()?.to_string_lossy().into(),
        root: next()?.into(),
    };
    wait(io::stdin().as_fd(), Path::new(&thread))?;
    match way.to_str() {
        // The mount may be gone, and then this does nothing.
        Some("abort") => drop(rustix::io::write(io::stdout(), b"1")),
        Some("answer") => {
            let device = take_stdout()?;
            let len_max = request_len_max.to_string_lossy().parse();
            let len_max = len_max.map_err(|_| Errno::INVAL)?;
            let server = Path::new("/proc").join(server).join("task");
            let answered = answer(&device, len_max, &server, &Arc::new(mount));
            // A thread that asks may still wait. It would keep the process, and with that the device.
            drop(device);
            answered?;
        }
        _ => mount.force(),
    }
    Ok(())
}

/// The device that is this process's standard output, as its only descriptor here.
fn take_stdout() -> io::Result<Device> {
    let device = io::stdout().as_fd().try_clone_to_owned()?;
    dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(Device::from_fd(device))
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

/// A mount by its device number and the path of its root.
struct Mount {
    device: String,
    root: PathBuf,
}

impl Mount {
    /// Its root, if that is still there. Neither this nor what it does with it asks the server.
    fn hold(&self) -> Option<OwnedFd> {
        let held = open(&self.root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(&held, "", flags, StatxFlags::empty()).ok()?;
        let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
        (device == self.device).then_some(held)
    }

    /// Ends its connection.
    fn force(&self) {
        if let Some(_held) = self.hold() {
            // Busy, for we hold it; but that is found out behind the end of the connection.
            let _ = unmount(&self.root, UnmountFlags::FORCE);
        }
    }

    /// Asks the server for something.
    fn ask(&self) {
        if let Some(held) = self.hold() {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
            let _ = statx(&held, "", flags, StatxFlags::BASIC_STATS);
        }
    }
}

/// Fails all that waits for an answer of the server, until its last thread has gone. The directory `threads` has those.
fn answer(device: &Device, len_max: usize, threads: &Path, mount: &Arc<Mount>) -> io::Result<()> {
    let ends = Instant::now() + ANSWERS_FOR;
    let asked = mount.clone();
    thread::spawn(move || ask_again_and_again(&asked));
    let mut request = Request::default();
    let mut lowest = None;
    while !have_gone(threads) && Instant::now() < ends {
        // Others may ask without a pause.
        let looks_again = Instant::now() + LOOKS_AFTER;
        while Instant::now() < looks_again && waits(device)? {
            if !device.receive(&mut request, len_max)? {
                return Ok(());
            }
            if let Ok((header, _)) = InHeader::read_from_prefix(request.bytes()) {
                device.send(header.unique, Err(Errno::NOTCONN))?;
                lowest.get_or_insert(header.unique);
            }
        }
        if let Some(lowest) = &mut lowest {
            answer_below(device, lowest)?;
        }
    }
    Ok(())
}

/// Asks for something every now and then. So there is a new request, whatever else waits, and a read does not wait for long.
/// The server may still take some of these.
fn ask_again_and_again(mount: &Arc<Mount>) {
    loop {
        let mount = mount.clone();
        thread::spawn(move || mount.ask());
        thread::sleep(LOOKS_AFTER);
    }
}

/// Answers some numbers below `lowest`, which becomes the lowest of these.
fn answer_below(device: &Device, lowest: &mut u64) -> io::Result<()> {
    for _ in 0..NUMBERS {
        *lowest = lowest.saturating_sub(NUMBER_STEP);
        if *lowest == 0 {
            break;
        }
        device.send(*lowest, Err(Errno::NOTCONN))?;
    }
    Ok(())
}

/// Returns whether a request waits, or comes soon.
fn waits(device: &Device) -> io::Result<bool> {
    let mut device = [PollFd::new(device, PollFlags::IN)];
    let come = retry_on_intr(|| poll(&mut device, Some(&WAITS_FOR)))?;
    Ok(come > 0)
}

/// Returns whether no thread of a process is left but such as have ended. What `stat` says would wait for a lock.
fn have_gone(threads: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(threads) else {
        return true;
    };
    let has_ended = |entry: std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status"));
        status.is_ok_and(|status| status.contains("\nState:\tZ") || status.contains("\nState:\tX"))
    };
    entries.flatten().all(has_ended)
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
