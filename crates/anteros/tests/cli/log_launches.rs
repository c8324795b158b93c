//! `anteros log mount --launches` and `anteros log launches`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::Command;

use anteros_tests::judge;
use serde_json::{Value, json};

use crate::log::{mount, shop, unmount};
use crate::log_idle::number_told;
use crate::{Workshop, run, wait_until};

const BLOCK: u64 = 4096;

fn told(shop: &Workshop) -> Value {
    shop.json("log launches --json rec")
}

/// Reads these blocks, in this order.
fn read_blocks(shop: &Workshop, name: &str, blocks: &[u64]) {
    let file = File::open(shop.path("mnt").join(name)).unwrap();
    for block in blocks {
        file.read_exact_at(&mut [0; 100], block * BLOCK + 7)
            .unwrap();
    }
}

/// A log with two files of 64 blocks that nobody has read.
fn with_files() -> Workshop {
    let shop = shop("64M");
    let daemon = mount(&shop, "");
    for name in ["mnt/lib.so", "mnt/notes.db"] {
        fs::write(shop.path(name), vec![b'x'; 64 * BLOCK as usize]).unwrap();
    }
    unmount(&shop, daemon);
    shop
}

#[test]
fn launches_are_recorded_to_the_block_and_survive_a_remount() {
    if !judge::has_fuse() {
        return;
    }
    let shop = with_files();
    for (blocks, launches, core, other, reads) in [
        (&[3, 4, 40][..], 1, 3, 0, 3),
        (&[40, 3, 9], 2, 2, 2, 6),
        (&[40, 3], 3, 2, 2, 8),
        // Two that read the same were asked for; what comes then is not recorded.
        (&[3, 40, 9], 3, 2, 2, 8),
    ] {
        let daemon = mount(&shop, "--launches rec --rounds 2");
        read_blocks(&shop, "lib.so", blocks);
        read_blocks(&shop, "notes.db", blocks);
        unmount(&shop, daemon);
        let said = told(&shop);
        let files = said["files"].as_array().unwrap();
        assert_eq!(files.len(), 1, "{said}");
        let ino = &files[0]["inode"];
        let wanted = json!({
            "inode": ino, "launches": launches, "core_blocks": core, "other_blocks": other, "reads": reads
        });
        assert_eq!(files[0], wanted);
        let file = shop.good(&format!("log dump log --inode {ino}"));
        assert_eq!(shop.good("log dump log --path /lib.so"), file);
    }
    assert_eq!(told(&shop)["launches_recorded"], 2);
    let table = shop.good("log launches rec");
    assert!(table.contains("1 files and "), "{table}");
    let all: Vec<_> = table.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(all, ["2", "2", "8", "all"]);
    let mode = fs::metadata(shop.path("rec")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(shop.left(), ["log", "mnt", "rec"]);

    let daemon = mount(&shop, "--launches rec");
    fs::write(shop.path("mnt/lib.so"), "new").unwrap();
    unmount(&shop, daemon);
    let daemon = mount(&shop, "--launches rec");
    read_blocks(&shop, "notes.db", &[5]);
    unmount(&shop, daemon);
    let said = told(&shop);
    assert_eq!(said["files"], json!([]));
    assert_eq!(said["launches_recorded"], 2);
}

/// Tests that what a program reads of itself and its own when it starts is nearly the same each time.
#[test]
fn a_program_starts_as_it_did_before() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop("512M");
    let daemon = mount(&shop, "");
    let program = shop.path("mnt/program");
    let copied = run(Command::new("cp").arg(&shop.program).arg(&program));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    unmount(&shop, daemon);
    let mut cores = Vec::new();
    for launches in 1..=2 {
        let daemon = mount(&shop, "--launches rec");
        let started = run(Command::new(&program).arg("--version"));
        assert_eq!(started.status, Some(0), "{started:?}");
        unmount(&shop, daemon);
        let said = told(&shop);
        assert_eq!(said["files"][0]["launches"], launches);
        cores.push(said["files"][0]["core_blocks"].as_u64().unwrap());
    }
    let blocks = fs::metadata(&shop.program).unwrap().len() / BLOCK;
    assert!(0 < cores[1] && cores[0] < blocks, "{cores:?} of {blocks}");
    assert!(cores[1] * 10 >= cores[0] * 9, "{cores:?}");
}

/// Nobody asks for it.
#[test]
fn a_log_knows_by_itself_what_was_launched() {
    if !judge::has_fuse() {
        return;
    }
    let shop = with_files();
    let files = || number_told(&shop, "log_launch_files");
    for known in [0.0, 1.0] {
        let daemon = mount(&shop, "--idle-cpu 0");
        assert_eq!(files(), known);
        for name in ["lib.so", "notes.db"] {
            read_blocks(&shop, name, &[40, 3]);
        }
        unmount(&shop, daemon);
    }
    let daemon = mount(&shop, "--idle-after 0");
    wait_until(|| number_told(&shop, "log_launch_gathered_bytes") > 0.0);
    let said = shop.good("stat mnt");
    assert!(said.contains("\nlaunches   "), "{said}");
    let content = fs::read(shop.path("mnt/lib.so")).unwrap();
    assert!(content == vec![b'x'; 64 * BLOCK as usize]);
    unmount(&shop, daemon);
    let daemon = mount(&shop, "--idle-cpu 0");
    assert!(number_told(&shop, "log_launch_gathered_bytes") > 0.0);
    unmount(&shop, daemon);
    for options in ["--unrecorded", "--idle-cpu 0"] {
        let daemon = mount(&shop, options);
        assert_eq!(files(), 0.0, "{options}");
        unmount(&shop, daemon);
    }
    for other in ["--launches rec", "--rounds 3"] {
        let error = shop.bad(2, &format!("log mount log mnt --unrecorded {other}"));
        assert!(error.contains("cannot be used with"), "{error}");
    }
}

#[test]
fn a_record_that_cannot_be_is_refused_with_a_reason() {
    let shop = shop("64M");
    fs::write(shop.path("text"), "no record at all").unwrap();
    for command in [
        "log launches text",
        "log mount log mnt --launches text --foreground",
    ] {
        let error = shop.bad(3, command);
        assert!(
            error.contains("text: no record of launches: it begins with \"no recor\""),
            "{error}"
        );
    }
    let error = shop.bad(2, "log mount log mnt --launches mnt/rec --foreground");
    assert!(error.contains("the mount would hide it"), "{error}");
    let error = shop.bad(2, "log mount log mnt --launches src --foreground");
    assert!(error.contains("src: no regular file"), "{error}");
    shop.bad(2, "log mount log mnt --rounds 3 --foreground");
    for wrong in ["0", "256"] {
        let error = shop.bad(
            2,
            &format!("log mount log mnt --launches rec --rounds {wrong}"),
        );
        assert!(error.contains("1..=255"), "{error}");
    }
    let error = shop.bad(5, "log launches rec");
    assert!(error.contains("rec: No such file"), "{error}");
    if !judge::has_fuse() {
        return;
    }
    // A link to a record stays one.
    symlink("rec", shop.path("link")).unwrap();
    let daemon = mount(&shop, "--launches rec");
    unmount(&shop, daemon);
    let daemon = mount(&shop, "--launches link");
    fs::write(shop.path("mnt/lib.so"), vec![b'x'; BLOCK as usize]).unwrap();
    read_blocks(&shop, "lib.so", &[0]);
    unmount(&shop, daemon);
    assert!(shop.path("link").is_symlink());
    assert_eq!(told(&shop)["files"].as_array().unwrap().len(), 1);
    let record = fs::read(shop.path("rec")).unwrap();

    let mut damaged = record.clone();
    damaged[60] ^= 1;
    fs::write(shop.path("rec"), &damaged).unwrap();
    let error = shop.bad(3, "log mount log mnt --launches rec --foreground");
    assert!(
        error.contains("rec: damaged or cut short: byte 12 has the checksum 0x"),
        "{error}"
    );
    assert_eq!(fs::read(shop.path("rec")).unwrap(), damaged);

    fs::write(shop.path("rec"), &record).unwrap();
    let wanted = told(&shop)["uuid"].as_str().unwrap().to_owned();
    fs::remove_file(shop.path("log")).unwrap();
    shop.good("log mkfs log --size 64M");
    let error = shop.bad(2, "log mount log mnt --launches rec --foreground");
    let said = format!("rec: launches of the log {wanted}, not of ");
    assert!(error.contains(&said), "{error}");
    assert_eq!(fs::read(shop.path("rec")).unwrap(), record);
}
