//! Part `overhead`: what a log of 16 GiB takes for itself, of the device and of memory (section 4.6 of the paper).
//! Compression adds nothing that is not there without it: the table of slots is part of every log.

use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

const DEVICE_BYTES: u64 = 16 << 30;

/// Runs the part.
///
/// # Errors
/// When the device cannot be had.
pub(super) fn overhead(bench: &mut Bench) -> Outcome {
    let memory = Memory::sparse(bench.place, DEVICE_BYTES)?;
    let metrics = [
        ("overhead: not for users, of 16 GiB", Unit::Bytes),
        ("overhead: memory of the daemon", Unit::Bytes),
    ];
    let metrics = metrics.map(|(name, unit)| (name.to_owned(), unit));
    let systems = bench.systems.iter().filter(|one| one.is_log());
    let systems: Vec<System> = systems.cloned().collect();
    bench.contest("empty", &metrics, &systems, |bench, system| {
        let turn = bench.turn(system, &memory.file)?;
        let space = rustix::fs::statvfs(turn.directory()?)?;
        let usable = space.f_blocks * space.f_frsize;
        let peak = turn.stand()?.memory_peak()?;
        turn.end()?;
        Ok(vec![(DEVICE_BYTES - usable) as f64, peak as f64])
    });
    Ok(())
}
