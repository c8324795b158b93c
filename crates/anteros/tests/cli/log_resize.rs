//! `anteros log resize`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anteros_tests::judge;

use crate::log::{mount, mounted_plainly, shop, umount, unmount};
use crate::run;

const MIB: u64 = 1 << 20;

/// A file as a block device.
pub struct Loop(pub String);

impl Loop {
    /// Says so if that cannot be.
    pub fn of(file: &Path) -> Option<Self> {
        if !judge::is_root() || !judge::has_program("losetup") {
            judge::missing("a block device of the test's own");
            return None;
        }
        let attached = run(Command::new("losetup").args(["--find", "--show"]).arg(file));
        assert_eq!(attached.status, Some(0), "{attached:?}");
        Some(Self(attached.out.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

#[test]
fn a_log_in_a_file_grows_and_shrinks_with_it() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted_plainly("64M");
    let file = |n: usize| vec![n as u8; 1 << 20];
    for n in 0..20 {
        fs::write(shop.path(&format!("mnt/{n}")), file(n)).unwrap();
    }
    let error = shop.bad(5, "log resize log --size 128M");
    assert!(
        error.contains("in use by another process") && error.contains("unmount it"),
        "{error}"
    );
    let error = shop.bad(2, "log resize mnt --size 128M");
    assert!(
        error.contains("mnt: is a directory") && error.contains("unmount it"),
        "{error}"
    );
    unmount(&shop, daemon);
    let length = || fs::metadata(shop.path("log")).unwrap().len();

    let said = shop.good("log resize log --size 200M");
    assert!(
        said.starts_with("log: 200.00 MiB instead of 64.00 MiB, of which files may fill "),
        "{said}"
    );
    assert!(
        said.contains("moved the tables to block ") && !said.contains("segments"),
        "{said}"
    );
    assert_eq!(length(), 200 * MIB);
    assert_eq!(shop.good("log resize log"), "log: has 200.00 MiB already\n");

    let daemon = mount(&shop, "--policy none");
    for n in 20..120 {
        fs::write(shop.path(&format!("mnt/{n}")), file(n)).unwrap();
    }
    for n in (0..120).filter(|n| n % 6 != 0) {
        fs::remove_file(shop.path(&format!("mnt/{n}"))).unwrap();
    }
    unmount(&shop, daemon);

    let error = shop.bad(5, "log resize log --size 40M");
    assert!(
        error.contains("log: 41943040 bytes are too few: ") && error.contains(" at least "),
        "{error}"
    );
    let least = error.lines().next().unwrap().rsplit(' ').next().unwrap();
    let said = shop.good(&format!("log resize log --size {least}"));
    assert!(
        said.contains("moved the content of ") && said.contains(" segments\n"),
        "{said}"
    );
    assert_eq!(length().to_string(), least);
    let daemon = mount(&shop, "");
    for n in (0..120).step_by(6) {
        assert!(
            fs::read(shop.path(&format!("mnt/{n}"))).unwrap() == file(n),
            "{n}"
        );
    }
    unmount(&shop, daemon);
}

#[test]
fn what_cannot_be_resized_is_left_alone() {
    let shop = shop("64M");
    let before = fs::read(shop.path("log")).unwrap();
    let error = shop.bad(2, "log resize log --size 64Q");
    assert!(error.contains("`64Q` is not a size"), "{error}");
    let error = shop.bad(5, "log resize log --size 65M");
    assert!(
        error.contains("68157440 bytes are too few to grow to"),
        "{error}"
    );
    let error = shop.bad(5, "log resize log --size 20M");
    assert!(
        error.contains("too few") && error.contains("at least"),
        "{error}"
    );
    let error = shop.bad(5, "log resize none --size 65M");
    assert!(error.contains("none: No such file"), "{error}");
    fs::write(shop.path("other"), vec![1; 100_000]).unwrap();
    let error = shop.bad(3, "log resize other --size 65M");
    assert!(error.contains("other: no log"), "{error}");
    assert_eq!(fs::read(shop.path("other")).unwrap(), vec![1; 100_000]);
    assert!(fs::read(shop.path("log")).unwrap() == before);
}

#[test]
fn a_log_on_a_block_device_becomes_as_large_as_it() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    // What a volume manager does: the device has become larger.
    let file = fs::File::options()
        .write(true)
        .open(shop.path("log"))
        .unwrap();
    file.set_len(128 * MIB).unwrap();
    let Some(device) = Loop::of(&shop.path("log")) else {
        return;
    };
    let at = &device.0;
    let error = shop.bad(5, &format!("log resize {at} --size 200M"));
    assert!(
        error.contains("209715200 bytes are wanted, but the device has 134217728"),
        "{error}"
    );
    let said = shop.good(&format!("log resize {at}"));
    assert!(said.contains("128.00 MiB instead of 64.00 MiB"), "{said}");
    let mounted = run(shop
        .command(&format!("log mount {at} mnt"))
        .stdin(std::process::Stdio::null()));
    assert_eq!(mounted.status, Some(0), "{mounted:?}");
    fs::write(shop.path("mnt/file"), vec![7; 80 << 20]).unwrap();
    let free = run(Command::new("df")
        .arg("--output=size")
        .arg(shop.path("mnt")));
    assert!(
        free.out
            .lines()
            .nth(1)
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
            > 90 << 10,
        "{free:?}"
    );
    umount(&shop);
}
