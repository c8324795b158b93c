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

use super::harness::Bench;
use crate::bench::measure::take_turns;
use crate::outcome::Outcome;
use crate::run::run;

/// Holds what a log is filled with: how many of what, and how many lie in one directory.
type Filling = (u64, u64, &'static str);

/// Empty files; directories alone; and names of one file for each directory, which take no inodes.
const FILLINGS: [Filling; 14] = [
    (10_000, 1000, "files"),
    (31_623, 1000, "files"),
    (100_000, 1000, "files"),
    (316_228, 1000, "files"),
    (1_000_000, 1000, "files"),
    (3_162_278, 1000, "files"),
    (10_000, 10, "directories"),
    (100_000, 10, "directories"),
    (316_228, 10, "directories"),
    (1_000_000, 10, "directories"),
    (10_000, 1000, "hard links"),
    (100_000, 1000, "hard links"),
    (1_000_000, 1000, "hard links"),
    (3_162_278, 1000, "hard links"),
];

/// Compares `anteros log check` with `dd`.
///
/// # Errors
/// When a log cannot be made, or a command fails.
pub(super) fn names(bench: &mut Bench) -> Outcome {
    let log = fs::canonicalize("target")?.join("bench-names.log");
    for (count, each, what) in FILLINGS {
        let subject = format!("{count} {what}");
        eprintln!("bench log: {subject}");
        // By another process: its memory would be the least that can be seen of those that are measured.
        let mut maker = Command::new(std::env::current_exe()?);
        maker.args(["log-of-names".as_ref(), log.as_os_str()]);
        maker.args([&count.to_string(), &each.to_string(), what]);
        run(&mut maker)?;
        let mut ours = Command::new(&bench.anteros);
        ours.args(["log", "check"]).arg(&log);
        let mut reading = Command::new("dd");
        let mut input = std::ffi::OsString::from("if=");
        input.push(&log);
        reading
            .arg(input)
            .args(["of=/dev/null", "bs=1M", "status=none"]);
        let turns = take_turns(bench.options.runs, ours, reading, || evict(&log))?.beside("dd");
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

/// Makes a log for the benchmark, no larger than need be.
///
/// # Errors
/// When the words are not a file, two numbers and what to fill it with, or the log cannot be made.
pub(in crate::bench) fn make(words: &[&str]) -> Outcome {
    let [path, count, each, what] = *words else {
        return Err("log-of-names: FILE COUNT EACH files|directories|'hard links'".into());
    };
    let (count, each): (u64, u64) = (count.parse()?, count_of(each)?);
    let inodes = match what {
        "hard links" => 4 * count.div_ceil(each),
        _ => count + count.div_ceil(each),
    };
    let path = Path::new(path);
    let file = File::create(path)?;
    file.set_len((inodes * 4096 / 8 * 9 + count * 64 + (64 << 20)) >> 12 << 12)?;
    let device: Arc<dyn WritableDevice> = Arc::new(FileDevice::open_writable(path)?);
    let options = Options::new(system_clock);
    mkfs(&device, &Shape::default(), Caller::default(), &options)?;
    let log = Log::open(device, options)?;
    match what {
        "directories" => fill_with_directories(&log, count, each)?,
        _ => fill_with_files(&log, count, each, what == "hard links")?,
    }
    Ok(log.close()?)
}

fn count_of(each: &str) -> Outcome<u64> {
    Ok(each.parse::<u64>()?.max(1))
}

/// Directories that lie in those that were made before.
fn fill_with_directories(log: &Log, count: u64, each: u64) -> Outcome {
    let mut parents = vec![log.root()];
    for number in 0..count {
        let parent = parents[(number / each) as usize];
        parents.push(add(log, parent, number, FileKind::Directory)?);
    }
    Ok(())
}

/// Files in directories of their own, each another one or all of a directory the same.
fn fill_with_files(log: &Log, count: u64, each: u64, are_links: bool) -> Outcome {
    let mut made = 0;
    while made < count {
        let parent = add(log, log.root(), made, FileKind::Directory)?;
        let end = count.min(made + each);
        let first = add(log, parent, made, FileKind::Regular)?;
        for number in made + 1..end {
            match are_links {
                true => drop(log.link(first, parent, format!("link-{number}").as_bytes())?),
                false => drop(add(log, parent, number, FileKind::Regular)?),
            }
        }
        if are_links {
            log.forget(first, end - made - 1);
        }
        made = end;
    }
    Ok(())
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
