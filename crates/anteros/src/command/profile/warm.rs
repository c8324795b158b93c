//! `anteros profile warm`
//!
//! ```text
//! core ranges ──▶ those that the files have ──▶ in the order of the image ──▶ pieces
//! pieces ──▶ asked for, up to a window ahead ──▶ read, digests compared ──▶ report
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anteros_core::parse_size;
use anteros_image::Location;
use anteros_trace::profile::{Hasher, Range, merge};
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use super::extents::Extents;
use super::fit::Fit;
use super::tree::{Found, Tree};
use crate::args::{ImageArgs, ReportArgs};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::places::Place;
use crate::{interrupt, output, profiles};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// The most bytes that one request asks for.
const REQUEST_BYTES_MAX: u64 = 4 << 20;
/// Most bytes of one call for them: the kernel fetches no more at once than the readahead of a file system, 128 KiB by default.
const ASKED_BYTES_MAX: u64 = 128 << 10;
/// Bytes that are asked for ahead of those that are read.
const WINDOW_BYTES: u64 = 16 << 20;
/// Files that are open at a time.
const OPEN_MAX: usize = 256;

/// Read what all rounds of a profile have read into the page cache, in the order in which the image has it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The mount, or any other directory
    directory: PathBuf,

    /// The profile
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,

    /// Read all ranges, not only those that all rounds have read
    #[arg(long)]
    all: bool,

    /// The image, whose order counts; the one that is mounted there, if not told
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,

    /// An extra device of that image; repeat it for each, in order
    #[arg(long = "device", value_name = "FILE")]
    devices: Vec<PathBuf>,

    /// Byte of its file at which that image begins (K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    offset: u64,

    /// Most bytes to read (K, M, G); the default is half of the memory that is free
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    limit: Option<u64>,

    #[command(flatten)]
    report: ReportArgs,
}

/// A part of a range that is read at once.
struct Piece {
    /// The number of the range.
    range: usize,
    offset: u64,
    len: u64,
}

/// Numbers of what was read.
#[derive(Default)]
struct Warmed {
    bytes: u64,
    requests: u64,
    changed: u64,
    failed: u64,
}

impl Args {
    pub fn run(self) -> Outcome {
        let stop = interrupt::flag().map_err(Failure::os)?;
        let profile = profiles::load(&self.profile)?;
        // No byte is read twice.
        let profile = merge(std::slice::from_ref(&profile));
        let tree = self.tree()?;
        let is_wanted = |range: &&Range| self.all || profile.is_core(range);
        let wanted = profile.ranges.iter().filter(is_wanted).cloned();
        let started = Instant::now();
        let mut fit = Fit::new(&tree);
        let fitting = wanted
            .take_while(|_| !stop.load(Ordering::Relaxed))
            .filter_map(|range| fit.cut_one(range));
        let (mut ranges, left_out) = self.within_limit(fitting);
        interrupt::check(&stop)?;
        let is_by_image = self.sort(&mut ranges);
        let warmed = warm(&tree, &ranges, &|| interrupt::check(&stop))?;
        let seconds = started.elapsed().as_secs_f64();
        let order = if is_by_image { "image" } else { "files" };
        match self.report.json {
            true => output::json(&json!({
                "directory": self.directory.to_string_lossy(),
                "profile": self.profile.to_string_lossy(),
                "order": order,
                "ranges": ranges.len(),
                "bytes": warmed.bytes,
                "requests": warmed.requests,
                "seconds": seconds,
                "missing_ranges": fit.misfits(),
                "changed_ranges": warmed.changed,
                "failed_ranges": warmed.failed,
                "bytes_left_out": left_out,
            }))?,
            false => output::text(&format!(
                "{}: {} read in {seconds:.2} s, {} requests for {} ranges in the order of the {order}\n",
                output::name(self.directory.as_os_str().as_encoded_bytes()),
                output::bytes(warmed.bytes),
                output::count(warmed.requests),
                output::count(ranges.len() as u64),
            ))?,
        }
        let mut verdict = fit.tell();
        for (count, what) in [
            (warmed.changed, "have other content than the profile says"),
            (warmed.failed, "could not be read"),
        ] {
            if count > 0 {
                output::complain(
                    "warning",
                    format_args!("{} ranges {what}", output::count(count)),
                );
                verdict = Verdict::Partial;
            }
        }
        if left_out > 0 {
            let text = format!("{} are left out, beyond the limit", output::bytes(left_out));
            output::complain("note", text);
            verdict = Verdict::Partial;
        }
        Ok(verdict)
    }

    fn tree(&self) -> Result<Tree, Failure> {
        let failure = |error| Failure::system(&self.directory, &error);
        if std::fs::metadata(&self.directory)
            .map_err(failure)?
            .is_dir()
        {
            return Tree::open(&self.directory);
        }
        let message = format!("{}: no directory", self.directory.display());
        let hint = "name the directory that the image is mounted on";
        Err(Failure::new(Kind::Usage, message).hint(hint))
    }

    /// Returns the ranges that the limit has room for, and the bytes of the others.
    fn within_limit(&self, ranges: impl Iterator<Item = Range>) -> (Vec<Range>, u64) {
        let mut room = self.limit.unwrap_or_else(free_memory);
        let mut left_out = 0_u64;
        let mut taken = Vec::new();
        for range in ranges {
            if range.len > room {
                left_out = left_out.saturating_add(range.len);
                continue;
            }
            room -= range.len;
            taken.push(range);
        }
        (taken, left_out)
    }

    /// Sorts ranges by where they lie in the image, if that can be read; else by file, in the order of the profile, and by
    /// offset. Tells which.
    fn sort(&self, ranges: &mut [Range]) -> bool {
        let mut files: HashMap<Vec<u8>, usize> = HashMap::new();
        for range in &*ranges {
            let next = files.len();
            files.entry(range.path.clone()).or_insert(next);
        }
        ranges.sort_by_cached_key(|range| (files.get(&range.path).copied(), range.offset));
        let Some(path) = self.image.clone().or_else(|| image_at(&self.directory)) else {
            return false;
        };
        let arguments = ImageArgs {
            devices: self.devices.clone(),
            offset: self.offset,
            ..ImageArgs::usual(&path)
        };
        let sorted = arguments.open().and_then(|image| {
            let failure = |error| Failure::image(path.display(), &error);
            let mut extents = Extents::new(&image).map_err(failure)?;
            ranges.sort_by_cached_key(|range| place(&mut extents, range));
            Ok(())
        });
        match sorted {
            Ok(()) => true,
            Err(failure) => {
                let text = format!("{}; ranges are read file by file", failure.message());
                output::complain("note", text);
                false
            }
        }
    }
}

/// The place of a range in the image; behind all others if it has none.
fn place(extents: &mut Extents<'_>, range: &Range) -> (bool, Option<Location>) {
    let first = Range {
        len: 1,
        ..range.clone()
    };
    let mut found = None;
    let _ = extents.visit(&first, &mut |part| found = Some(part.location));
    (found.is_none(), found)
}

/// The image that is mounted on a directory, as the list of mounts names it.
fn image_at(directory: &Path) -> Option<PathBuf> {
    let place = Place::at(directory).ok().flatten()?;
    let is_image = place.is_ours() && place.kind != crate::places::LOG;
    Some(place.source).filter(|source| is_image && source.is_absolute())
}

/// Half of the memory that the kernel can give without taking it from programs.
fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024) / 2
}

/// Reads ranges in their order.
fn warm(
    tree: &Tree,
    ranges: &[Range],
    check: &dyn Fn() -> Result<(), Failure>,
) -> Result<Warmed, Failure> {
    let mut warmed = Warmed::default();
    let mut files = Files::new(tree);
    let mut ahead = pieces(ranges).peekable();
    let mut asked = 0_u64;
    let mut read = 0_u64;
    let mut buf = vec![0; PIECE_BYTES as usize];
    let mut hasher = Hasher::default();
    // The last range that failed, of which the rest is not read.
    let mut failed = None;
    for piece in pieces(ranges) {
        check()?;
        while asked < read.saturating_add(WINDOW_BYTES) {
            let Some(first) = ahead.next() else { break };
            let mut len = first.len;
            let range = &ranges[first.range];
            while let Some(next) = ahead.next_if(|next| {
                ranges[next.range].path == range.path
                    && next.offset == first.offset + len
                    && len + next.len <= REQUEST_BYTES_MAX
            }) {
                len += next.len;
            }
            asked += len;
            warmed.requests += 1;
            if let Some(file) = files.find(&range.path).and_then(Found::file) {
                ask_for(file, first.offset, len);
            }
        }
        read += piece.len;
        if failed == Some(piece.range) {
            continue;
        }
        let range = &ranges[piece.range];
        let part = &mut buf[..piece.len as usize];
        let count = match files.find(&range.path) {
            Some(found) => tree.read(found, piece.offset, part).ok(),
            None => None,
        };
        let Some(count) = count.filter(|count| *count == part.len()) else {
            warmed.failed += 1;
            failed = Some(piece.range);
            hasher = Hasher::default();
            continue;
        };
        warmed.bytes += count as u64;
        hasher.update(&buf[..count]);
        if piece.offset + piece.len == range.end() {
            let digest = std::mem::take(&mut hasher).digest();
            let is_changed = range.digest.is_some_and(|known| known != digest);
            warmed.changed += u64::from(is_changed);
        }
    }
    Ok(warmed)
}

/// Asks the kernel to fetch a part of a file. What it does not fetch, is fetched when it is read.
fn ask_for(file: &File, offset: u64, len: u64) {
    for start in (offset..offset + len).step_by(ASKED_BYTES_MAX as usize) {
        let step = ASKED_BYTES_MAX.min(offset + len - start);
        let _ = fadvise(file, start, NonZero::new(step), Advice::WillNeed);
    }
}

/// The pieces of ranges, in order.
fn pieces(ranges: &[Range]) -> impl Iterator<Item = Piece> {
    ranges.iter().enumerate().flat_map(|(number, range)| {
        let starts = (range.offset..range.end()).step_by(PIECE_BYTES as usize);
        starts.map(move |offset| Piece {
            range: number,
            offset,
            len: (range.end() - offset).min(PIECE_BYTES),
        })
    })
}

/// Files that are open.
struct Files<'a> {
    tree: &'a Tree,
    open: HashMap<Vec<u8>, Option<Found>>,
}

impl<'a> Files<'a> {
    fn new(tree: &'a Tree) -> Self {
        let open = HashMap::new();
        Self { tree, open }
    }

    fn find(&mut self, path: &[u8]) -> Option<&Found> {
        if !self.open.contains_key(path) {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            self.open.insert(path.to_vec(), self.tree.find(path).ok());
        }
        self.open.get(path)?.as_ref()
    }
}
