//! `anteros check`

mod verity;

use std::io::Write;

use anteros_image::{
    CheckObserver, CheckOptions, CheckProgress, CheckReport, Error, Finding, FindingKind,
    OpenOptions, Severity, check,
};
use indicatif::ProgressBar;
use serde::Serialize;

use self::verity::Blocks;
use crate::args::{ImageArgs, WorkerArgs};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output};

/// Check everything in an image and list every fault
///
/// Exits with 0 if there is none, 1 if the image is broken, 4 if parts of it are unknown to this
/// version and 5 if parts of it could not be read from the medium.
#[derive(Debug, clap::Args)]
#[command(mut_arg("no_checksum", |arg| arg.hide(true)))]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Do not read and decode the data of files
    #[arg(long)]
    no_data: bool,

    /// Compare each file with the digest that the image has of it (`mkfs --xattr-inode-digest`); an image without digests is a
    /// fault then
    #[arg(long, conflicts_with = "no_data")]
    digests: bool,

    #[command(flatten)]
    workers: WorkerArgs,

    /// Print nothing but warnings and faults
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    /// Print the report as a JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Arguments to check an image, and its data if so wished, and to say nothing if all is well.
    pub fn quiet(image: ImageArgs, reads_data: bool) -> Self {
        Self {
            image,
            no_data: !reads_data,
            digests: false,
            workers: WorkerArgs::default(),
            quiet: true,
            json: false,
        }
    }

    /// Sets whether digests are compared as well.
    pub fn with_digests(self, digests: bool) -> Self {
        Self { digests, ..self }
    }

    pub fn run(self) -> Outcome {
        let cancel = interrupt::flag()?;
        let blocks = Blocks::check(&self.image, self.workers.count(), &cancel)?;
        interrupt::check(&cancel)?;
        if let Some(blocks) = blocks.as_ref().filter(|_| !self.json) {
            blocks.print(&self.image.image.display().to_string(), self.quiet)?;
        }
        // Half of it is for notes.
        let memory = usize::try_from(self.image.memory()).unwrap_or(usize::MAX);
        // A wrong checksum is one finding among others.
        let image = self.image.open_with(OpenOptions {
            verify_checksum: false,
            ..self.image.options(self.image.memory() / 2)
        })?;
        let options = CheckOptions {
            workers: self.workers.count(),
            data: !self.no_data,
            digests: self.digests,
            memory_bytes: memory / 2,
            ..CheckOptions::default()
        };
        let bar = output::progress(self.quiet || self.json, "checking");
        let report = check(&image, &options, &Watch(bar.clone()), &cancel);
        bar.finish_and_clear();
        if self.json {
            output::json(&Report::new(&report, blocks.as_ref()))?;
        } else {
            print(&image.name(), &report, self.quiet)?;
        }
        interrupt::check(&cancel)?;
        match blocks.is_none_or(|blocks| blocks.is_clean()) {
            true => verdict(&image.name(), &report),
            false => Ok(Verdict::Bad),
        }
    }
}

struct Watch(ProgressBar);

impl CheckObserver for Watch {
    fn progress(&self, progress: CheckProgress) {
        self.0
            .set_length(progress.data_bytes_total.max(progress.data_bytes));
        self.0.set_position(progress.data_bytes);
    }
}

/// The report as scripts see it.
#[derive(Serialize)]
struct Report {
    clean: bool,
    findings: Vec<View>,
    findings_omitted: u64,
    inodes: u64,
    extents: u64,
    data_bytes: u64,
    unreachable_bytes: u64,
    /// Blocks beside the hash tree, if a root hash was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    verity: Option<verity::View>,
}

#[derive(Serialize)]
struct View {
    severity: &'static str,
    place: String,
    path: Option<String>,
    text: String,
}

impl Report {
    fn new(report: &CheckReport, blocks: Option<&Blocks>) -> Self {
        let view = |finding: &Finding| View {
            severity: word(finding.severity()),
            place: finding.place.to_string(),
            path: finding.path.as_deref().map(output::name),
            text: finding.kind.to_string(),
        };
        Self {
            clean: report.is_clean() && blocks.is_none_or(Blocks::is_clean),
            findings: report.findings.iter().map(view).collect(),
            findings_omitted: report.findings_omitted,
            inodes: report.inodes,
            extents: report.extents,
            data_bytes: report.data_bytes,
            unreachable_bytes: report.unreachable_bytes,
            verity: blocks.map(Blocks::view),
        }
    }
}

const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Fault => "fault",
    }
}

fn print(name: &str, report: &CheckReport, quiet: bool) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let shown = |finding: &&Finding| !quiet || finding.severity() > Severity::Note;
    for finding in report.findings.iter().filter(shown) {
        writeln!(out, "{}: {name}: {finding}", word(finding.severity()))?;
    }
    if report.findings_omitted > 0 {
        writeln!(out, "… and {} more", output::count(report.findings_omitted))?;
    }
    if !quiet {
        let verdict = if report.is_clean() {
            "clean"
        } else {
            "NOT clean"
        };
        let (inodes, extents) = (output::count(report.inodes), output::count(report.extents));
        let bytes = output::bytes(report.data_bytes);
        writeln!(
            out,
            "{name}: {verdict}; {inodes} inodes, {extents} extents, {bytes} of data read"
        )?;
    }
    out.flush()
}

/// Broken weighs more than unknown, unknown more than unreadable.
fn verdict(name: &str, report: &CheckReport) -> Outcome {
    let faults = || {
        report
            .findings
            .iter()
            .filter(|f| f.severity() == Severity::Fault)
    };
    let is_unknown = |f: &Finding| matches!(f.kind, FindingKind::Error(Error::Unsupported { .. }));
    let is_unread = |f: &Finding| matches!(f.kind, FindingKind::Error(Error::Io { .. }));
    if report.worst != Some(Severity::Fault) {
        return Ok(Verdict::Good);
    }
    if report.findings_omitted > 0 || faults().any(|f| !is_unknown(f) && !is_unread(f)) {
        return Ok(Verdict::Bad);
    }
    match faults().any(is_unknown) {
        true => Err(Failure::new(
            Kind::Unsupported,
            format_args!("{name}: parts of it are unknown to this version"),
        )),
        false => Err(Failure::new(
            Kind::System,
            format_args!("{name}: parts of it could not be read"),
        )),
    }
}
