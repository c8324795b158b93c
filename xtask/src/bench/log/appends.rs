//! Part `appends`: what a great many writes of a few bytes each cost, one after the other at the end of a file, as programs make
//! that gather nothing themselves; until they are done, and until the file is synced.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use super::harness::Bench;
use super::system::{EXT4, MIRROR, OURS, System};
use super::workload::check;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

const DEVICE_BYTES: u64 = 1 << 30;
const APPENDS: u64 = 200_000;
const BYTES: u64 = 4;

/// Runs the part: our log as it is by default, with the kernel's write-back cache, and what it is measured by.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn appends(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let mut systems = vec![
        System::log(&bench.anteros, ""),
        System::log(&bench.anteros, "--writeback"),
    ];
    let others = bench.systems.iter();
    systems.extend(
        others
            .filter(|system| [EXT4, MIRROR].contains(&system.name.as_str()))
            .cloned(),
    );
    debug_assert!(systems[0].name == OURS);
    let metrics = ["done", "synced"].map(|until| (until.to_owned(), Unit::PerSecond));
    let title = format!("{APPENDS} appends of {BYTES} bytes");
    bench.contest(&title, &metrics, &systems, |bench, system| {
        turn(bench, system, &memory.file)
    });
    Ok(())
}

fn turn(bench: &Bench, system: &System, device: &Path) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    let mut options = OpenOptions::new();
    let mut file = options
        .append(true)
        .create(true)
        .open(turn.directory()?.join("file"))?;
    let start = Instant::now();
    for n in 0..APPENDS as u32 {
        file.write_all(&n.to_le_bytes())?;
    }
    let done = start.elapsed().as_secs_f64();
    file.sync_all()?;
    let synced = start.elapsed().as_secs_f64();
    drop(file);
    turn.mount_again()?;
    check(turn.directory()?, (1, APPENDS * BYTES))?;
    turn.end()?;
    Ok([done, synced]
        .map(|seconds| APPENDS as f64 / seconds)
        .to_vec())
}
