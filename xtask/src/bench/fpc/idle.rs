//! Part `idle`: what compression in the background wins while nobody uses the log, and how long whoever comes in its middle
//! waits.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::programs::{DEVICE_BYTES, install, used};
use crate::bench::corpus;
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

const CORPUS: &str = "apps";

/// Arguments of our mounts: without it, and with. Room is free with the next checkpoint.
const OURS: [&str; 2] = [
    "--policy record --checkpoint 5",
    "--policy record --checkpoint 5 --idle-after 1",
];
const PEER: &str = "btrfs compress-force=zstd:3";

/// Files count as cold ten seconds after they were written: it has begun, and goes on, when the first one comes.
const BEGINS: Duration = Duration::from_secs(9);
/// Somebody comes so often, longer apart than it takes to begin again.
const COMES_EVERY: Duration = Duration::from_millis(1250);
const TIMES: usize = 12;
const PAGE: usize = 4096;

/// All is done when the room that is taken is the same for so long.
const ENDS: Duration = Duration::from_secs(15);

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device, or no tree.
pub(super) fn idle(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let tree = corpus(CORPUS)?;
    let systems = bench.ours_and(&OURS, &[PEER]);
    let metrics = [
        ("space in the end", Unit::Bytes),
        ("write and fsync: median", Unit::Seconds),
        ("write and fsync: longest", Unit::Seconds),
        ("open and read: median", Unit::Seconds),
        ("open and read: longest", Unit::Seconds),
    ];
    let metrics = metrics.map(|(what, unit)| (format!("idle: {what}"), unit));
    bench.contest(CORPUS, &metrics, &systems, |bench, system| {
        turn(bench, system, &memory.file, &tree)
    });
    Ok(())
}

fn turn(bench: &Bench, system: &System, device: &Path, tree: &Path) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    let empty = used(turn.directory()?)?;
    install(&turn, tree)?;
    // What is cached would not be asked for.
    turn.mount_again()?;
    let directory = turn.directory()?;
    let probe = directory.join("probe");
    fs::write(&probe, [1; PAGE])?;
    let probe = File::options().write(true).open(probe)?;
    let files = small_files(&directory.join("tree/usr/bin"))?;
    sleep(BEGINS);
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for (number, file) in (0..TIMES).zip(files.iter().cycle()) {
        sleep(COMES_EVERY);
        let begun = Instant::now();
        probe.write_all_at(&[number as u8; PAGE], 0)?;
        probe.sync_all()?;
        writes.push(begun.elapsed().as_secs_f64());
        sleep(COMES_EVERY);
        let begun = Instant::now();
        fs::read(file)?;
        reads.push(begun.elapsed().as_secs_f64());
    }
    drop(probe);
    let space = rested(directory)? - empty;
    turn.end()?;
    let figures = [writes, reads].into_iter().flat_map(|mut all| {
        all.sort_by(f64::total_cmp);
        [all[all.len() / 2], all[all.len() - 1]]
    });
    Ok([space as f64].into_iter().chain(figures).collect())
}

/// Some files of a directory, of 100 KB or less.
fn small_files(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && metadata.len() <= 100_000 {
            files.push(entry.path());
        }
    }
    files.sort();
    let step = (files.len() / TIMES).max(1);
    Ok(files.into_iter().step_by(step).collect())
}

/// The room that is taken when it does not change any more.
pub(super) fn rested(directory: &Path) -> Outcome<u64> {
    let (mut taken, mut since) = (used(directory)?, Instant::now());
    while since.elapsed() < ENDS {
        sleep(Duration::from_secs(1));
        let now = used(directory)?;
        if now != taken {
            (taken, since) = (now, Instant::now());
        }
    }
    Ok(taken)
}
