//! Part `throughput`: how fast each system writes and reads, from large records to an fsync after each small one: until the
//! work is done, and until it is unmounted as well, when all of it is on the device.

use std::path::Path;
use std::time::Instant;

use super::harness::Bench;
use super::system::System;
use super::workload::{WORKLOADS, Workload, check};
use crate::bench::write::native::Memory;
use crate::bench::write::workload::get_ready;
use crate::outcome::Outcome;

const DEVICE_BYTES: u64 = 3 << 30;

/// The goals look for it.
pub(super) const DONE: &str = "throughput";

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn throughput(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let systems = bench.systems.clone();
    get_ready();
    for workload in &WORKLOADS {
        let metrics = ["", ", until unmounted"].map(|until| {
            let name = format!("{DONE}{until}");
            (name, workload.unit)
        });
        bench.contest(workload.name, &metrics, &systems, |bench, system| {
            turn(bench, system, &memory.file, workload)
        });
    }
    Ok(())
}

fn turn(bench: &Bench, system: &System, device: &Path, workload: &Workload) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    if let Some(prepare) = workload.prepare {
        prepare(turn.directory()?)?;
        turn.mount_again()?;
    }
    let start = Instant::now();
    let amount = (workload.work)(turn.directory()?)?;
    let done = start.elapsed().as_secs_f64();
    turn.unmount()?;
    let unmounted = start.elapsed().as_secs_f64();
    turn.mount_again()?;
    check(turn.directory()?, workload.leaves)?;
    turn.end()?;
    Ok(vec![amount / done, amount / unmounted])
}
