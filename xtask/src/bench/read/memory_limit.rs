//! A control group in which programs have little memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// States what a program has, its page cache included.
const LIMIT_BYTES: u64 = 32 << 20;

/// States where control groups that limit memory are made, and the file of a group that holds the limit: version 2,
/// then 1.
const HIERARCHIES: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup", "cgroup.controllers", "memory.max"),
    (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.limit_in_bytes",
    ),
];

/// A control group, until dropped.
pub(super) struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// Makes the group.
    ///
    /// # Errors
    /// When the system has no control groups that limit memory, or refuses.
    pub(super) fn new() -> io::Result<Self> {
        let available = |(top, sign, _): &&(&str, &str, &str)| {
            let sign = Path::new(top).join(sign);
            fs::read_to_string(&sign).is_ok_and(|text| {
                sign.ends_with("memory.limit_in_bytes") || text.contains("memory")
            })
        };
        let Some((top, _, limit)) = HIERARCHIES.iter().find(available) else {
            let text = "no hierarchy of control groups with the memory controller";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        if *limit == "memory.max" {
            fs::write(Path::new(top).join("cgroup.subtree_control"), "+memory")?;
        }
        let group = Path::new(top).join("anteros-bench");
        match fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let made = Self { group };
        fs::write(made.group.join(limit), LIMIT_BYTES.to_string())?;
        Ok(made)
    }

    /// The file that takes the number of a process which is to be in the group.
    pub(super) fn members(&self) -> PathBuf {
        self.group.join("cgroup.procs")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.group) {
            eprintln!("bench read: {}: {error}", self.group.display());
        }
    }
}
