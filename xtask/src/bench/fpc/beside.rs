//! Part `beside`: how long a small write and its fsync take while somebody else copies into the same file system, has it
//! compress, or only keeps the processors busy, which shows what the scheduler alone does to it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::files::{noise, text};
use crate::bench::log::harness::Bench;
use crate::bench::log::system::{EXT4, System};
use crate::bench::log::traces::percentile;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

const DEVICE_BYTES: u64 = 2 << 30;

/// Ours compresses as it does by default, and nothing while nobody asks for it.
const OURS: &str = "--policy record --idle-cpu 0";

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// The file that is synced, in pages.
const PAGES: u64 = 2048;
const PAGE: usize = 4096;

/// Duration of it all, and of the pause behind each fsync.
const LASTS: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(1);

/// Occupation of somebody else.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    Nobody,
    Spins,
    CopiesText,
    CopiesNoise,
    Compacts,
}

const OTHERS: [(&str, Other); 5] = [
    ("alone", Other::Nobody),
    ("beside busy processors", Other::Spins),
    ("beside a copy of text", Other::CopiesText),
    ("beside a copy of noise", Other::CopiesNoise),
    ("beside log compact", Other::Compacts),
];

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn beside(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let metrics = ["median", "99 of 100 below", "longest"];
    let metrics = metrics.map(|which| (format!("beside: fsync, {which}"), Unit::Seconds));
    for (subject, other) in OTHERS {
        let peers = if other == Other::Compacts {
            &[][..]
        } else {
            &[EXT4]
        };
        let systems = bench.ours_and(&[OURS], peers);
        bench.contest(subject, &metrics, &systems, |bench, system| {
            turn(bench, system, &memory.file, other)
        });
    }
    Ok(())
}

fn turn(bench: &Bench, system: &System, device: &Path, other: Other) -> Outcome<Vec<f64>> {
    let turn = bench.turn(system, device)?;
    let directory = turn.directory()?;
    let content = other.content()?;
    if other == Other::Compacts {
        copy(directory, &content, &AtomicBool::new(false))?;
        rustix::fs::sync();
    }
    let ends = AtomicBool::new(false);
    let times = thread::scope(|scope| {
        let busy = scope.spawn(|| {
            other
                .goes_on(bench, directory, &content, &ends)
                .map_err(|error| error.to_string())
        });
        let times = synced(directory);
        ends.store(true, Ordering::Relaxed);
        let ended = busy
            .join()
            .unwrap_or_else(|_| Err("it panicked".to_owned()));
        ended.and(times.map_err(|error| error.to_string()))
    })?;
    turn.end()?;
    Ok(vec![
        percentile(&times, 50),
        percentile(&times, 99),
        percentile(&times, 100),
    ])
}

/// Seconds of each fsync of a page anywhere in a file, the shortest first.
fn synced(directory: &Path) -> Outcome<Vec<f64>> {
    let file = File::create(directory.join("database.db"))?;
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < LASTS {
        let number = times.len() as u64;
        let page = [number as u8; PAGE];
        file.write_all_at(&page, number * 769 % PAGES * PAGE as u64)?;
        let begun = Instant::now();
        file.sync_all()?;
        times.push(begun.elapsed().as_secs_f64());
        sleep(PAUSE);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

impl Other {
    /// Content that is copied.
    fn content(self) -> Outcome<Vec<u8>> {
        match self {
            Self::Nobody | Self::Spins => Ok(Vec::new()),
            Self::CopiesText | Self::Compacts => text(),
            Self::CopiesNoise => Ok(noise()),
        }
    }

    /// Does it until it is to end.
    fn goes_on(
        self,
        bench: &Bench,
        directory: &Path,
        content: &[u8],
        ends: &AtomicBool,
    ) -> Outcome {
        match self {
            Self::Nobody => Ok(()),
            Self::Spins => spin(ends),
            Self::CopiesText | Self::CopiesNoise => copy_again(directory, content, ends),
            Self::Compacts => compact(bench, directory, ends),
        }
    }
}

/// Keeps each processor busy.
fn spin(ends: &AtomicBool) -> Outcome {
    let processors = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| while !ends.load(Ordering::Relaxed) {});
        }
    });
    Ok(())
}

fn copy_again(directory: &Path, content: &[u8], ends: &AtomicBool) -> Outcome {
    while !ends.load(Ordering::Relaxed) {
        copy(directory, content, ends)?;
    }
    Ok(())
}

fn copy(directory: &Path, content: &[u8], ends: &AtomicBool) -> Outcome {
    let mut file = File::create(directory.join("copy"))?;
    content
        .chunks(PIECE)
        .take_while(|_| !ends.load(Ordering::Relaxed))
        .try_for_each(|piece| file.write_all(piece))?;
    Ok(())
}

/// Has a large file compressed in the background, and the command ended before that is done if need be.
fn compact(bench: &Bench, directory: &Path, ends: &AtomicBool) -> Outcome {
    let mut command = Command::new(&bench.anteros);
    command.args(["log", "compact"]).arg(directory.join("copy"));
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    while !ends.load(Ordering::Relaxed) && child.try_wait()?.is_none() {
        sleep(PAUSE);
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}
