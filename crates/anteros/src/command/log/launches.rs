//! `anteros log launches`

use std::path::PathBuf;

use anteros_log::{FileReads, Launches};
use serde_json::{Value, json};

use crate::args::ReportArgs;
use crate::daemon::launches::load;
use crate::failure::{Outcome, Verdict};
use crate::output;

/// Tell what was recorded of launches: which files, and how many of their blocks every launch read
///
/// `anteros log mount --launches FILE` records. `find DIR -inum N` in the mount tells which file an inode is.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record
    record: PathBuf,

    #[command(flatten)]
    report: ReportArgs,
}

/// Files with what their launches read.
type Rows = Vec<(u32, FileReads)>;

impl Args {
    pub fn run(self) -> Outcome {
        let launches = load(&self.record)?;
        let reads = |(ino, version)| Some((ino, launches.reads(ino, version)?));
        let files: Rows = launches.files().filter_map(reads).collect();
        match self.report.json {
            true => output::json(&self.as_json(&launches, &files))?,
            false => output::text(&self.as_text(&launches, &files))?,
        }
        Ok(Verdict::Good)
    }

    fn as_json(&self, launches: &Launches, files: &Rows) -> Value {
        let files = files.iter().map(|(ino, reads)| {
            json!({
                "inode": ino,
                "launches": reads.rounds,
                "core_blocks": reads.core.len(),
                "other_blocks": reads.other.len(),
                "reads": reads.reads,
            })
        });
        json!({
            "record": self.record.to_string_lossy(),
            "uuid": output::uuid(&launches.uuid()),
            "launches_recorded": launches.rounds(),
            "inodes": launches.inode_count(),
            "reads_without_room": launches.skipped(),
            "files": files.collect::<Vec<_>>(),
        })
    }

    fn as_text(&self, launches: &Launches, files: &Rows) -> String {
        let mut lines = vec![format!(
            "record     {}: {} files and {} inodes of the log {}, until {} launches of a file read the same",
            output::name(self.record.as_os_str().as_encoded_bytes()),
            output::count(files.len() as u64),
            output::count(launches.inode_count() as u64),
            output::uuid(&launches.uuid()),
            launches.rounds(),
        )];
        if launches.skipped() > 0 {
            lines.push(format!(
                "           {} more reads of a block were not recorded, for lack of room",
                output::count(launches.skipped())
            ));
        }
        let line = |name: &str, cells: [String; 4]| {
            let cells = cells.map(|cell| format!("{cell:>10}"));
            format!("{} {name:>10}", cells.join(" "))
        };
        let head = ["launches", "core", "other", "reads"];
        lines.push(line("inode", head.map(str::to_owned)));
        let counts = |reads: &FileReads| {
            let blocks = [reads.core.len() as u64, reads.other.len() as u64];
            [reads.rounds.into(), blocks[0], blocks[1], reads.reads]
        };
        lines.extend(
            files
                .iter()
                .map(|(ino, reads)| line(&ino.to_string(), counts(reads).map(output::count))),
        );
        let all = files.iter().fold([0; 4], |all, (_, reads)| {
            let more = counts(reads);
            std::array::from_fn(|n| all[n] + more[n])
        });
        let [_, core, other, reads] = all.map(output::count);
        lines.push(line("all", [String::new(), core, other, reads]));
        lines.join("\n") + "\n"
    }
}
