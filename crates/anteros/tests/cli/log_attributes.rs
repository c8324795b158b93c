//! Extended attributes of up to 64 KiB in a log, through the kernel.

use std::fs;
use std::path::Path;
use std::process::Command;

use anteros_tests::judge;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::log::{kill_daemon, mount, mounted, unmount};
use crate::run;

/// The most bytes that Linux lets an attribute have.
const VALUE_BYTES_MAX: usize = 65_536;

fn value(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + at / 256 + seed) as u8)
        .collect()
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; VALUE_BYTES_MAX];
    let len = getxattr(path, name, &mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}

fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    setxattr(path, name, value, XattrFlags::empty())
}

fn copy(from: &Path, to: &Path) {
    let copied = run(Command::new("cp").arg("-a").arg(from).arg(to));
    assert_eq!((copied.status, &copied.err[..]), (Some(0), ""));
}

#[test]
fn attributes_are_as_large_as_linux_lets_them_be() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, mut daemon) = mounted("64M");
    let path = shop.path("mnt/f");
    fs::write(&path, "content").unwrap();
    let lens = [4000, 4062, 5000, VALUE_BYTES_MAX];
    for (n, len) in lens.into_iter().enumerate() {
        set(&path, &format!("user.{n}"), &value(n, len)).unwrap();
    }
    set(&path, "user.name", b"short").unwrap();
    copy(&path, &shop.path("mnt/copy"));
    fs::File::open(&path).unwrap().sync_all().unwrap();
    for round in 0..3 {
        for path in ["mnt/f", "mnt/copy"].map(|path| shop.path(path)) {
            for (n, len) in lens.into_iter().enumerate() {
                let found = get(&path, &format!("user.{n}")).unwrap();
                assert!(found == value(n, len), "round {round}, {n}");
            }
            assert_eq!(get(&path, "user.name").unwrap(), b"short");
            let mut names = vec![0; 1000];
            let len = listxattr(&path, &mut names).unwrap();
            assert_eq!(len, 4 * "user.0.".len() + "user.name.".len());
        }
        match round {
            0 => kill_daemon(&shop, daemon),
            _ => unmount(&shop, daemon),
        }
        daemon = mount(&shop, "");
    }
    // What does not fit with the others changes nothing.
    for n in 4..7 {
        let _ = set(&path, &format!("user.{n}"), &value(n, VALUE_BYTES_MAX));
    }
    let full = set(&path, "user.more", &value(9, VALUE_BYTES_MAX));
    assert_eq!(full, Err(Errno::NOSPC));
    assert!(get(&path, "user.3").unwrap() == value(3, VALUE_BYTES_MAX));
    removexattr(&path, "user.3").unwrap();
    assert_eq!(get(&path, "user.3"), Err(Errno::NODATA));
    unmount(&shop, daemon);
}

/// As many entries as the kernel passes on to a daemon, twice, in a directory, and what is made in it.
#[test]
fn long_access_lists_are_kept_and_inherited() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, mut daemon) = mounted("64M");
    let mut list = 2_u32.to_le_bytes().to_vec();
    let mut add = |tag: u16, id: u32| {
        list.extend([tag.to_le_bytes(), 7_u16.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    };
    add(1, u32::MAX);
    (0..500).for_each(|user| add(2, 1000 + user));
    for tag in [4, 0x10, 0x20] {
        add(tag, u32::MAX);
    }
    let dir = shop.path("mnt/dir");
    fs::create_dir(&dir).unwrap();
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    set(&dir, access, &list).unwrap();
    set(&dir, default, &list).unwrap();
    fs::create_dir(dir.join("below")).unwrap();
    for _ in 0..2 {
        for name in [access, default] {
            assert!(get(&dir, name).unwrap() == list, "{name}");
            assert_eq!(get(&dir.join("below"), name).unwrap().len(), list.len());
        }
        unmount(&shop, daemon);
        daemon = mount(&shop, "");
    }
    unmount(&shop, daemon);
}
