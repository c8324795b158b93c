//! To whom new inodes belong, and what becomes of set-id bits.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anteros_core::{Caller, Changes, FileKind, FileSystem, New, OpenFile, Rdev, Writable};
use anteros_passthru::HostFs;
use rustix::io::Errno;

use crate::support::*;

const ALICE: Caller = Caller {
    uid: 12_345,
    gid: 23_456,
    pid: 0,
    also_in: None,
};

fn dir_mode(perm: u32) -> u32 {
    FileKind::Directory.mode_bits() | perm
}

fn owner(path: &Path) -> (u32, u32, u32) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

/// Returns what the kernel says about the identity of this thread.
fn thread_status() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let is_identity =
        |line: &&str| line.starts_with("Uid") || line.starts_with("Gid") || line.starts_with("Cap");
    status.lines().filter(is_identity).collect()
}

#[test]
fn what_is_made_belongs_to_the_caller() {
    if !is_root_or_says("acting for others") {
        return;
    }
    let before = thread_status();
    // The directory is root's and closed to everyone: that was the kernel's to check.
    let (dir, fs) = host_fs();
    let root = fs.root();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let by_alice = |name| new_by(ALICE, root, name, 0o640);
    let alices = (ALICE.uid, ALICE.gid);

    let (attr, handle) = fs.create(&by_alice(b"file"), RDWR).unwrap();
    assert_eq!((attr.uid, attr.gid), alices);
    // The descriptor was opened as asked for, whatever the mode.
    fs.write(
        OpenFile {
            ino: attr.ino,
            handle,
        },
        0,
        b"x",
        false,
    )
    .unwrap();
    let attr = fs.symlink(&by_alice(b"link"), b"file").unwrap();
    assert_eq!((attr.uid, attr.gid), alices);
    let pipe = FileKind::Fifo.mode_bits() | 0o600;
    for mode in [dir_mode(0o755), pipe, 0o600] {
        let name = format!("made-{mode:o}");
        let attr = fs
            .make(&new_by(ALICE, root, name.as_bytes(), mode), Rdev::default())
            .unwrap();
        assert_eq!((attr.uid, attr.gid), alices, "{name}");
    }
    match fs.create_unnamed(&by_alice(b"/"), RDWR) {
        Err(error) => assert_eq!(errno(&error), Errno::OPNOTSUPP),
        Ok((attr, _)) => assert_eq!((attr.uid, attr.gid), alices),
    }
    let device = FileKind::CharDevice.mode_bits() | 0o600;
    let null = Rdev { major: 1, minor: 3 };
    match fs.make(&new(root, b"null", device), null) {
        Err(error) => {
            assert_eq!(errno(&error), Errno::PERM);
            eprintln!("no devices here, left out");
        }
        Ok(_) => {
            let by_alice = new_by(ALICE, root, b"null-2", device);
            let attr = fs.make(&by_alice, null).unwrap();
            assert_eq!((attr.uid, attr.rdev), (ALICE.uid, null));
        }
    }
    let of_root_in_a_group = Caller {
        uid: 0,
        gid: 5,
        ..Caller::default()
    };
    let (attr, _) = fs
        .create(&new_by(of_root_in_a_group, root, b"g", 0o600), RDWR)
        .unwrap();
    assert_eq!((attr.uid, attr.gid), (0, 5));

    // A refusal restores the thread as well.
    assert_errno(fs.create(&by_alice(b"file"), RDWR | EXCL), Errno::EXIST);
    let nobody = Caller {
        uid: u32::MAX,
        ..ALICE
    };
    assert_errno(
        fs.create(&new_by(nobody, root, b"x", 0o600), RDWR),
        Errno::OVERFLOW,
    );
    assert_eq!(thread_status(), before);
}

#[test]
fn without_privileges_all_belongs_to_the_process() {
    if rustix::process::geteuid().is_root() {
        eprintln!("root, left out: making files without privileges");
        return;
    }
    let (_dir, fs) = host_fs();
    let (attr, _) = fs
        .create(&new_by(ALICE, fs.root(), b"a", 0o600), RDWR)
        .unwrap();
    assert_eq!(attr.uid, myself().uid);
}

#[test]
fn a_set_gid_directory_hands_on_its_group() {
    if !is_root_or_says("set-gid directories") {
        return;
    }
    let (dir, fs) = host_fs();
    let root = fs.root();
    std::os::unix::fs::chown(dir.path(), Some(1), Some(777)).unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o2775)).unwrap();
    fs.create(&new_by(ALICE, root, b"file", 0o644), RDWR)
        .unwrap();
    fs.make(
        &new_by(ALICE, root, b"dir", dir_mode(0o755)),
        Rdev::default(),
    )
    .unwrap();
    fs.symlink(&new_by(ALICE, root, b"link", 0), b"x").unwrap();
    assert_eq!(owner(&dir.path().join("file")), (ALICE.uid, 777, 0o644));
    assert_eq!(owner(&dir.path().join("dir")), (ALICE.uid, 777, 0o2755));
    assert_eq!(owner(&dir.path().join("link")), (ALICE.uid, 777, 0o777));
    // Nobody makes a file run as a group they do not belong to.
    fs.create(&new_by(ALICE, root, b"run", 0o2755), RDWR)
        .unwrap();
    assert_eq!(owner(&dir.path().join("run")), (ALICE.uid, 777, 0o755));
}

#[test]
fn the_callers_umask_counts() {
    let (dir, fs) = host_fs();
    let root = fs.root();
    let made = |name, mode| New {
        umask: 0o027,
        ..new(root, name, mode)
    };
    fs.create(&made(b"file", 0o666), RDWR).unwrap();
    fs.make(&made(b"dir", dir_mode(0o777)), Rdev::default())
        .unwrap();
    fs.make(
        &made(b"pipe", FileKind::Fifo.mode_bits() | 0o666),
        Rdev::default(),
    )
    .unwrap();
    assert_eq!(owner(&dir.path().join("file")).2, 0o640);
    assert_eq!(owner(&dir.path().join("dir")).2, 0o750);
    assert_eq!(owner(&dir.path().join("pipe")).2, 0o640);
}

/// The bytes of a default ACL as `system.posix_acl_default` holds them.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for &(tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn a_default_acl_takes_the_place_of_the_umask() {
    const NONE: u32 = u32::MAX;
    let (dir, fs) = host_fs();
    let root = fs.root();
    // user::rwx user:99:rwx group::r-x mask::rwx other::r--
    let entries = [
        (1, 7, NONE),
        (2, 7, 99),
        (4, 5, NONE),
        (0x10, 7, NONE),
        (0x20, 4, NONE),
    ];
    let default = acl(&entries);
    match fs.setxattr(root, b"system.posix_acl_default", &default, 0) {
        Err(error) if errno(&error) == Errno::OPNOTSUPP => {
            eprintln!("no ACLs here, left out");
            return;
        }
        result => result.unwrap(),
    }
    let caller = match is_root_or_says("ACLs for other callers") {
        true => ALICE,
        false => myself(),
    };
    let made = |name, mode| New {
        umask: 0o077,
        ..new_by(caller, root, name, mode)
    };
    let (file, _) = fs.create(&made(b"file", 0o666), RDWR).unwrap();
    let sub = fs
        .make(&made(b"dir", dir_mode(0o777)), Rdev::default())
        .unwrap();
    // The group bits are those of the mask; `umask` would have left nothing of them.
    assert_eq!((file.uid, file.perm), (caller.uid, 0o664));
    assert_eq!(sub.perm, 0o774);
    assert_eq!(
        fs.getxattr(sub.ino, b"system.posix_acl_default").unwrap(),
        default
    );
    let access = fs.getxattr(file.ino, b"system.posix_acl_access").unwrap();
    let masked = [
        (1, 6, NONE),
        (2, 7, 99),
        (4, 5, NONE),
        (0x10, 6, NONE),
        (0x20, 4, NONE),
    ];
    assert_eq!(access, acl(&masked));
    assert!(dir.path().join("file").exists());
}

#[test]
fn set_id_bits_go_when_someone_without_privileges_writes() {
    if !is_root_or_says("set-id bits") {
        return;
    }
    let (_dir, fs) = host_fs();
    let root = fs.root();
    let (attr, file) = create(&fs, root, b"a");
    let ino = attr.ino;
    // Version 2, effective, CAP_NET_RAW.
    let mut capability = [0_u8; 20];
    capability[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
    let arm = |perm| {
        let perm = Changes {
            perm: Some(perm),
            ..Changes::default()
        };
        assert_eq!(
            fs.change(ino, None, &perm).unwrap().perm,
            perm.perm.unwrap()
        );
        fs.setxattr(ino, b"security.capability", &capability, 0)
            .unwrap();
    };
    let disarmed = || {
        let perm = fs.getattr(ino).unwrap().perm;
        assert_errno(fs.getxattr(ino, b"security.capability"), Errno::NODATA);
        perm
    };

    arm(0o6755);
    fs.write(file, 0, b"x", true).unwrap();
    assert_eq!(disarmed(), 0o755);
    arm(0o6745);
    fs.write(file, 0, b"x", true).unwrap();
    assert_eq!(disarmed(), 0o745);
    arm(0o6755);
    fs.write(file, 0, b"x", false).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().perm, 0o6755);

    let cut = Changes {
        size: Some(0),
        drops_privileges: true,
        ..Changes::default()
    };
    for file in [None, Some(file)] {
        arm(0o6755);
        assert_eq!(fs.change(ino, file, &cut).unwrap().perm, 0o755);
        disarmed();
    }
    arm(0o6755);
    let owner = Changes {
        uid: Some(5),
        ..Changes::default()
    };
    assert_eq!(fs.change(ino, None, &owner).unwrap().perm, 0o755);
    disarmed();
}

#[test]
fn many_threads_act_for_many_callers() {
    if !is_root_or_says("acting for others") {
        return;
    }
    let (_dir, fs) = host_fs();
    let fs: &HostFs = &fs;
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            scope.spawn(move || {
                let root = fs.root();
                for step in 0..200 {
                    let caller = Caller {
                        uid: thread * 1000 + step,
                        gid: thread + 50,
                        ..Caller::default()
                    };
                    let name = format!("{thread}-{step}");
                    let new = new_by(caller, root, name.as_bytes(), 0o600);
                    let (attr, handle) = fs.create(&new, RDWR).unwrap();
                    assert_eq!((attr.uid, attr.gid), (caller.uid, caller.gid));
                    fs.release(OpenFile {
                        ino: attr.ino,
                        handle,
                    });
                    assert_eq!(fs.lookup(root, name.as_bytes()).unwrap().ino, attr.ino);
                    fs.forget(attr.ino, 1);
                    if step % 2 == 0 {
                        fs.unlink(root, name.as_bytes()).unwrap();
                    }
                    assert_eq!(fs.getattr(attr.ino).unwrap().uid, caller.uid);
                    fs.forget(attr.ino, 1);
                }
            });
        }
    });
    assert_eq!(list(fs, fs.root()).len(), 402);
}
