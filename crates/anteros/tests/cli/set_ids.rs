//! Set-id bits, and who may keep them: through a mount they go when they go on any other file system.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;

use anteros_tests::judge;
use rustix::fs::{FallocateFlags, XattrFlags, copy_file_range, fallocate, setxattr};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use tempfile::TempDir;

use crate::NOBODY;
use crate::log::{mount, mounted, unmount};
use crate::mirror::{Mirror, WAYS};

/// A group that nobody is in.
const SECRET: u32 = 4242;

/// Entries of access lists: tag, permissions, id.
pub type Entries<'a> = &'a [(u16, u16, u32)];

/// States what the mode says, as a list.
pub const PLAIN: Entries<'_> = &[(1, 7, u32::MAX), (4, 5, u32::MAX), (0x20, 5, u32::MAX)];

/// A list that lets another user execute as well.
const NAMED: Entries<'_> = &[
    (1, 7, u32::MAX),
    (2, 5, 77),
    (4, 5, u32::MAX),
    (0x10, 5, u32::MAX),
    (0x20, 5, u32::MAX),
];

/// Tells who changes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Actor {
    User,
    Root,
    /// Root without the privilege to keep set-id bits.
    LesserRoot,
}

/// Holds what is done to a file, by its name.
type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 11] = [
    ("write", |path| opened(path).write_all_at(b"x", 0).unwrap()),
    ("append", |path| {
        let file = OpenOptions::new().append(true).open(path).unwrap();
        rustix::io::write(file, b"x").map(drop).unwrap();
    }),
    ("truncate", |path| opened(path).set_len(1).unwrap()),
    ("open to cut off", |path| drop(File::create(path).unwrap())),
    ("allocate", |path| {
        fallocate(opened(path), FallocateFlags::empty(), 0, 9000).unwrap();
    }),
    ("punch", |path| {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(opened(path), mode, 0, 4096).unwrap();
    }),
    ("copy a range", |path| {
        let from = File::open(path.with_file_name("from")).unwrap();
        assert_eq!(copy_file_range(from, None, opened(path), None, 3), Ok(3));
    }),
    ("chown to nobody else", |path| {
        rustix::fs::chown(path, None, None).unwrap();
    }),
    ("chown to the same", |path| {
        chown(path, Some(fs::metadata(path).unwrap().uid()), None).unwrap();
    }),
    ("list that is a mode", |path| set_list(path, PLAIN)),
    ("list", |path| set_list(path, NAMED)),
];

fn opened(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn list(entries: Entries<'_>) -> Vec<u8> {
    let mut list = vec![2, 0, 0, 0];
    for (tag, perm, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(perm.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

pub fn set_list(path: &Path, entries: Entries<'_>) {
    let name = "system.posix_acl_access";
    setxattr(path, name, &list(entries), XattrFlags::empty()).unwrap();
}

/// Does something as someone else, in a thread of its own.
fn act<T: Send>(actor: Actor, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_actor(actor).unwrap();
            act()
        });
        thread.join().unwrap()
    })
}

fn become_actor(actor: Actor) -> rustix::io::Result<()> {
    match actor {
        Actor::Root => Ok(()),
        Actor::LesserRoot => {
            let ours = capabilities(None)?;
            let effective = ours.effective - CapabilitySet::FSETID;
            set_capabilities(None, CapabilitySets { effective, ..ours })
        }
        Actor::User => {
            let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            set_thread_groups(&[])?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)
        }
    }
}

/// Makes a file of a user, in a group that is not theirs.
fn armed(path: &Path, perm: u32) {
    let _ = fs::remove_file(path);
    fs::write(path, "content").unwrap();
    chown(path, Some(NOBODY), Some(SECRET)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(perm)).unwrap();
    assert_eq!(mode(path), perm);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Arms files in a directory, has `actor` change them, and says what modes they have then, at once.
fn outcomes(dir: &Path, actor: Actor, changes: &[Change]) -> String {
    let mut text = String::new();
    fs::write(dir.join("from"), "other").unwrap();
    for (name, change) in changes {
        for perm in [0o6755, 0o6745, 0o4755, 0o2745] {
            let path = dir.join("armed");
            armed(&path, perm);
            act(actor, || change(&path));
            let _ = writeln!(text, "{actor:?}, {name}, {perm:o}: {:o}", mode(&path));
        }
    }
    text
}

/// Returns what someone does who wants a program to run with the group of a directory that all may write to.
fn group_gained(dir: &Path) -> String {
    chown(dir, None, Some(SECRET)).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o2777)).unwrap();
    let path = dir.join("program");
    act(Actor::User, || {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).mode(0o2745).open(&path);
        let file = file.unwrap();
        let mut text = format!("{:o}", file.metadata().unwrap().mode());
        file.write_all_at(b"#!/bin/id", 0).unwrap();
        let _ = write!(text, " {:o}", mode(&path));
        set_list(&path, PLAIN);
        let _ = write!(text, " {:o}", mode(&path));
        let group = file.as_fd().try_clone_to_owned().map(File::from).unwrap();
        let group = group.metadata().unwrap().gid();
        format!("{text} {group}")
    })
}

fn by_all(dir: &Path, changes: &[Change]) -> String {
    let actors = [Actor::User, Actor::LesserRoot, Actor::Root];
    let texts = actors.map(|actor| outcomes(dir, actor, changes));
    texts.concat() + &group_gained(dir)
}

/// The outcomes in which a mount is like any other file system. The bit of a group that may not execute it loses by root's
/// `chown` as well, as the kernel does not say whether root has all privileges. And root may not be asked for at all.
fn comparable(text: &str, root_keeps_set_ids: bool) -> Vec<String> {
    let is_comparable = |line: &&str| {
        let is_chown = line.starts_with("Root, chown") && line.contains("745: ");
        (root_keeps_set_ids || !line.starts_with("Root, ")) && !is_chown
    };
    let lines = text.lines().filter(is_comparable);
    lines.map(str::to_owned).collect()
}

/// A directory beside the mounts, on a file system of the kernel.
fn native(changes: &[Change]) -> String {
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    by_all(dir.path(), changes)
}

fn can_act() -> bool {
    if !judge::is_root() {
        judge::missing("users beside root");
    }
    judge::is_root() && judge::has_fuse()
}

#[test]
fn set_id_bits_go_through_a_mirror_as_they_do_without() {
    if !can_act() {
        return;
    }
    let wanted = native(&CHANGES);
    for way in WAYS {
        let source = TempDir::new().unwrap();
        let mirror = Mirror::new(source.path(), way, "--allow-other --timeout 3600");
        fs::set_permissions(mirror.root(), fs::Permissions::from_mode(0o777)).unwrap();
        let found = by_all(mirror.root(), &CHANGES);
        let lines = |text| comparable(text, way.root_keeps_set_ids);
        assert_eq!(lines(&found), lines(&wanted), "{way}");
        for name in ["armed", "program"] {
            let behind = mode(&source.path().join(name));
            assert_eq!(behind, mode(&mirror.path(name)), "{way}: {name}");
        }
        mirror.unmount();
    }
}

#[test]
fn set_id_bits_go_in_a_log_as_they_do_elsewhere() {
    if !can_act() {
        return;
    }
    let wanted = native(&CHANGES);
    let (shop, daemon) = mounted("64M");
    let dir = shop.path("mnt");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    let found = by_all(&dir, &CHANGES);
    assert_eq!(comparable(&found, true), comparable(&wanted, true));
    unmount(&shop, daemon);
}

/// A list that is refused changes nothing; one that is but a mode changes the time of change.
#[test]
fn an_access_list_changes_all_of_a_file_or_nothing() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("64M");
    let path = shop.path("mnt/file");
    fs::write(&path, "content").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    for part in 0.. {
        let set = |len| {
            let name = format!("user.{part}");
            setxattr(&path, name, &vec![1; len], XattrFlags::empty())
        };
        if set(500).is_err() && set(1).is_err() {
            break;
        }
    }
    let name = "system.posix_acl_access";
    let full = setxattr(&path, name, &list(NAMED), XattrFlags::empty());
    assert_eq!(full, Err(Errno::NOSPC));
    assert_eq!(mode(&path), 0o640);
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    assert_eq!(mode(&path), 0o640, "after another mount");

    let time = || {
        let file = fs::metadata(&path).unwrap();
        (file.ctime(), file.ctime_nsec())
    };
    let before = time();
    set_list(&path, PLAIN);
    assert_eq!(mode(&path), 0o755);
    assert!(time() > before);
    unmount(&shop, daemon);
}
