//! Descriptors are held as long as inodes are known, and no longer. The only test of its program: it
//! counts what the whole process has open.

mod support;

use anteros_core::{FileSystem, OpenFile, Writable};
use rustix::io::Errno;

use crate::support::*;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn what_is_forgotten_is_closed() {
    let (dir, fs) = host_fs();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(limit.current, limit.maximum);
    let root = fs.root();
    let before = open_descriptors();

    let (attr, file) = create(&fs, root, b"a");
    assert_eq!(open_descriptors(), before + 2);
    fs.release(file);
    assert_eq!(open_descriptors(), before + 1);
    for _ in 0..3 {
        fs.lookup(root, b"a").unwrap();
    }
    fs.link(attr.ino, root, b"b").unwrap();
    // Known five times by now, held once.
    assert_eq!(open_descriptors(), before + 1);
    fs.forget(attr.ino, 4);
    assert_eq!(fs.getattr(attr.ino).unwrap().nlink, 2);
    fs.forget(attr.ino, 1);
    assert_eq!(open_descriptors(), before);
    assert_errno(fs.getattr(attr.ino), Errno::NOENT);
    assert_eq!(fs.lookup(root, b"b").unwrap().ino, attr.ino);
    fs.forget(attr.ino, 100);
    fs.forget(attr.ino, 1);
    assert_eq!(open_descriptors(), before);

    // What fails leaves nothing behind.
    let sub = mkdir(&fs, root, b"sub").ino;
    fs.symlink(&new(root, b"link", 0), b"x").unwrap();
    let held = open_descriptors();
    let link = fs.lookup(root, b"link").unwrap().ino;
    fs.forget(link, 1);
    assert_errno(fs.create(&new(root, b"link", 0o600), RDWR), Errno::LOOP);
    assert_errno(fs.create(&new(root, b"sub", 0o600), RDWR), Errno::ISDIR);
    assert_errno(fs.lookup(root, b"missing"), Errno::NOENT);
    assert_eq!(open_descriptors(), held);
    fs.forget(link, 1);
    fs.forget(sub, 1);
    assert_eq!(open_descriptors(), before);

    // A listing makes nothing known.
    for index in 0..100 {
        std::fs::write(dir.path().join(format!("file-{index}")), b"").unwrap();
    }
    let open_dir = OpenFile {
        ino: root,
        handle: fs.open_dir(root).unwrap(),
    };
    assert_eq!(list_some(&fs, open_dir, 0, 1000).len(), 106);
    assert_eq!(open_descriptors(), before + 1);
    fs.release_dir(open_dir);
    assert_eq!(open_descriptors(), before);

    // Unless it is looked up: that counts as any other lookup does.
    let listed = fs.lookup_listed(root, b"file-7").unwrap();
    assert_eq!(fs.lookup_listed(root, b"file-7"), Some(listed));
    assert_eq!(open_descriptors(), before + 1);
    assert_eq!(fs.lookup_listed(root, b"gone meanwhile"), None);
    fs.forget(listed.ino, 1);
    assert_eq!(fs.getattr(listed.ino).unwrap(), listed);
    fs.forget(listed.ino, 1);
    assert_eq!(open_descriptors(), before);

    // The root is never forgotten.
    fs.forget(root, u64::MAX);
    assert!(fs.getattr(root).is_ok());
    drop(fs);
    // The root itself and `/proc/self/fd`.
    assert_eq!(open_descriptors(), before - 2);
}
