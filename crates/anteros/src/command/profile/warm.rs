//! `anteros profile warm`
//!
//! ```text
//! core ranges ──▶ those that the files have ──▶ in the order of the image ──▶ read ──▶ report
//!                                                └──▶ runs of the image: inodes, directories
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anteros_core::parse_size;
use anteros_image::Image;
use anteros_trace::profile::Range;
use anteros_warm::{Directory, core_of, free_memory, warm, within_limit};
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

impl Args {
    pub fn run(self) -> Outcome {
        let stop = interrupt::flag().map_err(Failure::os)?;
        let profile = profiles::load(&self.profile)?;
        let (directory, tree) = self.tree()?;
        let wanted = core_of(&profile, self.all).into_iter();
        let started = Instant::now();
        let mut fit = Fit::new(&tree);
        let fitting = wanted
            .take_while(|_| !stop.load(Ordering::Relaxed))
            .filter_map(|range| fit.cut_one(range));
        let room = self.limit.unwrap_or_else(free_memory);
        let (mut ranges, left_out) = within_limit(fitting, room);
        interrupt::check(&stop)?;
        let image = self.sort(&mut ranges);
        let image_bytes = image
            .as_ref()
            .map_or(0, |image| self.ask_of_image(image, &ranges));
        let warmed = warm(&directory, &ranges, &|| !stop.load(Ordering::Relaxed));
        interrupt::check(&stop)?;
        let seconds = started.elapsed().as_secs_f64();
        let order = if image.is_some() { "image" } else { "files" };
        match self.report.json {
            true => output::json(&json!({
                "directory": self.directory.to_string_lossy(),
                "profile": self.profile.to_string_lossy(),
                "order": order,
                "ranges": ranges.len(),
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

    fn tree(&self) -> Result<(Directory, Tree), Failure> {
        let failure = |error| Failure::system(&self.directory, &error);
        if std::fs::metadata(&self.directory)
            .map_err(failure)?
            .is_dir()
        {
            let directory = Directory::open(&self.directory).map_err(failure)?;
            return Ok((directory, Tree::open(&self.directory)?));
        }
        let message = format!("{}: no directory", self.directory.display());
        let hint = "name the directory that the image is mounted on";
        Err(Failure::new(Kind::Usage, message).hint(hint))
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
        let arguments = ImageArgs {
            devices: self.devices.clone(),
            offset: self.offset,
            ..ImageArgs::usual(&path)
        };
        let sorted = arguments.open().and_then(|image| {
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
        for run in &runs {
            for start in run.clone().step_by(IMAGE_BYTES_MAX as usize) {
                let len = NonZero::new(IMAGE_BYTES_MAX.min(run.end - start));
                let _ = fadvise(&file, offset + start, len, Advice::WillNeed);
            }
        }
        runs.iter().map(|run| run.end - run.start).sum()
    }
}

/// The image that is mounted on a directory, as the list of mounts names it.
fn image_at(directory: &Path) -> Option<PathBuf> {
    let place = Place::at(directory).ok().flatten()?;
    let is_image = place.is_ours() && place.kind != crate::places::LOG;
    Some(place.source).filter(|source| is_image && source.is_absolute())
}
