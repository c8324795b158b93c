//! Part `ageing`: a device that is nearly full and goes on being written to: bytes that reach it for each byte of the user.
//!
//! Files of mixed sizes fill a share of what `statfs` says is there. Then as much is written as the device has bytes: blocks of 4 KiB
//! anywhere in the files, each time up to 64 of one file and an fsync of it; or what programs do, in turns: transactions of a data base, and files
//! that are removed while others come. It counts from a fresh mount until it is unmounted. Every block says what it is, and is looked
//! at in the end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::harness::Bench;
use super::system::System;
use crate::bench::random::Random;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

pub(in crate::bench) const DEVICE_BYTES: u64 = 1 << 30;
/// Shares that are filled, in percent.
pub(in crate::bench) const SHARES: [u64; 3] = [50, 80, 90];
/// Sizes of files, in blocks.
const SIZES: [u64; 7] = [1, 4, 16, 64, 256, 1024, 4096];
const BLOCK: usize = 4096;
/// The most writes between two syncs.
const BATCH: u64 = 64;
/// Transactions before files come and go.
const TRANSACTIONS: usize = 400;
/// Pages that one changes at most.
const PAGES_MAX: u64 = 6;
/// Files that go at once.
const RENEWED: usize = 8;
/// One block of so many is hot, where some are.
const HOT_ONE_OF: u64 = 5;
/// Of a hundred writes, those that go to hot blocks.
const HOT_WRITES: u64 = 80;

/// States what a turn finds.
pub(in crate::bench) const METRICS: [(&str, Unit); 3] = [
    ("bytes written to the device for each byte", Unit::Times),
    ("overwritten", Unit::BytesPerSecond),
    ("filled, of 1 GiB", Unit::Bytes),
];
/// The goals look for it.
pub(super) const AMPLIFICATION: &str = "ageing: bytes written to the device for each byte";
/// The share of which the goal speaks.
pub(super) const FULLEST: &str = "90 % full";

/// Holds what files are.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Kind {
    /// Tells how their names end.
    pub(in crate::bench) suffix: &'static str,
    /// Of each 512 bytes, those that look random; the others are all the same.
    pub(in crate::bench) noise: usize,
}

const FILES: Kind = Kind {
    suffix: "",
    noise: UNIT,
};
const UNIT: usize = 512;

/// Tells where writes go.
#[derive(Clone, Copy)]
pub(in crate::bench) enum Pattern {
    Uniform,
    Skewed,
    Mixed,
}

/// States what the figures must be seen beside.
const THEORY: &str = "ageing: where writes go anywhere, greedy cleaning is the best there is, and it writes 1 / (1 - u) blocks for each, with u from \
    (1 - u) / -ln u = U, the share of all blocks of the device that is valid: 2.2 for U = 0.75, 2.7 for 0.8, 3.5 for 0.85, 5.2 for 0.9. \
    A share of what statfs says is a smaller share of the device, by what is held in reserve; `filled` says how much it was";

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn ageing(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let systems = bench.file_systems();
    let metrics = METRICS.map(|(what, unit)| (format!("ageing: {what}"), unit));
    bench.note(THEORY.to_owned());
    for share in SHARES {
        for (name, pattern) in [
            ("anywhere", Pattern::Uniform),
            ("80 % of it to 20 % of the blocks", Pattern::Skewed),
            ("transactions, and files come and go", Pattern::Mixed),
        ] {
            let subject = format!("{share} % full, {name}");
            bench.contest(&subject, &metrics, &systems, |bench, system| {
                turn(bench, system, &memory.file, (share, pattern, FILES))
            });
        }
    }
    Ok(())
}

/// The figures of [`METRICS`].
///
/// # Errors
/// When the device is full too early, or something else is there than was written.
pub(in crate::bench) fn turn(
    bench: &Bench,
    system: &System,
    device: &Path,
    (share, pattern, kind): (u64, Pattern, Kind),
) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    let there = rustix::fs::statvfs(turn.directory()?)?;
    let filled = there.f_blocks * there.f_frsize / 100 * share;
    let mut content = Content::fill(turn.directory()?, kind, filled)?;
    turn.mount_again()?;
    bench.count(&mut turn)?;
    let start = Instant::now();
    let bytes = content.overwrite(turn.directory()?, pattern, DEVICE_BYTES)? as f64;
    turn.unmount()?;
    let seconds = start.elapsed().as_secs_f64();
    let written = turn.written()? as f64;
    turn.mount_again()?;
    content.check(turn.directory()?)?;
    turn.end()?;
    Ok(vec![written / bytes, bytes / seconds, filled as f64])
}

/// Holds what files hold.
struct Content {
    kind: Kind,
    /// Tells how often each block of each file was written.
    files: Vec<Vec<u32>>,
    /// The first block of each file, if all were one.
    starts: Vec<u64>,
    blocks: u64,
    random: Random,
}

impl Content {
    /// Writes so many bytes in new files of mixed sizes.
    fn fill(directory: &Path, kind: Kind, bytes: u64) -> Outcome<Self> {
        let mut content = Self {
            kind,
            files: Vec::new(),
            starts: Vec::new(),
            blocks: 0,
            random: Random::new(0),
        };
        let all = bytes / BLOCK as u64;
        while content.blocks < all {
            let size = SIZES[content.random.below(SIZES.len() as u64) as usize];
            content.add_file(directory, size.min(all - content.blocks))?;
        }
        Ok(content)
    }

    fn add_file(&mut self, directory: &Path, blocks: u64) -> Outcome {
        let index = self.files.len();
        self.files.push(vec![0; blocks as usize]);
        self.write_file(directory, index).map_err(|error| {
            let so_far = self.blocks >> 8;
            format!("filling it ended behind {so_far} MiB: {error}")
        })?;
        self.starts.push(self.blocks);
        self.blocks += blocks;
        Ok(())
    }

    /// Writes a file as a whole, new.
    fn write_file(&self, directory: &Path, index: usize) -> Outcome<File> {
        let file = File::create_new(self.kind.path(directory, index))?;
        for (block, &version) in (0..).zip(&self.files[index]) {
            file.write_all_at(
                &self.kind.stamped(index, block, version),
                block * BLOCK as u64,
            )?;
        }
        Ok(file)
    }

    /// Overwrites blocks until so many bytes were written, and says how many it were.
    fn overwrite(&mut self, directory: &Path, pattern: Pattern, bytes: u64) -> Outcome<u64> {
        let mut written = 0;
        while written < bytes {
            if let Pattern::Mixed = pattern {
                for _ in 0..TRANSACTIONS {
                    written += self.transact(directory)?;
                }
                written += self.renew(directory)?;
                continue;
            }
            let any = self.random.below(self.blocks);
            let index = self.starts.partition_point(|&start| start <= any) - 1;
            let blocks = self.files[index].len() as u64;
            let file = File::options()
                .write(true)
                .open(self.kind.path(directory, index))?;
            for _ in 0..BATCH.min(blocks) {
                let block = pattern.pick(&mut self.random, blocks);
                let version = &mut self.files[index][block as usize];
                *version += 1;
                file.write_all_at(
                    &self.kind.stamped(index, block, *version),
                    block * BLOCK as u64,
                )?;
                written += BLOCK as u64;
            }
            file.sync_all()?;
        }
        Ok(written)
    }

    /// Changes pages of the largest file as SQLite does: first they are copied to a journal, which is removed when the new ones are
    /// on the device.
    fn transact(&mut self, directory: &Path) -> Outcome<u64> {
        let blocks = self.files.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let is_largest = |versions: &Vec<u32>| versions.len() as u64 == blocks;
        let index = self.files.iter().position(is_largest).unwrap_or(0);
        let pages = 1 + self.random.below(PAGES_MAX);
        let pages = (0..pages).map(|_| Pattern::Skewed.pick(&mut self.random, blocks));
        let pages: Vec<u64> = pages.collect();
        let journal = directory.join("data-journal");
        let mut copies = vec![1; 512];
        for &page in &pages {
            let version = self.files[index][page as usize];
            copies.extend([0; 8]);
            copies.extend(self.kind.stamped(index, page, version));
        }
        let file = File::create_new(&journal)?;
        file.write_all_at(&copies, 0)?;
        file.sync_all()?;
        let data = File::options()
            .write(true)
            .open(self.kind.path(directory, index))?;
        for &page in &pages {
            let version = &mut self.files[index][page as usize];
            *version += 1;
            data.write_all_at(
                &self.kind.stamped(index, page, *version),
                page * BLOCK as u64,
            )?;
        }
        data.sync_all()?;
        fs::remove_file(journal)?;
        Ok((copies.len() + pages.len() * BLOCK) as u64)
    }

    /// Removes some files; others come in their place, of other sizes that take as much together.
    fn renew(&mut self, directory: &Path) -> Outcome<u64> {
        let count = self.files.len() as u64;
        let mut indexes: Vec<usize> = (0..RENEWED)
            .map(|_| self.random.below(count) as usize)
            .collect();
        indexes.sort_unstable();
        indexes.dedup();
        let newest = |versions: &Vec<u32>| versions.iter().max().copied().unwrap_or(0);
        let mut sizes = Vec::new();
        for &index in &indexes {
            fs::remove_file(self.kind.path(directory, index))?;
            sizes.push(self.files[index].len());
        }
        sizes.rotate_right(1);
        for (&index, &size) in indexes.iter().zip(&sizes) {
            self.files[index] = vec![newest(&self.files[index]) + 1; size];
            self.write_file(directory, index)?.sync_all()?;
        }
        let mut start = 0;
        for (versions, place) in self.files.iter().zip(&mut self.starts) {
            *place = start;
            start += versions.len() as u64;
        }
        Ok((sizes.iter().sum::<usize>() * BLOCK) as u64)
    }

    /// Makes sure that every block is as it was written last.
    fn check(&self, directory: &Path) -> Outcome {
        let mut found = vec![0; BLOCK];
        for (index, versions) in self.files.iter().enumerate() {
            let path = self.kind.path(directory, index);
            let file = File::open(&path)?;
            for (block, &version) in (0..).zip(versions) {
                file.read_exact_at(&mut found, block * BLOCK as u64)?;
                if found != self.kind.stamped(index, block, version) {
                    let head: Vec<u64> = words(&found).take(4).collect();
                    let path = path.display();
                    return Err(format!(
                        "{path}: block {block}, written {version} times: it begins with {head:x?}"
                    )
                    .into());
                }
            }
        }
        Ok(())
    }
}

impl Pattern {
    /// A block of a file of so many.
    fn pick(self, random: &mut Random, blocks: u64) -> u64 {
        let hot = blocks.div_ceil(HOT_ONE_OF);
        let cold = blocks - hot;
        match self {
            Self::Uniform => random.below(blocks),
            Self::Skewed | Self::Mixed if cold == 0 || random.below(100) < HOT_WRITES => {
                random.below(hot) * HOT_ONE_OF
            }
            Self::Skewed | Self::Mixed => {
                let index = random.below(cold);
                let rest = HOT_ONE_OF - 1;
                index / rest * HOT_ONE_OF + index % rest + 1
            }
        }
    }
}

impl Kind {
    fn path(self, directory: &Path, index: usize) -> PathBuf {
        directory.join(format!("file{index}{}", self.suffix))
    }

    /// A block that says of which file it is, where it lies there, and how often it was written.
    fn stamped(self, file: usize, block: u64, version: u32) -> Vec<u8> {
        let head = [file as u64, block, version.into()];
        let mix = head.iter().fold(0, |mix: u64, &word| {
            (mix ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let mut random = Random::new(mix);
        let mut block = vec![mix as u8; BLOCK];
        for unit in block.chunks_mut(UNIT) {
            for word in unit[..self.noise].chunks_exact_mut(8) {
                word[..6].copy_from_slice(&random.below(1 << 48).to_le_bytes()[..6]);
            }
        }
        for (word, bytes) in head.iter().zip(block.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        block
    }
}

fn words(block: &[u8]) -> impl Iterator<Item = u64> {
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    block.chunks(8).map(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_blocks_are_a_fifth_and_have_four_fifths_of_the_writes() {
        let mut random = Random::new(1);
        for blocks in [1, 4, 7, 64, 256] {
            let mut counts = vec![0_u64; blocks as usize];
            for _ in 0..20_000 {
                counts[Pattern::Skewed.pick(&mut random, blocks) as usize] += 1;
            }
            assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
            let hot: u64 = counts.iter().step_by(5).sum();
            assert!(blocks == 1 || (15_500..16_500).contains(&hot), "{hot}");
        }
    }

    #[test]
    fn a_block_says_what_it_is() {
        let block = FILES.stamped(3, 9, 2);
        assert_eq!(block.len(), BLOCK);
        assert_eq!(words(&block).take(3).collect::<Vec<_>>(), [3, 9, 2]);
        assert_ne!(block[24..], FILES.stamped(3, 9, 3)[24..]);
    }
}
