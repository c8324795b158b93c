//! `anteros patch`

mod base;
mod report;
mod settings;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use anteros_build::{Input, Layer, Options, Summary, build, patch_device};
use anteros_core::{FileDevice, Timestamp, parse_size};
use anteros_image::{Image, ImageFs};

use crate::args::{ImageArgs, WorkerArgs};
use crate::command::mkfs::{self, Before, Compressor};
use crate::failure::{Failure, Outcome, Verdict};
use crate::interrupt;
use report::{Watch, Words};

/// Change files of an image by appending to it
///
/// Only what changed is appended, with all directories: content, owners, permissions, times, attributes and names count. Data
/// and inodes of all other files stay where they are, and so does all that was there before. The superblock is written
/// last: whenever the power fails, the image is the old one or the new one. The kernel mounts it as it mounts any
/// image.
#[derive(Debug, clap::Args)]
#[command(next_line_help = true)]
pub struct Args {
    /// The image: a regular file, or a block device with room behind the image. Nobody may use it
    image: PathBuf,

    /// The directory with the tree that the image is to have: what is not in it is removed
    #[arg(long, value_name = "DIR")]
    from: PathBuf,

    /// Tell what would change, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Compress new content so, as `mkfs -z` does; as the image's files are unless told
    #[arg(short = 'z', long = "compress", value_name = "ALGORITHM[,LEVEL]")]
    compressor: Option<Compressor>,

    /// Largest compressed cluster (K, M); that of the image unless told
    #[arg(short = 'C', long = "cluster", value_name = "BYTES", value_parser = parse_size)]
    cluster: Option<u64>,

    #[command(flatten)]
    workers: WorkerArgs,

    /// Most memory that the tree, encoders and content in flight take (K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    memory: u64,

    /// Name each path that changes
    #[arg(short, long)]
    verbose: bool,

    /// Print nothing but errors and warnings
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,

    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Outcome {
        let image = ImageArgs::usual(&self.image).open()?;
        let cancel = interrupt::flag()?;
        let options = self.options(&image, &cancel)?;
        let fs = Arc::new(ImageFs::new(image));
        let base = mkfs::base_of(fs.clone());
        let input = Input::Replaced {
            former: Layer::Base(fs, base, self.image.clone()),
            source: Layer::Directory(&self.from),
        };
        let names = (self.verbose || self.dry_run) && !self.json && !self.quiet;
        let observer = Watch::new(self.quiet || self.json, names);
        let start = std::time::Instant::now();
        let summary = self.build(input, &options, &observer, &cancel);
        observer.bar.finish_and_clear();
        let summary = summary?;
        let seconds = start.elapsed().as_secs_f64();
        let words = Words {
            image: &self.image,
            dry_run: self.dry_run,
            quiet: self.quiet,
            json: self.json,
        };
        words.print(&observer, &summary, seconds)?;
        Ok(Verdict::Good)
    }

    fn build(
        &self,
        input: Input<'_>,
        options: &Options,
        observer: &Watch,
        cancel: &AtomicBool,
    ) -> Result<Summary, Failure> {
        let metadata = std::fs::metadata(&self.image);
        let metadata = metadata.map_err(|e| Failure::system(&self.image, &e))?;
        let built = match metadata.is_file() {
            true => build(&self.image, input, options, observer, cancel),
            false => {
                let device = FileDevice::open_writable(&self.image).map_err(Failure::os)?;
                patch_device(Arc::new(device), input, options, observer, cancel)
            }
        };
        built.map_err(|e| mkfs::failure(&self.image, Before::File, &e))
    }

    /// The options of a build that patches the image, which keeps the form that it has.
    fn options(&self, image: &Image, cancel: &AtomicBool) -> Result<Options, Failure> {
        let patch = base::patch(image, self.dry_run, now(), self.workers.count(), cancel)?;
        let defaults = Options {
            workers: self.workers.count(),
            memory_bytes: self.memory,
            ..Options::default()
        };
        let options = settings::of_image(image, self.compressor, self.cluster, defaults)?;
        let append = base::appended(image, &self.image)?;
        Ok(Options {
            append: Some(append),
            patch: Some(patch),
            ..options
        })
    }
}

/// The time of day, or the one that `SOURCE_DATE_EPOCH` has builds take for it.
fn now() -> Timestamp {
    let told = std::env::var("SOURCE_DATE_EPOCH").ok();
    if let Some(secs) = told.and_then(|told| told.parse().ok()) {
        return Timestamp { secs, nanos: 0 };
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default(); // no state was made before
    Timestamp {
        secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos(),
    }
}
