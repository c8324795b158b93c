//! `anteros ls`

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

use anteros_core::FileKind;
use anteros_format::Nid;
use anteros_format::inode::Inode;
use anteros_image::{Error, Image};
use serde::Serialize;

use crate::args::ImageArgs;
use crate::failure::{Failure, Kind, Outcome, Verdict};
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
}

impl Args {
    pub fn run(self) -> Outcome {
        let image = self.image.open()?;
        let path = self.path.as_bytes();
        let failure = |error| {
            Failure::image(
                format_args!("{}: {}", image.name(), output::name(path)),
                &error,
            )
        };
        let start = image.find(path).map_err(failure)?;
        let mut entries = Vec::new();
        let mut out = BufWriter::new(std::io::stdout().lock());
        let is_bare = start.kind == FileKind::Directory && !self.recursive;
        let prefix = if is_bare { Vec::new() } else { path.to_vec() };
        let mut pending = vec![(prefix, start)];
        let mut visited = std::collections::HashSet::new();
        while let Some((prefix, inode)) = pending.pop() {
            if !visited.insert(inode.nid) {
                let message = format!(
                    "{}: directory {} is part of itself",
                    image.name(),
                    inode.nid
                );
                return Err(Failure::new(Kind::Corrupt, message));
            }
            let mut below = Vec::new();
            for (path, inode) in list(&image, &prefix, &inode).map_err(failure)? {
                let entry = entry(&image, &path, &inode).map_err(failure)?;
                if self.json {
                    entries.push(entry);
                } else {
                    print(&mut out, &entry, self.long.then_some(&inode))?;
                }
                if self.recursive && inode.kind == FileKind::Directory {
                    below.push((path, inode));
                }
            }
            pending.extend(below.into_iter().rev());
        }
        out.flush()?;
        drop(out);
        if self.json {
            output::json(&entries)?;
        }
        Ok(Verdict::Good)
    }
}

/// What a directory holds, or the file itself.
fn list(image: &Image, prefix: &[u8], inode: &Inode) -> Result<Vec<(Vec<u8>, Inode)>, Error> {
    if inode.kind != FileKind::Directory {
        return Ok(vec![(prefix.to_vec(), inode.clone())]);
    }
    let entries = image.read_dir(inode)?;
    let named = entries
        .into_iter()
        .filter(|e| !matches!(&e.name[..], b"." | b".."));
    named
        .map(|entry| {
            let slash: &[u8] = if prefix.is_empty() || prefix.ends_with(b"/") {
                b""
            } else {
                b"/"
            };
            Ok((
                [prefix, slash, &entry.name].concat(),
                image.inode(entry.nid)?,
            ))
        })
        .collect()
}

fn entry(image: &Image, path: &[u8], inode: &Inode) -> Result<Entry, Error> {
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
    })
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
