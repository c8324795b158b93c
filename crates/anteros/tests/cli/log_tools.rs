//! `anteros log stat`, `dump`, `gc` and `check --repair`.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::trees::Random;
use serde_json::Value;

use crate::log::{kill_daemon, mount, mounted, mounted_plainly, shop, umount, unmount};
use crate::{Workshop, prometheus_samples, run, wait_until};

fn stat(shop: &Workshop, of: &str) -> Value {
    shop.json(&format!("log stat --json {of}"))
}

fn number(stat: &Value, name: &str) -> u64 {
    let value = stat[name].as_f64();
    value.unwrap_or_else(|| panic!("{name}: {stat}")) as u64
}

#[test]
fn an_unmounted_log_tells_how_it_is_used() {
    let shop = shop("64M");
    let table = shop.good("log stat log");
    for said in [
        "log         ",
        "space      4.00 KiB of ",
        "checkpoint 1, unmounted cleanly",
        "inodes     1, and 0 other nodes",
    ] {
        assert!(table.contains(said), "{said}\n{table}");
    }
    let told = stat(&shop, "log");
    assert_eq!(number(&told, "device_bytes"), 64 << 20);
    assert_eq!(
        number(&told, "used_bytes") + number(&told, "free_bytes"),
        number(&told, "capacity_bytes")
    );
    assert_eq!(told["segments"]["full"], 0);
    let error = shop.bad(3, "log stat src/sub/text");
    assert!(error.contains("no log"), "{error}");
    let error = shop.bad(5, "log stat src");
    assert!(error.contains("src: no FUSE mount"), "{error}");
}

#[test]
fn a_mounted_log_tells_what_it_has_written_and_why() {
    const WRITTEN: u64 = 3 << 20;
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted_plainly("64M");
    fs::write(shop.path("mnt/file"), vec![1; WRITTEN as usize]).unwrap();
    fs::File::open(shop.path("mnt/file"))
        .unwrap()
        .sync_all()
        .unwrap();
    // Who waits for an answer has it before it is counted.
    wait_until(|| stat(&shop, "mnt")["latencies"]["fsync"]["answers"].as_f64() == Some(1.0));
    for told in [stat(&shop, "mnt"), shop.json("stat --json mnt")] {
        assert_eq!(number(&told, "log_user_bytes_total"), WRITTEN);
        assert_eq!(number(&told["log_device_bytes"], "data"), WRITTEN);
        assert!(number(&told["log_device_bytes"], "record") > 0, "{told}");
        let factor = told["write_amplification"].as_f64().unwrap();
        assert!((1.0..2.0).contains(&factor), "{factor}");
        assert_eq!(number(&told, "log_syncs_total"), 1);
        assert_eq!(number(&told, "log_inodes"), 2);
        assert_eq!(number(&told["latencies"]["fsync"], "answers"), 1);
        assert!(number(&told, "log_memory_bytes") <= number(&told, "log_memory_max_bytes"));
        assert_eq!(number(&told, "log_memory_max_bytes"), 32 << 20);
    }
    let table = shop.good("stat mnt");
    assert_eq!(
        shop.good("log stat mnt").lines().next(),
        table.lines().next()
    );
    for said in [
        "written    3.00 MiB by users",
        "data 3.00 MiB",
        "syncs      1, with 1 flushes; 1 groups",
        "\nfsync      1 answers: ",
    ] {
        assert!(table.contains(said), "{said}\n{table}");
    }
    let text = shop.good("stat --prometheus mnt");
    assert!(prometheus_samples(&text) > 50, "{text}");
    unmount(&shop, daemon);
    let told = stat(&shop, "log");
    assert_eq!(number(&told["kinds"]["warm data"], "valid_bytes"), WRITTEN);
}

#[test]
fn a_mounted_log_tells_what_compression_is_worth_by_class() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    let daemon = mount(&shop, "--policy record");
    let rows = b"the same again and again".repeat(2000);
    let sync = |name: &str, data: &[u8]| {
        let mut file = fs::File::create(shop.path(name)).unwrap();
        std::io::Write::write_all(&mut file, data).unwrap();
        file.sync_all().unwrap();
    };
    sync("mnt/a.db", &rows[..40_960]);
    sync("mnt/a.so", &rows[..8192]);
    let told = stat(&shop, "mnt");
    let database = &told["log_classes"]["database"];
    assert_eq!(number(database, "written_bytes"), 40_960);
    assert_eq!(number(database, "compressed_pages"), 10);
    assert_eq!(number(database, "left_pages"), 0);
    assert_eq!(database["car"], 1.0, "all of it fits into one block");
    assert!(database["compressing_seconds"].as_f64().unwrap() > 0.0);
    assert!(database["ratio"].as_f64().unwrap() < 0.1, "{database}");
    assert!(database["dar"].is_null(), "nothing was read: {database}");
    let program = &told["log_classes"]["executable"];
    assert_eq!(number(program, "stored_bytes"), 8192);
    assert_eq!(program["ratio"], 1.0);
    assert_eq!(number(&told["log_classes"]["journal"], "written_bytes"), 0);
    assert_eq!(number(&told, "log_packed_slots"), 10);
    let table = shop.good("log stat mnt");
    for said in [
        "\ndatabase   40.00 KiB takes ",
        "; 10 pages compressed in ",
        ", 0 left as they are; CAR 1.00\n",
        "\nexecutable 8.00 KiB takes 8.00 KiB, 1.00 of it\n",
        "\npacked     1 blocks with 10 valid slots, 10.0 in each\n",
    ] {
        assert!(table.contains(said), "{said}\n{table}");
    }
    let text = shop.good("stat --prometheus mnt");
    let sample = "\nanteros_log_class_compressed_pages_total{class=\"database\"} 10\n";
    assert!(text.contains(sample), "{text}");
    unmount(&shop, daemon);
    // The ten pages of the database, and two inodes.
    assert_eq!(number(&stat(&shop, "log"), "packed_slots"), 12);
    let table = shop.good("log stat log");
    assert!(
        table.contains("\npacked     2 blocks with 12 valid"),
        "{table}"
    );
}

#[test]
fn segments_are_drawn() {
    let shop = shop("64M");
    shop.good("log stat log --svg plain.svg");
    let cells = |name: &str| {
        fs::read_to_string(shop.path(name))
            .unwrap()
            .matches("<title>")
            .count()
    };
    let segments: u64 = stat(&shop, "log")["segments"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_u64)
        .sum();
    // One title is that of the drawing.
    assert_eq!(cells("plain.svg") as u64, segments + 1);
    if !judge::has_fuse() {
        return;
    }
    let daemon = mount(&shop, "");
    shop.good("log stat mnt --svg mounted.svg");
    assert_eq!(cells("mounted.svg"), cells("plain.svg"));
    unmount(&shop, daemon);
    shop.bad(5, "log stat src --svg none.svg");
    assert!(!shop.path("none.svg").exists());
}

#[test]
fn a_dump_tells_what_lies_where() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    let daemon = mount(&shop, "--policy none");
    fs::create_dir(shop.path("mnt/dir")).unwrap();
    fs::write(shop.path("mnt/dir/file"), vec![1; 100_000]).unwrap();
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(shop.path("mnt/dir/file"), mode).unwrap();
    unmount(&shop, daemon);
    let said = shop.good("log dump log");
    for word in [
        "superblock 0   generation 1, counts",
        "pack ",
        ", counts\n",
        "head           warm data: segment",
        "groups         0 behind it",
    ] {
        assert!(said.contains(word), "{word}\n{said}");
    }
    let file = shop.good("log dump log --path /dir/file");
    assert!(
        file.contains(", a file, mode 0640")
            && file.contains("size           100000 bytes, 25 blocks"),
        "{file}"
    );
    let ino: u32 = file
        .split([' ', ','])
        .find_map(|word| word.parse().ok())
        .unwrap();
    assert_eq!(shop.good(&format!("log dump log --inode {ino}")), file);
    let run = file
        .lines()
        .find(|line| line.starts_with("content "))
        .unwrap();
    let block: u64 = run.split(' ').nth_back(2).unwrap().parse().unwrap();
    let said = shop.good(&format!("log dump log --block {block}"));
    for word in [
        format!("owner          inode {ino}, logical block 0, which says so too"),
        "valid          yes".into(),
    ] {
        assert!(said.contains(&word), "{word}\n{said}");
    }
    let error = shop.bad(5, "log dump log --path /dir/none");
    assert!(error.contains("/dir/none: no such file"), "{error}");
    let error = shop.bad(5, "log dump log --block 99999999");
    assert!(error.contains("block 99999999"), "{error}");

    let daemon = mount(&shop, "--checkpoint 3600");
    fs::rename(shop.path("mnt/dir/file"), shop.path("mnt/dir/moved")).unwrap();
    fs::File::open(shop.path("mnt/dir"))
        .unwrap()
        .sync_all()
        .unwrap();
    kill_daemon(&shop, daemon);
    let said = shop.good("log dump log --groups");
    for word in [
        ": moved is inode",
        ": no file any more",
        "replayed       all 1",
    ] {
        assert!(said.contains(word), "{word}\n{said}");
    }
    assert!(
        shop.good("log dump log")
            .contains("groups         1 behind it")
    );
    assert!(
        shop.good("log stat log")
            .contains("not unmounted, 1 groups to replay")
    );
}

#[test]
fn a_dump_goes_as_far_as_a_damaged_log_can_be_read() {
    let shop = shop("64M");
    let file = fs::File::options()
        .write(true)
        .open(shop.path("log"))
        .unwrap();
    // The magic number of the newer pack: the empty log has but one.
    for pack in 0..2u64 {
        let said = shop.good("log dump log");
        let at = said
            .lines()
            .find_map(|line| line.strip_prefix("packs          at block "))
            .unwrap();
        let start: u64 = at.split(',').next().unwrap().parse().unwrap();
        let blocks: u64 = at.split(' ').nth(3).unwrap().parse().unwrap();
        file.write_all_at(&[0; 4], (start + pack * blocks) * 4096)
            .unwrap();
    }
    let said = shop.good("log dump log");
    assert!(
        said.contains("pack 0         is not whole") && said.contains("not mountable"),
        "{said}"
    );
    let error = shop.bad(3, "log dump log --inode 1");
    assert!(error.contains("neither checkpoint is whole"), "{error}");
    shop.bad(3, "log check --repair log");
}

#[test]
fn a_log_is_cleaned_when_that_is_asked_for() {
    const FILES: usize = 20;
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted_plainly("128M");
    let fill = || {
        for n in 0..FILES {
            fs::write(shop.path(&format!("mnt/{n}")), vec![n as u8; 1 << 20]).unwrap();
        }
        run(Command::new("sync").arg("-f").arg(shop.path("mnt")));
        for n in (0..FILES).step_by(2) {
            fs::remove_file(shop.path(&format!("mnt/{n}"))).unwrap();
        }
    };
    let cleaned = |said: String| -> u32 { said.split(' ').nth(1).unwrap().parse().unwrap() };
    fill();
    let said = shop.good("log gc mnt");
    assert!(
        said.starts_with("mnt: ") && said.ends_with(" segments cleaned\n"),
        "{said}"
    );
    let count = cleaned(said);
    assert!(count > 3, "{count}");
    assert_eq!(
        number(&stat(&shop, "mnt"), "log_cleaned_segments_total"),
        u64::from(count)
    );
    assert_eq!(number(&stat(&shop, "mnt"), "log_prefree_segments"), 0);
    assert_eq!(cleaned(shop.good("log gc mnt")), 0);
    let error = shop.bad(5, "log gc log");
    assert!(error.contains("in use by another process"), "{error}");
    for n in (1..FILES).step_by(2) {
        assert!(fs::read(shop.path(&format!("mnt/{n}"))).unwrap() == vec![n as u8; 1 << 20]);
    }
    fill();
    unmount(&shop, daemon);
    assert!(cleaned(shop.good("log gc log")) > 3);
    assert_eq!(cleaned(shop.good("log gc log")), 0);
    assert!(shop.good("log check log").contains("; 0 faults"));
    let full = &stat(&shop, "log")["full_by_tenths_valid"];
    assert!(
        full.as_array().unwrap()[..9]
            .iter()
            .all(|count| *count == 0),
        "{full}"
    );
    let error = shop.bad(5, "log gc src");
    assert!(error.contains("src: no log is mounted here"), "{error}");
}

/// Whoever may write to the root is not asked, but who they are.
#[test]
fn only_who_mounted_a_log_may_have_it_cleaned() {
    if !judge::has_fuse() || !judge::is_root() {
        return judge::missing("a user beside root");
    }
    let shop = shop("64M");
    let daemon = mount(&shop, "--allow-other");
    fs::set_permissions(shop.path("mnt"), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = shop.run_as_nobody("log gc mnt");
    assert_eq!(refused.status, Some(5), "{refused:?}");
    assert!(
        refused.err.contains("only root and whoever mounted it"),
        "{refused:?}"
    );
    shop.good("log gc mnt");
    unmount(&shop, daemon);
}

#[test]
fn a_damaged_log_is_repaired() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("64M");
    // Each inode in a block for itself.
    let daemon = mount(&shop, "--policy none");
    fs::create_dir(shop.path("mnt/dir")).unwrap();
    fs::write(shop.path("mnt/dir/file"), "kept").unwrap();
    let error = shop.bad(5, "log check --repair log");
    assert!(error.contains("in use by another process"), "{error}");
    unmount(&shop, daemon);
    let said = shop.good("log check --repair log");
    assert!(
        said.ends_with("; 0 faults: clean\n") && !said.contains("repaired: "),
        "{said}"
    );

    // The directory is made unreadable: what lies below is kept.
    let dump = shop.good("log dump log --path /dir");
    let node = dump.lines().find(|line| line.starts_with("node ")).unwrap();
    let block: u64 = node
        .split([' ', ','])
        .skip_while(|word| *word != "block")
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let file = fs::File::options()
        .write(true)
        .open(shop.path("log"))
        .unwrap();
    file.write_all_at(&[0; 8], block * 4096).unwrap();
    drop(file);
    let before = shop.run("log check log");
    assert_eq!(before.status, Some(1), "{before:?}");
    let verdict = before.out.lines().last().unwrap();
    assert!(verdict.contains(" faults: NOT clean: "), "{before:?}");
    let place = format!("\"/dir\" (inode 2): block {block}: ");
    assert!(before.out.contains(&place), "{before:?}");
    let after = shop.run("log check --repair log");
    assert_eq!(after.status, Some(1), "{after:?}");
    assert!(
        after.out.contains("repaired: inode") && after.out.contains("/lost+found/#"),
        "{after:?}"
    );
    assert!(
        after.out.contains("left: directory 1, \"dir\": node"),
        "{after:?}"
    );
    let json: Value = serde_json::from_str(&shop.run("log check --repair --json log").out).unwrap();
    assert_eq!(json["repairs"].as_array().unwrap().len(), 0, "{json}");
    assert!(!json["left"].as_array().unwrap().is_empty(), "{json}");
    let mut daemon = mount(&shop, "");
    if judge::is_root() {
        let found = fs::read_dir(shop.path("mnt/lost+found")).unwrap();
        let found: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(fs::read_to_string(&found[0]).unwrap(), "kept");
    } else {
        judge::missing("what is found again, which is root's");
    }
    umount(&shop);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

#[test]
fn content_that_has_changed_on_the_device_is_an_error() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("64M");
    let mut random = Random(7);
    let content: Vec<u8> = (0..300_000).map(|_| random.below(256) as u8).collect();
    fs::write(shop.path("mnt/file"), &content).unwrap();
    fs::write(shop.path("mnt/other"), "other").unwrap();
    unmount(&shop, daemon);
    let log = fs::read(shop.path("log")).unwrap();
    let wanted = &content[200_000..200_100];
    let at = log.windows(100).position(|bytes| bytes == wanted).unwrap();
    let file = fs::File::options().write(true).open(shop.path("log"));
    let file = file.unwrap();
    file.write_all_at(&[log[at] ^ 4], at as u64).unwrap();

    let before = shop.good("log check log");
    assert!(before.contains("; 0 faults: clean"), "{before}");
    let checked = shop.run("log check --data log");
    let told = format!(
        "\"/file\" (inode 2): byte 196608 of inode 2: block {} does not hold what was written there",
        at / 4096
    );
    assert_eq!(checked.status, Some(1), "{checked:?}");
    assert!(checked.out.contains(&told), "{checked:?}");
    let verdict = "; 1 faults: NOT clean: damaged content is healed by writing it anew";
    assert!(checked.out.contains(verdict), "{checked:?}");

    let mut daemon = mount(&shop, "");
    let read = fs::read(shop.path("mnt/file")).unwrap_err();
    assert_eq!(read.raw_os_error(), Some(5), "{read}");
    assert_eq!(fs::read(shop.path("mnt/other")).unwrap(), b"other");
    // All of the file but for that block.
    let file = fs::File::open(shop.path("mnt/file")).unwrap();
    for (from, until) in [(0, 196_608), (200_704, 300_000)] {
        let mut part = vec![0; until - from];
        file.read_exact_at(&mut part, from as u64).unwrap();
        assert!(part == content[from..until]);
    }
    drop(file);
    // A thread of its own tells of faults.
    let told = "\"/file\": byte 196608 of inode 2: block ";
    wait_until(|| shop.good("log stat mnt").contains(told));
    // The block is written anew.
    let file = fs::File::options().write(true).open(shop.path("mnt/file"));
    let whole = 196_608..200_704;
    let written = file
        .unwrap()
        .write_all_at(&content[whole.clone()], whole.start as u64);
    written.unwrap();
    assert!(fs::read(shop.path("mnt/file")).unwrap() == content);
    umount(&shop);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    let after = shop.good("log check --data log");
    assert!(after.contains("; 0 faults: clean"), "{after}");
}

#[test]
fn a_log_whose_newest_checkpoint_is_damaged_goes_back_only_if_it_is_told_to() {
    let shop = shop("64M");
    shop.good("log gc log");
    let said = shop.good("log dump log");
    assert!(said.contains(", older\n"), "{said}");
    let line = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap();
    let numbers: Vec<u64> = line("packs ")
        .split([' ', ','])
        .filter_map(|word| word.parse().ok())
        .collect();
    let newest = u64::from(line("pack 1").ends_with(", counts"));
    let file = fs::File::options()
        .write(true)
        .open(shop.path("log"))
        .unwrap();
    file.write_all_at(
        &[0xff; 8],
        (numbers[0] + newest * numbers[2]) * 4096 + 0x190,
    )
    .unwrap();
    for command in ["log check log", "log check --repair log", "log stat log"] {
        let error = shop.bad(3, command);
        assert!(error.contains("is whole but out of date"), "{error}");
        assert!(
            error.contains("hint: ") && error.contains("--go-back"),
            "{error}"
        );
    }
    let said = shop.good("log dump log");
    assert!(
        said.contains(", out of date: a newer one was there\n"),
        "{said}"
    );
    shop.bad(2, "log check --go-back log");
    let said = shop.good("log check --repair --go-back log");
    assert!(
        said.contains("counts again") && said.contains("; 0 faults"),
        "{said}"
    );
    shop.good("log check log");
}
