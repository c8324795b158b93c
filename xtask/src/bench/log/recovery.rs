//! Part `recovery`: how long a mount takes when the power has been cut. 200 MB were written and synced since the last
//! checkpoint of our log, whose daemon is killed then; of the others the device is copied while it is mounted, and the copy is
//! mounted. All that was synced must be there.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::harness::Bench;
use super::system::System;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::bench::write::workload::content;
use crate::outcome::Outcome;
use crate::run::run;

const DEVICE_BYTES: u64 = 4 << 30;
/// Such a time that no checkpoint comes by itself.
const NO_CHECKPOINT: [&str; 2] = ["--checkpoint", "3600"];
/// States how many files of how many bytes: 200 MB.
const FILES: [(u64, usize); 2] = [(200, 1_000_000), (12_500, 16_000)];

/// The goals look for it.
pub(super) const AFTER_A_CUT: &str = "recovery: mount after a power cut";

/// Runs the part.
///
/// # Errors
/// Never: a system that fails has no figure.
pub(super) fn recovery(bench: &mut Bench) -> Outcome {
    let metrics = [
        (AFTER_A_CUT.to_owned(), Unit::Seconds),
        ("recovery: mount after an unmount".to_owned(), Unit::Seconds),
    ];
    let systems = bench.file_systems().into_iter();
    let systems: Vec<System> = systems.map(|system| system.with(&NO_CHECKPOINT)).collect();
    for (count, len) in FILES {
        let subject = format!("{count} files of {len} bytes, each synced");
        bench.contest(&subject, &metrics, &systems, |bench, system| {
            turn(bench, system, (count, len))
        });
    }
    Ok(())
}

fn turn(bench: &Bench, system: &System, files: (u64, usize)) -> Outcome<Vec<f64>> {
    let memory = Memory::sparse(bench.place, DEVICE_BYTES)?;
    let copy = memory.file.with_extension("copy");
    let mut turn = bench.turn(system, &memory.file)?;
    write(turn.directory()?, files)?;
    if system.is_log() {
        turn.kill();
    } else {
        let mut cp = Command::new("cp");
        run(cp.arg("--sparse=always").args([&memory.file, &copy]))?;
        turn.move_to(&copy)?;
    }
    let after_a_cut = turn.mount_timed()?;
    check(turn.directory()?, files)?;
    turn.unmount()?;
    let after_an_unmount = turn.mount_timed()?;
    check(turn.directory()?, files)?;
    turn.end()?;
    Ok(vec![after_a_cut, after_an_unmount])
}

fn path(directory: &Path, index: u64) -> PathBuf {
    directory.join(format!("file{index}"))
}

fn write(directory: &Path, (count, len): (u64, usize)) -> Outcome {
    for index in 0..count {
        let mut file = File::create(path(directory, index))?;
        file.write_all(content(len))?;
        file.sync_all()?;
    }
    Ok(())
}

fn check(directory: &Path, (count, len): (u64, usize)) -> Outcome {
    for index in 0..count {
        let path = path(directory, index);
        let found = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if found != content(len) {
            return Err(format!("{} was synced, and holds something else", path.display()).into());
        }
    }
    Ok(())
}
