//! From a manifest, which lists files with their properties, to a [`Tree`](crate::tree::Tree).
//!
//! ```text
//! lines ─► mtree or dump ─► entry ─► files ─► draft of an archive ─► walk ─► tree
//!            └ escape                 └ sizes and digests
//! ```
//!
//! Owners, devices and attributes are what the manifest says, so nobody needs the rights to make them.
//! The content of files lies below a directory, and is opened there without following symbolic links.
//! Every byte is hostile: lines are bounded, numbers are checked, and each fault is told with its line.
//!
//! Invariant B9 of `docs/design/building.md`: an archive, a stream of one and a list give the image of the directory.

mod dump;
mod entry;
mod escape;
mod files;
mod lines;
mod mtree;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::source::directory::Directory;
use crate::source::listed::Listed;
use crate::source::{Scanned, Source};
use crate::stream::{self, Bytes};
use crate::tar::draft::Draft;
use crate::tar::fault::Fault;
use crate::tar::members::{Kind, Member, check_names, named};
use crate::tar::pax::Records;
use crate::tar::walk;
use crate::tree::Fingerprint;
use crate::{Error, Observer, Options};
use dump::Dump;
use entry::{Entry, Linked, What};
use files::Files;
use lines::Lines;
use mtree::Mtree;

/// Format of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestFormat {
    /// Lines of mtree(5), as bsdtar, the mtree of NetBSD and FreeBSD, and go-mtree write it.
    Mtree,
    /// Lines of composefs-dump(5).
    ComposefsDump,
}

/// A list of files with their properties. The content of files lies elsewhere.
pub struct Manifest<'a> {
    format: ManifestFormat,
    name: PathBuf,
    bytes: Bytes<'a>,
    content_root: Option<PathBuf>,
}

impl<'a> Manifest<'a> {
    /// Opens a manifest.
    ///
    /// # Errors
    ///
    /// [`Error::Source`] if it cannot be opened.
    pub fn open(format: ManifestFormat, path: &Path) -> Result<Self, Error> {
        let file = stream::open(path).map_err(|cause| Error::Source {
            path: path.to_owned(),
            action: "open the manifest",
            cause,
        })?;
        Ok(Self::from_file(format, path, file))
    }

    /// A manifest in a file, which may be a pipe. `name` stands for it in messages.
    pub fn from_file(format: ManifestFormat, name: impl Into<PathBuf>, file: File) -> Self {
        Self::new(format, name.into(), Bytes::File(file))
    }

    /// A manifest that is read once. `name` stands for it in messages.
    pub fn from_reader(
        format: ManifestFormat,
        name: impl Into<PathBuf>,
        reader: impl Read + 'a,
    ) -> Self {
        Self::new(format, name.into(), Bytes::Stream(Box::new(reader)))
    }

    fn new(format: ManifestFormat, name: PathBuf, bytes: Bytes<'a>) -> Self {
        Self {
            format,
            name,
            bytes,
            content_root: None,
        }
    }

    /// Names the directory below which the content of files lies. Nothing else is opened.
    #[must_use]
    pub fn content_root(self, directory: impl Into<PathBuf>) -> Self {
        Self {
            content_root: Some(directory.into()),
            ..self
        }
    }
}

impl fmt::Debug for Manifest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest")
            .field("format", &self.format)
            .field("name", &self.name)
            .field("content_root", &self.content_root)
            .finish_non_exhaustive()
    }
}

/// Reads lines of one of the formats.
enum Parser {
    Mtree(Box<Mtree>),
    Dump(Dump),
}

impl Parser {
    fn new(format: ManifestFormat) -> Self {
        match format {
            ManifestFormat::Mtree => Self::Mtree(Box::default()),
            ManifestFormat::ComposefsDump => Self::Dump(Dump),
        }
    }

    /// Reads a line; `None` if it tells of no file.
    fn line(&mut self, line: &[u8]) -> Result<Option<Entry>, String> {
        match self {
            Self::Mtree(mtree) => mtree.line(line),
            Self::Dump(dump) => dump.line(line).map(Some),
        }
    }

    /// Things that people should know, to be told as warnings.
    fn warnings(&mut self) -> Vec<String> {
        match self {
            Self::Mtree(mtree) => std::mem::take(&mut mtree.warnings),
            Self::Dump(_) => Vec::new(),
        }
    }

    /// Returns whether lines that end with a backslash go on in the next one.
    const fn has_long_lines(&self) -> bool {
        matches!(self, Self::Mtree(_))
    }

    /// Returns whether directories that are not listed are made.
    const fn makes_parents(&self) -> bool {
        matches!(self, Self::Mtree(_))
    }
}

/// Scans a manifest.
pub(crate) fn scan(
    manifest: Manifest<'_>,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
) -> Result<Scanned, Error> {
    let root = manifest.content_root.as_deref().map(Directory::open);
    let options = &Options {
        aufs_whiteouts: false, // those are names of archives
        ..options.clone()
    };
    let name = &*manifest.name;
    let unplaced = |fault| error_of(name, 0, fault);
    let mut scan = Scan {
        path: name,
        parser: Parser::new(manifest.format),
        files: Files::new(Listed::new(name.to_owned(), root.transpose()?), cancel),
        draft: Draft::new(options, false).map_err(unplaced)?,
        links: Vec::new(),
        observer,
        warnings: 0,
    };
    scan.all(Lines::new(manifest.bytes.reader(cancel), cancel))?;
    let Scan {
        files,
        draft,
        warnings,
        ..
    } = scan;
    let (listed, fingerprints) = files.finish();
    let mut finished = walk::finish(draft, Fingerprint::default());
    let numbers: Vec<u32> = finished.nodes.iter().map(|range| range.start).collect();
    for (node, content) in finished.tree.nodes.iter_mut().zip(&finished.nodes) {
        if !content.is_empty() {
            node.fingerprint = fingerprints[content.start as usize];
        }
    }
    Ok(Scanned {
        source: Source::Listed(listed.with(numbers)),
        tree: finished.tree,
        warnings,
        gaps: finished.gaps,
    })
}

/// A manifest on the way into a draft.
struct Scan<'a> {
    path: &'a Path,
    parser: Parser,
    files: Files<'a>,
    draft: Draft<'a>,
    /// Hard links, which may lead to what comes behind them.
    links: Vec<(u64, Linked)>,
    observer: &'a dyn Observer,
    warnings: u64,
}

impl Scan<'_> {
    fn all(&mut self, mut lines: Lines<'_>) -> Result<(), Error> {
        let long = self.parser.has_long_lines();
        while lines
            .next(long)
            .map_err(|fault| self.error(lines.number, fault))?
        {
            let done = self.line(lines.number, &lines.line);
            self.tell_warnings(lines.number);
            done.map_err(|fault| self.error(lines.number, fault))?;
        }
        for (at, link) in std::mem::take(&mut self.links) {
            let done = self.link(link);
            done.map_err(|fault| self.error(at, fault))?;
        }
        Ok(())
    }

    fn line(&mut self, number: u64, line: &[u8]) -> Result<(), Fault> {
        match self.parser.line(line).map_err(Fault::Broken)? {
            Some(entry) => self.entry(number, entry),
            None => Ok(()),
        }
    }

    fn entry(&mut self, number: u64, entry: Entry) -> Result<(), Fault> {
        self.check_place(&entry.path)?;
        check_names(names(&entry))?;
        let kind = match entry.what {
            What::File(file) => match self.files.add(&entry.path, file)? {
                Some(content) => Kind::Numbered(content),
                None => return Ok(()), // it is optional, and not there
            },
            What::HardLink(target) => {
                let path = entry.path;
                self.links.push((number, Linked { path, target }));
                return Ok(());
            }
            What::Other(kind) => kind,
        };
        self.draft.put(Member {
            name: named(&entry.path),
            offset: number,
            kind,
            perm: entry.perm,
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            records: Records::of_attributes(entry.xattrs),
        })
    }

    fn link(&mut self, link: Linked) -> Result<(), Fault> {
        self.check_place(&link.path)?;
        if !self.draft.is_told(&link.target) {
            let target = link.target.escape_ascii();
            let text = format!("it is a hard link to `{target}`, which is not listed");
            return Err(Fault::Broken(text));
        }
        let kind = Kind::HardLink(named(&link.target));
        let member = Member::bare(named(&link.path), kind);
        self.draft.put(member)
    }

    /// Makes sure that a path is new, and that its directory is known if it has to be.
    fn check_place(&self, path: &[u8]) -> Result<(), Fault> {
        let quoted = path.escape_ascii();
        if self.draft.is_told(path) {
            let text = format!("`{quoted}` is listed a second time");
            return Err(Fault::Broken(text));
        }
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let parent = &path[..slash.unwrap_or(0)];
        match self.parser.makes_parents() || path.is_empty() || self.draft.is_told(parent) {
            true => Ok(()),
            false => Err(Fault::Broken(format!(
                "`/{quoted}` lies in a directory that is not listed before it"
            ))),
        }
    }

    fn tell_warnings(&mut self, number: u64) {
        let mut told = self.parser.warnings();
        told.append(&mut self.draft.warnings);
        for text in told {
            let place = format!("{}:{number}", self.path.display());
            self.observer.warn(Path::new(&place), &text);
            self.warnings += 1;
        }
    }

    fn error(&self, line: u64, fault: Fault) -> Error {
        error_of(self.path, line, fault)
    }
}

/// The names of an entry that the kernel ends at a NUL, but for its path.
fn names(entry: &Entry) -> impl Iterator<Item = &[u8]> {
    let target = match &entry.what {
        What::Other(Kind::Symlink(target)) => Some(&target[..]),
        _ => None,
    };
    let xattrs = entry.xattrs.iter().map(|(name, _)| &name[..]);
    xattrs.chain(target)
}

/// The error that a fault in a line is.
fn error_of(path: &Path, line: u64, fault: Fault) -> Error {
    let broken = |reason| Error::Manifest {
        path: path.to_owned(),
        line,
        reason,
    };
    let place = || format!("{}:{line}", path.display()).into();
    let truncated = "the manifest ends within it";
    fault.error(path, "read the manifest", truncated, place, broken)
}
