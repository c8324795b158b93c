//! The record behind a patch.

use anteros_format::patch::{self, Change, FREE_MAX, PatchRecord, superblock_crc};
use anteros_format::superblock::SUPERBLOCK_BYTES;

use super::appended;
use super::home::Patched;
use crate::output::Output;
use crate::{Error, Options};

/// Bytes of the record, if a patch is made.
pub(crate) fn record_bytes(options: &Options) -> u64 {
    let room = || patch::room(options.block_bytes());
    options.patch.as_ref().map_or(0, |_| room())
}

/// Writes the record as the last bytes of an image with this superblock, which ends there.
pub(crate) fn append_record(
    options: &Options,
    home: &Patched,
    superblock: &[u8],
    end: u64,
    output: &mut Output,
) -> Result<(), Error> {
    let append = appended(options)?;
    let patch = options.patch.as_ref().expect("it is being made");
    let mut former = [0; SUPERBLOCK_BYTES];
    former.copy_from_slice(&append.superblock[..SUPERBLOCK_BYTES]);
    let mut free = home.free.clone();
    // Those at the end have more room.
    free.drain(..free.len().saturating_sub(FREE_MAX));
    let record = PatchRecord {
        number: patch.number,
        change: Change::Patch,
        time: patch.time,
        start: append.end,
        end,
        previous: patch.previous,
        root: home.root.filter(|at| *at < append.end),
        former,
        superblock: superblock_crc(superblock),
        free,
    };
    output.pad_to(end - record_bytes(options))?;
    output.write(&record.encode())?;
    output.pad_to(end)
}
