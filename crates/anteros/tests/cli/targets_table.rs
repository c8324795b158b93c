//! A table: each command that writes a file or into a directory, and each kind of target that it must refuse. It ends with
//! a status of its own, names the target, and leaves all as it was.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_tests::judge;

use crate::log::shop;
use crate::{Workshop, is_mounted, run};

/// A command that writes: the target stands for `@`. The last three need FUSE.
const COMMANDS: [&str; 12] = [
    "mkfs @ src",
    "log mkfs @ --size 40M",
    "log resize @ --size 64M",
    "log gc @",
    "log check --repair @",
    "log stat log --svg @",
    "trace record --plot @",
    "extract image @",
    "manual @",
    "passthru back mnt --trace @",
    "mount --fuse image mnt --trace @",
    "log mount log mnt --launches @",
];

const MIB: u64 = 1 << 20;

/// Commands that write into a directory.
const INTO_DIRECTORIES: [&str; 2] = ["extract image @", "manual @"];

/// Makes what commands need: a log, an image, a record of accesses, a directory to mirror, one to mount on.
fn workshop() -> Workshop {
    let shop = shop("32M");
    shop.good("mkfs --quiet image src");
    fs::create_dir(shop.path("back")).unwrap();
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace");
    let mut records: Vec<_> = fs::read_dir(records)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    records.sort_by_key(|path| fs::metadata(path).unwrap().len());
    fs::copy(records.last().unwrap(), shop.path("record")).unwrap();
    shop
}

fn commands() -> impl Iterator<Item = &'static str> {
    let count = if judge::has_fuse() {
        COMMANDS.len()
    } else {
        COMMANDS.len() - 3
    };
    COMMANDS.into_iter().take(count)
}

/// All below a directory: kinds, links and content.
fn seen(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            let mut told = format!("{:?} {}", data.file_type(), data.len());
            if data.is_dir() {
                left.push(path.clone());
                told = "directory".into();
            } else if data.is_symlink() {
                told += &fs::read_link(&path).unwrap().display().to_string();
            } else if data.is_file() {
                told += &seen_of_file(&path, &data);
            }
            found.insert(path, told);
        }
    }
    found
}

/// Content of a small file; of a large one, when it was written to; of the log nothing while it is mounted.
fn seen_of_file(path: &Path, data: &fs::Metadata) -> String {
    if data.len() < MIB {
        let sum = fs::read(path).unwrap().iter().fold(0u64, |sum, &byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        return format!(" {sum:x}");
    }
    match path.ends_with("log") && is_mounted(&path.with_file_name("mnt")) {
        true => String::new(),
        false => format!(" {}.{:09}", data.mtime(), data.mtime_nsec()),
    }
}

/// Gives a target to all commands but some, each of which must refuse it and say so by name.
fn refused(shop: &Workshop, target: &str, but: &[&str]) {
    let mut before = seen(shop.dir.path());
    for template in commands().filter(|command| !but.contains(command)) {
        let command = template.replace('@', target);
        let done = shop.run(&command);
        assert!(
            matches!(done.status, Some(2 | 3 | 5)),
            "{command}: {done:?}"
        );
        let name = Path::new(target).file_name().unwrap().to_str().unwrap();
        let is_named = done.err.contains(name) || done.err.contains("nowhere");
        assert!(
            is_named && done.err.contains("error: "),
            "{command}: {done:?}"
        );
        let after = seen(shop.dir.path());
        // A log that was opened, for nothing as it turned out, has another checkpoint.
        let is_opened = command.starts_with("log mount") && done.status == Some(5);
        let log = shop.path("log");
        let differs = |path: &&PathBuf| {
            before.get(*path) != after.get(*path) && !(is_opened && **path == log)
        };
        let changed: Vec<_> = before.keys().chain(after.keys()).filter(differs).collect();
        assert!(changed.is_empty(), "{command}: {changed:?}: {done:?}");
        if is_opened {
            let checked = shop.good("log check log");
            assert!(
                checked.contains("; 0 faults: clean"),
                "{command}: {checked}"
            );
        }
        before = after;
    }
}

/// Commands but for those of the table that name one of some words.
fn all_but(words: &[&str]) -> Vec<&'static str> {
    let keeps = |command: &&str| !words.iter().any(|word| command.contains(word));
    COMMANDS.into_iter().filter(keeps).collect()
}

#[test]
fn a_directory() {
    let shop = workshop();
    fs::create_dir(shop.path("directory")).unwrap();
    fs::write(shop.path("directory/file"), "kept").unwrap();
    refused(&shop, "directory", &INTO_DIRECTORIES);
}

#[test]
fn a_file_of_other_content() {
    let shop = workshop();
    fs::write(shop.path("data"), "somebody's data").unwrap();
    refused(&shop, "data", &["extract image @"]);
}

#[test]
fn a_name_in_a_directory_that_is_not_there() {
    let shop = workshop();
    // That one is made, with all above it.
    refused(&shop, "nowhere/target", &INTO_DIRECTORIES);
}

#[test]
fn a_link_that_leads_nowhere() {
    let shop = workshop();
    symlink("nowhere/file", shop.path("dangling")).unwrap();
    refused(&shop, "dangling", &[]);
}

#[test]
fn a_device_that_is_no_disk() {
    let shop = workshop();
    // A drawing may go where it is thrown away, and so may an image.
    refused(
        &shop,
        "/dev/null",
        &[
            "log stat log --svg @",
            "trace record --plot @",
            "mkfs @ src",
        ],
    );
}

#[test]
fn what_the_command_itself_reads() {
    let shop = workshop();
    for (target, words) in [
        ("log", &["log stat", "log mount"][..]),
        ("record", &["trace record"]),
        ("image", &["mount --fuse", "extract"]),
        ("src", &["mkfs @ src"]),
    ] {
        refused(&shop, target, &all_but(words));
    }
}

/// A file system of the test's own on the directory `full`.
fn file_system(shop: &Workshop, options: &str) -> bool {
    if !judge::is_root() {
        judge::missing("a file system of the test's own");
        return false;
    }
    fs::create_dir_all(shop.path("full")).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", options, "none"]);
    let done = run(mount.arg(shop.path("full")));
    assert_eq!(done.status, Some(0), "{done:?}");
    true
}

#[test]
fn a_file_system_for_reading_alone() {
    let shop = workshop();
    if !file_system(&shop, "size=64M") {
        return;
    }
    for name in ["log", "image", "record"] {
        let copied = run(Command::new("cp")
            .arg("--sparse=always")
            .arg(shop.path(name))
            .arg(shop.path("full").join(name)));
        assert_eq!(copied.status, Some(0), "{copied:?}");
    }
    let mut remount = Command::new("mount");
    let done = run(remount.args(["-o", "remount,ro"]).arg(shop.path("full")));
    assert_eq!(done.status, Some(0), "{done:?}");
    for target in ["full/new", "full/log", "full/image"] {
        refused(&shop, target, &[]);
    }
}

#[test]
fn a_file_system_that_is_full() {
    let shop = workshop();
    if !file_system(&shop, "size=1M,nr_inodes=40") {
        return;
    }
    fs::write(shop.path("src/big"), vec![1; 2 << 20]).unwrap();
    shop.good("mkfs --quiet --force image src -znone");
    let filler = fs::File::create(shop.path("full/filler")).unwrap();
    while std::io::Write::write_all(&mut &filler, &[1; 4096]).is_ok() {}
    fs::write(shop.path("full/empty"), "").unwrap();
    // Into directories as much is written as there is room for.
    refused(&shop, "full/new", &INTO_DIRECTORIES);
    refused(&shop, "full/empty", &[]);
}

#[test]
fn a_directory_on_which_a_log_is_mounted() {
    if !judge::has_fuse() {
        return;
    }
    let shop = workshop();
    shop.good("log mount log mnt");
    fs::write(shop.path("mnt/file"), "kept").unwrap();
    // What is mounted is a directory as others are; a log that is mounted may be cleaned, and looked at.
    let but = [&INTO_DIRECTORIES[..], &["log gc @"]].concat();
    refused(&shop, "mnt", &but);
    assert_eq!(fs::read(shop.path("mnt/file")).unwrap(), b"kept");
    shop.good("umount mnt");
}
