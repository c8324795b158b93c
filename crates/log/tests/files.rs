//! Files, directories and names, in memory and after a mount.

mod support;

use anteros_core::{FileKind, FileSystem, FsError, OpenFile, Payload, Seek, Writable};
use support::*;

#[test]
fn what_was_written_is_there_after_a_mount() {
    let device = device(64 * MIB);
    let sizes = [0, 1, 3680, 3681, 4096, 5000, 1 << 20, 3 << 20];
    let tree = open(device.clone());
    tree.mkdir("d").unwrap();
    for (seed, size) in sizes.into_iter().enumerate() {
        tree.put(&format!("d/f{size}"), &bytes(seed as u64, size))
            .unwrap();
    }
    tree.symlink("short", b"d/f1").unwrap();
    tree.symlink("long", &[b'x'; 4000]).unwrap();
    let check = |tree: &Tree| {
        for (seed, size) in sizes.into_iter().enumerate() {
            assert_eq!(
                tree.read(&format!("d/f{size}")).unwrap(),
                bytes(seed as u64, size),
                "{size} bytes"
            );
        }
        assert_eq!(tree.read("short").unwrap(), b"d/f1");
        assert_eq!(tree.read("long").unwrap(), [b'x'; 4000]);
    };
    check(&tree);
    tree.0.close().unwrap();
    drop(tree);
    let tree = open(device);
    assert!(tree.0.recovery().was_clean);
    check(&tree);
}

#[test]
fn what_was_synced_is_there_without_an_unmount() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.mkdir("d").unwrap();
    tree.put("d/large", &bytes(1, 900_000)).unwrap();
    tree.put("d/small", b"hello").unwrap();
    tree.put("d/unsynced", &bytes(2, 70_000)).unwrap();
    tree.fsync("d/large").unwrap();
    tree.fsync("d/small").unwrap();
    tree.write("d/large", 100_000, &bytes(3, 50_000)).unwrap();
    tree.fsync("d/large").unwrap();
    tree.write("d/large", 0, b"lost").unwrap();
    drop(tree);
    let tree = open(device);
    assert!(!tree.0.recovery().was_clean);
    assert_eq!(tree.0.recovery().groups, 3);
    let mut large = bytes(1, 900_000);
    large[100_000..150_000].copy_from_slice(&bytes(3, 50_000));
    assert_eq!(tree.read("d/large").unwrap(), large);
    assert_eq!(tree.read("d/small").unwrap(), b"hello");
    assert_eq!(tree.read("d/unsynced").unwrap(), b"");
}

#[test]
fn a_file_may_have_holes_and_promises() {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    tree.create("f").unwrap();
    let far = 5_000_000_000;
    tree.write("f", far, b"far").unwrap();
    tree.write("f", 10_000, &bytes(1, 10_000)).unwrap();
    tree.allocate("f", 1 << 20, 1 << 20, 1).unwrap();
    let check = |tree: &Tree| {
        let ino = tree.ino("f").unwrap();
        assert_eq!(tree.0.seek(ino, 0, Seek::Data).unwrap(), 8192);
        assert_eq!(tree.0.seek(ino, 8192, Seek::Hole).unwrap(), 20_480);
        assert_eq!(
            tree.0.seek(ino, 20_480, Seek::Data).unwrap(),
            far / 4096 * 4096
        );
        assert_eq!(tree.0.seek(ino, far, Seek::Hole).unwrap(), far + 3);
        assert!(is(
            tree.0.seek(ino, far + 3, Seek::Data),
            FsError::BeyondEnd
        ));
        let mut buf = [1; 30];
        assert_eq!(tree.0.read(ino, far - 10, &mut buf).unwrap(), 13);
        assert_eq!(&buf[..13], b"\0\0\0\0\0\0\0\0\0\0far");
        assert_eq!(
            tree.attr("f").unwrap().blocks,
            8 * (4 + 256 + 4),
            "blocks, promises and nodes"
        );
    };
    check(&tree);
    tree.0.sync().unwrap();
    check(&tree);
    drop(tree);
    let tree = open_plainly(device.clone());
    check(&tree);
    tree.0.close().unwrap();
    drop(tree);
    let tree = open_plainly(device);
    check(&tree);
    let before = tree.0.condition().used_blocks;
    tree.truncate("f", 0).unwrap();
    assert_eq!(tree.attr("f").unwrap().blocks, 0);
    assert_eq!(before - tree.0.condition().used_blocks, 4 + 256 + 4);
}

#[test]
fn what_is_cut_off_reads_as_zeros_when_it_comes_back() {
    let tree = open(device(64 * MIB));
    for size in [10_000, 3000] {
        tree.put("f", &vec![7; size]).unwrap();
        tree.truncate("f", size as u64 / 2).unwrap();
        tree.truncate("f", size as u64).unwrap();
        let mut wanted = vec![7; size];
        wanted[size / 2..].fill(0);
        assert_eq!(tree.read("f").unwrap(), wanted);
        tree.unlink("f").unwrap();
    }
    tree.put("f", &[7; 20_000]).unwrap();
    tree.allocate("f", 5000, 9000, 3).unwrap();
    let mut wanted = vec![7; 20_000];
    wanted[5000..14_000].fill(0);
    assert_eq!(tree.read("f").unwrap(), wanted);
}

/// A whiteout is left behind whole or not at all, and is the caller's.
#[test]
fn a_whiteout_takes_the_old_name() {
    const NOREPLACE: u32 = 1;
    const EXCHANGE: u32 = 2;
    const WHITEOUT: u32 = 4;
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.mkdir("d").unwrap();
    for name in ["a", "b", "c"] {
        tree.put(name, name.as_bytes()).unwrap();
        tree.fsync(name).unwrap();
    }
    let used = tree.0.statfs().unwrap().files_free;
    assert!(is(
        tree.rename_as("a", "b", NOREPLACE | WHITEOUT),
        FsError::Exists
    ));
    assert!(is(
        tree.rename_as("a", "b", EXCHANGE | WHITEOUT),
        FsError::Invalid
    ));
    assert!(is(tree.rename_as("none", "b", WHITEOUT), FsError::NotFound));
    assert_eq!(tree.0.statfs().unwrap().files_free, used);
    tree.rename_as("a", "d/a", WHITEOUT).unwrap();
    tree.rename_as("b", "c", WHITEOUT).unwrap();
    tree.fsync("d").unwrap();
    let check = |tree: &Tree| {
        assert_eq!(tree.list("").unwrap(), ["a", "b", "c", "d"]);
        for name in ["a", "b"] {
            let left = tree.attr(name).unwrap();
            assert_eq!((left.kind, left.perm), (FileKind::CharDevice, 0));
            assert_eq!((left.rdev.major, left.rdev.minor), (0, 0));
            assert_eq!((left.uid, left.gid, left.nlink), (7, 8, 1));
        }
        assert_eq!(tree.read("d/a").unwrap(), b"a");
        assert_eq!(tree.read("c").unwrap(), b"b");
    };
    check(&tree);
    // What was synced is replayed.
    drop(tree);
    let tree = open(device.clone());
    check(&tree);
    tree.0.close().unwrap();
    drop(tree);
    check(&open(device));
}

#[test]
fn names_can_be_moved_and_exchanged() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    for path in ["a", "b", "a/c"] {
        tree.mkdir(path).unwrap();
    }
    tree.put("a/f", b"f").unwrap();
    tree.put("g", b"g").unwrap();
    assert!(is(tree.rename("a", "a/c/a", 0), FsError::Invalid));
    assert!(is(tree.rename("a/f", "g", 1), FsError::Exists));
    assert!(is(tree.rename("a/f", "b", 0), FsError::IsDirectory));
    assert!(is(tree.rename("b", "g", 0), FsError::NotDirectory));
    assert!(is(tree.rename("b", "a", 0), FsError::NotEmpty));
    assert!(is(tree.rmdir("a"), FsError::NotEmpty));
    assert!(is(tree.unlink("a"), FsError::IsDirectory));
    tree.rename("a/f", "g", 2).unwrap();
    tree.rename("a/c", "b/c", 0).unwrap();
    tree.rename("b", "g", 2).unwrap();
    tree.link("a/f", "g/h").unwrap();
    let check = |tree: &Tree| {
        assert_eq!(tree.list("").unwrap(), ["a", "b", "g"]);
        assert_eq!(tree.list("a").unwrap(), ["f"]);
        assert_eq!(tree.list("g").unwrap(), ["c", "h"]);
        assert_eq!(tree.read("a/f").unwrap(), b"g");
        assert_eq!(tree.read("g/h").unwrap(), b"g");
        assert_eq!(tree.read("b").unwrap(), b"f");
        let links = |path| tree.attr(path).unwrap().nlink;
        assert_eq!(
            (links(""), links("a"), links("g"), links("a/f"), links("b")),
            (4, 2, 3, 2, 1)
        );
    };
    check(&tree);
    for path in ["a/f", "b"] {
        tree.fsync(path).unwrap();
    }
    drop(tree);
    let tree = open(device.clone());
    check(&tree);
    tree.0.close().unwrap();
    drop(tree);
    check(&open(device));
}

#[test]
fn a_large_directory_stays_whole_while_it_changes() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    let name = |n: u32| format!("name-{n}-{}", "x".repeat(n as usize % 40));
    for n in 0..5000 {
        tree.create(&name(n)).unwrap();
    }
    // Each name that was there all the time is listed once, whatever comes and goes meanwhile.
    let mut seen = Vec::new();
    let mut from = 0;
    let mut step = 0;
    loop {
        let mut portion = Vec::new();
        tree.0
            .readdir(tree.0.root(), from, &mut |entry| {
                portion.push((String::from_utf8(entry.name.into()).unwrap(), entry.next));
                if portion.len() < 300 {
                    std::ops::ControlFlow::Continue(())
                } else {
                    std::ops::ControlFlow::Break(())
                }
            })
            .unwrap();
        let Some((_, next)) = portion.last() else {
            break;
        };
        from = *next;
        seen.extend(portion.into_iter().map(|(name, _)| name));
        for n in 0..50 {
            tree.unlink(&name(4000 + step * 50 + n)).unwrap();
            tree.create(&format!("new-{step}-{n}")).unwrap();
        }
        step += 1;
    }
    for n in 0..4000 {
        assert_eq!(
            seen.iter().filter(|seen| **seen == name(n)).count(),
            1,
            "{n}"
        );
    }
    tree.0.close().unwrap();
    drop(tree);
    let tree = open(device);
    assert_eq!(tree.list("").unwrap().len(), 5000);
    for name in tree.list("").unwrap() {
        tree.unlink(&name).unwrap();
    }
    assert_eq!(tree.list("").unwrap(), [""; 0]);
    assert_eq!(tree.attr("").unwrap().blocks, 0);
    assert_eq!(tree.0.condition().used_blocks, 1);
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_held() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.put("f", &bytes(1, 100_000)).unwrap();
    let ino = tree.0.lookup(tree.0.root(), b"f").unwrap().ino;
    tree.unlink("f").unwrap();
    let mut buf = vec![0; 100_000];
    assert_eq!(tree.0.read(ino, 0, &mut buf).unwrap(), 100_000);
    assert_eq!(buf, bytes(1, 100_000));
    tree.0.checkpoint().unwrap();
    let held = tree.0.condition().used_blocks;
    drop(tree);
    let tree = open(device);
    assert_eq!(
        held - tree.0.condition().used_blocks,
        25 + u64::from(!packs_inodes()),
        "25 blocks and a node"
    );
    assert_eq!(tree.0.condition().inodes, 1);
}

/// Invariant L10 of `docs/design/log.md`.
#[test]
fn a_full_log_says_so_and_can_be_emptied() {
    let device = device(40 * MIB);
    let tree = open(device.clone());
    let capacity = tree.0.condition().capacity_blocks;
    let mut count = 0;
    let error = loop {
        match tree.put(&format!("f{count}"), &bytes(count, 300_000)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FsError::NoSpace), "{error}");
    assert!(
        count * 74 > capacity * 8 / 10,
        "{count} files in {capacity} blocks"
    );
    for n in 0..count {
        assert_eq!(
            tree.read(&format!("f{n}")).unwrap(),
            bytes(n, 300_000),
            "file {n}"
        );
    }
    // Overwriting needs no more room, over and over.
    for round in 0..5 {
        for n in 0..count {
            tree.write(&format!("f{n}"), 0, &bytes(round, 100_000))
                .unwrap();
        }
        tree.fsync("f0").unwrap();
    }
    drop(tree);
    let tree = open(device);
    for name in tree.list("").unwrap() {
        tree.unlink(&name).unwrap();
    }
    assert_eq!(tree.0.condition().used_blocks, 1);
    tree.put("again", &bytes(9, 1 << 20)).unwrap();
    tree.fsync("again").unwrap();
}

#[test]
fn attributes_of_all_kinds_come_back() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    for (name, kind) in [
        ("fifo", FileKind::Fifo),
        ("socket", FileKind::Socket),
        ("device", FileKind::CharDevice),
    ] {
        tree.make(name, kind, 0o640).unwrap();
    }
    tree.create("f").unwrap();
    let ino = tree.ino("f").unwrap();
    for n in 0..30 {
        tree.0
            .setxattr(ino, format!("user.n{n}").as_bytes(), &bytes(n, 100), 0)
            .unwrap();
    }
    assert!(is(
        tree.0.setxattr(ino, b"user.n1", b"", 1),
        FsError::Exists
    ));
    assert!(is(
        tree.0.setxattr(ino, b"user.none", b"", 2),
        FsError::NoData
    ));
    for n in 10..30 {
        tree.0
            .removexattr(ino, format!("user.n{n}").as_bytes())
            .unwrap();
    }
    let check = |tree: &Tree| {
        let ino = tree.ino("f").unwrap();
        assert_eq!(tree.0.listxattr(ino).unwrap().len(), 10);
        assert_eq!(tree.0.getxattr(ino, b"user.n7").unwrap(), bytes(7, 100));
        assert!(is(tree.0.getxattr(ino, b"user.n17"), FsError::NoData));
        assert_eq!(tree.attr("fifo").unwrap().kind, FileKind::Fifo);
        assert_eq!(tree.attr("device").unwrap().perm, 0o640);
    };
    check(&tree);
    tree.fsync("").unwrap();
    drop(tree);
    let tree = open(device.clone());
    check(&tree);
    tree.0.close().unwrap();
    drop(tree);
    check(&open(device));
}

#[test]
fn a_path_leads_to_an_inode_by_its_newest_name() {
    let tree = open(device(32 * MIB));
    tree.mkdir("d").unwrap();
    tree.mkdir("d/e").unwrap();
    for n in 0..600 {
        tree.create(&format!("d/e/{n}")).unwrap();
    }
    let path = |ino| {
        tree.0
            .path_of(ino)
            .map(|path| String::from_utf8(path).unwrap())
    };
    assert_eq!(path(tree.0.root()).as_deref(), Some("/"));
    assert_eq!(path(tree.ino("d").unwrap()).as_deref(), Some("/d"));
    let ino = tree.ino("d/e/321").unwrap();
    assert_eq!(path(ino).as_deref(), Some("/d/e/321"));
    tree.rename("d/e/321", "d/x", 0).unwrap();
    assert_eq!(path(ino).as_deref(), Some("/d/x"));
    tree.unlink("d/x").unwrap();
    assert_eq!(path(ino), None);
    assert_eq!(path(anteros_core::Ino(u64::MAX)), None);
}

/// The kernel may tell that time before the content comes that it had kept.
#[test]
fn a_time_of_modification_stays_if_whoever_writes_back_tells_it() {
    let tree = open(device(32 * MIB));
    tree.create("f").unwrap();
    let ino = tree.ino("f").unwrap();
    let handle = tree.0.open(ino, 2).unwrap();
    let file = OpenFile { ino, handle };
    let write = |len: usize, keeps_mtime| {
        let (mut buffer, before) = (vec![1; len], tree.attr("f").unwrap());
        let payload = Payload::new(&mut buffer, 0..len);
        let written = tree.0.write_kept(file, 0, payload, false, keeps_mtime);
        assert_eq!(written.unwrap(), len);
        let after = tree.attr("f").unwrap();
        assert!(after.size == len as u64 && after.ctime > before.ctime);
        after.mtime > before.mtime
    };
    // Within the inode, and in blocks.
    for len in [100, 10_000] {
        assert!(write(len, false));
        assert!(!write(len + 1, true));
    }
    tree.0.release(file);
}
