//! Part `trees`: a tree of many small files is unpacked, read cold and removed, on a device in memory and on a phone's storage;
//! beside a daemon that keeps nothing, which takes what FUSE itself takes.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::programs::used;
use crate::bench::caches::drop_caches;
use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::log::turn::Turn;
use crate::bench::report::Unit;
use crate::bench::throttle::{Speed, Throttle};
use crate::bench::write::native::{FILE, Memory};
use crate::bench::{corpus, tree};
use crate::outcome::Outcome;
use crate::run::output;

const CORPUS: &str = "apps";
const DEVICE_BYTES: u64 = 3 << 30;

/// Arguments of our mounts: without compression, and with it as content is written, and not later.
const OURS: [&str; 2] = ["", "--policy record --idle-cpu 0"];
const PEERS: [&str; 2] = ["ext4", "btrfs compress-force=zstd:3"];

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device, or no tree.
pub(super) fn trees(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let archive = Archive::of(&corpus(CORPUS)?, &memory.directory.join("archive"))?;
    let mut systems = bench.ours_and(&OURS, &PEERS);
    systems.push(System::hollow()?);
    let metrics = ["unpack", "read all, cold", "read all again", "remove"];
    let mut metrics = metrics
        .map(|what| (format!("trees: {what}"), Unit::Seconds))
        .to_vec();
    metrics.push(("trees: space".to_owned(), Unit::Bytes));
    let slow = bench.place.directory("throttle")?;
    let phone = Throttle::mount(&memory.directory, &slow, Speed::PHONE_BOTH_WAYS)?;
    let devices = [
        ("in memory", memory.file.clone()),
        ("on a phone's storage", phone.directory().join(FILE)),
    ];
    for (where_to, device) in &devices {
        let subject = format!("{CORPUS}, {where_to}");
        bench.contest(&subject, &metrics, &systems, |bench, system| {
            turn(bench, system, device, &archive)
        });
    }
    Ok(())
}

/// A tree in an archive, in memory.
struct Archive {
    path: PathBuf,
    /// Bytes of content.
    bytes: u64,
}

impl Archive {
    fn of(tree: &Path, path: &Path) -> Outcome<Self> {
        let mut tar = Command::new("tar");
        output(tar.arg("-cf").arg(path).arg("-C").arg(tree).arg("."))?;
        Ok(Self {
            path: path.to_owned(),
            bytes: tree::files(tree)?.iter().map(|file| file.1).sum(),
        })
    }

    fn unpack(&self, directory: &Path) -> Outcome {
        let mut tar = Command::new("tar");
        output(tar.arg("-xf").arg(&self.path).arg("-C").arg(directory)).map(drop)
    }
}

fn turn(bench: &Bench, system: &System, device: &Path, archive: &Archive) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    let empty = used(turn.directory()?)?;
    let directory = turn.directory()?.join("tree");
    std::fs::create_dir(&directory)?;
    let unpacked = timed(|| {
        archive.unpack(&directory)?;
        turn.stand()?.sync()
    })?;
    let space = used(turn.directory()?)? - empty;
    forget(&mut turn, system)?;
    let read = || read_all(&directory, archive.bytes);
    let (cold, again) = (timed(read)?, timed(read)?);
    forget(&mut turn, system)?;
    let removed = timed(|| {
        output(Command::new("rm").arg("-rf").arg(&directory))?;
        turn.stand()?.sync()
    })?;
    turn.end()?;
    Ok(vec![unpacked, cold, again, removed, space as f64])
}

fn timed(work: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Has all caches emptied, those of a daemon by mounting again, if that loses nothing.
fn forget(turn: &mut Turn, system: &System) -> Outcome {
    match system.is_lasting() {
        true => turn.mount_again(),
        false => drop_caches(),
    }
}

/// Reads all files, in the order in which directories list them.
fn read_all(directory: &Path, bytes: u64) -> Outcome {
    let (mut found, mut buffer) = (0, vec![0; 128 << 10]);
    tree::walk(directory, &mut |path, _| {
        let mut file = File::open(path)?;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                read => found += read as u64,
            }
        }
    })?;
    match found == bytes {
        true => Ok(()),
        false => Err(format!("{found} bytes were read of {bytes}").into()),
    }
}
