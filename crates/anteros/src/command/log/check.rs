//! `anteros log check`

use std::path::PathBuf;
use std::sync::Arc;

use anteros_core::FileDevice;
use anteros_log::{Options, Report, check, system_clock};

use crate::failure::{Failure, Outcome, Verdict};
use crate::output;

/// Check a log: whether all that it says of itself agrees. Nothing is changed
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or block device
    device: PathBuf,

    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Outcome {
        let device = FileDevice::open(&self.device).map_err(Failure::os)?;
        let report = check(Arc::new(device), Options::new(system_clock))
            .map_err(|error| super::failure(self.device.display(), &error))?;
        match self.json {
            true => println!("{}", json(&report)),
            false => self.tell(&report),
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
        let recovery = report.recovery;
        if recovery.groups > 0 || !recovery.was_clean {
            println!(
                "not unmounted: a mount will replay {} groups of changes",
                recovery.groups
            );
        }
        println!(
            "{}: {} files, {} directories, {} others; {} of data, {} nodes; {} faults",
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

fn json(report: &Report) -> serde_json::Value {
    serde_json::json!({
        "faults": report.faults,
        "fault_count": report.fault_count,
        "was_clean": report.recovery.was_clean,
        "groups_to_replay": report.recovery.groups,
        "files": report.files,
        "directories": report.directories,
        "others": report.others,
        "data_bytes": report.data_blocks * 4096,
        "nodes": report.nodes,
    })
}
