//! What is built is mounted by the kernel and checked by `fsck.erofs`, and compared with its source.

mod common;

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anteros_build::{Compression, Effort, Holes, InodeForm, Options};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tempfile::TempDir;

use common::{Mounted, Random, build, fsck, is_root, judge, missing_judge, same_tree, set_xattr};

/// An access control list as the kernel keeps it: version 2; user, user 1000, group, mask, others.
const ACL: [u8; 44] = [
    2, 0, 0, 0, //
    1, 0, 6, 0, 255, 255, 255, 255, //
    2, 0, 4, 0, 0xe8, 3, 0, 0, //
    4, 0, 4, 0, 255, 255, 255, 255, //
    16, 0, 4, 0, 255, 255, 255, 255, //
    32, 0, 0, 0, 255, 255, 255, 255,
];

fn lz4(pcluster_bytes: u32) -> Options {
    let mut compression = Compression::new(Effort::Fast);
    compression.pcluster_bytes = pcluster_bytes;
    Options {
        compression: Some(compression),
        ..Options::default()
    }
}

/// Every kind of file, with sizes around every edge.
fn everything(dir: &Path) {
    let mut random = Random::new(1);
    for size in [
        0, 1, 511, 512, 513, 4000, 4031, 4064, 4065, 4095, 4096, 4097, 4500, 8191, 8192, 8193,
        12_345, 70_000,
    ] {
        fs::write(dir.join(format!("text-{size}")), random.text(size)).unwrap();
        fs::write(dir.join(format!("noise-{size}")), random.bytes(size)).unwrap();
        fs::write(dir.join(format!("zeros-{size}")), vec![0; size]).unwrap();
    }
    for n in 0..20 {
        let size = random.below(600_000) as usize;
        fs::write(dir.join(format!("mixture-{n}")), random.mixture(size)).unwrap();
    }
    let names = dir.join("names");
    fs::create_dir(&names).unwrap();
    for name in [
        "!", "-", "A", "a", ".a", "..a", "...", "\u{e9}", "a b", "\n",
    ] {
        fs::write(names.join(name), name).unwrap();
    }
    fs::write(names.join("x".repeat(255)), "long").unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    fs::set_permissions(dir.join("empty"), PermissionsExt::from_mode(0o1777)).unwrap();
    fs::set_permissions(dir.join("text-1"), PermissionsExt::from_mode(0o4711)).unwrap();
    for len in [1, 100, 507, 1000, 4000, 4090] {
        symlink(&"t/".repeat(len)[..len], dir.join(format!("link-{len}"))).unwrap();
    }
    fs::hard_link(dir.join("mixture-0"), names.join("again")).unwrap();
    fs::hard_link(dir.join("link-1"), names.join("link-again")).unwrap();
    UnixListener::bind(dir.join("socket")).unwrap();
    mknodat(CWD, dir.join("pipe"), FileType::Fifo, Mode::from(0o640), 0).unwrap();
    let old = UNIX_EPOCH - Duration::new(5, 7);
    let times = FileTimes::new().set_modified(old);
    File::options()
        .write(true)
        .open(dir.join("text-8192"))
        .unwrap()
        .set_times(times)
        .unwrap();
    if is_root() {
        only_for_root(dir);
    } else {
        missing_judge("devices and owners: they need root");
    }
}

fn only_for_root(dir: &Path) {
    for (name, kind, major, minor) in [
        ("null", FileType::CharacterDevice, 1, 3),
        ("disk", FileType::BlockDevice, 259, 0xf_ffff),
        ("last", FileType::CharacterDevice, 4095, 300),
    ] {
        mknodat(
            CWD,
            dir.join(name),
            kind,
            Mode::from(0o600),
            makedev(major, minor),
        )
        .unwrap();
    }
    std::os::unix::fs::chown(dir.join("text-513"), Some(70_000), Some(3)).unwrap();
    std::os::unix::fs::chown(dir.join("noise-513"), Some(65_535), Some(65_535)).unwrap();
}

#[test]
fn every_kind_of_file_in_every_form() {
    let dir = TempDir::new().unwrap();
    everything(dir.path());
    let mut forms = vec![
        Options::default(),
        Options {
            inline_data: false,
            ..Options::default()
        },
        Options {
            inode_form: InodeForm::Extended,
            checksum: false,
            ..Options::default()
        },
        Options {
            fixed_time: Some(1_000_000),
            ..lz4(4096)
        },
        Options {
            chunk_bytes: Some(4096),
            ..Options::default()
        },
        Options {
            chunk_bytes: Some(65536),
            ..Options::default()
        },
        Options {
            inline_data: false,
            ..lz4(4096)
        },
    ];
    for block_bits in [9, 10, 11, 12] {
        forms.push(Options {
            block_bits,
            ..Options::default()
        });
        for pcluster_bytes in [1 << block_bits, 8192, 65536, 256 << block_bits] {
            for legacy_index in [false, true] {
                if pcluster_bytes % (1 << block_bits) != 0 {
                    continue;
                }
                let mut options = Options {
                    block_bits,
                    ..lz4(pcluster_bytes)
                };
                let compression = options.compression.as_mut().unwrap();
                compression.legacy_index = legacy_index;
                compression.segment_bytes = 128 << 10;
                forms.push(options);
            }
        }
    }
    for options in forms {
        let summary = judge(dir.path(), &options);
        assert_eq!(summary.files, 54 + 20 + 11);
        assert_eq!(
            (summary.directories, summary.symlinks, summary.hard_links),
            (3, 6, 2)
        );
        assert_eq!(summary.compressed_files > 0, options.compression.is_some());
        assert_eq!(summary.chunked_files > 0, options.chunk_bytes.is_some());
    }
}

#[test]
fn high_compression_and_windows() {
    let dir = TempDir::new().unwrap();
    let mut random = Random::new(2);
    for n in 0..4 {
        fs::write(dir.path().join(format!("{n}")), random.mixture(900_000 + n)).unwrap();
    }
    let mut sizes = Vec::new();
    for (level, window_bytes) in [(1, 8 << 20), (9, 8 << 20), (12, 8 << 20), (9, 8192)] {
        let mut options = lz4(16384);
        let compression = options.compression.as_mut().unwrap();
        compression.effort = Effort::High(level);
        compression.window_bytes = window_bytes;
        sizes.push(judge(dir.path(), &options).image_bytes);
    }
    assert!(sizes[0] >= sizes[1] && sizes[1] >= sizes[2], "{sizes:?}");
    assert!(sizes[3] > sizes[1], "a small window costs: {sizes:?}");
}

#[test]
fn attributes_are_kept_and_shared() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    for n in 0..6 {
        fs::write(path(&format!("{n}")), "x").unwrap();
        set_xattr(
            &path(&format!("{n}")),
            "user.common",
            b"the same everywhere",
        );
        set_xattr(&path(&format!("{n}")), "user.own", &[n; 50]);
        set_xattr(&path(&format!("{n}")), "system.posix_acl_access", &ACL);
    }
    for n in 0..60 {
        set_xattr(&path("0"), &format!("user.{n}"), b"");
    }
    set_xattr(dir.path(), "system.posix_acl_default", &ACL);
    set_xattr(dir.path(), "user.big", &[7; 3000]);
    if is_root() {
        set_xattr(&path("1"), "trusted.overlay.opaque", b"y");
        set_xattr(&path("1"), "security.selinux", b"system_u:object_r:x_t:s0");
    } else {
        missing_judge("trusted attributes: they need root");
    }
    assert_eq!(judge(dir.path(), &Options::default()).shared_xattrs, 2);
    let few = Options {
        xattr_share_above: Some(u32::MAX),
        xattr_filter: false,
        ..lz4(4096)
    };
    assert_eq!(judge(dir.path(), &few).shared_xattrs, 0);
    let all = Options {
        xattr_share_above: Some(0),
        ..Options::default()
    };
    assert!(judge(dir.path(), &all).shared_xattrs > 60);
    let none = Options {
        xattr_share_above: None,
        ..Options::default()
    };
    let image = path("image");
    let plain = TempDir::new().unwrap();
    fs::rename(path("1"), plain.path().join("1")).unwrap();
    build(&image, plain.path(), &none).unwrap();
    if let Some(mounted) = Mounted::new(&image, 0) {
        let mut names = [0; 100];
        let len = rustix::fs::llistxattr(mounted.path().join("1"), &mut names[..]).unwrap();
        assert_eq!(len, 0);
    }
}

#[test]
fn more_than_65536_names_and_links() {
    // Here a file may have as many names as it likes.
    let dir = match TempDir::new_in("/dev/shm") {
        Ok(dir) => dir,
        Err(_) => return missing_judge("a file system without a limit on links"),
    };
    let wide = dir.path().join("wide");
    fs::create_dir(&wide).unwrap();
    fs::write(dir.path().join("file"), Random::new(6).text(5000)).unwrap();
    for n in 0..66_000 {
        fs::hard_link(dir.path().join("file"), wide.join(format!("{n:x}"))).unwrap();
    }
    fs::write(wide.join("middle"), "one more").unwrap();
    let images = TempDir::new().unwrap();
    let image = images.path().join("image");
    let summary = build(&image, dir.path(), &lz4(4096)).unwrap();
    assert_eq!((summary.files, summary.hard_links), (2, 66_000));
    fsck(&image);
    if let Some(mounted) = Mounted::new(&image, 0) {
        assert_eq!(
            fs::read_dir(mounted.path().join("wide")).unwrap().count(),
            66_001
        );
        for name in ["file", "wide/0", "wide/101cf", "wide/8000", "wide/middle"] {
            let [a, b] = [dir.path(), mounted.path()].map(|p| p.join(name));
            assert_eq!(
                fs::metadata(&a).unwrap().nlink(),
                fs::metadata(&b).unwrap().nlink()
            );
            assert!(fs::read(a).unwrap() == fs::read(b).unwrap());
        }
    }
}

#[test]
fn deeper_than_the_longest_path() {
    use rustix::fs::{OFlags, mkdirat, openat};
    let dir = TempDir::new().unwrap();
    let open = |at: &dyn std::os::fd::AsFd, name: &str, flags| {
        openat(at.as_fd(), name, flags, Mode::from(0o644))
    };
    let name = "d".repeat(250);
    let mut at = open(&CWD, dir.path().to_str().unwrap(), OFlags::DIRECTORY).unwrap();
    for _ in 0..40 {
        mkdirat(&at, &*name, Mode::from(0o755)).unwrap();
        at = open(&at, &name, OFlags::DIRECTORY).unwrap();
    }
    let content = Random::new(3).text(10_000);
    let file: File = open(&at, "file", OFlags::WRONLY | OFlags::CREATE)
        .unwrap()
        .into();
    file.write_all_at(&content, 0).unwrap();
    let images = TempDir::new().unwrap();
    let image = images.path().join("image");
    let summary = build(&image, dir.path(), &lz4(4096)).unwrap();
    assert_eq!((summary.directories, summary.files), (41, 1));
    if let Some(mounted) = Mounted::new(&image, 0) {
        let mut at = open(&CWD, mounted.path().to_str().unwrap(), OFlags::DIRECTORY).unwrap();
        for _ in 0..40 {
            at = open(&at, &name, OFlags::DIRECTORY).unwrap();
        }
        let file: File = open(&at, "file", OFlags::RDONLY).unwrap().into();
        let mut found = vec![0; content.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == content);
    }
}

/// A file of 10 GiB with a little data here and there.
fn sparse(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(10 << 30).unwrap();
    for (n, offset) in [0, 1 << 20, (5 << 30) + 12_345, (10 << 30) - 1]
        .into_iter()
        .enumerate()
    {
        file.write_all_at(&[n as u8 + 1], offset).unwrap();
    }
}

#[test]
fn holes_are_kept() {
    let dir = TempDir::new().unwrap();
    sparse(&dir.path().join("sparse"));
    File::create(dir.path().join("hole"))
        .unwrap()
        .set_len((10 << 30) + 1)
        .unwrap();
    File::create(dir.path().join("small hole"))
        .unwrap()
        .set_len(100)
        .unwrap();
    let dense = File::create(dir.path().join("half")).unwrap();
    dense
        .write_all_at(&Random::new(4).text(1 << 20), 1 << 20)
        .unwrap();
    let images = TempDir::new().unwrap();
    let image = images.path().join("image");
    for (options, chunked) in [
        (Options::default(), 3),
        (lz4(4096), 2),
        (
            Options {
                holes: Holes::Keep,
                ..lz4(65536)
            },
            3,
        ),
        (
            Options {
                chunk_bytes: Some(1 << 20),
                ..Options::default()
            },
            3,
        ),
    ] {
        let summary = build(&image, dir.path(), &options).unwrap();
        assert_eq!(summary.chunked_files, chunked);
        assert!(
            summary.image_bytes < 6 << 20,
            "{} bytes",
            summary.image_bytes
        );
        let Some(mounted) = Mounted::new(&image, 0) else {
            continue;
        };
        let file = File::open(mounted.path().join("sparse")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10 << 30);
        for offset in [
            0,
            1,
            (1 << 20) - 1,
            1 << 20,
            1 << 30,
            (5 << 30) + 12_345,
            (10 << 30) - 1,
        ] {
            let original = File::open(dir.path().join("sparse")).unwrap();
            let [mut a, mut b] = [[0xff; 1]; 2];
            original.read_exact_at(&mut a, offset).unwrap();
            file.read_exact_at(&mut b, offset).unwrap();
            assert_eq!(a, b, "byte {offset}");
        }
        let hole = File::open(mounted.path().join("hole")).unwrap();
        let mut end = [0xff; 4097];
        hole.read_exact_at(&mut end, (10 << 30) + 1 - 4097).unwrap();
        assert!(end == [0; 4097]);
        for name in ["small hole", "half"] {
            same_tree(&dir.path().join(name), &mounted.path().join(name), &options);
        }
    }
}

#[test]
fn more_than_4_gib_in_a_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("large");
    let file = File::create(&path).unwrap();
    let size = (4 << 30) + 5_000;
    let marks = [0, (2 << 30) - 3, (4 << 30) - 3, size - 6];
    for offset in marks {
        file.write_all_at(b"anteros", offset).unwrap();
    }
    let images = TempDir::new().unwrap();
    let image = images.path().join("image");
    let options = Options {
        holes: Holes::Ignore,
        ..lz4(4096)
    };
    let summary = build(&image, dir.path(), &options).unwrap();
    assert_eq!(summary.compressed_files, 1);
    assert_eq!(summary.input_bytes, size + 1);
    if let Some(mounted) = Mounted::new(&image, 0) {
        let file = File::open(mounted.path().join("large")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), size + 1);
        for offset in marks {
            let mut found = [0; 7];
            file.read_exact_at(&mut found, offset).unwrap();
            assert_eq!(&found, b"anteros");
        }
    }
}

#[test]
fn a_file_that_saves_too_little_is_stored_as_it_is() {
    let dir = TempDir::new().unwrap();
    let mut random = Random::new(5);
    let half = [
        random.text(300_000),
        random.bytes(300_000),
        random.text(1234),
    ]
    .concat();
    fs::write(dir.path().join("before"), random.text(100_000)).unwrap();
    fs::write(dir.path().join("half"), half).unwrap();
    fs::write(dir.path().join("noise"), random.bytes(300_001)).unwrap();
    fs::write(dir.path().join("z"), random.text(100_000)).unwrap();
    for segment_bytes in [64 << 10, 4 << 20] {
        let with_gain = |min_gain_percent| {
            let mut options = lz4(4096);
            let compression = options.compression.as_mut().unwrap();
            compression.segment_bytes = segment_bytes;
            compression.min_gain_percent = min_gain_percent;
            judge(dir.path(), &options)
        };
        assert_eq!(with_gain(0).compressed_files, 3);
        let picky = with_gain(60);
        assert_eq!(
            (
                picky.compressed_files,
                picky.flat_files + picky.inline_files
            ),
            (2, 2)
        );
        assert_eq!(with_gain(100).compressed_files, 0);
    }
}

#[test]
fn an_image_inside_a_file() {
    let dir = TempDir::new().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    everything(&source);
    let image = dir.path().join("firmware");
    for existing in [None, Some(vec![9; 100_000]), Some(vec![9; 10 << 20])] {
        if let Some(existing) = &existing {
            fs::write(&image, existing).unwrap();
        }
        let options = Options {
            offset: 8192,
            ..lz4(4096)
        };
        let summary = build(&image, &source, &options).unwrap();
        let bytes = fs::read(&image).unwrap();
        assert_eq!(bytes.len() as u64, 8192 + summary.image_bytes);
        let front = if existing.is_some() {
            [9; 8192]
        } else {
            [0; 8192]
        };
        assert!(bytes[..8192] == front);
        if let Some(mounted) = Mounted::new(&image, 8192) {
            same_tree(&source, mounted.path(), &options);
        }
        let alone = dir.path().join("alone");
        build(&alone, &source, &lz4(4096)).unwrap();
        assert!(bytes[8192..] == fs::read(&alone).unwrap());
        fsck(&alone);
        fs::remove_file(&image).unwrap();
    }
}
