//! Tests archives as sources: the same image as of the tree that they hold, however they are made and read.

mod common;
#[path = "tar/entries.rs"]
mod entries;
#[path = "common/tree.rs"]
mod tree;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{
    Archive, Codec, Compression, Effort, Error, Exclude, FileContexts, Fragments, Input, Observer,
    Options, Order, Progress,
};

use tempfile::TempDir;

use common::{build, missing_judge};
use tree::tree;

/// The options of GNU tar that keep everything.
const ALL: [&str; 6] = [
    "--format=posix",
    "--sparse",
    "--acls",
    "--xattrs",
    "--xattrs-include=*",
    "--selinux",
];

/// Packs a tree by GNU tar.
fn pack(tree: &Path, archive: &Path, options: &[&str]) -> bool {
    let mut tar = Command::new("tar");
    tar.arg("-cf")
        .arg(archive)
        .args(options)
        .arg("-C")
        .arg(tree);
    let Ok(done) = tar.arg(".").output() else {
        missing_judge("tar");
        return false;
    };
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    true
}

/// The bytes of an image.
fn bytes<'a>(input: impl Into<Input<'a>>, options: &Options) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    build(&image, input, options).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    fs::read(image).unwrap()
}

fn compressed(codec: impl Into<Codec>, pcluster_bytes: u32) -> Options {
    let mut compression = Compression::new(codec);
    compression.pcluster_bytes = pcluster_bytes;
    Options {
        compression: Some(compression),
        ..Options::default()
    }
}

/// Options under which all parts of the builder have to do with content.
fn option_sets() -> [Options; 6] {
    let mut labels = FileContexts::default();
    let text = b"/.* system_u:object_r:a_t:s0\n/0(/.*)? system_u:object_r:b_t:s0\n";
    labels.read(text).unwrap();
    let lz4hc = || compressed(Effort::High(9), 65536);
    let all = Fragments {
        all: true,
        pcluster_bytes: None,
    };
    [
        Options::default(),
        Options {
            holes: anteros_build::Holes::Ignore,
            hard_dereference: true,
            ..Options::default()
        },
        Options {
            fragments: Some(Fragments::default()),
            dedupe: true,
            inline_tails: true,
            ..lz4hc()
        },
        Options {
            fragments: Some(all),
            ..compressed(
                Codec::Zstd {
                    level: 3,
                    window_log: 16,
                },
                65536,
            )
        },
        Options {
            order: Order::Kind,
            holes: anteros_build::Holes::Keep,
            ..lz4hc()
        },
        Options {
            exclude: vec![
                Exclude::Path(b"1/2".to_vec()),
                Exclude::pattern("same$").unwrap(),
            ],
            force_uid: Some(7),
            gid_offset: 3,
            clamp_time: Some(1_700_000_000),
            wide: true,
            file_contexts: Some(Arc::new(labels)),
            ..lz4hc()
        },
    ]
}

#[test]
fn an_archive_gives_the_image_of_the_tree_in_it() {
    let dir = TempDir::new().unwrap();
    let (source, archive) = (dir.path().join("source"), dir.path().join("tar"));
    fs::create_dir(&source).unwrap();
    tree(&source);
    if !pack(&source, &archive, &ALL) {
        return;
    }
    for options in option_sets() {
        let expected = bytes(&source, &options);
        let in_place = bytes(Archive::open(&archive).unwrap(), &options);
        assert!(in_place == expected, "in place: {options:?}");
        let stream = Archive::from_reader("tar", File::open(&archive).unwrap());
        assert!(
            bytes(stream, &options) == expected,
            "as a stream: {options:?}"
        );
    }
}

/// Output of a program for some input.
fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        missing_judge(program);
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{program}");
    Some(output.stdout)
}

/// A directory with an archive of GNU tar's, and what that extracts from it.
fn packed(options: &[&str]) -> Option<(TempDir, PathBuf, PathBuf)> {
    let dir = TempDir::new().unwrap();
    let [source, archive, extracted] = ["source", "tar", "extracted"].map(|n| dir.path().join(n));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&extracted).unwrap();
    tree(&source);
    if options.contains(&"--format=v7") || options.contains(&"--format=ustar") {
        // Names of 255 bytes and numbers of devices do not fit there.
        fs::remove_dir_all(source.join("d".repeat(120))).unwrap();
        for name in ["long-symlink", "disk", "null", "fifo"] {
            let _ = fs::remove_file(source.join(name));
        }
    }
    if !pack(&source, &archive, options) {
        return None;
    }
    let mut tar = Command::new("tar");
    tar.arg("-xpf").arg(&archive).arg("-C").arg(&extracted);
    assert!(tar.status().unwrap().success());
    Some((dir, archive, extracted))
}

#[test]
fn each_format_gives_what_gnu_tar_extracts() {
    for options in [
        &["--format=gnu", "--sparse"][..],
        &["--format=oldgnu", "--sparse"],
        &["--format=ustar"],
        &["--format=v7"],
        &["--format=posix", "--sparse", "--sparse-version=0.0"],
        &["--format=posix", "--sparse", "--sparse-version=0.1"],
        &["--format=gnu", "--blocking-factor=1"],
    ] {
        let Some((_dir, archive, extracted)) = packed(options) else {
            return;
        };
        for build_options in [Options::default(), compressed(Effort::Fast, 4096)] {
            let expected = bytes(&extracted, &build_options);
            let found = bytes(Archive::open(&archive).unwrap(), &build_options);
            assert!(found == expected, "{options:?}");
        }
    }
}

#[test]
fn compressed_archives_are_decompressed_by_their_magic() {
    let Some((dir, archive, _)) = packed(&["--format=gnu"]) else {
        return;
    };
    let plain = fs::read(&archive).unwrap();
    let options = Options::default();
    let expected = bytes(Archive::open(&archive).unwrap(), &options);
    for (program, arguments) in [
        ("gzip", &["-c"][..]),
        ("bzip2", &["-c"]),
        ("xz", &["-c"]),
        ("xz", &["-c", "--format=lzma"]),
        ("zstd", &["-c", "-q"]),
    ] {
        let half = plain.len() / 2;
        let whole = piped(program, arguments, &plain);
        let parts = [&plain[..half], &plain[half..]].map(|part| piped(program, arguments, part));
        let (Some(whole), [Some(first), Some(second)]) = (whole, parts) else {
            continue;
        };
        let several = [first, second].concat();
        let behind = [&whole[..], b"garbage"].concat();
        for packed in [&whole, &several, &behind] {
            let path = dir.path().join("packed");
            fs::write(&path, packed).unwrap();
            let image = bytes(Archive::open(&path).unwrap(), &options);
            assert!(image == expected, "{program}");
            let stream = Archive::from_reader("tar", &packed[..]);
            assert!(bytes(stream, &options) == expected, "{program}");
        }
        let image = dir.path().join("image");
        let cut = Archive::from_reader("tar", &whole[..whole.len() - 100]);
        let error = build(&image, cut, &options).unwrap_err();
        assert!(!image.exists());
        assert!(
            error.to_string().contains("tar: cannot read the archive"),
            "{error}"
        );
    }
}

#[test]
fn an_archive_that_changes_is_an_error() {
    struct Writes {
        archive: PathBuf,
        /// When a warning comes, while headers are read; else behind them.
        early: bool,
    }
    impl Writes {
        fn write(&self, early: bool) {
            if early == self.early {
                let file = File::options().append(true).open(&self.archive);
                file.unwrap().write_all(b"x").unwrap();
            }
        }
    }
    impl Observer for Writes {
        fn scanned(&self, _: &Progress) {
            self.write(false);
        }
        fn warn(&self, _: &Path, _: &str) {
            self.write(true);
        }
    }
    let Some((dir, archive, _)) = packed(&["--format=gnu"]) else {
        return;
    };
    let (image, never) = (dir.path().join("image"), AtomicBool::new(false));
    let whole = fs::read(&archive).unwrap();
    // A single block of zeros at the end is warned of.
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let lone = &whole[..end.next_multiple_of(512) + 512];
    for (bytes, early) in [(&whole[..], false), (lone, true)] {
        fs::write(&archive, bytes).unwrap();
        let input = Archive::open(&archive).unwrap();
        let writes = Writes {
            archive: archive.clone(),
            early,
        };
        let done = anteros_build::build(&image, input, &Options::default(), &writes, &never);
        assert!(matches!(done, Err(Error::Changed { .. })), "{done:?}");
        assert!(!image.exists());
    }
}

#[test]
fn the_spool_lies_where_it_is_told_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let options = Options {
        spool: Some(dir.path().join("missing")),
        ..Options::default()
    };
    let archive = || Archive::from_reader("tar", std::io::repeat(0).take(1024));
    let image = dir.path().join("image");
    let error = build(&image, archive(), &options).unwrap_err().to_string();
    let said = format!("{}/missing: cannot keep the content", dir.path().display());
    assert!(error.starts_with(&said), "{error}");
    build(&image, archive(), &Options::default()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_file_from_its_position_on_is_an_archive_as_well() {
    let Some((dir, archive, _)) = packed(&["--format=gnu"]) else {
        return;
    };
    let options = Options::default();
    let expected = bytes(Archive::open(&archive).unwrap(), &options);
    let path = dir.path().join("behind");
    fs::write(
        &path,
        [&[7; 777][..], &fs::read(&archive).unwrap()].concat(),
    )
    .unwrap();
    let mut file = File::open(&path).unwrap();
    file.seek(SeekFrom::Start(777)).unwrap();
    assert!(bytes(Archive::from_file("tar", file), &options) == expected);
}
