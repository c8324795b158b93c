//! All blocks of a device against its hash tree, by all cores.

use std::io;
use std::sync::atomic::AtomicBool;

use anteros_core::Device;

use crate::make::UNIT_BYTES;
use crate::units::each;
use crate::{Mismatch, Verified};

/// Reads all blocks of a device, and tells which are not the ones that were hashed. A block of the tree that is wrong may be
/// told several times.
///
/// # Errors
///
/// Errors of the device.
pub fn check<D: Device>(
    device: &Verified<D>,
    workers: usize,
    cancel: &AtomicBool,
    tell: &(dyn Fn(Mismatch) + Sync),
) -> io::Result<()> {
    let block_bytes = u64::from(device.superblock().params.block_bytes);
    let read = |first: u64, count: u64| {
        let mut bytes = vec![0; (count * block_bytes) as usize];
        match device.read_at(first * block_bytes, &mut bytes) {
            Err(error) => found(error).map(Some),
            Ok(()) => Ok(None),
        }
    };
    let unit = (UNIT_BYTES / block_bytes).max(1);
    let blocks = device.superblock().data_blocks;
    each(blocks, unit, workers, cancel, |range| {
        if read(range.start, range.end - range.start)?.is_none() {
            return Ok(());
        }
        let mut told = None;
        for block in range {
            let wrong = read(block, 1)?;
            if let Some(wrong) = wrong.filter(|wrong| told != Some(*wrong)) {
                tell(wrong);
                told = Some(wrong);
            }
        }
        Ok(())
    })
}

/// The block that an error is of, unless it is one of the medium.
fn found(error: io::Error) -> io::Result<Mismatch> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    inner.copied().ok_or(error)
}
