//! `anteros profile convert`

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anteros_log::Launches;
use anteros_trace::MAGIC;
use anteros_trace::profile::{PATH_BYTES_MAX, Profile, RANGES_MAX, Range};

use super::arguments::{FilesArgs, OutputArgs};
use super::lists::{self, LIST_BYTES_MAX};
use super::reads::Reads;
use super::tree::Tree;
use crate::daemon::launches;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

/// Bytes of a block of a log, by which launches are recorded.
const LOG_BLOCK_BYTES: u64 = 4096;
/// Begins a record of launches.
const LAUNCHES_MAGIC: &[u8] = b"ANTSTART";

/// Make a profile of a record of reads, of a record of launches, or of a list of another program
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record or list
    record: PathBuf,

    /// Kind of the list; records are known by their first bytes
    #[arg(long, value_name = "KIND", default_value = "paths")]
    from: From,

    #[command(flatten)]
    files: FilesArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The kinds of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum From {
    /// Paths, one a line
    Paths,
    /// An order of DwarFS, or what it records (`analysis_file`)
    Dwarfs,
    /// The record by which `ctr-remote` prioritizes files of eStargz
    Estargz,
    /// A sort file of squashfs or ISO 9660: paths with priorities
    Sort,
}

impl Args {
    pub fn run(self) -> Outcome {
        let path = &self.record;
        let tree = self.files.open()?;
        let mut verdict = Verdict::Good;
        let profile = match begin(path)?.as_slice() {
            begin if begin.starts_with(&MAGIC) => {
                let reads = Reads::of(path, 0)?;
                if !reads.is_whole {
                    let text = format!("{}: cut short; what is there counts", path.display());
                    output::complain("warning", text);
                    verdict = Verdict::Partial;
                }
                reads.profile()
            }
            begin if begin.starts_with(LAUNCHES_MAGIC) => {
                let Some(tree) = &tree else {
                    let message = format!(
                        "{}: a record of launches names inodes, not paths",
                        path.display()
                    );
                    let hint =
                        "`--files LOG` tells the log that it is of, or where that is mounted";
                    return Err(Failure::new(Kind::Usage, message).hint(hint));
                };
                of_launches(&launches::load(path)?, tree)
            }
            _ => self.of_list()?,
        };
        let written = self.output.write(profile, tree.as_ref())?;
        Ok(match written {
            Verdict::Good => verdict,
            written => written,
        })
    }

    fn of_list(&self) -> Result<Profile, Failure> {
        let system = |error| Failure::system(&self.record, &error);
        let mut text = Vec::new();
        let file = File::open(&self.record).map_err(system)?;
        let read = file.take(LIST_BYTES_MAX + 1).read_to_end(&mut text);
        if read.map_err(system)? as u64 > LIST_BYTES_MAX {
            return Err(self.refused(format_args!("more than {LIST_BYTES_MAX} bytes")));
        }
        let paths = match self.from {
            From::Paths | From::Dwarfs => Ok(lists::paths(&text)),
            From::Estargz => lists::estargz(&text),
            From::Sort => lists::sort_file(&text),
        };
        let mut paths = paths.map_err(|failure| self.refused(failure.message()))?;
        let mut seen = HashSet::new();
        paths.retain(|path| !path.is_empty() && seen.insert(path.clone()));
        if let Some(long) = paths.iter().find(|path| path.len() > PATH_BYTES_MAX) {
            return Err(self.refused(format_args!(
                "a path of {} bytes; they have at most {PATH_BYTES_MAX}",
                long.len()
            )));
        }
        if paths.len() > RANGES_MAX {
            return Err(self.refused(format_args!(
                "{} paths, more than the {RANGES_MAX} that a profile may have",
                paths.len()
            )));
        }
        let whole = |path| Range {
            path,
            offset: 0,
            len: u64::MAX,
            count: 1,
            digest: None,
        };
        let ranges = paths.into_iter().map(whole).collect();
        Ok(Profile { rounds: 1, ranges })
    }

    fn refused(&self, reason: impl std::fmt::Display) -> Failure {
        let message = format!("{}: {reason}", self.record.display());
        Failure::new(Kind::Usage, message)
    }
}

/// The first bytes of a record or list.
fn begin(path: &Path) -> Result<Vec<u8>, Failure> {
    let system = |error| Failure::system(path, &error);
    let metadata = std::fs::metadata(path).map_err(system)?;
    if !metadata.is_file() {
        let message = format!("{}: no regular file", path.display());
        return Err(Failure::new(Kind::Usage, message));
    }
    let mut begin = Vec::new();
    let file = File::open(path).map_err(system)?;
    file.take(MAGIC.len() as u64)
        .read_to_end(&mut begin)
        .map_err(system)?;
    Ok(begin)
}

/// A profile of launches of files that have not changed since. A block that all launches of its file have read counts as one that all rounds read, as fewer are
/// recorded of a file that read the same from the beginning.
fn of_launches(launches: &Launches, tree: &Tree) -> Profile {
    let paths = tree.paths();
    let mut rounds = 0;
    let mut files = Vec::new();
    let mut gone = 0;
    for (ino, version) in launches.files() {
        let found = paths.get(&u64::from(ino)).map(|path| tree.find(path));
        if found.is_none_or(|found| found.ok().map(|found| found.mtime) != Some(version.mtime)) {
            gone += 1;
        } else if let Some(reads) = launches.reads(ino, version) {
            rounds = rounds.max(u64::from(reads.rounds));
            files.push((ino, reads));
        }
    }
    if gone > 0 {
        let text = format!(
            "{} files of the record are no more, or have changed since",
            output::count(gone)
        );
        output::complain("note", text);
    }
    let mut blocks = Vec::new();
    for (ino, reads) in &files {
        let core = reads.core.iter().map(|block| (block, rounds));
        let other = reads.other.iter();
        let other = other.map(|block| (block, u64::from(block.mark.launches)));
        let all = core.chain(other);
        blocks.extend(all.map(|(block, count)| {
            let is_rest = count < rounds;
            (is_rest, block.mark.order, *ino, block.lblk, count)
        }));
    }
    blocks.sort_unstable();
    let follows = |last: &Block, next: &Block| {
        (last.2, last.4, last.3.checked_add(1)) == (next.2, next.4, Some(next.3))
    };
    let ranges = blocks.chunk_by(follows).filter_map(|blocks| {
        let &(_, _, ino, lblk, count) = blocks.first()?;
        Some(Range {
            path: paths.get(&u64::from(ino))?.clone(),
            offset: u64::from(lblk) * LOG_BLOCK_BYTES,
            len: blocks.len() as u64 * LOG_BLOCK_BYTES,
            count,
            digest: None,
        })
    });
    Profile {
        ranges: ranges.collect(),
        rounds,
    }
}

/// A block of a file: whether only some launches read it, when, its inode, the block, and how many did.
type Block = (bool, u64, u32, u32, u64);
