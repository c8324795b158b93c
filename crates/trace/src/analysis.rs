//! From accesses to characteristics. `docs/trace.md` defines each of them.
//!
//! Accesses are recorded when they are answered, and looked at in the order in which they came: a heap puts the last
//! some thousands in order, which is more than are ever answered side by side.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use crate::report::{FileReport, Flow, ProcessReport, Report, Syncs, Tally, Usage};
use crate::{Access, Item, Operation, mode};

/// States how many accesses wait to be put in order.
const WAITING_MAX: usize = 4096;
/// States how many files, and how many processes, are told apart. What comes beyond is one file, or one process.
const TOLD_APART_MAX: usize = 1 << 20;

/// Takes the items of a record, and reports.
#[derive(Debug, Default)]
pub struct Analysis {
    waiting: BinaryHeap<Reverse<(Duration, u64, Access)>>,
    /// Accesses taken so far.
    taken: u64,
    dropped: u64,
    lasted: Duration,
    reads: Flow,
    writes: Flow,
    fsyncs: Syncs,
    files: HashMap<u64, File>,
    processes: HashMap<u32, Process>,
    other_processes: Usage,
}

#[derive(Debug, Default)]
struct File {
    ino: u64,
    path: Vec<u8>,
    usage: Usage,
    /// Tells where the last read and the last write ended.
    read_end: u64,
    write_end: u64,
    /// Names who made the last access, if that was a buffered write.
    writer: Option<u32>,
}

#[derive(Debug, Default)]
struct Process {
    name: Vec<u8>,
    usage: Usage,
}

impl Analysis {
    /// Takes the next item.
    pub fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Access(access) => {
                self.taken += 1;
                let order = (access.at, self.taken, access);
                self.waiting.push(Reverse(order));
                if self.waiting.len() > WAITING_MAX {
                    self.next();
                }
            }
            Item::File { number, ino, path } => {
                let file = self.files.entry(file_key(number)).or_default();
                file.ino = ino;
                // A file that is gone keeps the name it had.
                if !path.is_empty() {
                    file.path = path.to_vec();
                }
            }
            Item::Process { pid, name } => {
                if let Some(process) = process(&mut self.processes, pid) {
                    process.name = name.to_vec();
                }
            }
            Item::Dropped(count) => self.dropped = self.dropped.saturating_add(count),
            Item::End(at) => self.lasted = self.lasted.max(at),
        }
    }

    /// Looks at the earliest access that waits.
    fn next(&mut self) {
        let Some(Reverse((_, _, access))) = self.waiting.pop() else {
            return;
        };
        let end = access.at.saturating_add(access.took);
        self.lasted = self.lasted.max(end);
        match access.operation {
            Operation::Fsync => self.fsync(&access),
            _ => self.flow(&access),
        }
    }

    fn flow(&mut self, access: &Access) {
        let is_read = access.operation == Operation::Read;
        let flow = match is_read {
            true => &mut self.reads,
            false => &mut self.writes,
        };
        flow.latencies.add(access.took);
        if access.error != 0 {
            flow.failed += 1;
            return;
        }
        let file = self.files.entry(file_key(access.file)).or_default();
        let end = match is_read {
            true => &mut file.read_end,
            false => &mut file.write_end,
        };
        let is_sequential = access.offset == *end;
        *end = access.offset + access.len;
        let asks = match is_read {
            true => mode::DIRECT,
            false => mode::DIRECT | mode::SYNC,
        };
        let is_synchronous = access.modes & asks != 0;
        let is_buffered_write = !is_read && !is_synchronous;
        file.writer = is_buffered_write.then_some(access.pid);
        flow.add(access.len);
        let process = process(&mut self.processes, access.pid);
        let process = process.map_or(&mut self.other_processes, |process| &mut process.usage);
        for tally in [
            &mut flow.tally,
            of(&mut file.usage, is_read),
            of(process, is_read),
        ] {
            tally.add(access.len, is_sequential, is_synchronous);
        }
    }

    /// A write that is synced before anything else happens to its file has not been buffered either.
    fn fsync(&mut self, access: &Access) {
        self.fsyncs.latencies.add(access.took);
        if access.error != 0 {
            self.fsyncs.failed += 1;
            return;
        }
        self.fsyncs.count += 1;
        let file = self.files.entry(file_key(access.file)).or_default();
        file.usage.fsyncs += 1;
        let writer = file.writer.take();
        if let Some(pid) = writer {
            self.writes.tally.synchronous += 1;
            file.usage.writes.synchronous += 1;
            self.usage_of(pid).writes.synchronous += 1;
        }
        self.usage_of(access.pid).fsyncs += 1;
    }

    fn usage_of(&mut self, pid: u32) -> &mut Usage {
        process(&mut self.processes, pid)
            .map_or(&mut self.other_processes, |process| &mut process.usage)
    }

    /// Returns what all of it comes to.
    pub fn report(mut self) -> Report {
        while !self.waiting.is_empty() {
            self.next();
        }
        Report {
            lasted: self.lasted,
            accesses: self.taken,
            dropped: self.dropped,
            files: files(self.files),
            processes: processes(self.processes, self.other_processes),
            reads: self.reads,
            writes: self.writes,
            fsyncs: self.fsyncs,
        }
    }
}

fn of(usage: &mut Usage, is_read: bool) -> &mut Tally {
    match is_read {
        true => &mut usage.reads,
        false => &mut usage.writes,
    }
}

/// Returns what a file is known by: of those beyond the last that is told apart, all by the same.
fn file_key(number: u64) -> u64 {
    number.min(TOLD_APART_MAX as u64)
}

/// A process, unless it is beyond those that are told apart.
fn process(processes: &mut HashMap<u32, Process>, pid: u32) -> Option<&mut Process> {
    let has_room = processes.len() < TOLD_APART_MAX;
    match has_room || processes.contains_key(&pid) {
        true => Some(processes.entry(pid).or_default()),
        false => None,
    }
}

/// The files with anything to tell, those of the same path as one, the one with the most bytes first.
fn files(files: HashMap<u64, File>) -> Vec<FileReport> {
    let mut numbered: Vec<(u64, File)> = files.into_iter().collect();
    numbered.sort_unstable_by_key(|(number, _)| *number);
    let mut by_path: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut reports: Vec<FileReport> = Vec::new();
    for (number, file) in numbered {
        let ino = (number < TOLD_APART_MAX as u64).then_some(file.ino);
        let path = ino.map_or_else(Vec::new, |_| file.path);
        let index = match path.is_empty() {
            true => reports.len(),
            false => *by_path.entry(path.clone()).or_insert(reports.len()),
        };
        match reports.get_mut(index) {
            Some(report) => {
                report.ino = ino;
                report.usage.merge(&file.usage);
            }
            None => reports.push(FileReport {
                path,
                ino,
                usage: file.usage,
            }),
        }
    }
    reports.retain(|report| report.usage != Usage::default());
    reports.sort_by(|a, b| {
        let rank = |report: &FileReport| Reverse((report.usage.bytes(), report.usage.fsyncs));
        rank(a).cmp(&rank(b)).then_with(|| a.path.cmp(&b.path))
    });
    reports
}

fn processes(processes: HashMap<u32, Process>, others: Usage) -> Vec<ProcessReport> {
    let mut reports: Vec<_> = processes
        .into_iter()
        .map(|(pid, process)| ProcessReport {
            pid: Some(pid),
            name: process.name,
            usage: process.usage,
        })
        .collect();
    reports.push(ProcessReport {
        pid: None,
        name: Vec::new(),
        usage: others,
    });
    reports.retain(|report| report.usage != Usage::default());
    reports.sort_by_key(|report| {
        let usage = &report.usage;
        (Reverse((usage.bytes(), usage.fsyncs)), report.pid)
    });
    reports
}

#[cfg(test)]
mod tests;
