//! Logs of which one block cannot be read, as each command and each reader of a mount meets them. Nothing that a command
//! does takes away what comes back when the block can be read again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;

use anteros_core::{FileSystem, FsResult, Ino, MemoryDevice, Timestamp};
use anteros_log::{Area, Content, Inspector, Log, Options};
use anteros_tests::judge;
use anteros_tests::medium::Medium;
use anteros_tests::mount::FuseMount;

use crate::foreground::Foreground;
use crate::log::{kill_daemon, mount, mounted, unmount};
use crate::{Run, Workshop};

const BLOCK: u64 = 4096;
const EIO: i32 = 5;

fn options() -> Options {
    Options {
        read_only: true,
        ..Options::new(Timestamp::default)
    }
}

/// A log on a medium of its own, and what is in it.
struct Patient {
    shop: Workshop,
    medium: Arc<Medium>,
    mount: FuseMount,
    bytes: Vec<u8>,
    contents: BTreeMap<String, Vec<u8>>,
}

/// Content that does not compress.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = anteros_tests::trees::Random(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// Bytes of a log with checkpoints, groups behind the last one, and what was synced to it.
fn log() -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let (shop, daemon) = mounted("48M");
    let mut contents = BTreeMap::new();
    let mut put = |name: &str, data: Vec<u8>| {
        let mut file = File::create(shop.path("mnt").join(name)).unwrap();
        file.write_all(&data).unwrap();
        file.sync_all().unwrap();
        contents.insert(name.to_owned(), data);
    };
    fs::create_dir(shop.path("mnt/d")).unwrap();
    (0..20).for_each(|n| put(&format!("d/{n}-{}", "x".repeat(100)), noise(n, 100)));
    put("large", noise(100, 2_500_000));
    put("a.db", b"a page of a database ".repeat(8000));
    unmount(&shop, daemon);
    let daemon = mount(&shop, "");
    put("late", noise(102, 9000));
    kill_daemon(&shop, daemon);
    (fs::read(shop.path("log")).unwrap(), contents)
}

fn lookup(log: &Log, path: &str) -> FsResult<(Ino, u64)> {
    let mut at = (log.root(), 0);
    for name in path.split('/') {
        let attr = log.lookup(at.0, name.as_bytes())?;
        at = (attr.ino, attr.size);
    }
    Ok(at)
}

impl Patient {
    fn new() -> Self {
        let (bytes, contents) = log();
        let medium = Medium::new([("log", bytes.clone())]);
        let shop = Workshop::new();
        fs::create_dir(shop.path("mnt")).unwrap();
        Self {
            mount: FuseMount::new(medium.clone()),
            shop,
            medium,
            bytes,
            contents,
        }
    }

    fn run(&self, command: &str) -> Run {
        let path = self.mount.path().join("log").display().to_string();
        self.shop.run(&command.replace("LOG", &path))
    }

    /// The log as it was, with a block that cannot be read.
    fn scratch(&self, block: u64) {
        self.medium.fill("log", &self.bytes);
        self.medium
            .scratch("log", block * BLOCK..(block + 1) * BLOCK);
    }

    /// Sees that all is there, now that every block can be read.
    fn judge_healed(&self, place: &str) {
        let device = Arc::new(MemoryDevice::new(self.medium.bytes("log")));
        let log = Log::open(device, options()).unwrap_or_else(|error| panic!("{place}: {error}"));
        for (path, content) in &self.contents {
            let (ino, size) = lookup(&log, path).unwrap_or_else(|e| panic!("{place}: {path}: {e}"));
            let mut found = vec![0; size as usize];
            let read = log.read(ino, 0, &mut found);
            assert!(
                read.is_ok() && &found == content,
                "{place}: {path}: {read:?}"
            );
        }
    }
}

/// Blocks that hold something, with what they are.
fn blocks(bytes: &[u8]) -> Vec<(u64, Area, String)> {
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let mut inspector = Inspector::open(device, &options()).unwrap();
    let all = bytes.chunks_exact(BLOCK as usize).zip(0..);
    let filled = all.filter(|(block, _)| block.iter().any(|&byte| byte != 0));
    let near: BTreeSet<u64> = filled.flat_map(|(_, at)| [at, at + 1]).collect();
    let mut found = Vec::new();
    for block in near {
        let Ok(seen) = inspector.block(block) else {
            continue;
        };
        let kind = match seen.area {
            Area::Main { .. } if matches!(seen.content, Content::Zeros) => "nothing".to_owned(),
            Area::Main { segment, .. } => {
                let content = format!("{:?}", seen.content);
                let content = content
                    .split(['(', ' '])
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                format!("{content} {:?} of {}", seen.segment, segment / 4)
            }
            Area::Checkpoint { pack, index } => format!("pack {pack} {}", index.min(2)),
            Area::Table { name, copy, .. } => format!("{name} {copy}"),
            area => format!("{area:?}"),
        };
        found.push((block, seen.area, kind));
    }
    found
}

/// Returns whether a text names a block.
fn names(said: &str, block: u64) -> bool {
    [
        format!("block {block}"),
        format!("found {block}"),
        format!("{block:#x}"),
    ]
    .iter()
    .any(|name| said.contains(name))
}

/// A command ends well, or names the block and says by its status that it could not do all.
#[track_caller]
fn judge_run(what: &str, block: u64, place: &str, run: &Run) {
    let said = format!("{}{}", run.out, run.err);
    assert!(!said.contains("panicked"), "{what}, {place}: {said}");
    let is_named = matches!(run.status, Some(1 | 3 | 5 | 6)) && names(&said, block);
    assert!(
        run.status == Some(0) || is_named,
        "{what}, {place}: {run:?}"
    );
}

/// Reads all through a mount while the block cannot be read, and again when it can; says how much could not.
fn read_mounted(patient: &Patient, block: u64, place: &str, how: &str) -> bool {
    patient.scratch(block);
    let place = format!("{place}, mounted {how}");
    let path = patient.mount.path().join("log");
    let command = format!("log mount {} mnt --foreground {how}", path.display());
    let daemon = Foreground::start(&patient.shop, &command);
    let is_served = daemon.is_served;
    let mnt = patient.shop.path("mnt");
    let mut lost = 0;
    if is_served {
        for (name, content) in &patient.contents {
            match fs::read(mnt.join(name)) {
                Ok(found) => assert!(&found == content, "{place}: {name} is another"),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(EIO), "{place}: {name}");
                    lost += 1;
                }
            }
        }
        let is_written = how.is_empty() && fs::write(mnt.join("after"), "more").is_ok();
        patient.medium.heal();
        for (name, content) in &patient.contents {
            let found = fs::read(mnt.join(name));
            let found = found.unwrap_or_else(|error| panic!("{place}, healed: {name}: {error}"));
            assert!(&found == content, "{place}, healed: {name} is another");
        }
        assert!(!is_written || fs::read(mnt.join("after")).is_ok_and(|found| found == b"more"));
    }
    let (status, said) = daemon.end();
    assert!(!said.contains("panicked"), "{place}: {said}");
    let is_silent = is_served && lost == 0;
    assert!(
        is_silent || names(&said, block),
        "{place}, lost {lost}: {said}"
    );
    let is_as_served = if is_served {
        status == Some(0)
    } else {
        matches!(status, Some(3 | 5))
    };
    assert!(is_as_served, "{place}: {status:?}: {said}");
    if !is_served {
        patient.medium.heal();
    }
    patient.judge_healed(&place);
    is_served
}

fn try_commands(patient: &Patient, block: u64, area: Area, kind: &str) {
    let place = format!("block {block}, {area:?}, {kind}");
    patient.scratch(block);
    for command in [
        "log check LOG".to_owned(),
        "log check --json LOG".into(),
        "log stat LOG".into(),
        "log stat --json LOG".into(),
        "log dump LOG".into(),
        "log dump --json LOG".into(),
        "log dump --groups LOG".into(),
        "log dump --path large LOG".into(),
        format!("log dump --block {block} LOG"),
    ] {
        judge_run(&command, block, &place, &patient.run(&command));
    }
    read_mounted(patient, block, &place, "--read-only");
    read_mounted(patient, block, &place, "");
    for command in [
        "log gc LOG",
        "log resize --size 40M LOG",
        "log resize --size 56M LOG",
        "log check --repair LOG",
    ] {
        patient.scratch(block);
        judge_run(command, block, &place, &patient.run(command));
        patient.medium.heal();
        patient.judge_healed(&format!("{place}, after {command}"));
    }
    patient.scratch(block);
    let made = patient.run("log mkfs --force LOG");
    judge_run("log mkfs", block, &place, &made);
    // What was not written is still unreadable, which is no fault of the new log.
    let checked = patient.run("log check LOG");
    assert_eq!(checked.status, Some(0), "{place}, made anew: {checked:?}");
    assert!(
        !checked.out.contains("note: ") || names(&checked.out, block),
        "{place}: {checked:?}"
    );
}

#[test]
fn each_command_names_the_block_of_a_log_that_it_cannot_read() {
    if !judge::has_fuse() {
        return;
    }
    let patient = Patient::new();
    let blocks = blocks(&patient.bytes);
    // A copy of what there are two of, and content, compressed and plain.
    for wanted in ["Superblock", "pack 0 0", "Packed", "Bytes"] {
        let found = blocks.iter().find(|(_, _, kind)| kind.starts_with(wanted));
        let (block, area, kind) = found.unwrap_or_else(|| panic!("there is no {wanted}"));
        try_commands(&patient, *block, *area, kind);
    }
}

#[test]
#[ignore = "a campaign: all commands and two mounts for each block of a log, of data every 20th, a minute"]
fn each_command_names_each_block_of_a_log() {
    if !judge::has_fuse() {
        return;
    }
    let patient = Patient::new();
    let mut count = 0;
    let mut seen = BTreeMap::new();
    for (block, area, kind) in blocks(&patient.bytes) {
        let before: &mut u64 = seen.entry(kind.clone()).or_default();
        *before += 1;
        if *before <= 4 || *before % 20 == 0 {
            try_commands(&patient, block, area, &kind);
            count += 1;
        }
    }
    judge::say(format_args!("{count} blocks of {}", seen.len()));
}
