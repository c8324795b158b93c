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

    /// Kind, permissions, links, owner, group, size and time too
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
        let prefix: Vec<u8> = if self.recursive {
            path.to_vec()
        } else {
            Vec::new()
        };
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
                    print(&mut out, &entry, self.long)?;
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

fn print(out: &mut impl Write, entry: &Entry, long: bool) -> std::io::Result<()> {
    if !long {
        return writeln!(out, "{}", entry.path);
    }
    let Entry {
        path,
        kind,
        mode,
        nlink,
        uid,
        gid,
        size,
        mtime,
        ..
    } = entry;
    let size = entry.rdev.clone().unwrap_or_else(|| size.to_string());
    write!(
        out,
        "{kind:<9} {mode} {nlink:>4} {uid:>6} {gid:>6} {size:>12} {mtime:>11} {path}"
    )?;
    match &entry.target {
        Some(target) => writeln!(out, " -> {target}"),
        None => writeln!(out),
    }
}
