//! Small programs for crash tests, all there are within bounds: one operation on a few files, and a call that makes
//! something lasting. Most faults that file systems had after a crash need no more than that.
//!
//! The bounds are those of the Automatic Crash Explorer of CrashMonkey (Mohan et al., OSDI 2018), to which this module
//! owes the idea and nothing else: its operations, its files, its lengths and offsets, and its rule that what is persisted
//! is a file that was used, a sibling of it, or its directory. There, `ace.py -l 1` counts 435 programs; here they
//! are 430, since the other 5 would move a directory into itself. Beyond these there are: `fdatasync`, `msync` after
//! writes to a mapping (the original makes 4 programs out of 16 there), and directories that are removed.
//!
//! A program is a list of [`Step`]s and knows no file system. What an operation needs, such as a file that is there or has
//! content, is in the steps before it, and nothing makes that lasting by itself.

mod builder;
mod operation;
mod run;
mod step;

use std::collections::HashSet;

use crate::trees::Random;
use builder::build;
use operation::{Operation, Persistence, operations};

pub use step::{Falloc, Program, ROOT, Step, line};

/// All programs of one operation, each once.
pub fn seq1() -> Vec<Program> {
    let mut seen = HashSet::new();
    let mut programs = Vec::new();
    for operation in operations().into_iter().flatten() {
        for persistence in operation.persistences(&operation.paths()) {
            let program = build(&[(operation, persistence)]);
            if seen.insert(program.clone()) {
                programs.push(program);
            }
        }
    }
    programs
}

/// Programs of so many operations at random, without end. All kinds of operations are as likely; each may be followed by
/// a promise, and the last one is.
pub fn sample(seed: u64, length: usize) -> impl Iterator<Item = Program> {
    let mut random = Random(seed);
    let operations = operations();
    std::iter::repeat_with(move || {
        let chosen: Vec<Operation> = (0..length)
            .map(|_| {
                let kind = pick(&mut random, &operations);
                *pick(&mut random, kind)
            })
            .collect();
        let used: Vec<_> = chosen
            .iter()
            .flat_map(|operation| operation.paths())
            .collect();
        let steps: Vec<_> = chosen
            .iter()
            .enumerate()
            .map(|(at, operation)| {
                let mut choices = operation.persistences(&used);
                if at + 1 < length {
                    choices.push(Persistence::Nothing);
                }
                (*operation, pick(&mut random, &choices).clone())
            })
            .collect();
        build(&steps)
    })
}

fn pick<'a, T>(random: &mut Random, items: &'a [T]) -> &'a T {
    &items[random.below(items.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::operation::{Place, is_directory};
    use super::*;

    /// States what `ace.py -l 1` says.
    const COUNTED_THERE: usize = 435;

    /// Directories below themselves, each with the five things that could be persisted then: `A`, `B`, `A/C`, the
    /// root, and everything.
    const IMPOSSIBLE: usize = 5;

    #[test]
    fn the_space_is_as_large_as_that_of_the_original() {
        let is_theirs = |(operation, persistence): &(Operation, Persistence)| {
            let removes_directory =
                matches!(operation, Operation::Remove(path) if is_directory(path));
            let persists = matches!(persistence, Persistence::Fsync(_) | Persistence::Sync);
            persists && !removes_directory
        };
        let all = operations().into_iter().flatten().flat_map(|operation| {
            let persistences = operation.persistences(&operation.paths());
            persistences
                .into_iter()
                .map(move |persistence| (operation, persistence))
        });
        assert_eq!(all.filter(is_theirs).count() + IMPOSSIBLE, COUNTED_THERE);
    }

    #[test]
    fn what_an_operation_needs_comes_before_it() {
        let program = |operations: &[(Operation, Persistence)]| line(&build(operations));
        let fsync = Persistence::Fsync;
        assert_eq!(
            program(&[(Operation::Write("A/foo", Place::Extend), fsync("A"))]),
            "mkdir A; creat A/foo; write A/foo 0+32768; write A/foo 30768+5000; fsync /A"
        );
        assert_eq!(
            program(&[(Operation::RemoveXattr("foo"), fsync("bar"))]),
            "creat foo; setxattr foo; removexattr foo; creat bar; fsync /bar"
        );
        assert_eq!(
            program(&[
                (Operation::Link("foo", "A/C/bar"), Persistence::Nothing),
                (Operation::Rename("A", "B"), Persistence::Nothing),
                (Operation::Mkdir("A"), Persistence::Sync),
            ]),
            "creat foo; mkdir A; mkdir A/C; link foo A/C/bar; rename A B; mkdir A; sync"
        );
        assert_eq!(
            program(&[
                (Operation::Unlink("A/C/bar"), fsync("A/C/bar")),
                (Operation::Mkdir("A"), Persistence::Sync),
            ]),
            "mkdir A; mkdir A/C; creat A/C/bar; unlink A/C/bar; creat A/C/bar; fsync /A/C/bar; \
             unlink A/C/bar; rmdir A/C; rmdir A; mkdir A; sync"
        );
        let nothing = Persistence::Nothing;
        assert_eq!(
            program(&[
                (Operation::Link("foo", "bar"), nothing.clone()),
                (Operation::Rename("foo", "bar"), nothing),
                (Operation::Unlink("foo"), Persistence::Sync),
            ]),
            "creat foo; link foo bar; rename foo bar; unlink foo; sync"
        );
        assert_eq!(
            program(&[(
                Operation::MmapWrite("foo", Place::Append),
                Persistence::Msync
            )]),
            "creat foo; falloc foo Allocate 0+32768; mmapwrite foo 0+32768; msync foo 0+32768"
        );
    }

    #[test]
    fn a_seed_gives_the_same_programs_again() {
        let some = |seed| sample(seed, 2).take(50).collect::<Vec<_>>();
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
        for program in some(3) {
            assert!(program.last().unwrap().is_promise(), "{}", line(&program));
        }
    }
}
