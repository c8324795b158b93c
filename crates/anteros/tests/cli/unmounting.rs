//! Answers of `umount` where not all that was written can be stored.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anteros_tests::disk::{Disk, Kind};
use anteros_tests::judge;

use crate::log_resize::Loop;
use crate::unreadable_log::noise;
use crate::{Signal, Workshop, is_mounted, kill, run, wait_until};

/// A small tmpfs on the directory `full`, and a directory `mnt`. It says so if that cannot be.
fn small_disk(size: &str) -> Option<Workshop> {
    if !judge::has_fuse() {
        return None;
    }
    if !judge::is_root() {
        judge::missing("a small tmpfs (only root can mount)");
        return None;
    }
    let shop = Workshop::new();
    for name in ["full", "mnt"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    let options = format!("size={size}");
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", &options, "none"])
        .arg(shop.path("full"));
    assert_eq!(run(&mut mount).status, Some(0));
    Some(shop)
}

/// Takes what room a file system has left.
fn fill(path: &Path) {
    let file = File::create(path).unwrap();
    let mut at = 0;
    while let Ok(count) = file.write_at(&[1; 4096], at) {
        at += count as u64;
    }
}

#[test]
fn a_log_that_cannot_be_stored_stays_mounted() {
    let Some(shop) = small_disk("48M") else {
        return;
    };
    let file = shop.path("full/log");
    File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let Some(device) = Loop::of(&file) else {
        return;
    };
    let name = &device.0;
    shop.good(&format!("log mkfs --force {name}"));
    shop.good(&format!("log mount {name} mnt"));
    fs::write(shop.path("mnt/before"), "there").unwrap();
    // There is room yet.
    shop.umount("mnt");
    shop.good(&format!("log mount {name} mnt"));
    fill(&shop.path("full/fill"));
    // A machine that takes its time finds out while this is still being written.
    if let Err(error) = fs::write(shop.path("mnt/file"), noise(7, 8 << 20)) {
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    }

    for _ in 0..2 {
        let error = shop.bad(5, "umount mnt");
        assert!(
            error.contains("mnt: not all that was written could be stored: "),
            "{error}"
        );
        assert!(
            error.contains("Input/output error") && error.contains("--force"),
            "{error}"
        );
        assert!(is_mounted(&shop.path("mnt")));
    }
    assert_eq!(fs::read(shop.path("mnt/before")).unwrap(), b"there");
    let said = shop.good("log stat mnt");
    assert!(said.contains("read-only from here on: "), "{said}");
    let numbers = shop.good("stat --prometheus mnt");
    assert!(numbers.contains("\nanteros_faults_total 1\n"), "{numbers}");

    wait_until(|| shop.run("umount --force mnt").status == Some(0));
    assert!(!is_mounted(&shop.path("mnt")));
    fs::remove_file(shop.path("full/fill")).unwrap();
    // The kernel keeps an error of writeback for the next who opens the device.
    let _ = File::options().write(true).open(name).unwrap().sync_all();
    shop.good(&format!("log mount {name} mnt"));
    assert_eq!(fs::read(shop.path("mnt/before")).unwrap(), b"there");
    wait_until(|| shop.run("umount mnt").status == Some(0));
}

/// An error that nobody was told of is told once, to the one who unmounts.
#[test]
fn a_mirror_that_has_lost_something_says_so() {
    if !judge::has_fuse() {
        return;
    }
    for form in ["buffer", "entries"] {
        let Some(disk) = Disk::new(Kind::Btrfs) else {
            return;
        };
        let source = disk.limited_directory("source", 4 << 20);
        let shop = Workshop::new();
        fs::create_dir(shop.path("mnt")).unwrap();
        // The loop device has several writers. Several at a time would wait themselves, and be told.
        let options = format!("--data {form} --interval 60000 --flush-by-writers");
        shop.good(&format!("passthru {} mnt {options}", source.display()));
        let other = File::create(shop.path("mnt/other")).unwrap();
        other.write_all_at(&[1; 13 << 18], 0).unwrap();
        other.sync_all().unwrap();
        drop(other);
        let file = shop.path("mnt/disk");
        File::create(&file).unwrap().set_len(8 << 20).unwrap();
        let script = format!(
            "device=$(losetup --find --show {}) && dd if=/dev/zero of=$device bs=512K count=2 oflag=direct status=none; losetup --detach $device",
            file.display()
        );
        let found = run(Command::new("sh").args(["-c", &script]));
        assert_eq!((found.status, &found.err[..]), (Some(0), ""), "{form}");
        // The kernel lets go of the file a moment later, and what it holds is busy until then.
        let said = RefCell::new(String::new());
        wait_until(|| {
            let run = shop.run("umount mnt");
            said.borrow_mut().push_str(&run.err);
            run.status == Some(0)
        });
        let wanted = format!(
            "mnt: not all that was written could be stored: {}: not all was written: Disk quota exceeded",
            source.join("disk").display()
        );
        let said = said.into_inner();
        assert_eq!(said.matches(&wanted).count(), 1, "{form}: {said}");
        assert!(!is_mounted(&shop.path("mnt")));
    }
}

#[test]
fn a_mount_that_others_have_is_served_on_and_the_daemon_says_so() {
    if !judge::has_fuse() || !judge::is_root() || !judge::has_program("unshare") {
        return judge::missing("mount namespaces (only root makes them)");
    }
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::write(shop.path("src/file"), "content").unwrap();
    let mut daemon = shop.heeding("passthru --foreground src mnt");
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().unwrap();
    let copied = shop.path("mnt/file");
    wait_until(|| copied.exists());
    let mut others = shop.apart("echo copied; read line; cat mnt/file");
    let others = others.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut others = others.spawn().unwrap();
    let mut heard = BufReader::new(others.stdout.take().unwrap());
    let mut line = String::new();
    heard.read_line(&mut line).unwrap();
    assert_eq!(line, "copied\n");

    kill(&daemon, Signal::TERM);
    let mut said = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let said = said.find(|line| line.as_ref().unwrap().contains("another mount namespace"));
    assert!(said.is_some());
    assert!(!copied.exists());
    others.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut found = String::new();
    heard.read_to_string(&mut found).unwrap();
    assert_eq!(found, "content");
    assert!(others.wait().unwrap().success());
    // The namespace has gone, and the mount with it.
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}
