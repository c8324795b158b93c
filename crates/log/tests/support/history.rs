//! Tests what a file system held after each step of a program, and whether what is left after a crash is allowed.
//!
//! Names and attributes are those of one moment, no earlier than the last promise; the content of each file is
//! that of one moment, no earlier than the last promise about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anteros_core::{FileKind, FileSystem, Ino, Writable, WritableDevice};
use anteros_log::{Log, Options, Policy, check};
use anteros_tests::ace::{Falloc, Step};
use anteros_tests::crash::{Explored, Plan, Recorder, State};

use super::{Tree, options};

/// An inode, by one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub ino: u64,
    pub kind: FileKind,
    pub nlink: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All names, and the content of all files by their inodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub names: BTreeMap<String, Known>,
    pub contents: BTreeMap<u64, Vec<u8>>,
    /// Blocks that all of it takes.
    pub blocks: u64,
}

impl Snapshot {
    /// Returns whether as many blocks are in use as the files have. What is compressed takes fewer, but where some
    /// slots of a block are not needed any more, it counts as long as others are.
    pub fn adds_up(&self, used: u64) -> bool {
        match options().policy {
            Policy::None => used == self.blocks,
            _ => used <= self.blocks + self.blocks / 8,
        }
    }

    /// Returns what a file system holds now.
    pub fn of(tree: &Tree) -> Result<Self, String> {
        let mut snapshot = Self::default();
        let mut inodes = BTreeMap::new();
        let root = tree
            .attr("")
            .map_err(|error| format!("the root: {error}"))?;
        inodes.insert(root.ino, root.blocks / 8 + 1);
        snapshot.add(tree, "", &mut inodes)?;
        snapshot.blocks = inodes.values().sum();
        Ok(snapshot)
    }

    fn add(
        &mut self,
        tree: &Tree,
        dir: &str,
        inodes: &mut BTreeMap<Ino, u64>,
    ) -> Result<(), String> {
        for name in tree.list(dir).map_err(|error| format!("{dir}: {error}"))? {
            let path = if dir.is_empty() {
                name
            } else {
                format!("{dir}/{name}")
            };
            let fail = |error| format!("{path}: {error}");
            let attr = tree.attr(&path).map_err(fail)?;
            inodes.insert(attr.ino, attr.blocks / 8 + 1);
            let mut xattrs = BTreeMap::new();
            for name in tree.0.listxattr(attr.ino).map_err(fail)? {
                let value = tree.0.getxattr(attr.ino, &name).map_err(fail)?;
                xattrs.insert(name, value);
            }
            let known = Known {
                ino: attr.ino.0,
                kind: attr.kind,
                nlink: attr.nlink,
                xattrs,
            };
            self.names.insert(path.clone(), known);
            if attr.kind == FileKind::Directory {
                self.add(tree, &path, inodes)?;
            } else {
                let content = tree.read(&path).map_err(fail)?;
                self.contents.insert(attr.ino.0, content);
            }
        }
        Ok(())
    }
}

/// A program that ran, and what it left.
pub struct History {
    /// Holds what there was before the first step, and after each.
    snapshots: Vec<Snapshot>,
    steps: Vec<Step>,
    /// The inode that a promise is about; `None`: all of them.
    promised: Vec<Option<u64>>,
    recorder: Arc<Recorder>,
}

impl History {
    /// Runs a program on a device that holds `base`; `between` is called after each step.
    pub fn run(
        base: &[u8],
        options: Options,
        program: &[Step],
        between: impl FnMut(&Tree, usize),
    ) -> Self {
        Self::run_through(base, options, program, between, |recorder| {
            recorder as Arc<dyn WritableDevice>
        })
    }

    /// Runs a history through something that stands before the device.
    pub fn run_through(
        base: &[u8],
        options: Options,
        program: &[Step],
        mut between: impl FnMut(&Tree, usize),
        before: impl FnOnce(Arc<Recorder>) -> Arc<dyn WritableDevice>,
    ) -> Self {
        let recorder = Arc::new(Recorder::new(base));
        let tree = Tree(Log::open(before(recorder.clone()), options).unwrap());
        let mut history = Self {
            snapshots: vec![Snapshot::of(&tree).unwrap()],
            steps: program.to_vec(),
            promised: Vec::new(),
            recorder,
        };
        for (number, step) in program.iter().enumerate() {
            history.recorder.mark(format!("begun {}", number + 1));
            let target = match step {
                Step::Fsync { path } | Step::Fdatasync { path } | Step::Msync { path, .. } => {
                    Some(tree.ino(path).unwrap().0)
                }
                _ => None,
            };
            run(&tree, step).unwrap_or_else(|error| panic!("{step}: {error}"));
            history.recorder.mark(format!("done {}", number + 1));
            history.promised.push(target);
            history.snapshots.push(Snapshot::of(&tree).unwrap());
            between(&tree, number);
        }
        history
    }

    /// Returns whether each state that a crash could leave is allowed.
    pub fn explore(&self, plan: &Plan) -> Explored {
        self.recorder
            .recording()
            .explore(plan, |state| self.judge(state, Arc::new(state.device())))
    }

    /// Explores the states that a second crash could leave, while the first one is repaired.
    pub fn explore_again(&self, first: &State, plan: &Plan) -> Explored {
        let recorder = Arc::new(first.recorder());
        if let Err(error) = Log::open(recorder.clone(), options()) {
            panic!("{}: {error}", first.id());
        }
        recorder
            .recording()
            .explore(plan, |state| self.judge(first, Arc::new(state.device())))
    }

    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Checks what had been promised at a state, judged by what a log on `device` holds.
    fn judge(&self, state: &State, device: Arc<dyn WritableDevice>) -> Result<(), String> {
        judge_whole(&device)?;
        let opened = Log::open(device.clone(), options());
        let tree = Tree(opened.map_err(|error| format!("no mount: {error}"))?);
        let found = Snapshot::of(&tree)?;
        let last = |word: &str| {
            let numbers = state
                .marks()
                .iter()
                .rev()
                .find_map(|mark| mark.label.strip_prefix(word)?.parse().ok());
            numbers.unwrap_or(0)
        };
        let (begun, done): (usize, usize) = (last("begun "), last("done "));
        let promise = (1..=done)
            .rev()
            .find(|&number| self.steps[number - 1].is_promise())
            .unwrap_or(0);
        if !self.snapshots[promise..=begun]
            .iter()
            .any(|snapshot| snapshot.names == found.names)
        {
            let names: Vec<_> = found
                .names
                .iter()
                .map(|(name, known)| format!("{name} {}x{}", known.ino, known.nlink))
                .collect();
            return Err(format!(
                "the names are of no moment from step {promise} to {begun}: {names:?}"
            ));
        }
        for (ino, content) in &found.contents {
            self.judge_content(*ino, content, done, begun)?;
        }
        let used = tree.0.condition().used_blocks;
        // What is compressed takes less; that it adds up, the check has said.
        if used > found.blocks {
            return Err(format!(
                "{used} blocks are in use, but the files have {}",
                found.blocks
            ));
        }
        judge_use(&tree, &device)
    }

    fn judge_content(
        &self,
        ino: u64,
        content: &[u8],
        done: usize,
        begun: usize,
    ) -> Result<(), String> {
        let concerns = |number: usize| match self.steps[number - 1] {
            Step::Sync => true,
            _ => self.steps[number - 1].is_promise() && self.promised[number - 1] == Some(ino),
        };
        let promise = (1..=done).rev().find(|&number| concerns(number));
        let moments = &self.snapshots[promise.unwrap_or(0)..=begun];
        let is_moment = moments.iter().any(|snapshot| {
            snapshot
                .contents
                .get(&ino)
                .is_some_and(|then| then == content)
        });
        let is_new = promise.is_none() && content.is_empty();
        if is_moment || is_new {
            return Ok(());
        }
        Err(format!(
            "inode {ino} has {} bytes that it had at no moment from step {promise:?} to {begun}",
            content.len()
        ))
    }
}

/// Checks that a log that was mounted after a crash can be written to and unmounted.
pub fn judge_use(tree: &Tree, device: &Arc<dyn WritableDevice>) -> Result<(), String> {
    tree.put("after", b"all of this")
        .map_err(|error| format!("nothing can be written: {error}"))?;
    tree.fsync("after")
        .map_err(|error| format!("nothing can be synced: {error}"))?;
    tree.0
        .close()
        .map_err(|error| format!("no unmount: {error}"))?;
    judge_whole(device).map_err(|error| format!("after a mount: {error}"))
}

/// Checks that nothing is wrong with a log.
pub fn judge_whole(device: &Arc<dyn WritableDevice>) -> Result<(), String> {
    let report = check(device.clone(), options()).map_err(|error| format!("no check: {error}"))?;
    match report.fault_count {
        0 => Ok(()),
        _ => Err(format!("check finds {:?}", report.faults)),
    }
}

/// Does a step by paths.
pub fn run(tree: &Tree, step: &Step) -> anteros_core::FsResult<()> {
    match step {
        Step::Creat { path } => tree.create(path),
        Step::Mkdir { path } => tree.mkdir(path),
        Step::Falloc {
            path,
            mode,
            offset,
            len,
        } => tree.allocate(path, *offset, *len, number(*mode)),
        Step::Write {
            path,
            offset,
            len,
            fill,
        }
        | Step::DirectWrite {
            path,
            offset,
            len,
            fill,
        }
        | Step::MmapWrite {
            path,
            offset,
            len,
            fill,
        } => tree
            .write(path, *offset, &vec![*fill; *len as usize])
            .map(drop),
        Step::Link { from, to } => tree.link(from, to),
        Step::Unlink { path } => tree.unlink(path),
        Step::Rmdir { path } => tree.rmdir(path),
        Step::Remove { path } if tree.attr(path)?.kind == FileKind::Directory => tree.rmdir(path),
        Step::Remove { path } => tree.unlink(path),
        Step::Rename { from, to } => tree.rename(from, to, 0),
        Step::SetXattr { path } => tree.0.setxattr(tree.ino(path)?, b"user.ace", b"value", 0),
        Step::RemoveXattr { path } => tree.0.removexattr(tree.ino(path)?, b"user.ace"),
        Step::Truncate { path, size } => tree.truncate(path, *size),
        Step::Fsync { path } | Step::Fdatasync { path } | Step::Msync { path, .. } => {
            tree.fsync(path)
        }
        Step::Sync => tree.0.sync(),
    }
}

/// The mode of `fallocate(2)`.
fn number(mode: Falloc) -> u32 {
    match mode {
        Falloc::Allocate => 0,
        Falloc::KeepSize => 1,
        Falloc::PunchHole => 3,
        Falloc::ZeroRange => 16,
        Falloc::ZeroRangeKeepSize => 17,
    }
}
