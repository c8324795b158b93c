//! Ours to theirs: trees that are hard to keep, each built and judged by the kernel, `fsck.erofs` and our own reader.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anteros_build::{Compression, Effort, Holes, Options, Setting, Summary};
use anteros_core::FileSystem;
use anteros_image::statistics;
use anteros_tests::built::{Judges, Source, same};
use anteros_tests::host::HostFs;
use anteros_tests::judge::{is_root, missing};
use anteros_tests::manifest::{data_ranges, holes};
use anteros_tests::trees::{Tree, acl, mixed, noise, set_time, words};
use anteros_tests::{memory, scratch};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mkdirat, mknodat, openat};

fn plain() -> Options {
    Options {
        sync: false,
        ..Options::default()
    }
}

fn lz4(pcluster_bytes: u32) -> Options {
    let mut compression = Compression::new(Effort::Fast);
    compression.pcluster_bytes = pcluster_bytes;
    Options {
        compression: Some(compression),
        ..plain()
    }
}

/// Metadata in clusters of a block, in short segments.
fn metabox(block_bits: u8) -> Options {
    let mut options = Options {
        block_bits,
        ..lz4(1 << block_bits)
    };
    options.metabox = options.compression.map(|compression| Setting {
        codec: compression.codec,
        pcluster_bytes: 1 << block_bits,
        quick: None,
    });
    let compression = options.compression.as_mut().unwrap();
    compression.segment_bytes = 1 << block_bits;
    options
}

fn new_tree() -> Tree {
    Tree::new_in(&scratch())
}

/// Has all judges judge the tree, and gives what the builder said of each image.
fn judge<const N: usize>(tree: &Tree, forms: [Options; N]) -> [Summary; N] {
    let judges = Judges::find();
    let source = Source::new(tree.path());
    forms.map(|form| {
        let result = judges.judge(&source, &form);
        result.unwrap_or_else(|error| panic!("{error}\nwith {form:?}"))
    })
}

#[test]
fn nothing_but_a_root() {
    let tree = new_tree();
    for summary in judge(&tree, [plain(), lz4(65_536), metabox(9), without_dot()]) {
        assert_eq!((summary.files, summary.directories), (0, 1));
    }
    fs::create_dir(tree.at("empty")).unwrap();
    judge(&tree, [plain(), lz4(65_536), metabox(12), without_dot()]);
}

#[test]
fn more_than_65536_files_and_links() {
    let Some(memory) = memory() else {
        return missing("a file system without a limit on links (/dev/shm)");
    };
    let tree = Tree::new_in(&memory);
    tree.write("file", &words(6, 5000));
    fs::create_dir(tree.at("files")).unwrap();
    fs::create_dir(tree.at("links")).unwrap();
    for n in 0..70_000 {
        let content = if n % 10 == 0 { &b"small"[..] } else { b"" };
        fs::write(tree.at(format!("files/{n:x}")), content).unwrap();
    }
    for n in 0..66_000 {
        fs::hard_link(tree.at("file"), tree.at(format!("links/{n}"))).unwrap();
    }
    for summary in judge(&tree, [lz4(4096), metabox(12)]) {
        assert_eq!((summary.files, summary.hard_links), (70_001, 66_000));
    }
}

#[test]
fn names_of_all_bytes_and_lengths() {
    let tree = new_tree();
    for byte in (1..=255).filter(|byte| !b"/.".contains(byte)) {
        tree.write(Path::new("short").join(OsStr::from_bytes(&[byte])), b"");
    }
    for len in 1..=255 {
        tree.write(Path::new("growing").join("x".repeat(len)), b"x");
        let name: Vec<_> = noise(len as u64, 255).into_iter().map(name_byte).collect();
        tree.write(Path::new("long").join(OsStr::from_bytes(&name)), &name);
    }
    let small = Options {
        block_bits: 9,
        ..plain()
    };
    for summary in judge(&tree, [plain(), small, metabox(9), without_dot()]) {
        assert_eq!(summary.files, 253 + 2 * 255);
    }
}

/// Any byte that a name may have.
fn name_byte(byte: u8) -> u8 {
    match byte {
        0 | b'/' => b'_',
        byte => byte,
    }
}

#[test]
fn three_hundred_levels() {
    let tree = new_tree();
    tree.write(format!("{}bottom", "d/".repeat(300)), b"bottom");
    let [summary] = judge(&tree, [plain()]);
    assert_eq!(summary.directories, 301);
}

/// There no path leads to, so no judge goes there that works with paths.
#[test]
fn deeper_than_the_longest_path() {
    let judges = Judges::find();
    let tree = new_tree();
    let open = |at: &dyn AsFd, name: &Path, flags| -> OwnedFd {
        openat(at.as_fd(), name, flags, Mode::from(0o644)).unwrap()
    };
    let name = PathBuf::from("d".repeat(250));
    let mut at = open(&CWD, tree.path(), OFlags::DIRECTORY);
    for _ in 0..40 {
        mkdirat(&at, &name, Mode::from(0o755)).unwrap();
        at = open(&at, &name, OFlags::DIRECTORY);
    }
    let content = words(3, 10_000);
    let file = open(&at, Path::new("file"), OFlags::WRONLY | OFlags::CREATE);
    File::from(file).write_all_at(&content, 0).unwrap();
    let built = judges.build(tree.path(), &lz4(4096)).unwrap();
    assert_eq!((built.summary.directories, built.summary.files), (41, 1));
    built.has_no_fault().unwrap();
    let Some(mount) = judges.mount(&built).unwrap() else {
        return;
    };
    let mut at = open(&CWD, mount.path(), OFlags::DIRECTORY);
    for _ in 0..40 {
        at = open(&at, &name, OFlags::DIRECTORY);
    }
    let file = File::from(open(&at, Path::new("file"), OFlags::RDONLY));
    let mut found = vec![0; content.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == content);
}

#[test]
fn links_to_all_that_can_be_linked() {
    let tree = new_tree();
    for name in ["a/", "b/c/"] {
        fs::create_dir_all(tree.at(name)).unwrap();
    }
    tree.write("a/file", &words(1, 20_000));
    symlink("target", tree.at("a/symlink")).unwrap();
    let mut kinds = vec![("fifo", FileType::Fifo, 0), ("socket", FileType::Socket, 0)];
    if is_root() {
        kinds.push(("zero", FileType::CharacterDevice, makedev(1, 5)));
        kinds.push(("disk", FileType::BlockDevice, makedev(259, 0xf_ffff)));
        kinds.push(("last", FileType::CharacterDevice, makedev(4095, 300)));
    } else {
        missing("device nodes (only root can make them)");
    }
    for &(name, kind, device) in &kinds {
        mknodat(
            CWD,
            tree.at("a").join(name),
            kind,
            Mode::from(0o640),
            device,
        )
        .unwrap();
    }
    let names = kinds.iter().map(|(name, _, _)| *name);
    for name in names.chain(["file", "symlink"]) {
        for other in ["a/again-", "b/c/", "0-"] {
            let link = tree.at(format!("{other}{name}"));
            fs::hard_link(tree.at("a").join(name), link).unwrap();
        }
    }
    let linked = kinds.len() as u64 + 2;
    let copied = Options {
        hard_dereference: true,
        ..plain()
    };
    let [once, twice] = judge(&tree, [lz4(4096), copied]);
    assert_eq!((once.hard_links, twice.hard_links), (3 * linked, 0));
    assert_eq!((once.files, twice.files), (1, 4));
}

#[test]
fn times_and_owners_at_all_edges() {
    let Some(memory) = memory() else {
        return missing("a file system without a limit on times (/dev/shm)");
    };
    let tree = Tree::new_in(&memory);
    for secs in [
        0,
        -1,
        i64::from(i32::MIN) - 1,
        i32::MAX.into(),
        u32::MAX.into(),
        1 << 32,
        1 << 34,
        -(1 << 40),
        i64::MAX,
    ] {
        for nanos in [0, 1, 999_999_999] {
            let name = format!("{secs}.{nanos}");
            tree.write(&name, name.as_bytes());
            set_time(&tree.at(name), secs, nanos);
        }
    }
    if is_root() {
        for id in [0, 65_534, 65_535, 65_536, u32::MAX - 1] {
            for (uid, gid) in [(id, 0), (0, id), (id, id)] {
                let name = format!("{uid}:{gid}");
                tree.write(&name, name.as_bytes());
                std::os::unix::fs::chown(tree.at(name), Some(uid), Some(gid)).unwrap();
            }
        }
    } else {
        missing("other owners (only root can give files away)");
    }
    let clamped = Options {
        clamp_time: Some(-1),
        ..plain()
    };
    judge(&tree, [plain(), lz4(4096), clamped, wide(plain())]);
}

fn without_dot() -> Options {
    Options {
        dot_omitted: true,
        ..plain()
    }
}

fn wide(options: Options) -> Options {
    Options {
        wide: true,
        ..options
    }
}

#[test]
fn seconds_take_no_larger_inode_in_wide_images() {
    let tree = new_tree();
    for n in 0..100 {
        let name = format!("{n}");
        tree.write(&name, b"");
        set_time(&tree.at(&name), 1_000_000 * (n - 2), 7);
    }
    tree.write("whole", b"");
    set_time(&tree.at("whole"), 5, 0);
    set_time(tree.path(), 6, 7);
    let judges = Judges::find();
    let source = Source::new(tree.path());
    for (form, extended) in [(plain(), 101), (wide(plain()), 1)] {
        let built = judges.build(tree.path(), &form).unwrap();
        judges.compare(&built, &source.manifest).unwrap();
        let found = statistics(&built.open().unwrap()).unwrap();
        assert_eq!(found.extended_inodes, extended);
    }
}

#[test]
fn attributes_of_all_sizes_are_kept_and_shared() {
    let tree = new_tree();
    for n in 0..6 {
        let name = format!("{n}");
        tree.write(&name, b"x");
        tree.xattr(&name, "user.common", b"the same everywhere");
        tree.xattr(&name, "user.own", &[n; 50]);
        tree.xattr(&name, "system.posix_acl_access", &acl());
    }
    for n in 0..60 {
        tree.xattr("0", &format!("user.{n}"), b"v");
    }
    for len in [1, 2, 3, 4, 100, 511, 512, 1000, 2000, 3000] {
        let name = format!("size-{len}");
        tree.write(&name, b"x");
        tree.xattr(&name, "user.size", &noise(1, len));
    }
    fs::create_dir(tree.at("acl")).unwrap();
    tree.xattr("acl", "system.posix_acl_default", &acl());
    tree.xattr(
        "",
        &format!("user.{}", "n".repeat(250)),
        b"of the longest name",
    );
    if is_root() {
        tree.xattr("1", "trusted.overlay.opaque", b"y");
        tree.xattr("1", "security.selinux", b"system_u:object_r:x_t:s0");
    } else {
        missing("trusted attributes (they need root)");
    }
    tree.add_large_xattr();
    let sharing = |xattr_share_above| Options {
        xattr_share_above,
        ..plain()
    };
    let forms = [Some(2), Some(u32::MAX), Some(0), None].map(sharing);
    let shared = judge(&tree, forms).map(|summary| summary.shared_xattrs);
    assert_eq!([shared[0], shared[1], shared[3]], [2, 0, 0]);
    assert!(shared[2] > 60, "{shared:?}");
}

/// Files of 10 GiB with next to nothing in them.
#[test]
fn huge_holes() {
    let tree = new_tree();
    tree.sparse("hole", (10 << 30) + 1, &[]);
    tree.sparse("small hole", 100, &[]);
    tree.sparse("half", 2 << 20, &[(1 << 20, 1 << 20)]);
    let parts = [0, 1 << 20, (5 << 30) + 12_345, (10 << 30) - 1];
    tree.sparse("sparse", 10 << 30, &parts.map(|offset| (offset, 1)));
    let kept = Options {
        holes: Holes::Keep,
        ..lz4(65_536)
    };
    let chunks = Options {
        chunk_bytes: Some(1 << 20),
        ..plain()
    };
    let summaries = judge(&tree, [plain(), lz4(4096), kept, chunks]);
    assert_eq!(summaries.each_ref().map(|s| s.chunked_files), [3, 2, 3, 3]);
    for summary in summaries {
        let bytes = summary.image_bytes;
        assert!(bytes < 6 << 20, "{bytes} bytes");
    }
}

/// With chunks of a page, the holes of the source are those of the mount.
#[test]
fn holes_are_where_they_were() {
    let judges = Judges::find();
    let tree = new_tree();
    tree.sparse("front", 20_000, &[(16_384, 3616)]);
    tree.sparse("end", 100_000, &[(0, 5000)]);
    tree.sparse("all", 50_001, &[]);
    tree.sparse(
        "comb",
        4 << 20,
        &[
            (4096, 5000),
            (65_536, 10),
            (1 << 20, 4096),
            (3 << 20, 1 << 20),
        ],
    );
    tree.write("none", &words(1, 50_000));
    let source = HostFs::new(tree.path());
    let exact = Options {
        holes: Holes::Keep,
        chunk_bytes: Some(4096),
        ..lz4(4096)
    };
    let built = judges.build(tree.path(), &exact).unwrap();
    let expected = holes(&source).unwrap();
    same(
        "our reader",
        &holes(&built.fs().unwrap()).unwrap(),
        &expected,
    )
    .unwrap();
    if let Some(mount) = judges.mount(&built).unwrap() {
        let found = holes(&HostFs::new(mount.path())).unwrap();
        same("kernel", &found, &expected).unwrap();
    }
    // Chunks of other sizes lose some of each hole.
    let built = judges.build(tree.path(), &plain()).unwrap();
    let fs = built.fs().unwrap();
    let comb = fs.lookup(fs.root(), b"comb").unwrap();
    let bytes: u64 = data_ranges(&fs, &comb)
        .unwrap()
        .iter()
        .map(|(a, b)| b - a)
        .sum();
    assert!((1 << 20..2 << 20).contains(&bytes), "{bytes} bytes of data");
}

#[test]
fn more_than_4_gib_in_a_file() {
    let judges = Judges::find();
    let tree = new_tree();
    let size = (4 << 30) + 5_001;
    let marks = [0, (2 << 30) - 3, (4 << 30) - 3, size - 7];
    tree.sparse("large", size, &[]);
    let file = File::options().write(true).open(tree.at("large")).unwrap();
    for offset in marks {
        file.write_all_at(b"anteros", offset).unwrap();
    }
    let dense = Options {
        holes: Holes::Ignore,
        ..lz4(65_536)
    };
    let built = judges.build(tree.path(), &dense).unwrap();
    assert_eq!(built.summary.compressed_files, 1);
    assert_eq!(built.summary.input_bytes, size);
    built.has_no_fault().unwrap();
    let fs = built.fs().unwrap();
    let large = fs.lookup(fs.root(), b"large").unwrap();
    assert_eq!(large.size, size);
    let mount = judges.mount(&built).unwrap();
    for offset in marks {
        let mut found = [0; 7];
        assert_eq!(fs.read(large.ino, offset, &mut found).unwrap(), 7);
        assert_eq!(&found, b"anteros");
        if let Some(mount) = &mount {
            let file = File::open(mount.path().join("large")).unwrap();
            assert_eq!(file.metadata().unwrap().size(), size);
            file.read_exact_at(&mut found, offset).unwrap();
            assert_eq!(&found, b"anteros");
        }
    }
}

#[test]
fn more_effort_and_larger_windows_save_more() {
    let tree = new_tree();
    for seed in 0..4 {
        tree.write(format!("{seed}"), &mixed(seed, 900_000));
    }
    let high = |(level, window_bytes)| {
        let mut options = lz4(16_384);
        let compression = options.compression.as_mut().unwrap();
        compression.codec = Effort::High(level).into();
        compression.window_bytes = window_bytes;
        options
    };
    let forms = [(1, 8 << 20), (9, 8 << 20), (12, 8 << 20), (9, 8192)].map(high);
    let sizes = judge(&tree, forms).map(|summary| summary.image_bytes);
    assert!(sizes[0] >= sizes[1] && sizes[1] >= sizes[2], "{sizes:?}");
    assert!(sizes[3] > sizes[1], "a small window costs: {sizes:?}");
}

#[test]
fn a_file_that_saves_too_little_is_stored_as_it_is() {
    let tree = new_tree();
    let half = [words(1, 300_000), noise(2, 300_000), words(3, 1234)].concat();
    tree.write("before", &words(4, 100_000));
    tree.write("half", &half);
    tree.write("noise", &noise(5, 300_001));
    tree.write("z", &words(6, 100_000));
    for segment_bytes in [64 << 10, 4 << 20] {
        let with_gain = |min_gain_percent| {
            let mut options = lz4(4096);
            let compression = options.compression.as_mut().unwrap();
            compression.segment_bytes = segment_bytes;
            compression.min_gain_percent = min_gain_percent;
            options
        };
        let compressed = judge(&tree, [0, 25, 100].map(with_gain)).map(|s| s.compressed_files);
        assert_eq!(compressed, [3, 2, 0]);
    }
}
