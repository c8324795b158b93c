//! Part `executables`: what compression in the background makes of executables themselves (figure 13a of the paper), and how much
//! is decompressed in vain when some of them is read (table 3).
//!
//! With and without a record of what is read. Nothing but what is asked for is read meanwhile: neither the kernel nor the log
//! reads ahead.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::programs::{CORPORA, DEVICE_BYTES, LAUNCHES, Reading, compact, launch};
use crate::Outcome;
use crate::bench::corpus;
use crate::bench::log::Bench;
use crate::bench::log::system::System;
use crate::bench::random::Random;
use crate::bench::report::Unit;
use crate::bench::tree;
use crate::bench::write::native::Memory;
use crate::run::output;

const CODECS: [&str; 3] = ["lz4", "lzo", "zstd"];

/// Files from this size on are read sparsely: one block of so many, anywhere.
const LARGE_BYTES: u64 = 1 << 20;
const ONE_OF: u64 = 100;
const BLOCK: u64 = 4096;
const SPARSELY: &str = "1 % of the blocks of large files";

/// The goals look for them.
pub(super) const LEFT: &str = "executables: what is left of what was compressed";
pub(super) const AMPLIFIED: &str = "executables: pages decompressed for each page";

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn executables(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    for (name, programs) in CORPORA {
        let Ok(tree) = corpus(name) else {
            bench.note(format!(
                "executables: {name} takes no part: it is not there"
            ));
            continue;
        };
        let launches = programs.iter().map(|program| (program.0, launch(program)));
        contest(bench, &memory, name, &tree, launches.collect());
        let blocks = sparse(&tree)?;
        let sparsely = vec![(SPARSELY, read_blocks(&blocks))];
        contest(
            bench,
            &memory,
            &format!("{name}, sparsely"),
            &tree,
            sparsely,
        );
    }
    Ok(())
}

/// Has all systems compress a tree, and read it.
fn contest(
    bench: &mut Bench,
    memory: &Memory,
    subject: &str,
    tree: &Path,
    readings: Vec<(&str, Reading)>,
) {
    let systems: Vec<System> = [0, LAUNCHES]
        .into_iter()
        .flat_map(|launches| CODECS.map(|codec| system(bench, codec, launches)))
        .collect();
    let mut metrics = vec![
        (LEFT.to_owned(), Unit::Times),
        ("executables: compressed to".to_owned(), Unit::Bytes),
    ];
    let amplified = |(what, _): &(&str, Reading)| (format!("{AMPLIFIED}: {what}"), Unit::Times);
    metrics.extend(readings.iter().map(amplified));
    let readings: Vec<Reading> = readings.into_iter().map(|(_, reading)| reading).collect();
    bench.contest(subject, &metrics, &systems, |bench, system| {
        turn(bench, system, &memory.file, (tree, &readings))
    });
}

/// A log whose executables are compressed, after so many launches.
fn system(bench: &Bench, codec: &str, launches: usize) -> System {
    let words = format!("--policy record --prefetch 0 --readahead 4K --background-codec {codec}");
    let system = System::log(&bench.anteros, &words);
    let known = match launches {
        0 => "compacted in order",
        _ => "compacted after launches",
    };
    let mut system = system.compacted(launches);
    system.name = format!("{codec}, {known}");
    system
}

fn turn(
    bench: &Bench,
    system: &System,
    device: &Path,
    (tree, readings): (&Path, &[Reading]),
) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    let mut copy = Command::new("cp");
    output(copy.arg("-a").arg(tree).arg(turn.directory()?.join("tree")))?;
    turn.stand()?.sync()?;
    let told = compact(bench, &mut turn, system, readings)?;
    let [before, after] = ["compressed_bytes", "stored_bytes"].map(|key| told[key].as_f64());
    let (before, after) = before.zip(after).ok_or("what is not told")?;
    let mut figures = vec![after / before, after];
    for reading in readings {
        turn.mount_again()?;
        reading(&turn.directory()?.join("tree"))?;
        figures.push(amplified(&system.statistics(turn.directory()?)?)?);
    }
    turn.end()?;
    Ok(figures)
}

/// How many pages were decompressed for each that was wanted.
fn amplified(told: &Value) -> Outcome<f64> {
    let dar = &told["log_classes"]["executable"]["dar"];
    Ok(dar.as_f64().ok_or("nothing compressed was read")?)
}

/// Blocks of large files of a tree, each time the same.
fn sparse(tree: &Path) -> Outcome<Vec<(PathBuf, u64)>> {
    let mut random = Random::new(1);
    let mut blocks = Vec::new();
    for (path, bytes) in tree::files(tree)? {
        if bytes >= LARGE_BYTES {
            let count = bytes / BLOCK;
            let chosen = (0..count / ONE_OF).map(|_| random.below(count));
            blocks.extend(chosen.map(|block| (path.clone(), block)));
        }
    }
    Ok(blocks)
}

fn read_blocks(blocks: &[(PathBuf, u64)]) -> Reading<'_> {
    Box::new(move |tree| {
        let mut page = [0; BLOCK as usize];
        for (path, block) in blocks {
            File::open(tree.join(path))?.read_exact_at(&mut page, block * BLOCK)?;
        }
        Ok(())
    })
}
