//! `anteros log stat`

use std::path::{Path, PathBuf};

use anteros_log::layout::checkpoint::HeadKind;
use anteros_log::{Layout, Options, Recovery, SegmentState, TENTHS, Use, describe, system_clock};
use serde_json::{Value, json};

use super::figure::figure;
use super::gc::no_log;
use super::{open, types};
use crate::args::ReportArgs;
use crate::command::stat;
use crate::command::stat::log::packed_line;
use crate::daemon::log::{SEGMENTS, SEGMENTS_MAX};
use crate::failure::{Failure, Outcome, Verdict};
use crate::{drawing, output};

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Show how a log is used; of one that is mounted, what it has written and why, memory and latencies
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory where it is mounted; or the file or block device, if it is not
    log: PathBuf,

    #[command(flatten)]
    report: ReportArgs,

    /// Show what lies in it instead, by type: files, bytes, what they take on the device, and what lies plain and why. All
    /// directories and inodes are read for it
    #[arg(long, conflicts_with = "svg")]
    types: bool,

    /// Draw its segments into a file, as SVG, and show nothing
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
}

impl Args {
    pub fn run(self) -> Outcome {
        if self.types {
            return types::show(&self.log, self.report.json);
        }
        let is_mounted = self.log.is_dir();
        if let Some(file) = &self.svg {
            let segments = if is_mounted {
                mounted_segments(&self.log)?
            } else {
                self.describe()?.0.segments
            };
            let title = self.log.display().to_string();
            drawing::write(file, &figure(&segments, &title))?;
            return Ok(Verdict::Good);
        }
        if is_mounted {
            return stat::Args::of(self.log, self.report.json).run();
        }
        let (layout, recovery) = self.describe()?;
        match self.report.json {
            true => output::json(&as_json(&layout, recovery))?,
            false => output::text(&table(&layout, recovery))?,
        }
        Ok(Verdict::Good)
    }

    fn describe(&self) -> Result<(Layout, Recovery), Failure> {
        let device = open::to_read(&self.log)?;
        describe(device, Options::new(system_clock))
            .map_err(|error| open::failure(self.log.display(), &error))
    }
}

/// The segments of a mounted log, which come in portions.
fn mounted_segments(directory: &Path) -> Result<Vec<SegmentState>, Failure> {
    let mut segments = Vec::new();
    loop {
        let told = stat::attribute(directory, &format!("{SEGMENTS}{}", segments.len()));
        let told = told
            .map_err(|e| Failure::system(directory, &e))?
            .ok_or_else(|| no_log(directory))?;
        let portion = told.as_bytes().chunks_exact(4).map_while(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            SegmentState::from_bits(u16::from_str_radix(digits, 16).ok()?)
        });
        let before = segments.len();
        segments.extend(portion);
        if segments.len() < before + SEGMENTS_MAX {
            return Ok(segments);
        }
    }
}

/// The kinds that there are segments of, in use.
fn kinds(layout: &Layout) -> impl Iterator<Item = HeadKind> {
    let in_use = |kind: &HeadKind| {
        Use::ALL[1..]
            .iter()
            .any(|&state| layout.count(*kind, state) > 0)
    };
    HeadKind::ALL.into_iter().filter(in_use)
}

fn as_json(layout: &Layout, recovery: Recovery) -> Value {
    let superblock = &layout.superblock;
    let states = |count: &dyn Fn(Use) -> u32| -> Value {
        Use::ALL
            .iter()
            .map(|&state| (state.name().to_owned(), json!(count(state))))
            .collect()
    };
    let kinds = kinds(layout).map(|kind| {
        let mut of_kind = states(&|state| {
            if state == Use::Free {
                0
            } else {
                layout.count(kind, state)
            }
        });
        of_kind["valid_bytes"] = json!(layout.valid_blocks(kind) * BLOCK);
        (kind.name().to_owned(), of_kind)
    });
    json!({
        "label": superblock.label,
        "uuid": output::uuid(&superblock.uuid),
        "device_bytes": superblock.blocks * BLOCK,
        "generation": superblock.generation,
        "capacity_bytes": layout.capacity_blocks * BLOCK,
        "used_bytes": layout.used_blocks * BLOCK,
        "preallocated_bytes": layout.preallocated_blocks * BLOCK,
        "free_bytes": layout.capacity_blocks.saturating_sub(layout.used_blocks) * BLOCK,
        "inodes": layout.inodes,
        "nodes": layout.nodes,
        "checkpoint": layout.version,
        "was_clean": recovery.was_clean,
        "groups_to_replay": recovery.groups,
        "segments": states(&|state| layout.count_of(state)),
        "kinds": kinds.collect::<Value>(),
        "packed_blocks": layout.packed_blocks,
        "packed_slots": layout.packed_slots,
        "full_by_tenths_valid": layout.histogram(),
    })
}

fn table(layout: &Layout, recovery: Recovery) -> String {
    let bytes = |blocks: u64| output::bytes(blocks * BLOCK);
    let count = |count: u32| output::count(count.into());
    let superblock = &layout.superblock;
    let state = match recovery.was_clean && recovery.groups == 0 {
        true => "unmounted cleanly".to_owned(),
        false => format!(
            "not unmounted, {} groups to replay",
            output::count(recovery.groups)
        ),
    };
    let by_state: Vec<_> = Use::ALL
        .map(|state| format!("{} {}", count(layout.count_of(state)), state.name()))
        .into();
    let mut lines = vec![
        format!(
            "log        {} {}",
            output::name(superblock.label.as_bytes()),
            output::uuid(&superblock.uuid)
        ),
        format!(
            "device     {} in {} segments, generation {}",
            bytes(superblock.blocks),
            count(superblock.segments),
            superblock.generation
        ),
        format!(
            "space      {} of {} used, {} of that preallocated; {} free",
            bytes(layout.used_blocks),
            bytes(layout.capacity_blocks),
            bytes(layout.preallocated_blocks),
            bytes(layout.capacity_blocks.saturating_sub(layout.used_blocks)),
        ),
        format!(
            "inodes     {}, and {} other nodes",
            count(layout.inodes),
            count(layout.nodes.saturating_sub(layout.inodes))
        ),
        format!("checkpoint {}, {state}", layout.version),
        format!("segments   {}", by_state.join(", ")),
    ];
    lines.extend(kinds(layout).map(|kind| {
        let states = Use::ALL[1..]
            .iter()
            .map(|&state| (layout.count(kind, state), state.name()));
        let states: Vec<_> = states
            .filter(|(found, _)| *found > 0)
            .map(|(found, name)| format!("{} {name}", count(found)))
            .collect();
        format!(
            "  {:<13} {}; {} valid",
            kind.name(),
            states.join(", "),
            bytes(layout.valid_blocks(kind))
        )
    }));
    let tenths = layout
        .histogram()
        .into_iter()
        .enumerate()
        .filter(|(_, found)| *found > 0);
    let tenths: Vec<_> = tenths
        .map(|(tenth, found)| format!("{} of {}0-{} %", count(found), tenth, share_max(tenth)))
        .collect();
    if !tenths.is_empty() {
        lines.push(format!("full ones  {} valid", tenths.join(", ")));
    }
    lines.extend(packed_line(layout.packed_blocks, layout.packed_slots));
    lines.join("\n") + "\n"
}

/// The end of a class of shares, in per cent.
const fn share_max(tenth: usize) -> usize {
    (tenth + 1) * 100 / TENTHS
}
