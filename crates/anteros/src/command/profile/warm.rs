//! `anteros profile warm`
//!
//! ```text
//! core ranges ──▶ those that the files have ──▶ in the order of the image ──▶ read ──▶ report
//!                                                └──▶ runs of the image: inodes, directories
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZero;
use std::ops;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anteros_core::parse_size;
use anteros_image::Image;
use anteros_trace::profile::Range;
use anteros_warm::{Directory, Warmed, core_of, free_memory, warm, within_limit};
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use super::extents::by_image;
use super::fit::Fit;
use super::runs::runs;
use super::tree::Tree;
use crate::args::{ImageArgs, ReportArgs};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::places::Place;
use crate::{interrupt, output, profiles};

/// Most bytes of an image that are asked for at once: of more, the kernel takes no more than its device takes in one request.
const IMAGE_BYTES_MAX: u64 = 512 << 10;

/// Read what all rounds of a profile have read into the page cache, in the order in which the image has it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The mount, or any other directory; or an image in a file that is not mounted yet, of which the parts are read that have the ranges
    #[arg(value_name = "DIRECTORY|IMAGE")]
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

/// A report of what was read.
struct Done {
    order: &'static str,
    ranges: usize,
    image_bytes: u64,
    warmed: Warmed,
    left_out: u64,
    seconds: f64,
}

impl Args {
    pub fn run(self) -> Outcome {
        let stop = interrupt::flag().map_err(Failure::os)?;
        let profile = profiles::load(&self.profile)?;
        let wanted = core_of(&profile, self.all);
        let failure = |error| Failure::system(&self.directory, &error);
        let metadata = std::fs::metadata(&self.directory).map_err(failure)?;
        if metadata.file_type().is_block_device() {
            let message = format!("{}: is a block device", self.directory.display());
            let hint =
                "the kernel keeps nothing of one that nobody has open: name where it is mounted";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        match metadata.is_dir() {
            true => self.warm_files(wanted, &stop),
            false => self.warm_image(wanted, &stop),
        }
    }

    /// Reads ranges of files.
    fn warm_files(&self, wanted: Vec<Range>, stop: &AtomicBool) -> Outcome {
        let failure = |error| Failure::system(&self.directory, &error);
        let directory = Directory::open(&self.directory).map_err(failure)?;
        let tree = Tree::open(&self.directory)?;
        let started = Instant::now();
        let mut fit = Fit::new(&tree);
        let (mut ranges, left_out) = self.fitting(wanted, &mut fit, stop)?;
        let image = self.sort(&mut ranges);
        let image_bytes = image
            .as_ref()
            .map_or(0, |image| self.ask_of_image(image, &ranges));
        let warmed = warm(&directory, &ranges, &|| !stop.load(Ordering::Relaxed));
        interrupt::check(stop)?;
        let order = if image.is_some() { "image" } else { "files" };
        let done = Done {
            order,
            ranges: ranges.len(),
            image_bytes,
            warmed,
            left_out,
            seconds: started.elapsed().as_secs_f64(),
        };
        self.tell(&done, &fit)
    }

    /// Reads the runs of an image that have ranges, inodes and directories.
    fn warm_image(&self, wanted: Vec<Range>, stop: &AtomicBool) -> Outcome {
        if self.image.is_some() {
            let message = format!("{}: no directory", self.directory.display());
            let hint = "an image is read without --image";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        let image = self.open(&self.directory)?;
        let tree = Tree::of_image(image.clone());
        let started = Instant::now();
        let mut fit = Fit::new(&tree);
        let (ranges, left_out) = self.fitting(wanted, &mut fit, stop)?;
        let found = runs(&image, &ranges, true);
        let found = found.map_err(|error| Failure::image(self.directory.display(), &error))?;
        let failure = |error| Failure::system(&self.directory, &error);
        let file = File::open(&self.directory).map_err(failure)?;
        let mut warmed = Warmed::default();
        let mut buffer = vec![0; IMAGE_BYTES_MAX as usize];
        for run in &found {
            ask(&file, self.offset, run);
            for start in run.clone().step_by(buffer.len()) {
                interrupt::check(stop)?;
                let len = IMAGE_BYTES_MAX.min(run.end - start);
                let part = &mut buffer[..len as usize];
                match file.read_exact_at(part, self.offset + start) {
                    Ok(()) => warmed.bytes += len,
                    Err(_) => warmed.failed += 1,
                }
            }
            warmed.requests += 1;
        }
        let done = Done {
            order: "image",
            ranges: ranges.len(),
            image_bytes: warmed.bytes,
            warmed,
            left_out,
            seconds: started.elapsed().as_secs_f64(),
        };
        self.tell(&done, &fit)
    }

    /// Returns the ranges that files have and the limit has room for, and the bytes of those beyond it.
    fn fitting(
        &self,
        wanted: Vec<Range>,
        fit: &mut Fit<'_>,
        stop: &AtomicBool,
    ) -> Result<(Vec<Range>, u64), Failure> {
        let wanted = wanted.into_iter();
        let fitting = wanted
            .take_while(|_| !stop.load(Ordering::Relaxed))
            .filter_map(|range| fit.cut_one(range));
        let found = within_limit(fitting, self.limit.unwrap_or_else(free_memory));
        interrupt::check(stop)?;
        Ok(found)
    }

    /// Tells what was read, and what was not.
    fn tell(&self, done: &Done, fit: &Fit<'_>) -> Outcome {
        let Done {
            order,
            image_bytes,
            warmed,
            left_out,
            seconds,
            ..
        } = *done;
        match self.report.json {
            true => output::json(&json!({
                "directory": self.directory.to_string_lossy(),
                "profile": self.profile.to_string_lossy(),
                "order": order,
                "ranges": done.ranges,
                "bytes": warmed.bytes,
                "image_bytes": image_bytes,
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
                output::count(done.ranges as u64),
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

    /// Opens an image as the arguments say.
    fn open(&self, path: &Path) -> Result<Arc<Image>, Failure> {
        let arguments = ImageArgs {
            devices: self.devices.clone(),
            offset: self.offset,
            ..ImageArgs::usual(path)
        };
        arguments.open()
    }

    /// Sorts ranges by where they lie in the image, if that can be read; else by file, in the order of the profile, and by
    /// offset. Returns the image.
    fn sort(&self, ranges: &mut [Range]) -> Option<Arc<Image>> {
        let mut files: HashMap<Vec<u8>, usize> = HashMap::new();
        for range in &*ranges {
            let next = files.len();
            files.entry(range.path.clone()).or_insert(next);
        }
        ranges.sort_by_cached_key(|range| (files.get(&range.path).copied(), range.offset));
        let path = self.image.clone().or_else(|| image_at(&self.directory))?;
        let sorted = self.open(&path).and_then(|image| {
            let sorted = by_image(&image, ranges);
            sorted.map_err(|error| Failure::image(path.display(), &error))?;
            Ok(image)
        });
        match sorted {
            Ok(image) => Some(image),
            Err(failure) => {
                let text = format!("{}; ranges are read file by file", failure.message());
                output::complain("note", text);
                None
            }
        }
    }

    /// Asks the kernel for runs of the image that is mounted there: inodes and directories, which it keeps as pages of the
    /// device; of an image in a file, content as well. Returns the bytes of all of them.
    fn ask_of_image(&self, image: &Image, ranges: &[Range]) -> u64 {
        let mounted =
            image_at(&self.directory).and_then(|path| Some((File::open(&path).ok()?, path)));
        let Some((file, path)) = mounted else {
            return 0;
        };
        let is_told = self.image.as_ref().is_none_or(|told| *told == path);
        let offset = if is_told { self.offset } else { 0 };
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let runs = runs(image, ranges, is_file).unwrap_or_default();
        runs.iter().for_each(|run| ask(&file, offset, run));
        runs.iter().map(|run| run.end - run.start).sum()
    }
}

/// Asks the kernel for a run of an image that begins at a byte of a file.
fn ask(file: &File, offset: u64, run: &ops::Range<u64>) {
    for start in run.clone().step_by(IMAGE_BYTES_MAX as usize) {
        let len = NonZero::new(IMAGE_BYTES_MAX.min(run.end - start));
        let _ = fadvise(file, offset + start, len, Advice::WillNeed);
    }
}

/// The image that is mounted on a directory, as the list of mounts names it.
fn image_at(directory: &Path) -> Option<PathBuf> {
    let place = Place::at(directory).ok().flatten()?;
    let is_image = place.is_ours() && place.kind != crate::places::LOG;
    Some(place.source).filter(|source| is_image && source.is_absolute())
}
