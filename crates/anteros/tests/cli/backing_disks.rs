//! A log in a sparse file on ext4 and XFS that are full: everything that one does with it then.

use std::fs::{self, File};
use std::io::ErrorKind;

use rustix::fs::{FallocateFlags, fallocate};

use crate::backing::{Store, available, fill, judge_files, put};
use crate::log::{mount, umount, unmount};
use crate::{Workshop, file_system_at, is_mounted, wait_until};

/// States how much is left for the log to fill.
const ROOM: u64 = 24 << 20;

/// Files that are removed when nothing is left.
const REMOVED: usize = 16;

fn content(number: usize) -> Vec<u8> {
    crate::backing::content(number)
}

/// Fills what is below a mounted log, and the log with it.
fn fill_both(shop: &Workshop, store: &Store) -> usize {
    let mnt = shop.path("mnt");
    for number in 0..REMOVED {
        put(&mnt.join(number.to_string()), &content(number)).unwrap();
    }
    let most = File::create(store.0.join("most")).unwrap();
    let len = available(&store.0) - ROOM;
    fallocate(&most, FallocateFlags::empty(), 0, len).unwrap();
    let count = REMOVED + fill(&mnt, REMOVED);
    store.fill();
    assert!(available(&store.0) < 1 << 20);
    count
}

/// A mount for reading alone.
fn read_only(shop: &Workshop, how: &str, files: std::ops::Range<usize>) {
    shop.good(&format!("log mount {how} log mnt"));
    let mnt = shop.path("mnt");
    judge_files(&mnt, files);
    let error = File::create(mnt.join("new")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{how}");
    shop.good("umount mnt");
}

fn try_full(kind: &str, mib: u64) {
    let shop = Workshop::new();
    let Some(store) = Store::on_device(&shop, kind, mib) else {
        return;
    };
    shop.good("log mkfs store/log --size 400M");
    let daemon = mount(&shop, "--memory 1M");
    let mnt = shop.path("mnt");
    let count = fill_both(&shop, &store);
    judge_files(&mnt, 0..count);
    let error = put(&mnt.join("more"), &content(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    fs::remove_file(mnt.join("more")).unwrap();
    for number in 0..REMOVED {
        fs::remove_file(mnt.join(number.to_string())).unwrap();
    }
    judge_files(&mnt, REMOVED..count);
    // Which checks it, as it is then.
    unmount(&shop, daemon);
    for how in ["-o ro", "--read-only"] {
        read_only(&shop, how, REMOVED..count);
    }
    shop.good("log check --repair log");

    // What was removed has made room, with which a mount can do something, and be it to remove more.
    let daemon = mount(&shop, "");
    fs::remove_file(mnt.join(REMOVED.to_string())).unwrap();
    if let Err(error) = put(&mnt.join("0"), &content(0)) {
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }
    judge_files(&mnt, REMOVED + 1..count);
    unmount(&shop, daemon);

    fs::remove_file(store.0.join("most")).unwrap();
    let daemon = mount(&shop, "");
    put(&mnt.join("0"), &content(0)).unwrap();
    judge_files(&mnt, (REMOVED + 1..count).chain([0]));
    umount(&shop);
    drop(daemon);
    wait_until(|| !is_mounted(&mnt));
    assert_eq!(file_system_at(&store.0).as_deref(), Some(kind));
}

#[test]
fn a_full_ext4_below_a_log() {
    try_full("ext4", 160);
}

#[test]
fn a_full_xfs_below_a_log() {
    try_full("xfs", 320);
}
