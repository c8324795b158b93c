//! `anteros log check`

use std::path::PathBuf;

use anteros_core::parse_size;
use anteros_log::{
    Options, Repaired, Report, check, check_data, repair, repair_going_back, system_clock,
};

use super::open;
use crate::failure::{Outcome, Verdict};
use crate::output;

/// Check a log that is not mounted: whether all that it says of itself agrees. Nothing is changed, unless it is to be repaired
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or block device
    device: PathBuf,

    /// Set right what is wrong, as far as that takes no guess: the log must not be mounted
    #[arg(long)]
    repair: bool,

    /// With --repair: if the newest checkpoint is damaged, go back to the one before. What was written since may be
    /// lost, or stand in the place of other content
    #[arg(long, requires = "repair")]
    go_back: bool,

    /// Read all content as well, and compare it with its checksums
    #[arg(long)]
    data: bool,

    /// Most memory for what a check notes: beyond, it goes to a temporary file, in TMPDIR (K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_size)]
    memory: u64,

    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Outcome {
        let fail = |error| open::failure(self.device.display(), &error);
        let options = Options {
            memory_bytes: usize::try_from(self.memory).unwrap_or(usize::MAX),
            ..Options::new(system_clock)
        };
        let (device, repaired) = match self.repair {
            true => {
                let device = open::to_write(&self.device)?;
                let repair = match self.go_back {
                    true => repair_going_back,
                    false => repair,
                };
                let repaired = repair(device.clone(), options.clone()).map_err(fail)?;
                (device, Some(repaired))
            }
            false => (open::unchanging(&self.device)?, None),
        };
        let check = if self.data { check_data } else { check };
        let report = check(device, options).map_err(fail)?;
        match self.json {
            true => output::json(&json(&report, repaired.as_ref()))?,
            false => {
                repaired.iter().for_each(tell_repairs);
                self.tell(&report);
            }
        }
        Ok(if report.fault_count == 0 {
            Verdict::Good
        } else {
            Verdict::Bad
        })
    }

    fn tell(&self, report: &Report) {
        for fault in &report.faults {
            println!("{fault}");
        }
        let left = report.fault_count - report.faults.len() as u64;
        if left > 0 {
            println!("and {left} more");
        }
        for note in &report.notes {
            println!("note: {note}");
        }
        let recovery = report.recovery;
        if recovery.groups > 0 || !recovery.was_clean {
            println!(
                "not unmounted: a mount will replay {} groups of changes",
                recovery.groups
            );
        }
        let verdict = match (report.fault_count, self.repair) {
            (0, _) => "clean",
            (_, true) => "NOT clean: what is told above is left",
            (faults, false) if faults == report.damaged_blocks => {
                "NOT clean: damaged content is healed by writing it anew, and by nothing else"
            }
            (_, false) => "NOT clean: `anteros log check --repair` sets right what it can",
        };
        println!(
            "{}: {} files, {} directories, {} others; {} of data, {} nodes; {} faults: {verdict}",
            self.device.display(),
            report.files,
            report.directories,
            report.others,
            output::bytes(report.data_blocks * 4096),
            report.nodes,
            report.fault_count
        );
    }
}

fn tell_repairs(repaired: &Repaired) {
    for repair in &repaired.repairs {
        println!("repaired: {repair}");
    }
    let more = repaired.repair_count - repaired.repairs.len() as u64;
    if more > 0 {
        println!("repaired: and {more} more");
    }
    for left in &repaired.left {
        println!("left: {left}");
    }
}

fn json(report: &Report, repaired: Option<&Repaired>) -> serde_json::Value {
    serde_json::json!({
        "repairs": repaired.map(|repaired| &repaired.repairs),
        "repair_count": repaired.map(|repaired| repaired.repair_count),
        "left": repaired.map(|repaired| &repaired.left),
        "clean": report.fault_count == 0,
        "faults": report.faults,
        "fault_count": report.fault_count,
        "notes": report.notes,
        "was_clean": report.recovery.was_clean,
        "groups_to_replay": report.recovery.groups,
        "files": report.files,
        "directories": report.directories,
        "others": report.others,
        "data_bytes": report.data_blocks * 4096,
        "damaged_bytes": report.damaged_blocks * 4096,
        "nodes": report.nodes,
    })
}
