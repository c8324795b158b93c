//! Builds that fail or are cancelled: what is told, and what is left. And how far a build is.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_build::{Error, Exclude, Observer, Options, Progress};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::common::{Random, build, is_root, missing_judge};
use crate::{lz4, names, tree};

/// Does something to the source when it has been scanned, but not yet read.
struct Meddler<F>(F);

impl<F: Fn()> Observer for Meddler<F> {
    fn scanned(&self, _: &Progress) {
        (self.0)();
    }
}

/// Ways in which a file changes, and those in which it is no longer there to be read.
const CHANGES: [fn(&Path); 3] = [
    |path| {
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(b"x").unwrap();
    },
    |path| {
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(3)
            .unwrap()
    },
    |path| {
        let content = fs::read(path).unwrap();
        fs::rename(path, path.with_extension("old")).unwrap();
        fs::write(path, content).unwrap();
    },
];

const LOSSES: [fn(&Path); 3] = [
    |path| fs::remove_file(path).unwrap(),
    |path| {
        fs::rename(path, path.with_extension("old")).unwrap();
        std::os::unix::fs::symlink(path.with_extension("old"), path).unwrap();
    },
    |path| {
        fs::remove_file(path).unwrap();
        mknodat(CWD, path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    },
];

/// Returns how a build fails if something happens to a file of `len` bytes; the file's path comes with it.
fn meddled(len: usize, meddle: fn(&Path)) -> (Error, PathBuf) {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    fs::write(&image, "the image of yesterday").unwrap();
    let victim = source.path().join("victim");
    fs::write(&victim, Random::new(1).mixture(len)).unwrap();
    let meddler = Meddler(|| meddle(&victim));
    let never = AtomicBool::new(false);
    let options = Options {
        overwrite: true,
        ..lz4(64 << 10)
    };
    let result = anteros_build::build(&image, source.path(), &options, &meddler, &never);
    assert_eq!(names(dir.path()), ["image"]);
    assert_eq!(fs::read(&image).unwrap(), b"the image of yesterday");
    (result.unwrap_err(), victim)
}

/// Invariant B3 of `docs/design/building.md`.
#[test]
fn a_file_that_changes_meanwhile_is_named() {
    for len in [100, 10_000, 600_000] {
        for change in CHANGES {
            let (error, victim) = meddled(len, change);
            assert!(
                matches!(&error, Error::Changed { path } if *path == victim),
                "{error}"
            );
        }
        for loss in LOSSES {
            let (error, victim) = meddled(len, loss);
            assert!(
                matches!(&error, Error::Source { path, .. } if *path == victim),
                "{error}"
            );
        }
    }
}

/// Invariant B2 of `docs/design/building.md`.
#[test]
fn a_full_disk_is_told_and_left_as_it_was() {
    if !is_root() {
        return missing_judge("a full disk: mounting one needs root");
    }
    let source = TempDir::new().unwrap();
    let disk = TempDir::new().unwrap();
    tree(source.path(), 1);
    let mount = |args: &[&str]| {
        assert!(
            Command::new(args[0])
                .args(&args[1..])
                .status()
                .unwrap()
                .success()
        )
    };
    let path = disk.path().to_str().unwrap();
    mount(&["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", path]);
    let image = disk.path().join("image");
    let results: Vec<_> = [Options::default(), lz4(64 << 10)]
        .iter()
        .map(|options| (build(&image, source.path(), options), names(disk.path())))
        .collect();
    mount(&["umount", path]);
    for (result, left) in results {
        match result {
            Err(Error::Image { path, cause, .. }) => {
                assert_eq!(path, image);
                assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull);
            }
            other => panic!("{other:?}"),
        }
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Cancels after some calls.
struct Impatient<'a> {
    patience: Cell<u32>,
    cancel: &'a AtomicBool,
}

impl Impatient<'_> {
    fn called(&self) {
        match self.patience.get() {
            0 => self.cancel.store(true, Ordering::Relaxed),
            n => self.patience.set(n - 1),
        }
    }
}

impl Observer for Impatient<'_> {
    fn scanned(&self, _: &Progress) {
        self.called();
    }

    fn progressed(&self, _: &Progress) {
        self.called();
    }
}

/// Invariant B2 of `docs/design/building.md`.
#[test]
fn a_cancelled_build_leaves_nothing() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    tree(source.path(), 1);
    let image = dir.path().join("image");
    for patience in 0..4 {
        let cancel = AtomicBool::new(false);
        let observer = Impatient {
            patience: Cell::new(patience),
            cancel: &cancel,
        };
        let options = Options {
            memory_bytes: 1,
            ..lz4(64 << 10)
        };
        let result = anteros_build::build(&image, source.path(), &options, &observer, &cancel);
        assert!(
            matches!(result, Err(Error::Cancelled)),
            "{result:?} after {patience}"
        );
        assert!(names(dir.path()).is_empty());
    }
    let result = anteros_build::build(
        &image,
        source.path(),
        &lz4(1 << 20),
        &(),
        &AtomicBool::new(true),
    );
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

#[test]
fn an_image_is_not_packed_into_itself() {
    let source = TempDir::new().unwrap();
    let out = source.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(source.path().join("file"), "x").unwrap();
    for (image, directory) in [
        (out.join("image"), out.clone()),
        (source.path().join("image"), source.path().into()),
    ] {
        let error = build(&image, source.path(), &Options::default()).unwrap_err();
        let expected: PathBuf = directory;
        assert!(
            matches!(&error, Error::ImageInsideSource { directory, .. } if *directory == expected),
            "{error}"
        );
        assert!(!image.exists());
    }
    let exclude = vec![Exclude::Path(b"out".to_vec())];
    build(
        &out.join("image"),
        source.path(),
        &Options {
            exclude,
            ..Options::default()
        },
    )
    .unwrap();
}

#[test]
fn progress_ends_where_it_should() {
    struct Last(Cell<Progress>);
    impl Observer for Last {
        fn progressed(&self, progress: &Progress) {
            let before = self.0.replace(*progress);
            assert!(
                before.bytes_done <= progress.bytes_done
                    && before.files_done <= progress.files_done
            );
        }
    }
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    tree(source.path(), 1);
    File::create(source.path().join("empty")).unwrap();
    File::create(source.path().join("hole"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let comb = File::create(source.path().join("comb")).unwrap();
    for offset in [0, 100_000, 300_000] {
        comb.write_all_at(b"tooth", offset).unwrap();
    }
    for options in [Options::default(), lz4(64 << 10)] {
        let last = Last(Cell::default());
        let never = AtomicBool::new(false);
        anteros_build::build(
            &dir.path().join("image"),
            source.path(),
            &options,
            &last,
            &never,
        )
        .unwrap();
        let last = last.0.get();
        assert_eq!((last.files, last.bytes), (last.files_done, last.bytes_done));
        assert_eq!(last.files, 63);
    }
}

#[test]
fn only_files_and_block_devices_become_images() {
    let source = TempDir::new().unwrap();
    let dir = TempDir::new().unwrap();
    let fifo = dir.path().join("fifo");
    let mkfifo = Command::new("mkfifo").arg(&fifo).status();
    assert!(mkfifo.unwrap().success());
    for path in [&fifo, dir.path()] {
        let before = fs::symlink_metadata(path).unwrap().ino();
        let error = build(path, source.path(), &Options::default()).unwrap_err();
        assert!(error.to_string().contains("neither a file"), "{error}");
        assert_eq!(fs::symlink_metadata(path).unwrap().ino(), before);
    }

    let (link, file) = (dir.path().join("link"), dir.path().join("file"));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink("file", &link).unwrap();
    build(&link, source.path(), &Options::default()).unwrap();
    assert!(link.is_symlink());
    assert!(fs::metadata(&file).unwrap().len() > 0);
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn a_missing_source_is_named() {
    let dir = TempDir::new().unwrap();
    let error = build(
        &dir.path().join("image"),
        &dir.path().join("nowhere"),
        &Options::default(),
    )
    .unwrap_err();
    assert!(
        matches!(&error, Error::Source { path, .. } if path.ends_with("nowhere")),
        "{error}"
    );
    fs::write(dir.path().join("file"), "x").unwrap();
    let error = build(
        &dir.path().join("image"),
        &dir.path().join("file"),
        &Options::default(),
    )
    .unwrap_err();
    assert!(
        matches!(&error, Error::Source { path, .. } if path.ends_with("file")),
        "{error}"
    );
}
