//! Files of a mounted log that are to be compressed, and how its daemon is told of them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_trace::profile::Profile;

use crate::command::log::gc::{tell, wait};
use crate::command::profile::fit::Fit;
use crate::command::profile::tree::Tree;
use crate::command::stat::attribute;
use crate::daemon::work::Progress;
use crate::failure::{Failure, Kind};

const PAGE: u64 = 4096;

/// Bytes of what `st_blocks` counts.
const SECTOR: u64 = 512;

/// Numbers of inodes that fit into an attribute.
const TOLD_AT_ONCE: usize = 2000;
/// Ranges that fit, of at most 4 numbers.
const RANGES_TOLD_AT_ONCE: usize = 1000;

/// A mounted log, and the paths in it that were asked for.
pub struct Asked {
    pub mount: PathBuf,
    pub paths: Vec<PathBuf>,
    device: u64,
    /// The attribute by which its daemon takes orders.
    attribute: &'static str,
}

/// Inodes that were found below a path, each once.
#[derive(Default)]
pub struct Found {
    pub inos: Vec<u64>,
    /// Bytes of content in them.
    pub bytes: u64,
}

impl Found {
    /// Adds what was found elsewhere.
    pub fn append(&mut self, mut other: Self) {
        self.inos.append(&mut other.inos);
        self.bytes += other.bytes;
    }
}

impl Asked {
    /// Finds the log that has these files, all of them, and a daemon that knows this attribute.
    pub fn of(files: &[PathBuf], attribute_name: &'static str) -> Result<Self, Failure> {
        let paths = files
            .iter()
            .map(|path| path.canonicalize().map_err(|e| Failure::system(path, &e)));
        let paths: Vec<_> = paths.collect::<Result<_, _>>()?;
        let mount = mount_of(&paths[0])?;
        let told = attribute(&mount, attribute_name).map_err(|e| Failure::system(&mount, &e))?;
        if told.is_none() {
            let message = format!("{}: no log is mounted here", files[0].display());
            let hint = "name files in a directory that `anteros log mount` was given";
            return Err(Failure::new(Kind::System, message).hint(hint));
        }
        let device = metadata(&mount)?.dev();
        let asked = Self {
            mount,
            paths,
            device,
            attribute: attribute_name,
        };
        asked.paths.iter().try_for_each(|path| asked.check(path))?;
        Ok(asked)
    }

    fn check(&self, path: &Path) -> Result<(), Failure> {
        if metadata(path)?.dev() == self.device {
            return Ok(());
        }
        let (path, mount) = (path.display(), self.mount.display());
        let message = format!("{path}: not in the log that is mounted at {mount}");
        Err(Failure::new(Kind::Usage, message).hint("name files of one log at a time"))
    }

    /// Finds the inodes of a file, or of all that are in a directory, but for those that were `seen`.
    pub fn find(&self, path: &Path, seen: &mut HashSet<u64>) -> Result<Found, Failure> {
        let mut found = Found::default();
        self.collect(path, seen, &mut found)?;
        Ok(found)
    }

    fn collect(
        &self,
        path: &Path,
        seen: &mut HashSet<u64>,
        found: &mut Found,
    ) -> Result<(), Failure> {
        let metadata = metadata(path)?;
        if metadata.dev() != self.device {
            return Ok(());
        }
        if seen.insert(metadata.ino()) {
            found.inos.push(metadata.ino());
            if metadata.is_file() {
                found.bytes += metadata.blocks() * SECTOR;
            }
        }
        if metadata.is_dir() {
            for path in entries(path)? {
                self.collect(&path, seen, found)?;
            }
        }
        Ok(())
    }

    /// Tells the daemon of files, and what launches read of them by a profile.
    pub fn tell(&self, found: &Found, profile: Option<&Profile>) -> Result<(), Failure> {
        for inos in found.inos.chunks(TOLD_AT_ONCE) {
            let words = inos
                .iter()
                .fold("add".to_owned(), |words, ino| format!("{words} {ino}"));
            self.order(&words)?;
        }
        profile.map_or(Ok(()), |profile| self.tell_reads(found, profile))
    }

    fn tell_reads(&self, found: &Found, profile: &Profile) -> Result<(), Failure> {
        let files: HashSet<u64> = found.inos.iter().copied().collect();
        let tree = Tree::open(&self.mount)?;
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
                self.order(&format!("read {ino} {rounds}{}", ranges.concat()))?;
            }
        }
        Ok(())
    }

    fn order(&self, words: &str) -> Result<(), Failure> {
        tell(&self.mount, self.attribute, words.as_bytes())
    }

    /// Has the daemon begin, with a number behind `go` if there is one, and waits until all is done or somebody asks to stop;
    /// `see` is shown how far it is.
    pub fn go(
        &self,
        number: Option<u64>,
        asked_to_stop: &AtomicBool,
        mut see: impl FnMut(&Progress),
    ) -> Result<Progress, Failure> {
        let go = number.map_or("go".to_owned(), |number| format!("go {number}"));
        self.order(&go)?;
        let is_asked = || asked_to_stop.load(Ordering::Relaxed);
        let done = wait(&self.mount, self.attribute, |progress| {
            see(progress);
            !is_asked()
        })?;
        if !is_asked() {
            return Ok(done);
        }
        self.order("stop")?;
        wait(&self.mount, self.attribute, |_| true)
    }
}

/// The paths of what is in a directory.
pub fn entries(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let fail = |error| Failure::system(directory, &error);
    let entries = fs::read_dir(directory).map_err(fail)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(fail));
    paths.collect()
}

pub fn metadata(path: &Path) -> Result<Metadata, Failure> {
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
