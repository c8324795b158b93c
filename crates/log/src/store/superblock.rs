//! Superblock: which of its two copies counts, and how both are written.

#![deny(clippy::indexing_slicing)]

use std::io::ErrorKind;

use anteros_core::WritableDevice;

use crate::error::LogError;
use crate::layout::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use crate::layout::{BLOCK_BYTES, Superblock};
use crate::store::blocks::Store;
use crate::store::medium::{named, zeroed};

/// Writes both copies of the superblock, the one after the other.
pub(crate) fn write_superblock(
    device: &dyn WritableDevice,
    superblock: &Superblock,
) -> Result<(), LogError> {
    let bytes = superblock.encode();
    for block in [1, 0] {
        device.write_at(
            block * BLOCK_BYTES as u64 + SUPERBLOCK_OFFSET as u64,
            &bytes,
        )?;
        device.flush()?;
    }
    Ok(())
}

/// Reads the superblock.
pub(crate) fn read_superblock(device: &dyn WritableDevice) -> Result<Superblock, LogError> {
    let [first, second] = superblock_copies(device);
    let bytes = |copy: &Copy| *copy.as_ref().unwrap_or(&[0; SUPERBLOCK_BYTES]);
    let superblock = match Superblock::choose(&bytes(&first), &bytes(&second)) {
        Ok(superblock) => superblock,
        // What cannot be read may be what is looked for.
        Err(fault) => {
            return Err(match first.and(second) {
                Ok(_) => fault.into(),
                Err(error) => error,
            });
        }
    };
    if device.size() / (BLOCK_BYTES as u64) < superblock.blocks {
        return Err(LogError::Truncated {
            blocks: superblock.blocks,
            bytes: device.size(),
        });
    }
    Ok(superblock)
}

/// Makes both copies of the superblock the one that counts: a crash may have come between them. A copy that cannot be
/// written is told; the other one does.
pub(crate) fn agree(store: &mut Store) -> Result<(), LogError> {
    let [first, second] = superblock_copies(&*store.device);
    let counting = |copy: &Copy| {
        let copy = copy.as_ref().ok()?;
        let counts = Superblock::parse(copy).as_ref() == Ok(&store.superblock);
        counts.then_some(*copy)
    };
    let unreadable = [first.is_err(), second.is_err()];
    let (first, second) = (counting(&first), counting(&second));
    let (block, copy) = match (first, second) {
        (Some(copy), None) => (1, copy),
        (None, Some(copy)) => (0, copy),
        _ => return Ok(()),
    };
    let mut whole = zeroed();
    for (byte, found) in whole.iter_mut().skip(SUPERBLOCK_OFFSET).zip(copy) {
        *byte = found;
    }
    // Of a block that cannot be read, no part can be written.
    let written = match unreadable.get(block) {
        Some(true) => store.device.write_at((block * BLOCK_BYTES) as u64, &*whole),
        _ => store.device.write_at(superblock_offset(block), &copy),
    };
    match written {
        Ok(()) => Ok(store.device.flush()?),
        Err(error) => {
            let text =
                format!("block {block}: a copy of the superblock cannot be written: {error}");
            store.warnings.push(text);
            Ok(())
        }
    }
}

fn superblock_offset(copy: usize) -> u64 {
    (copy * BLOCK_BYTES + SUPERBLOCK_OFFSET) as u64
}

/// A copy of the superblock, if it can be read.
type Copy = Result<[u8; SUPERBLOCK_BYTES], LogError>;

/// Both copies.
pub(crate) fn superblock_copies(device: &dyn WritableDevice) -> [Copy; 2] {
    [0, 1].map(|number| {
        let mut copy = [0; SUPERBLOCK_BYTES];
        match device.read_at(superblock_offset(number), &mut copy) {
            Ok(()) => Ok(copy),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(error.into()),
            Err(error) => Err(named(number as u64, &error).into()),
        }
    })
}
