//! Changes that the source refuses: whoever asked for them is told.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anteros_tests::judge;
use rustix::fs::{
    AtFlags, CWD, Gid, IFlags, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmod,
    chown, ioctl_getflags, ioctl_setflags, utimensat,
};
use tempfile::TempDir;

use crate::mirror::{Mirror, WAYS};

/// A file with a flag that even root is held by, until this is dropped.
struct Flagged(PathBuf, IFlags);

impl Flagged {
    /// Nothing where the file system has no such flags.
    fn new(path: &Path, flag: IFlags) -> Option<Self> {
        fs::write(path, "content").unwrap();
        let file = File::open(path).unwrap();
        let flags = ioctl_getflags(&file).ok()?;
        ioctl_setflags(&file, flags | flag).ok()?;
        Some(Self(path.to_owned(), flag))
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        if let Ok(file) = File::open(&self.0) {
            let _ = ioctl_getflags(&file).map(|flags| ioctl_setflags(&file, flags - self.1));
        }
    }
}

type Refusal = (&'static str, String);

/// Returns what becomes of changes to a file.
fn changes(path: &Path) -> Vec<Refusal> {
    let time = |tv_nsec| Timespec {
        tv_sec: 1_000_000_000,
        tv_nsec,
    };
    let touch = |last_access, last_modification| {
        let times = Timestamps {
            last_access,
            last_modification,
        };
        utimensat(CWD, path, &times, AtFlags::empty())
    };
    let cut = |len| {
        let file = File::options().write(true).open(path)?;
        file.set_len(len)
    };
    let results = [
        ("chmod", chmod(path, Mode::from_raw_mode(0o600))),
        ("chown", chown(path, Some(Uid::from_raw(1)), None)),
        ("chgrp", chown(path, None, Some(Gid::from_raw(1)))),
        ("touch", touch(time(1), time(2))),
        ("touch now", touch(time(UTIME_NOW), time(UTIME_NOW))),
        ("touch -a", touch(time(1), time(UTIME_OMIT))),
        ("touch -m", touch(time(UTIME_OMIT), time(2))),
    ];
    let results = results.map(|(name, result)| (name, format!("{result:?}")));
    let mut results = Vec::from(results);
    for (name, result) in [("truncate", cut(3)), ("truncate to nothing", cut(0))] {
        results.push((name, format!("{:?}", result.map_err(|e| e.raw_os_error()))));
    }
    results
}

/// Adds to a file, and says what becomes of it when the last descriptor has gone.
fn append(path: &Path) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b" and more").unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(path).unwrap(), "content and more");
}

#[test]
fn what_the_source_refuses_is_refused() {
    if !judge::is_root() || !judge::has_fuse() {
        return judge::missing("files that root may not change");
    }
    let native = TempDir::new().unwrap();
    let path = native.path().join("kept");
    let Some(_kept) = Flagged::new(&path, IFlags::IMMUTABLE) else {
        return judge::missing("a file system for temporary files that knows immutable ones");
    };
    let wanted = changes(&path);
    assert!(
        !wanted.iter().any(|(_, result)| result == "Ok(())"),
        "{wanted:?}"
    );
    for way in WAYS {
        let source = TempDir::new().unwrap();
        let _kept = Flagged::new(&source.path().join("kept"), IFlags::IMMUTABLE).unwrap();
        let _grows = Flagged::new(&source.path().join("grows"), IFlags::APPEND).unwrap();
        let mirror = Mirror::new(source.path(), way, "");
        assert_eq!(changes(&mirror.path("kept")), wanted, "{way}");
        append(&mirror.path("grows"));
        mirror.unmount();
    }
}
