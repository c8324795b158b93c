//! Advice on what to do without a judge, and how to tell what was judged.

use std::fmt::Arguments;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Says on standard error, past the test harness, what a test found.
pub fn say(text: Arguments<'_>) {
    // There is nobody to tell that nobody can be told.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Says loudly that a judge is missing, so that nobody takes the test for passed.
///
/// # Panics
///
/// If `ANTEROS_REQUIRE_JUDGES` is set.
pub fn missing(what: &str) {
    let required = std::env::var_os("ANTEROS_REQUIRE_JUDGES").is_some();
    assert!(!required, "missing judge: {what}");
    say(format_args!("MISSING JUDGE: {what}"));
}

/// Returns whether this process may mount, own files of others and make device nodes.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reads a file that this user has extracted. Trees of fixtures have files that nobody may read: who owns such a copy
/// may let themselves.
///
/// # Errors
///
/// If it cannot be read.
pub fn read_extracted(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o400))?;
            fs::read(path)
        }
        read => read,
    }
}

/// Returns whether the kernel can be the judge: root, and EROFS in the kernel. Says so if not.
pub fn has_kernel() -> bool {
    if !is_root() {
        missing("the kernel's EROFS (only root can mount)");
        return false;
    }
    has_file_system("erofs")
}

/// Returns whether the kernel knows a file system. Says so if not.
pub fn has_file_system(name: &str) -> bool {
    // What is a module is listed only once it is loaded; a kernel without modules has no modprobe.
    let _ = Command::new("modprobe").arg(name).status();
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let mut names = known.lines().map(|line| line.split_whitespace().last());
    let is_known = names.any(|known| known == Some(name));
    if !is_known {
        missing(&format!("{name} in the kernel"));
    }
    is_known
}

/// Returns whether a program of the distribution is there. Says so if not.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    if !is_there {
        missing(&format!("{name}; `./test` brings it in"));
    }
    is_there
}

/// Returns whether FUSE file systems can be mounted. Says so if not.
pub fn has_fuse() -> bool {
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if device.is_err() {
        missing("/dev/fuse");
    }
    device.is_ok()
}
