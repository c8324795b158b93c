//! A log in a sparse file, on a file system that is full.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_tests::judge;

use crate::log::{mount, umount, unmount};
use crate::unreadable_log::noise;
use crate::{Workshop, is_mounted, run, wait_until};

/// A file system of so many MiB in a directory `store`.
pub struct Store(pub PathBuf);

impl Store {
    /// Says so if that cannot be.
    fn new(shop: &Workshop, mib: u32) -> Option<Self> {
        if !judge::is_root() || !judge::has_fuse() {
            judge::missing("a file system of the test's own");
            return None;
        }
        let store = Self(shop.path("store"));
        fs::create_dir(&store.0).unwrap();
        fs::create_dir(shop.path("mnt")).unwrap();
        store.mount(&format!("size={mib}m"));
        std::os::unix::fs::symlink("store/log", shop.path("log")).unwrap();
        Some(store)
    }

    /// Makes such a file system of a kind that lies on a device.
    pub fn on_device(shop: &Workshop, kind: &str, mib: u64) -> Option<Self> {
        let make = format!("mkfs.{kind}");
        if !judge::is_root() || !judge::has_fuse() {
            judge::missing("a file system of the test's own");
            return None;
        }
        if !judge::has_program(&make) || !judge::has_file_system(kind) {
            return None;
        }
        let device = shop.path("device");
        File::create(&device).unwrap().set_len(mib << 20).unwrap();
        let made = run(Command::new(make).arg("-q").arg(&device));
        assert_eq!(made.status, Some(0), "{made:?}");
        let store = Self(shop.path("store"));
        fs::create_dir(&store.0).unwrap();
        fs::create_dir(shop.path("mnt")).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", kind, "-o", "loop"]).arg(device);
        let mounted = run(command.arg(&store.0));
        assert_eq!(mounted.status, Some(0), "{mounted:?}");
        std::os::unix::fs::symlink("store/log", shop.path("log")).unwrap();
        Some(store)
    }

    fn mount(&self, options: &str) {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let mounted = run(command.arg(&self.0));
        assert_eq!(mounted.status, Some(0), "{mounted:?}");
    }

    /// Leaves nothing of it, and returns what takes that.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut filler = File::create(&path).unwrap();
        while filler.write(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A daemon that a failed test leaves.
        run(Command::new("umount")
            .args(["--quiet", "--lazy"])
            .arg(self.0.with_file_name("mnt")));
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

const EACH: usize = 1 << 20;

/// Fills a log, however that compresses.
pub fn content(number: usize) -> Vec<u8> {
    noise(number as u64 + 1, EACH)
}

pub fn put(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(data)?;
    file.sync_all()
}

/// Writes files until one finds no room, and says how many there are.
pub fn fill(directory: &Path, first: usize) -> usize {
    for number in first.. {
        let path = directory.join(number.to_string());
        if let Err(error) = put(&path, &content(number)) {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            fs::remove_file(path).unwrap();
            return number - first;
        }
    }
    unreachable!()
}

pub fn judge_files(directory: &Path, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        assert!(
            fs::read(directory.join(number.to_string())).unwrap() == content(number),
            "{number}"
        );
    }
}

pub fn available(directory: &Path) -> u64 {
    let stat = rustix::fs::statvfs(directory).unwrap();
    stat.f_bavail * stat.f_frsize
}

#[test]
fn a_full_file_system_below_refuses_who_writes() {
    let shop = Workshop::new();
    let Some(store) = Store::new(&shop, 72) else {
        return;
    };
    shop.good("log mkfs store/log --size 400M");
    let daemon = mount(&shop, "--memory 1M");
    let mnt = shop.path("mnt");
    let count = fill(&mnt, 0);
    assert!(count >= 5, "{count}");
    judge_files(&mnt, 0..count);
    assert!(available(&mnt) < 3 << 20, "{}", available(&mnt));
    let said = shop.good("log stat mnt --json");
    assert!(!said.contains("failure\": \""), "{said}");

    // What is removed makes room, a moment later.
    for number in 0..3 {
        fs::remove_file(mnt.join(number.to_string())).unwrap();
    }
    wait_until(|| put(&mnt.join("0"), &content(0)).is_ok());
    judge_files(&mnt, (3..count).chain([0]));

    // So does whoever gives the file system below some.
    store.mount("remount,size=120m");
    wait_until(|| put(&mnt.join("more"), &content(0)).is_ok());
    assert!(fill(&mnt, 1000) > 10);
    judge_files(&mnt, (3..count).chain([0]));
    unmount(&shop, daemon);
}

#[test]
fn a_log_without_room_for_a_checkpoint_can_be_read() {
    let shop = Workshop::new();
    let Some(store) = Store::new(&shop, 96) else {
        return;
    };
    shop.good("log mkfs store/log --size 64M");
    let daemon = mount(&shop, "");
    put(&shop.path("mnt/0"), &content(0)).unwrap();
    unmount(&shop, daemon);
    // A copy has holes where nothing but zeros is.
    let (log, copy) = (shop.path("store/log"), shop.path("store/copy"));
    let copied = run(Command::new("cp")
        .arg("--sparse=always")
        .args([&log, &copy]));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    fs::rename(copy, log).unwrap();
    let filler = store.fill();

    let said = shop.run("log mount log mnt");
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(
        said.err.contains("read-only") && said.err.contains("full"),
        "{said:?}"
    );
    let mnt = shop.path("mnt");
    judge_files(&mnt, 0..1);
    let error = File::create(mnt.join("1")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    shop.umount("mnt");
    shop.good("log mount --read-only log mnt");
    judge_files(&mnt, 0..1);
    shop.umount("mnt");

    fs::remove_file(filler).unwrap();
    let daemon = mount(&shop, "");
    put(&mnt.join("1"), &content(1)).unwrap();
    umount(&shop);
    drop(daemon);
    wait_until(|| !is_mounted(&mnt));
}
