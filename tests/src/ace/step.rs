//! Steps of programs.

use std::fmt;

/// The root of the files, as a path.
pub const ROOT: &str = "";

/// States what a direct write has to be aligned to.
pub(super) const ALIGNED: u64 = 4096;

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
    pub(super) const ALL: [Self; 5] = [
        Self::ZeroRange,
        Self::ZeroRangeKeepSize,
        Self::PunchHole,
        Self::KeepSize,
        Self::Allocate,
    ];

    pub(super) const fn extends(self) -> bool {
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
    /// Writes past the page cache.
    DirectWrite {
        path: String,
        offset: u64,
        len: u64,
        fill: u8,
    },
    /// Writes through a mapping. The file is long enough.
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
