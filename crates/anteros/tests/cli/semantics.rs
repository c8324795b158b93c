//! Tests what `docs/semantics.md` promises: its examples, run as they stand, and what the shell cannot show.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anteros_tests::disk::{Disk, Kind};
use anteros_tests::judge;
use tempfile::TempDir;

use crate::mirror::{Mirror, WAYS, Way};
use crate::soak::heap_bytes;
use crate::{Signal, kill, run};

/// The quota of examples that have one.
const QUOTA_BYTES: u64 = 4 << 20;

/// A session at the shell, and where it holds.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    /// Of its first line in the document.
    line: usize,
    ways: Vec<Way>,
    options: String,
    has_quota: bool,
    /// Commands after `$ ` and `> `, and what they print.
    text: String,
}

/// The examples of a document: fenced blocks of `console`, each below a line such as
///
/// ```text
/// `buffer`, `entries`, `--interval 60000`, with a quota of 4 MiB:
/// ```
///
/// where `Every way` stands for all of them.
fn examples(document: &str) -> Vec<Example> {
    let mut lines = (1..).zip(document.lines());
    let (mut examples, mut above) = (Vec::new(), "");
    while let Some((line, text)) = lines.next() {
        if text == "```console" {
            let inside = lines.by_ref().map(|(_, text)| text);
            let inside: Vec<_> = inside.take_while(|text| *text != "```").collect();
            examples.push(example(line + 1, above, &inside.join("\n")));
        } else if !text.is_empty() {
            above = text;
        }
    }
    examples
}

fn example(line: usize, above: &str, text: &str) -> Example {
    let above = above
        .strip_suffix(':')
        .unwrap_or_else(|| panic!("line {line}: no line above says where the example holds"));
    let quoted: Vec<_> = above.split('`').skip(1).step_by(2).collect();
    let (options, names): (Vec<&str>, Vec<&str>) =
        quoted.iter().partition(|word| word.starts_with("--"));
    let named = |name: &&str| WAYS.into_iter().find(|way| way.name == *name);
    let ways: Vec<_> = match above.starts_with("Every way") {
        true => WAYS.into(),
        false => names.iter().filter_map(named).collect(),
    };
    let known = names.iter().all(|name| named(name).is_some());
    assert!(known && !ways.is_empty(), "line {line}: {above}");
    Example {
        line,
        ways,
        options: options.join(" "),
        has_quota: above.contains("quota"),
        text: format!("{text}\n"),
    }
}

/// A script that prints each command before it runs it, so that the session is its output. By `printf`, which is
/// a part of the shell: another process would close the files that the session has open.
fn script(text: &str) -> String {
    let mut script = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(first) = line.strip_prefix("$ ") else {
            continue;
        };
        let (mut shown, mut command) = (line.to_owned(), first.to_owned());
        while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
            shown = format!("{shown}\n{more}");
            command = format!("{command}\n{}", &more[2..]);
        }
        let quoted = shown.replace('\'', r"'\''");
        script += &format!("printf '%s\\n' '{quoted}'\n{command}\n");
    }
    script
}

/// Returns what a session looks like that runs where `src` is mirrored at `mnt`.
fn session(example: &Example, way: Way, source: &Path) -> String {
    let place = TempDir::new().unwrap();
    let mirror = Mirror::new(source, way, &example.options);
    symlink(source, place.path().join("src")).unwrap();
    symlink(mirror.root(), place.path().join("mnt")).unwrap();
    let output = Command::new("timeout")
        .args(["-k", "2", "60", "sh", "-c"])
        .arg(format!("exec 2>&1\n{}", script(&example.text)))
        .current_dir(place.path())
        .env("LC_ALL", "C")
        .env("daemon", mirror.daemon().id().to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines = said.split_inclusive('\n').filter(|line| !is_list(line));
    lines.collect()
}

/// Returns whether a line is of the list of open files that xfs_io shows after a `close` that fails. Those of before
/// 6.13 do not.
fn is_list(line: &str) -> bool {
    line.starts_with("[000] mnt/file ")
        && line.ends_with("(foreign,non-sync,non-direct,read-write)\n")
}

/// Runs an example in directories of its own on one of the devices, which are left empty.
fn check(example: &Example, way: Way, [plain, limited]: [&Disk; 2]) {
    let run = |attempt| {
        let name = format!("{}-{way}-{attempt}", example.line);
        let source = match example.has_quota {
            true => limited.limited_directory(&name, QUOTA_BYTES),
            false => plain.directory(&name),
        };
        let session = session(example, way, &source);
        fs::remove_dir_all(source).unwrap();
        session
    };
    let Example { line, text, .. } = example;
    // What the kernel keeps is written when it likes to, and when anybody on this machine syncs.
    let attempts = if way.name == "cache" { 30 } else { 1 };
    let mut session = String::new();
    for attempt in 0..attempts {
        session = run(attempt);
        if session == *text {
            break;
        }
    }
    assert_eq!(session, *text, "semantics.md, line {line}, {way}");
}

#[test]
fn the_examples_of_the_document_hold() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/semantics.md");
    let examples = examples(&fs::read_to_string(document).unwrap());
    assert!(!examples.is_empty(), "no example is found");
    if !judge::has_fuse() || !judge::has_program("xfs_io") {
        return;
    }
    // All ways at once, since most of the time is waiting, but on devices of their own: some are filled.
    std::thread::scope(|scope| {
        for way in WAYS {
            let examples = &examples;
            scope.spawn(move || check_all(examples, way));
        }
    });
}

fn check_all(examples: &[Example], way: Way) {
    let (Some(plain), Some(limited)) = (Disk::new(Kind::Ext4), Disk::new(Kind::Btrfs)) else {
        return;
    };
    let of_this_way = |example: &&Example| example.ways.contains(&way);
    for example in examples.iter().filter(of_this_way) {
        check(example, way, [&plain, &limited]);
    }
}

/// Content of the same length, in a file that stays open.
#[test]
fn an_open_file_sees_what_changes_in_the_source() {
    if !judge::has_fuse() {
        return;
    }
    let check = |way| {
        let source = TempDir::new().unwrap();
        let behind = source.path().join("file");
        fs::write(&behind, "one way").unwrap();
        let mirror = Mirror::new(source.path(), way, "--timeout 1");
        let file = File::open(mirror.path("file")).unwrap();
        for text in ["one way", "another", "a third"] {
            fs::write(&behind, text).unwrap();
            std::thread::sleep(Duration::from_millis(1100));
            let mut found = [0; 7];
            file.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(found, text.as_bytes(), "{way}");
        }
        drop(file);
        mirror.unmount();
    };
    std::thread::scope(|scope| {
        for way in WAYS.into_iter().filter(|way| way.looks_at_source()) {
            scope.spawn(move || check(way));
        }
    });
}

/// The part of a device that is reserved for another user stays free: whoever is above quotas would get it as well.
#[test]
fn what_is_reserved_for_others_is_left_to_them() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS.into_iter().filter(|way| way.fails_at_write) {
        let Some(disk) = Disk::with_options(Kind::Ext4, &["resuid=12345"]) else {
            return;
        };
        let space = || rustix::fs::statvfs(disk.path()).unwrap();
        let reserved = space().f_bfree - space().f_bavail;
        assert!(reserved > 256, "{way}: {reserved} blocks");
        let mirror = Mirror::new(&disk.path(), way, "");
        let mut file = File::create(mirror.path("file")).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[7; 100_000]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{way}");
        assert!(space().f_bfree >= reserved, "{way}: {reserved} blocks");
        assert!(space().f_bavail < 64, "{way}");
        drop(file);
        mirror.unmount();
    }
}

/// An error that no open file could be told of: a loop device has no descriptor to close.
#[test]
fn an_error_that_nobody_was_told_of_is_told_by_the_daemon() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS.into_iter().filter(|way| way.has_buffer) {
        let Some(disk) = Disk::new(Kind::Btrfs) else {
            return;
        };
        let source = disk.limited_directory("source", QUOTA_BYTES);
        let complaints = source.with_file_name("complaints");
        let standard_error = File::create(&complaints).unwrap();
        // The loop device has several writers. Several at a time would wait themselves, and be told.
        let options = "--interval 60000 --flush-by-writers";
        let mirror = Mirror::started(&source, way, options, |command| {
            command.stderr(standard_error);
        });
        let file = File::create(mirror.path("other")).unwrap();
        file.write_all_at(&[1; 13 << 18], 0).unwrap();
        file.sync_all().unwrap();
        File::create(mirror.path("disk"))
            .unwrap()
            .set_len(8 << 20)
            .unwrap();
        drop(file);
        let script = format!(
            "device=$(losetup --find --show {}) && dd if=/dev/zero of=$device bs=512K count=2 oflag=direct status=none; losetup --detach $device",
            mirror.path("disk").display()
        );
        let found = run(Command::new("sh").args(["-c", &script]));
        assert_eq!((found.status, &found.err[..]), (Some(0), ""), "{way}");
        mirror.unmount();
        let said = fs::read_to_string(complaints).unwrap();
        let wanted = format!(
            "fault: {}: not all was written: Disk quota exceeded",
            source.join("disk").display()
        );
        assert!(said.starts_with(&wanted), "{way}: {said}");
    }
}

/// Memory besides the buffer: what the document says.
fn bytes_besides(workers: u64) -> u64 {
    let each = 2 * ((1 << 20) + (80 << 10));
    workers * each + (4 << 20)
}

#[test]
fn the_buffer_bounds_memory() {
    const WRITERS: usize = 64;
    const WORKERS: u64 = 2;
    const BUFFER: u64 = 8 << 20;
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let source = TempDir::new_in(anteros_tests::scratch()).unwrap();
        let options = format!("--workers {WORKERS} --buffer {BUFFER}");
        let mirror = Mirror::new(source.path(), way, &options);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let path = mirror.path(&format!("file{writer}"));
                scope.spawn(move || {
                    let mut file = File::create(path).unwrap();
                    let lens = [100, 4096, 1 << 20, 60_000, 65_537, 5000, 300_000];
                    for len in lens.iter().cycle().skip(writer).take(21) {
                        file.write_all(&vec![writer as u8; *len]).unwrap();
                    }
                });
            }
        });
        let peak = heap_bytes(mirror.daemon());
        kill(mirror.daemon(), Signal::TERM);
        let buffer = if way.has_buffer { BUFFER } else { 0 };
        let bound = buffer + bytes_besides(WORKERS);
        assert!(peak <= bound, "{way}: {peak} bytes of {bound}");
    }
}
