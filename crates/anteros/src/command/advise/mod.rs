//! `anteros advise`

mod plot;
mod row;
mod sample;
mod settings;
mod trial;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anteros_build::Options;
use anteros_core::parse_size;
use indicatif::ProgressBar;
use serde::Serialize;

use self::row::{Row, mark};
use self::sample::{Sample, Scratch, Tree};
use self::settings::{LATEST, SETTINGS};
use self::trial::Trial;
use crate::args::{ReportArgs, WorkerArgs};
use crate::command::mkfs;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{drawing, interrupt, output};

/// Try settings of `mkfs` on a part of a directory, and tell which are worth while
///
/// A part of the files stands for all: images of it are built with each setting and read back, on this machine. Told are
/// the size and the time that mkfs would take for all of it, both estimates; how fast one core reads the image's files in
/// order by this program, without a mount; the memory that the kernel's decoders take; and the oldest Linux that mounts it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory
    source: PathBuf,

    /// The machine that is to read the image, as `mkfs --for` takes it; settings that ask for more are left out
    #[arg(long = "for", value_name = "KEY=VALUE[,KEY=VALUE]")]
    target: Option<mkfs::Target>,

    /// About how much of the files to try; a directory that is not larger is tried as a whole
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = sample_bytes)]
    sample: u64,

    /// Also draw sizes and speeds, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    workers: WorkerArgs,

    #[command(flatten)]
    report: ReportArgs,
}

/// Less than this says nothing.
const SAMPLE_BYTES_MIN: u64 = 1 << 20;

fn sample_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    match bytes >= SAMPLE_BYTES_MIN {
        true => Ok(bytes),
        false => Err("a sample has at least 1M".into()),
    }
}

/// A setting with the options of the builder, or why the machine does not read what they make.
type Setting = (&'static str, Result<Options, Failure>);

/// A setting that was not tried.
#[derive(Debug, Serialize)]
struct LeftOut {
    settings: &'static str,
    because: String,
}

/// All that there is to tell.
#[derive(Debug, Serialize)]
struct Advice {
    source: String,
    files: u64,
    bytes: u64,
    sampled_bytes: u64,
    /// Tells whether the sizes are estimates.
    is_estimate: bool,
    workers: usize,
    rows: Vec<Row>,
    left_out: Vec<LeftOut>,
    command: Option<String>,
}

impl Args {
    pub fn run(self) -> Outcome {
        let cancel = interrupt::flag()?;
        let tree = Tree::list(&self.source, &cancel)?;
        if tree.bytes == 0 {
            let message = format!("{}: no file in it has content", self.source.display());
            return Err(
                Failure::new(Kind::Usage, message).hint("name a directory with files to pack")
            );
        }
        let advice = self.try_all(self.settings(), &tree, &cancel)?;
        if let Some(path) = &self.plot {
            let title = format!("images of {}", self.source.display());
            drawing::write(path, &plot::svg(&advice.rows, &title))?;
        }
        match self.report.json {
            true => output::json(&advice)?,
            false => output::text(&advice.as_text())?,
        }
        Ok(Verdict::Good)
    }

    fn settings(&self) -> Vec<Setting> {
        let options = |settings| mkfs::Args::of(&self.source, settings, self.target).options(None);
        let knows_kernel = self.target.is_some_and(|target| target.knows_kernel());
        let latest = |settings| match knows_kernel {
            true => options(settings),
            false => Err(Failure::new(
                Kind::Usage,
                "for a kernel that is told: --for kernel=6.17",
            )),
        };
        let usual = SETTINGS
            .iter()
            .map(|&settings| (settings, options(settings)));
        let latest = LATEST.iter().map(|&settings| (settings, latest(settings)));
        usual.chain(latest).collect()
    }

    fn try_all(
        &self,
        settings: Vec<Setting>,
        tree: &Tree,
        cancel: &AtomicBool,
    ) -> Result<Advice, Failure> {
        let scratch = Scratch::new()?;
        // The sample itself, and an image that is no smaller.
        let copies = if tree.fits(self.sample) { 1 } else { 2 };
        scratch.check_room(copies * tree.bytes.min(self.sample))?;
        let bar = self.progress(settings.len());
        let sample = Sample::of(tree, self.sample, scratch.path(), cancel)?;
        let (mut rows, mut left_out) = (Vec::new(), Vec::new());
        for (settings, options) in settings {
            bar.set_message(settings);
            match options {
                Ok(options) => {
                    let options = Options {
                        workers: self.workers.count(),
                        ..options
                    };
                    let trial = Trial::of(settings, &options, &sample, scratch.path(), cancel)?;
                    rows.push(Row::of(trial, &sample, rows.len()));
                }
                Err(failure) => left_out.push(LeftOut {
                    settings,
                    because: failure.message().into(),
                }),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        mark(&mut rows);
        let best = rows.iter().find(|row| row.is_best);
        let command = best.map(|row| self.command(row));
        Ok(Advice {
            source: self.source.display().to_string(),
            files: tree.files,
            bytes: tree.bytes,
            sampled_bytes: sample.bytes,
            is_estimate: sample.is_part(),
            workers: self.workers.count(),
            rows,
            left_out,
            command,
        })
    }

    fn progress(&self, count: usize) -> ProgressBar {
        let bar = output::steps(self.report.json, count as u64);
        bar.set_message("copying samples");
        bar
    }

    /// The command that builds an image with the settings of a row.
    fn command(&self, row: &Row) -> String {
        let target = self.target;
        let target = target.map_or(String::new(), |target| format!(" --for {target}"));
        let source = quoted(&self.source);
        format!("anteros mkfs IMAGE {source} {}{target}", row.settings)
    }
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

impl Advice {
    fn as_text(&self) -> String {
        let mut text = format!(
            "{}: {} files, {}; {}, on {} cores\n\n",
            self.source,
            output::count(self.files),
            output::bytes(self.bytes),
            match self.is_estimate {
                true => format!(
                    "sizes and times are estimates from {} of it",
                    output::bytes(self.sampled_bytes)
                ),
                false => "all of it was tried".into(),
            },
            self.workers,
        );
        self.table(&mut text);
        let _ = writeln!(
            text,
            "\n* none is both smaller and quicker to read; > the smallest that is read at least a quarter as fast as\n\
             the fastest. Read in order by one core, without a mount; memory of the kernel's decoders, for each CPU.\n"
        );
        text += &plot::text(&self.rows);
        for LeftOut { settings, because } in &self.left_out {
            let _ = writeln!(text, "not tried: {settings} ({because})");
        }
        if let Some(command) = &self.command {
            let _ = writeln!(text, "\n{command}");
        }
        text
    }

    fn table(&self, text: &mut String) {
        let width = self.rows.iter().map(|row| row.settings.len()).max();
        let width = width.unwrap_or(0).max("settings".len());
        let _ = writeln!(
            text,
            "     {:<width$} {:>11} {:>6} {:>9} {:>11} {:>11}  Linux",
            "settings", "size", "%", "build", "read", "memory"
        );
        for row in &self.rows {
            let mark = match (row.is_best, row.is_front) {
                (true, _) => '>',
                (_, true) => '*',
                _ => ' ',
            };
            let _ = writeln!(
                text,
                "{mark} {}  {:<width$} {:>11} {:>6.1} {:>7.1} s {:>6.0} MB/s {:>11}  {}",
                row.letter,
                row.settings,
                output::bytes(row.bytes),
                100.0 * row.bytes as f64 / self.bytes as f64,
                row.build_seconds,
                row.read_rate / 1e6,
                output::bytes(row.linux.decoder_bytes()),
                row.linux.oldest(),
            );
        }
    }
}

#[cfg(test)]
mod tests;
