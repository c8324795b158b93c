//! Operations within the bounds, and what may be made lasting after each.

use super::step::{Falloc, ROOT};

const FILES: [&str; 2] = ["foo", "A/foo"];
const OTHER_FILES: [&str; 3] = ["bar", "A/bar", "A/C/bar"];
const DIRECTORIES: [&str; 1] = ["A"];
const OTHER_DIRECTORIES: [&str; 2] = ["B", "A/C"];

/// Tells where in a file something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// 32 KiB from the end on.
    Append,
    /// 5000 bytes from the beginning on, or 8 KiB where it has to be aligned.
    Start,
    /// 5000 bytes, of which 3000 lie beyond the end.
    Extend,
}

/// The operation that a program is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
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
pub(super) enum Persistence {
    Nothing,
    Fsync(&'static str),
    Fdatasync(&'static str),
    /// Syncs what the operation has written to a mapping.
    Msync,
    Sync,
}

/// The operations within the bounds, by kind.
pub(super) fn operations() -> Vec<Vec<Operation>> {
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
    pub(super) fn paths(self) -> Vec<&'static str> {
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
    pub(super) fn persistences(self, used: &[&'static str]) -> Vec<Persistence> {
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

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or(ROOT, |(parent, _)| parent)
}

pub(super) fn is_directory(path: &str) -> bool {
    !path.ends_with("foo") && !path.ends_with("bar")
}

/// Returns whether a path is another one, or lies below it.
pub(super) fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
