//! Portrait of a trace.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use anteros_codec::{Effort, Lz4Encoder};
use anteros_tests::recorded::{Action, Content, Record, Trace};

use crate::bench::log::traces::{Filter, Recorded};
use crate::outcome::Outcome;

const PAGE: usize = 4096;
/// States what the paper calls small, in pages.
const SMALL_PAGES: usize = 4;

/// The most pages that are compressed together.
const WINDOW_PAGES: usize = 32;

/// Bytes before and after compression.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Squeezed {
    pub(super) before: u64,
    /// Each page for itself.
    pub(super) after: u64,
    /// Pages of a batch that follow each other together, where that takes less.
    pub(super) together: u64,
}

impl Squeezed {
    fn add(&mut self, encoder: &mut Lz4Encoder, content: &[u8], run: Range<usize>) {
        let pages = run.clone();
        let alone: usize = pages
            .map(|page| squeezed(encoder, content, page..page + 1))
            .sum();
        self.before += (run.len() * PAGE) as u64;
        self.after += alone as u64;
        self.together += squeezed(encoder, content, run).min(alone) as u64;
    }
}

/// Holds what SQLite did in a trace, and what part of it all that was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Portrait {
    pub(super) writes: u64,
    pub(super) bytes: u64,
    /// Those that do not begin where the one before them in the same file ended.
    pub(super) random_writes: u64,
    pub(super) file_syncs: u64,
    pub(super) directory_syncs: u64,
    /// Pages of a file that changed between two of its syncs.
    pub(super) batches: u64,
    pub(super) batch_bytes: u64,
    pub(super) small_batches: u64,
    pub(super) databases: Squeezed,
    pub(super) journals: Squeezed,
    /// Holds what everybody wrote.
    pub(super) all_bytes: u64,
}

impl Portrait {
    /// Looks at all of a trace.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn of(recorded: &Recorded) -> Outcome<Self> {
        Self::of_trace(recorded.open()?, Filter::sqlite(recorded.open()?)?)
    }

    fn of_trace(trace: Trace, mut filter: Filter) -> Outcome<Self> {
        let mut painter = Painter::new()?;
        for record in trace {
            let record = record?;
            if let Action::Write { data, .. } = &record.action {
                painter.portrait.all_bytes += data.len() as u64;
            }
            if filter.passes(&record) {
                painter.look(record)?;
            }
        }
        painter.finish();
        Ok(painter.portrait)
    }
}

/// Someone who looks at a trace, call by call.
struct Painter {
    portrait: Portrait,
    content: Content,
    files: HashMap<String, Changed>,
    encoder: Lz4Encoder,
}

/// Holds what is to be known of a file.
#[derive(Default)]
struct Changed {
    /// Tells where the last write ended.
    end: u64,
    pages: BTreeSet<usize>,
}

impl Painter {
    fn new() -> Outcome<Self> {
        Ok(Self {
            portrait: Portrait::default(),
            content: Content::default(),
            files: HashMap::new(),
            encoder: Lz4Encoder::new(Effort::Fast)?.without_probe(),
        })
    }

    fn look(&mut self, record: Record) -> Outcome {
        let path = record.path.clone();
        match &record.action {
            Action::Write { offset, data } => self.write(&path, *offset, data.len()),
            Action::Fsync | Action::Fdatasync if self.files.contains_key(&path) => {
                self.portrait.file_syncs += 1;
                self.flush(&path);
            }
            Action::Fsync | Action::Fdatasync | Action::SyncDirectory => {
                self.portrait.directory_syncs += 1;
            }
            Action::Truncate { size } => self.truncate(&path, *size),
            Action::Unlink => drop(self.files.remove(&path)),
            Action::Rename { from } => {
                let file = self.files.remove(from);
                self.files.extend(file.map(|file| (path, file)));
            }
            Action::Create | Action::Allocate { .. } => {}
        }
        Ok(self.content.apply(record)?)
    }

    fn write(&mut self, path: &str, offset: u64, len: usize) {
        let file = self.files.entry(path.to_owned()).or_default();
        let end = offset + len as u64;
        self.portrait.writes += 1;
        self.portrait.bytes += len as u64;
        self.portrait.random_writes += u64::from(offset != file.end);
        file.end = end;
        file.pages
            .extend(offset as usize / PAGE..(end as usize).div_ceil(PAGE));
    }

    /// Drops what is cut off, which need not be written any more.
    fn truncate(&mut self, path: &str, size: u64) {
        if let Some(file) = self.files.get_mut(path) {
            drop(file.pages.split_off(&(size as usize).div_ceil(PAGE)));
        }
    }

    /// The pages that changed go to the device.
    fn flush(&mut self, path: &str) {
        let Some(file) = self.files.get_mut(path) else {
            return;
        };
        let pages = std::mem::take(&mut file.pages);
        if pages.is_empty() {
            return;
        }
        self.portrait.batches += 1;
        self.portrait.batch_bytes += (pages.len() * PAGE) as u64;
        self.portrait.small_batches += u64::from(pages.len() <= SMALL_PAGES);
        let content = self.content.0.get(path).map_or(&[][..], Vec::as_slice);
        let is_journal = path.ends_with("-journal") || path.ends_with("-wal");
        let sum = match is_journal {
            true => &mut self.portrait.journals,
            false => &mut self.portrait.databases,
        };
        for run in runs(pages) {
            sum.add(&mut self.encoder, content, run);
        }
    }

    /// Writes what nobody synced, which happens some day.
    fn finish(&mut self) {
        let paths: Vec<String> = self.files.keys().cloned().collect();
        for path in paths {
            self.flush(&path);
        }
    }
}

/// Pages that follow each other, so many at once at most.
fn runs(pages: BTreeSet<usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(run) if run.end == page && run.len() < WINDOW_PAGES => run.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

/// The bytes that pages of a file take after compression; those that do not become smaller stay as they are.
fn squeezed(encoder: &mut Lz4Encoder, content: &[u8], pages: Range<usize>) -> usize {
    let mut whole = vec![0; pages.len() * PAGE];
    let start = content.len().min(pages.start * PAGE);
    let there = &content[start..content.len().min(pages.end * PAGE)];
    whole[..there.len()].copy_from_slice(there);
    let mut out = vec![0; whole.len()];
    match encoder.encode(&whole, &mut out) {
        Some(encoded) if encoded.consumed == whole.len() => encoded.written,
        _ => whole.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &str, action: Action) -> Record {
        Record {
            micros: 0,
            path: path.into(),
            action,
        }
    }

    fn write(path: &str, offset: u64, len: usize) -> Record {
        let data = vec![7; len];
        record(path, Action::Write { offset, data })
    }

    #[test]
    fn pages_that_follow_each_other_are_compressed_together() {
        let pages = (3..5).chain(7..47).collect();
        assert_eq!(runs(pages), [3..5, 7..39, 39..47]);
        let mut encoder = Lz4Encoder::new(Effort::Fast).unwrap();
        let mut sum = Squeezed::default();
        sum.add(&mut encoder, &vec![7; 9 * PAGE], 7..10);
        assert_eq!(sum.before, 3 * 4096);
        assert!(sum.together < sum.after && sum.after < 200, "{sum:?}");
    }

    #[test]
    fn a_batch_is_what_changed_between_two_syncs() {
        let mut painter = Painter::new().unwrap();
        for one in [
            write("d0/db-journal", 0, 512),
            write("d0/db-journal", 512, PAGE),
            record("d0/db-journal", Action::Fsync),
            record("d0", Action::SyncDirectory),
            write("d0/db", 8192, PAGE),
            write("d0/db", 0, 5 * PAGE),
            record("d0/db", Action::Fdatasync),
            record("d0/db", Action::Fdatasync),
            write("d0/db", 10 * 4096, PAGE),
            record("d0/db", Action::Truncate { size: 8192 }),
            write("d0/gone", 0, 100),
            record("d0/gone", Action::Unlink),
        ] {
            painter.look(one).unwrap();
        }
        painter.finish();
        let found = painter.portrait;
        assert_eq!((found.writes, found.random_writes), (6, 3));
        assert_eq!((found.batches, found.small_batches), (2, 1));
        assert_eq!(found.batch_bytes, 7 * 4096);
        assert_eq!((found.file_syncs, found.directory_syncs), (3, 1));
        assert_eq!(found.journals.before, 2 * 4096);
        assert!(found.databases.after < found.databases.before / 50);
    }
}
