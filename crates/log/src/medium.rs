//! Blocks to and from the device.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::Arc;

use anteros_core::{Device, FsError, FsResult, WritableDevice};

use crate::layout::{BLOCK_BYTES, Block};

/// The most blocks of one write.
const RUN_MAX: usize = 512;

/// A block of zeros.
pub(crate) fn zeroed() -> Box<Block> {
    Box::new([0; BLOCK_BYTES])
}

/// Reads a block.
pub(crate) fn read_block(device: &(impl Device + ?Sized), block: u64) -> FsResult<Box<Block>> {
    let mut bytes = zeroed();
    device.read_at(block * BLOCK_BYTES as u64, &mut *bytes)?;
    Ok(bytes)
}

/// What should be in memory is not: a fault of this crate, told rather than hidden.
pub(crate) fn vanished() -> FsError {
    FsError::Io(io::Error::other(
        "an entry of a cache vanished while it was in use",
    ))
}

/// Blocks on their way to the device.
#[derive(Default)]
pub(crate) struct Batch {
    blocks: Vec<(u64, Arc<Block>)>,
    /// Places whose blocks the device did not take: what lies there is something else.
    lost: BTreeSet<u64>,
}

impl Batch {
    pub(crate) fn push(&mut self, place: u64, block: impl Into<Arc<Block>>) {
        self.blocks.push((place, block.into()));
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Refuses to read a place whose block is lost.
    pub(crate) fn check(&self, place: u64) -> FsResult<()> {
        if self.lost.contains(&place) {
            return Err(FsError::Io(io::Error::other(format!(
                "block {place} could not be written"
            ))));
        }
        Ok(())
    }

    /// Writes all of them, neighbours together.
    pub(crate) fn submit(&mut self, device: &dyn WritableDevice) -> io::Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.sort_by_key(|(place, _)| *place);
        let sent = Self::send(&blocks, device);
        if sent.is_err() {
            // Some may have arrived; which ones nobody knows.
            self.lost.extend(blocks.iter().map(|(place, _)| place));
        }
        sent
    }

    fn send(blocks: &[(u64, Arc<Block>)], device: &dyn WritableDevice) -> io::Result<()> {
        for run in blocks.chunk_by(|(left, _), (right, _)| left + 1 == *right) {
            for part in run.chunks(RUN_MAX) {
                let slices: Vec<_> = part
                    .iter()
                    .map(|(_, block)| IoSlice::new(&**block))
                    .collect();
                device.write_vectored_at(part[0].0 * BLOCK_BYTES as u64, &slices)?;
            }
        }
        Ok(())
    }
}
