//! Each operation, driven without a mount.

mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anteros_core::{
    Changes, FileKind, FilePosition, FileSystem, FsError, Ino, OpenFile, Rdev, Seek, SetTime,
    Timestamp, Writable,
};
use anteros_passthru::{HostFs, Options};
use rustix::fs::{FallocateFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::support::*;

#[test]
fn what_is_written_is_in_the_directory_and_the_reverse() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let (attr, file) = create(&fs, root, b"a");
    assert_eq!(
        (attr.kind, attr.perm, attr.nlink, attr.size),
        (FileKind::Regular, 0o644, 1, 0)
    );
    assert_eq!(fs.write(file, 3, b"data", false).unwrap(), 4);
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"\0\0\0data");

    std::fs::write(dir.path().join("a"), b"outside").unwrap();
    let mut buf = [0; 16];
    assert_eq!(fs.read_open(file, 3, &mut buf).unwrap(), 4);
    assert_eq!(&buf[..4], b"side");
    assert_eq!(fs.read_open(file, 7, &mut buf).unwrap(), 0);
    assert_eq!(content(&fs, attr.ino), b"outside");

    fs.flush(file).unwrap();
    fs.fsync(file, true).unwrap();
    fs.fsync(file, false).unwrap();
    fs.release(file);
    assert_errno(fs.read_open(file, 0, &mut buf), Errno::BADF);
    fs.unlink(root, b"a").unwrap();
    assert!(!dir.path().join("a").exists());
    assert_errno(fs.lookup(root, b"a"), Errno::NOENT);
}

#[test]
fn attributes_are_the_hosts() {
    let (dir, fs) = host_fs();
    std::fs::write(dir.path().join("a"), vec![1; 5000]).unwrap();
    let attr = fs.lookup(fs.root(), b"a").unwrap();
    let meta = std::fs::metadata(dir.path().join("a")).unwrap();
    assert_eq!(attr.ino, Ino(meta.ino()));
    assert_eq!((attr.uid, attr.gid), (meta.uid(), meta.gid()));
    assert_eq!((attr.size, attr.blocks), (meta.size(), meta.blocks()));
    assert_eq!(u64::from(attr.block_size), meta.blksize());
    assert_eq!(attr.mtime.secs, meta.mtime());
    assert_eq!(i64::from(attr.ctime.nanos), meta.ctime_nsec());
    assert_eq!(fs.getattr(attr.ino).unwrap(), attr);
    assert_eq!(fs.getattr(fs.root()).unwrap().kind, FileKind::Directory);
    assert_eq!(fs.getattr_listed(attr.ino, attr.kind), None);

    let stat = fs.statfs().unwrap();
    assert!(stat.blocks >= stat.blocks_free && stat.blocks_free >= stat.blocks_available);
    assert!(stat.block_size > 0 && stat.name_max >= 255);
}

#[test]
fn options_are_heeded() {
    let (dir, fs) = host_fs();
    assert_eq!(fs.trusted_for(), Duration::from_secs(1));
    let options = Options {
        trusted_for: Duration::ZERO,
    };
    let fs = HostFs::with_options(dir.path(), options).unwrap();
    assert_eq!(fs.writable().unwrap().trusted_for(), Duration::ZERO);
    std::fs::write(dir.path().join("a"), b"").unwrap();
    assert!(HostFs::new(&dir.path().join("a")).is_err());
    assert!(HostFs::new(&dir.path().join("missing")).is_err());
}

#[test]
fn errors_are_the_hosts() {
    let (_dir, fs) = host_fs();
    let root = fs.root();
    let directory = mkdir(&fs, root, b"dir").ino;
    let (file, _) = create(&fs, directory, b"file");
    let link = fs.symlink(&new(root, b"link", 0), b"dir").unwrap().ino;
    let dir_mode = FileKind::Directory.mode_bits() | 0o755;
    let none = Rdev::default();

    assert_errno(fs.make(&new(root, b"dir", dir_mode), none), Errno::EXIST);
    assert_errno(fs.symlink(&new(root, b"dir", 0), b"x"), Errno::EXIST);
    assert_errno(fs.symlink(&new(root, b"x", 0), b""), Errno::NOENT);
    assert_errno(fs.rmdir(root, b"dir"), Errno::NOTEMPTY);
    assert_errno(fs.rmdir(directory, b"file"), Errno::NOTDIR);
    assert_errno(fs.unlink(root, b"dir"), Errno::ISDIR);
    assert_errno(fs.unlink(root, b"missing"), Errno::NOENT);
    assert!(matches!(
        fs.lookup(root, b"missing"),
        Err(FsError::NotFound)
    ));
    assert_errno(fs.lookup(file.ino, b"x"), Errno::NOTDIR);
    assert_errno(fs.lookup(link, b"file"), Errno::NOTDIR);
    assert_errno(fs.open(directory, RDWR), Errno::ISDIR);
    assert_errno(fs.open(link, RDONLY), Errno::LOOP);
    assert_errno(fs.read(directory, 0, &mut [0; 4]), Errno::ISDIR);
    assert_errno(fs.open_dir(file.ino), Errno::NOTDIR);
    assert_errno(fs.readlink(file.ino), Errno::INVAL);
    assert_errno(fs.link(directory, root, b"x"), Errno::PERM);
    assert_errno(fs.link(file.ino, root, b"dir"), Errno::EXIST);
    assert_errno(
        fs.rename((root, b"dir"), (directory, b"x"), 0),
        Errno::INVAL,
    );
    assert_errno(fs.rename((root, b"link"), (root, b"dir"), 0), Errno::ISDIR);
    assert_errno(fs.rename((root, b"dir"), (root, b"link"), 0), Errno::NOTDIR);
    assert_errno(fs.rename((root, b"x"), (root, b"y"), 0), Errno::NOENT);
    assert_errno(
        fs.rename((root, b"dir"), (root, b"y"), 1 << 20),
        Errno::INVAL,
    );
    assert_errno(fs.getattr(Ino(u64::MAX - 7)), Errno::NOENT);
    let read_only = open(&fs, file.ino, RDONLY);
    assert_errno(fs.write(read_only, 0, b"x", false), Errno::BADF);
    let write_only = open(&fs, file.ino, WRONLY);
    assert_errno(fs.read_open(write_only, 0, &mut [0; 4]), Errno::BADF);
    assert_errno(
        fs.write(write_only, i64::MAX as u64, b"xy", false),
        Errno::INVAL,
    );
    let no_dir = OpenFile {
        ino: root,
        handle: 77,
    };
    assert_errno(fs.fsync_dir(no_dir), Errno::BADF);
}

#[test]
fn an_existing_file_is_created_only_without_o_excl() {
    let (_dir, fs) = host_fs();
    let root = fs.root();
    let (attr, file) = create(&fs, root, b"a");
    fs.write(file, 0, b"kept", false).unwrap();
    assert_errno(
        fs.create(&new(root, b"a", 0o600), RDWR | EXCL),
        Errno::EXIST,
    );
    let (again, handle) = fs.create(&new(root, b"a", 0o600), RDWR).unwrap();
    assert_eq!((again.ino, again.perm, again.size), (attr.ino, 0o644, 4));
    let truncate = RDWR | rustix::fs::OFlags::TRUNC.bits();
    let (again, _) = fs.create(&new(root, b"a", 0o600), truncate).unwrap();
    assert_eq!((again.ino, again.size), (attr.ino, 0));
    fs.write(
        OpenFile {
            handle,
            ino: again.ino,
        },
        0,
        b"x",
        false,
    )
    .unwrap();
    assert_eq!(content(&fs, attr.ino), b"x");

    fs.symlink(&new(root, b"link", 0), b"target").unwrap();
    assert_errno(fs.create(&new(root, b"link", 0o644), RDWR), Errno::LOOP);
    assert_errno(fs.lookup(root, b"target"), Errno::NOENT);
    mkdir(&fs, root, b"dir");
    assert_errno(fs.create(&new(root, b"dir", 0o644), RDWR), Errno::ISDIR);
}

#[test]
fn a_file_opened_to_append_is_written_at_its_end() {
    let (_dir, fs) = host_fs();
    let (attr, file) = create(&fs, fs.root(), b"a");
    fs.write(file, 0, b"first", false).unwrap();
    let append = open(&fs, attr.ino, WRONLY | APPEND);
    assert_eq!(fs.write(append, 0, b"second", false).unwrap(), 6);
    assert_eq!(content(&fs, attr.ino), b"firstsecond");
}

#[test]
fn a_file_opened_for_direct_io_takes_any_buffer() {
    let (_dir, fs) = host_fs();
    let (attr, _) = create(&fs, fs.root(), b"a");
    let direct = open(&fs, attr.ino, RDWR | rustix::fs::OFlags::DIRECT.bits());
    assert_eq!(fs.write(direct, 3, b"data", false).unwrap(), 4);
    let mut buf = [0; 5];
    assert_eq!(fs.read_open(direct, 2, &mut buf).unwrap(), 5);
    assert_eq!(&buf, b"\0data");
}

#[test]
fn a_file_that_lost_its_last_name_stays_usable() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let (attr, file) = create(&fs, root, b"a");
    fs.write(file, 0, b"before", false).unwrap();
    fs.unlink(root, b"a").unwrap();
    // A new file by this name is another one.
    std::fs::write(dir.path().join("a"), b"other").unwrap();
    assert_ne!(fs.lookup(root, b"a").unwrap().ino, attr.ino);

    assert_eq!(fs.getattr(attr.ino).unwrap().nlink, 0);
    fs.write(file, 6, b" after", false).unwrap();
    assert_eq!(content(&fs, attr.ino), b"before after");
    let size = Changes {
        size: Some(3),
        ..Changes::default()
    };
    assert_eq!(fs.change(attr.ino, Some(file), &size).unwrap().size, 3);
    let changes = Changes {
        perm: Some(0o600),
        size: Some(2),
        mtime: Some(SetTime::At(Timestamp { secs: 5, nanos: 6 })),
        ..Changes::default()
    };
    let changed = fs.change(attr.ino, None, &changes).unwrap();
    assert_eq!(
        (changed.perm, changed.size, changed.mtime.secs),
        (0o600, 2, 5)
    );
    let again = open(&fs, attr.ino, RDWR);
    fs.write(again, 0, b"B", false).unwrap();
    assert_eq!(content(&fs, attr.ino), b"Be");
    assert_errno(fs.link(attr.ino, root, b"back"), Errno::NOENT);
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"other");
}

#[test]
fn a_file_without_a_name_can_be_given_one_unless_it_is_exclusive() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let unnamed = |flags| match fs.create_unnamed(&new(root, b"/", 0o640), flags) {
        Err(error) if errno(&error) == Errno::OPNOTSUPP => {
            eprintln!("no O_TMPFILE here, left out");
            None
        }
        result => Some(result.unwrap()),
    };
    let Some((attr, handle)) = unnamed(RDWR) else {
        return;
    };
    assert_eq!((attr.nlink, attr.perm), (0, 0o640));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    fs.write(
        OpenFile {
            ino: attr.ino,
            handle,
        },
        0,
        b"data",
        false,
    )
    .unwrap();
    let linked = fs.link(attr.ino, root, b"named").unwrap();
    assert_eq!((linked.ino, linked.nlink), (attr.ino, 1));
    assert_eq!(std::fs::read(dir.path().join("named")).unwrap(), b"data");
    let (exclusive, _) = unnamed(RDWR | EXCL).unwrap();
    assert_errno(fs.link(exclusive.ino, root, b"never"), Errno::NOENT);
}

#[test]
fn hard_links_are_one_inode_and_renaming_keeps_it() {
    let (_dir, fs) = host_fs();
    let root = fs.root();
    let sub = mkdir(&fs, root, b"sub").ino;
    let (attr, file) = create(&fs, root, b"a");
    let linked = fs.link(attr.ino, sub, b"b").unwrap();
    assert_eq!((linked.ino, linked.nlink), (attr.ino, 2));
    assert_eq!(fs.lookup(sub, b"b").unwrap().ino, attr.ino);

    fs.rename((root, b"a"), (sub, b"c"), 0).unwrap();
    assert_eq!(fs.lookup(sub, b"c").unwrap().ino, attr.ino);
    fs.write(file, 0, b"moved", false).unwrap();
    assert_eq!(content(&fs, attr.ino), b"moved");

    // A directory that moved is still where its number says.
    fs.rename((root, b"sub"), (root, b"moved"), 0).unwrap();
    assert_eq!(fs.lookup(sub, b"b").unwrap().ino, attr.ino);

    let link = fs.symlink(&new(root, b"link", 0), b"nowhere").unwrap();
    let second = fs.link(link.ino, root, b"second").unwrap();
    assert_eq!((second.ino, second.kind), (link.ino, FileKind::Symlink));
    assert_eq!(fs.readlink(second.ino).unwrap(), b"nowhere");
}

#[test]
fn renaming_heeds_its_flags() {
    let (_dir, fs) = host_fs();
    let root = fs.root();
    let (a, _) = create(&fs, root, b"a");
    let (b, _) = create(&fs, root, b"b");
    let no_replace = RenameFlags::NOREPLACE.bits();
    assert_errno(
        fs.rename((root, b"a"), (root, b"b"), no_replace),
        Errno::EXIST,
    );
    fs.rename((root, b"a"), (root, b"b"), RenameFlags::EXCHANGE.bits())
        .unwrap();
    assert_eq!(fs.lookup(root, b"a").unwrap().ino, b.ino);
    assert_eq!(fs.lookup(root, b"b").unwrap().ino, a.ino);
    fs.rename((root, b"a"), (root, b"b"), 0).unwrap();
    assert_eq!(fs.lookup(root, b"b").unwrap().ino, b.ino);
    assert_eq!(fs.getattr(a.ino).unwrap().nlink, 0);
}

#[test]
fn attributes_change() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let (attr, file) = create(&fs, root, b"a");
    let ino = attr.ino;
    let nothing = Changes::default();
    assert_eq!(fs.change(ino, None, &nothing).unwrap(), attr);

    let changes = Changes {
        perm: Some(0),
        ..nothing
    };
    assert_eq!(fs.change(ino, None, &changes).unwrap().perm, 0);
    let changes = Changes {
        size: Some(1 << 33),
        ..nothing
    };
    assert_eq!(fs.change(ino, Some(file), &changes).unwrap().size, 1 << 33);
    if is_root_or_says("cutting off a file of mode 0") {
        let changes = Changes {
            size: Some(1),
            ..nothing
        };
        assert_eq!(fs.change(ino, None, &changes).unwrap().size, 1);
        // `open` with O_RDONLY | O_TRUNC arrives as this.
        let read_only = open(&fs, ino, RDONLY);
        let changes = Changes {
            size: Some(0),
            ..nothing
        };
        assert_eq!(fs.change(ino, Some(read_only), &changes).unwrap().size, 0);
    }
    let too_large = Changes {
        size: Some(u64::MAX),
        ..nothing
    };
    assert_errno(fs.change(ino, Some(file), &too_large), Errno::INVAL);

    let long_ago = Timestamp {
        secs: -7,
        nanos: 123_456_789,
    };
    let changes = Changes {
        atime: Some(SetTime::At(long_ago)),
        ..nothing
    };
    let changed = fs.change(ino, None, &changes).unwrap();
    assert_eq!(changed.atime, long_ago);
    assert!(changed.mtime > long_ago);
    let changes = Changes {
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(long_ago)),
        ..nothing
    };
    let changed = fs.change(ino, None, &changes).unwrap();
    assert!(changed.atime.secs > 1_000_000);
    assert_eq!(changed.mtime, long_ago);

    // Of a symbolic link, its own, not those of what it leads to.
    let link = fs.symlink(&new(root, b"link", 0), b"a").unwrap().ino;
    let now = Changes {
        mtime: Some(SetTime::At(Timestamp { secs: 9, nanos: 0 })),
        ..nothing
    };
    assert_eq!(fs.change(link, None, &now).unwrap().mtime.secs, 9);
    assert_eq!(fs.getattr(ino).unwrap().mtime, long_ago);
    let perm = Changes {
        perm: Some(0o600),
        ..nothing
    };
    assert_errno(fs.change(link, None, &perm), Errno::OPNOTSUPP);
    let size = Changes {
        size: Some(0),
        ..nothing
    };
    assert_errno(fs.change(link, None, &size), Errno::INVAL);
    assert_errno(fs.change(root, None, &size), Errno::ISDIR);
    let perm = Changes {
        perm: Some(0o1777),
        ..nothing
    };
    assert_eq!(fs.change(root, None, &perm).unwrap().perm, 0o1777);

    if is_root_or_says("changing owners") {
        let owner = Changes {
            uid: Some(1001),
            gid: Some(1002),
            ..nothing
        };
        for ino in [ino, link, root] {
            let changed = fs.change(ino, None, &owner).unwrap();
            assert_eq!((changed.uid, changed.gid), (1001, 1002));
        }
        let group = Changes {
            gid: Some(7),
            ..nothing
        };
        let changed = fs.change(link, None, &group).unwrap();
        assert_eq!((changed.uid, changed.gid), (1001, 7));
        assert_eq!(std::fs::metadata(dir.path().join("a")).unwrap().gid(), 1002);
        // Together with an owner, set-id bits are what was asked for.
        let both = Changes {
            perm: Some(0o4755),
            ..owner
        };
        assert_eq!(fs.change(ino, None, &both).unwrap().perm, 0o4755);
        assert_eq!(fs.change(ino, None, &group).unwrap().perm, 0o755);
        let nobody = Changes {
            uid: Some(u32::MAX),
            ..nothing
        };
        assert_errno(fs.change(ino, None, &nobody), Errno::INVAL);
    }
}

#[test]
fn a_listing_can_be_resumed_anywhere() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    // More than the host lists at once.
    let sub = mkdir(&fs, root, b"sub").ino;
    for index in 0..2000 {
        let name = format!("a-rather-long-name-for-an-entry-{index}");
        File::create(dir.path().join("sub").join(name)).unwrap();
    }
    let all = list(&fs, sub);
    assert_eq!(all.len(), 2002);
    let handle = fs.open_dir(sub).unwrap();
    let open = OpenFile { ino: sub, handle };
    for step in [1, 7, 500] {
        let mut stepwise = Vec::new();
        let mut from = 0;
        loop {
            let some = list_some(&fs, open, from, step);
            let Some(last) = some.last() else { break };
            from = last.next;
            stepwise.extend(some);
        }
        assert_eq!(stepwise, all, "by {step}");
    }
    for index in [1999, 3, 1000, 1001, 0] {
        let rest = list_some(&fs, open, all[index].next, 5);
        assert_eq!(rest, all[index + 1..][..5.min(all.len() - index - 1)]);
    }
    // Without an open directory as well.
    let mut names = Vec::new();
    fs.readdir(sub, all[1500].next, &mut |entry| {
        names.push(entry.name.to_vec());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert!(all[1501..].iter().map(|entry| &entry.name).eq(&names));

    // Whoever starts again sees what is new, also if nothing was taken before.
    assert!(list_some(&fs, open, 0, 0).is_empty());
    File::create(dir.path().join("sub/new")).unwrap();
    assert_eq!(list_some(&fs, open, 0, usize::MAX).len(), 2003);
    fs.fsync_dir(open).unwrap();
    fs.release_dir(open);
    assert_errno(fs.fsync_dir(open), Errno::BADF);
}

#[test]
fn a_listing_says_what_lookup_says() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let sub = mkdir(&fs, root, b"sub").ino;
    std::fs::write(dir.path().join("sub/file"), b"").unwrap();
    std::fs::create_dir(dir.path().join("sub/dir")).unwrap();
    symlink("file", dir.path().join("sub/link")).unwrap();
    let pipe = FileKind::Fifo.mode_bits() | 0o600;
    fs.make(&new(sub, b"pipe", pipe), Rdev::default()).unwrap();

    let entries: BTreeMap<_, _> = list(&fs, sub)
        .into_iter()
        .map(|entry| (entry.name, (entry.ino, entry.kind)))
        .collect();
    assert_eq!(entries.len(), 6);
    assert_eq!(entries[&b"."[..]], (sub, FileKind::Directory));
    assert_eq!(entries[&b".."[..]], (root, FileKind::Directory));
    for name in ["file", "dir", "link", "pipe"] {
        let attr = fs.lookup(sub, name.as_bytes()).unwrap();
        assert_eq!(entries[name.as_bytes()], (attr.ino, attr.kind), "{name}");
    }
    // What lies above the root is not told.
    let above = list(&fs, root)
        .into_iter()
        .find(|entry| entry.name == b"..");
    assert_eq!(above.unwrap().ino, root);
}

#[test]
fn holes_are_found_and_made() {
    let (_dir, fs) = host_fs();
    let (attr, file) = create(&fs, fs.root(), b"a");
    fs.write(file, 0, &[1; 3 << 16], false).unwrap();
    let punch = (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE).bits();
    match fs.allocate(file, 1 << 16, 1 << 16, punch) {
        Err(error) if errno(&error) == Errno::OPNOTSUPP => {
            eprintln!("no holes here, left out");
            return;
        }
        result => result.unwrap(),
    }
    assert_eq!(fs.seek_open(file, 0, Seek::Hole).unwrap(), 1 << 16);
    assert_eq!(fs.seek_open(file, 1 << 16, Seek::Data).unwrap(), 2 << 16);
    assert_eq!(fs.seek(attr.ino, 1 << 16, Seek::Data).unwrap(), 2 << 16);
    assert_eq!(fs.seek(attr.ino, 2 << 16, Seek::Hole).unwrap(), 3 << 16);
    assert!(matches!(
        fs.seek_open(file, 3 << 16, Seek::Data),
        Err(FsError::NoData)
    ));
    fs.allocate(file, 0, 1 << 18, 0).unwrap();
    assert_eq!(fs.getattr(attr.ino).unwrap().size, 1 << 18);
    assert_errno(fs.allocate(file, 0, 0, 0), Errno::INVAL);
}

#[test]
fn ranges_are_copied() {
    let (_dir, fs) = host_fs();
    let (_, from) = create(&fs, fs.root(), b"from");
    let (to_attr, to) = create(&fs, fs.root(), b"to");
    fs.write(from, 0, b"0123456789", false).unwrap();
    let position = |file, offset| FilePosition { file, offset };
    assert_eq!(
        fs.copy_range(position(from, 2), position(to, 1), 5)
            .unwrap(),
        5
    );
    assert_eq!(content(&fs, to_attr.ino), b"\x0023456");
    assert_eq!(
        fs.copy_range(position(from, 8), position(to, 0), 50)
            .unwrap(),
        2
    );
    assert_eq!(
        fs.copy_range(position(from, 10), position(to, 0), 50)
            .unwrap(),
        0
    );
    let read_only = open(&fs, to_attr.ino, RDONLY);
    let copied = fs.copy_range(position(from, 0), position(read_only, 0), 1);
    assert_errno(copied, Errno::BADF);
}

#[test]
fn extended_attributes_are_kept() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let (attr, _) = create(&fs, root, b"a");
    let ino = attr.ino;
    assert!(matches!(fs.getxattr(ino, b"user.a"), Err(FsError::NoData)));
    match fs.setxattr(ino, b"user.a", b"short", 0) {
        Err(error) if errno(&error) == Errno::OPNOTSUPP => {
            eprintln!("no user attributes here, left out");
            return;
        }
        result => result.unwrap(),
    }
    let long = vec![7; 2000];
    fs.setxattr(ino, b"user.long", &long, 0).unwrap();
    fs.setxattr(ino, b"user.empty", b"", 0).unwrap();
    assert_eq!(fs.getxattr(ino, b"user.a").unwrap(), b"short");
    assert_eq!(fs.getxattr(ino, b"user.long").unwrap(), long);
    assert_eq!(fs.getxattr(ino, b"user.empty").unwrap(), b"");
    let create = XattrFlags::CREATE.bits();
    assert_errno(fs.setxattr(ino, b"user.a", b"", create), Errno::EXIST);
    let replace = XattrFlags::REPLACE.bits();
    assert_errno(fs.setxattr(ino, b"user.x", b"", replace), Errno::NODATA);
    let mut names = fs.listxattr(ino).unwrap();
    names.retain(|name| name.starts_with(b"user."));
    names.sort();
    assert_eq!(names, [&b"user.a"[..], b"user.empty", b"user.long"]);
    fs.removexattr(ino, b"user.a").unwrap();
    assert_errno(fs.removexattr(ino, b"user.a"), Errno::NODATA);
    assert_errno(fs.setxattr(ino, b"unheard.of", b"", 0), Errno::OPNOTSUPP);
    fs.setxattr(root, b"user.dir", b"1", 0).unwrap();
    for index in 0..40 {
        fs.setxattr(ino, format!("user.many-{index}").as_bytes(), b"", 0)
            .unwrap();
    }
    assert!(fs.listxattr(ino).unwrap().len() >= 42);

    let link = fs.symlink(&new(root, b"link", 0), b"a").unwrap().ino;
    assert_errno(fs.setxattr(link, b"user.a", b"", 0), Errno::PERM);
    if is_root_or_says("attributes of symbolic links") {
        fs.setxattr(link, b"trusted.a", b"own", 0).unwrap();
        assert_eq!(fs.getxattr(link, b"trusted.a").unwrap(), b"own");
        assert_errno(fs.getxattr(ino, b"trusted.a"), Errno::NODATA);
    }
    fs.unlink(root, b"a").unwrap();
    assert_eq!(fs.getxattr(ino, b"user.long").unwrap(), long);
    assert!(!dir.path().join("a").exists());
}

#[test]
fn special_files_are_made_and_never_opened() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let make = |name: &'static [u8], kind: FileKind, rdev| {
        fs.make(&new(root, name, kind.mode_bits() | 0o600), rdev)
    };
    let none = Rdev::default();
    for (name, kind) in [
        (&b"pipe"[..], FileKind::Fifo),
        (b"socket", FileKind::Socket),
    ] {
        let attr = make(name, kind, none).unwrap();
        assert_eq!((attr.kind, attr.perm), (kind, 0o600));
        assert_errno(fs.open(attr.ino, RDWR), Errno::NXIO);
        assert_errno(fs.seek(attr.ino, 0, Seek::Data), Errno::NXIO);
    }
    assert_eq!(
        make(b"file", FileKind::Regular, none).unwrap().kind,
        FileKind::Regular
    );
    let plain = fs.make(&new(root, b"plain", 0o600), none).unwrap();
    assert_eq!(plain.kind, FileKind::Regular);
    assert_errno(make(b"link", FileKind::Symlink, none), Errno::INVAL);
    if is_root_or_says("devices") {
        let rdev = Rdev {
            major: 0x123,
            minor: 0x45678,
        };
        for (name, kind) in [
            (&b"c"[..], FileKind::CharDevice),
            (b"b", FileKind::BlockDevice),
        ] {
            match make(name, kind, rdev) {
                Err(error) if errno(&error) == Errno::PERM => {
                    eprintln!("no devices here, left out")
                }
                result => assert_eq!(
                    result.map(|attr| (attr.kind, attr.rdev)).unwrap(),
                    (kind, rdev)
                ),
            }
        }
    }
    assert!(dir.path().join("pipe").exists());
}

#[test]
fn no_name_leads_out_of_the_tree() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir(outer.path().join("inner")).unwrap();
    std::fs::write(outer.path().join("secret"), b"secret").unwrap();
    let fs = HostFs::new(&outer.path().join("inner")).unwrap();
    let root = fs.root();
    let sub = mkdir(&fs, root, b"sub").ino;
    let (file, _) = create(&fs, sub, b"file");
    let long = [b'a'; 256];
    let hostile: [(&[u8], Errno); 8] = [
        (b"", Errno::INVAL),
        (b".", Errno::INVAL),
        (b"..", Errno::INVAL),
        (b"../secret", Errno::INVAL),
        (b"sub/file", Errno::INVAL),
        (b"/", Errno::INVAL),
        (b"a\0b", Errno::INVAL),
        (&long, Errno::NAMETOOLONG),
    ];
    let dir_mode = FileKind::Directory.mode_bits() | 0o755;
    for (name, expected) in hostile {
        assert_errno(fs.lookup(root, name), expected);
        assert_errno(fs.create(&new(root, name, 0o644), RDWR), expected);
        assert_errno(
            fs.make(&new(root, name, dir_mode), Rdev::default()),
            expected,
        );
        assert_errno(fs.symlink(&new(root, name, 0), b"x"), expected);
        assert_errno(fs.link(file.ino, root, name), expected);
        assert_errno(fs.unlink(root, name), expected);
        assert_errno(fs.rmdir(root, name), expected);
        assert_errno(fs.rename((root, name), (root, b"x"), 0), expected);
        assert_errno(fs.rename((sub, b"file"), (root, name), 0), expected);
    }
    // Links are told, not followed.
    let link = fs.symlink(&new(root, b"out", 0), b"..").unwrap();
    assert_eq!(link.kind, FileKind::Symlink);
    assert_errno(fs.lookup(link.ino, b"secret"), Errno::NOTDIR);
    assert_errno(fs.create(&new(link.ino, b"x", 0o644), RDWR), Errno::NOTDIR);
    assert_errno(fs.symlink(&new(root, b"nul", 0), b"a\0b"), Errno::INVAL);
    let mut left: Vec<_> = names_in(outer.path());
    left.extend(names_in(&outer.path().join("inner")));
    assert_eq!(left, ["inner", "secret", "out", "sub"]);
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_backing_file_is_the_file() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let (_, file) = create(&fs, root, b"a");
    fs.write(file, 0, b"content", false).unwrap();
    fs.unlink(root, b"a").unwrap();
    let backing = fs.backing(file).unwrap();
    let path = format!("/proc/self/fd/{}", backing.as_raw_fd());
    assert_eq!(std::fs::read(path).unwrap(), b"content");

    // A program can be run while it is mirrored, and mirrored while it runs.
    let program = dir.path().join("program");
    // By another process: ours could have it open for writing in what another thread starts meanwhile.
    let copied = Command::new("cp").arg("/bin/true").arg(&program).status();
    assert!(copied.unwrap().success());
    let ino = fs.lookup(root, b"program").unwrap().ino;
    let opened = open(&fs, ino, RDONLY);
    let backing = fs.backing(opened).unwrap();
    match Command::new(&program).status() {
        Ok(status) => assert!(status.success()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("nothing can be run from here, left out");
        }
        Err(error) => panic!("{error}"),
    }
    drop(backing);
}

#[test]
fn inodes_of_another_device_never_collide() {
    if !is_root_or_says("a mount within the tree") {
        return;
    }
    let (dir, fs) = host_fs();
    let root = fs.root();
    let point = dir.path().join("mounted");
    std::fs::create_dir(&point).unwrap();
    let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    if !run(Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&point))
    {
        eprintln!("nothing can be mounted here, left out");
        return;
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mounted = fs.lookup(root, b"mounted").unwrap().ino;
        let (attr, _) = create(&fs, mounted, b"a");
        assert_ne!(mounted.0 >> 63, 0);
        assert_ne!(attr.ino.0 >> 63, 0);
        assert_eq!(fs.lookup(mounted, b"a").unwrap().ino, attr.ino);
        let entries = list(&fs, mounted);
        let number = |name: &[u8]| entries.iter().find(|entry| entry.name == name).unwrap().ino;
        assert_eq!(number(b"a"), attr.ino);
        assert_eq!(number(b".."), root);
        assert_errno(fs.rename((mounted, b"a"), (root, b"a"), 0), Errno::XDEV);
        assert_errno(fs.link(attr.ino, root, b"a"), Errno::XDEV);
    }));
    drop(fs);
    assert!(run(Command::new("umount").arg("-l").arg(&point)));
    outcome.unwrap();
}

#[test]
fn what_is_held_is_told_by_its_path_of_now() {
    let (_dir, fs) = host_fs();
    let root = fs.root();
    assert_eq!(fs.path_of(root).unwrap(), b"/");
    let sub = mkdir(&fs, root, b"sub").ino;
    let (attr, file) = create(&fs, sub, b"a (deleted)");
    let path = || fs.path_of(attr.ino).unwrap();
    assert_eq!(path(), b"/sub/a (deleted)");
    fs.rename((sub, b"a (deleted)"), (root, b"b"), 0).unwrap();
    assert_eq!(path(), b"/b");
    fs.link(attr.ino, root, b"c").unwrap();
    let (held, serial) = (fs.held(), fs.serial_of(attr.ino).unwrap());
    assert_eq!((held.inodes, held.files, held.directories), (3, 1, 0));
    fs.unlink(root, b"b").unwrap();
    // By which of its names it was found counts, also when that is gone.
    assert!([&b"/b"[..], b"/c"].contains(&&path()[..]));
    fs.unlink(root, b"c").unwrap();
    assert!([&b"/b"[..], b"/c"].contains(&&path()[..]));
    fs.forget(attr.ino, 2);
    assert_eq!((fs.path_of(attr.ino), fs.serial_of(attr.ino)), (None, None));
    let open = fs.path_of_open(file).unwrap();
    assert!([&b"/b"[..], b"/c"].contains(&&open[..]));
    fs.release(file);
    assert_eq!(fs.path_of_open(file), None);
    assert_eq!((fs.held().inodes, fs.held().files), (2, 0));
    let (again, _) = create(&fs, root, b"d");
    assert_ne!(fs.serial_of(again.ino), Some(serial));
}
