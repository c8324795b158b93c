//! Part `programs`: the space that programs take, and what is read when they start cold (figure 13 of the paper).

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::bench::corpus;
use crate::bench::launch::{LARGE_PROGRAMS, PROGRAMS, Program, seconds};
use crate::bench::log::Bench;
use crate::bench::log::system::System;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::run::output;

const DEVICE_BYTES: u64 = 3 << 30;

/// Corpora, and what is started from them.
const CORPORA: [(&str, &[Program]); 2] = [("apps", &PROGRAMS), ("programs", &LARGE_PROGRAMS)];

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn programs(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let systems = bench.systems.clone();
    for (name, programs) in CORPORA {
        let tree = match corpus(name) {
            Ok(tree) => tree,
            Err(error) => {
                bench.note(format!("programs: {name} takes no part: {error}"));
                continue;
            }
        };
        let metrics = metrics(programs);
        bench.contest(name, &metrics, &systems, |bench, system| {
            turn(bench, system, &memory.file, (&tree, programs))
        });
    }
    Ok(())
}

fn metrics(programs: &[Program]) -> Vec<(String, Unit)> {
    let mut metrics = vec![("programs: space".to_owned(), Unit::Bytes)];
    for (name, _) in programs {
        metrics.push((format!("programs: {name}: start"), Unit::Seconds));
        metrics.push((format!("programs: {name}: requests to read"), Unit::Count));
        metrics.push((format!("programs: {name}: read"), Unit::Bytes));
    }
    metrics
}

fn turn(
    bench: &Bench,
    system: &System,
    device: &Path,
    (tree, programs): (&Path, &[Program]),
) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    let empty = used(turn.directory()?)?;
    let mut copy = Command::new("cp");
    output(copy.arg("-a").arg(tree).arg(turn.directory()?.join("tree")))?;
    turn.stand()?.sync()?;
    turn.mount_again()?;
    let mut figures = vec![(used(turn.directory()?)? - empty) as f64];
    for (_, program) in programs {
        turn.mount_again()?;
        let before = turn.device().traffic()?;
        let seconds = seconds(&turn.directory()?.join("tree"), program, None)?;
        let after = turn.device().traffic()?;
        figures.extend([
            seconds,
            (after.reads - before.reads) as f64,
            (after.bytes_read - before.bytes_read) as f64,
        ]);
    }
    turn.end()?;
    Ok(figures)
}

/// The bytes that a file system has given away.
fn used(directory: &Path) -> Outcome<u64> {
    let space = rustix::fs::statvfs(directory)?;
    Ok((space.f_blocks - space.f_bfree) * space.f_frsize)
}
