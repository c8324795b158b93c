//! Many threads on a small log with little memory: each finds what it has written, and what is left adds up.
//!
//! `ANTEROS_CONCURRENCY_SEEDS=100 cargo test --release -p anteros-log --test concurrency` tries so many.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use anteros_core::{FsResult, WritableDevice};
use anteros_log::{Options, check};
use support::history::Snapshot;
use support::*;

const THREADS: u64 = 8;
const STEPS: u64 = 250;
/// Files of a thread.
const FILES: u64 = 8;
const FILE_BYTES: u64 = 200_000;
/// Files of all, in each of which every thread has a part of its own.
const SHARED: u64 = 3;
const PART_BYTES: u64 = 30_000;

struct Worker<'a> {
    tree: &'a Tree,
    number: u64,
    random: u64,
    /// Holds what the files of this thread hold, by their names.
    files: BTreeMap<String, Vec<u8>>,
    /// Holds what it wrote to its parts.
    parts: Vec<Vec<u8>>,
}

impl<'a> Worker<'a> {
    fn new(tree: &'a Tree, seed: u64, number: u64) -> Self {
        let parts = vec![vec![0; PART_BYTES as usize]; SHARED as usize];
        Self {
            tree,
            number,
            random: seed << 8 | number,
            files: BTreeMap::new(),
            parts,
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    fn path(&mut self) -> String {
        let file = self.below(FILES);
        format!("t{}/{file}", self.number)
    }

    fn there(&mut self) -> Option<String> {
        let which = self.below(FILES) as usize;
        self.files.keys().cycle().nth(which).cloned()
    }

    fn run(&mut self) -> FsResult<()> {
        self.tree.mkdir(&format!("t{}", self.number))?;
        for _ in 0..STEPS {
            self.step()?;
        }
        self.compare();
        Ok(())
    }

    fn step(&mut self) -> FsResult<()> {
        match self.below(20) {
            0..5 => self.write(),
            5..8 => self.write_shared(),
            8 => self.cut(),
            9 => self.rename(),
            10 => self.unlink(),
            11..14 => match self.there() {
                Some(path) => self.tree.fsync(&path),
                None => Ok(()),
            },
            14 => {
                let shared = self.below(SHARED);
                self.tree.fsync(&format!("shared{shared}"))
            }
            15 => self.link(),
            16 if self.below(4) == 0 => self.tree.0.checkpoint(),
            17 => self.tree.0.clean().map(drop),
            18 => self.tree.fsync(""),
            _ => {
                self.compare();
                Ok(())
            }
        }
    }

    fn write(&mut self) -> FsResult<()> {
        let path = self.path();
        if !self.files.contains_key(&path) {
            self.tree.create(&path)?;
            self.files.insert(path.clone(), Vec::new());
        }
        let (offset, len) = (
            self.below(FILE_BYTES / 2) as usize,
            self.below(FILE_BYTES / 2) as usize,
        );
        let data = bytes(self.random, len);
        let mut done = 0;
        while done < len {
            done += self
                .tree
                .write(&path, (offset + done) as u64, &data[done..])?;
        }
        let content = self.files.get_mut(&path).unwrap();
        if len > 0 {
            content.resize(content.len().max(offset + len), 0);
        }
        content[offset.min(offset + len)..][..len].copy_from_slice(&data);
        Ok(())
    }

    fn write_shared(&mut self) -> FsResult<()> {
        let which = self.below(SHARED);
        let start = self.below(PART_BYTES);
        let len = self.below(PART_BYTES - start);
        let data = bytes(self.random, len as usize);
        let path = format!("shared{which}");
        let mut done = 0;
        while done < len {
            let at = self.number * PART_BYTES + start + done;
            done += self.tree.write(&path, at, &data[done as usize..])? as u64;
        }
        self.parts[which as usize][start as usize..(start + len) as usize].copy_from_slice(&data);
        Ok(())
    }

    fn cut(&mut self) -> FsResult<()> {
        let Some(path) = self.there() else {
            return Ok(());
        };
        let size = self.below(FILE_BYTES);
        self.tree.truncate(&path, size)?;
        self.files.get_mut(&path).unwrap().resize(size as usize, 0);
        Ok(())
    }

    fn rename(&mut self) -> FsResult<()> {
        let (Some(from), to) = (self.there(), self.path()) else {
            return Ok(());
        };
        self.tree.rename(&from, &to, 0)?;
        let content = self.files.remove(&from).unwrap();
        self.files.insert(to, content);
        Ok(())
    }

    fn unlink(&mut self) -> FsResult<()> {
        let Some(path) = self.there() else {
            return Ok(());
        };
        self.files.remove(&path);
        self.tree.unlink(&path)
    }

    /// A name in the directory of all, for a moment.
    fn link(&mut self) -> FsResult<()> {
        let Some(path) = self.there() else {
            return Ok(());
        };
        let other = format!("l{}", self.number);
        self.tree.link(&path, &other)?;
        assert!(self.tree.read(&other)? == self.files[&path], "{other}");
        self.tree.unlink(&other)
    }

    fn compare(&self) {
        for (path, content) in &self.files {
            assert!(self.tree.read(path).unwrap() == *content, "{path}");
        }
        for (which, part) in self.parts.iter().enumerate() {
            let found = self.tree.read(&format!("shared{which}")).unwrap();
            let start = found.len().min((self.number * PART_BYTES) as usize);
            let end = found.len().min(start + part.len());
            assert!(
                found[start..end] == part[..end - start],
                "shared{which} of {}",
                self.number
            );
            assert!(
                part[end - start..].iter().all(|&byte| byte == 0),
                "shared{which} of {}",
                self.number
            );
        }
    }
}

fn run(seed: u64) {
    let device = device(64 * MIB);
    let options = Options {
        writes_behind: seed % 3 != 1,
        ..options_with(2 << 20)
    };
    let tree = open_with(device.clone(), options);
    for which in 0..SHARED {
        tree.create(&format!("shared{which}")).unwrap();
    }
    let models: Vec<_> = std::thread::scope(|scope| {
        let begin = |number| {
            let tree = &tree;
            scope.spawn(move || {
                let mut worker = Worker::new(tree, seed, number);
                worker.run().unwrap_or_else(|error| {
                    panic!(
                        "seed {seed}, thread {number}: {error}, {:?}",
                        tree.0.failure()
                    )
                });
                (worker.number, worker.files, worker.parts)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(begin).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let condition = tree.0.condition();
    assert!(condition.statistics.checkpoints > 5, "{condition:?}");
    assert!(condition.statistics.cleaned > 0, "{condition:?}");
    let compare = |tree: &Tree| {
        for (number, files, parts) in &models {
            let worker = Worker {
                tree,
                number: *number,
                random: 0,
                files: files.clone(),
                parts: parts.clone(),
            };
            worker.compare();
        }
        let found = Snapshot::of(tree).unwrap();
        let used = tree.0.condition().used_blocks;
        assert!(
            found.adds_up(used),
            "seed {seed}: {used} of {}",
            found.blocks
        );
    };
    compare(&tree);
    // Unmounted, or lost as soon as everything is durable.
    match seed % 2 {
        0 => tree.0.close().unwrap(),
        _ => tree.0.sync().unwrap(),
    }
    drop(tree);
    let device: Arc<dyn WritableDevice> = device;
    let report = check(device.clone(), support::options()).unwrap();
    assert_eq!(report.faults, [""; 0], "seed {seed}");
    compare(&open(device));
}

#[test]
fn every_thread_finds_what_it_has_written() {
    let seeds =
        std::env::var("ANTEROS_CONCURRENCY_SEEDS").map_or(6, |count| count.parse().unwrap());
    (0..seeds).for_each(run);
}
