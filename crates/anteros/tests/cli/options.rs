//! The options of `-o`, as mount(8) takes them.

use std::fs;
use std::process::Command;

use anteros_tests::judge;

use crate::log::{mounted, shop, unmount};
use crate::{Workshop, run, wait_until};

/// The options of the mount on `mnt`, as the kernel lists them.
fn flags(shop: &Workshop) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let place = shop.path("mnt").canonicalize().unwrap();
    let mut lines = mounts.lines().map(|line| line.split(' '));
    let mut line = lines
        .find(|line| line.clone().nth(1) == place.to_str())
        .unwrap();
    line.nth(3).unwrap().split(',').map(str::to_owned).collect()
}

/// Mounts, says which of some options the mount has, and unmounts.
fn has(shop: &Workshop, command: &str, options: &[&str]) -> Vec<bool> {
    shop.good(command);
    let flags = flags(shop);
    let found = options
        .iter()
        .map(|option| flags.iter().any(|flag| flag == option));
    let found = found.collect();
    wait_until(|| shop.run("umount mnt").status == Some(0));
    found
}

#[test]
fn set_id_bits_and_devices_count_only_when_that_is_asked_for() {
    if !judge::has_fuse() || !judge::is_root() {
        return judge::missing("mounts with set-id bits (only root has them)");
    }
    let shop = shop("32M");
    shop.good("mkfs --quiet image src");
    let words = ["ro", "nosuid", "nodev", "noexec", "noatime"];
    for (command, is_image) in [
        ("mount --fuse image mnt", true),
        ("mount image mnt", true),
        ("passthru src mnt", false),
        ("log mount log mnt", false),
    ] {
        let found = has(&shop, command, &words);
        assert_eq!(found, [is_image, true, true, false, false], "{command}");
        let found = has(&shop, &format!("{command} -o suid,dev"), &words);
        assert_eq!(found, [is_image, false, false, false, false], "{command}");
        let found = has(&shop, &format!("{command} -o ro,noexec,noatime"), &words);
        assert_eq!(found, [true; 5], "{command}");
    }
}

#[test]
fn options_that_nobody_knows_are_refused_by_name() {
    let shop = shop("32M");
    shop.good("mkfs --quiet image src");
    for command in ["mount image mnt", "passthru src mnt", "log mount log mnt"] {
        let error = shop.bad(2, &format!("{command} -o noatime,nonsense"));
        assert!(
            error.contains("there is no option nonsense; there are "),
            "{command}: {error}"
        );
    }
    let error = shop.bad(2, "mount image mnt -o rw");
    assert!(error.contains("can only be read"), "{error}");
}

#[test]
fn what_only_a_daemon_heeds_is_refused_where_the_kernel_mounts() {
    let shop = shop("32M");
    shop.good("mkfs --quiet image src");
    for option in [
        "--memory 4M",
        "--workers 4",
        "--no-io-uring",
        "--readahead 128K",
        "--neighbours off",
        "--strategy vmap",
        "--allow-other",
        "--foreground",
        "-o allow_other",
    ] {
        let error = shop.bad(2, &format!("mount --kernel image mnt {option}"));
        let name = option.split(' ').next().unwrap();
        assert!(error.contains(name), "{option}: {error}");
    }
}

#[test]
fn a_log_is_mounted_for_reading_by_many() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("32M");
    fs::write(shop.path("mnt/file"), "kept").unwrap();
    unmount(&shop, daemon);
    let before = fs::read(shop.path("log")).unwrap();
    fs::create_dir(shop.path("behind")).unwrap();
    shop.good("log mount -o ro log mnt");
    shop.good("log mount -o ro log behind");
    for place in ["mnt", "behind"] {
        assert_eq!(
            fs::read_to_string(shop.path(place).join("file")).unwrap(),
            "kept"
        );
        let touch = run(Command::new("touch").arg(shop.path(place).join("new")));
        assert!(touch.err.contains("Read-only file system"), "{touch:?}");
    }
    let error = shop.bad(5, "log gc log");
    assert!(error.contains("in use"), "{error}");
    for place in ["mnt", "behind"] {
        wait_until(|| shop.run(&format!("umount {place}")).status == Some(0));
    }
    assert!(
        before == fs::read(shop.path("log")).unwrap(),
        "nothing is written"
    );
}
