//! `bench log --only names`: what a check of a log takes as the files in it grow in number, beside one reading of all
//! that lies there. The log is on the disk, and what the kernel holds of it is given up before each turn.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anteros_core::{
    Caller, FileDevice, FileKind, FileSystem, Ino, New, Rdev, Writable, WritableDevice,
};
use anteros_log::{Log, Options, Shape, mkfs, system_clock};
use rustix::fs::{Advice, fadvise};

use super::Bench;
use crate::Outcome;
use crate::bench::measure::take_turns;

/// The numbers of files, and how many lie in one directory; those of directories alone.
const SHAPES: [(u64, u64, &str); 7] = [
    (10_000, 1000, "files"),
    (31_623, 1000, "files"),
    (100_000, 1000, "files"),
    (316_228, 1000, "files"),
    (1_000_000, 1000, "files"),
    (100_000, 10, "directories"),
    (316_228, 10, "directories"),
];

/// Compares `anteros log check` with `dd`.
///
/// # Errors
/// When a log cannot be made, or a command fails.
pub(super) fn names(bench: &mut Bench) -> Outcome {
    let log = fs::canonicalize("target")?.join("bench-names.log");
    for (count, each, what) in SHAPES {
        let subject = format!("{count} {what}");
        eprintln!("bench log: {subject}");
        make(&log, count, each, what == "directories")?;
        let mut ours = Command::new(&bench.anteros);
        ours.args(["log", "check"]).arg(&log);
        let mut reading = Command::new("dd");
        let mut input = std::ffi::OsString::from("if=");
        input.push(&log);
        reading
            .arg(input)
            .args(["of=/dev/null", "bs=1M", "status=none"]);
        let turns = take_turns(bench.options.runs, ours, reading, || evict(&log))?;
        let wall = turns.wall("check: wall time", &subject);
        bench.comparisons.push(wall);
        let memory = turns.memory("check: peak memory", &subject);
        bench.comparisons.push(memory);
    }
    fs::remove_file(&log)?;
    Ok(())
}

/// Has the kernel give up what it holds of a file.
fn evict(path: &Path) -> Outcome {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Makes a log with so many empty files, or directories, which is no larger than need be.
fn make(path: &Path, count: u64, each: u64, are_directories: bool) -> Outcome {
    let file = File::create(path)?;
    let inodes = count + count / each;
    file.set_len((inodes * 4096 / 8 * 9 + (64 << 20)) >> 12 << 12)?;
    let device: Arc<dyn WritableDevice> = Arc::new(FileDevice::open_writable(path)?);
    let options = Options::new(system_clock);
    mkfs(&device, &Shape::default(), Caller::default(), &options)?;
    let log = Log::open(device, options)?;
    let kind = match are_directories {
        true => FileKind::Directory,
        false => FileKind::Regular,
    };
    let mut parents = vec![log.root()];
    let mut made = 0;
    // Directories lie in those that were made before, files in directories of their own.
    while made < count {
        let parent = match are_directories {
            true => parents[(made / each) as usize],
            false => add(&log, log.root(), made, FileKind::Directory)?,
        };
        for _ in 0..each.min(count - made) {
            let ino = add(&log, parent, made, kind)?;
            if are_directories {
                parents.push(ino);
            }
            made += 1;
        }
    }
    Ok(log.close()?)
}

fn add(log: &Log, parent: Ino, number: u64, kind: FileKind) -> Outcome<Ino> {
    let name = match kind {
        FileKind::Directory => format!("d{number}"),
        _ => format!("file-{number}"),
    };
    let new = New {
        parent,
        name: name.as_bytes(),
        mode: kind.mode_bits() | 0o755,
        umask: 0,
        caller: Caller::default(),
    };
    let attr = log.make(&new, Rdev::default())?;
    log.forget(attr.ino, 1);
    Ok(attr.ino)
}
