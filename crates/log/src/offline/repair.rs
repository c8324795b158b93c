//! Setting right what is wrong with a log, as far as that takes no guess.
//!
//! First everything is looked at ([`survey`]), and nothing is written. Then blocks that belong to
//! something are made valid, whatever the tables say of them, so that nothing that is written later can lie in their
//! places. Only then are names and counts corrected, in memory and in free segments, and a checkpoint makes that count:
//! until it is whole, the old one holds.
//!
//! What cannot be read is left as it is, and so is everything that might belong to it.
//!
//! Memory is bounded: half of [`Options::memory_bytes`] is for nodes and directories in memory, half for notes.

#![deny(clippy::indexing_slicing)]

use std::fmt::Display;
use std::sync::Arc;

use anteros_core::{FsResult, WritableDevice};
use memory::Memory;
use survey::Survey;

use crate::durable::Durable;
use crate::durable::owners;
use crate::durable::recover::{self, Patient, Recovery};
use crate::error::LogError;
use crate::layout::ROOT;
use crate::layout::checkpoint::Checkpoint;
use crate::offline::check::check;
use crate::offline::walk::finding::Claim;
use crate::options::Options;

mod blocks;
mod damage;
mod directories;
mod homes;
mod inodes;
mod memory;
mod names;
mod survey;

/// Repairs that are shown, and likewise of what is left.
const SHOWN_MAX: usize = 10_000;

/// Result of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The first ten thousand repairs, in words.
    pub repairs: Vec<String>,
    /// All repairs.
    pub repair_count: u64,
    /// Faults that remain.
    pub left: Vec<String>,
    /// Groups that were rolled forward.
    pub recovery: Recovery,
}

/// Repairs the log on a device, of which nobody else makes use. A log without faults is not changed.
///
/// # Errors
///
/// When the device fails, when neither checkpoint is whole, when a group behind it cannot be replayed or the root
/// cannot be read. Nothing has changed then, or what has is part of the log that was there before.
pub fn repair(device: Arc<dyn WritableDevice>, options: Options) -> Result<Repaired, LogError> {
    mend(device, options, false)
}

/// As [`repair`]; but where the newest checkpoint has been damaged, what the one before says is repaired. Since
/// then, content of files may have been overwritten by that of others, and nobody can tell where.
///
/// # Errors
///
/// Errors of [`repair`].
pub fn repair_going_back(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<Repaired, LogError> {
    mend(device, options, true)
}

fn mend(
    device: Arc<dyn WritableDevice>,
    options: Options,
    goes_back: bool,
) -> Result<Repaired, LogError> {
    if let Ok(report) = check(device.clone(), options.clone()) {
        if report.fault_count == 0 {
            return Ok(Repaired {
                recovery: report.recovery,
                ..Repaired::default()
            });
        }
    }
    let memory = options.memory_bytes / 2;
    let options = Options {
        memory_bytes: memory,
        ..options
    };
    let Patient {
        mut state,
        checkpoint,
        recovery,
        faults,
    } = recover::open_to_repair(device, options, goes_back)?;
    state.live(ROOT)?;
    let repaired = Repaired {
        recovery,
        left: state.take_warnings(),
        ..Repaired::default()
    };
    let mut mender = Mender {
        state,
        checkpoint,
        repaired,
        memory: Memory(memory),
    };
    for fault in &faults {
        mender.tell_of(fault.to_string());
    }
    if mender.checkpoint.superseded {
        let text = "counts again: a newer one is damaged, and content that was written since may be lost or mixed up";
        let version = mender.checkpoint.version;
        mender.tell(format_args!("checkpoint {version}"), text);
    }
    let mut survey = mender.survey()?;
    for warning in mender.state.take_warnings() {
        mender.tell_of(warning);
    }
    mender.state.take_room_to_repair()?;
    mender.settle_blocks(&mut survey)?;
    mender.state.store.allow_writes();
    mender.write_summaries(&survey);
    mender.mend_inodes(&survey.damage)?;
    mender.mend_directories(&survey)?;
    mender.house_lost(&survey)?;
    mender.repaired.left.extend(survey.damage.unreadable);
    mender.state.checkpoint(true)?;
    mender
        .repaired
        .left
        .extend(mender.state.nodes.nat().unwritten());
    Ok(mender.repaired)
}

struct Mender {
    state: Durable,
    checkpoint: Checkpoint,
    repaired: Repaired,
    /// Memory of notes.
    memory: Memory,
}

impl Mender {
    fn tell(&mut self, place: impl Display, what: impl Display) {
        self.tell_of(format!("{place}: {what}"));
    }

    fn tell_of(&mut self, repair: String) {
        self.repaired.repair_count += 1;
        if self.repaired.repairs.len() < SHOWN_MAX {
            self.repaired.repairs.push(repair);
        }
    }

    /// Looks at everything, until no block has two owners of which one can be told to be the right one.
    fn survey(&mut self) -> Result<Survey, LogError> {
        loop {
            let mut survey = Survey::take(&mut self.state, &self.checkpoint, self.memory)?;
            if !self.separate(&survey)? {
                for block in std::mem::take(&mut survey.damage.shared).into_keys() {
                    let text = "belongs to more than one, and nothing says to which";
                    self.repaired.left.push(format!("block {block}: {text}"));
                }
                return Ok(survey);
            }
        }
    }

    /// Takes blocks away from those who claim them and are not their owners; says whether there was one.
    fn separate(&mut self, survey: &Survey) -> FsResult<bool> {
        let mut is_changed = false;
        for (&block, claims) in &survey.damage.shared {
            let Some(winner) = self.rightful(block, claims) else {
                continue;
            };
            for claim in claims
                .iter()
                .filter(|&&claim| claim != winner && !claim.is_node)
            {
                let (ino, lblk) = (claim.owner.ino, claim.owner.lblk);
                let (segment, index) = self.state.store.segments().locate(block);
                let was_valid = self.state.store.segments().segment(segment).is_valid(index);
                self.state.clear_pointers(ino, lblk..lblk + 1)?;
                if was_valid {
                    self.state.store.mark(block);
                }
                let place = format!("inode {ino}, logical block {lblk}");
                let of = winner.owner.ino;
                self.tell(place, format_args!("was in block {block}, which is inode {of}'s: it is lost, and reads as zeros"));
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// Rightful owner of a block: by the node itself, else by the summary.
    fn rightful(&self, block: u64, claims: &[Claim]) -> Option<Claim> {
        let node = claims.iter().find(|claim| claim.is_node);
        node.copied().or_else(|| {
            let owner = owners::of(&self.state, Some(&self.checkpoint), block)?;
            claims.iter().find(|claim| claim.owner == owner).copied()
        })
    }

    /// Writes what memory, or the free segments, have no room for. What has been repaired so far is better than what was.
    fn relieve(&mut self) -> FsResult<()> {
        if self.state.store.dirty_blocks() > self.state.store.dirty_max() {
            self.state.checkpoint(false)?;
        }
        self.state.shrink();
        Ok(())
    }
}
