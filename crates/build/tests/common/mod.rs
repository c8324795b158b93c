//! Trees to build from, and the judges of what was built: the kernel and `fsck.erofs`.

#![allow(dead_code)] // each test file uses its part

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use anteros_build::{Error, Options, Summary};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use tempfile::TempDir;

/// A xorshift generator: the same numbers on each run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// Words in random order.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&[u8]; 6] = [
            b"block ",
            b"inode, ",
            b"extent\n",
            b"a ",
            b"of ",
            b"superblock ",
        ];
        let mut text = Vec::new();
        while text.len() < len {
            text.extend_from_slice(WORDS[self.below(6) as usize]);
        }
        text.truncate(len);
        text
    }

    /// Text, noise and zeros by turns.
    pub fn mixture(&mut self, len: usize) -> Vec<u8> {
        let mut data = Vec::new();
        while data.len() < len {
            let run = 100 + self.below(40_000) as usize;
            match self.below(3) {
                0 => data.extend(self.text(run)),
                1 => data.extend(self.bytes(run)),
                _ => data.resize(data.len() + run, 0),
            }
        }
        data.truncate(len);
        data
    }
}

/// Says aloud that a judge is missing; that fails where all must be there.
pub fn missing_judge(what: &str) {
    eprintln!("MISSING JUDGE: {what}");
    assert!(
        std::env::var_os("ANTEROS_REQUIRE_JUDGES").is_none(),
        "the judge is required: {what}"
    );
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Builds with nobody watching.
pub fn build(image: &Path, source: &Path, options: &Options) -> Result<Summary, Error> {
    anteros_build::build(image, source, options, &(), &AtomicBool::new(false))
}

/// Builds an image of `source`, and has every judge compare the two.
pub fn judge(source: &Path, options: &Options) -> Summary {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let summary = build(&image, source, options).unwrap_or_else(|e| panic!("{e} with {options:?}"));
    assert_eq!(fs::metadata(&image).unwrap().len(), summary.image_bytes);
    fsck(&image);
    if let Some(mounted) = Mounted::new(&image, 0) {
        same_tree(source, mounted.path(), options);
    }
    summary
}

/// Has `fsck.erofs` check the image, file content included.
pub fn fsck(image: &Path) {
    let Some(mut fsck) = peer("fsck.erofs") else {
        return missing_judge("fsck.erofs");
    };
    let output = fsck.arg("--extract").arg(image).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fsck.erofs: {errors}");
}

/// A tool of erofs-utils, run from the directory that it was unpacked to.
pub fn peer(tool: &str) -> Option<Command> {
    let peers = std::env::var_os("ANTEROS_PEERS").map(PathBuf::from);
    let default =
        || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/anteros/peers"));
    let root = peers.or_else(default)?.join("sid");
    let tool = root.join("usr/bin").join(tool);
    tool.exists().then(|| {
        let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
        command
            .arg("--library-path")
            .arg(root.join("usr/lib/x86_64-linux-gnu"))
            .arg(tool);
        command
    })
}

/// An image that the kernel has mounted.
pub struct Mounted(TempDir);

impl Mounted {
    pub fn new(image: &Path, offset: u64) -> Option<Self> {
        if !is_root() {
            missing_judge("the kernel: mounting needs root");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let options = format!("loop,ro,offset={offset}");
        let mount = Command::new("mount")
            .args(["-t", "erofs", "-o", &options])
            .args([image, dir.path()])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&mount.stderr).into_owned();
        if errors.contains("unknown filesystem") {
            missing_judge("the kernel: it has no EROFS");
            return None;
        }
        assert!(mount.status.success(), "mount: {errors}");
        Some(Self(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a child of another test may hold our files open until it has started.
        let status = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
        if !status.is_ok_and(|s| s.success()) && !std::thread::panicking() {
            panic!("cannot unmount {}", self.path().display());
        }
    }
}

/// Asserts that two directories are the same as far as the options allow.
pub fn same_tree(expected: &Path, found: &Path, options: &Options) {
    same_file(expected, found, options);
    if !fs::symlink_metadata(expected).unwrap().is_dir() {
        return;
    }
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let expected_names = names(expected);
    assert_eq!(
        expected_names,
        names(found),
        "names in {}",
        expected.display()
    );
    for name in expected_names {
        same_tree(&expected.join(&name), &found.join(&name), options);
    }
}

fn same_file(expected: &Path, found: &Path, options: &Options) {
    let [a, b] = [expected, found].map(|p| fs::symlink_metadata(p).unwrap());
    let path = expected.display();
    let common = |m: &Metadata| (m.mode(), m.uid(), m.gid(), m.nlink());
    assert_eq!(
        common(&a),
        common(&b),
        "mode, owner, group, links of {path}"
    );
    match options.fixed_time {
        Some(time) => assert_eq!((b.mtime(), b.mtime_nsec()), (time, 0), "time of {path}"),
        None => {
            let time = |m: &Metadata| (m.mtime(), m.mtime_nsec());
            assert_eq!(time(&a), time(&b), "time of {path}");
        }
    }
    assert_eq!(xattrs(expected), xattrs(found), "attributes of {path}");
    if a.is_symlink() {
        assert_eq!(
            fs::read_link(expected).unwrap(),
            fs::read_link(found).unwrap()
        );
    } else if a.is_file() {
        assert_eq!(a.len(), b.len(), "size of {path}");
        same_content(expected, found);
    } else if a.file_type().is_block_device() || a.file_type().is_char_device() {
        assert_eq!(a.rdev(), b.rdev(), "device number of {path}");
    }
}

fn same_content(expected: &Path, found: &Path) {
    let [mut a, mut b] = [expected, found].map(|p| File::open(p).unwrap());
    let [mut x, mut y] = [[0; 1 << 16]; 2];
    let mut offset = 0;
    loop {
        let len = a.read(&mut x).unwrap();
        let read = b.read_exact(&mut y[..len]);
        read.unwrap_or_else(|e| panic!("{} at {offset}: {e}", expected.display()));
        assert!(
            x[..len] == y[..len],
            "{} differs near {offset}",
            expected.display()
        );
        offset += len;
        if len == 0 {
            return;
        }
    }
}

fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = [0; 16384];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|&b| b == 0).filter(|n| !n.is_empty());
    let mut xattrs: Vec<_> = names
        .map(|name| {
            let mut value = [0; 16384];
            let len = lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap();
            (name.to_vec(), value[..len].to_vec())
        })
        .collect();
    xattrs.sort();
    xattrs
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}
