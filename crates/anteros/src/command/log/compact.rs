//! `anteros log compact`

mod estimate;
mod found;

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use anteros_core::parse_size;
use anteros_trace::profile::Profile;
use serde_json::json;

use self::estimate::{Estimate, parts};
use self::found::{Asked, Found};
use crate::args::ReportArgs;
use crate::daemon::compaction::{COMPACTION, ESTIMATE};
use crate::failure::{Failure, Outcome, Verdict};
use crate::{interrupt, output, profiles};

const PAGE: u64 = 4096;

/// Compress files of a mounted log in the background
///
/// Puts together what launches read, if that was recorded, in the order in which they did, and compresses all else in pieces of
/// up to 128 KiB. Databases and their journals are left alone, but for what launches read of them: they are compressed as they are
/// written. A file that has not changed since is not read again. What the log holds can be used meanwhile. Ctrl-C stops it, and
/// keeps what is done.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, or directories with all that is in them, of one mounted log
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Take what launches read from this access profile, for the files that it names. Its paths begin where the log is
    /// mounted
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Bytes of content in a second, at most (K, M, G)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    rate: Option<u64>,

    /// Change nothing, and show what would be gained, by directory and by type. Of more than 1 GiB, a part is tried
    #[arg(long, conflicts_with = "rate")]
    dry_run: bool,

    #[command(flatten)]
    report: ReportArgs,
}

impl Args {
    pub fn run(self) -> Outcome {
        let profile = self.profile.as_deref().map(profiles::load).transpose()?;
        let attribute = if self.dry_run { ESTIMATE } else { COMPACTION };
        let asked = Asked::of(&self.files, attribute)?;
        let faults = match self.dry_run {
            true => self.estimate(&asked, profile.as_ref())?,
            false => self.compact(&asked, profile.as_ref())?,
        };
        match faults {
            0 => Ok(Verdict::Good),
            _ => Ok(Verdict::Partial),
        }
    }

    /// Shows what would be gained, and says how much could not be read.
    fn estimate(&self, asked: &Asked, profile: Option<&Profile>) -> Result<u64, Failure> {
        let parts = parts(asked)?;
        let asked_to_stop = interrupt::flag().map_err(Failure::os)?;
        let bar = output::progress(self.report.json, "trying");
        let estimate = Estimate::of(asked, parts, profile, &bar, &asked_to_stop)?;
        bar.finish_and_clear();
        interrupt::check(&asked_to_stop)?;
        match self.report.json {
            true => output::json(&estimate.json())?,
            false => output::text(&estimate.table())?,
        }
        Ok(estimate.unreadable())
    }

    /// Has all of it compressed, and says how much could not be read.
    fn compact(&self, asked: &Asked, profile: Option<&Profile>) -> Result<u64, Failure> {
        let mut seen = HashSet::new();
        let mut all = Found::default();
        for path in &asked.paths {
            all.append(asked.find(path, &mut seen)?);
        }
        asked.tell(&all, profile)?;
        let asked_to_stop = interrupt::flag().map_err(Failure::os)?;
        let bar = output::progress(self.report.json, "compacting");
        let done = asked.go(self.rate, &asked_to_stop, |progress| {
            bar.set_length(progress.count(6) * PAGE);
            bar.set_position(progress.count(7) * PAGE);
        })?;
        bar.finish_and_clear();
        let [files, others, seen, blocks, bytes, faults] =
            [0, 1, 2, 3, 4, 5].map(|at| done.count(at));
        match self.report.json {
            true => output::json(&json!({
                "files": files,
                "left_alone": others,
                "bytes": seen * PAGE,
                "compressed_bytes": blocks * PAGE,
                "stored_bytes": bytes,
                "unreadable": faults,
            }))?,
            false => {
                let bytes = [seen * PAGE, blocks * PAGE, bytes].map(output::bytes);
                tell_done([files, others, faults], &bytes)?;
            }
        }
        interrupt::check(&asked_to_stop)?;
        Ok(faults)
    }
}

fn tell_done(
    [files, others, faults]: [u64; 3],
    [seen, compressed, stored]: &[String; 3],
) -> io::Result<()> {
    let (files, others) = (output::count(files), output::count(others));
    let mut text = format!(
        "{files} files, {others} left alone; {seen} looked at, {compressed} of that compressed to {stored}\n"
    );
    if faults > 0 {
        let faults = output::count(faults);
        text += &format!(
            "{faults} pieces could not be read, and stay as they are: the daemon says which\n"
        );
    }
    output::text(&text)
}
