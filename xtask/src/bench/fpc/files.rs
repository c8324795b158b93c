//! Part `files`: ordinary files that are compressed as they are written: how fast they are written and read, on a device in
//! memory and on a phone's storage, and the room that they take.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::programs::used;
use crate::bench::corpus;
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
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
const RANDOM_READS: u64 = 2000;

/// Arguments of our mounts: without compression, and with it as content is written, and not later.
const OURS: [&str; 2] = ["", "--policy record --idle-cpu 0"];
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
    let anywhere = read_anywhere(&turn.directory()?.join("file"), bytes)?;
    turn.end()?;
    let len = bytes.len() as f64;
    let reads = RANDOM_READS as f64 / anywhere;
    Ok(vec![
        len / synced,
        len / unmounted,
        len / read,
        reads,
        space as f64,
    ])
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

/// The seconds that it takes to read pages of a file.
fn read_anywhere(path: &Path, bytes: &[u8]) -> Outcome<f64> {
    let file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let (mut random, mut page) = (Random::new(1), [0; PAGE]);
    let start = Instant::now();
    for _ in 0..RANDOM_READS {
        let at = random.below((bytes.len() / PAGE) as u64) as usize * PAGE;
        file.read_exact_at(&mut page, at as u64)?;
        check(page == bytes[at..at + PAGE])?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn check(is_same: bool) -> Outcome {
    match is_same {
        true => Ok(()),
        false => Err("something else was read than was written".into()),
    }
}

fn text() -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; FILE_BYTES];
    File::open(corpus(CORPUS)?.join("text"))?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn noise() -> Vec<u8> {
    let mut random = Random::new(2);
    let words = std::iter::repeat_with(|| (random.below(1 << 32) as u32).to_le_bytes());
    words.take(FILE_BYTES / 4).flatten().collect()
}
