//! Part `memory`: the most memory that a daemon holds while a tree of many files is copied, while it is
//! looked at, and while a large file is written.
//! The page cache is not counted: it is the system's.

use std::process::Command;

use super::harness::Bench;
use super::system::System;
use super::turn::Turn;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::bench::write::workload::in_turns;
use crate::bench::{corpus, tree};
use crate::outcome::Outcome;
use crate::run::run;

const DEVICE_BYTES: u64 = 4 << 30;
/// The tree that is copied.
const CORPUS: &str = "tree60k";
const LARGE_BYTES: u64 = 1 << 30;

/// The goals look for it.
pub(super) const PEAK: &str = "memory: peak of the daemon";

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device, or the corpus cannot be had.
pub(super) fn memory(bench: &mut Bench) -> Outcome {
    let corpus = corpus(CORPUS)?;
    let files = tree::files(&corpus)?.len();
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let mut systems = bench.systems.clone();
    systems.retain(System::has_daemon);
    let copy = |turn: &Turn| -> Outcome {
        run(Command::new("cp")
            .arg("-a")
            .arg(&corpus)
            .arg(turn.directory()?))
    };
    let metrics = [(PEAK.to_owned(), Unit::Bytes)];
    let subject = format!("cp -a of {CORPUS}");
    bench.contest(&subject, &metrics, &systems, |bench, system| {
        measured(bench.turn(system, &memory.file)?, copy)
    });
    let subject = format!("the sizes of all files of {CORPUS}");
    bench.contest(&subject, &metrics, &systems, |bench, system| {
        let mut turn = bench.turn(system, &memory.file)?;
        copy(&turn)?;
        turn.mount_again()?;
        measured(turn, |turn| match tree::files(turn.directory()?)?.len() {
            found if found == files => Ok(()),
            found => Err(format!("the copy has {found} files, not {files}").into()),
        })
    });
    bench.contest("one file of 1 GiB", &metrics, &systems, |bench, system| {
        measured(bench.turn(system, &memory.file)?, |turn| {
            in_turns(turn.directory()?, 1, 1 << 20, LARGE_BYTES).map(drop)
        })
    });
    Ok(())
}

/// The most memory of the daemon until something is done.
fn measured(turn: Turn, work: impl FnOnce(&Turn) -> Outcome) -> Outcome<Vec<f64>> {
    work(&turn)?;
    let peak = turn.stand()?.memory_peak()?;
    turn.end()?;
    Ok(vec![peak as f64])
}
