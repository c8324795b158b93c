//! Part `programs`: the space that programs take, and what is read when they start cold (figure 13 of the paper).
//!
//! Our log takes part as it is written and, with some policies, with executables that were compressed in the background
//! after launches of each program had been recorded. How long a phone's storage would take for what is read is computed.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::bench::corpus;
use crate::bench::launch::{LARGE_PROGRAMS, PROGRAMS, Program, seconds};
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::log::turn::Turn;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;
use crate::run::output;

pub(super) const DEVICE_BYTES: u64 = 3 << 30;

/// Of each program, before executables are compressed.
pub(super) const LAUNCHES: usize = 3;

/// Policies that go with compression in the background: those that leave executables alone as they are written.
const COMPACTED: [&str; 2] = [" --policy paper", " --policy record"];

/// States what of a program's start is measured; the goals look for it.
pub(super) const START: &str = "start";
pub(super) const REQUESTS: &str = "requests to read";
pub(super) const READ: &str = "read";
pub(super) const OF_STORAGE: &str = "of a phone's storage";

/// Corpora, and what is started from them.
pub(super) const CORPORA: [(&str, &[Program]); 2] =
    [("apps", &PROGRAMS), ("programs", &LARGE_PROGRAMS)];

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn programs(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let systems = systems(bench);
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

/// All that take part, and some of ours once more.
fn systems(bench: &Bench) -> Vec<System> {
    let is_compacted =
        |system: &&System| COMPACTED.iter().any(|policy| system.name.ends_with(policy));
    let compacted = bench
        .systems
        .iter()
        .filter(is_compacted)
        .map(|system| system.compacted(LAUNCHES));
    bench.systems.iter().cloned().chain(compacted).collect()
}

fn metrics(programs: &[Program]) -> Vec<(String, Unit)> {
    let space = ("programs: space".to_owned(), Unit::Bytes);
    let starts = programs
        .iter()
        .flat_map(|program| of_start("programs", program));
    [space].into_iter().chain(starts).collect()
}

/// The metrics of a program's start, in the order of [`start`].
pub(super) fn of_start(part: &str, (name, _): &Program) -> [(String, Unit); 4] {
    let units = [
        (START, Unit::Seconds),
        (REQUESTS, Unit::Count),
        (READ, Unit::Bytes),
        (OF_STORAGE, Unit::Seconds),
    ];
    units.map(|(what, unit)| (format!("{part}: {name}: {what}"), unit))
}

fn turn(
    bench: &Bench,
    system: &System,
    device: &Path,
    (tree, programs): (&Path, &[Program]),
) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    let empty = used(turn.directory()?)?;
    install(&turn, tree)?;
    if system.launches > 0 {
        let launches: Vec<_> = programs.iter().map(launch).collect();
        compact(bench, &mut turn, system, &launches)?;
    }
    turn.mount_again()?;
    let mut figures = vec![(used(turn.directory()?)? - empty) as f64];
    for program in programs {
        figures.extend(start(&mut turn, program)?);
    }
    turn.end()?;
    Ok(figures)
}

/// Starts a program cold: seconds, requests to read, bytes read, seconds of a phone's storage.
pub(super) fn start(turn: &mut Turn, (_, program): &Program) -> Outcome<[f64; 4]> {
    turn.mount_again()?;
    let before = turn.device().traffic()?;
    let seconds = seconds(&turn.directory()?.join("tree"), program, None)?;
    let after = turn.device().traffic()?;
    let reads = (after.reads - before.reads) as f64;
    let bytes = (after.bytes_read - before.bytes_read) as f64;
    let of_storage = after.phone_seconds_since(&before);
    Ok([seconds, reads, bytes, of_storage])
}

/// Copies a tree to where [`Reading`]s look for it.
pub(super) fn install(turn: &Turn, tree: &Path) -> Outcome {
    let mut copy = Command::new("cp");
    output(copy.arg("-a").arg(tree).arg(turn.directory()?.join("tree")))?;
    turn.stand()?.sync()
}

/// Something that reads a tree.
pub(super) type Reading<'a> = Box<dyn Fn(&Path) -> Outcome + 'a>;

/// The start of a program.
pub(super) fn launch((_, program): &Program) -> Reading<'_> {
    Box::new(|tree| seconds(tree, program, None).map(drop))
}

/// Has executables compressed, after so many launches of each as the system wants were recorded; returns what is told of that.
pub(super) fn compact(
    bench: &Bench,
    turn: &mut Turn,
    system: &System,
    launches: &[Reading],
) -> Outcome<Value> {
    let record = new_record(bench)?;
    for _ in 0..system.launches {
        for launch in launches {
            turn.mount_again_with(&["--launches", &record])?;
            launch(&turn.directory()?.join("tree"))?;
        }
    }
    turn.mount_again_with(&["--launches", &record])?;
    system.compact(turn.directory()?)
}

/// The path of a record of launches that is not there yet.
pub(super) fn new_record(bench: &Bench) -> Outcome<String> {
    let record = bench.place.directory("record")?.join("launches");
    if record.exists() {
        fs::remove_file(&record)?;
    }
    let record = record.to_str().ok_or("a path that is no text")?;
    Ok(record.to_owned())
}

/// The bytes that a file system has given away.
pub(super) fn used(directory: &Path) -> Outcome<u64> {
    let space = rustix::fs::statvfs(directory)?;
    Ok((space.f_blocks - space.f_bfree) * space.f_frsize)
}
