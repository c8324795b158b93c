//! A device that fails, at every one of its calls: the file system answers errors, becomes read-only where it has to,
//! and when the device works again, everything that had been acknowledged is there.

mod support;

use std::sync::Arc;

use anteros_core::{Counted, FsResult, Writable};
use anteros_log::{Log, Options, check};
use anteros_tests::faulty::{Call, Faulty, When};
use rustix::io::Errno;
use support::history::Snapshot;
use support::overlay::{Base, Overlay};
use support::*;

/// Tells what a step promises when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    Nothing,
    /// All names, and the content of this file.
    Content(&'static str),
    /// All of it.
    Everything,
}

type Step = (Promise, fn(&Tree) -> FsResult<()>);

/// A program with a bit of everything.
const PROGRAM: &[Step] = &[
    (Promise::Nothing, |tree| tree.mkdir("d")),
    (Promise::Nothing, |tree| tree.create("d/f")),
    (Promise::Nothing, |tree| {
        tree.write("d/f", 0, &bytes(1, 100_000)).map(drop)
    }),
    (Promise::Content("d/f"), |tree| tree.fsync("d/f")),
    (Promise::Nothing, |tree| tree.create("large")),
    (Promise::Nothing, |tree| {
        tree.write("large", 0, &bytes(2, 2_500_000)).map(drop)
    }),
    (Promise::Everything, |tree| tree.0.checkpoint()),
    (Promise::Nothing, |tree| {
        tree.write("large", 1_000_001, &bytes(3, 5000)).map(drop)
    }),
    (Promise::Content("large"), |tree| tree.fsync("large")),
    (Promise::Nothing, |tree| {
        tree.allocate("large", 10_000, 2_300_000, 3)
    }),
    (Promise::Nothing, |tree| tree.rename("d/f", "g", 0)),
    (Promise::Content("d"), |tree| tree.fsync("d")),
    (Promise::Nothing, |tree| tree.0.clean().map(drop)),
    (Promise::Nothing, |tree| tree.create("new")),
    (Promise::Nothing, |tree| {
        tree.write("new", 0, b"new").map(drop)
    }),
    (Promise::Nothing, |tree| tree.rename("new", "g", 0)),
    (Promise::Content("large"), |tree| tree.fsync("large")),
    (Promise::Nothing, |tree| {
        tree.0
            .setxattr(tree.ino("large")?, b"user.name", &[5; 2000], 0)
    }),
    (Promise::Everything, |tree| tree.0.sync()),
    (Promise::Nothing, |tree| tree.unlink("large")),
    (Promise::Everything, |tree| tree.0.checkpoint()),
    (Promise::Nothing, |tree| tree.0.clean().map(drop)),
    (Promise::Nothing, |tree| tree.link("g", "d/again")),
    (Promise::Nothing, |tree| tree.truncate("g", 9000)),
    (Promise::Nothing, many),
    (Promise::Content("g"), |tree| tree.fsync("g")),
    (Promise::Nothing, |tree| {
        tree.rmdir("e").or_else(|_| tree.mkdir("e"))
    }),
    (Promise::Everything, |tree| tree.0.close()),
];

/// Names for which a directory needs a tree; those that are there already are left alone.
fn many(tree: &Tree) -> FsResult<()> {
    for n in 0..60 {
        let path = format!("d/{n}-{}", "x".repeat(150));
        match tree.ino(&path) {
            Ok(_) => {}
            Err(anteros_core::FsError::NotFound) => tree.create(&path)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn small() -> Options {
    options_with(1 << 20)
}

/// A log in which something is already, so that there is something to read.
fn base() -> Base {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    for n in 0..100 {
        tree.create(&format!("old{n}-{}", "x".repeat(100))).unwrap();
    }
    tree.put("old", &bytes(9, 2_000_000)).unwrap();
    tree.0.close().unwrap();
    Base::new(&device.to_vec())
}

type Device = Faulty<Overlay>;

fn device_of(base: &Base) -> Arc<Device> {
    Arc::new(Faulty::new(Overlay::new(base, u64::MAX)))
}

/// Returns what there is after each step, beginning with what was there before.
fn snapshots(base: &Base) -> Vec<Snapshot> {
    let tree = open_with(device_of(base), small());
    let mut snapshots = vec![Snapshot::of(&tree).unwrap()];
    for (number, (_, step)) in PROGRAM.iter().enumerate() {
        step(&tree).unwrap_or_else(|error| panic!("step {number}: {error}"));
        snapshots.push(Snapshot::of(&tree).unwrap());
    }
    snapshots
}

/// Returns how often each kind of call is made by the program; the mount is not counted.
fn calls(base: &Base) -> [(Call, u64); 4] {
    let device = Arc::new(Counted::new(Overlay::new(base, u64::MAX)));
    let tree = open_with(device.clone(), small());
    let before = device.counts();
    for (_, step) in PROGRAM {
        step(&tree).unwrap();
    }
    let after = device.counts();
    [
        (Call::Read, after.reads - before.reads),
        (Call::Write, after.writes - before.writes),
        (Call::Flush, after.flushes - before.flushes),
        (Call::Discard, after.discards - before.discards),
    ]
}

/// Checks that what is found is allowed when the steps up to `done` have returned and the next one may have.
fn judge(snapshots: &[Snapshot], done: usize, found: &Snapshot) -> Result<(), String> {
    let last = (done + 1).min(PROGRAM.len());
    let promised = |number: usize| PROGRAM[number - 1].0;
    let named = (1..=done)
        .rev()
        .find(|&number| promised(number) != Promise::Nothing)
        .unwrap_or(0);
    if !snapshots[named..=last]
        .iter()
        .any(|then| then.names == found.names)
    {
        return Err(format!(
            "the names are of no moment from step {named} to {last}"
        ));
    }
    for (ino, content) in &found.contents {
        let is_it = |number: usize, path: &str| {
            snapshots[number]
                .names
                .get(path)
                .is_some_and(|known| known.ino == *ino)
        };
        let kept = |&number: &usize| match promised(number) {
            Promise::Nothing => false,
            Promise::Content(path) => is_it(number, path),
            Promise::Everything => true,
        };
        let since = (1..=done).rev().find(kept).unwrap_or(0);
        let is_moment = snapshots[since..=last]
            .iter()
            .any(|then| then.contents.get(ino) == Some(content));
        let is_new = content.is_empty() && !snapshots[since].contents.contains_key(ino);
        if !is_moment && !is_new {
            return Err(format!(
                "inode {ino} has {} bytes that it had at no moment since step {since}",
                content.len()
            ));
        }
    }
    Ok(())
}

/// Runs the program until a step fails, and says how many have not.
fn run(tree: &Tree) -> usize {
    PROGRAM
        .iter()
        .position(|(_, step)| step(tree).is_err())
        .unwrap_or(PROGRAM.len())
}

/// Checks that what the device holds is whole, and what was acknowledged is there.
fn judge_device(device: &Arc<Device>, snapshots: &[Snapshot], done: usize) -> Result<(), String> {
    let report = check(device.clone(), options()).map_err(|error| format!("no check: {error}"))?;
    if report.fault_count > 0 {
        return Err(format!("check finds {:?}", report.faults));
    }
    let tree =
        Tree(Log::open(device.clone(), options()).map_err(|error| format!("no mount: {error}"))?);
    let found = Snapshot::of(&tree)?;
    judge(snapshots, done, &found)?;
    let used = tree.0.condition().used_blocks;
    if !found.adds_up(used) {
        return Err(format!(
            "{used} blocks are in use, but the files have {}",
            found.blocks
        ));
    }
    tree.put("after", b"after")
        .and_then(|()| tree.fsync("after"))
        .map_err(|error| format!("nothing can be written: {error}"))
}

/// As long as the log that has failed stands, what it shows is what was there, or an error.
fn judge_failed(tree: &Tree, snapshots: &[Snapshot], done: usize) -> Result<(), String> {
    let why = tree.0.failure().ok_or("it has not noticed")?;
    if why.len() < 20 {
        return Err(format!("`{why}` says little"));
    }
    if tree.create("late").is_ok()
        || tree.0.sync().is_ok()
        || tree.0.checkpoint().is_ok()
        || tree.0.close().is_ok()
    {
        return Err("it goes on".to_owned());
    }
    for (path, known) in &snapshots[done].names {
        let (Ok(attr), Ok(content)) = (tree.attr(path), tree.read(path)) else {
            continue;
        };
        let last = (done + 1).min(PROGRAM.len());
        let is_moment = (done..=last)
            .any(|number| snapshots[number].contents.get(&attr.ino.0) == Some(&content));
        if attr.ino.0 == known.ino
            && snapshots[done].contents.contains_key(&known.ino)
            && !is_moment
        {
            let was = &snapshots[done].contents[&known.ino];
            let first = content
                .iter()
                .zip(was)
                .position(|(found, was)| found != was);
            let (found, was) = (content.len(), was.len());
            return Err(format!(
                "{path} reads as {found} bytes for {was} that it never had, from byte {first:?} on"
            ));
        }
    }
    Ok(())
}

#[test]
fn whatever_call_fails_what_was_acknowledged_stays() {
    let base = base();
    let snapshots = snapshots(&base);
    let mut runs = 0;
    for (call, count) in calls(&base) {
        // Of what is read there is another test, and one of discards.
        if matches!(call, Call::Read | Call::Discard) {
            continue;
        }
        assert!(count > 0, "no {call:?} can fail");
        for when in (0..count).flat_map(|n| [When::Nth(n), When::From(n)]) {
            let device = device_of(&base);
            let tree = open_with(device.clone(), small());
            device.inject(call, when.clone(), Errno::IO);
            let done = run(&tree);
            let place = format!("{call:?} {when:?}, {done} steps");
            assert!(done < PROGRAM.len(), "{place}: nobody was told");
            judge_failed(&tree, &snapshots, done)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            device.heal();
            judge_failed(&tree, &snapshots, done)
                .unwrap_or_else(|error| panic!("{place}, healed: {error}"));
            drop(tree);
            judge_device(&device, &snapshots, done)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            runs += 1;
        }
    }
    println!("{runs} runs");
}

/// Discards are advice: that they fail is told, and the log goes on.
#[test]
fn a_failed_discard_does_no_harm() {
    const ROUNDS: u64 = 4;
    let base = base();
    for (errno, told) in [(Errno::IO, true), (Errno::OPNOTSUPP, false)] {
        let device = Arc::new(Faulty::new(Counted::new(Overlay::new(&base, u64::MAX))));
        let tree = open_with(device.clone(), small());
        let mut arrived = Vec::new();
        for round in 0..ROUNDS {
            tree.put("new", &bytes(round, 3_000_000)).unwrap();
            tree.0.checkpoint().unwrap();
            tree.unlink("new").unwrap();
            if round == 1 {
                device.inject(Call::Discard, When::Nth(0), errno);
            }
            tree.0.checkpoint().unwrap();
            arrived.push(device.inner().counts().discards);
        }
        assert!(arrived[0] > 0, "{arrived:?}");
        // What is not supported is not tried again.
        assert_eq!(arrived[3] > arrived[0], told, "{arrived:?}");
        let failed = tree.0.condition().statistics.failed_discards;
        assert_eq!(failed, u64::from(told));
        let warnings = tree.0.take_warnings();
        assert_eq!(warnings.len(), usize::from(told), "{warnings:?}");
        assert!(tree.0.failure().is_none() && tree.0.take_warnings().is_empty());
        tree.put("kept", &bytes(1, 100_000)).unwrap();
        tree.0.close().unwrap();
        drop(tree);
        assert_sound(device.clone());
        assert_eq!(open(device).read("kept").unwrap(), bytes(1, 100_000));
    }
}

/// Of a tree that may have other inode numbers: paths, what they are, and what they hold.
fn shape(snapshot: &Snapshot) -> Vec<(String, u32, Option<Vec<u8>>)> {
    let names = snapshot.names.iter();
    names
        .map(|(path, known)| {
            (
                path.clone(),
                known.nlink,
                snapshot.contents.get(&known.ino).cloned(),
            )
        })
        .collect()
}

#[test]
fn what_could_not_be_read_once_does_no_harm() {
    let base = base();
    let snapshots = snapshots(&base);
    let (_, count) = calls(&base)[0];
    assert!(count > 5, "{count} reads");
    let (mut repeated, mut failed) = (0, 0);
    for nth in 0..count {
        let device = device_of(&base);
        let tree = open_with(device.clone(), small());
        device.inject(Call::Read, When::Nth(nth), Errno::IO);
        let mut done = 0;
        for (_, step) in PROGRAM {
            // What was refused can be done again.
            if step(&tree).is_err() && tree.0.failure().is_none() {
                repeated += 1;
                step(&tree)
                    .unwrap_or_else(|error| panic!("read {nth}, step {done} again: {error}"));
            }
            if tree.0.failure().is_some() {
                break;
            }
            done += 1;
        }
        device.heal();
        if done == PROGRAM.len() {
            let found = Snapshot::of(&tree).unwrap();
            assert!(shape(&found) == shape(&snapshots[done]), "read {nth}");
            drop(tree);
            let report = check(device, options()).unwrap();
            assert_eq!(report.faults, [""; 0], "read {nth}");
        } else {
            failed += 1;
            drop(tree);
            judge_device(&device, &snapshots, done)
                .unwrap_or_else(|error| panic!("read {nth}, {done} steps: {error}"));
        }
    }
    println!("{count} reads, {repeated} steps done again, {failed} logs read-only");
}

#[test]
fn a_device_that_fails_while_it_is_mounted_says_so() {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    tree.put("f", &bytes(1, 100_000)).unwrap();
    tree.fsync("f").unwrap();
    drop(tree);
    let base = Base::new(&device.to_vec());
    let counted = Arc::new(Counted::new(Overlay::new(&base, u64::MAX)));
    drop(open(counted.clone()));
    let counts = counted.counts();
    for (call, count) in [
        (Call::Read, counts.reads),
        (Call::Write, counts.writes),
        (Call::Flush, counts.flushes),
    ] {
        for nth in 0..count {
            let device = device_of(&base);
            device.inject(call, When::Nth(nth), Errno::IO);
            match Log::open(device.clone(), options()) {
                Err(_) => {}
                // What was read along can be done without.
                Ok(log) if call == Call::Read => {
                    let content = Tree(log).read("f").unwrap();
                    assert_eq!(content, bytes(1, 100_000), "{call:?} {nth}");
                }
                Ok(_) => panic!("{call:?} {nth}"),
            }
            device.heal();
            assert_eq!(
                open(device).read("f").unwrap(),
                bytes(1, 100_000),
                "{call:?} {nth}"
            );
        }
    }
}
