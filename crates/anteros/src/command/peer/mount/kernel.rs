//! Mounting by the kernel.
//!
//! A block device is mounted as it is. So is a file, where the kernel has that (Linux 6.12,
//! `CONFIG_EROFS_FS_BACKED_BY_FILE`); else mount(8) puts a loop device below, which goes away with the mount.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{
    FsOpenFlags, fsconfig_set_flag, fsconfig_set_string, fsopen, mount as mount_2, mount_remount,
};

use super::driver::{Driver, WRONG_CALL, not_supported};
use super::options::Options;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::loops::Loops;

/// The kind of file system, as the kernel calls it.
const EROFS: &str = "erofs";

/// The hint where the kernel cannot do it at all.
const BY_FUSE: &str = "`-t erofs.fuse` mounts through FUSE instead";

/// Mounts an image; sloppily means without the options that the kernel does not know.
pub fn mount(source: &Path, target: &Path, options: &Options, sloppy: bool) -> Outcome {
    let source = match options.has("fsid") {
        true => source.to_owned(),
        false => absolute(source)?,
    };
    let mut left_out = unknown(&options.image);
    if !sloppy {
        refuse(&left_out)?;
        left_out.clear();
    }
    let is_file = source.is_file();
    if !(is_file && options.wants_loop()) {
        match directly(&source, target, options, &left_out) {
            Ok(()) => return Ok(Verdict::Good),
            Err(errno) if is_file && may_do_by_loop(errno) => {}
            Err(errno) => return Err(failure(&source, errno)),
        }
    }
    let loops = Loops::over(&options.devices).map_err(|said| refused(&source, &said))?;
    let words = options.for_loop(&left_out, loops.devices());
    by_loop(&source, target, &words).map(|()| Verdict::Good)
}

/// Gives a mount other flags.
pub fn remount(target: &Path, options: &Options, driver: Driver) -> Outcome {
    // A daemon takes no options later on.
    let words = match driver {
        Driver::Kernel => options.image.join(","),
        Driver::Fuse => String::new(),
    };
    let words = text(&words)?;
    mount_remount(target, options.flags, words.as_c_str())
        .map_err(|errno| failure(target, errno))?;
    Ok(Verdict::Good)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| Failure::system(path, &e))
}

fn text(words: &str) -> Result<CString, Failure> {
    CString::new(words).map_err(|error| Failure::new(Kind::Usage, error))
}

fn directly(
    source: &Path,
    target: &Path,
    options: &Options,
    left_out: &[String],
) -> Result<(), Errno> {
    let words = options.for_kernel(left_out).join(",");
    let words = CString::new(words).map_err(|_| Errno::INVAL)?;
    mount_2(source, target, EROFS, options.flags, Some(words.as_c_str()))
}

/// Tells whether a loop device may help: an older kernel mounts no files, does not know where an image begins, or not on the
/// file system on which the file lies.
const fn may_do_by_loop(errno: Errno) -> bool {
    matches!(errno, Errno::NOTBLK | Errno::INVAL | Errno::OPNOTSUPP)
}

/// Has mount(8) mount a file through a loop device. `-i` keeps it from calling this program again.
fn by_loop(source: &Path, target: &Path, words: &str) -> Result<(), Failure> {
    let mut command = Command::new("mount");
    command.args(["-i", "-t", EROFS, "-o", words, "--"]);
    command.args([source, target]).stdin(Stdio::null());
    let output = command.output().map_err(|error| {
        let message = format!("mount: {error}");
        Failure::new(Kind::System, message)
            .hint("mount(8) of util-linux puts a loop device below a file")
    })?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(refused(source, said.trim()))
        }
    }
}

/// The options that the kernel's EROFS does not know, as far as it can be asked.
fn unknown(options: &[String]) -> Vec<String> {
    let options = options.iter();
    options
        .filter(|option| is_unknown(option))
        .cloned()
        .collect()
}

fn is_unknown(option: &str) -> bool {
    let Ok(context) = fsopen(EROFS, FsOpenFlags::FSOPEN_CLOEXEC) else {
        return false;
    };
    let set = match option.split_once('=') {
        Some((name, value)) => fsconfig_set_string(&context, name, value.trim_matches('"')),
        None => fsconfig_set_flag(&context, option),
    };
    set == Err(Errno::INVAL)
}

fn refuse(unknown: &[String]) -> Result<(), Failure> {
    match unknown.first() {
        Some(option) => {
            let refused = not_supported(&format!("option -o {option} by the kernel"));
            Err(refused.hint("`dmesg` may say more; `-s` leaves out such options"))
        }
        None => Ok(()),
    }
}

/// The failure where the kernel says no.
fn failure(subject: &Path, errno: Errno) -> Failure {
    let name = subject.display();
    match errno {
        Errno::PERM => {
            let message = format!("{name}: only root may have the kernel mount it");
            let refused = Failure::new(Kind::System, message);
            refused.hint(BY_FUSE).with_status(WRONG_CALL)
        }
        Errno::NODEV => {
            let message = format!("{name}: this kernel has no EROFS (CONFIG_EROFS_FS)");
            Failure::new(Kind::Unsupported, message).hint(BY_FUSE)
        }
        errno => refused(subject, &std::io::Error::from(errno).to_string()),
    }
}

fn refused(subject: &Path, text: &str) -> Failure {
    let name = subject.display();
    let message = format!("{name}: the kernel does not mount it: {text}");
    Failure::new(Kind::System, message).hint(format_args!("`dmesg` may say more; {BY_FUSE}"))
}
