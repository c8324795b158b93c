//! Getting a mount, and getting rid of it.
//!
//! Root asks the kernel itself. Everyone else asks `fusermount3`, a small set-user-id program that
//! checks what a user may do, mounts, and hands back the descriptor of `/dev/fuse` over a socket.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{getegid, geteuid};

use crate::device::Device;
use crate::init::READ_LEN_MAX;
use crate::ring::{self, NoIoUring};
use crate::{MountError, UnmountError};

const HELPER: &str = "fusermount3";

/// Describes what holds of everything in a mount, as mount(8) has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Tells whether nothing can be changed, also where the file system can be written to.
    pub read_only: bool,
    /// Tells whether set-id bits count. Only root can have that.
    pub suid: bool,
    /// Tells whether device nodes are devices. Only root can have that.
    pub dev: bool,
    /// Tells whether nothing can be run.
    pub noexec: bool,
    /// Tells whether reading changes no time.
    pub noatime: bool,
}

impl Attributes {
    /// Returns what mount(2) takes.
    fn flags(self) -> MountFlags {
        let each = [
            (self.read_only, MountFlags::RDONLY),
            (!self.suid, MountFlags::NOSUID),
            (!self.dev, MountFlags::NODEV),
            (self.noexec, MountFlags::NOEXEC),
            (self.noatime, MountFlags::NOATIME),
        ];
        let set = each.into_iter().filter_map(|(on, flag)| on.then_some(flag));
        set.fold(MountFlags::empty(), |all, flag| all | flag)
    }

    /// Returns the same in words of mount(8).
    pub fn words(&self) -> String {
        let mut words = vec![
            if self.read_only { "ro" } else { "rw" },
            if self.suid { "suid" } else { "nosuid" },
            if self.dev { "dev" } else { "nodev" },
        ];
        words.extend(self.noexec.then_some("noexec"));
        words.extend(self.noatime.then_some("noatime"));
        words.join(",")
    }
}

/// Describes how to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Describes what holds of all in it. Without, root's mount heeds set-id bits and devices where nothing can be written,
    /// and no other does.
    pub attributes: Option<Attributes>,
    /// Holds what `mount` and `df` show as the source: usually the image's path.
    pub fs_name: String,
    /// The kind of file system: `mount` shows `fuse.` and this. Empty for plain `fuse`.
    pub subtype: String,
    /// Tells whether other users than the one who mounts may enter.
    pub allow_other: bool,
    /// Mounts also where the root cannot be read: whoever looks at it gets the error.
    pub any_root: bool,
    /// Tells whether the kernel checks owners, modes and ACLs. Without, whoever may enter reads
    /// everything: never turn it off together with `allow_other`, unless all of it is public.
    pub default_permissions: bool,
    /// Threads that answer requests, at least 1. Some more than there are processors do no harm: the
    /// kernel wakes the one that waits longest, and of few that one is often on the wrong processor.
    pub workers: usize,
    /// Tells whether requests come over io_uring where the kernel has that enabled (Linux 6.14, `enable_uring` of its
    /// module `fuse`) and there are at least two workers for each processor, to be divided among them.
    pub io_uring: bool,
    /// Bytes of the largest read the kernel may ask for at once: each thread that works has a buffer
    /// of that size. Rounded down to a power of two, from 128 KiB to
    /// [what the kernel is set to send](crate::request_len_limit).
    pub read_len_max: usize,
    /// Bytes the kernel reads ahead of a process that reads in order; `None` for what it likes, which
    /// is 128 KiB, but for a page of files that are [read in jumps](anteros_core::Writable::is_read_in_jumps), if that may be
    /// set (by root). Everyone may lower it, root may raise it;
    /// [`Session::readahead`](crate::Session::readahead) tells what came of it.
    pub readahead: Option<usize>,
    /// Bytes of the largest write the kernel may ask for at once, of a file system that can be written
    /// to: from 4 KiB to [what the kernel is set to send](crate::request_len_limit).
    pub write_len_max: usize,
    /// Tells whether the kernel may read and write the files behind those of such a file system by itself,
    /// where it can and they are offered ([`Writable::backing`](anteros_core::Writable::backing)).
    pub passthrough: bool,
    /// Tells whether the kernel may keep what is written to such a file system, and write it back in large
    /// pieces when it likes or someone syncs or closes a file. Taken where it does not write by itself.
    pub write_back: bool,
    /// Tells whether another process of this program looks on, and ends the connection when this one is killed:
    /// without, a thread that a [`Notifier`](crate::Notifier) keeps in the kernel can have every reader of the mount,
    /// and every `sync` of the machine, wait for ever. The program must call [`guard`](crate::guard) where
    /// [`is_guardian`](crate::is_guardian), before all else. Where it cannot be had, the mount stands without
    /// ([`Session::unguarded`](crate::Session::unguarded)).
    pub guardian: bool,
}

impl Default for MountOptions {
    /// For root as `mount(2)` does it: everyone may enter and permissions count. For other users a
    /// mount of their own, in which they may read everything. Two workers for each core, but 4 to 8.
    fn default() -> Self {
        let root = geteuid().is_root();
        Self {
            attributes: None,
            fs_name: "anteros".into(),
            subtype: "anteros".into(),
            allow_other: root,
            any_root: false,
            default_permissions: root,
            workers: std::thread::available_parallelism().map_or(4, |n| (2 * n.get()).clamp(4, 8)),
            io_uring: true,
            read_len_max: READ_LEN_MAX,
            readahead: None,
            write_len_max: READ_LEN_MAX,
            passthrough: true,
            write_back: false,
            guardian: false,
        }
    }
}

impl MountOptions {
    /// Returns why requests do not come over io_uring, if they do not, as far as can be told before a mount.
    ///
    /// # Errors
    /// When they come from `/dev/fuse`.
    pub fn over_io_uring(&self) -> Result<(), NoIoUring> {
        self.queues().map(drop)
    }

    /// The queues that requests come by over io_uring, and the workers of each: one more at least than waits for a disk.
    pub(crate) fn queues(&self) -> Result<(u16, usize), NoIoUring> {
        if !self.io_uring {
            return Err(NoIoUring::Unwanted);
        }
        let queues = ring::queues()?;
        match self.workers / usize::from(queues) {
            0 | 1 => Err(NoIoUring::FewWorkers),
            workers => Ok((queues, workers)),
        }
    }

    /// The options that both ways of mounting understand.
    fn switches(&self) -> impl Iterator<Item = &'static str> {
        let switches = [
            ("allow_other", self.allow_other),
            ("default_permissions", self.default_permissions),
        ];
        switches
            .into_iter()
            .filter_map(|(name, on)| on.then_some(name))
    }
}

/// Mounts on `mountpoint` and returns the device that serves it, with the INIT request waiting.
pub fn mount(
    mountpoint: &Path,
    options: &MountOptions,
    read_only: bool,
) -> Result<Device, MountError> {
    if geteuid().is_root() {
        mount_directly(mountpoint, options, read_only)
    } else {
        mount_through_helper(mountpoint, options, read_only)
    }
}

/// The absolute path of a directory to mount on.
pub fn resolve(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let reach = |path: &Path| Ok((fs::canonicalize(path)?, fs::metadata(path)?.is_dir()));
    match reach(mountpoint) {
        Ok((path, true)) => Ok(path),
        Ok((_, false)) => Err(MountError::MountpointNotDirectory(mountpoint.into())),
        Err(source) => Err(MountError::Mountpoint {
            path: mountpoint.into(),
            source,
        }),
    }
}

fn mount_directly(
    mountpoint: &Path,
    options: &MountOptions,
    read_only: bool,
) -> Result<Device, MountError> {
    let refused = |errno: Errno| MountError::Refused {
        path: mountpoint.into(),
        source: errno.into(),
    };
    let device = Device::open().map_err(|errno| MountError::Device(errno.into()))?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw()
    );
    for switch in options.switches() {
        data.push(',');
        data.push_str(switch);
    }
    let data = CString::new(data).map_err(|_| refused(Errno::INVAL))?;
    let kind = match options.subtype.as_str() {
        "" => "fuse".into(),
        subtype => format!("fuse.{subtype}"),
    };
    let flags = attributes(options, read_only, read_only).flags();
    rustix::mount::mount(&*options.fs_name, mountpoint, kind, flags, data.as_c_str())
        .map_err(refused)?;
    Ok(device)
}

/// Returns what holds of all in a mount; `trusted` says whether set-id bits and devices count where nothing is asked for.
fn attributes(options: &MountOptions, read_only: bool, trusted: bool) -> Attributes {
    let asked = options.attributes.unwrap_or(Attributes {
        suid: trusted,
        dev: trusted,
        ..Attributes::default()
    });
    Attributes {
        read_only: read_only || asked.read_only,
        ..asked
    }
}

fn mount_through_helper(
    mountpoint: &Path,
    options: &MountOptions,
    read_only: bool,
) -> Result<Device, MountError> {
    let (ours, child) =
        start_helper(mountpoint, options, read_only).map_err(MountError::HelperMissing)?;
    // The helper sends the descriptor, or ends without a word here and says why on its stderr.
    let device = receive_fd(&ours);
    let output = child
        .wait_with_output()
        .map_err(MountError::HelperMissing)?;
    device
        .ok()
        .flatten()
        .map(Device::from_fd)
        .ok_or_else(|| MountError::HelperRefused {
            path: mountpoint.into(),
            message: words(&output.stderr),
        })
}

/// Starts the helper with one end of a socket, and returns the other.
fn start_helper(
    mountpoint: &Path,
    options: &MountOptions,
    read_only: bool,
) -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let child = Command::new(HELPER)
        .arg("-o")
        .arg(helper_options(options, read_only))
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok((ours, child))
}

fn helper_options(options: &MountOptions, read_only: bool) -> String {
    let words = attributes(options, read_only, false).words();
    let mut list = format!("{words},fsname={}", escape(&options.fs_name));
    if !options.subtype.is_empty() {
        list.push_str(",subtype=");
        list.push_str(&escape(&options.subtype));
    }
    for switch in options.switches() {
        list.push(',');
        list.push_str(switch);
    }
    list
}

/// A value in a list of options, where a comma ends it unless a backslash precedes.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

/// The descriptor that comes over the socket; `None` when the other side closes it instead.
fn receive_fd(socket: &UnixStream) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(fds.flatten().next())
}

/// Unmounts what is mounted on `mountpoint`, also when its server has died.
///
/// # Errors
///
/// [`UnmountError::NotMounted`] and [`UnmountError::Busy`] say just that; users other than root may
/// only unmount what they mounted.
pub fn unmount(mountpoint: &Path) -> Result<(), UnmountError> {
    unmount_with(mountpoint, UnmountFlags::empty(), &["-u"])
}

/// Takes the mount out of the tree even if it is in use; it ends when its last user leaves.
pub fn detach(mountpoint: &Path) -> Result<(), UnmountError> {
    unmount_with(mountpoint, UnmountFlags::DETACH, &["-u", "-z"])
}

fn unmount_with(
    mountpoint: &Path,
    flags: UnmountFlags,
    helper_flags: &[&str],
) -> Result<(), UnmountError> {
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL) => Err(UnmountError::NotMounted(mountpoint.into())),
        Err(Errno::BUSY) => Err(UnmountError::Busy(mountpoint.into())),
        Err(Errno::PERM) => unmount_through_helper(mountpoint, helper_flags),
        Err(errno) => Err(UnmountError::Os {
            path: mountpoint.into(),
            source: errno.into(),
        }),
    }
}

fn unmount_through_helper(mountpoint: &Path, flags: &[&str]) -> Result<(), UnmountError> {
    let args = flags
        .iter()
        .map(OsStr::new)
        .chain([OsStr::new("--"), mountpoint.as_os_str()]);
    let output = Command::new(HELPER)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(UnmountError::HelperMissing)?;
    if output.status.success() {
        return Ok(());
    }
    let message = words(&output.stderr);
    if message.contains("not found in") {
        Err(UnmountError::NotMounted(mountpoint.into()))
    } else if message.contains("busy") {
        Err(UnmountError::Busy(mountpoint.into()))
    } else {
        Err(UnmountError::HelperRefused {
            path: mountpoint.into(),
            message,
        })
    }
}

/// Returns what a program wrote, on one line.
fn words(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().replace('\n', "; ")
}
