//! Growing and shrinking a log that is not mounted.
//!
//! Until a superblock with the new size has been written, the old one holds, and nothing that it leads to is touched:
//! what shrinking takes away is emptied by cleaning, and tables that have to move are written to a place that holds
//! nothing. The superblock is one sector: a crash finds the old size or the new one.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use anteros_core::{FsError, FsResult, WritableDevice};

use crate::cleaning::Cleaning;
use crate::cleaning::clean::MOVED_MAX;
use crate::durable::recover;
use crate::error::LogError;
use crate::layout::{BLOCK_BYTES, BLOCKS_MAX, SEGMENT_CONTENT, Superblock};
use crate::offline::mkfs::clear;
use crate::options::Options;
use crate::store::medium::reserve;
use crate::store::segments::Use;
use crate::store::superblock::write_superblock;

/// Segments that must be free among those that stay before the others are closed, in small logs and in others.
const FREE_OF_FEW: u32 = 8;
const FREE: u32 = 16;

/// Dirty blocks after which there is a checkpoint.
const DIRTY_MAX: usize = 2048;

/// Result of a resize.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resized {
    /// The log as it was.
    pub old: Superblock,
    /// The log as it is.
    pub new: Superblock,
    /// Segments whose content was moved.
    pub emptied: u64,
}

/// Gives the log on a device, of which nobody else makes use, another size. Blocks that are not used any more may be cut off
/// when this has returned.
///
/// # Errors
///
/// When the device has not so many bytes, or what the log holds does not fit, or when the device fails or the log is
/// damaged. The log has its old size then.
pub fn resize(
    device: &Arc<dyn WritableDevice>,
    bytes: u64,
    options: &Options,
) -> Result<Resized, LogError> {
    let blocks = (bytes / BLOCK_BYTES as u64).min(BLOCKS_MAX);
    // Refused is what cannot be before anything is written.
    let new = plan_resize(device, bytes, options)?;
    let wanted = blocks * BLOCK_BYTES as u64;
    if device.size() < wanted {
        return Err(LogError::BeyondDevice {
            wanted,
            bytes: device.size(),
        });
    }
    let mut log = open(device, false, options)?;
    let old = log.store.superblock().clone();
    if blocks == old.blocks {
        log.checkpoint(true)?;
        let new = old.clone();
        return Ok(Resized {
            old,
            new,
            emptied: 0,
        });
    }
    let new = Superblock {
        generation: old.generation + 1,
        ..new
    };
    let emptied = match new.segments < old.segments {
        true => evacuate(&mut log, new.segments)?,
        false => 0,
    };
    // No journal may name a segment that there is no more.
    log.store.keep_no_journal();
    log.checkpoint(true)?;
    if new.tables() != old.tables() {
        let tables = new.tables();
        // What is cleared gives its room back.
        clear(device, tables.clone())?;
        reserve(&**device, tables.start, tables.end - tables.start)?;
        move_tables(&mut log, &new)?;
    }
    write_superblock(&**device, &new)?;
    Ok(Resized { old, new, emptied })
}

fn open(
    device: &Arc<dyn WritableDevice>,
    read_only: bool,
    options: &Options,
) -> Result<Cleaning, LogError> {
    let options = Options {
        read_only,
        ..options.clone()
    };
    let (durable, _) = recover::open(device.clone(), options)?;
    Ok(Cleaning::new(durable))
}

/// Plans a resize: describes the log that would result, even if the device does not have so many bytes yet. Nothing is
/// changed.
///
/// # Errors
///
/// As [`resize`], but that the device may be too short.
pub fn plan_resize(
    device: &Arc<dyn WritableDevice>,
    bytes: u64,
    options: &Options,
) -> Result<Superblock, LogError> {
    let blocks = (bytes / BLOCK_BYTES as u64).min(BLOCKS_MAX);
    let mut log = open(device, true, options)?;
    let old = log.store.superblock().clone();
    let bytes = blocks * BLOCK_BYTES as u64;
    if blocks == old.blocks {
        return Ok(old);
    }
    let nids_min = match blocks < old.blocks {
        true => log.nodes.highest_nid()? + 1,
        false => 0,
    };
    let used = log.store.space().used();
    let planned = |blocks| {
        let new = old.resized(blocks, nids_min);
        new.filter(|new| new.capacity() >= used)
    };
    if let Some(new) = planned(blocks) {
        return Ok(new);
    }
    // The least that is possible, between what is not and what is.
    let (mut too_few, mut enough) = match blocks < old.blocks {
        true => (blocks, old.blocks),
        false => (blocks, 2 * blocks),
    };
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        match planned(middle) {
            Some(_) => enough = middle,
            None => too_few = middle,
        }
    }
    let least = enough * BLOCK_BYTES as u64;
    Err(match blocks < old.blocks {
        true => LogError::TooFull { bytes, least },
        false => LogError::GrowsTooLittle { bytes, least },
    })
}

/// Moves everything out of the segments from `keep` on, and says of how many. They are free then, and stay so.
fn evacuate(log: &mut Cleaning, keep: u32) -> FsResult<u64> {
    free_below(log, keep)?;
    for (place, summary) in log.store.segments_mut().close_heads() {
        log.store.push(place, summary);
    }
    log.store.segments_mut().retire(keep);
    let mut emptied = 0;
    for segment in keep..log.store.segments().count() {
        if log.store.segments().segment(segment).valid == 0 {
            continue;
        }
        make_way(log, MOVED_MAX)?;
        // To make room it may have been cleaned.
        if log.store.segments().segment(segment).valid > 0 {
            log.clean_segment(segment)?;
        }
        emptied += 1;
    }
    log.checkpoint(false)?;
    let is_in_use = |&segment: &u32| log.store.segments().segment(segment).state != Use::Free;
    match (keep..log.store.segments().count()).find(is_in_use) {
        Some(segment) => Err(FsError::Corrupt(format!(
            "segment {segment} could not be emptied"
        ))),
        None => Ok(emptied),
    }
}

/// Cleans segments below `keep` until some of them are free: what is moved may go behind them for the time being.
fn free_below(log: &mut Cleaning, keep: u32) -> FsResult<()> {
    let wanted = match keep < crate::layout::superblock::SEGMENTS_FEW {
        true => FREE_OF_FEW,
        false => FREE,
    };
    for _ in 0..2 * log.store.segments().count() {
        let is_free = |&segment: &u32| log.store.segments().segment(segment).state == Use::Free;
        if (0..keep).filter(is_free).count() as u32 >= wanted {
            break;
        }
        log.store.segments_mut().look_from(keep);
        make_way(log, MOVED_MAX)?;
        let full = (0..keep).filter(|&segment| {
            let found = log.store.segments().segment(segment);
            found.state == Use::Full && u32::from(found.valid) < SEGMENT_CONTENT
        });
        let Some(victim) = full.min_by_key(|&segment| log.store.segments().segment(segment).valid)
        else {
            break;
        };
        log.clean_segment(victim)?;
        log.checkpoint(false)?;
    }
    Ok(())
}

/// Makes room for so many blocks, and lets go of memory.
fn make_way(log: &mut Cleaning, blocks: usize) -> FsResult<()> {
    if log.store.dirty_blocks() > DIRTY_MAX.min(log.store.dirty_max()) {
        log.checkpoint(false)?;
    }
    log.make_room(blocks)?;
    log.shrink();
    Ok(())
}

/// Writes the tables and a checkpoint to where they will lie, which reads as zeros.
fn move_tables(log: &mut Cleaning, new: &Superblock) -> Result<(), LogError> {
    log.nodes.move_table(new)?;
    log.store.move_tables(new)?;
    log.checkpoint(true)?;
    Ok(())
}
