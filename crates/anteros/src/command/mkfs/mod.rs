//! `anteros mkfs`

mod append;
mod arguments;
mod compressor;
mod failure;
mod form;
mod hints;
mod images;
mod lists;
mod metadata;
mod oci;
mod options;
mod preset;
mod renew;
mod report;
mod source;
mod stream;
mod target;
mod values;
mod verity;
mod vmdk;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anteros_build::{Observer, Progress, Summary, build, build_stream};
use indicatif::ProgressBar;

pub use self::append::{appended, base_of, check_metadata};
pub use self::arguments::Args;
pub use self::compressor::Compressor;
pub use self::failure::{Before, failure};
pub use self::form::{of_patch as form_of, of_whole as whole_form_of, unfit};
pub use self::source::stdin;
pub use self::target::Target;
pub use self::values::Content;
use crate::command::verify;
use crate::failure::{Failure, Outcome, Verdict};
use crate::{interrupt, output};

impl Args {
    pub fn run(self) -> Outcome {
        let base = self.base()?;
        let options = self.options(base.as_deref())?;
        let mut stream = self.stream()?;
        let cancel = interrupt::flag()?;
        let before = Before::of(&self.image, &options);
        let observer = Watch::new(self.quiet || self.json);
        let start = std::time::Instant::now();
        let summary = match (&self.older, &mut stream) {
            (Some(older), stream) => self.build_over((older, stream.is_some()), &observer, &cancel),
            (None, None) => self.input(base, &cancel).and_then(|input| {
                build(&self.image, input, &options, &observer, &cancel)
                    .map_err(|e| failure(&self.image, before, &e))
            }),
            (None, Some(stream)) => self.input(base, &cancel).and_then(|input| {
                build_stream(&mut stream.file, input, &options, &observer, &cancel)
                    .map_err(|e| stream.failure(e))
            }),
        };
        observer.bar.finish_and_clear();
        let summary = summary?;
        let seconds = start.elapsed().as_secs_f64();
        self.describe(&summary)?;
        let is_silent = stream.is_some_and(|stream| stream.is_stdout());
        if !self.quiet && !self.json && !is_silent {
            report::print(&self.image, &summary, seconds)?;
        }
        let quiet = self.quiet || self.json;
        let source = self.sources.first().filter(|_| self.verify);
        let compare =
            |source: &PathBuf| verify::built(&self.image, source, &options, quiet, &cancel);
        let compared = source.map(compare).transpose()?;
        if self.json {
            let compared = compared.as_ref().map(verify::Report::new);
            let report = report::Report::new(&self.image, &summary, seconds, compared);
            output::json(&report)?;
        } else if let (Some(source), Some(compared)) = (source, &compared) {
            let name = self.image.display().to_string();
            verify::print(&name, source, compared, self.quiet)?;
        }
        Ok(compared.as_ref().map_or(Verdict::Good, verify::verdict))
    }
}

impl Args {
    /// Writes the descriptor of a disk, if one is wanted. A device whose path is not told goes by its tag; an archive has none.
    fn describe(&self, summary: &Summary) -> Result<(), Failure> {
        let part = |path, start, bytes| vmdk::Part { path, start, bytes };
        let image = part(self.image.clone(), self.offset, summary.image_bytes);
        let devices = summary.devices.iter().map(|device| {
            let tag = device.tag.split(|byte| *byte == 0).next();
            let tag = tag.filter(|tag| !tag.is_empty());
            let tag = tag.map(|tag| PathBuf::from(OsStr::from_bytes(tag)));
            let path = device.path.clone().or(tag);
            let path = path.or_else(|| self.sources.first().cloned());
            part(path.unwrap_or_default(), 0, device.bytes)
        });
        let parts: Vec<_> = [image].into_iter().chain(devices).collect();
        let descriptor = self.vmdk_desc.as_deref();
        descriptor.map_or(Ok(()), |path| vmdk::write(path, &summary.uuid, &parts))
    }
}

/// Shows progress, and warns.
struct Watch {
    bar: ProgressBar,
    shown: Cell<u64>,
}

impl Watch {
    fn new(quiet: bool) -> Self {
        Self {
            bar: output::progress(quiet, "packing"),
            shown: Cell::new(0),
        }
    }
}

impl Observer for Watch {
    fn scanned(&self, progress: &Progress) {
        // A build may be the second one.
        self.shown.set(0);
        self.bar.set_position(0);
        self.bar.set_length(progress.bytes);
    }

    fn progressed(&self, progress: &Progress) {
        self.bar
            .inc(progress.bytes_done - self.shown.replace(progress.bytes_done));
    }

    fn warn(&self, path: &Path, text: &str) {
        self.bar
            .suspend(|| output::complain("warning", format_args!("{}: {text}", path.display())));
    }
}
