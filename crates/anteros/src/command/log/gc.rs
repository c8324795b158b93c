//! `anteros log gc`

use std::path::{Path, PathBuf};
use std::time::Duration;

use anteros_log::{Log, Options, system_clock};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_json::json;

use super::open;
use crate::args::ReportArgs;
use crate::command::stat::attribute;
use crate::daemon::log::{CLEAN_ALL, CLEANING};
use crate::daemon::work::Progress;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

/// States how often a daemon is asked whether it is done.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Clean a log until no segment is worth it, and write a checkpoint
///
/// What a mounted log holds can be used meanwhile. Only root and whoever mounted it may ask for it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory where it is mounted; or the file or block device, if it is not
    log: PathBuf,

    #[command(flatten)]
    report: ReportArgs,
}

impl Args {
    pub fn run(self) -> Outcome {
        let cleaned = match self.log.is_dir() {
            true => order(&self.log)?,
            false => clean(&self.log)?,
        };
        if self.report.json {
            output::json(&json!({ "cleaned_segments": cleaned }))?;
            return Ok(Verdict::Good);
        }
        let name = output::name(self.log.as_os_str().as_encoded_bytes());
        output::text(&format!(
            "{name}: {} segments cleaned\n",
            output::count(cleaned)
        ))?;
        Ok(Verdict::Good)
    }
}

/// Cleans a log that is not mounted.
fn clean(path: &Path) -> Result<u64, Failure> {
    let device = open::to_write(path)?;
    let fail = |error: anteros_log::LogError| open::failure(path.display(), &error);
    let log = Log::open(device, Options::new(system_clock)).map_err(fail)?;
    let cleaned = log
        .clean_all(|_| true)
        .map_err(|error| fail(error.into()))?;
    log.close().map_err(|error| fail(error.into()))?;
    Ok(cleaned)
}

/// Has the daemon clean one that is, and waits.
fn order(directory: &Path) -> Result<u64, Failure> {
    // What is no log has no such attribute, and must not get one.
    progress(directory, CLEANING)?;
    tell(directory, CLEANING, CLEAN_ALL)?;
    let done = wait(directory, CLEANING, |_| true)?;
    Ok(done.count(0))
}

/// Sets an attribute with which a daemon is told something.
pub fn tell(directory: &Path, attribute: &str, value: &[u8]) -> Result<(), Failure> {
    let set = rustix::fs::setxattr(directory, attribute, value, XattrFlags::empty());
    set.map_err(|errno| {
        let failure = Failure::system(directory, &errno.into());
        match errno {
            Errno::PERM | Errno::ACCESS => {
                failure.hint("only root and whoever mounted it may ask for that")
            }
            Errno::OPNOTSUPP => {
                let message = format!(
                    "{}: mounted so that nothing is compressed",
                    directory.display()
                );
                Failure::new(Kind::Unsupported, message)
                    .hint("mount it with another --policy than none")
            }
            _ => failure,
        }
    })
}

/// Waits until all that was ordered is done, or `goes_on` says not to when it is shown how far that is.
pub fn wait(
    directory: &Path,
    attribute: &str,
    mut goes_on: impl FnMut(&Progress) -> bool,
) -> Result<Progress, Failure> {
    let ordered = progress(directory, attribute)?.orders;
    loop {
        let progress = progress(directory, attribute)?;
        match &progress.failure {
            _ if progress.done < ordered && goes_on(&progress) => std::thread::sleep(ASK_EVERY),
            Some(failure) => {
                return Err(Failure::new(
                    Kind::System,
                    format_args!("{}: {failure}", directory.display()),
                ));
            }
            None => return Ok(progress),
        }
    }
}

/// Returns how far work is that was ordered.
pub fn progress(directory: &Path, name: &str) -> Result<Progress, Failure> {
    let told = attribute(directory, name).map_err(|e| Failure::system(directory, &e))?;
    told.as_deref()
        .and_then(Progress::parse)
        .ok_or_else(|| no_log(directory))
}

/// Returns what is said of a directory where no log is mounted.
pub fn no_log(directory: &Path) -> Failure {
    let message = format!("{}: no log is mounted here", directory.display());
    Failure::new(Kind::System, message)
        .hint("name the directory itself that `anteros log mount` was given")
}
