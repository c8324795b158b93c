//! Part `packing`: how many blocks compressed pages lie in, to those that could hold them (CAR, figure 1b of the paper), with each
//! policy that compresses. `comp` lets only neighbours share a block, which the paper calls sequential.

use std::path::Path;

use serde_json::Value;

use super::workloads::applications;
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::log::traces::{DEVICE_BYTES, Recorded, redo};
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

/// The goals look for it.
pub(super) const AMPLIFIED: &str = "packing: blocks for each that would do";

/// States what SQLite writes.
pub(super) const CLASSES: [&str; 2] = ["database", "journal"];

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn packing(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let compresses = |system: &&System| system.is_log() && system.name.contains("--policy");
    let systems: Vec<_> = bench.systems.iter().filter(compresses).cloned().collect();
    let metrics = [(AMPLIFIED.to_owned(), Unit::Times)];
    for recorded in applications() {
        if recorded.open().is_err() {
            bench.note(format!("packing: {} takes no part", recorded.name));
            continue;
        }
        bench.contest(recorded.name, &metrics, &systems, |bench, system| {
            let classes = counted(bench, system, &memory.file, &recorded)?;
            Ok(vec![amplification(&classes)?])
        });
    }
    Ok(())
}

/// Does again what was recorded, on a new log, and returns what it has counted of each class.
///
/// # Errors
/// When something of it cannot be done.
pub(super) fn counted(
    bench: &Bench,
    system: &System,
    device: &Path,
    recorded: &Recorded,
) -> Outcome<Value> {
    let turn = bench.turn(system, device)?;
    redo(recorded, turn.directory()?)?;
    let mut told = system.statistics(turn.directory()?)?;
    turn.end()?;
    Ok(told["log_classes"].take())
}

/// That of all classes that SQLite writes.
fn amplification(classes: &Value) -> Outcome<f64> {
    let sum = |key: &str| {
        let of = CLASSES.map(|class| classes[class][key].as_f64());
        of.into_iter()
            .sum::<Option<f64>>()
            .ok_or("no class is told")
    };
    Ok(sum("touched_blocks")? / sum("least_blocks")?)
}
