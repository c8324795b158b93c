//! Everything that a program reads, asked for in the order in which it lies in the image.

use std::collections::BTreeMap;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_trace::profile::Range;
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::outcome::Outcome;
use crate::run::output;

/// Bytes of a slot, by which inodes are numbered.
const SLOT_BYTES: u64 = 32;

/// Whatever is packed has places behind all addresses.
const PACKED: u64 = 1 << 50;

/// The most that is asked for at once: of a longer part, the kernel takes no more than its device takes in one request.
const ASKED_BYTES_MAX: u64 = 512 << 10;

/// Bytes between two runs that are read with them.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// A run of a file that lies in one piece.
struct Run {
    address: u64,
    stored: u64,
    path: PathBuf,
    offset: u64,
    len: u64,
}

/// Everything that is asked for.
pub(super) struct Plan {
    /// The bytes of the image from the first inode that is read to the last one.
    inodes: (u64, u64),
    /// Directories on the way to files, and the runs of these, in their order.
    directories: Vec<PathBuf>,
    runs: Vec<Run>,
    /// The bytes of the image that all of that takes, from and to.
    image: Vec<(u64, u64)>,
}

/// Looks into an image.
struct Dump<'a> {
    anteros: &'a Path,
    image: &'a Path,
}

impl Dump<'_> {
    fn of(&self, arguments: &[&str]) -> Outcome<Value> {
        let mut command = Command::new(self.anteros);
        command.arg("dump").arg(self.image).arg("--json");
        Ok(serde_json::from_str(&output(command.args(arguments))?)?)
    }
}

impl Plan {
    /// Finds where some ranges lie in an image.
    ///
    /// # Errors
    /// When the image cannot be looked into.
    pub(super) fn new(anteros: &Path, image: &Path, ranges: &[Range]) -> Outcome<Self> {
        let dump = Dump { anteros, image };
        let superblock = &dump.of(&[])?["superblock"];
        let number = |value: &Value| value.as_u64().ok_or("no number where one was expected");
        let origin = number(&superblock["meta_block"])? * number(&superblock["block_bytes"])?;
        let mut files: BTreeMap<&str, Vec<&Range>> = BTreeMap::new();
        for range in ranges {
            files
                .entry(std::str::from_utf8(&range.path)?)
                .or_default()
                .push(range);
        }
        let mut plan = Self {
            inodes: (u64::MAX, 0),
            directories: Vec::new(),
            runs: Vec::new(),
            image: Vec::new(),
        };
        for (path, ranges) in files {
            let dumped = dump.of(&["--path", path, "--extents"])?;
            let inode = origin + number(&dumped["inode"]["nid"])? * SLOT_BYTES;
            let size = number(&dumped["inode"]["size"])?;
            // The index of a file of that size in full.
            let end = inode + SLOT_BYTES + size / 512;
            plan.inodes = (plan.inodes.0.min(inode), plan.inodes.1.max(end));
            for directory in Path::new(path).ancestors().skip(1) {
                if !plan.directories.iter().any(|known| known == directory) {
                    plan.directories.push(directory.to_owned());
                }
            }
            for extent in dumped["extents"].as_array().into_iter().flatten() {
                plan.add(Path::new(path), extent, &ranges)?;
            }
        }
        plan.runs.sort_by_key(|run| run.address);
        let packed = match superblock["packed_nid"].as_u64() {
            Some(nid) => dump.of(&["--nid", &nid.to_string(), "--extents"])?,
            None => Value::Null,
        };
        plan.image = plan.places(&packed);
        Ok(plan)
    }

    /// The bytes of the image that inodes and runs take, those that are packed by the extents of the packed inode.
    fn places(&self, packed: &Value) -> Vec<(u64, u64)> {
        let mut places = vec![self.inodes];
        for run in &self.runs {
            let end = run.address + run.stored;
            let Some(start) = run.address.checked_sub(PACKED) else {
                places.push((run.address, end));
                continue;
            };
            let end = end - PACKED;
            for extent in packed["extents"].as_array().into_iter().flatten() {
                let number = |name: &str| extent[name].as_u64().unwrap_or_default();
                let (offset, address) = (number("offset"), number("address"));
                if offset < end && start < offset + number("bytes") {
                    places.push((address, address + number("stored_bytes")));
                }
            }
        }
        places.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in places {
            match merged.last_mut() {
                Some(last) if start <= last.1 + GAP_BYTES_MAX => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        merged
    }

    /// Adds an extent of a file, if something of it is read.
    fn add(&mut self, path: &Path, extent: &Value, ranges: &[&Range]) -> Outcome {
        let number = |name: &str| extent[name].as_u64();
        let (Some(offset), Some(len)) = (number("offset"), number("bytes")) else {
            return Err(format!("{}: no extent: {extent}", path.display()).into());
        };
        let is_read = |range: &&Range| range.offset < offset + len && offset < range.end();
        if !ranges.iter().any(is_read) {
            return Ok(());
        }
        let storage = extent["storage"].as_str().unwrap_or_default();
        let fragment = storage
            .strip_prefix("fragment at ")
            .and_then(|at| at.parse::<u64>().ok());
        let address = fragment.map_or(number("address"), |at| Some(PACKED + at));
        let Some(address) = address else {
            return Ok(()); // a hole
        };
        let stored = fragment
            .map_or(number("stored_bytes"), |_| Some(len))
            .unwrap_or_default();
        match self.runs.last_mut() {
            Some(run)
                if run.path == path
                    && run.offset + run.len == offset
                    && run.address + run.stored == address =>
            {
                run.len += len;
                run.stored += stored;
            }
            _ => self.runs.push(Run {
                address,
                stored,
                path: path.to_owned(),
                offset,
                len,
            }),
        }
        Ok(())
    }

    /// Asks for everything: parts of an image that is a file, or else the inodes on its device; directories and files of
    /// the mount.
    ///
    /// # Errors
    /// When something is not there.
    pub(super) fn replay(&self, mount: &Path, image: &Path) -> Outcome {
        let file = File::open(image)?;
        let places = match file.metadata()?.is_file() {
            true => &self.image[..],
            false => &[self.inodes],
        };
        for (start, end) in places {
            ask(&file, *start, end.saturating_sub(*start))?;
        }
        let inside = |path: &Path| mount.join(path.strip_prefix("/").unwrap_or(path));
        for directory in &self.directories {
            ask(&File::open(inside(directory))?, 0, ASKED_BYTES_MAX)?;
        }
        let mut open: Option<(&Path, File)> = None;
        for run in &self.runs {
            let file = match open.take().filter(|(path, _)| *path == run.path) {
                Some((_, file)) => file,
                None => File::open(inside(&run.path))?,
            };
            ask(&file, run.offset, run.len)?;
            open = Some((&run.path, file));
        }
        Ok(())
    }
}

/// Has the kernel read a part of a file.
fn ask(file: &File, offset: u64, len: u64) -> Outcome {
    let end = offset + len;
    for at in (offset..end).step_by(ASKED_BYTES_MAX as usize) {
        let len = NonZeroU64::new(ASKED_BYTES_MAX.min(end - at));
        fadvise(file, at, len, Advice::WillNeed)?;
    }
    Ok(())
}
