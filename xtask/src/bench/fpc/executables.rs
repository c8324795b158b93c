//! Part `executables`: what compression in the background makes of executables themselves (figure 13a of the paper), and how much
//! is decompressed in vain when some of them is read (table 3).
//!
//! With and without a record of what is read. The kernel reads nothing ahead. What is wanted is what a first run reads, each page
//! counted once; what is decompressed for it are the pages that the kernel asks for and those that it is given unasked.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::programs::{
    CORPORA, DEVICE_BYTES, LAUNCHES, Reading, compact, install, launch, new_record,
};
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::log::turn::Turn;
use crate::bench::random::Random;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::bench::{corpus, tree};
use crate::outcome::Outcome;

const CODECS: [&str; 3] = ["lz4", "lzo", "zstd"];

/// Files from this size on are read sparsely: one block of so many, anywhere.
const LARGE_BYTES: u64 = 1 << 20;
const ONE_OF: u64 = 100;
const BLOCK: u64 = 4096;
/// Of executables.
const SUFFIXES: [&str; 6] = [".so", ".pyc", ".jar", ".apk", ".dex", ".wasm"];
const MAGICS: [[u8; 4]; 4] = [
    *b"\x7fELF",
    *b"\xca\xfe\xba\xbe",
    *b"\xda\xda\xfe\xca",
    *b"\xca\xfe\xda\xda",
];
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
        .filter(|system| bench.is_asked_for(&system.name))
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
    // The policy that compresses executables alone in the background.
    let words = format!("--policy paper --background-codec {codec}");
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
    install(&turn, tree)?;
    let compressed = match system.launches {
        0 => executables_in(turn.directory()?)?,
        // What launches read of other files as well.
        _ => HashSet::new(),
    };
    let is_compressed = |ino| system.launches > 0 || compressed.contains(&ino);
    let wanted = readings
        .iter()
        .map(|reading| wanted(bench, &mut turn, system, reading, &is_compressed));
    let wanted = wanted.collect::<Outcome<Vec<f64>>>()?;
    let told = compact(bench, &mut turn, system, readings)?;
    let before = number(&told, "compressed_bytes")?;
    let after = number(&told, "stored_bytes")?;
    let mut figures = vec![after / before, after];
    for (reading, wanted) in readings.iter().zip(wanted) {
        turn.mount_again()?;
        reading(&turn.directory()?.join("tree"))?;
        let told = system.statistics(turn.directory()?)?;
        let classes = told["log_classes"]
            .as_object()
            .ok_or("no classes are told")?;
        let asked = classes.values().map(|class| number(class, "read_pages"));
        let asked = asked.sum::<Outcome<f64>>()?;
        let given = number(&told, "log_pushed_bytes_total")? / BLOCK as f64;
        figures.push((asked + given) / wanted);
    }
    turn.end()?;
    Ok(figures)
}

/// The inodes of executables, as far as names and first bytes tell.
fn executables_in(directory: &Path) -> Outcome<HashSet<u64>> {
    let mut inos = HashSet::new();
    tree::walk(directory, &mut |path, _| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_named = SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
        let mut start = [0; 4];
        let file = File::open(path)?;
        let is_begun = file.read_exact_at(&mut start, 0).is_ok() && MAGICS.contains(&start);
        if is_named || is_begun || name.contains(".so.") {
            inos.insert(file.metadata()?.ino());
        }
        Ok(())
    })?;
    Ok(inos)
}

/// The pages of some files that something reads.
fn wanted(
    bench: &Bench,
    turn: &mut Turn,
    system: &System,
    reading: &Reading,
    is_meant: &dyn Fn(u64) -> bool,
) -> Outcome<f64> {
    let record = new_record(bench)?;
    turn.mount_again_with(&["--launches", &record])?;
    reading(&turn.directory()?.join("tree"))?;
    turn.unmount()?;
    let told = system.ask(&["log", "launches", "--json"], Path::new(&record))?;
    let files = told["files"].as_array().ok_or("no files are told")?;
    let meant = files
        .iter()
        .filter(|file| file["inode"].as_u64().is_some_and(is_meant));
    let blocks = meant.map(|file| number(file, "core_blocks"));
    blocks.sum()
}

/// A figure of an answer in JSON.
///
/// # Errors
/// When it is not there.
pub(super) fn number(told: &Value, key: &str) -> Outcome<f64> {
    Ok(told[key]
        .as_f64()
        .ok_or_else(|| format!("{key} is not told"))?)
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
