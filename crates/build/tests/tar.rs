//! Tests archives as sources: the same image as of the tree that they hold, however they are made and read.

mod common;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{
    Archive, Codec, Compression, Effort, Error, Exclude, FileContexts, Fragments, Input, Observer,
    Options, Order, Progress,
};
use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, mknodat};
use tempfile::TempDir;

use common::{Random, build, is_root, missing_judge};

/// The options of GNU tar that keep everything.
const ALL: [&str; 6] = [
    "--format=posix",
    "--sparse",
    "--acls",
    "--xattrs",
    "--xattrs-include=*",
    "--selinux",
];

/// A tree with all that an archive can hold. Attributes and devices need root.
fn tree(dir: &Path) {
    let mut random = Random::new(7);
    for n in 0..40 {
        let parent = dir.join(format!("{}/{}", n % 3, n % 7));
        fs::create_dir_all(&parent).unwrap();
        let len = random.below(if n % 8 == 0 { 400_000 } else { 9000 }) as usize;
        fs::write(parent.join(format!("file-{n}")), random.mixture(len)).unwrap();
    }
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("0/same"), random.text(30_000)).unwrap();
    fs::copy(dir.join("0/same"), dir.join("2/same")).unwrap();
    // Links to a file that is listed before them, and after.
    fs::hard_link(dir.join("0/same"), dir.join("1/link")).unwrap();
    fs::hard_link(dir.join("2/same"), dir.join("0/0/link")).unwrap();
    symlink("0/same", dir.join("symlink")).unwrap();
    symlink("x".repeat(300), dir.join("long-symlink")).unwrap();
    let long = dir.join("d".repeat(120)).join("e".repeat(200));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("f".repeat(255)), "deep").unwrap();
    fs::write(dir.join("0.txt"), "sorts between 0 and what lies in it").unwrap();
    sparse(&dir.join("sparse"), 3 << 20, &[0, 1 << 20]);
    sparse(
        &dir.join("mostly-hole"),
        40 << 20,
        &[5 << 20, (40 << 20) - 100],
    );
    sparse(&dir.join("all-hole"), 1 << 20, &[]);
    let many: Vec<u64> = (0..100).map(|n| n * 16384).collect();
    sparse(&dir.join("comb"), 100 * 16384, &many);
    let perm = |name: &str, mode| {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    perm("0", 0o1777);
    perm("empty", 0o4755);
    let fifo = dir.join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o640), 0).unwrap();
    if is_root() {
        add_what_root_may(dir);
    }
    for name in ["0/same", "1", "sparse", "symlink"] {
        let time = Timespec {
            tv_sec: 1_700_000_000,
            tv_nsec: 123_456_789,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(CWD, dir.join(name), &times, flags).unwrap();
    }
}

fn add_what_root_may(dir: &Path) {
    for (name, kind, device) in [
        ("null", FileType::CharacterDevice, (1, 3)),
        ("disk", FileType::BlockDevice, (259, 70_000)),
    ] {
        let device = rustix::fs::makedev(device.0, device.1);
        mknodat(CWD, dir.join(name), kind, Mode::from(0o660), device).unwrap();
    }
    std::os::unix::fs::lchown(dir.join("empty"), Some(1000), Some(100_000)).unwrap();
    let set = |name: &str, key: &str, value: &[u8]| {
        let path = dir.join(name);
        rustix::fs::lsetxattr(path, key, value, XattrFlags::empty()).unwrap();
    };
    set("0/same", "user.binary", &[0, 1, b'\n', b'=', 255]);
    set("0/same", "trusted.a=%3D", b"");
    set("0.txt", "user.long", &[b'v'; 3000]);
    set("1", "security.other", b"x");
    set("symlink", "trusted.link", b"x");
    set("0", "security.selinux", b"system_u:object_r:etc_t:s0\0");
    let entry = |tag: u16, perm: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &perm.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let acl = [
        vec![2, 0, 0, 0],
        entry(1, 6, u32::MAX),
        entry(2, 5, 0),
        entry(2, 7, 70_000),
        entry(4, 4, u32::MAX),
        entry(8, 6, 70_001),
        entry(16, 7, u32::MAX),
        entry(32, 4, u32::MAX),
    ];
    set("0.txt", "system.posix_acl_access", &acl.concat());
    set("2", "system.posix_acl_default", &acl.concat());
    let plain = [&acl[0][..], &acl[1], &acl[4], &acl[7]].concat();
    set("1", "system.posix_acl_default", &plain);
}

/// A file with 1000 bytes at some places, as far as it reaches, and holes.
fn sparse(path: &Path, len: u64, data: &[u64]) {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    for &at in data {
        let end = (at + 1000).min(len);
        let text = Random::new(at).text((end - at) as usize);
        file.write_all_at(&text, at).unwrap();
    }
}

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
