//! `anteros extract`

mod lists;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anteros_core::FileKind;
use anteros_image::{
    ExtractError, ExtractObserver, ExtractOptions, ExtractProblem, ExtractSummary, ImagePath,
    Warning, XattrScope, extract,
};
use indicatif::ProgressBar;
use serde::Serialize;

use self::lists::ListArgs;
use crate::args::{ImageArgs, WorkerArgs};
use crate::failure::{Failure, Kind, Outcome, Verdict, kind_of};
use crate::{interrupt, output, volume};

/// Write the files of an image into a directory
///
/// Never follows a symbolic link and never writes outside the directory, whatever the image says.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to write into, made if it is missing; a single file may get a new name
    target: PathBuf,

    /// Only this path of the image and what is below it
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub path: OsString,

    /// Replace what exists, but for directories, and never the image itself
    #[arg(long)]
    pub overwrite: bool,

    /// Go on with the next file after an error
    #[arg(long)]
    keep_going: bool,

    /// Do not set owners (only root does), nor what is a privilege without its owner: set-id bits, capabilities, devices
    #[arg(long)]
    pub no_owners: bool,

    /// Do not set modification times
    #[arg(long)]
    no_times: bool,

    /// Set no extended attributes (root sets all, others those of users)
    #[arg(long)]
    pub no_xattrs: bool,

    #[command(flatten)]
    lists: ListArgs,

    #[command(flatten)]
    workers: WorkerArgs,

    /// List what is created
    #[arg(short, long)]
    verbose: bool,

    /// Print nothing but errors and warnings
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,

    /// Print the summary as a JSON object
    #[arg(long, conflicts_with = "verbose")]
    json: bool,

    /// Bits of permissions that nothing gets.
    #[arg(skip)]
    pub umask: u16,
}

impl Args {
    /// Arguments to extract all of an image, and to say nothing if all is well.
    pub fn quiet(image: ImageArgs, target: &Path) -> Self {
        Self {
            image,
            target: target.into(),
            path: "/".into(),
            overwrite: false,
            keep_going: false,
            no_owners: false,
            no_times: false,
            no_xattrs: false,
            lists: ListArgs::default(),
            workers: WorkerArgs::default(),
            verbose: false,
            quiet: true,
            json: false,
            umask: 0,
        }
    }

    pub fn run(self) -> Outcome {
        self.image
            .check_order(&self.target, "extract IMAGE DIRECTORY")?;
        let image = self.image.open()?;
        let cancel = interrupt::flag()?;
        let bar = output::progress(self.quiet || self.verbose || self.json, "extracting");
        volume::tell(&bar, &image, self.path.as_bytes(), &cancel);
        let watch = Watch {
            bar: bar.clone(),
            verbose: self.verbose,
        };
        let start = std::time::Instant::now();
        let done = extract(
            &image,
            self.path.as_bytes(),
            &self.target,
            &self.options(),
            &watch,
            &cancel,
        );
        bar.finish_and_clear();
        let say = |error: &ExtractError| self.text(&image.name(), error);
        let summary = done.map_err(|error| failure(&self.target, say(&error), &error))?;
        let errors = summary.errors.iter().map(say);
        errors.for_each(|error| output::complain("error", error));
        let is_listed = self.lists.write(&image, self.path.as_bytes(), &cancel)?;
        if self.json {
            output::json(&Report::new(&summary))?;
        } else if !self.quiet {
            print(&self.target, &summary, start.elapsed().as_secs_f64())?;
        }
        Ok(if summary.is_complete() && is_listed {
            Verdict::Good
        } else {
            Verdict::Partial
        })
    }

    /// An error with the side it was met on: the image, or the target.
    fn text(&self, image: &str, error: &ExtractError) -> String {
        match &error.problem {
            ExtractProblem::Image(_)
            | ExtractProblem::DirectoryTwice { .. }
            | ExtractProblem::Kind { .. }
            | ExtractProblem::Name => format!("{image}: {error}"),
            _ => format!("{}: {error}", self.target.display()),
        }
    }

    fn options(&self) -> ExtractOptions {
        let defaults = ExtractOptions::default();
        ExtractOptions {
            workers: self.workers.count(),
            overwrite: self.overwrite,
            keep_going: self.keep_going,
            owners: defaults.owners && !self.no_owners,
            times: !self.no_times,
            xattrs: if self.no_xattrs {
                XattrScope::None
            } else {
                defaults.xattrs
            },
            spared: self.image.files(),
            umask: self.umask,
            readable: self.lists.has_owners(),
        }
    }
}

struct Watch {
    bar: ProgressBar,
    verbose: bool,
}

impl ExtractObserver for Watch {
    fn created(&self, path: &ImagePath, _kind: FileKind) {
        // Somebody who stops listening to the list still wants the files.
        let _ = writeln!(io::stdout(), "{path}");
    }

    fn wrote(&self, bytes: u64) {
        volume::advance(&self.bar, bytes);
    }

    fn warning(&self, warning: &Warning) {
        self.bar.suspend(|| output::complain("warning", warning));
    }

    fn wants_names(&self) -> bool {
        self.verbose
    }
}

fn failure(target: &Path, text: String, error: &ExtractError) -> Failure {
    let target = target.display();
    let kind = match &error.problem {
        ExtractProblem::Image(error) => kind_of(error),
        ExtractProblem::Exists | ExtractProblem::Spared | ExtractProblem::DirectoryInTheWay => {
            Kind::Usage
        }
        ExtractProblem::Cancelled => {
            let text = format!("{target}: interrupted; what was extracted until then stays");
            return Failure::new(Kind::Interrupted, text)
                .hint("files that were being written are incomplete");
        }
        problem if problem.is_corrupt() => Kind::Corrupt,
        _ => Kind::System,
    };
    let failure = Failure::new(kind, text);
    match &error.problem {
        ExtractProblem::Exists => failure.hint("--overwrite replaces what exists"),
        ExtractProblem::Os { source, .. } if source.kind() == io::ErrorKind::StorageFull => failure
            .hint(format_args!(
                "what was extracted until then stays in {target}, and is incomplete"
            )),
        problem if problem.is_corrupt() => failure
            .hint("--keep-going extracts what can be read; `anteros check` lists every fault"),
        _ => failure,
    }
}

/// The summary as scripts see it.
#[derive(Serialize)]
struct Report {
    complete: bool,
    files: u64,
    directories: u64,
    symlinks: u64,
    specials: u64,
    hard_links: u64,
    bytes: u64,
    devices_omitted: u64,
    xattrs_omitted: u64,
    errors: Vec<String>,
    error_count: u64,
}

impl Report {
    fn new(summary: &ExtractSummary) -> Self {
        Self {
            complete: summary.is_complete(),
            files: summary.files,
            directories: summary.directories,
            symlinks: summary.symlinks,
            specials: summary.nodes,
            hard_links: summary.hard_links,
            bytes: summary.bytes,
            devices_omitted: summary.devices_omitted,
            xattrs_omitted: summary.xattrs_omitted,
            errors: summary.errors.iter().map(ToString::to_string).collect(),
            error_count: summary.error_count,
        }
    }
}

fn print(target: &Path, summary: &ExtractSummary, seconds: f64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let count = output::count;
    writeln!(
        out,
        "{}: {} files, {} directories, {} symlinks, {} others, {} further links, {} in {seconds:.2} s",
        target.display(),
        count(summary.files),
        count(summary.directories),
        count(summary.symlinks),
        count(summary.nodes),
        count(summary.hard_links),
        output::bytes(summary.bytes),
    )?;
    let omitted = summary.devices_omitted + summary.xattrs_omitted;
    if omitted > 0 || summary.error_count > 0 {
        let (omitted, errors) = (count(omitted), count(summary.error_count));
        writeln!(
            out,
            "  NOT complete: {omitted} devices and attributes left out, {errors} errors"
        )?;
    }
    Ok(())
}
