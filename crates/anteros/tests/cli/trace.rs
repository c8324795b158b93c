//! Tests what is recorded of reads and writes, and what `anteros trace` tells of it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;

use anteros_tests::judge;
use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::{Workshop, run, wait_until};

/// States who moves the content of files while it is recorded.
const WAYS: [&str; 3] = ["daemon", "buffer", "entries"];

/// A directory `behind`, mirrored at `mnt` and recorded in `record`.
fn recorded(options: &str) -> Workshop {
    let shop = Workshop::new();
    for name in ["mnt", "behind", "full"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    shop.good(&format!("passthru behind mnt --trace record {options}"));
    shop
}

/// Unmounts as soon as no process that another thread is about to start shares our open files, and waits for the end
/// of the record.
fn close(shop: &Workshop) {
    wait_until(|| shop.run("umount mnt").status == Some(0));
    wait_until(|| told(shop, "record")["is_closed"] == true);
}

fn told(shop: &Workshop, record: &str) -> Value {
    shop.json(&format!("trace --json {record}"))
}

fn open(shop: &Workshop, name: &str, flags: OFlags) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags.bits() as i32)
        .open(shop.path("mnt").join(name))
        .unwrap()
}

/// 10 writes of 512 KiB in order, of which one is synced and then synced again; 5 of 4 KiB at random, each synced by the
/// kernel because of `O_SYNC`; 2 reads of 256 KiB that no cache answers.
fn pattern(shop: &Workshop) {
    let big = open(shop, "big", OFlags::empty());
    for n in 0..10 {
        // Not of zeros: memory that was never touched reaches the kernel page by page.
        let piece = vec![n as u8 + 1; 512 << 10];
        big.write_all_at(&piece, n * (512 << 10)).unwrap();
    }
    big.sync_all().unwrap();
    big.sync_data().unwrap();
    let db = open(shop, "db", OFlags::SYNC);
    for page in [9, 2, 7, 4, 1] {
        db.write_all_at(&[page as u8; 4096], page * 4096).unwrap();
    }
    let direct = open(shop, "big", OFlags::DIRECT);
    // Aligned as `O_DIRECT` may want it.
    let mut room = vec![0; (256 << 10) + 4096];
    let at = room.as_ptr().align_offset(4096);
    for n in 0..2 {
        let piece = &mut room[at..at + (256 << 10)];
        direct.read_exact_at(piece, n * (256 << 10)).unwrap();
    }
}

/// Returns what a flow of accesses is told to be: count, bytes, in order, synchronous.
fn tally(of: &Value) -> [u64; 4] {
    let [count, bytes, sequential, synchronous, buffered] =
        ["count", "bytes", "sequential", "synchronous", "buffered"]
            .map(|name| of[name].as_u64().unwrap());
    assert_eq!(buffered, count - synchronous);
    [count, bytes, sequential, synchronous]
}

/// The classes that have anything in them.
fn sizes(of: &Value) -> Vec<Value> {
    let sizes = of["sizes"].as_array().unwrap().iter();
    sizes.filter(|size| size["count"] != 0).cloned().collect()
}

#[test]
fn a_known_pattern_is_told_to_the_byte() {
    const WRITTEN: u64 = 10 * (512 << 10) + 5 * 4096;
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let shop = recorded(&format!("--data {way}"));
        pattern(&shop);
        fs::rename(shop.path("mnt/db"), shop.path("mnt/database")).unwrap();
        close(&shop);
        let told = told(&shop, "record");
        assert_eq!(told["accesses"], 15 + 2 + 7, "{way}: {told}");
        assert_eq!(told["dropped"], 0, "{way}");
        assert_eq!(tally(&told["writes"]), [15, WRITTEN, 10, 6], "{way}");
        assert_eq!(tally(&told["reads"]), [2, 512 << 10, 2, 2], "{way}");
        assert_eq!(told["fsyncs"]["count"], 2 + 5, "{way}");
        assert_eq!(
            sizes(&told["writes"]),
            [
                json!({ "class": "4K", "count": 5, "bytes": 5 * 4096 }),
                json!({ "class": ">256K", "count": 10, "bytes": 10 * (512 << 10) }),
            ],
            "{way}"
        );
        assert_eq!(
            sizes(&told["reads"]),
            [json!({ "class": "256K", "count": 2, "bytes": 512 << 10 })],
            "{way}"
        );
        for kind in ["reads", "writes", "fsyncs"] {
            let latency = &told[kind]["latency"];
            let [half, most] = ["p50_seconds", "p99_seconds"].map(|part| latency[part].as_f64());
            assert!(half > Some(0.0) && most >= half, "{way}: {latency}");
        }
        let files = told["files"].as_array().unwrap();
        let paths: Vec<_> = files.iter().map(|file| &file["path"]).collect();
        assert_eq!(paths, ["/big", "/database"], "{way}");
        let [big, database] = [0, 1].map(|index| &files[index]["usage"]);
        assert_eq!(tally(&big["writes"]), [10, 10 * (512 << 10), 10, 1]);
        assert_eq!((&big["fsyncs"], tally(&big["reads"])[0]), (&json!(2), 2));
        assert_eq!(tally(&database["writes"]), [5, 5 * 4096, 0, 5]);
        assert_eq!(database["fsyncs"], 5);
        assert_eq!(told["other_files"]["count"], 0);
    }
}

#[test]
fn a_known_pattern_is_told_in_a_table() {
    if !judge::has_fuse() {
        return;
    }
    let shop = recorded("--data daemon");
    pattern(&shop);
    fs::write(shop.path("mnt/small"), "x").unwrap();
    close(&shop);
    let table = shop.good("trace record --top 1");
    let lines: Vec<_> = table.lines().collect();
    for wanted in [
        "size              reads     share  of bytes       writes     share  of bytes",
        "up to 4K              0     0.0 %     0.0 %            6    37.5 %     0.4 %",
        "up to 8K              0     0.0 %     0.0 %            0     0.0 %     0.0 %",
        "up to 256K            2   100.0 %   100.0 %            0     0.0 %     0.0 %",
        "over 256K             0     0.0 %     0.0 %           10    62.5 %    99.6 %",
        "     reads      bytes   in order     writes      bytes   in order   buffered     fsyncs  file",
        "         2 512.00 KiB    100.0 %         10   5.00 MiB    100.0 %     90.0 %          2  /big",
        "         0        0 B          -          6  20.00 KiB     16.7 %     16.7 %          5  2 others",
    ] {
        assert!(lines.contains(&wanted), "{wanted}\n{table}");
    }
    assert!(lines[0].starts_with("record     record: 25 accesses in "));
    let wanted =
        "reads      2, 512.00 KiB: 100.0 % sequential, 0.0 % buffered; half answered within ";
    assert!(lines[1].starts_with(wanted), "{table}");
    let wanted =
        "writes     16, 5.02 MiB: 68.8 % sequential, 62.5 % buffered; half answered within ";
    assert!(lines[2].starts_with(wanted), "{table}");
    assert!(lines[3].starts_with("fsyncs     7; half"), "{table}");
}

#[test]
fn a_mount_tells_of_itself_while_it_is_recorded() {
    if !judge::has_fuse() {
        return;
    }
    let shop = recorded("--data daemon");
    fs::write(shop.path("mnt/file"), "twelve bytes").unwrap();
    wait_until(|| told(&shop, "mnt")["writes"]["bytes"] == 12);
    let live = told(&shop, "mnt");
    assert_eq!(
        (&live["is_closed"], &live["is_whole"]),
        (&json!(false), &json!(true))
    );
    assert!(shop.good("trace mnt").contains("still being written"));
    assert!(shop.good("trace record").contains("on, not closed"));
    let stat = shop.good("stat mnt");
    assert!(stat.contains("trace      1 accesses in "), "{stat}");
    // Names change, and files go.
    fs::rename(shop.path("mnt/file"), shop.path("mnt/renamed")).unwrap();
    assert_eq!(told(&shop, "mnt")["files"][0]["path"], "/renamed");
    fs::remove_file(shop.path("mnt/renamed")).unwrap();
    close(&shop);
    assert_eq!(told(&shop, "record")["files"][0]["path"], "/renamed");
}

/// The kernel names the thread that asks.
#[test]
fn processes_are_told_by_name() {
    if !judge::has_fuse() {
        return;
    }
    let shop = recorded("--data daemon");
    fs::write(shop.path("mnt/file"), "twelve bytes").unwrap();
    let name = fs::read_to_string("/proc/thread-self/comm").unwrap();
    let pid = rustix::thread::gettid().as_raw_nonzero().get();
    // While this thread is there to be named.
    wait_until(|| told(&shop, "mnt")["writes"]["bytes"] == 12);
    close(&shop);
    let text = shop.good("trace --json --processes record");
    let told: Value = serde_json::from_str(&text).unwrap();
    let process = &told["processes"][0];
    assert_eq!(process["pid"], pid, "{told}");
    assert_eq!(process["name"], name.trim_end());
    assert_eq!(tally(&process["usage"]["writes"]), [1, 12, 1, 0]);
    let table = shop.good("trace --processes record");
    assert!(
        table.contains(&format!("{pid} {}", name.trim_end())),
        "{table}"
    );
}

/// Elements in an XML text that is well-formed, as far as our drawings go.
fn elements(xml: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut names = Vec::new();
    let (text, mut rest) = xml.split_once('<').unwrap();
    assert_eq!(text.trim(), "");
    loop {
        let (tag, after) = rest.split_once('>').unwrap();
        let (content, next) = after.split_once('<').unwrap_or((after, ""));
        for entity in content.split('&').skip(1) {
            assert!(
                ["amp;", "lt;", "gt;"].iter().any(|e| entity.starts_with(e)),
                "{content}"
            );
        }
        assert!(!content.contains(|c: char| c.is_control() && c != '\n'));
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            names.push(name.trim_end_matches('/').to_owned());
            let quotes = attributes.matches('"').count();
            assert_eq!(quotes, 2 * attributes.matches("=\"").count(), "{tag}");
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        if open.is_empty() {
            assert_eq!((content.trim(), next), ("", ""));
            return names;
        }
        rest = next;
    }
}

#[test]
fn the_figure_is_well_formed() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    for name in ["mnt", "behind"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    shop.good("passthru behind mnt --data daemon --trace a<b>&\"c\"");
    pattern(&shop);
    wait_until(|| told(&shop, "mnt")["accesses"] == 24);
    shop.good("trace mnt --plot figure.svg");
    wait_until(|| shop.run("umount mnt").status == Some(0));
    let svg = fs::read_to_string(shop.path("figure.svg")).unwrap();
    let names = elements(&svg);
    assert_eq!(names[0], "svg");
    // Of reads a part in each of three panels; of writes two in each; 12 in the legends.
    let rects = names.iter().filter(|name| *name == "rect").count();
    assert_eq!(rects, 3 + 6 + 12, "{svg}");
    for text in ["(a) IO size", "(b) locality", "(c) IO modes", ">15<", ">2<"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    let error = shop.bad(5, "trace --plot missing/figure.svg a<b>&\"c\"");
    assert!(
        error.contains("missing/figure.svg: No such file"),
        "{error}"
    );
}

#[test]
fn a_damaged_record_is_told_with_its_place() {
    if !judge::has_fuse() {
        return;
    }
    let shop = recorded("--data daemon");
    for n in 0..3 {
        fs::write(shop.path("mnt/file"), [7; 100]).unwrap();
        wait_until(|| told(&shop, "mnt")["writes"]["count"] == n + 1);
    }
    close(&shop);
    let record = fs::read(shop.path("record")).unwrap();
    let block_len = u32::from_le_bytes(record[24..28].try_into().unwrap()) as usize;
    let second = 24 + 8 + block_len;
    fs::write(shop.path("cut"), &record[..second + 10]).unwrap();
    let cut = shop.run("trace --json cut");
    assert_eq!(cut.status, Some(6));
    let wanted = format!("warning: cut: cut short: the block at byte {second} has ");
    assert!(cut.err.starts_with(&wanted), "{}", cut.err);
    assert!(cut.err.contains("of which 10 are there"), "{}", cut.err);
    let cut: Value = serde_json::from_str(&cut.out).unwrap();
    assert_eq!(
        (&cut["is_whole"], &cut["writes"]["count"]),
        (&json!(false), &json!(1))
    );
    for (name, at, said) in [
        (
            "magic",
            0,
            "error: magic: byte 0: no record of anteros: it begins with ",
        ),
        ("version", 8, "error: version: byte 8: a record of version "),
        ("length", 27, "error: length: byte 24: a block of "),
        ("content", second + 9, "the block's checksum is 0x"),
    ] {
        let mut damaged = record.clone();
        damaged[at] ^= 0xff;
        fs::write(shop.path(name), damaged).unwrap();
        let error = shop.bad(3, &format!("trace {name}"));
        assert!(error.contains(said), "{error}");
        if name == "content" {
            assert!(
                error.starts_with(&format!("error: content: byte {second}: ")),
                "{error}"
            );
        }
    }
    fs::write(shop.path("empty"), "").unwrap();
    let error = shop.bad(3, "trace empty");
    assert!(
        error.contains("empty: byte 0: no record of anteros"),
        "{error}"
    );
}

#[test]
fn what_is_not_recorded_is_told() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::create_dir(shop.path("behind")).unwrap();
    let error = shop.bad(5, "trace missing");
    assert!(error.contains("missing: No such file"), "{error}");
    let error = shop.bad(5, "trace src");
    assert!(error.contains("src: nothing is recorded there"), "{error}");
    if !judge::has_fuse() {
        return;
    }
    shop.good("passthru behind mnt --data daemon");
    let error = shop.bad(5, "trace mnt");
    assert!(
        error.contains("hint: `anteros passthru --trace FILE` records"),
        "{error}"
    );
    wait_until(|| shop.run("umount mnt").status == Some(0));
}

#[test]
fn a_record_takes_no_other_files_place() {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::create_dir(shop.path("behind")).unwrap();
    let error = shop.bad(2, "passthru behind mnt --data daemon --trace src/hello");
    assert!(
        error.contains("src/hello: exists and is no record"),
        "{error}"
    );
    assert_eq!(fs::read(shop.path("src/hello")).unwrap(), b"hello\n");
    let error = shop.bad(2, "passthru behind mnt --data daemon --trace mnt/record");
    assert!(error.contains("mnt/record: lies in "), "{error}");
    let error = shop.bad(2, "passthru behind mnt --data daemon --trace /dev/full");
    assert!(error.contains("/dev/full: no regular file"), "{error}");
    let error = shop.bad(5, "passthru behind mnt --data daemon --trace none/record");
    assert!(error.contains("none: No such file"), "{error}");
    if !judge::has_fuse() {
        return;
    }
    fs::create_dir(shop.path("full")).unwrap();
    shop.good("passthru behind mnt --data daemon --trace record");
    let mode = fs::metadata(shop.path("record"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let error = shop.bad(2, "passthru behind full --data daemon --trace record");
    assert!(
        error.contains("record: another mount is writing"),
        "{error}"
    );
    fs::write(shop.path("mnt/file"), "x").unwrap();
    close(&shop);
    assert_eq!(told(&shop, "record")["accesses"], 1);
    // A record is begun anew.
    shop.good("passthru behind mnt --data daemon --trace record");
    close(&shop);
    assert_eq!(told(&shop, "record")["accesses"], 0);
}

/// Tests that what the kernel reads and writes by itself could not be recorded.
#[test]
fn the_kernel_is_kept_from_passing_by() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::create_dir(shop.path("behind")).unwrap();
    let started = shop.run("passthru behind mnt --trace record");
    assert_eq!(started.status, Some(0), "{started:?}");
    assert!(
        started.err.starts_with("note: the daemon moves"),
        "{started:?}"
    );
    fs::write(shop.path("mnt/file"), "twelve bytes").unwrap();
    let stat = shop.json("stat --json mnt");
    assert_eq!(stat["way"], "daemon");
    assert!(stat["why"].as_str().unwrap().contains("--trace"), "{stat}");
    close(&shop);
    assert_eq!(told(&shop, "record")["writes"]["bytes"], 12);
}

/// A record that finds no space is told of, and goes on when there is some; the mirror does not mind.
#[test]
fn a_full_disk_under_the_record_is_told_of() {
    if !judge::has_fuse() || !judge::is_root() {
        return judge::missing("a full disk (only root can mount one)");
    }
    let shop = Workshop::new();
    for name in ["mnt", "behind", "full"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    let mut tmpfs = Command::new("mount");
    tmpfs
        .args(["-t", "tmpfs", "-o", "size=64k", "none"])
        .arg(shop.path("full"));
    assert_eq!(run(&mut tmpfs).status, Some(0));
    shop.good("passthru behind mnt --data daemon --trace full/record");
    let file = open(&shop, "file", OFlags::empty());
    file.write_all_at(&[0; 4], 0).unwrap();
    wait_until(|| told(&shop, "mnt")["accesses"] == 1);
    // All but the page in which the record begins.
    let filler = File::create(shop.path("full/filler")).unwrap();
    while filler
        .write_at(&[1; 4096], filler.metadata().unwrap().len())
        .is_ok()
    {}
    for n in 1..2000 {
        file.write_all_at(&[n as u8; 4], n * 4).unwrap();
    }
    let stat = || -> Value { shop.json("stat --json mnt") };
    wait_until(|| {
        told(&shop, "mnt");
        stat()["trace_dropped_total"].as_f64().unwrap() > 0.0
    });
    let said = stat();
    let fault = said["faults"][0].as_str().unwrap();
    assert!(
        fault.contains("full/record: No space left on device"),
        "{fault}"
    );
    assert_eq!(said["faults"].as_array().unwrap().len(), 1, "{said}");
    let found = fs::read(shop.path("behind/file")).unwrap();
    let wanted: Vec<u8> = (0..2000).flat_map(|n| [n as u8; 4]).collect();
    assert_eq!(found, wanted);
    fs::remove_file(shop.path("full/filler")).unwrap();
    drop(filler);
    file.write_all_at(&[9; 77], 0).unwrap();
    drop(file);
    wait_until(|| shop.run("umount mnt").status == Some(0));
    wait_until(|| told(&shop, "full/record")["is_closed"] == true);
    let told = told(&shop, "full/record");
    let [recorded, dropped] = ["accesses", "dropped"].map(|name| told[name].as_u64().unwrap());
    assert_eq!(recorded + dropped, 2001, "{told}");
    assert!(recorded >= 2 && dropped > 0, "{told}");
    assert_eq!(told["files"][0]["path"], "/file");
    let table = shop.good("trace full/record");
    assert!(
        table.contains("were not recorded, for lack of time or space"),
        "{table}"
    );
    wait_until(|| run(Command::new("umount").arg(shop.path("full"))).status == Some(0));
}

#[test]
fn reads_of_an_image_are_recorded_too() {
    if !judge::has_fuse() {
        return;
    }
    let shop = Workshop::new();
    shop.good("mkfs image src -zlz4hc,9");
    fs::create_dir(shop.path("mnt")).unwrap();
    shop.good("mount --fuse --trace record image mnt");
    let text = fs::read(shop.path("mnt/sub/text")).unwrap();
    assert_eq!(text, fs::read(shop.path("src/sub/text")).unwrap());
    wait_until(|| told(&shop, "mnt")["reads"]["bytes"].as_u64() >= Some(text.len() as u64));
    let stat = shop.good("stat mnt");
    assert!(stat.contains("trace      "), "{stat}");
    close(&shop);
    let told = told(&shop, "record");
    assert_eq!(tally(&told["writes"]), [0; 4]);
    assert_eq!(told["files"][0]["path"], "/sub/text", "{told}");
    let error = shop.bad(2, "mount --trace record image mnt");
    assert!(error.contains("--fuse"), "{error}");
}
