//! Power cut everywhere. `ANTEROS_CRASH_STATES=100000 cargo test --release -p anteros-log --test crash` goes on until so
//! many states have been looked at; without, there are some thousand.
//!
//! Invariant L3 of `docs/design/log.md`.

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anteros_core::{Caller, Device, FileSystem, MemoryDevice, WritableDevice};
use anteros_log::layout::checkpoint::HeadKind;
use anteros_log::{Mode, Options, Order, Policy, Shape, Use, mkfs};
use anteros_tests::ace::{self, Step};
use anteros_tests::crash::{Operation, Plan, Recorder};
use support::history::History;
use support::*;

/// An empty log, as bytes.
fn base(bytes: u64) -> Vec<u8> {
    let device = device(bytes);
    let mut base = vec![0; bytes as usize];
    device.read_at(0, &mut base).unwrap();
    base
}

fn wanted(least: usize) -> usize {
    std::env::var("ANTEROS_CRASH_STATES").map_or(least, |count| count.parse().unwrap())
}

fn plan(seed: u64) -> Plan {
    Plan {
        subsets_max: 64,
        samples: 8,
        tears: 2,
        seed,
    }
}

/// So little memory that content often leaves before anyone asks for that; now the one order, now the other; now by those
/// who wrote it, now by another thread; compressed in each way that there is.
fn scarce(seed: u64) -> Options {
    let order = if seed % 3 == 0 {
        Order::DataFirst
    } else {
        Order::Together
    };
    let (_, policy) = Policy::ALL[(seed + seed / 12) as usize % Policy::ALL.len()];
    let (_, mode) = Mode::ALL[(seed / 2) as usize % Mode::ALL.len()];
    Options {
        order,
        policy,
        mode,
        writes_behind: seed % 4 == 1,
        ..options_with(160 << 10)
    }
}

/// Invariant L1 of `docs/design/log.md`.
#[test]
fn small_programs_survive_every_crash() {
    let base = base(32 * MIB);
    let wanted = wanted(2500);
    let programs = ace::seq1();
    // All of them if that is asked for, else some of each kind.
    let step = if wanted > 50_000 { 1 } else { 12 };
    let mut states = 0;
    for (seed, program) in programs.iter().enumerate().step_by(step) {
        let history = History::run(&base, scarce(seed as u64), program, |_, _| ());
        let explored = history.explore(&plan(seed as u64));
        states += explored.expect_none_failed_in(ace::line(program));
    }
    println!(
        "{states} states of {} programs",
        programs.len().div_ceil(step)
    );
}

/// Invariant L2 of `docs/design/log.md`.
#[test]
fn longer_programs_survive_with_checkpoints_and_cleaning_between() {
    let base = base(32 * MIB);
    let wanted = wanted(3000) as u64;
    let mut states = 0;
    for (seed, program) in (0..).zip(ace::sample(7, 12)) {
        let history = History::run(&base, scarce(seed), &program, |tree, number| {
            match (seed + number as u64) % 7 {
                2 => tree.0.checkpoint().unwrap(),
                4 => drop(tree.0.clean().unwrap()),
                // Of every file, if the policy is to compress whatever there is.
                5 => drop(tree.compact_everything()),
                6 => drop(tree.sweep_all()),
                _ => {}
            }
        });
        let explored = history.explore(&plan(seed));
        states += explored.expect_none_failed_in(ace::line(&program)) as u64;
        if states >= wanted {
            break;
        }
    }
    println!("{states} states");
}

/// Invariant L4 of `docs/design/log.md`.
#[test]
fn a_second_crash_while_the_first_is_repaired_changes_nothing() {
    let base = base(32 * MIB);
    let mut states = 0;
    for (seed, program) in (0..6).zip(ace::sample(11, 6)) {
        let history = History::run(&base, scarce(seed), &program, |_, _| ());
        states += crash_again(&history, &program, seed, 9);
    }
    println!("{states} states");
}

/// Groups whose blocks later ones have replaced, some of them in holes, are replayed and replayed again.
#[test]
fn a_second_crash_while_holes_are_taken_over_changes_nothing() {
    let base = with_holes();
    let mut states = 0;
    for (seed, program) in (0..3).zip(ace::sample(23, 5)) {
        let options = Options {
            mode: Mode::Threaded,
            ..scarce(seed)
        };
        let program = over_and_over(seed, &program);
        let history = History::run(&base, options, &program, |tree, number| {
            if number % 13 == 6 {
                tree.0.checkpoint().unwrap();
            }
        });
        states += crash_again(&history, &program, seed, 149);
    }
    println!("{states} states");
}

/// The states that a crash leaves while one in so many of the states of a program is repaired.
fn crash_again(history: &History, program: &[Step], seed: u64, one_in: usize) -> usize {
    let recording = history.recorder().recording();
    let mut states = 0;
    for first in recording.states(&plan(seed)).step_by(one_in) {
        let explored = history.explore_again(
            &first,
            &Plan {
                samples: 2,
                subsets_max: 8,
                tears: 0,
                seed,
            },
        );
        let told = format!("{}, first `{}`", ace::line(program), first.id());
        states += explored.expect_none_failed_in(told);
    }
    states
}

/// The heads go on behind what the groups name: neither what a crash has left there nor what comes to lie over it is taken for
/// anything else.
#[test]
fn what_comes_behind_a_crash_survives_the_next_one() {
    let base = base(32 * MIB);
    let path = || "again".to_owned();
    let write = |offset, fill| Step::Write {
        path: path(),
        offset,
        len: 9000,
        fill,
    };
    let more = [
        Step::Creat { path: path() },
        write(0, 1),
        Step::Fsync { path: path() },
        write(5000, 2),
        Step::Fsync { path: path() },
    ];
    let mut states = 0;
    for (seed, program) in (0..12).zip(ace::sample(13, 12)) {
        let options = || scarce(seed / 2);
        let history = History::run(&base, options(), &program, |_, _| ());
        let recording = history.recorder().recording();
        for first in recording.states(&plan(seed)).step_by(23) {
            let again = History::run(&first.device().to_vec(), options(), &more, |_, _| ());
            let explored = again.explore(&Plan {
                samples: 2,
                subsets_max: 8,
                ..plan(seed)
            });
            let told = format!("{}, first `{}`", ace::line(&program), first.id());
            states += explored.expect_none_failed_in(told);
        }
    }
    println!("{states} states");
}

/// A log with holes in segments that are full, the end of one among them, and a file `old` of so many blocks in them.
const OLD_BLOCKS: u64 = 1100;

fn with_holes() -> Vec<u8> {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.put("old", &bytes(3, OLD_BLOCKS as usize * 4096))
        .unwrap();
    tree.put("rest", &bytes(4, 300 * 4096)).unwrap();
    tree.0.checkpoint().unwrap();
    for block in (0..OLD_BLOCKS).filter(|block| block % 37 == 0 || block % 511 > 505) {
        tree.allocate("old", block * 4096, 4096, 3).unwrap();
    }
    tree.0.close().unwrap();
    let layout = tree.0.layout();
    let full = layout.count(HeadKind::WarmData, Use::Full);
    assert!(full >= 2, "{full}");
    device.to_vec()
}

/// A program of which every step is followed by writes to `old`, and some of those by an fsync of it.
fn over_and_over(seed: u64, program: &[Step]) -> Vec<Step> {
    let mut random = seed;
    let mut below = |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    let path = || "old".to_owned();
    let mut steps = Vec::new();
    for step in program {
        steps.push(step.clone());
        for _ in 0..5 {
            steps.push(Step::Write {
                path: path(),
                offset: below(OLD_BLOCKS - 4) * 4096,
                len: (1 + below(4)) * 4096,
                fill: below(256) as u8,
            });
        }
        if below(2) == 0 {
            steps.push(Step::Fsync { path: path() });
        }
    }
    steps
}

/// Explores some states of a history, none of which may fail, and says how many.
fn explore_some(history: &History, seed: u64, program: &[Step]) -> u64 {
    let explored = history.explore(&Plan {
        subsets_max: 16,
        samples: 2,
        tears: 1,
        seed,
    });
    explored.expect_none_failed_in(ace::line(program)) as u64
}

#[test]
fn what_goes_to_holes_survives_every_crash() {
    let base = with_holes();
    let wanted = wanted(2500) as u64;
    let (mut states, mut threaded) = (0, 0);
    for (seed, program) in (0..).zip(ace::sample(19, 8)) {
        let options = Options {
            mode: Mode::Threaded,
            ..scarce(seed)
        };
        let program = over_and_over(seed, &program);
        let mut filled = 0;
        let history = History::run(&base, options, &program, |tree, number| {
            match (seed + number as u64) % 11 {
                2 | 8 => tree.0.checkpoint().unwrap(),
                5 => drop(tree.0.clean().unwrap()),
                _ => {}
            }
            filled = tree.0.condition().statistics.threaded;
        });
        threaded += filled;
        states += explore_some(&history, seed, &program);
        if seed >= 2 && states >= wanted {
            break;
        }
    }
    assert!(threaded > 20, "{threaded}");
    println!("{states} states, {threaded} segments had holes filled");
}

/// A full log with a file of which every third page was given up, between others in the same packed blocks.
fn full_and_loose() -> Vec<u8> {
    const PAGES: u64 = 1700;
    let device = device(32 * MIB);
    let tree = open_with(device.clone(), with(Policy::Force));
    let page = |seed| [bytes(seed, 1300), vec![0; 4096 - 1300]].concat();
    let content: Vec<u8> = (0..PAGES).flat_map(page).collect();
    tree.put("old", &content).unwrap();
    tree.0.checkpoint().unwrap();
    for page in (0..PAGES).step_by(3) {
        tree.allocate("old", page * 4096, 4096, 3).unwrap();
    }
    tree.create("rest").unwrap();
    let free = tree.0.statfs().unwrap().blocks_free;
    tree.allocate("rest", 0, (free - 30) * 4096, 1).unwrap();
    tree.0.close().unwrap();
    device.to_vec()
}

#[test]
fn room_that_is_made_before_who_writes_is_refused_survives_every_crash() {
    let base = full_and_loose();
    let wanted = wanted(1000) as u64;
    let (mut states, mut cleaned) = (0, 0);
    for (seed, program) in (0..).zip(ace::sample(29, 6)) {
        let mut by_this = 0;
        let history = History::run(&base, scarce(seed), &program, |tree, _| {
            by_this = tree.0.condition().statistics.cleaned;
        });
        cleaned += by_this;
        states += explore_some(&history, seed, &program);
        if seed >= 2 && states >= wanted {
            break;
        }
    }
    assert!(cleaned > 2, "{cleaned}");
    println!("{states} states, {cleaned} segments were cleaned");
}

/// A device that forgets one of the flushes.
struct Deaf {
    inner: Arc<Recorder>,
    forgotten: usize,
    flushes: AtomicUsize,
}

impl Device for Deaf {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

impl WritableDevice for Deaf {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        match self.flushes.fetch_add(1, Ordering::Relaxed) == self.forgotten {
            true => Ok(()),
            false => self.inner.flush(),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}

/// Tests that what the other tests find is worth as much as what they would have found.
#[test]
fn no_flush_can_be_left_out_unnoticed() {
    let base = base(32 * MIB);
    let path = |path: &str| path.to_owned();
    let write = |offset| Step::Write {
        path: path("foo"),
        offset,
        len: 20_000,
        fill: 1 + (offset / 10_000) as u8,
    };
    let program = [
        Step::Creat { path: path("foo") },
        write(0),
        Step::Fsync { path: path("foo") },
        write(20_000),
        Step::Fsync { path: path("foo") },
        Step::Rename {
            from: path("foo"),
            to: path("bar"),
        },
        Step::Sync,
    ];
    let run = |forgotten| {
        let between = |tree: &Tree, number| {
            if number == 3 {
                tree.0.checkpoint().unwrap();
            }
        };
        let options = Options {
            policy: Policy::None,
            ..scarce(1)
        };
        History::run_through(&base, options, &program, between, |inner| {
            Arc::new(Deaf {
                inner,
                forgotten,
                flushes: AtomicUsize::new(0),
            })
        })
    };
    let whole = run(usize::MAX);
    let flushes = whole
        .recorder()
        .recording()
        .operations()
        .iter()
        .filter(|done| matches!(done, Operation::Flush))
        .count();
    whole.explore(&plan(0)).expect_none_failed();
    // Two of the first checkpoint, one of the first promise, two of the checkpoint between, which has kept the second one
    // already, and one of the last.
    assert_eq!(flushes, 6);
    let missed: Vec<usize> = (0..flushes)
        .filter(|&forgotten| {
            let explored = run(forgotten).explore(&Plan {
                subsets_max: 4096,
                samples: 400,
                ..plan(1)
            });
            !explored.failures.is_empty()
        })
        .collect();
    // What the first checkpoint refers to was there before.
    assert_eq!(missed, [1, 2, 3, 4, 5]);
}

#[test]
fn a_log_that_was_here_before_is_not_taken_for_the_new_one() {
    let device = Arc::new(MemoryDevice::new(vec![0; 32 << 20]));
    let make = |uuid: u8| {
        let device: Arc<dyn WritableDevice> = device.clone();
        let shape = Shape {
            uuid: [uuid; 16],
            hash_seed: [9; 16],
            ..Shape::default()
        };
        mkfs(&device, &shape, Caller::default(), &options()).unwrap();
        open(device)
    };
    let old = make(1);
    for n in 0..5 {
        old.put(&format!("old{n}"), &bytes(n, 10_000)).unwrap();
        old.fsync(&format!("old{n}")).unwrap();
    }
    drop(old);
    // With another UUID, and with the same one: then all lies where it lay before.
    for uuid in [2, 1] {
        drop(make(uuid));
        let tree = open(device.clone());
        assert_eq!(tree.0.recovery().groups, 0);
        assert_eq!(tree.list("").unwrap(), [""; 0]);
        drop(tree);
        let new = make(uuid);
        new.put("new", b"new").unwrap();
        new.fsync("new").unwrap();
        drop(new);
        let tree = open(device.clone());
        assert_eq!(tree.0.recovery().groups, 1);
        assert_eq!(tree.list("").unwrap(), ["new"]);
    }
}
