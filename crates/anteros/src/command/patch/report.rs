//! Words about a patch: for scripts, and for people.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::path::Path;

use anteros_build::{Changed, Observer, Progress, Summary};
use indicatif::ProgressBar;
use serde::Serialize;

use super::apply::Applied;
use super::compact::Compacted;
use super::export::Exported;
use crate::output;

/// Hears what changes, shows progress, and warns.
pub struct Watch {
    pub bar: ProgressBar,
    shown: Cell<u64>,
    /// Tells whether paths are noted.
    names: bool,
    changes: RefCell<Vec<(Vec<u8>, Changed)>>,
}

impl Watch {
    pub fn new(quiet: bool, names: bool) -> Self {
        Self {
            bar: output::progress(quiet, "patching"),
            shown: Cell::new(0),
            names,
            changes: RefCell::default(),
        }
    }
}

impl Observer for Watch {
    fn scanned(&self, progress: &Progress) {
        self.bar.set_length(progress.bytes);
    }

    fn progressed(&self, progress: &Progress) {
        self.bar
            .inc(progress.bytes_done - self.shown.replace(progress.bytes_done));
    }

    fn changed(&self, path: &[u8], how: Changed) {
        if self.names {
            self.changes.borrow_mut().push((path.to_vec(), how));
        }
    }

    fn warn(&self, path: &Path, text: &str) {
        self.bar
            .suspend(|| output::complain("warning", format_args!("{}: {text}", path.display())));
    }
}

/// The summary as scripts see it.
#[derive(Serialize)]
struct Report {
    image: String,
    changed: bool,
    written: bool,
    added: u64,
    replaced: u64,
    edited: u64,
    removed: u64,
    stay: u64,
    copied: u64,
    kept_bytes: u64,
    patch_bytes: u64,
    image_bytes: u64,
    warnings: u64,
    seconds: f64,
}

/// The image that is told of, and in which form.
pub struct Words<'a> {
    pub image: &'a Path,
    /// Tells whether it is a layer, which is new.
    pub is_layer: bool,
    pub dry_run: bool,
    pub quiet: bool,
    pub json: bool,
}

impl Words<'_> {
    /// Tells what was done.
    pub fn print(&self, watch: &Watch, summary: &Summary, seconds: f64) -> io::Result<()> {
        let patch = summary.patch.clone().unwrap_or_default();
        let written = !self.dry_run && !patch.is_empty();
        if self.json {
            return output::json(&Report {
                image: self.image.display().to_string(),
                changed: !patch.is_empty(),
                written,
                added: patch.added,
                replaced: patch.replaced,
                edited: patch.edited,
                removed: patch.removed,
                stay: patch.stay,
                copied: patch.copied,
                kept_bytes: patch.kept_bytes,
                patch_bytes: patch.bytes,
                image_bytes: summary.image_bytes,
                warnings: summary.warnings,
                seconds,
            });
        }
        if self.quiet {
            return Ok(());
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        let mut changes = watch.changes.borrow_mut();
        changes.sort_unstable();
        for (path, how) in changes.iter() {
            writeln!(out, "{} /{}", letter(*how), output::name(path))?;
        }
        let image = self.image.display();
        if patch.is_empty() {
            writeln!(out, "{image}: nothing to change")?;
            return out.flush();
        }
        let count = output::count;
        let counts = format!(
            "{} added, {} replaced, {} edited, {} removed",
            count(patch.added),
            count(patch.replaced),
            count(patch.edited),
            count(patch.removed)
        );
        match written {
            false => writeln!(out, "{image}: would change: {counts}")?,
            true if self.is_layer => writeln!(
                out,
                "{image}: {}, in {seconds:.2} s\n  {counts}",
                output::bytes(summary.image_bytes),
            )?,
            true => writeln!(
                out,
                "{image}: {} appended, {} in all, in {seconds:.2} s\n  {counts}",
                output::bytes(patch.bytes),
                output::bytes(summary.image_bytes),
            )?,
        }
        if written && patch.kept_bytes > 0 {
            let kept = output::bytes(patch.kept_bytes);
            writeln!(
                out,
                "  {kept} of files with other content stay where they are"
            )?;
        }
        if patch.copied > 0 && !self.is_layer {
            let copied = count(patch.copied);
            let text = "inodes are copied, for there is no free slot for the root near them";
            writeln!(out, "  {copied} {text}")?;
        }
        out.flush()
    }
}

/// The letter in front of a path.
const fn letter(how: Changed) -> char {
    match how {
        Changed::Added => 'A',
        Changed::Replaced => 'M',
        Changed::Edited => 'm',
        Changed::Removed => 'D',
    }
}

/// Tells that a former state is the current one again.
pub fn restored(words: &Words<'_>, number: u32, made: u32) -> io::Result<()> {
    let image = words.image.display().to_string();
    if words.json {
        return output::json(&Restored {
            image,
            restored: number,
            state: made,
        });
    }
    match words.quiet {
        true => Ok(()),
        false => output::text(&format!(
            "{image}: state {number} is back, as state {made}\n"
        )),
    }
}

/// A rollback as scripts see it.
#[derive(Serialize)]
struct Restored {
    image: String,
    restored: u32,
    state: u32,
}

/// Tells that the image was made anew.
pub fn compacted(words: &Words<'_>, made: &Compacted) -> io::Result<()> {
    let image = words.image.display().to_string();
    let &Compacted { before, after } = made;
    if words.json {
        return output::json(&CompactedView {
            image,
            before_bytes: before,
            image_bytes: after,
        });
    }
    let [before, after] = [before, after].map(output::bytes);
    match words.quiet {
        true => Ok(()),
        false => output::text(&format!(
            "{image}: {after} instead of {before}, without former states\n"
        )),
    }
}

/// An image that was made anew as scripts see it.
#[derive(Serialize)]
struct CompactedView {
    image: String,
    before_bytes: u64,
    image_bytes: u64,
}

/// Tells that a patch was written into a file.
pub fn exported(words: &Words<'_>, file: &Path, exported: &Exported) -> io::Result<()> {
    let (image, patch) = (words.image.display(), file.display());
    let &Exported {
        base,
        number,
        bytes,
    } = exported;
    if words.json {
        return output::json(&ExportedView {
            image: image.to_string(),
            patch: patch.to_string(),
            base,
            state: number,
            patch_bytes: bytes,
        });
    }
    let size = output::bytes(bytes);
    match words.quiet {
        true => Ok(()),
        false => output::text(&format!(
            "{patch}: {size}, from state {base} of {image} to state {number}\n"
        )),
    }
}

/// Tells that a patch was applied, or had been before.
pub fn applied(words: &Words<'_>, file: &Path, applied: &Applied) -> io::Result<()> {
    let (image, patch) = (words.image.display(), file.display());
    let number = applied.number;
    if words.json {
        return output::json(&AppliedView {
            image: image.to_string(),
            patch: patch.to_string(),
            state: number,
            applied: applied.bytes.is_some(),
            appended_bytes: applied.bytes.unwrap_or(0),
        });
    }
    if words.quiet {
        return Ok(());
    }
    output::text(&match applied.bytes {
        None => format!("{image}: has {patch} already, as state {number}\n"),
        Some(bytes) => {
            let bytes = output::bytes(bytes);
            format!("{image}: {bytes} of {patch} appended, as state {number}\n")
        }
    })
}

/// A patch in a file as scripts see it.
#[derive(Serialize)]
struct ExportedView {
    image: String,
    patch: String,
    base: u32,
    state: u32,
    patch_bytes: u64,
}

/// A patch that was applied as scripts see it.
#[derive(Serialize)]
struct AppliedView {
    image: String,
    patch: String,
    state: u32,
    applied: bool,
    appended_bytes: u64,
}
