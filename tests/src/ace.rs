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

use std::collections::HashSet;
use std::fmt;

use crate::trees::Random;

mod builder;
mod run;

use builder::build;

/// The root of the files, as a path.
pub const ROOT: &str = "";

const FILES: [&str; 2] = ["foo", "A/foo"];
const OTHER_FILES: [&str; 3] = ["bar", "A/bar", "A/C/bar"];
const DIRECTORIES: [&str; 1] = ["A"];
const OTHER_DIRECTORIES: [&str; 2] = ["B", "A/C"];

/// States what a direct write has to be aligned to.
const ALIGNED: u64 = 4096;

/// Tells what `fallocate` is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Falloc {
    /// Zeros in a range, beyond the end as well.
    ZeroRange,
    /// Zeros in a range, and the file stays as long as it is.
    ZeroRangeKeepSize,
    /// A hole.
    PunchHole,
    /// Space, and the file stays as long as it is.
    KeepSize,
    /// Space.
    Allocate,
}

impl Falloc {
    const ALL: [Self; 5] = [
        Self::ZeroRange,
        Self::ZeroRangeKeepSize,
        Self::PunchHole,
        Self::KeepSize,
        Self::Allocate,
    ];

    const fn extends(self) -> bool {
        matches!(self, Self::ZeroRange | Self::Allocate)
    }
}

/// A step of a program. Paths are relative to [`ROOT`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the fields are what the call of that name takes
pub enum Step {
    /// A new, empty file.
    Creat { path: String },
    /// A new directory.
    Mkdir { path: String },
    /// `fallocate`.
    Falloc {
        path: String,
        mode: Falloc,
        offset: u64,
        len: u64,
    },
    /// A write of one byte, many times.
    Write {
        path: String,
        offset: u64,
        len: u64,
        fill: u8,
    },
    /// The same past the page cache.
    DirectWrite {
        path: String,
        offset: u64,
        len: u64,
        fill: u8,
    },
    /// The same through a mapping. The file is long enough.
    MmapWrite {
        path: String,
        offset: u64,
        len: u64,
        fill: u8,
    },
    /// Another name of a file.
    Link { from: String, to: String },
    /// A name of a file is taken away.
    Unlink { path: String },
    /// An empty directory is taken away.
    Rmdir { path: String },
    /// One or the other, by what there is: `remove` of C.
    Remove { path: String },
    /// `rename`. What is there under the new name gives way.
    Rename { from: String, to: String },
    /// The attribute `user.ace` is set.
    SetXattr { path: String },
    /// It is taken away.
    RemoveXattr { path: String },
    /// `truncate`.
    Truncate { path: String, size: u64 },
    /// `fsync` of a file or directory.
    Fsync { path: String },
    /// `fdatasync` of a file.
    Fdatasync { path: String },
    /// `msync` of what was written to a mapping.
    Msync { path: String, offset: u64, len: u64 },
    /// All of the file system.
    Sync,
}

impl Step {
    /// Returns whether something is promised when it has returned.
    pub fn is_promise(&self) -> bool {
        matches!(
            self,
            Self::Fsync { .. } | Self::Fdatasync { .. } | Self::Msync { .. } | Self::Sync
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creat { path } => write!(f, "creat {path}"),
            Self::Mkdir { path } => write!(f, "mkdir {path}"),
            Self::Falloc {
                path,
                mode,
                offset,
                len,
            } => write!(f, "falloc {path} {mode:?} {offset}+{len}"),
            Self::Write {
                path, offset, len, ..
            } => write!(f, "write {path} {offset}+{len}"),
            Self::DirectWrite {
                path, offset, len, ..
            } => write!(f, "dwrite {path} {offset}+{len}"),
            Self::MmapWrite {
                path, offset, len, ..
            } => write!(f, "mmapwrite {path} {offset}+{len}"),
            Self::Link { from, to } => write!(f, "link {from} {to}"),
            Self::Unlink { path } => write!(f, "unlink {path}"),
            Self::Rmdir { path } => write!(f, "rmdir {path}"),
            Self::Remove { path } => write!(f, "remove {path}"),
            Self::Rename { from, to } => write!(f, "rename {from} {to}"),
            Self::SetXattr { path } => write!(f, "setxattr {path}"),
            Self::RemoveXattr { path } => write!(f, "removexattr {path}"),
            Self::Truncate { path, size } => write!(f, "truncate {path} {size}"),
            Self::Fsync { path } => write!(f, "fsync /{path}"),
            Self::Fdatasync { path } => write!(f, "fdatasync {path}"),
            Self::Msync { path, offset, len } => write!(f, "msync {path} {offset}+{len}"),
            Self::Sync => f.write_str("sync"),
        }
    }
}

/// Steps, to be done one after the other on an empty file system.
pub type Program = Vec<Step>;

/// A program in one line.
pub fn line(program: &[Step]) -> String {
    let steps: Vec<String> = program.iter().map(Step::to_string).collect();
    steps.join("; ")
}

/// Tells where in a file something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// 32 KiB from the end on.
    Append,
    /// 5000 bytes from the beginning on, or 8 KiB where it has to be aligned.
    Start,
    /// 5000 bytes, of which 3000 lie beyond the end.
    Extend,
}

/// The operation that a program is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Creat(&'static str),
    Mkdir(&'static str),
    Falloc(&'static str, Falloc, Place),
    Write(&'static str, Place),
    DirectWrite(&'static str, Place),
    MmapWrite(&'static str, Place),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    Remove(&'static str),
    Rename(&'static str, &'static str),
    SetXattr(&'static str),
    RemoveXattr(&'static str),
    Truncate(&'static str, u64),
}

/// Tells what is made lasting after an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Persistence {
    Nothing,
    Fsync(&'static str),
    Fdatasync(&'static str),
    /// Syncs what the operation has written to a mapping.
    Msync,
    Sync,
}

/// The operations within the bounds, by kind.
fn operations() -> Vec<Vec<Operation>> {
    use Operation as Op;
    use Place::{Append, Extend, Start};
    let all_files = || FILES.into_iter().chain(OTHER_FILES);
    let each = |operation: fn(&'static str) -> Op| FILES.map(operation).to_vec();
    let placed = |places: &[Place], operation: fn(&'static str, Place) -> Op| {
        let file = |file| places.iter().map(move |&place| operation(file, place));
        FILES.into_iter().flat_map(file).collect()
    };
    let pairs = |from: &[&'static str], to: &[&'static str], operation: fn(_, _) -> Op| {
        let pairs = from
            .iter()
            .flat_map(|&from| to.iter().map(move |&to| (from, to)));
        let pairs = pairs.filter(|(from, to)| !is_within(to, from));
        pairs
            .map(|(from, to)| operation(from, to))
            .collect::<Vec<_>>()
    };
    let files: Vec<_> = all_files().collect();
    let directories: Vec<_> = DIRECTORIES.into_iter().chain(OTHER_DIRECTORIES).collect();
    let falloc = Falloc::ALL.into_iter().flat_map(|mode| {
        let places = [Append, Start, Extend].into_iter();
        places.flat_map(move |place| FILES.map(|file| Op::Falloc(file, mode, place)))
    });
    let truncate = FILES
        .into_iter()
        .flat_map(|file| [0, 2500].map(|size| Op::Truncate(file, size)));
    let renamed_directories = pairs(&directories, &OTHER_DIRECTORIES, Op::Rename);
    vec![
        each(Op::Creat),
        DIRECTORIES.map(Op::Mkdir).to_vec(),
        falloc.collect(),
        placed(&[Append, Start, Extend], Op::Write),
        placed(&[Append, Start], Op::DirectWrite),
        placed(&[Append, Start], Op::MmapWrite),
        pairs(&files, &OTHER_FILES, Op::Link),
        all_files().map(Op::Unlink).collect(),
        all_files()
            .chain(directories.iter().copied())
            .map(Op::Remove)
            .collect(),
        [pairs(&files, &OTHER_FILES, Op::Rename), renamed_directories].concat(),
        each(Op::SetXattr),
        each(Op::RemoveXattr),
        truncate.collect(),
    ]
}

impl Operation {
    fn paths(self) -> Vec<&'static str> {
        match self {
            Self::Creat(path)
            | Self::Mkdir(path)
            | Self::Falloc(path, ..)
            | Self::Write(path, _)
            | Self::DirectWrite(path, _)
            | Self::MmapWrite(path, _)
            | Self::Unlink(path)
            | Self::Remove(path)
            | Self::SetXattr(path)
            | Self::RemoveXattr(path)
            | Self::Truncate(path, _) => vec![path],
            Self::Link(from, to) | Self::Rename(from, to) => vec![from, to],
        }
    }

    /// Returns what can be persisted after it in a program that uses these paths.
    fn persistences(self, used: &[&'static str]) -> Vec<Persistence> {
        let range = range(used);
        let files = range.iter().filter(|path| !is_directory(path));
        let files: Vec<_> = files.map(|path| Persistence::Fdatasync(path)).collect();
        let mut all: Vec<_> = range.into_iter().map(Persistence::Fsync).collect();
        all.push(Persistence::Sync);
        all.extend(files);
        if matches!(self, Self::MmapWrite(..)) {
            all.push(Persistence::Msync);
        }
        all
    }
}

/// Paths, their siblings and their directories.
fn range(used: &[&'static str]) -> Vec<&'static str> {
    let mut range: Vec<_> = used
        .iter()
        .flat_map(|&path| [path, sibling(path), parent(path)])
        .collect();
    range.sort_unstable();
    range.dedup();
    range
}

fn sibling(path: &'static str) -> &'static str {
    match path {
        "foo" => "bar",
        "bar" => "foo",
        "A/foo" => "A/bar",
        "A/bar" => "A/foo",
        "A/C/foo" => "A/C/bar",
        "A/C/bar" => "A/C/foo",
        "A" => "B",
        "B" => "A",
        alone => alone,
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or(ROOT, |(parent, _)| parent)
}

fn is_directory(path: &str) -> bool {
    !path.ends_with("foo") && !path.ends_with("bar")
}

/// Returns whether a path is another one, or lies below it.
fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

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
