//! `anteros ls`

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use anteros_core::FileKind;
use anteros_format::Nid;
use anteros_format::inode::Inode;
use anteros_image::{DirCursor, Error, Image, NidSet, OwnedDirent, Reader};
use anteros_verity::{Algorithm, FileDigest};
use serde::Serialize;

use super::cat::read;
use crate::args::ImageArgs;
use crate::failure::{Failure, Kind, Outcome, Parts};
use crate::output;

/// List a directory of an image
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Path in the image
    #[arg(default_value = "/")]
    path: OsString,

    /// Kind and permissions, links, owner, group, size (or device) and time (UTC) too
    #[arg(short, long)]
    long: bool,

    /// Directories below too
    #[arg(short = 'R', long)]
    recursive: bool,

    /// The digest of each file that fs-verity would give it (SHA-256, blocks of 4 KiB, no salt), in front of its path
    #[arg(long)]
    digest: bool,

    /// An array of objects; names that are not text are escaped
    #[arg(long)]
    json: bool,
}

/// An entry as scripts see it.
#[derive(Debug, Serialize)]
struct Entry {
    path: String,
    nid: u64,
    kind: &'static str,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: i64,
    mtime_nsec: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<String>,
    /// The digest of a file by fs-verity, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl Args {
    pub fn run(self) -> Outcome {
        let image = self.image.open()?;
        let path = self.path.as_bytes();
        let start = image.find(path).map_err(|error| {
            let place = format!("{}: {}", image.name(), output::name(path));
            Failure::image(place, &error)
        })?;
        let mut listing = Listing {
            image: &image,
            out: BufWriter::new(std::io::stdout().lock()),
            is_long: self.long,
            is_json: self.json,
            digests: self.digest.then(|| Reader::new(&image)),
            entries: 0,
            parts: Parts::default(),
            start: path,
        };
        listing.begin()?;
        match start.kind {
            FileKind::Directory => listing.tree(path, start, self.recursive)?,
            _ => listing.entry(path, &start)?,
        }
        listing.end()?;
        listing.parts.end()
    }
}

/// Memory for the set of directories that were listed, in bytes.
const LISTED_BYTES: usize = 1 << 20;

/// Entries are printed as they are read, so however many there are, they take no memory.
struct Listing<'a, W: Write> {
    image: &'a Image,
    out: W,
    is_long: bool,
    is_json: bool,
    /// Reads files, if their digests were asked for.
    digests: Option<Reader<'a>>,
    /// The number of entries printed.
    entries: u64,
    /// Entries, and directories, of which one that cannot be read is no reason to leave out the others.
    parts: Parts,
    /// The path that was asked for.
    start: &'a [u8],
}

/// A directory on the way.
struct Level {
    inode: Inode,
    /// The length of its path.
    path_bytes: usize,
    /// The position from which its directories are looked for.
    cursor: DirCursor,
}

impl<W: Write> Listing<'_, W> {
    fn begin(&mut self) -> Result<(), Failure> {
        if self.is_json {
            write!(self.out, "[")?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.is_json {
            let end = if self.entries == 0 { "]" } else { "\n]" };
            writeln!(self.out, "{end}")?;
        }
        Ok(self.out.flush()?)
    }

    fn tree(&mut self, path: &[u8], start: Inode, recursive: bool) -> Result<(), Failure> {
        let mut path = if recursive { path.to_vec() } else { Vec::new() };
        self.directory(&path, &start)?;
        if !recursive {
            return Ok(());
        }
        let mut listed = NidSet::new(LISTED_BYTES);
        listed.insert(start.nid)?;
        let mut levels = vec![Level::new(start, path.len())];
        while let Some(level) = levels.last_mut() {
            path.truncate(level.path_bytes);
            let Some(below) = self.next_directory(level) else {
                levels.pop();
                continue;
            };
            path = joined(&path, &below.name);
            // Who listed the directory above has told of one that cannot be read.
            let Ok(inode) = self.image.inode(below.nid) else {
                continue;
            };
            if !listed.insert(inode.nid)? {
                let (image, nid) = (self.image.name(), inode.nid);
                let message = format!("{image}: directory {nid} is part of itself");
                return Err(Failure::new(Kind::Corrupt, message));
            }
            self.directory(&path, &inode)?;
            levels.push(Level::new(inode, path.len()));
        }
        Ok(())
    }

    /// Prints what a directory holds.
    fn directory(&mut self, path: &[u8], dir: &Inode) -> Result<(), Failure> {
        let mut printed = Ok(());
        let image = self.image;
        let read = image.visit_dir(dir, DirCursor::default(), |entry, _| {
            if !matches!(entry.name, b"." | b"..") {
                let path = joined(path, entry.name);
                match self.image.inode(entry.nid) {
                    Ok(inode) => printed = self.entry(&path, &inode),
                    Err(error) => self.left_out(&path, &error),
                }
            }
            go_on_if(printed.is_ok())
        });
        match read {
            Ok(()) => self.parts.done(),
            Err(error) => self.left_out(path, &error),
        }
        printed
    }

    /// The next directory in one, if that can be read: else whoever listed it has told.
    fn next_directory(&self, level: &mut Level) -> Option<OwnedDirent> {
        let mut found = None;
        let from = level.cursor;
        let _ = self.image.visit_dir(&level.inode, from, |entry, next| {
            let is_dot = matches!(entry.name, b"." | b"..");
            if entry.kind == FileKind::Directory && !is_dot {
                let (nid, kind, name) = (entry.nid, entry.kind, entry.name.to_vec());
                found = Some(OwnedDirent { nid, kind, name });
                level.cursor = next;
            }
            go_on_if(found.is_none())
        });
        found
    }

    /// Prints an entry, or tells why not; only what cannot be written is an error.
    fn entry(&mut self, path: &[u8], inode: &Inode) -> Result<(), Failure> {
        let entry = match entry(self.image, path, inode, self.digests.as_mut()) {
            Ok(entry) => entry,
            Err(error) => {
                self.left_out(path, &error);
                return Ok(());
            }
        };
        if self.is_json {
            let text = serde_json::to_string_pretty(&entry).map_err(std::io::Error::from)?;
            let comma = if self.entries == 0 { "" } else { "," };
            write!(self.out, "{comma}\n  {}", text.replace('\n', "\n  "))?;
        } else {
            print(&mut self.out, &entry, self.is_long.then_some(inode))?;
        }
        self.entries += 1;
        self.parts.done();
        Ok(())
    }

    fn left_out(&mut self, path: &[u8], error: &Error) {
        let path = if path.is_empty() { self.start } else { path };
        let place = format!("{}: {}", self.image.name(), output::name(path));
        self.parts.left_out(Failure::image(place, error));
    }
}

impl Level {
    fn new(inode: Inode, path_bytes: usize) -> Self {
        let cursor = DirCursor::default();
        Self {
            inode,
            path_bytes,
            cursor,
        }
    }
}

/// The path of a name in a directory.
fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let is_apart = path.is_empty() || path.ends_with(b"/");
    let slash: &[u8] = if is_apart { b"" } else { b"/" };
    [path, slash, name].concat()
}

fn go_on_if(condition: bool) -> ControlFlow<()> {
    match condition {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

fn entry(
    image: &Image,
    path: &[u8],
    inode: &Inode,
    reader: Option<&mut Reader<'_>>,
) -> Result<Entry, Error> {
    let Inode {
        nid: Nid(nid),
        kind,
        perm,
        nlink,
        uid,
        gid,
        size,
        mtime,
        rdev,
        ..
    } = *inode;
    let target = match kind {
        FileKind::Symlink => Some(output::name(&image.read_link(inode)?)),
        _ => None,
    };
    let reader = reader.filter(|_| kind == FileKind::Regular);
    let digest = reader
        .map(|reader| digest(image, inode, reader))
        .transpose()?;
    let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    let rdev = is_device.then(|| format!("{}:{}", rdev.major, rdev.minor));
    Ok(Entry {
        path: output::name(path),
        nid,
        kind: kind.name(),
        mode: format!("{perm:04o}"),
        nlink,
        uid,
        gid,
        size,
        mtime: mtime.secs,
        mtime_nsec: mtime.nanos,
        target,
        rdev,
        digest,
    })
}

/// The digest of a file as tools of fs-verity write it.
fn digest(image: &Image, inode: &Inode, reader: &mut Reader<'_>) -> Result<String, Error> {
    let mut digest = FileDigest::new(Algorithm::Sha256);
    read(image, inode, reader, |data| {
        digest.update(data);
        Ok::<_, Error>(())
    })?;
    Ok(format!("{}:{}", Algorithm::Sha256.name(), digest.finish()))
}

/// Prints an entry, with what is in its inode if that is given.
fn print(out: &mut impl Write, entry: &Entry, inode: Option<&Inode>) -> std::io::Result<()> {
    let Entry {
        path,
        nlink,
        uid,
        gid,
        size,
        ..
    } = entry;
    if let Some(digest) = &entry.digest {
        write!(out, "{digest} ")?;
    }
    let Some(inode) = inode else {
        return writeln!(out, "{path}");
    };
    let mode = mode(inode.kind, inode.perm);
    let time = time(entry.mtime);
    let size = entry.rdev.clone().unwrap_or_else(|| size.to_string());
    write!(
        out,
        "{mode} {nlink:>3} {uid:>5} {gid:>5} {size:>11} {time} {path}"
    )?;
    match &entry.target {
        Some(target) => writeln!(out, " -> {target}"),
        None => writeln!(out),
    }
}

/// Kind and permissions as `ls -l` shows them: `drwxr-xr-t`.
fn mode(kind: FileKind, perm: u16) -> String {
    let kind = match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    // For owner, group and others: their bits, the special one of each, its letters with x and without.
    let classes = [(6, 0o4000, "sS"), (3, 0o2000, "sS"), (0, 0o1000, "tT")];
    let letters = classes.map(|(shift, special, letters)| {
        let has = |bit: u16| perm >> shift & bit != 0;
        let (both, alone) = letters.split_at(1);
        let execute = match (perm & special != 0, has(1)) {
            (true, true) => both,
            (true, false) => alone,
            (false, true) => "x",
            (false, false) => "-",
        };
        let (read, write) = (
            if has(4) { "r" } else { "-" },
            if has(2) { "w" } else { "-" },
        );
        [read, write, execute].concat()
    });
    format!("{kind}{}", letters.concat())
}

/// A time as people read it; in seconds where the calendar ends.
fn time(secs: i64) -> String {
    match jiff::Timestamp::from_second(secs) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => format!("{secs:>16}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_times_read_as_those_of_ls() {
        assert_eq!(mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileKind::Regular, 0o6744), "-rwsr-Sr--");
        assert_eq!(mode(FileKind::Socket, 0o1001), "s--------t");
        assert_eq!(mode(FileKind::Fifo, 0o7000), "p--S--S--T");
        assert_eq!(time(0), "1970-01-01 00:00");
        assert_eq!(time(-86_400), "1969-12-31 00:00");
        assert_eq!(time(i64::MAX), "9223372036854775807");
    }
}
