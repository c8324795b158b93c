//! A mirrored directory for tests, and the ways in which it moves the content of files.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::{Signal, is_mounted, kill, run, wait_until, wait_until_served};

/// A way to move the content of files, and what it promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Holds what `--data` calls it.
    pub name: &'static str,
    /// Tells whether what a `write` took is in the source when it returns, and so outlives the daemon.
    pub writes_at_once: bool,
    /// Tells whether it gathers data in the memory that `--buffer` bounds.
    pub has_buffer: bool,
    /// Tells whether a `write` fails itself for which the device has no room, rather than a later call.
    pub fails_at_write: bool,
    /// Tells whether set-id bits stay when root writes to a file.
    pub root_keeps_set_ids: bool,
    /// Tells whether the kernel looks at the source for what it knows of an open file, given passthrough where
    /// the way is to take it.
    looks_at_source: bool,
}

impl Way {
    /// Tells whether the kernel looks at the source for what it knows of an open file: changes, holes. Without
    /// passthrough, `auto` is as `cache`.
    pub fn looks_at_source(self) -> bool {
        self.looks_at_source && (self.name != "auto" || has_passthrough())
    }
}

/// Returns whether the kernel moves the content of files by itself, as it does from Linux 6.9 on in mounts of root.
pub fn has_passthrough() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let source = TempDir::new().unwrap();
        let mirror = Mirror::new(source.path(), WAYS[0], "");
        let mut stat = Command::new(env!("CARGO_BIN_EXE_anteros"));
        let told = run(stat.args(["stat", "--json"]).arg(mirror.root())).out;
        mirror.unmount();
        serde_json::from_str::<serde_json::Value>(&told).unwrap()["way"] == "kernel"
    })
}

/// All of them.
pub const WAYS: [Way; 5] = [
    Way {
        name: "auto",
        writes_at_once: true,
        has_buffer: false,
        fails_at_write: true,
        root_keeps_set_ids: false,
        looks_at_source: true,
    },
    Way {
        name: "cache",
        writes_at_once: false,
        has_buffer: false,
        fails_at_write: false,
        root_keeps_set_ids: true,
        looks_at_source: false,
    },
    Way {
        name: "daemon",
        writes_at_once: true,
        has_buffer: false,
        fails_at_write: true,
        root_keeps_set_ids: true,
        looks_at_source: true,
    },
    Way {
        name: "buffer",
        writes_at_once: false,
        has_buffer: true,
        fails_at_write: true,
        root_keeps_set_ids: true,
        looks_at_source: true,
    },
    Way {
        name: "entries",
        writes_at_once: false,
        has_buffer: true,
        fails_at_write: true,
        root_keeps_set_ids: true,
        looks_at_source: true,
    },
];

impl Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A directory that a daemon in the foreground mirrors.
pub struct Mirror {
    place: TempDir,
    daemon: Child,
}

impl Mirror {
    /// Mirrors a directory.
    pub fn new(source: &Path, way: Way, options: &str) -> Self {
        Self::started(source, way, options, |_| {})
    }

    /// As [`new`](Self::new), with a daemon that is started in a special way.
    pub fn started(source: &Path, way: Way, options: &str, how: impl FnOnce(&mut Command)) -> Self {
        let place = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_anteros"));
        command
            .args(["passthru", "--foreground", "--data", way.name])
            .args(options.split_whitespace())
            .args([source, place.path()])
            .stdin(Stdio::null());
        how(&mut command);
        let daemon = command.spawn().unwrap();
        let mirror = Self { place, daemon };
        wait_until_served(mirror.root());
        mirror
    }

    /// The root of the mount.
    pub fn root(&self) -> &Path {
        self.place.path()
    }

    /// A path in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The process that serves it.
    pub const fn daemon(&self) -> &Child {
        &self.daemon
    }

    /// Kills the daemon, and takes away what it leaves mounted.
    pub fn kill(mut self) {
        kill(&self.daemon, Signal::KILL);
        self.daemon.wait().unwrap();
        self.umount();
    }

    /// Unmounts, and sees the daemon end well.
    pub fn unmount(mut self) {
        self.umount();
        assert_eq!(self.daemon.wait().unwrap().code(), Some(0));
    }

    /// Unmounts as soon as no process that another thread is about to start shares our open files.
    fn umount(&self) {
        wait_until(|| run(Command::new("umount").arg(self.root())).status == Some(0));
    }
}

impl Drop for Mirror {
    /// Leaves no daemon and no mount behind, however a test ends.
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        if is_mounted(self.root()) {
            let mut umount = Command::new("umount");
            let _ = run(umount.args(["--quiet", "--lazy"]).arg(self.root()));
        }
    }
}
