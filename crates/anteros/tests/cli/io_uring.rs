//! Requests over io_uring: what a mount tells of them. `scripts/over_io_uring.sh` runs these tests where they come so.

use std::fs;

use anteros_tests::judge;

use crate::Workshop;

/// Returns whether the kernel's setting is on; `None` if it has none.
pub fn setting() -> Option<bool> {
    let setting = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    Some(setting.ok()?.trim() == "Y")
}

/// Returns how many processors there can be.
fn processors() -> usize {
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = possible.trim().rsplit(['-', ',']).next();
    last.unwrap().parse::<usize>().unwrap() + 1
}

/// The word for a mount that does not do without, and a part of what people are told.
fn by_default(workers: usize) -> (&'static str, &'static str) {
    match setting() {
        None => ("not_offered", "this kernel offers no io_uring (Linux 6.14 "),
        Some(false) => (
            "off",
            "io_uring is off; root turns it on by `echo Y >/sys/module/fuse/parameters/enable_uring`",
        ),
        Some(true) if workers < 2 * processors() => ("few_workers", "(--workers)"),
        Some(true) => ("on", " over io_uring\n"),
    }
}

/// Compares what a mount tells with a word and a part of a line.
fn assert_tells(shop: &Workshop, (word, part): (&str, &str)) {
    let told = shop.json("stat --json mnt");
    assert_eq!(told["io_uring"], word, "{told}");
    let is_on = word == "on";
    assert_eq!(told["over_io_uring"], f64::from(u8::from(is_on)), "{told}");
    let table = shop.good("stat mnt");
    assert!(table.contains(part), "{part}: {table}");
    let from_device = table.contains("\nrequests   from /dev/fuse: ");
    assert_eq!(from_device, !is_on, "{table}");
    let text = shop.good("stat --prometheus mnt");
    assert!(
        text.contains("\nanteros_io_uring_info{io_uring=\""),
        "{text}"
    );
}

#[test]
fn a_mount_tells_why_requests_do_not_come_over_io_uring() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    for name in ["mnt", "behind"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    shop.good("mkfs image src");
    shop.good("log mkfs log --size 64M");
    let workers = 2 * processors();
    for mount in [
        "mount --fuse image mnt --memory 1G",
        "passthru behind mnt",
        "log mount log mnt",
    ] {
        for (options, wanted) in [
            (format!("--workers {workers}"), by_default(workers)),
            ("--workers 1".into(), by_default(1)),
            ("--no-io-uring".into(), ("unwanted", ": --no-io-uring\n")),
        ] {
            let said = shop.good(&format!("{mount} {options}"));
            assert_eq!(said, "", "{mount} {options}");
            assert_tells(&shop, wanted);
            shop.umount("mnt");
        }
    }
}
