//! `anteros patch`

mod added;
mod apply;
mod base;
mod compact;
mod export;
mod layer;
mod names;
mod report;
mod states;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use anteros_build::{Archive, Exclude, Input, Layer, Options, Summary, build, patch_device};
use anteros_core::{FileDevice, Timestamp, parse_size};
use anteros_image::{Image, ImageFs};

use crate::args::{ImageArgs, WorkerArgs};
use crate::command::mkfs::{self, Before, Compressor};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output};
use export::Source;
use names::{is_within, plain};
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
    #[arg(long, value_name = "DIR", group = "what")]
    from: Option<PathBuf>,

    /// An archive of tar or cpio to lay over the tree of the image, also a compressed one; `-` is one on standard input. Its
    /// whiteouts, of AUFS and of overlayfs, remove what they name
    #[arg(long, value_name = "ARCHIVE", conflicts_with = "what")]
    tar: Option<PathBuf>,

    /// A file of this machine to put at a path of the image, with its owner, permissions, time and attributes; a directory with
    /// all that is in it. What is there is replaced, directories are merged. Behind a slash it keeps its name. Repeat it
    /// for each
    #[arg(
        long = "add",
        value_names = ["FILE", "PATH"],
        num_args = 2,
        action = clap::ArgAction::Append,
        conflicts_with = "what"
    )]
    added: Vec<OsString>,

    /// A path of the image to remove, with all that is in it; repeat it for each
    #[arg(long = "delete", value_name = "PATH", conflicts_with = "what")]
    deleted: Vec<OsString>,

    /// Tell of the states that the image had, the oldest first. `*` is the current one
    #[arg(long, group = "what", conflicts_with_all = ["dry_run", "verbose"])]
    list: bool,

    /// Make a former state the current one again, by appending a record of it. No state is lost by that
    #[arg(long, value_name = "STATE", group = "what", conflicts_with_all = ["dry_run", "verbose"])]
    rollback: Option<u32>,

    /// Write what lies between the former state and the current one into a file, a patch that `--apply` takes elsewhere; `-` is
    /// standard output. The image stays as it is
    #[arg(
        long,
        value_name = "FILE",
        group = "what",
        conflicts_with_all = ["dry_run", "verbose"]
    )]
    export: Option<PathBuf>,

    /// With --export: from this state on, instead of the one before the current one
    #[arg(long, value_name = "STATE", requires = "export")]
    since: Option<u32>,

    /// Apply a patch that `--export` made of this image, which must be in the state that the patch goes on from. All of it is
    /// verified first
    #[arg(
        long,
        value_name = "FILE",
        group = "what",
        conflicts_with_all = ["dry_run", "verbose"]
    )]
    apply: Option<PathBuf>,

    /// Make the image anew with its current state alone, in the form that it has, and without the bytes that no file uses any more.
    /// Former states are gone then. There must be room for both beside each other; a power cut leaves one of them
    #[arg(long, group = "what", conflicts_with_all = ["dry_run", "verbose"])]
    compact: bool,

    /// Leave the image as it is, and write a layer into this file: a small image with what is new, and with inodes that refer to the
    /// image for all else. It is mounted with the image as `--device`, or by the kernel with `-o device=`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "rollback", "export", "apply", "compact"])]
    layer: Option<PathBuf>,

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
        let is_changed = !self.deleted.is_empty() || !self.added.is_empty();
        let is_told = self.from.is_some() || self.tar.is_some() || is_changed;
        let is_other = self.list || self.export.is_some() || self.apply.is_some() || self.compact;
        if !is_told && !is_other && self.rollback.is_none() {
            let message = "nothing says what to change";
            let hint = "--from, --tar, --add, --delete, --apply, --rollback, --compact, --export or --list does";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        let image = ImageArgs::alone(&self.image).open()?;
        let cancel = interrupt::flag()?;
        if self.list {
            states::list(&image, self.json, self.workers.count(), &cancel)?;
            return Ok(Verdict::Good);
        }
        if let Some(number) = self.rollback {
            let work = (self.workers.count(), &*cancel);
            let made = states::restore(&self.image, &image, number, now(), work)?;
            report::restored(&self.words(), number, made)?;
            return Ok(Verdict::Good);
        }
        let source = Source {
            path: &self.image,
            image: &image,
        };
        if let Some(file) = &self.export {
            let work = (self.workers.count(), &*cancel);
            let exported = export::export(&source, file, self.since, work)?;
            if !export::is_stream(file) {
                report::exported(&self.words(), file, &exported)?;
            }
            return Ok(Verdict::Good);
        }
        if let Some(file) = &self.apply {
            let work = (self.workers.count(), &*cancel);
            let applied = apply::apply(&source, file, work)?;
            report::applied(&self.words(), file, &applied)?;
            return Ok(Verdict::Good);
        }
        if self.compact {
            return self.compact(image, &cancel);
        }
        let added = added::pairs(&self.added)?;
        self.check_deleted(&image, &added)?;
        let options = self.options(&image, &cancel)?;
        let fs = Arc::new(ImageFs::new(image));
        let base = mkfs::base_of(fs.clone());
        let former = Layer::Base(fs, base, self.image.clone());
        let input = match (&self.from, &self.tar) {
            (Some(from), _) => Input::Replaced {
                former,
                source: Layer::Directory(from),
            },
            (None, tar) => {
                let tar = tar.as_deref().map(archive).transpose()?;
                let added = (!added.is_empty()).then(|| Layer::Tar(added::layer(&added)));
                let layers = [Some(former), tar, added].into_iter().flatten();
                Input::Layers(layers.collect())
            }
        };
        let names = (self.verbose || self.dry_run) && !self.json && !self.quiet;
        let observer = Watch::new(self.quiet || self.json, names);
        let start = std::time::Instant::now();
        let summary = self.build(input, &options, &observer, &cancel);
        observer.bar.finish_and_clear();
        let summary = summary?;
        let seconds = start.elapsed().as_secs_f64();
        self.words().print(&observer, &summary, seconds)?;
        Ok(Verdict::Good)
    }

    /// Makes the image anew.
    fn compact(&self, image: Arc<Image>, cancel: &AtomicBool) -> Outcome {
        compact::check(&self.image, &image, (self.workers.count(), cancel))?;
        let options = mkfs::whole_form_of(&image, self.compressor, self.cluster, self.defaults())?;
        let observer = Watch::new(self.quiet || self.json, false);
        let made = compact::compact(&self.image, image, &options, &observer, cancel);
        observer.bar.finish_and_clear();
        report::compacted(&self.words(), &made?)?;
        Ok(Verdict::Good)
    }

    /// Options that say nothing of the form of the image.
    fn defaults(&self) -> Options {
        Options {
            workers: self.workers.count(),
            memory_bytes: self.memory,
            spool: std::env::var_os("TMPDIR")
                .filter(|directory| !directory.is_empty())
                .map(PathBuf::from),
            ..Options::default()
        }
    }

    fn build(
        &self,
        input: Input<'_>,
        options: &Options,
        observer: &Watch,
        cancel: &AtomicBool,
    ) -> Result<Summary, Failure> {
        if let Some(layer) = &self.layer {
            let built = build(layer, input, options, observer, cancel);
            return built.map_err(|e| mkfs::failure(layer, Before::File, &e));
        }
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

    /// The form of what is told.
    fn words(&self) -> Words<'_> {
        Words {
            image: self.layer.as_ref().unwrap_or(&self.image),
            is_layer: self.layer.is_some(),
            dry_run: self.dry_run,
            quiet: self.quiet,
            json: self.json,
        }
    }

    /// The options of a build that patches the image, which keeps the form that it has.
    fn options(&self, image: &Image, cancel: &AtomicBool) -> Result<Options, Failure> {
        let work = (self.workers.count(), cancel);
        let (append, patch, patch_layer) = match &self.layer {
            None => {
                let patch = base::patch(image, self.dry_run, now(), work.0, work.1)?;
                (base::appended(image, &self.image)?, Some(patch), None)
            }
            Some(to) => {
                let layer = layer::layer((&self.image, image), to, self.dry_run, work)?;
                (layer::appended(image)?, None, Some(layer))
            }
        };
        let options = mkfs::form_of(image, self.compressor, self.cluster, self.defaults())?;
        Ok(Options {
            append: Some(append),
            patch,
            patch_layer,
            exclude: self.exclusions(),
            // Marks of an image that is a layer itself stay, unless there are others to heed.
            keep_overlay: self.tar.is_none(),
            ..options
        })
    }

    /// The paths to remove, as the tree of the image has them.
    fn exclusions(&self) -> Vec<Exclude> {
        let deleted = self.deleted.iter();
        deleted.map(|path| Exclude::Path(plain(path))).collect()
    }

    /// Makes sure that there is what is to be removed.
    fn check_deleted(&self, image: &Image, added: &[(PathBuf, Vec<u8>)]) -> Result<(), Failure> {
        for path in self.deleted.iter().map(|path| plain(path)) {
            if path.is_empty() {
                let message = "the root directory cannot be removed";
                return Err(Failure::new(Kind::Usage, message));
            }
            if added.iter().any(|(_, put)| is_within(put, &path)) {
                let message = format!("{}: is to be removed, and added", output::name(&path));
                return Err(Failure::new(Kind::Usage, message));
            }
            image.find(&path).map_err(|error| {
                let name = format!("{}: {}", image.name(), output::name(&path));
                Failure::image(name, &error)
            })?;
        }
        Ok(())
    }
}

/// An archive in a file, or on standard input.
fn archive(path: &Path) -> Result<Layer<'static>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Layer::Tar(mkfs::stdin()?));
    }
    let archive = Archive::open(path).map_err(|e| Failure::new(Kind::System, e))?;
    Ok(Layer::Tar(archive))
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
