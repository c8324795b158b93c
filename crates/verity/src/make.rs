//! From data to a hash tree, level by level.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::Device;

use crate::digest::Digest;
use crate::units::each;
use crate::{Levels, Superblock};

/// Bytes that a worker hashes at once.
pub const UNIT_BYTES: u64 = 1 << 20;

/// Writes bytes at a place.
pub type Write<'a> = &'a (dyn Fn(u64, &[u8]) -> io::Result<()> + Sync);

/// Makes the hash tree of the first blocks of a device, and tells the root hash. The tree and its superblock, which begins
/// at byte `start`, are given to `write` in pieces; they are read back from the device, level by level.
///
/// # Errors
///
/// Errors of the device and of `write`; `Interrupted` if `cancel` became true.
pub fn make(
    device: &dyn Device,
    superblock: &Superblock,
    start: u64,
    workers: usize,
    cancel: &AtomicBool,
    write: Write<'_>,
) -> io::Result<Digest> {
    let levels = Levels::new(superblock, start).ok_or(io::ErrorKind::FileTooLarge)?;
    let block_bytes = u64::from(superblock.params.block_bytes);
    let unit = (UNIT_BYTES / block_bytes).next_multiple_of(levels.per_block);
    let mut below = Blocks {
        device,
        superblock,
        start: 0,
    };
    let mut blocks = superblock.data_blocks;
    for level in &levels.levels {
        each(blocks, unit, workers, cancel, |range| {
            let at = level.start + range.start / levels.per_block * block_bytes;
            write(at, &below.digests(range)?)
        })?;
        below.start = level.start;
        blocks = level.blocks;
    }
    if cancel.load(Ordering::Relaxed) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let root = below.read(0..1)?;
    let mut first = superblock.encode().to_vec();
    first.resize(first.len().max(block_bytes as usize), 0);
    write(start, &first)?;
    let params = &superblock.params;
    Ok(params.algorithm.digest(&params.salt, &root))
}

/// Blocks of data, or of a level.
struct Blocks<'a> {
    device: &'a dyn Device,
    superblock: &'a Superblock,
    start: u64,
}

impl Blocks<'_> {
    fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let block_bytes = u64::from(self.superblock.params.block_bytes);
        let mut bytes = vec![0; ((range.end - range.start) * block_bytes) as usize];
        let at = self.start + range.start * block_bytes;
        self.device.read_at(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The digests of some blocks, filled up to whole blocks.
    fn digests(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let params = &self.superblock.params;
        let block_bytes = params.block_bytes as usize;
        let mut digests = Vec::new();
        for block in self.read(range)?.chunks(block_bytes) {
            let digest = params.algorithm.digest(&params.salt, block);
            digests.extend_from_slice(digest.as_bytes());
        }
        digests.resize(digests.len().next_multiple_of(block_bytes), 0);
        Ok(digests)
    }
}
