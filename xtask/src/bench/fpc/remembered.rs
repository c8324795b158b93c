//! Part `remembered`: starts of programs from a log that nobody tells anything: what it costs that they are recorded, and what
//! the log makes of that while nobody uses it.

use super::idle::rested;
use super::programs::{DEVICE_BYTES, install, of_start, start};
use crate::bench::corpus;
use crate::bench::launch::{PROGRAMS, seconds};
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::log::turn::Turn;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

const CORPUS: &str = "apps";

/// Arguments of our mounts: as installed, without and with a record; and when the log has come to rest. Room is free with
/// the next checkpoint.
const OURS: [&str; 4] = [
    "--policy record --idle-cpu 0 --unrecorded",
    "--policy record --idle-cpu 0",
    "--policy record --checkpoint 5 --idle-after 1 --unrecorded",
    "--policy record --checkpoint 5 --idle-after 1",
];
const PEER: &str = "btrfs compress-force=zstd:3";
/// Launches of each program, of which the log takes notice by itself.
const LAUNCHES: usize = 2;
/// Starts of each that are measured, the middle one of which counts.
const STARTS: usize = 5;

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device, or no tree.
pub(super) fn remembered(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let tree = corpus(CORPUS)?;
    let systems = bench.ours_and(&OURS, &[PEER]);
    let space = ("remembered: space".to_owned(), Unit::Bytes);
    let of_starts = PROGRAMS
        .iter()
        .flat_map(|program| of_start("remembered", program));
    let metrics: Vec<_> = [space].into_iter().chain(of_starts).collect();
    bench.contest(CORPUS, &metrics, &systems, |bench, system| {
        let mut turn = bench.turn(system, &memory.file)?;
        let empty = rested(turn.directory()?)?;
        install(&turn, &tree)?;
        launch(&mut turn, system)?;
        let mut figures = vec![(rested(turn.directory()?)? - empty) as f64];
        for program in &PROGRAMS {
            let starts = (0..STARTS).map(|_| start(&mut turn, program));
            figures.extend(medians(&starts.collect::<Outcome<Vec<_>>>()?));
        }
        turn.end()?;
        Ok(figures)
    });
    Ok(())
}

/// Starts each program cold, as often as it takes for a log to notice.
fn launch(turn: &mut Turn, system: &System) -> Outcome {
    for _ in 0..if system.is_log() { LAUNCHES } else { 0 } {
        for (_, program) in &PROGRAMS {
            turn.mount_again()?;
            seconds(&turn.directory()?.join("tree"), program, None)?;
        }
    }
    turn.mount_again()
}

/// The middle of each figure.
fn medians(starts: &[[f64; 4]]) -> [f64; 4] {
    std::array::from_fn(|figure| {
        let mut all: Vec<f64> = starts.iter().map(|start| start[figure]).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    })
}
