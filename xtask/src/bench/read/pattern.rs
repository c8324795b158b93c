//! Reading by `pread(2)` of 4 KiB, buffered and without a hint to the kernel, in one of the EROFS paper's patterns.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::random::Random;

/// States what one call reads.
pub(super) const BLOCK: usize = 4096;
/// A stride reads one block of so many.
const STRIDE_BLOCKS: u64 = 32;

/// The order in which a file's blocks are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pattern {
    /// One after the other.
    Sequential,
    /// Anywhere, some perhaps twice; each time at the same places.
    Random,
    /// The first 4 KiB of every 128 KiB.
    Stride,
}

/// Holds what was read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    /// Changes with the place and the beginning of every block: equal data give equal digests.
    pub(super) digest: u64,
}

/// The offsets that each of some readers reads, in order, when together they want at most `bytes_max`.
///
/// Sequential readers have a part of the file each, random ones a seed each.
pub(super) fn plan(
    pattern: Pattern,
    file_bytes: u64,
    bytes_max: u64,
    readers: u64,
) -> Vec<Vec<u64>> {
    let block = BLOCK as u64;
    let blocks = file_bytes.div_ceil(block).max(1);
    let wanted = bytes_max / block;
    let share = |count: u64, reader: u64| count * reader / readers..count * (reader + 1) / readers;
    let blocks_of = |reader: u64| -> Vec<u64> {
        match pattern {
            Pattern::Sequential => share(blocks.min(wanted), reader).collect(),
            Pattern::Stride => share(blocks.div_ceil(STRIDE_BLOCKS).min(wanted), reader)
                .map(|index| index * STRIDE_BLOCKS)
                .collect(),
            Pattern::Random => {
                let mut random = Random::new(reader);
                share(wanted, reader)
                    .map(|_| random.below(blocks))
                    .collect()
            }
        }
    };
    let offsets = |reader| {
        blocks_of(reader)
            .into_iter()
            .map(|index| index * block)
            .collect()
    };
    (0..readers).map(offsets).collect()
}

/// Reads a file as planned, one thread per reader.
///
/// # Errors
/// When the file cannot be opened or a block not read.
pub(super) fn read(path: &Path, plan: &[Vec<u64>]) -> io::Result<Reading> {
    read_by(path, plan, |file, offsets| read_at(file, offsets))
}

/// Reads a file in order, each reader a part of it, in pieces of so many bytes.
///
/// # Errors
/// When the file cannot be opened or a piece not read.
pub(super) fn read_in_order(
    path: &Path,
    parts: &[Range<u64>],
    piece: usize,
) -> io::Result<Reading> {
    read_by(path, parts, |file, part| read_part(file, part, piece))
}

/// Has each reader read what is planned for it, by a thread of its own if there are several.
fn read_by<T: Sync>(
    path: &Path,
    plan: &[T],
    read: impl Fn(&File, &T) -> io::Result<(u64, u64)> + Sync,
) -> io::Result<Reading> {
    let (file, read) = (&File::open(path)?, &read);
    let start = Instant::now();
    let readings: Vec<io::Result<(u64, u64)>> = match plan {
        [alone] => vec![read(file, alone)],
        many => thread::scope(|scope| {
            let readers: Vec<_> = many
                .iter()
                .map(|one| scope.spawn(move || read(file, one)))
                .collect();
            let joined = readers.into_iter().map(|reader| reader.join());
            joined
                .map(|reading| reading.expect("a reader does not panic"))
                .collect()
        }),
    };
    let elapsed = start.elapsed();
    let (mut bytes, mut digest) = (0, 0_u64);
    for reading in readings {
        let (more, part) = reading?;
        bytes += more;
        digest = digest.wrapping_add(part);
    }
    Ok(Reading {
        bytes,
        elapsed,
        digest,
    })
}

/// Reads one file's blocks at some offsets: how many bytes there were, and their digest.
fn read_at(file: &File, offsets: &[u64]) -> io::Result<(u64, u64)> {
    let mut buffer = [0; BLOCK];
    let (mut bytes, mut digest) = (0, 0_u64);
    for &offset in offsets {
        let count = file.read_at(&mut buffer, offset)?;
        bytes += count as u64;
        digest = digest.wrapping_add(digest_of(&buffer[..count], offset));
    }
    Ok((bytes, digest))
}

/// Reads a part of a file in pieces: how many bytes there were, and the digest of its blocks.
fn read_part(file: &File, part: &Range<u64>, piece: usize) -> io::Result<(u64, u64)> {
    let mut buffer = vec![0; piece];
    let (mut at, mut digest) = (part.start, 0_u64);
    while at < part.end {
        let len = (part.end - at).min(piece as u64) as usize;
        file.read_exact_at(&mut buffer[..len], at)?;
        for block in buffer[..len].chunks(BLOCK) {
            digest = digest.wrapping_add(digest_of(block, at));
            at += block.len() as u64;
        }
    }
    Ok((at - part.start, digest))
}

/// Reads a file from end to end: its bytes and their digest.
///
/// # Errors
/// When it cannot be opened or read.
pub(super) fn read_whole(path: &Path) -> io::Result<(u64, u64)> {
    let file = File::open(path)?;
    let mut buffer = [0; BLOCK];
    let (mut bytes, mut digest) = (0, 0_u64);
    loop {
        let count = file.read_at(&mut buffer, bytes)?;
        if count == 0 {
            return Ok((bytes, digest));
        }
        digest = digest.wrapping_add(digest_of(&buffer[..count], bytes));
        bytes += count as u64;
    }
}

/// Reads one block of a file.
///
/// # Errors
/// When the file cannot be opened or read.
pub(super) fn read_block(path: &Path, offset: u64) -> io::Result<(u64, u64)> {
    read_at(&File::open(path)?, &[offset])
}

fn digest_of(block: &[u8], offset: u64) -> u64 {
    let mut word = [0; 8];
    let count = block.len().min(word.len());
    word[..count].copy_from_slice(&block[..count]);
    let place = (offset / BLOCK as u64).wrapping_mul(2).wrapping_add(1);
    u64::from_le_bytes(word)
        .wrapping_mul(place)
        .wrapping_add(block.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn two_sequential_readers_share_the_file_without_a_gap() {
        let plan = plan(Pattern::Sequential, MIB + 1, 1 << 30, 2);
        let all: Vec<u64> = plan.concat();
        assert_eq!(all, (0..257).map(|index| index * 4096).collect::<Vec<_>>());
        assert_eq!(plan[0].len(), 128);
    }

    #[test]
    fn a_stride_reads_one_block_of_every_128_kib() {
        assert_eq!(
            plan(Pattern::Stride, 300 << 10, MIB, 1),
            [[0, 131_072, 262_144]]
        );
    }

    #[test]
    fn random_places_repeat_and_lie_in_the_file() {
        let twice = [0, 1].map(|_| plan(Pattern::Random, 10 * MIB, MIB, 2));
        assert_eq!(twice[0], twice[1]);
        assert_ne!(twice[0][0], twice[0][1]);
        assert_eq!(twice[0].concat().len(), 256);
        assert!(twice[0].concat().iter().all(|&offset| offset < 10 * MIB));
        let distinct: std::collections::HashSet<_> = twice[0].concat().into_iter().collect();
        assert!(distinct.len() > 200, "{} of 256 differ", distinct.len());
    }

    #[test]
    fn the_digest_is_the_same_for_pieces_of_any_size() {
        let path = Path::new("/proc/self/exe");
        let bytes = std::fs::metadata(path).unwrap().len();
        let middle = bytes / 2 / BLOCK as u64 * BLOCK as u64;
        let whole = read_whole(path).unwrap();
        for piece in [BLOCK, 32 * BLOCK] {
            let reading = read_in_order(path, &[0..middle, middle..bytes], piece).unwrap();
            assert_eq!((reading.bytes, reading.digest), whole, "{piece}");
        }
    }

    #[test]
    fn the_amount_limits_every_pattern() {
        for pattern in [Pattern::Sequential, Pattern::Random, Pattern::Stride] {
            assert_eq!(
                plan(pattern, 1 << 30, MIB, 1).concat().len(),
                256,
                "{pattern:?}"
            );
        }
    }

    #[test]
    fn the_digest_is_the_same_for_any_number_of_readers_and_tells_data_apart() {
        let path = Path::new("/proc/self/exe");
        let bytes = std::fs::metadata(path).unwrap().len();
        let digest =
            |readers| read(path, &plan(Pattern::Sequential, bytes, u64::MAX, readers)).unwrap();
        assert_eq!(digest(1).bytes, bytes);
        assert_eq!(digest(1).digest, digest(2).digest);
        assert_eq!(read_whole(path).unwrap(), (bytes, digest(1).digest));
        assert_ne!(digest_of(b"abc", 0), digest_of(b"abd", 0));
        assert_ne!(digest_of(b"abc", 0), digest_of(b"abc", 4096));
    }
}
