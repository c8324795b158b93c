//! The programs of other projects that judge ours, in the small Debian tree that `cargo xtask peers` makes.
//!
//! A program of that tree is started by the tree's own dynamic loader with the tree's libraries, so it needs neither
//! root nor chroot and sees the paths that we see.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The tree of the peers.
#[derive(Debug, Clone)]
pub struct Peers {
    tree: PathBuf,
    loader: PathBuf,
    libraries: PathBuf,
}

impl Peers {
    /// Finds the tree in `$ANTEROS_PEERS/sid` or the user's cache. Says so if it is missing.
    pub fn find() -> Option<Self> {
        let found = place().and_then(|tree| {
            let (libraries, loader) = loader(&tree)?;
            Some(Self {
                tree,
                loader,
                libraries,
            })
        });
        if found.is_none() {
            crate::judge::missing("the peers (erofs-utils); `cargo xtask peers` brings them in");
        }
        found
    }

    /// The root of the tree.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// The command that starts a program of the tree.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(&self.loader);
        command.arg("--library-path").arg(&self.libraries);
        command.arg(self.tree.join("usr/bin").join(program));
        command
    }
}

/// A judge of what can be written to, `fsx` or `pjdfstest`, which `./test` builds. Says so if it is missing.
pub fn posix_judge(name: &str) -> Option<Command> {
    let found = all().map(|peers| peers.join("bin").join(name));
    let found = found.filter(|program| program.exists());
    if found.is_none() {
        crate::judge::missing(&format!("{name}; `./test` brings it in"));
    }
    found.map(Command::new)
}

/// The directory of SQLite's own tests, which `./test` builds. Says so if it is missing.
pub fn sqlite_tests() -> Option<PathBuf> {
    let found = all().map(|peers| peers.join("sqlite"));
    let found = found.filter(|place| place.join("testfixture").exists());
    if found.is_none() {
        crate::judge::missing("SQLite's tests; `scripts/peers.sh sqlite` brings them in");
    }
    found
}

fn place() -> Option<PathBuf> {
    Some(all()?.join("sid"))
}

/// Returns where all peers lie.
fn all() -> Option<PathBuf> {
    if let Some(peers) = std::env::var_os("ANTEROS_PEERS") {
        return Some(peers.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".cache"));
    Some(cache.or_else(home)?.join("anteros/peers"))
}

/// The directory of the tree's libraries, such as `usr/lib/x86_64-linux-gnu`, and the loader that lies in it.
fn loader(tree: &Path) -> Option<(PathBuf, PathBuf)> {
    let directories = std::fs::read_dir(tree.join("usr/lib")).ok()?.flatten();
    let mut loaders = directories.flat_map(|directory| {
        let files = std::fs::read_dir(directory.path())
            .into_iter()
            .flatten()
            .flatten();
        let is_loader = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"ld-linux");
        files
            .filter(move |file| is_loader(&file.file_name()))
            .map(move |file| (directory.path(), file.path()))
    });
    loaders.next()
}
