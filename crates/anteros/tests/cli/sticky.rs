//! Tests who may do what to a mirrored directory, and who may know what of a mount: as where there is none.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;

use anteros_tests::judge;
use rustix::fs::{CWD, RenameFlags, XattrFlags, getxattr, renameat_with, setxattr};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tempfile::TempDir;

use crate::mirror::{Mirror, WAYS, Way};
use crate::{NOBODY, Workshop, wait_until};

/// A group of others.
const TEAM: u32 = 4243;

/// Does something as a user, who is in these groups besides their own, in a thread of its own.
fn as_user<T: Send>(groups: &[u32], act: impl FnOnce() -> T + Send) -> T {
    let groups: Vec<_> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            act()
        });
        thread.join().unwrap()
    })
}

fn can_act() -> bool {
    if !judge::is_root() {
        judge::missing("users beside root");
    }
    judge::is_root() && judge::has_fuse()
}

/// A directory that everybody may write to, beside no mount, or with one.
fn open_to_all() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    dir
}

/// Returns what a test finds in a directory itself and, by every way, in one that is mirrored: both are given what is
/// behind it.
fn everywhere(options: &str, find: impl Fn(&Path, &Path) -> String) {
    let plain = open_to_all();
    let wanted = find(plain.path(), plain.path());
    let check = |way: Way| {
        let source = open_to_all();
        let mirror = Mirror::new(source.path(), way, options);
        assert_eq!(find(mirror.root(), source.path()), wanted, "{way}");
        mirror.unmount();
    };
    WAYS.into_iter().for_each(check);
}

/// A file or directory of a user, which the mount knows by its name.
fn make(dir: &Path, name: &str, is_dir: bool) {
    let path = dir.join(name);
    as_user(&[], || match is_dir {
        true => fs::create_dir(&path).unwrap(),
        false => fs::write(&path, "theirs").unwrap(),
    });
    assert_eq!(fs::metadata(&path).unwrap().uid(), NOBODY);
}

/// Puts something of root's in place of what the mount knows.
fn replace(behind: &Path, name: &str, is_dir: bool) {
    let path = behind.join(name);
    if is_dir {
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
    } else {
        fs::remove_file(&path).unwrap();
        fs::write(&path, "root's").unwrap();
    }
}

type Removal = (&'static str, bool, fn(&Path, &Path) -> io::Result<()>);

const REMOVALS: [Removal; 5] = [
    ("unlink", false, |path, _| fs::remove_file(path)),
    ("rmdir", true, |path, _| fs::remove_dir(path)),
    ("rename", false, |path, dir| {
        fs::rename(path, dir.join("elsewhere"))
    }),
    ("replace", false, |path, dir| {
        fs::rename(dir.join("own"), path)
    }),
    ("exchange", false, |path, dir| {
        let own = dir.join("own");
        Ok(renameat_with(CWD, own, CWD, path, RenameFlags::EXCHANGE)?)
    }),
];

#[test]
fn what_has_passed_to_others_is_not_removed_from_a_sticky_directory() {
    if !can_act() {
        return;
    }
    everywhere("--allow-other --timeout 3600", |root, behind| {
        let mut text = String::new();
        let dir = root.join("sticky");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).unwrap();
        make(&dir, "own", false);
        for (what, is_dir, remove) in REMOVALS {
            make(&dir, what, is_dir);
            replace(&behind.join("sticky"), what, is_dir);
            let removed = as_user(&[], || remove(&dir.join(what), &dir));
            let _ = writeln!(text, "{what}: {:?}", removed.map_err(|e| e.kind()));
            let owner = fs::metadata(behind.join("sticky").join(what));
            let _ = writeln!(text, "{:?}", owner.map(|there| there.uid()).ok());
        }
        // One's own goes, and that in a directory of one's own.
        for (what, is_dir, remove) in REMOVALS {
            let name = format!("own {what}");
            make(&dir, &name, is_dir);
            let removed = as_user(&[], || remove(&dir.join(&name), &dir));
            let _ = writeln!(text, "{name}: {:?}", removed.map_err(|e| e.kind()));
            if !dir.join("own").exists() {
                make(&dir, "own", false);
            }
        }
        text
    });
}

#[test]
fn members_of_a_directorys_group_keep_the_bit_of_what_they_make() {
    if !can_act() {
        return;
    }
    everywhere("--allow-other", |root, _| {
        let mut text = String::new();
        for (perm, dir_perm) in [(0o2755, 0o2777), (0o2745, 0o2777), (0o2755, 0o777)] {
            for groups in [&[][..], &[TEAM], &[TEAM + 1, TEAM, TEAM + 2]] {
                let dir = root.join("team");
                fs::create_dir(&dir).unwrap();
                chown(&dir, None, Some(TEAM)).unwrap();
                fs::set_permissions(&dir, fs::Permissions::from_mode(dir_perm)).unwrap();
                as_user(groups, || {
                    let mut options = OpenOptions::new();
                    options.write(true).create_new(true).mode(perm);
                    options.open(dir.join("file")).unwrap();
                    let (kind, mode) = (rustix::fs::FileType::Fifo, perm.into());
                    rustix::fs::mknodat(CWD, dir.join("pipe"), kind, mode, 0).unwrap();
                    fs::create_dir(dir.join("dir")).unwrap();
                });
                for name in ["file", "pipe", "dir"] {
                    let made = fs::metadata(dir.join(name)).unwrap();
                    let (mode, uid, gid) = (made.mode(), made.uid(), made.gid());
                    let _ = writeln!(text, "{groups:?} {dir_perm:o} {name}: {mode:o} {uid} {gid}");
                }
                fs::remove_dir_all(&dir).unwrap();
            }
        }
        assert!(
            text.contains(&format!("[{TEAM}] 2777 file: 102755 {NOBODY} {TEAM}")),
            "{text}"
        );
        text
    });
}

#[test]
fn a_whiteout_belongs_to_who_renames() {
    if !can_act() {
        return;
    }
    everywhere("--allow-other", |root, _| {
        let (from, to) = (root.join("from"), root.join("to"));
        make(root, "from", false);
        let flags = RenameFlags::WHITEOUT;
        let renamed = as_user(&[], || renameat_with(CWD, &from, CWD, &to, flags));
        let left = fs::symlink_metadata(&from);
        let left = left.map(|left| (left.mode(), left.uid(), left.gid(), left.rdev()));
        format!("{renamed:?} {:?} {}", left.ok(), to.exists())
    });
}

#[test]
fn attributes_of_files_are_not_hidden_by_what_is_told_of_them() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let source = TempDir::new().unwrap();
        let mirror = Mirror::new(source.path(), way, "");
        let path = mirror.path("file");
        fs::write(&path, "").unwrap();
        for name in ["user.anteros.data", "user.anteros.metrics"] {
            setxattr(&path, name, b"mine", XattrFlags::empty()).unwrap();
            let mut value = [0; 64];
            let len = getxattr(&path, name, &mut value).unwrap();
            assert_eq!(&value[..len], b"mine", "{way}: {name}");
        }
        let name: &CStr = c"anteros.data";
        let set = setxattr(source.path().join("file"), name, b"x", XattrFlags::empty());
        assert_eq!(set, Err(Errno::OPNOTSUPP), "nobody can have it");
        mirror.unmount();
    }
}

/// A fault is told with the name of its file, which may lie where others may not look.
#[test]
fn names_of_broken_files_are_told_to_root_alone() {
    if !can_act() {
        return;
    }
    let shop = Workshop::new();
    shop.good("mkfs image src -zlz4hc,9 -C4096");
    fs::create_dir(shop.path("mnt")).unwrap();
    let image = OpenOptions::new().write(true).open(shop.path("image"));
    image.unwrap().write_all_at(&[0xff; 4096], 4096).unwrap();
    shop.good("mount --fuse --allow-other image mnt");
    let broken = File::open(shop.path("mnt/sub/text")).unwrap();
    assert!(broken.read_at(&mut [0; 4096], 0).is_err());
    drop(broken);
    // A thread of its own finds the name.
    wait_until(|| shop.good("stat mnt").contains("/sub/text"));
    for options in ["", "--json", "--prometheus"] {
        let run = shop.run_as_nobody(&format!("stat {options} mnt"));
        assert_eq!(run.status, Some(0), "{}", run.err);
        assert!(!run.out.contains("/sub/text"), "{}", run.out);
    }
    wait_until(|| shop.run("umount mnt").status == Some(0));
}
