//! `anteros log compact --dry-run`: what it would gain, by directory and by type.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_trace::profile::Profile;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::found::{Asked, Found, entries, metadata};
use crate::daemon::tally::{ClassTally, Tally};
use crate::failure::Failure;
use crate::output;

/// Bytes of content that are looked at, of all together: about ten seconds' work. Of more, every second window is, or every third,
/// and so on.
const SAMPLE_BYTES: u64 = 1 << 30;

/// Directories that have a line of their own.
const LINES_MAX: usize = 20;

/// Files that are told of in one line.
pub struct Part {
    name: String,
    found: Found,
}

/// Result of a dry run.
pub struct Estimate {
    parts: Vec<(String, ClassTally)>,
    all: Tally,
}

/// The parts that there is a line for: the largest ones first, and all others in the last one.
pub fn parts(asked: &Asked) -> Result<Vec<Part>, Failure> {
    let mut seen = HashSet::new();
    let mut parts = Vec::new();
    for path in &asked.paths {
        parts.extend(parts_of(asked, path, &mut seen)?);
    }
    parts.retain(|part| !part.found.inos.is_empty());
    parts.sort_by_key(|part| Reverse(part.found.bytes));
    if parts.len() > LINES_MAX {
        let others = parts.split_off(LINES_MAX - 1);
        let name = format!("{} others", output::count(others.len() as u64));
        let mut found = Found::default();
        others.into_iter().for_each(|part| found.append(part.found));
        parts.push(Part { name, found });
    }
    Ok(parts)
}

/// The directories of a directory, and the files in it together; or a file.
fn parts_of(asked: &Asked, path: &Path, seen: &mut HashSet<u64>) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    let mut files = Found::default();
    let inside: Vec<PathBuf> = match metadata(path)?.is_dir() {
        true => entries(path)?,
        false => vec![path.to_owned()],
    };
    for inside in inside {
        let found = asked.find(&inside, seen)?;
        match metadata(&inside)?.is_dir() {
            true => parts.push(Part {
                name: name(asked, &inside) + "/",
                found,
            }),
            false => files.append(found),
        }
    }
    parts.push(Part {
        name: name(asked, path),
        found: files,
    });
    Ok(parts)
}

/// A path as it is from the directory where the log is mounted.
fn name(asked: &Asked, path: &Path) -> String {
    let inside = path.strip_prefix(&asked.mount).unwrap_or(path);
    match inside.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => output::name(inside.as_os_str().as_bytes()),
    }
}

impl Estimate {
    /// Asks the daemon for one part after the other.
    pub fn of(
        asked: &Asked,
        parts: Vec<Part>,
        profile: Option<&Profile>,
        bar: &ProgressBar,
        asked_to_stop: &AtomicBool,
    ) -> Result<Self, Failure> {
        let total: u64 = parts.iter().map(|part| part.found.bytes).sum();
        let stride = total.div_ceil(SAMPLE_BYTES).max(1);
        bar.set_length(total);
        let mut estimate = Self {
            parts: Vec::new(),
            all: Tally::default(),
        };
        let mut passed = 0;
        for Part { name, found } in parts {
            if asked_to_stop.load(Ordering::Relaxed) {
                break;
            }
            asked.tell(&found, profile)?;
            let done = asked.go(Some(stride), asked_to_stop, |progress| {
                let of_part = Tally::of_numbers(&progress.counts).passed_bytes;
                bar.set_position(passed + of_part.min(found.bytes));
            })?;
            passed += found.bytes;
            let tally = Tally::of_numbers(&done.counts);
            estimate.all += &tally;
            estimate.parts.push((name, tally.sum()));
        }
        Ok(estimate)
    }

    /// Files and pieces that could not be read.
    pub fn unreadable(&self) -> u64 {
        self.all.unreadable
    }

    pub fn json(&self) -> Value {
        let sum = self.all.sum();
        let parts = self.parts.iter();
        let parts = parts.map(|(name, of)| with_name("path", name, of));
        let classes = self.all.classes();
        let classes = classes.map(|(class, of)| with_name("type", class.name(), of));
        json!({
            "directories": parts.collect::<Vec<_>>(),
            "types": classes.collect::<Vec<_>>(),
            "total": values(&sum),
            "due_bytes": sum.due_bytes,
            "tried_bytes": sum.tried_bytes,
            "unreadable": self.all.unreadable,
        })
    }

    pub fn table(&self) -> String {
        let sum = self.all.sum();
        let classes = self.all.classes();
        let classes = classes.map(|(class, of)| (class.name(), of));
        let names = self.parts.iter().map(|(name, _)| name.chars().count());
        let width = names.chain([10]).max().unwrap_or(10);
        let mut text = head("directory", width);
        for (name, of) in &self.parts {
            text += &line(name, width, of);
        }
        text += "\n";
        text += &head("type", width);
        for (name, of) in classes {
            text += &line(name, width, of);
        }
        text += &line("total", width, &sum);
        text += &format!(
            "\n{} of {} that compact would read were looked at; nothing was changed\n",
            output::bytes(sum.tried_bytes),
            output::bytes(sum.due_bytes)
        );
        text
    }
}

fn with_name(key: &str, name: &str, of: &ClassTally) -> Value {
    let mut values = values(of);
    values[key] = name.into();
    values
}

fn values(of: &ClassTally) -> Value {
    json!({
        "files": of.used.files,
        "bytes": of.used.bytes,
        "stored_bytes": of.used.stored_bytes,
        "stored_bytes_after": of.stored_bytes_after,
    })
}

fn head(title: &str, width: usize) -> String {
    let [content, now, then, gain] = ["content", "takes", "would take", "gain"];
    format!("{title:<width$} {content:>12} {now:>12} {then:>12} {gain:>12}\n")
}

fn line(name: &str, width: usize, of: &ClassTally) -> String {
    let (now, then) = (of.used.stored_bytes, of.stored_bytes_after);
    let [content, takes, would] = [of.used.bytes, now, then].map(output::bytes);
    let gain = match then > now {
        true => format!("-{}", output::bytes(then - now)),
        false => output::bytes(now - then),
    };
    format!("{name:<width$} {content:>12} {takes:>12} {would:>12} {gain:>12}\n")
}
