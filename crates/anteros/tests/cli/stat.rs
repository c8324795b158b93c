//! Tests what a daemon that mirrors a directory tells of itself, and of a file. Of an image, see `daemon`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use anteros_tests::judge;
use rustix::fs::OFlags;
use serde_json::Value;

use crate::{Workshop, prometheus_samples, run, wait_until};

/// A directory `behind`, mirrored at `mnt`.
fn mirror(options: &str) -> Workshop {
    let shop = Workshop::new();
    for name in ["mnt", "behind", "full"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    shop.good(&format!("passthru behind mnt {options}"));
    shop
}

fn unmount(shop: &Workshop, name: &str) {
    wait_until(|| shop.run(&format!("umount {name}")).status == Some(0));
}

fn stat(shop: &Workshop, of: &str) -> Value {
    shop.json(&format!("stat --json {of}"))
}

fn number(stat: &Value, name: &str) -> u64 {
    let value = stat[name].as_f64();
    value.unwrap_or_else(|| panic!("{name}: {stat}")) as u64
}

#[test]
fn who_moves_the_content_is_told_with_the_reason() {
    if !judge::has_fuse() {
        return;
    }
    for way in ["daemon", "cache", "buffer", "entries"] {
        let shop = mirror(&format!("--data {way} --unit 64K --timeout 7 --workers 3"));
        let why = format!("asked for by --data {way}");
        let mount = stat(&shop, "mnt");
        assert_eq!(
            (&mount["way"], &mount["why"]),
            (&way.into(), &why[..].into())
        );
        assert_eq!(mount["sees_reads_and_writes"], true);
        for (name, wanted) in [
            ("unit_bytes", 64 << 10),
            ("timeout_seconds", 7),
            ("workers", 3),
        ] {
            assert_eq!(number(&mount, name), wanted, "{name}");
        }
        assert!(number(&mount, "resident_peak_bytes") >= number(&mount, "resident_bytes"));
        fs::write(shop.path("mnt/file"), "content").unwrap();
        let file = stat(&shop, "mnt/file");
        assert_eq!((&file["way"], &file["why"]), (&mount["way"], &mount["why"]));
        let told = shop.good("stat mnt/file");
        assert_eq!(told, format!("mnt/file: {way}: {why}\n"));
        let table = shop.good("stat mnt");
        assert!(
            table.starts_with(&format!("content    {way}: {why}\n")),
            "{table}"
        );
        assert!(table.contains("at most 64.00 KiB at once, names believed for 7 s, 3 workers"));
        let buffers = matches!(way, "buffer" | "entries");
        assert_eq!(table.contains("\nbuffer     "), buffers, "{table}");
        assert!(table.contains("\nwrite      1 answers: "), "{table}");
        unmount(&shop, "mnt");
    }
}

/// Needs a kernel that offers passthrough. It takes no file that it would have to pass twice.
#[test]
fn what_the_kernel_moves_by_itself_is_not_told_to_be_nothing() {
    if !judge::has_fuse() {
        return;
    }
    let shop = mirror("");
    if stat(&shop, "mnt")["way"] != "kernel" {
        judge::missing("passthrough (Linux 6.9, root)");
        return unmount(&shop, "mnt");
    }
    fs::write(shop.path("mnt/file"), "content").unwrap();
    assert_eq!(fs::read(shop.path("mnt/file")).unwrap(), b"content");
    let mount = stat(&shop, "mnt");
    assert_eq!(mount["sees_reads_and_writes"], false);
    for operation in ["read", "write"] {
        assert_eq!(mount["latencies"][operation], Value::Null, "{mount}");
    }
    let table = shop.good("stat mnt");
    assert!(table.contains("does not come by here"), "{table}");
    assert!(!table.contains("\nwrite "), "{table}");
    let told = shop.good("stat mnt/file");
    assert_eq!(
        told,
        "mnt/file: kernel: the kernel has the file behind it\n"
    );

    shop.good("passthru mnt full");
    let told = shop.good("stat full/file");
    assert!(
        told.starts_with("full/file: daemon: the kernel refuses"),
        "{told}"
    );
    assert!(told.contains("lies on another itself"), "{told}");
    assert_eq!(fs::read(shop.path("full/file")).unwrap(), b"content");
    unmount(&shop, "full");
    unmount(&shop, "mnt");
}

#[test]
fn a_user_without_rights_is_told_why_the_kernel_does_not_help() {
    if !judge::has_fuse() {
        return;
    }
    if !judge::is_root() || !Path::new("/usr/bin/fusermount3").exists() {
        return judge::missing("a user beside root, and fusermount3");
    }
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::create_dir(shop.path("behind")).unwrap();
    let told = run(&mut shop.apart(AS_USER));
    assert_eq!(told.status, Some(0), "{told:?}");
    let told: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told["way"], "cache");
    let why = told["why"].as_str().unwrap();
    // An older kernel offers nothing to anyone.
    assert!(
        why.contains("CAP_SYS_ADMIN") || why.contains("Linux 6.9"),
        "{why}"
    );
}

const AS_USER: &str = r#"
mkdir dev
mount -t tmpfs tmpfs dev
mknod dev/fuse c 10 229
chmod 666 dev/fuse
mount --bind dev/fuse /dev/fuse
chown 65534:65534 mnt behind
user="setpriv --reuid=65534 --regid=65534 --clear-groups"
$user ./anteros passthru behind mnt
$user ./anteros stat --json mnt
$user ./anteros umount mnt
"#;

/// Tests that what a listing told the kernel of is forgotten as often as it was told.
#[test]
fn what_is_listed_with_attributes_is_known_until_it_is_gone() {
    const FILES: u64 = 1000;
    if !judge::has_fuse() {
        return;
    }
    for way in ["auto", "cache", "buffer"] {
        let shop = mirror(&format!("--data {way} --timeout 60"));
        fs::create_dir_all(shop.path("behind/dir/sub")).unwrap();
        for n in 0..FILES {
            fs::write(shop.path(&format!("behind/dir/{n}")), n.to_string()).unwrap();
        }
        let known = |shop: &Workshop| number(&stat(shop, "mnt"), "known_inodes");
        let list = || {
            fs::read_dir(shop.path("mnt/dir"))
                .unwrap()
                .map(Result::unwrap)
        };
        assert_eq!(list().count() as u64, FILES + 1, "{way}");
        assert_eq!(known(&shop), 2, "{way}: who wants names alone");
        for _ in 0..2 {
            for entry in list() {
                let attributes = entry.metadata().unwrap();
                assert_eq!(attributes.ino(), entry.ino(), "{way}");
            }
        }
        let looked_up = number(&stat(&shop, "mnt")["latencies"]["lookup"], "answers");
        assert!(
            looked_up < FILES,
            "{way}: {looked_up} are looked up one by one"
        );
        assert_eq!(known(&shop), FILES + 3, "{way}");
        for n in 0..FILES {
            let text = fs::read_to_string(shop.path(&format!("mnt/dir/{n}"))).unwrap();
            assert_eq!(text, n.to_string(), "{way}");
        }
        fs::remove_dir_all(shop.path("mnt/dir")).unwrap();
        wait_until(|| known(&shop) == 1);
        unmount(&shop, "mnt");
    }
}

#[test]
fn listings_tell_of_nothing_that_would_not_be_believed() {
    if !judge::has_fuse() {
        return;
    }
    let shop = mirror("--timeout 0");
    fs::write(shop.path("behind/file"), "").unwrap();
    assert_eq!(fs::read_dir(shop.path("mnt")).unwrap().count(), 1);
    assert_eq!(number(&stat(&shop, "mnt"), "known_inodes"), 1);
    unmount(&shop, "mnt");
}

#[test]
fn what_is_open_and_known_is_counted() {
    if !judge::has_fuse() {
        return;
    }
    for way in ["auto", "daemon", "buffer"] {
        let shop = mirror(&format!("--data {way}"));
        let files: Vec<_> = ["a", "b", "c"]
            .map(|name| File::create(shop.path("mnt").join(name)).unwrap())
            .into();
        let counts = |shop: &Workshop| {
            let stat = stat(shop, "mnt");
            (number(&stat, "open_files"), number(&stat, "known_inodes"))
        };
        assert_eq!(counts(&shop), (3, 4), "{way}");
        drop(files);
        // Processes that other threads start share what is open for a moment.
        wait_until(|| counts(&shop) == (0, 4));
        unmount(&shop, "mnt");
    }
}

#[test]
fn what_goes_through_the_buffer_is_counted() {
    if !judge::has_fuse() {
        return;
    }
    // The first write does not wait in our buffer.
    for (way, through) in [("buffer", 1), ("entries", 0)] {
        let buffered = 81920 - through * 8192;
        let shop = mirror(&format!(
            "--data {way} --buffer 4M --region 1M --interval 600000"
        ));
        // By a process that starts no other: one that ends closes what it was given open, and that drains the buffer.
        let mut dd = Command::new("dd")
            .args([
                "of=mnt/file",
                "bs=8k",
                "iflag=fullblock",
                "conv=fsync",
                "status=none",
            ])
            .current_dir(shop.path(""))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = dd.stdin.take().unwrap();
        input.write_all(&[1; 81920]).unwrap();
        wait_until(|| number(&stat(&shop, "mnt"), "buffer_bytes_in_total") == 81920);
        let before = stat(&shop, "mnt");
        for (name, wanted) in [
            ("buffer_writes_in_total", 10),
            ("buffer_bytes_in_total", 81920),
            ("buffer_writes_out_total", through),
            ("buffered_bytes", buffered),
            ("buffer_max_bytes", 4 << 20),
            ("buffer_region_bytes", 1 << 20),
            ("buffer_interval_seconds", 600),
            ("buffer_errors_total", 0),
            ("buffer_unreported_errors_total", 0),
        ] {
            assert_eq!(number(&before, name), wanted, "{way}: {name}: {before}");
        }
        let held = number(&before, "buffer_bytes");
        assert!((buffered..=4 << 20).contains(&held), "{way}: {held}");
        drop(input);
        assert!(dd.wait().unwrap().success());
        let sync = File::options()
            .write(true)
            .custom_flags(OFlags::SYNC.bits() as i32)
            .open(shop.path("mnt/file"));
        sync.unwrap().write_all(&[2; 4096]).unwrap();
        let after = stat(&shop, "mnt");
        for (name, wanted) in [
            ("buffer_writes_in_total", 11),
            ("buffer_writes_through_total", 1 + through),
            ("buffer_bytes_out_total", 81920 + 4096),
            ("buffered_bytes", 0),
            ("buffered_peak_bytes", buffered),
        ] {
            assert_eq!(number(&after, name), wanted, "{way}: {name}: {after}");
        }
        let flushes = &after["buffer_flushes"];
        assert_eq!(number(flushes, "sync"), 1, "{way}: {flushes}");
        assert_eq!(number(flushes, "interval"), 0, "{way}: {flushes}");
        let table = shop.good("stat mnt");
        let written = format!(
            "  in       84.00 KiB in 11 writes; {} of them not",
            1 + through
        );
        for said in [
            "of 4.00 MiB; 1.00 MiB gathered for a write, kept for 600000 ms",
            written.as_str(),
            "  out      84.00 KiB in ",
            "  errors   0, 0 B lost, 0 that nobody was told of",
        ] {
            assert!(table.contains(said), "{said}\n{table}");
        }
        unmount(&shop, "mnt");
    }
}

#[test]
fn its_numbers_are_such_as_prometheus_reads() {
    if !judge::has_fuse() {
        return;
    }
    let shop = mirror("--data buffer");
    let mut file = File::create(shop.path("mnt/file")).unwrap();
    file.write_all(b"con").unwrap();
    file.write_all(b"tent").unwrap();
    drop(file);
    let text = shop.good("stat --prometheus mnt");
    assert!(prometheus_samples(&text) > 50, "{text}");
    assert!(
        text.contains("anteros_mirror_info{way=\"buffer\",why=\"asked for"),
        "{text}"
    );
    // Where much else goes on, the interval is over before the file is closed.
    let flushed = |reason| {
        text.contains(&format!(
            "anteros_buffer_flushes_total{{reason=\"{reason}\"}} 1\n"
        ))
    };
    assert!(flushed("close") || flushed("interval"), "{text}");
    let error = shop.bad(2, "stat --prometheus mnt/file");
    assert!(
        error.contains("a file has no numbers of its own"),
        "{error}"
    );
    unmount(&shop, "mnt");
}

#[test]
fn what_is_in_no_mirror_is_refused_with_a_hint() {
    let shop = Workshop::new();
    let error = shop.bad(5, "stat src/hello");
    assert!(
        error.contains("src/hello: in no directory mirrored by anteros"),
        "{error}"
    );
    let mut mkfifo = Command::new("mkfifo");
    assert_eq!(run(mkfifo.arg(shop.path("pipe"))).status, Some(0));
    let error = shop.bad(5, "stat pipe");
    assert!(
        error.contains("pipe: neither a directory nor a regular file"),
        "{error}"
    );
    if !judge::has_fuse() {
        return;
    }
    let shop = mirror("--data daemon");
    fs::create_dir(shop.path("mnt/below")).unwrap();
    let error = shop.bad(5, "stat mnt/below");
    assert!(error.contains("hint: name the directory itself"), "{error}");
    let error = shop.bad(5, "stat mnt/none");
    assert!(error.contains("mnt/none: No such file"), "{error}");
    unmount(&shop, "mnt");
    shop.good("mkfs image src");
    shop.good("mount --fuse image mnt");
    let error = shop.bad(5, "stat mnt/hello");
    assert!(
        error.contains("hint: of an image, name the directory"),
        "{error}"
    );
    unmount(&shop, "mnt");
}
