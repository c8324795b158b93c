//! Power cut everywhere while threads write, and others compress, clean and compact behind them, as fast as they can.
//!
//! `ANTEROS_CRASH_SEEDS=100 cargo test --release -p anteros-log --test crash_threads` tries so many runs. Two runs with
//! the same seed are not the same, for threads are not; what fails in one may take some more to fail again.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anteros_core::{FileSystem, FsError, FsResult, WritableDevice};
use anteros_log::{Mode, Options, Order, Policy, Sweep};
use anteros_tests::crash::{Plan, Recorder, State};
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::history::{judge_use, judge_whole};
use support::hooked::{Asked, Hooked};
use support::*;

const WRITERS: usize = 3;
/// Steps of each.
const STEPS: usize = 120;
/// Names of each. Databases, journals and programs are compressed in other ways than the rest.
const NAMES: [&str; 5] = ["a", "b.db", "c.so", "d.db-wal", "e.txt"];
const FILE_BYTES: u64 = 150_000;
/// Nobody works beside the writers by the last one.
const POLICIES: [Policy; 5] = [
    Policy::Record,
    Policy::Force,
    Policy::Record,
    Policy::Paper,
    Policy::None,
];
/// A run has very many states: one in so many is looked at.
const ONE_IN: usize = 11;

/// Contents of a file, and the step after which it had each.
type Versions = Vec<(usize, Arc<Vec<u8>>)>;

/// The files of a writer by their names; a file has a number.
type Names = BTreeMap<String, usize>;

/// The deeds of a writer.
#[derive(Default)]
struct Deeds {
    /// By step.
    names: Vec<Names>,
    files: Vec<Versions>,
    /// Steps after which all names were durable, and the content of a file, or of all.
    promises: Vec<(usize, Option<usize>)>,
}

impl Deeds {
    fn content(&self, file: usize) -> Arc<Vec<u8>> {
        let last = self.files[file].last();
        last.map(|(_, content)| content.clone()).unwrap()
    }

    /// Refuses files that are not those of one moment, no earlier than the last promise, when the steps up to `done` were
    /// over and those up to `begun` were begun; and content that a file had at no moment since the last promise about it.
    fn judge(
        &self,
        found: &BTreeMap<String, Vec<u8>>,
        (done, begun): (usize, usize),
    ) -> Result<(), String> {
        let begun = begun.min(self.names.len() - 1);
        let promised = self.promised(done, |_| true);
        let moments = self.names[promised..=begun].iter();
        let moments = moments.filter(|names| names.keys().eq(found.keys()));
        let mut wrong = format!("the names {:?}", found.keys());
        for names in moments {
            let other = names.iter().find(|(name, file)| {
                let since = self.promised(done, |of| of == **file);
                !self.held(**file, since..=begun, &found[*name])
            });
            match other {
                None => return Ok(()),
                Some((name, file)) => wrong = format!("file {file} with the name {name}"),
            }
        }
        Err(format!(
            "{wrong}: of no moment from step {promised} to {begun}"
        ))
    }

    /// The last step up to `done` that promised something about some files.
    fn promised(&self, done: usize, about: impl Fn(usize) -> bool) -> usize {
        let promises = self.promises.iter().filter(|(step, _)| *step <= done);
        let about = promises.filter(|(_, file)| file.is_none_or(&about));
        about.map(|(step, _)| *step).max().unwrap_or(0)
    }

    /// Tells whether a file held this at some moment.
    fn held(&self, file: usize, steps: std::ops::RangeInclusive<usize>, content: &[u8]) -> bool {
        let versions = &self.files[file];
        let first = versions
            .iter()
            .rposition(|(step, _)| step <= steps.start())
            .unwrap_or(0);
        let versions = versions[first..].iter();
        let mut versions = versions.take_while(|(step, _)| step <= steps.end());
        versions.any(|(_, then)| ***then == *content)
    }
}

/// A mounted log, and all that goes on in it.
struct Run {
    tree: Tree,
    device: Arc<Faulty<Recorder>>,
    /// Tells whether the device may fail.
    fails: bool,
    is_over: AtomicBool,
    turns: AtomicU64,
}

impl Run {
    fn new(base: &[u8], seed: u64, fault: Option<(Call, u64)>) -> Self {
        let device = Arc::new(Faulty::new(Recorder::new(base)));
        let calls = AtomicU64::new(seed);
        // Whoever comes to the device is late now and then, so that others come between.
        let hook = move |asked| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if asked == Asked::Flush || call % 7 == 0 {
                thread::sleep(Duration::from_micros(call * 37 % 400));
            }
        };
        let hooked = Hooked::around(device.clone(), hook);
        let tree = open_with(Arc::new(hooked), options_of(seed));
        if let Some((call, number)) = fault {
            device.inject(call, When::Nth(number), Errno::IO);
        }
        Self {
            tree,
            device,
            fails: fault.is_some(),
            is_over: AtomicBool::new(false),
            turns: AtomicU64::new(0),
        }
    }

    fn mark(&self, label: String) {
        self.device.inner().mark(label);
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Tells whether the device has failed, after which nothing can be written. A log that is full changes nothing.
    fn has_failed(&self, done: FsResult<()>) -> bool {
        match done {
            Ok(()) | Err(FsError::NoSpace) => false,
            Err(FsError::Io(_) | FsError::ReadOnly) if self.fails => true,
            Err(error) => panic!("{error}: {:?}", self.tree.0.failure()),
        }
    }

    /// Has all threads work until the writers are done.
    fn go(&self, seed: u64) -> Vec<Deeds> {
        thread::scope(|scope| {
            let begin = |number| scope.spawn(move || Writer::new(self, seed, number).go());
            let writers: Vec<_> = (0..WRITERS).map(begin).collect();
            if self.tree.0.compresses() {
                scope.spawn(|| self.tree.0.compress_behind());
                scope.spawn(|| self.tend());
            }
            scope.spawn(|| self.read());
            let joined: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            self.is_over.store(true, Ordering::Relaxed);
            self.tree.0.end_compressing();
            joined.into_iter().map(|deeds| deeds.unwrap()).collect()
        })
    }

    /// Does whatever nobody has asked for.
    fn tend(&self) {
        let (log, mut sweep) = (&self.tree.0, Sweep::default());
        while self.goes_on() {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed);
            let goes_on = |_: &_| self.goes_on();
            let swept = log.sweep(&mut sweep, Duration::ZERO, goes_on, &|| !self.goes_on());
            let tended = match turn % 8 {
                1 => log.clean().map(drop),
                3 => log.tend(),
                5 => self.keep_record(turn),
                7 => log.checkpoint(),
                _ => Ok(()),
            };
            if self.has_failed(swept.map(drop).and(tended)) {
                break;
            }
        }
    }

    fn keep_record(&self, turn: u64) -> FsResult<()> {
        self.mark(format!("record begun {turn}"));
        self.tree.0.keep_record(&record(turn))
    }

    /// Reads whatever is there.
    fn read(&self) {
        let mut dice = dice(5);
        while self.goes_on() {
            let writer = dice(WRITERS as u64);
            let name = NAMES[dice(NAMES.len() as u64) as usize];
            let read = self.tree.read(&format!("{writer}/{name}"));
            if !matches!(read, Err(FsError::NotFound)) && self.has_failed(read.map(drop)) {
                break;
            }
            thread::yield_now();
        }
    }
}

/// The bytes that are kept in a turn.
fn record(turn: u64) -> Vec<u8> {
    bytes(turn, 3000 + 5000 * (turn as usize % 5))
}

/// A thread that writes to a directory of its own.
struct Writer<'a> {
    run: &'a Run,
    number: usize,
    dice: Box<dyn FnMut(u64) -> u64>,
    step: usize,
    names: Names,
    deeds: Deeds,
}

impl<'a> Writer<'a> {
    fn new(run: &'a Run, seed: u64, number: usize) -> Self {
        let deeds = Deeds {
            names: vec![Names::new()],
            ..Deeds::default()
        };
        Self {
            run,
            number,
            dice: Box::new(dice(seed << 8 | number as u64)),
            step: 0,
            names: Names::new(),
            deeds,
        }
    }

    fn go(mut self) -> Deeds {
        for step in 1..=STEPS {
            self.step = step;
            self.run.mark(format!("{} begun {step}", self.number));
            let done = self.do_one();
            self.deeds.names.push(self.names.clone());
            if self.run.has_failed(done) {
                break;
            }
            self.run.mark(format!("{} done {step}", self.number));
        }
        self.deeds
    }

    fn do_one(&mut self) -> FsResult<()> {
        match self.below(16) {
            0..7 => self.write(),
            7 => self.cut(),
            8 => self.rename(),
            9 => self.unlink(),
            10 => self.sync_all(),
            _ => self.sync(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.dice)(limit)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.number)
    }

    fn any_name(&mut self) -> String {
        NAMES[self.below(NAMES.len() as u64) as usize].to_owned()
    }

    /// A file that is there.
    fn there(&mut self) -> Option<(String, usize)> {
        let which = self.below(NAMES.len() as u64) as usize;
        let found = self.names.iter().cycle().nth(which);
        found.map(|(name, file)| (name.clone(), *file))
    }

    fn note(&mut self, file: usize, content: Vec<u8>) {
        self.deeds.files[file].push((self.step, Arc::new(content)));
    }

    fn create(&mut self, name: &str) -> FsResult<usize> {
        self.run.tree.create(&self.path(name))?;
        let file = self.deeds.files.len();
        self.deeds.files.push(Versions::new());
        self.note(file, Vec::new());
        self.names.insert(name.to_owned(), file);
        Ok(file)
    }

    fn write(&mut self) -> FsResult<()> {
        let name = self.any_name();
        let file = match self.names.get(&name) {
            Some(file) => *file,
            None => self.create(&name)?,
        };
        let offset = self.below(FILE_BYTES / 2) as usize;
        let len = 1 + self.below(FILE_BYTES / 2) as usize;
        let seed = self.below(1 << 30);
        let mut data = match seed % 3 {
            0 => bytes(seed, len),
            _ => text(seed, len.div_ceil(4096)),
        };
        data.truncate(len);
        let written = self
            .run
            .tree
            .write(&self.path(&name), offset as u64, &data)?;
        let mut content = self.deeds.content(file).to_vec();
        content.resize(content.len().max(offset + written), 0);
        content[offset..offset + written].copy_from_slice(&data[..written]);
        self.note(file, content);
        Ok(())
    }

    fn cut(&mut self) -> FsResult<()> {
        let Some((name, file)) = self.there() else {
            return Ok(());
        };
        let size = self.below(FILE_BYTES);
        self.run.tree.truncate(&self.path(&name), size)?;
        let mut content = self.deeds.content(file).to_vec();
        content.resize(size as usize, 0);
        self.note(file, content);
        Ok(())
    }

    fn rename(&mut self) -> FsResult<()> {
        let (Some((from, file)), to) = (self.there(), self.any_name()) else {
            return Ok(());
        };
        let (from_path, to_path) = (self.path(&from), self.path(&to));
        self.run.tree.rename(&from_path, &to_path, 0)?;
        self.names.remove(&from);
        self.names.insert(to, file);
        Ok(())
    }

    fn unlink(&mut self) -> FsResult<()> {
        let Some((name, _)) = self.there() else {
            return Ok(());
        };
        self.run.tree.unlink(&self.path(&name))?;
        self.names.remove(&name);
        Ok(())
    }

    fn sync(&mut self) -> FsResult<()> {
        let Some((name, file)) = self.there() else {
            return Ok(());
        };
        self.run.tree.fsync(&self.path(&name))?;
        self.deeds.promises.push((self.step, Some(file)));
        Ok(())
    }

    fn sync_all(&mut self) -> FsResult<()> {
        self.run.tree.0.sync()?;
        self.deeds.promises.push((self.step, None));
        Ok(())
    }
}

fn options_of(seed: u64) -> Options {
    let (_, mode) = Mode::ALL[(seed / 3) as usize % Mode::ALL.len()];
    Options {
        policy: POLICIES[seed as usize % POLICIES.len()],
        mode,
        order: [Order::Together, Order::DataFirst][(seed / 5) as usize % 2],
        writes_behind: seed % 2 == 0,
        // Content leaves before anybody asks for that.
        ..options_with([400 << 10, 2 << 20][(seed / 2) as usize % 2])
    }
}

/// A log with a directory for each writer; a full one has room for little more.
fn base(is_full: bool) -> Vec<u8> {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    for writer in 0..WRITERS {
        tree.mkdir(&writer.to_string()).unwrap();
    }
    if is_full {
        tree.create("rest").unwrap();
        let free = tree.0.statfs().unwrap().blocks_free;
        tree.allocate("rest", 0, (free - 300) * 4096, 0).unwrap();
    }
    tree.0.close().unwrap();
    device.to_vec()
}

/// Steps of a writer up to which they were done, and begun, at a state.
fn steps(state: &State, writer: usize) -> (usize, usize) {
    let last = |word: &str| {
        let word = format!("{writer} {word} ");
        let marks = state.marks().iter().rev();
        let mut steps = marks.filter_map(|mark| mark.label.strip_prefix(&word)?.parse().ok());
        steps.next().unwrap_or(0)
    };
    (last("done"), last("begun"))
}

fn judge(all: &[Deeds], state: &State) -> Result<(), String> {
    let device: Arc<dyn WritableDevice> = Arc::new(state.device());
    judge_whole(&device)?;
    let tree = open(device.clone());
    for (writer, deeds) in all.iter().enumerate() {
        let found = contents(&tree, writer).map_err(|error| format!("{writer}: {error}"))?;
        deeds
            .judge(&found, steps(state, writer))
            .map_err(|why| format!("writer {writer}: {why}"))?;
    }
    judge_record(&tree, state)?;
    // A full log can be emptied.
    match tree.unlink("rest") {
        Ok(()) | Err(FsError::NotFound) => judge_use(&tree, &device),
        Err(error) => Err(format!("nothing can be removed: {error}")),
    }
}

fn contents(tree: &Tree, writer: usize) -> FsResult<BTreeMap<String, Vec<u8>>> {
    let names = tree.list(&writer.to_string())?.into_iter();
    let read = |name: String| Ok((name.clone(), tree.read(&format!("{writer}/{name}"))?));
    names.map(read).collect()
}

fn judge_record(tree: &Tree, state: &State) -> Result<(), String> {
    let kept = tree.0.kept_record();
    let Some(kept) = kept.map_err(|error| format!("the record: {error}"))? else {
        return Ok(());
    };
    let marks = state.marks().iter();
    let mut turns = marks.filter_map(|mark| mark.label.strip_prefix("record begun ")?.parse().ok());
    match turns.any(|turn| record(turn) == kept) {
        true => Ok(()),
        false => Err("a record that nobody kept".into()),
    }
}

/// Explores states that runs may leave, each with a fault of its own or none.
fn explore(runs: u64, fault: impl Fn(u64) -> Option<(Call, u64)>) {
    let seeds = std::env::var("ANTEROS_CRASH_SEEDS").map_or(runs, |count| count.parse().unwrap());
    let bases = [base(false), base(true)];
    let (mut states, mut turns) = (0, 0);
    for seed in 0..seeds {
        let base = &bases[seed as usize % 3 / 2];
        let run = Run::new(base, seed, fault(seed));
        let deeds = run.go(seed);
        turns += run.turns.load(Ordering::Relaxed);
        let plan = Plan {
            subsets_max: 8,
            samples: 1,
            tears: 1,
            seed,
        };
        let recording = run.device.inner().recording();
        drop(run);
        let explored = recording.explore_one_in(ONE_IN, &plan, |state| judge(&deeds, state));
        states += explored.expect_none_failed_in(format!("seed {seed}"));
    }
    assert!(turns > seeds, "{turns}");
    println!("{states} states of {seeds} runs, {turns} turns beside them");
}

#[test]
fn what_was_promised_to_threads_survives_every_crash() {
    explore(10, |_| None);
}

/// One call fails: a write, a flush or a read, of whichever thread it is.
#[test]
fn what_was_promised_to_threads_survives_a_device_that_fails() {
    const CALLS: [Call; 3] = [Call::Write, Call::Flush, Call::Read];
    explore(10, |seed| {
        let call = CALLS[seed as usize % CALLS.len()];
        Some((call, dice(seed)(40)))
    });
}
