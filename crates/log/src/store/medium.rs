//! Blocks of the device.

use std::io;

use anteros_core::{Device, FsError, FsResult, WritableDevice};

use crate::layout::{BLOCK_BYTES, Block};

/// Bytes of a block.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// A block of zeros.
pub(crate) fn zeroed() -> Box<Block> {
    Box::new([0; BLOCK_BYTES])
}

/// Reads a block.
pub(crate) fn read_block(device: &(impl Device + ?Sized), block: u64) -> FsResult<Box<Block>> {
    let mut bytes = zeroed();
    device
        .read_at(block * BLOCK_BYTES as u64, &mut *bytes)
        .map_err(|error| named(block, &error))?;
    Ok(bytes)
}

/// Reads bytes by `read`, of which a part may not be readable: that is tried block by block, and the first one is named.
pub(crate) fn read_bytes(
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    offset: u64,
    bytes: &mut [u8],
) -> FsResult<()> {
    if read(offset, bytes).is_ok() {
        return Ok(());
    }
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let block = at / BLOCK_BYTES as u64;
        let left = BLOCK_BYTES - (at % BLOCK_BYTES as u64) as usize;
        let (part, behind) = rest.split_at_mut(left.min(rest.len()));
        read(at, part).map_err(|error| named(block, &error))?;
        at += part.len() as u64;
        rest = behind;
    }
    Ok(())
}

/// The error of a device, with the block that it is about.
pub(crate) fn named(block: u64, error: &io::Error) -> FsError {
    io::Error::new(error.kind(), format!("block {block}: {error}")).into()
}

/// Has a device take the room that writes to these blocks will need; says whether there is anything to take.
pub(crate) fn reserve(device: &dyn WritableDevice, block: u64, blocks: u64) -> FsResult<bool> {
    let unit = BLOCK_BYTES as u64;
    let reserved = device.reserve(block * unit, blocks * unit);
    reserved.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => FsError::NoSpace,
        _ => named(block, &error),
    })
}

/// Returns whether an error concerns one damaged or unreadable place only. The rest of the log can still be used.
pub(crate) fn is_damage(error: &FsError) -> bool {
    matches!(error, FsError::Corrupt(_) | FsError::Io(_))
}

/// Error for a missing in-memory object. It is a bug of this crate, reported instead of hidden.
pub(crate) fn vanished() -> FsError {
    FsError::Io(io::Error::other(
        "an entry of a cache vanished while it was in use",
    ))
}
