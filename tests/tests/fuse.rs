//! Our FUSE mount equals the kernel's mount of the same image: byte for byte, stat for stat, in the order of names, in
//! attributes, holes and errors.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_image::ImageFs;
use anteros_tests::host::{HostFs, stat};
use anteros_tests::judge::{has_fuse, has_kernel, say};
use anteros_tests::manifest::{details, difference, holes, listing, manifest};
use anteros_tests::mount::{FuseMount, KernelMount};
use anteros_tests::{fixtures, open};
use rustix::fs::Statx;
use rustix::io::Errno;

#[test]
fn our_mount_equals_the_kernels() {
    if !has_kernel() || !has_fuse() {
        return;
    }
    let mut judged = 0;
    for (path, extra) in fixtures() {
        let Ok(kernel) = KernelMount::new(&path, &extra) else {
            say(format_args!(
                "MISSING JUDGE: the kernel does not mount {}",
                path.display()
            ));
            continue;
        };
        let ours = FuseMount::new(Arc::new(ImageFs::new(Arc::new(open(&path, &extra)))));
        compare(&path, ours.path(), kernel.path());
        judged += 1;
    }
    say(format_args!(
        "our FUSE mount equals the kernel's: {judged} images"
    ));
    assert!(judged >= 20, "only {judged} images were judged");
}

fn compare(image: &Path, ours: &Path, kernel: &Path) {
    for view in [manifest, details, holes, listing] {
        let (found, expected) = (
            view(&HostFs::new(ours)).unwrap(),
            view(&HostFs::new(kernel)).unwrap(),
        );
        if let Some(difference) = difference(&found, &expected) {
            panic!("{}: {difference}", image.display());
        }
    }
    for path in paths(kernel, Path::new("")) {
        let (found, expected) = (
            stat(&ours.join(&path)).unwrap(),
            stat(&kernel.join(&path)).unwrap(),
        );
        assert_eq!(
            text(&found),
            text(&expected),
            "{}: {}",
            image.display(),
            path.display()
        );
        missing_attributes_are_missing(&ours.join(&path), &kernel.join(&path));
    }
    same_space(ours, kernel);
    nothing_can_be_written(ours, kernel);
    missing_names_are_missing(ours);
}

/// All paths below a directory, itself included, relative to it.
fn paths(root: &Path, path: &Path) -> Vec<PathBuf> {
    let mut paths = vec![path.to_owned()];
    if stat(&root.join(path)).unwrap().stx_mode & 0o170_000 == 0o040_000 {
        for entry in fs::read_dir(root.join(path)).unwrap() {
            paths.extend(self::paths(root, &path.join(entry.unwrap().file_name())));
        }
    }
    paths
}

/// Returns what `stat` says, times of access and change included; `statx` alone would add what one file system happens
/// to fill in beyond that.
fn text(stat: &Statx) -> String {
    let times =
        [stat.stx_atime, stat.stx_mtime, stat.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec));
    format!(
        "ino {} mode {:o} nlink {} owner {}:{} size {} blocks {} of {} device {}:{} times {times:?}",
        stat.stx_ino,
        stat.stx_mode,
        stat.stx_nlink,
        stat.stx_uid,
        stat.stx_gid,
        stat.stx_size,
        stat.stx_blocks,
        stat.stx_blksize,
        stat.stx_rdev_major,
        stat.stx_rdev_minor,
    )
}

fn missing_attributes_are_missing(ours: &Path, kernel: &Path) {
    let mut value = [0; 4096];
    // Of a name that no EROFS could hold, as `system.none`, the kernel says EOPNOTSUPP and we ENODATA.
    for name in [
        "user.no-such-name",
        "trusted.none",
        "security.none",
        "system.posix_acl_access",
    ] {
        let get = |path: &Path, value: &mut [u8]| rustix::fs::lgetxattr(path, name, value);
        let (found, expected) = (get(ours, &mut value), get(kernel, &mut value));
        assert_eq!(found, expected, "{name} of {}", ours.display());
    }
    // Too little room.
    let get = |path: &Path| rustix::fs::lgetxattr(path, "user.comment", &mut [0; 2]);
    assert_eq!(get(ours), get(kernel), "{}", ours.display());
}

fn same_space(ours: &Path, kernel: &Path) {
    let space = |path: &Path| {
        let stat = rustix::fs::statfs(path).unwrap();
        (
            stat.f_bsize,
            stat.f_blocks,
            stat.f_bfree,
            stat.f_bavail,
            stat.f_files,
            stat.f_ffree,
            stat.f_namelen,
        )
    };
    assert_eq!(space(ours), space(kernel));
}

/// Each attempt fails as it does on the kernel's mount: mostly because it is read-only.
fn nothing_can_be_written(ours: &Path, kernel: &Path) {
    type Attempt = (&'static str, fn(&Path) -> io::Result<()>);
    let attempts: [Attempt; 10] = [
        ("create", |root| fs::write(root.join("new"), b"new")),
        ("overwrite", |root| {
            fs::write(root.join("data/hello"), b"new")
        }),
        ("append", |root| {
            fs::OpenOptions::new()
                .append(true)
                .open(root.join("data/hello"))
                .map(drop)
        }),
        ("make a directory", |root| fs::create_dir(root.join("new"))),
        ("make a link", |root| symlink("new", root.join("new"))),
        ("link", |root| {
            fs::hard_link(root.join("data/hello"), root.join("new"))
        }),
        ("remove", |root| fs::remove_file(root.join("data/hello"))),
        ("remove a directory", |root| {
            fs::remove_dir(root.join("data"))
        }),
        ("rename", |root| {
            fs::rename(root.join("data/hello"), root.join("data/new"))
        }),
        ("set an attribute", |root| {
            let flags = rustix::fs::XattrFlags::empty();
            Ok(rustix::fs::setxattr(
                root.join("data/hello"),
                "user.new",
                b"new",
                flags,
            )?)
        }),
    ];
    for (name, attempt) in attempts {
        let errno = |root: &Path| Errno::from_io_error(&attempt(root).unwrap_err()).unwrap();
        assert_eq!(errno(ours), Errno::ROFS, "{name}");
        assert_eq!(errno(kernel), Errno::ROFS, "{name}");
    }
}

fn missing_names_are_missing(ours: &Path) {
    let missing = |name: &[u8], errno| {
        let path = ours.join(std::ffi::OsStr::from_bytes(name));
        assert_eq!(stat(&path).unwrap_err(), errno, "{}", path.display());
    };
    missing(b"no such name", Errno::NOENT);
    missing(b"data/no such name", Errno::NOENT);
    missing(b"data/hello/below a file", Errno::NOTDIR);
    missing(&[b'n'; 256], Errno::NAMETOOLONG);
}
