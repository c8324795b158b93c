//! `anteros trace`

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anteros_trace::{
    Analysis, CLASS_NAMES, Ending, Error, FileReport, Flow, Header, Latencies, ProcessReport,
    Report, Syncs, Tally, Usage, figure, read, top,
};
use serde_json::{Value, json};

use super::stat::attribute;
use crate::args::ReportArgs;
use crate::daemon::recording::ATTRIBUTE;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{drawing, output};

/// Tell what a record of reads and writes says: their sizes, how many are in order, how many are buffered
///
/// `anteros passthru --trace FILE` and `anteros mount --fuse --trace FILE` record.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A record, or where something is mounted that is being recorded
    record: PathBuf,

    #[command(flatten)]
    report: ReportArgs,

    /// Also draw it, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Number of files to name; the others are told in one sum
    #[arg(long, value_name = "COUNT", default_value = "10")]
    top: usize,

    /// Tell it for each process, too
    #[arg(long)]
    processes: bool,
}

/// A record and what it says.
struct Told {
    path: PathBuf,
    header: Header,
    ending: Ending,
    /// Tells whether it is still being written.
    is_live: bool,
    report: Report,
}

impl Args {
    pub fn run(self) -> Outcome {
        let told = self.read()?;
        if let Some(path) = &self.plot {
            let title = format!("reads and writes in {}", told.name());
            drawing::write(path, &figure(&told.report, &title))?;
        }
        match self.report.json {
            true => output::json(&self.as_json(&told))?,
            false => output::text(&self.as_text(&told))?,
        }
        Ok(told.verdict())
    }

    fn read(&self) -> Result<Told, Failure> {
        let failure = |path: &Path, error| Failure::system(path, &error);
        let given = &self.record;
        let metadata = std::fs::metadata(given).map_err(|e| failure(given, e))?;
        let is_live = metadata.is_dir();
        let path = match is_live {
            true => PathBuf::from(
                attribute(given, ATTRIBUTE)
                    .map_err(|e| failure(given, e))?
                    .ok_or_else(|| not_recorded(given))?,
            ),
            false => given.clone(),
        };
        if !is_live && !metadata.is_file() {
            let message = format!("{}: neither a record nor a mount", given.display());
            return Err(Failure::new(Kind::System, message));
        }
        let file = File::open(&path).map_err(|e| failure(&path, e))?;
        let mut analysis = Analysis::default();
        let (header, ending) = read(BufReader::new(file), &mut |item| analysis.take(item))
            .map_err(|error| record_failure(&path, &error))?;
        Ok(Told {
            header,
            ending,
            is_live,
            report: analysis.report(),
            path,
        })
    }

    fn as_json(&self, told: &Told) -> Value {
        let report = &told.report;
        let (files, others) = top(&report.files, self.top, |file| &file.usage);
        let mut value = json!({
            "record": told.path.to_string_lossy(),
            "started_unix_seconds": told.header.started.as_secs_f64(),
            "seconds": report.lasted.as_secs_f64(),
            "is_closed": told.ending == Ending::Closed,
            "is_whole": told.is_whole(),
            "accesses": report.accesses,
            "dropped": report.dropped,
            "reads": flow_json(&report.reads),
            "writes": flow_json(&report.writes),
            "fsyncs": {
                "count": report.fsyncs.count,
                "failed": report.fsyncs.failed,
                "latency": latency_json(&report.fsyncs.latencies),
            },
            "files": files.iter().map(file_json).collect::<Vec<_>>(),
            "other_files": {
                "count": report.files.len() - files.len(),
                "usage": usage_json(&others),
            },
        });
        if self.processes {
            let processes = report.processes.iter().map(process_json);
            value["processes"] = processes.collect::<Vec<_>>().into();
        }
        value
    }

    fn as_text(&self, told: &Told) -> String {
        let report = &told.report;
        let mut lines = told.lines();
        lines.push(flow_line("reads", &report.reads));
        lines.push(flow_line("writes", &report.writes));
        lines.push(sync_line(&report.fsyncs));
        lines.push(String::new());
        lines.extend(size_lines(report));
        let (files, others) = top(&report.files, self.top, |file| &file.usage);
        let mut rows: Vec<_> = files
            .iter()
            .map(|file| (file_name(file), file.usage))
            .collect();
        let rest = report.files.len() - files.len();
        if rest > 0 {
            rows.push((format!("{} others", output::count(rest as u64)), others));
        }
        lines.extend(usage_lines("file", &rows));
        if self.processes {
            let processes = report.processes.iter();
            let rows: Vec<_> = processes
                .map(|process| (process_name(process), process.usage))
                .collect();
            lines.extend(usage_lines("process", &rows));
        }
        lines.join("\n") + "\n"
    }
}

fn not_recorded(directory: &Path) -> Failure {
    let message = format!("{}: nothing is recorded there", directory.display());
    let hint =
        "`anteros passthru --trace FILE` records; name the record, or the directory it mounts on";
    Failure::new(Kind::System, message).hint(hint)
}

fn record_failure(path: &Path, error: &Error) -> Failure {
    let kind = match error {
        Error::Io(_) => Kind::System,
        Error::Corrupt { .. } => Kind::Corrupt,
    };
    Failure::new(kind, format_args!("{}: {error}", path.display()))
}

impl Told {
    fn name(&self) -> String {
        output::name(self.path.as_os_str().as_encoded_bytes())
    }

    /// Returns whether nothing is missing at its end. Of a record that is being written, the last block may be.
    fn is_whole(&self) -> bool {
        self.is_live || !matches!(self.ending, Ending::CutShort { .. })
    }

    /// Complains if something is missing.
    fn verdict(&self) -> Verdict {
        match self.ending {
            Ending::CutShort { at, wanted, found } if !self.is_whole() => {
                let text = format!(
                    "{}: cut short: the block at byte {at} has {wanted} bytes, of which {found} are there; \
                     what comes before is told",
                    self.name()
                );
                output::complain("warning", text);
                Verdict::Partial
            }
            _ => Verdict::Good,
        }
    }

    /// Returns what is to be known of the record itself.
    fn lines(&self) -> Vec<String> {
        let report = &self.report;
        let nanos = i128::try_from(self.header.started.as_nanos()).unwrap_or(i128::MAX);
        let started = jiff::Timestamp::from_nanosecond(nanos)
            .map_or_else(|_| "an unknown time".into(), |time| format!("{time:.0}"));
        let state = match (self.ending, self.is_live) {
            (_, true) => ", still being written",
            (Ending::Open, _) => ", not closed",
            _ => "",
        };
        let mut lines = vec![format!(
            "record     {}: {} accesses in {:.2} s from {started} on{state}",
            self.name(),
            output::count(report.accesses),
            report.lasted.as_secs_f64(),
        )];
        if report.dropped > 0 {
            lines.push(format!(
                "           {} more were not recorded, for lack of time or space",
                output::count(report.dropped)
            ));
        }
        lines
    }
}

/// A share in percent.
fn percent(part: u64, all: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / all.max(1) as f64)
}

fn flow_line(name: &str, flow: &Flow) -> String {
    let Tally {
        count,
        bytes,
        sequential,
        ..
    } = flow.tally;
    let failed = match flow.failed {
        0 => String::new(),
        failed => format!("; {} more failed", output::count(failed)),
    };
    if count == 0 {
        return format!("{name:<10} none{failed}");
    }
    format!(
        "{name:<10} {}, {}: {} sequential, {} buffered{}{failed}",
        output::count(count),
        output::bytes(bytes),
        percent(sequential, count),
        percent(flow.tally.buffered(), count),
        latency(&flow.latencies),
    )
}

fn sync_line(fsyncs: &Syncs) -> String {
    let failed = match fsyncs.failed {
        0 => String::new(),
        failed => format!("; {} more failed", output::count(failed)),
    };
    match fsyncs.count {
        0 => format!("{:<10} none{failed}", "fsyncs"),
        count => format!(
            "{:<10} {}{}{failed}",
            "fsyncs",
            output::count(count),
            latency(&fsyncs.latencies)
        ),
    }
}

fn latency(latencies: &Latencies) -> String {
    let within = |part| {
        latencies.within(part).map_or_else(
            || "more than 15 min".into(),
            |limit| format!("{} µs", output::count(limit.as_micros() as u64)),
        )
    };
    format!(
        "; half answered within {}, 99 % within {}",
        within(0.5),
        within(0.99)
    )
}

fn size_lines(report: &Report) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<10} {:>12} {:>9} {:>9} {:>12} {:>9} {:>9}",
        "size", "reads", "share", "of bytes", "writes", "share", "of bytes"
    )];
    for (index, name) in CLASS_NAMES.iter().enumerate() {
        let mut line = match name.strip_prefix('>') {
            Some(name) => format!("{:<10}", format!("over {name}")),
            None => format!("{:<10}", format!("up to {name}")),
        };
        for flow in [&report.reads, &report.writes] {
            let class = flow.sizes[index];
            line += &format!(
                " {:>12} {:>9} {:>9}",
                output::count(class.count),
                percent(class.count, flow.tally.count),
                percent(class.bytes, flow.tally.bytes),
            );
        }
        lines.push(line);
    }
    lines
}

fn usage_lines(what: &str, rows: &[(String, Usage)]) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let head = [
        "reads", "bytes", "in order", "writes", "bytes", "in order", "buffered", "fsyncs",
    ];
    let line = |cells: [String; 8], name: &str| {
        let cells = cells.map(|cell| format!("{cell:>10}"));
        format!("{}  {name}", cells.join(" "))
    };
    let mut lines = vec![String::new(), line(head.map(str::to_owned), what)];
    lines.extend(rows.iter().map(|(name, usage)| {
        let Usage {
            reads,
            writes,
            fsyncs,
        } = usage;
        let cells = [
            output::count(reads.count),
            output::bytes(reads.bytes),
            share(reads.sequential, reads.count),
            output::count(writes.count),
            output::bytes(writes.bytes),
            share(writes.sequential, writes.count),
            share(writes.buffered(), writes.count),
            output::count(*fsyncs),
        ];
        line(cells, name)
    }));
    lines
}

/// A share in percent; nothing of nothing.
fn share(part: u64, all: u64) -> String {
    match all {
        0 => "-".into(),
        _ => percent(part, all),
    }
}

fn file_name(file: &FileReport) -> String {
    match (file.ino, file.path.is_empty()) {
        (Some(ino), true) => format!("inode {ino}"),
        (None, _) => "more than can be told apart".into(),
        _ => output::name(&file.path),
    }
}

fn process_name(process: &ProcessReport) -> String {
    match process.pid {
        Some(0) => "the kernel".into(),
        Some(pid) => format!("{pid} {}", output::name(&process.name))
            .trim_end()
            .into(),
        None => "more than can be told apart".into(),
    }
}

fn tally_json(tally: &Tally) -> Value {
    json!({
        "count": tally.count,
        "bytes": tally.bytes,
        "sequential": tally.sequential,
        "buffered": tally.buffered(),
        "synchronous": tally.synchronous,
    })
}

fn flow_json(flow: &Flow) -> Value {
    let mut value = tally_json(&flow.tally);
    value["failed"] = flow.failed.into();
    let classes = CLASS_NAMES
        .iter()
        .zip(&flow.sizes)
        .map(|(name, class)| json!({ "class": name, "count": class.count, "bytes": class.bytes }));
    value["sizes"] = classes.collect::<Vec<_>>().into();
    value["latency"] = latency_json(&flow.latencies);
    value
}

fn latency_json(latencies: &Latencies) -> Value {
    let within = |part| latencies.within(part).as_ref().map(Duration::as_secs_f64);
    json!({ "p50_seconds": within(0.5), "p90_seconds": within(0.9), "p99_seconds": within(0.99) })
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "reads": tally_json(&usage.reads),
        "writes": tally_json(&usage.writes),
        "fsyncs": usage.fsyncs,
    })
}

fn file_json(file: &FileReport) -> Value {
    json!({
        "path": (!file.path.is_empty()).then(|| output::name(&file.path)),
        "inode": file.ino,
        "usage": usage_json(&file.usage),
    })
}

fn process_json(process: &ProcessReport) -> Value {
    json!({
        "pid": process.pid,
        "name": (!process.name.is_empty()).then(|| output::name(&process.name)),
        "usage": usage_json(&process.usage),
    })
}
