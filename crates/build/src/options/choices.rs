//! Choices that a build may be given, one for each kind.

use regex::bytes::Regex;

use crate::Error;

/// Tells in which order files are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As they are listed: what lies in a directory lies together.
    #[default]
    Path,
    /// Of a stream whose files are not compressed, as they come, so that they are written but once: with
    /// [`Options::inline_data`](crate::Options::inline_data) off. Else as they are listed.
    Stream,
    /// As listed, but in groups of neighbouring directories, some 16 MiB each, files of the same name lie together.
    Group,
    /// Files of the same name lie together, where the first of them is listed.
    Name,
    /// Files of one kind lie together, as their first bytes and their extensions tell; else as by name.
    Kind,
}

/// Tells what becomes of holes in sparse files. Where they lie is up to the source's file system,
/// so two copies of a tree may differ there; only [`Holes::Ignore`] makes nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// Sparse files are stored in chunks, uncompressed, and keep their holes.
    Keep,
    /// Like `Keep` without compression. With it, only for files whose data is an eighth of their
    /// size or less: the others are compressed, holes and all.
    Auto,
    /// Holes are zeros like others.
    Ignore,
}

/// Tells what becomes of the content of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// Stores it in the image.
    #[default]
    Copy,
    /// Leaves it in images that are sources, which become extra devices of the image. Content that does not lie there in blocks,
    /// and that of other sources, is stored in the image.
    Refer,
    /// Leaves room for it in the image, uncompressed, and reads nothing. Whoever wants to fills it in.
    Reserve,
    /// Makes holes of files, and reads nothing.
    Zero,
}

/// The form of inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InodeForm {
    /// Compact where nothing is lost by it.
    Auto,
    /// Compact, or an error where owner, links or size do not fit; times are dropped that do not fit.
    Compact,
    /// Extended.
    Extended,
}

/// The UUID of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UuidChoice {
    /// A hash of all other bytes (UUID version 8).
    FromContent,
    /// This one, all zeros for none.
    Given([u8; 16]),
}

/// Tells what to leave out.
#[derive(Debug, Clone)]
pub enum Exclude {
    /// This path, relative to the source; slashes around it do not matter.
    Path(Vec<u8>),
    /// Each path, relative to the source, in which the expression is found.
    Pattern(Regex),
}

impl Exclude {
    /// An exclusion by regular expression, in the syntax of the `regex` crate.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if it is none.
    pub fn pattern(expression: &str) -> Result<Self, Error> {
        let regex = Regex::new(expression);
        regex
            .map(Self::Pattern)
            .map_err(|e| Error::Option(format!("the exclusion `{expression}`: {e}")))
    }

    /// Returns whether it leaves out this path, given relative to the source.
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Path(excluded) => trim_slashes(excluded) == path,
            Self::Pattern(regex) => regex.is_match(path),
        }
    }
}

/// The path of an entry; that of the directory itself if it has no name.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        (b"", name) => name.to_vec(),
        (directory, b"") => directory.to_vec(),
        (directory, name) => [directory, name].join(&b'/'),
    }
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let is_slash = |b: &u8| *b == b'/';
    let Some(start) = path.iter().position(|b| !is_slash(b)) else {
        return b"";
    };
    let end = path.iter().rposition(|b| !is_slash(b)).expect("as above");
    &path[start..=end]
}
