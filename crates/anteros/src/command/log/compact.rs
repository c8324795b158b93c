//! `anteros log compact`

use std::collections::{HashMap, HashSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anteros_core::parse_size;
use anteros_trace::profile::Profile;
use serde_json::json;

use super::gc::{tell, wait};
use crate::args::ReportArgs;
use crate::command::profile::fit::Fit;
use crate::command::profile::tree::Tree;
use crate::command::stat::attribute;
use crate::daemon::log::COMPACTION;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output, profiles};

const PAGE: u64 = 4096;

/// Numbers of inodes that fit into an attribute.
const TOLD_AT_ONCE: usize = 2000;
/// Ranges that fit, of at most 4 numbers.
const RANGES_TOLD_AT_ONCE: usize = 1000;

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

    #[command(flatten)]
    report: ReportArgs,
}

impl Args {
    pub fn run(self) -> Outcome {
        let profile = self.profile.as_deref().map(profiles::load).transpose()?;
        let files = self.files.iter();
        let files: Result<Vec<_>, _> = files
            .map(|path| path.canonicalize().map_err(|e| Failure::system(path, &e)))
            .collect();
        let files = files?;
        let mount = mount_of(&files[0])?;
        if attribute(&mount, COMPACTION)
            .map_err(|e| Failure::system(&mount, &e))?
            .is_none()
        {
            let message = format!("{}: no log is mounted here", self.files[0].display());
            let hint = "name files in a directory that `anteros log mount` was given";
            return Err(Failure::new(Kind::System, message).hint(hint));
        }
        let device = metadata(&mount)?.dev();
        let mut inos = Vec::new();
        for file in &files {
            if metadata(file)?.dev() != device {
                let message = format!(
                    "{}: not in the log that is mounted at {}",
                    file.display(),
                    mount.display()
                );
                return Err(
                    Failure::new(Kind::Usage, message).hint("name files of one log at a time")
                );
            }
            collect(file, device, &mut inos)?;
        }
        let mut seen = HashSet::new();
        inos.retain(|&ino| seen.insert(ino));
        for inos in inos.chunks(TOLD_AT_ONCE) {
            let words = inos
                .iter()
                .fold("add".to_owned(), |words, ino| format!("{words} {ino}"));
            tell(&mount, COMPACTION, words.as_bytes())?;
        }
        if let Some(profile) = &profile {
            tell_reads(&mount, &seen, profile)?;
        }
        let go = self
            .rate
            .map_or("go".to_owned(), |rate| format!("go {rate}"));
        let asked_to_stop = interrupt::flag().map_err(Failure::os)?;
        tell(&mount, COMPACTION, go.as_bytes())?;
        let mut done = wait(&mount, COMPACTION, || {
            !asked_to_stop.load(Ordering::Relaxed)
        })?;
        if asked_to_stop.load(Ordering::Relaxed) {
            tell(&mount, COMPACTION, b"stop")?;
            done = wait(&mount, COMPACTION, || true)?;
        }
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
        match faults {
            0 => Ok(Verdict::Good),
            _ => Ok(Verdict::Partial),
        }
    }
}

/// Tells the daemon what launches read of the files that are compressed, by a profile.
fn tell_reads(mount: &Path, files: &HashSet<u64>, profile: &Profile) -> Result<(), Failure> {
    let tree = Tree::open(mount)?;
    let mut fit = Fit::new(&tree);
    // A file of which one launch is known is taken for one that programs read again.
    let rounds = profile.rounds.clamp(2, u8::MAX.into());
    let mut told: HashMap<u64, Vec<String>> = HashMap::new();
    for (order, range) in profile.ranges.iter().enumerate() {
        let Some((ino, cut)) = fit.inode(range).filter(|(ino, _)| files.contains(ino)) else {
            continue;
        };
        let launches = match profile.is_core(range) {
            true => rounds,
            false => range.count.clamp(1, rounds - 1),
        };
        let (start, end) = (cut.offset / PAGE, cut.end().div_ceil(PAGE));
        let words = format!(" {start} {end} {launches} {order}");
        told.entry(ino).or_default().push(words);
    }
    for (ino, ranges) in told {
        for ranges in ranges.chunks(RANGES_TOLD_AT_ONCE) {
            let words = format!("read {ino} {rounds}{}", ranges.concat());
            tell(mount, COMPACTION, words.as_bytes())?;
        }
    }
    Ok(())
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

fn metadata(path: &Path) -> Result<Metadata, Failure> {
    fs::symlink_metadata(path).map_err(|e| Failure::system(path, &e))
}

/// The directory that a file's file system is mounted at.
fn mount_of(file: &Path) -> Result<PathBuf, Failure> {
    let device = metadata(file)?.dev();
    let mut mount = file;
    while let Some(parent) = mount.parent() {
        if metadata(parent)?.dev() != device {
            break;
        }
        mount = parent;
    }
    Ok(mount.to_owned())
}

/// The inodes of a file, or of all that are in a directory.
fn collect(path: &Path, device: u64, inos: &mut Vec<u64>) -> Result<(), Failure> {
    let metadata = metadata(path)?;
    if metadata.dev() != device {
        return Ok(());
    }
    inos.push(metadata.ino());
    if metadata.is_dir() {
        let entries = fs::read_dir(path).map_err(|e| Failure::system(path, &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| Failure::system(path, &e))?;
            collect(&entry.path(), device, inos)?;
        }
    }
    Ok(())
}
