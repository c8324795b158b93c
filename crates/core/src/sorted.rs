//! Sorting more records than memory holds.
//!
//! Records are gathered in memory. When it is full they are sorted and written to a temporary file as a run, and at the
//! end all runs are merged into one. The file has no name, lies in the directory for temporary files (`TMPDIR`), and
//! goes with its last user, however the process ends.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// A record of fixed size.
pub trait Record: Ord + Sized {
    /// Its size in the file.
    const BYTES: usize;

    /// Writes the record; `out` has [`Record::BYTES`].
    fn store(&self, out: &mut [u8]);

    /// Reads what [`Record::store`] wrote.
    fn load(bytes: &[u8]) -> Self;

    /// Takes in a record that comes right behind this one in the order; `true` if that one is not needed any more.
    fn absorb(&mut self, _next: &Self) -> bool {
        false
    }
}

/// Runs of one level. So many are merged into one of the next level, so each record is merged a few times at most.
const RUNS_MAX: usize = 64;
/// The least memory for records, so that runs are worth their seeks.
const MEMORY_MIN: usize = 64 << 10;
/// The least bytes of a run that are read or written at a time.
const STEP_BYTES: usize = 4 << 10;

/// Gathers records in any order.
#[derive(Debug)]
pub struct Sorter<R> {
    memory: usize,
    records: Vec<R>,
    file: Option<File>,
    end: u64,
    /// The runs by level, each a range of the file.
    levels: Vec<Vec<Range<u64>>>,
}

/// Records in their order, to be read as often as wanted.
#[derive(Debug)]
pub struct Sorted<R> {
    memory: usize,
    /// All of them, unless there is a file.
    records: Vec<R>,
    file: Option<(File, Range<u64>)>,
}

impl<R: Record> Sorter<R> {
    /// An empty one that keeps about so many bytes of records in memory.
    pub fn new(memory: usize) -> Self {
        let memory = memory.max(MEMORY_MIN);
        Self {
            memory,
            records: Vec::new(),
            file: None,
            end: 0,
            levels: Vec::new(),
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn push(&mut self, record: R) -> io::Result<()> {
        if self.records.len() >= self.records_max() {
            self.make_room()?;
        }
        self.records.push(record);
        Ok(())
    }

    /// Sorts everything.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn finish(mut self) -> io::Result<Sorted<R>> {
        self.sort();
        let memory = self.memory;
        if self.file.is_none() {
            return Ok(Sorted {
                memory,
                records: self.records,
                file: None,
            });
        }
        self.write_run()?;
        self.records = Vec::new();
        let runs: Vec<_> = self.levels.drain(..).flatten().collect();
        let mut groups = runs;
        while groups.len() > 1 {
            let count = groups.len().min(RUNS_MAX);
            let merged = self.merge(&groups[..count])?;
            groups.splice(..count, []);
            groups.push(merged);
        }
        let whole = groups.pop().unwrap_or(0..0);
        Ok(Sorted {
            memory,
            records: Vec::new(),
            file: self.file.map(|file| (file, whole)),
        })
    }

    fn records_max(&self) -> usize {
        (self.memory / size_of::<R>().max(1)).max(1)
    }

    /// Sorts the records in memory and lets go of those that others absorb.
    fn sort(&mut self) {
        self.records.sort_unstable();
        self.records.dedup_by(|next, before| before.absorb(next));
    }

    /// Makes room for records: by absorbing, and if that does not free half of it, by writing a run.
    fn make_room(&mut self) -> io::Result<()> {
        self.sort();
        match self.records.len() > self.records_max() / 2 {
            true => self.write_run(),
            false => Ok(()),
        }
    }

    fn write_run(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.records);
        let mut run = self.begin_run(self.step(1))?;
        records.iter().try_for_each(|record| run.push(record))?;
        let written = run.finish()?;
        self.records = records;
        self.records.clear();
        self.end = written.end;
        self.keep(0, written)
    }

    /// Keeps a run, and merges those of its level when there are enough.
    fn keep(&mut self, level: usize, run: Range<u64>) -> io::Result<()> {
        if self.levels.len() <= level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(run);
        if self.levels[level].len() < RUNS_MAX {
            return Ok(());
        }
        let runs = std::mem::take(&mut self.levels[level]);
        let merged = self.merge(&runs)?;
        self.keep(level + 1, merged)
    }

    /// Merges runs into one behind all others, and gives their place in the file back.
    fn merge(&mut self, runs: &[Range<u64>]) -> io::Result<Range<u64>> {
        let step = self.step(runs.len() + 1);
        let mut out = self.begin_run(step)?;
        let file = out.file;
        let mut heads = runs
            .iter()
            .map(|run| Reader::<R>::new(file, run.clone(), step).peek())
            .collect::<io::Result<Vec<_>>>()?;
        let mut last: Option<R> = None;
        while let Some(next) = take_least(&mut heads)? {
            if last.as_mut().is_some_and(|last| last.absorb(&next)) {
                continue;
            }
            if let Some(before) = last.replace(next) {
                out.push(&before)?;
            }
        }
        last.iter().try_for_each(|record| out.push(record))?;
        let merged = out.finish()?;
        for run in runs {
            give_back(file, run);
        }
        self.end = merged.end;
        Ok(merged)
    }

    /// The bytes to read or write at a time where so many runs are open.
    fn step(&self, runs: usize) -> usize {
        (self.memory / runs)
            .clamp(STEP_BYTES, 1 << 20)
            .max(R::BYTES)
    }

    fn begin_run(&mut self, step: usize) -> io::Result<Writer<'_>> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        let file = self.file.as_ref().expect("it was just made");
        Ok(Writer {
            file,
            range: self.end..self.end,
            buf: Vec::with_capacity(step),
            step,
        })
    }
}

/// Gives the place of a run back to the file system, if that can do so.
fn give_back(file: &File, run: &Range<u64>) {
    use rustix::fs::FallocateFlags as Flags;
    let flags = Flags::PUNCH_HOLE | Flags::KEEP_SIZE;
    // Where this is not possible the file only takes more room.
    let _ = rustix::fs::fallocate(file, flags, run.start, run.end - run.start);
}

type Peeked<'f, R> = (Option<R>, Reader<'f, R>);

/// Takes the least of the records at the heads of runs.
fn take_least<R: Record>(heads: &mut [Peeked<'_, R>]) -> io::Result<Option<R>> {
    let present = heads.iter_mut().filter(|(head, _)| head.is_some());
    let Some((head, reader)) = present.min_by(|(a, _), (b, _)| a.cmp(b)) else {
        return Ok(None);
    };
    let least = head.take();
    *head = reader.next().transpose()?;
    Ok(least)
}

/// Writes a run.
struct Writer<'f> {
    file: &'f File,
    range: Range<u64>,
    buf: Vec<u8>,
    step: usize,
}

impl Writer<'_> {
    fn push<R: Record>(&mut self, record: &R) -> io::Result<()> {
        let at = self.buf.len();
        self.buf.resize(at + R::BYTES, 0);
        record.store(&mut self.buf[at..]);
        match self.buf.len() + R::BYTES > self.step {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buf, self.range.end)?;
        self.range.end += self.buf.len() as u64;
        self.buf.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<Range<u64>> {
        self.flush()?;
        Ok(self.range)
    }
}

/// Reads a run.
struct Reader<'f, R> {
    file: &'f File,
    left: Range<u64>,
    buf: Vec<u8>,
    at: usize,
    step: usize,
    record: std::marker::PhantomData<R>,
}

impl<'f, R: Record> Reader<'f, R> {
    fn new(file: &'f File, range: Range<u64>, step: usize) -> Self {
        let step = step / R::BYTES * R::BYTES;
        Self {
            file,
            left: range,
            buf: Vec::new(),
            at: 0,
            step,
            record: std::marker::PhantomData,
        }
    }

    fn peek(mut self) -> io::Result<Peeked<'f, R>> {
        Ok((self.next().transpose()?, self))
    }

    fn refill(&mut self) -> io::Result<()> {
        let bytes = (self.left.end - self.left.start).min(self.step as u64);
        self.buf.resize(bytes as usize, 0);
        self.file.read_exact_at(&mut self.buf, self.left.start)?;
        self.left.start += bytes;
        self.at = 0;
        Ok(())
    }
}

impl<R: Record> Iterator for Reader<'_, R> {
    type Item = io::Result<R>;

    fn next(&mut self) -> Option<io::Result<R>> {
        if self.at == self.buf.len() {
            if self.left.is_empty() {
                return None;
            }
            if let Err(error) = self.refill() {
                self.left = 0..0;
                self.buf.clear();
                self.at = 0;
                return Some(Err(error));
            }
        }
        let record = R::load(&self.buf[self.at..self.at + R::BYTES]);
        self.at += R::BYTES;
        Some(Ok(record))
    }
}

impl<R: Record + Clone> Sorted<R> {
    /// Returns how many there are.
    pub fn len(&self) -> u64 {
        match &self.file {
            Some((_, range)) => (range.end - range.start) / R::BYTES as u64,
            None => self.records.len() as u64,
        }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records in their order.
    pub fn iter(&self) -> impl Iterator<Item = io::Result<R>> {
        let step = self.memory.clamp(STEP_BYTES, 1 << 20).max(R::BYTES);
        self.iter_from(0, step)
    }

    /// The records from that number on, read so many bytes at a time.
    pub fn iter_from(&self, first: u64, step: usize) -> impl Iterator<Item = io::Result<R>> {
        let first = first.min(self.len());
        let step = step.max(R::BYTES);
        let spilled = self.file.as_ref().map(|(file, range)| {
            Reader::new(file, range.start + first * R::BYTES as u64..range.end, step)
        });
        let in_memory = self.records.iter().skip(first as usize).cloned().map(Ok);
        spilled.into_iter().flatten().chain(in_memory)
    }

    /// The record of that number; `None` behind the last.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn get(&self, index: u64) -> io::Result<Option<R>> {
        if index >= self.len() {
            return Ok(None);
        }
        let Some((file, range)) = &self.file else {
            return Ok(self.records.get(index as usize).cloned());
        };
        let mut bytes = vec![0; R::BYTES];
        file.read_exact_at(&mut bytes, range.start + index * R::BYTES as u64)?;
        Ok(Some(R::load(&bytes)))
    }

    /// The first record for which `is_before` is not true; it is true of those in front and of no other.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn first_from(&self, is_before: impl Fn(&R) -> bool) -> io::Result<Option<R>> {
        self.get(self.partition_point(is_before)?)
    }

    /// The number of records for which `is_before` is true; it is true of the first of them and of no other.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub fn partition_point(&self, is_before: impl Fn(&R) -> bool) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle)?.is_some_and(|record| is_before(&record)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Record for (u64, u32) {
        const BYTES: usize = 12;

        fn store(&self, out: &mut [u8]) {
            out[..8].copy_from_slice(&self.0.to_le_bytes());
            out[8..].copy_from_slice(&self.1.to_le_bytes());
        }

        fn load(bytes: &[u8]) -> Self {
            let (first, second) = bytes.split_at(8);
            (
                u64::from_le_bytes(first.try_into().unwrap()),
                u32::from_le_bytes(second.try_into().unwrap()),
            )
        }

        fn absorb(&mut self, next: &Self) -> bool {
            self == next
        }
    }

    fn scattered(count: u64) -> impl Iterator<Item = (u64, u32)> {
        (0..count).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20, n as u32))
    }

    fn sorted(records: impl Iterator<Item = (u64, u32)>) -> Sorted<(u64, u32)> {
        let mut sorter = Sorter::new(0);
        records.for_each(|record| sorter.push(record).unwrap());
        sorter.finish().unwrap()
    }

    #[test]
    fn many_runs_come_out_in_order() {
        // 4,096 fit into the least memory: so there are runs of two levels.
        let count = 4096 * (RUNS_MAX as u64 + 5) + 17;
        let sorted = sorted(scattered(count));
        assert!(sorted.file.is_some());
        let mut expected: Vec<_> = scattered(count).collect();
        expected.sort_unstable();
        let found: Vec<_> = sorted.iter().map(Result::unwrap).collect();
        assert!(found == expected);
        assert_eq!((sorted.len(), sorted.get(count).unwrap()), (count, None));
        let (middle, wanted) = (count / 2, expected[count as usize / 2]);
        assert_eq!(sorted.get(middle).unwrap(), Some(wanted));
        assert_eq!(
            sorted.first_from(|record| *record < wanted).unwrap(),
            Some(wanted)
        );
        assert_eq!(sorted.first_from(|_| true).unwrap(), None);
        let behind = sorted.iter_from(count - 100, 0).map(Result::unwrap);
        assert!(behind.eq(expected[count as usize - 100..].iter().copied()));
    }

    #[test]
    fn few_records_stay_in_memory() {
        let sorted = sorted(scattered(100));
        assert!(sorted.file.is_none() && sorted.iter().map(Result::unwrap).is_sorted());
        assert!(Sorter::<(u64, u32)>::new(0).finish().unwrap().is_empty());
    }

    #[test]
    fn what_is_there_often_is_kept_once() {
        let one = sorted((0..100_000).map(|n| (n % 7, 0)));
        assert!(one.file.is_none() && one.len() == 7);
        let many = sorted((0..100_000).map(|n| (n % 5000, 0)));
        assert!(many.file.is_some() && many.len() == 5000);
    }
}
