//! Part `files`: ordinary files that are compressed as they are written: how fast they are written and read, on a device in
//! memory and on a phone's storage, and the room that they take; and how fast a little of them is read here and there, also when
//! they were compacted, before the log has seen that and afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::programs::used;
use crate::bench::caches::drop_caches;
use crate::bench::corpus;
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::log::turn::Turn;
use crate::bench::random::Random;
use crate::bench::report::Unit;
use crate::bench::throttle::{Speed, Throttle};
use crate::bench::write::native::{FILE, Memory};
use crate::outcome::Outcome;

const CORPUS: &str = "text1g";
const FILE_BYTES: usize = 256 << 20;
const DEVICE_BYTES: u64 = 1 << 30;
const RECORD: usize = 1 << 20;
const PAGE: usize = 4096;
const RANDOM_READS: u64 = 3000;

/// Arguments of our mounts: without compression, and with it as content is written, and not later.
const OURS: [&str; 2] = ["", "--policy record --idle-cpu 0"];
/// Those that are compressed in the background as well, when they are told to.
const COMPACTED: &str = "--policy record";
const PEER: &str = "btrfs compress-force=zstd:3";

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device, or no text.
pub(super) fn files(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let slow = bench.place.directory("throttle")?;
    let phone = Throttle::mount(&memory.directory, &slow, Speed::PHONE_BOTH_WAYS)?;
    let systems = bench.ours_and(&OURS, &[PEER]);
    let metrics = [
        ("written until synced", Unit::BytesPerSecond),
        ("written until unmounted", Unit::BytesPerSecond),
        ("read in order, cold", Unit::BytesPerSecond),
        ("read 4 KiB anywhere, cold", Unit::PerSecond),
        ("space", Unit::Bytes),
        ("read 4 KiB anywhere, cold, compacted", Unit::PerSecond),
        ("space, compacted", Unit::Bytes),
        (
            "read 4 KiB anywhere, cold, compacted after such reads",
            Unit::PerSecond,
        ),
        ("space, compacted after such reads", Unit::Bytes),
    ];
    let metrics = metrics.map(|(what, unit)| (format!("files: {what}"), unit));
    let devices = [
        ("in memory", memory.file.clone()),
        ("on a phone's storage", phone.directory().join(FILE)),
    ];
    for (content, bytes) in [("text", text()?), ("noise", noise())] {
        for (where_to, device) in &devices {
            let subject = format!("{content}, {where_to}");
            bench.contest(&subject, &metrics, &systems, |bench, system| {
                turn(bench, system, device, &bytes)
            });
        }
    }
    Ok(())
}

fn turn(bench: &Bench, system: &System, device: &Path, bytes: &[u8]) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    let empty = used(turn.directory()?)?;
    let start = Instant::now();
    let mut file = File::create(turn.directory()?.join("file"))?;
    for record in bytes.chunks(RECORD) {
        file.write_all(record)?;
    }
    file.sync_all()?;
    let synced = start.elapsed().as_secs_f64();
    drop(file);
    let space = used(turn.directory()?)? - empty;
    let start = Instant::now();
    turn.unmount()?;
    let unmounted = synced + start.elapsed().as_secs_f64();
    turn.mount_again()?;
    let read = read_all(&turn.directory()?.join("file"), bytes)?;
    turn.mount_again()?;
    let mut figures = vec![
        bytes.len() as f64 / synced,
        bytes.len() as f64 / unmounted,
        bytes.len() as f64 / read,
        read_anywhere(&turn, bytes)?,
        space as f64,
    ];
    for _ in 0..2 {
        if system.name.contains(COMPACTED) {
            // In the mount that has seen the reads.
            system.compact(turn.directory()?)?;
        }
        turn.mount_again()?;
        let space = used(turn.directory()?)? - empty;
        figures.extend([read_anywhere(&turn, bytes)?, space as f64]);
        // A kernel without room to keep it reads the same again.
        drop_caches()?;
        read_anywhere(&turn, bytes)?;
    }
    turn.end()?;
    Ok(figures)
}

/// The seconds that it takes to read a file in order.
fn read_all(path: &Path, bytes: &[u8]) -> Outcome<f64> {
    let start = Instant::now();
    let (mut file, mut buffer) = (File::open(path)?, vec![0; RECORD]);
    for record in bytes.chunks(RECORD) {
        let buffer = &mut buffer[..record.len()];
        file.read_exact(buffer)?;
        check(buffer == record)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Reads pages of the file, and returns how many in a second.
fn read_anywhere(turn: &Turn, bytes: &[u8]) -> Outcome<f64> {
    let file = File::open(turn.directory()?.join("file"))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let (mut random, mut page) = (Random::new(1), [0; PAGE]);
    let start = Instant::now();
    for _ in 0..RANDOM_READS {
        let at = random.below((bytes.len() / PAGE) as u64) as usize * PAGE;
        file.read_exact_at(&mut page, at as u64)?;
        check(page == bytes[at..at + PAGE])?;
    }
    Ok(RANDOM_READS as f64 / start.elapsed().as_secs_f64())
}

fn check(is_same: bool) -> Outcome {
    match is_same {
        true => Ok(()),
        false => Err("something else was read than was written".into()),
    }
}

/// Content that compresses, of a file.
///
/// # Errors
/// When there is no tree.
pub(super) fn text() -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; FILE_BYTES];
    File::open(corpus(CORPUS)?.join("text"))?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Content that does not.
pub(super) fn noise() -> Vec<u8> {
    let mut random = Random::new(2);
    let words = std::iter::repeat_with(|| (random.below(1 << 32) as u32).to_le_bytes());
    words.take(FILE_BYTES / 4).flatten().collect()
}
