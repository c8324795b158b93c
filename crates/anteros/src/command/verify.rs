//! `anteros verify`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::Options;
use anteros_core::{Device, FileDevice, Timestamp, Window};
use anteros_format::xattr::split_name;
use anteros_image::{
    Image, Mismatch, OpenOptions, VerifyError, VerifyObserver, VerifyOptions, VerifyProblem,
    VerifyReport, XattrScope, verify,
};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::{ImageArgs, WorkerArgs};
use crate::failure::{Failure, Kind, Outcome, Verdict, kind_of};
use crate::{interrupt, output, volume};

/// Compare an image with the directory it was made of
///
/// Names, kinds, modes, owners, times, sizes, device numbers, link targets, hard links, extended
/// attributes and every byte of data. What cannot be read on either side, such as a broken extent or a
/// file without permission, is told as a difference, and the rest is compared. Exits with 1 if they
/// differ.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory
    source: PathBuf,

    /// Do not compare owners
    #[arg(long)]
    no_owners: bool,

    /// Do not compare modification times
    #[arg(long)]
    no_times: bool,

    /// Do not compare extended attributes
    #[arg(long)]
    no_xattrs: bool,

    #[command(flatten)]
    workers: WorkerArgs,

    /// Print nothing but differences
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    /// Print the report as a JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Outcome {
        self.image
            .check_order(&self.source, "verify IMAGE SOURCE")?;
        let image = self.image.open()?;
        let cancel = interrupt::flag()?;
        let defaults = VerifyOptions::default();
        let options = VerifyOptions {
            workers: self.workers.count(),
            owner: if self.no_owners {
                &|_| None
            } else {
                defaults.owner
            },
            time: if self.no_times {
                &|_| None
            } else {
                defaults.time
            },
            xattrs: if self.no_xattrs {
                XattrScope::None
            } else {
                defaults.xattrs
            },
            ..defaults
        };
        let report = compare(
            &image,
            &self.source,
            &options,
            self.quiet || self.json,
            &cancel,
        )?;
        if self.json {
            output::json(&Report::new(&report))?;
            return Ok(verdict(&report));
        }
        print(&image.name(), &self.source, &report, self.quiet)?;
        Ok(verdict(&report))
    }
}

/// Compares an image that was just built with its source, by the options that it was built with.
pub fn built(
    image: &Path,
    source: &Path,
    options: &Options,
    quiet: bool,
    cancel: &AtomicBool,
) -> Result<VerifyReport, Failure> {
    let device = FileDevice::open(image).map_err(|e| Failure::system(image, &e))?;
    let device = Arc::new(Window::new(device, options.offset));
    let blob = options.blob_device.as_ref().map(|path| {
        let device = FileDevice::open(path).map_err(|e| Failure::system(path, &e))?;
        Ok::<_, Failure>(Arc::new(device) as Arc<dyn Device>)
    });
    let blob = blob.transpose()?.into_iter().collect();
    let opened = Image::open(device, blob, OpenOptions::default());
    let opened = opened.map_err(|e| Failure::opening(image.display(), &e))?;
    let excluded = |path: &[u8]| options.exclude.iter().any(|exclude| exclude.matches(path));
    let defaults = VerifyOptions::default();
    let has_owners = options.fs_config.is_none();
    let has_digests = (options.digest_xattr.as_deref()).is_some_and(|n| split_name(n).is_some());
    let has_xattrs = has_owners && options.file_contexts.is_none() && !has_digests;
    let verify_options = VerifyOptions {
        workers: options.workers,
        owner: &|owner| options.owner_of(owner).ok().filter(|_| has_owners),
        time: &|time| time_of(options, time),
        permissions: has_owners,
        xattrs: options
            .xattr_share_above
            .filter(|_| has_xattrs)
            .map_or(XattrScope::None, |_| defaults.xattrs),
        links: !options.hard_dereference,
        excluded: &excluded,
        ..defaults
    };
    compare(&opened, source, &verify_options, quiet, cancel)
}

/// The time that a file should have in the image; `None` if that may be any.
fn time_of(options: &Options, time: Timestamp) -> Option<Timestamp> {
    let dropped = options.ignore_mtime || options.inode_form == anteros_build::InodeForm::Compact;
    (!dropped).then(|| options.time_of(time))
}

fn compare(
    image: &Image,
    source: &Path,
    options: &VerifyOptions<'_>,
    quiet: bool,
    cancel: &AtomicBool,
) -> Result<VerifyReport, Failure> {
    let bar = output::progress(quiet, "comparing");
    volume::tell(&bar, image, b"", cancel);
    let report = verify(image, source, options, &Watch(bar.clone()), cancel);
    bar.finish_and_clear();
    report.map_err(|e| failure(&image.name(), source, &e))
}

struct Watch(ProgressBar);

impl VerifyObserver for Watch {
    fn compared_bytes(&self, bytes: u64) {
        volume::advance(&self.0, bytes);
    }
}

fn failure(image: &str, source: &Path, error: &VerifyError) -> Failure {
    let kind = match &error.problem {
        VerifyProblem::Image(error) => kind_of(error),
        VerifyProblem::Cancelled => {
            let text = format!("{image}: interrupted; not all of it was compared");
            return Failure::new(Kind::Interrupted, text);
        }
        VerifyProblem::Source(cause) => {
            let text = format!("{}: {}: {cause}", source.display(), error.path);
            return Failure::new(Kind::System, text);
        }
    };
    Failure::new(kind, format_args!("{image}: {error}"))
}

/// The status that a report ends with.
pub const fn verdict(report: &VerifyReport) -> Verdict {
    if report.difference_count == 0 {
        Verdict::Good
    } else {
        Verdict::Bad
    }
}

/// The report as scripts see it.
#[derive(Serialize)]
pub struct Report {
    equal: bool,
    names: u64,
    bytes: u64,
    differences: Vec<View>,
    difference_count: u64,
    unreadable_count: u64,
}

#[derive(Serialize)]
struct View {
    path: String,
    text: String,
}

impl Report {
    pub fn new(report: &VerifyReport) -> Self {
        let differences = report.differences.iter();
        Self {
            equal: report.difference_count == 0,
            names: report.names,
            bytes: report.bytes,
            differences: differences
                .map(|d| View {
                    path: d.path.to_string(),
                    text: text(&d.what),
                })
                .collect(),
            difference_count: report.difference_count,
            unreadable_count: report.unreadable_count,
        }
    }
}

/// Says how an image and its source differ, with times as dates.
fn text(what: &Mismatch) -> String {
    let date = |(secs, nanos)| output::time(Timestamp { secs, nanos });
    match *what {
        Mismatch::Time { image, expected } => {
            let (image, expected) = (date(image), date(expected));
            format!("time {image} in the image instead of {expected}")
        }
        _ => what.to_string(),
    }
}

/// Tells people.
pub fn print(
    image: &str,
    source: &Path,
    report: &VerifyReport,
    quiet: bool,
) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for difference in &report.differences {
        writeln!(out, "{}: {}", difference.path, text(&difference.what))?;
    }
    let more = report.difference_count - report.differences.len() as u64;
    if more > 0 {
        writeln!(out, "… and {} more", output::count(more))?;
    }
    if !quiet {
        let (names, bytes) = (output::count(report.names), output::bytes(report.bytes));
        let differences = output::count(report.difference_count);
        let unreadable = output::count(report.unreadable_count);
        let result = match (report.difference_count, report.unreadable_count) {
            (0, _) => "the same as".into(),
            (_, 0) => format!("{differences} differences from"),
            _ => format!("{differences} differences ({unreadable} of what cannot be read) from"),
        };
        writeln!(
            out,
            "{image}: {result} {}: {names} names, {bytes} compared",
            source.display()
        )?;
    }
    out.flush()
}
