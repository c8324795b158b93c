//! Part `compressibility`: from which compressibility on compression is worth its time (figure 12 of the paper).
//!
//! A database of 100 MiB is there; all of it is written over in order, in pieces of 32 and 128 KiB with an fsync behind each. A
//! compressor makes of each page the share of it that is the figure's scale.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::bench::log::harness::Bench;
use crate::bench::log::system::System;
use crate::bench::log::traces::DEVICE_BYTES;
use crate::bench::random::Random;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

const FILE: &str = "data.db";
const FILE_BYTES: usize = 100 << 20;
const PIECES: [usize; 2] = [32 << 10, 128 << 10];
/// In tenths.
const RATIOS: std::ops::RangeInclusive<u64> = 1..=10;
/// States what is compressed to the ratio: the noise lies at its front.
const UNIT: usize = 512;
/// States what an encoder needs to say that the rest of a unit repeats itself.
const TOLD: usize = 8;
/// By these bytes a database is known.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn compressibility(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let systems = bench.systems.clone();
    let before = data(1, 1.0);
    for piece in PIECES {
        let kib = piece >> 10;
        let metrics = [
            (
                format!("compressibility: write of {kib} KiB and fsync, mean"),
                Unit::Seconds,
            ),
            (
                format!("compressibility: written in pieces of {kib} KiB"),
                Unit::Bytes,
            ),
            (
                format!("compressibility: write of {kib} KiB and fsync on a phone's storage, mean"),
                Unit::Seconds,
            ),
        ];
        for tenths in RATIOS {
            let ratio = tenths as f64 / 10.0;
            let after = data(2, ratio);
            let subject = format!("ratio {ratio:.1}");
            bench.contest_at(
                (&subject, Some(ratio)),
                &metrics,
                &systems,
                |bench, system| turn(bench, system, &memory.file, piece, [&before, &after]),
            );
        }
    }
    Ok(())
}

fn turn(
    bench: &Bench,
    system: &System,
    device: &Path,
    piece: usize,
    [before, after]: [&[u8]; 2],
) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    write(turn.directory()?, before, 1 << 20)?;
    turn.stand()?.sync()?;
    bench.count(&mut turn)?;
    let traffic = turn.device().traffic()?;
    let seconds = write(turn.directory()?, after, piece)?;
    let of_storage = turn.device().traffic()?.phone_seconds_since(&traffic);
    turn.unmount()?;
    let written = turn.written()?;
    turn.mount_again()?;
    if std::fs::read(turn.directory()?.join(FILE))? != after {
        return Err("something else is there than was written".into());
    }
    turn.end()?;
    let pieces = (FILE_BYTES / piece) as f64;
    let on_a_phone = (seconds + of_storage) / pieces;
    Ok(vec![seconds / pieces, written as f64, on_a_phone])
}

/// Writes all of the file in pieces with an fsync behind each, and says how many seconds that took.
fn write(directory: &Path, data: &[u8], piece: usize) -> Outcome<f64> {
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false);
    let file = options.open(directory.join(FILE))?;
    let start = Instant::now();
    for (index, part) in data.chunks(piece).enumerate() {
        file.write_all_at(part, (index * piece) as u64)?;
        file.sync_all()?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// A database that is compressed to a share of itself, whatever window of at least a unit is looked at.
fn data(who: u64, ratio: f64) -> Vec<u8> {
    let mut random = Random::new(who);
    let noise = match ratio < 1.0 {
        true => (UNIT as f64 * ratio) as usize - TOLD,
        false => UNIT,
    };
    let mut data = vec![0; FILE_BYTES];
    for unit in data.chunks_mut(UNIT) {
        for bytes in unit[..noise].chunks_mut(4) {
            let number = random.below(1 << 32).to_le_bytes();
            bytes.copy_from_slice(&number[..bytes.len()]);
        }
    }
    data[..MAGIC.len()].copy_from_slice(MAGIC);
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use anteros_codec::{Effort, Lz4Encoder};

    #[test]
    fn data_is_compressed_to_the_ratio_it_was_made_for() {
        let mut encoder = Lz4Encoder::new(Effort::Fast).unwrap().without_probe();
        for tenths in RATIOS {
            let ratio = tenths as f64 / 10.0;
            let data = data(2, ratio);
            let mut out = vec![0; 4200];
            let page = &data[8 << 12..9 << 12];
            let written = encoder
                .encode(page, &mut out)
                .map_or(4096, |one| one.written);
            let found = written as f64 / 4096.0;
            assert!((found - ratio).abs() < 0.03, "{found} for {ratio}");
        }
    }
}
