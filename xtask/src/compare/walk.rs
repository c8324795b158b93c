//! The record of a file system: a line for each path, as far as it can be read. The kernel's view and ours are
//! recorded by the same code.

use std::fmt::Write;
use std::ops::ControlFlow;

use anteros_core::{Attr, FileKind, FileSystem, FsResult, Ino};

/// Paths that are recorded; a mutant may name a directory in itself.
const PATHS_MAX: usize = 1200;
/// Bytes of a file that are read from its beginning, and before its end: a size may say anything.
const HEAD_BYTES: u64 = 512 << 10;
const TAIL_BYTES: u64 = 64 << 10;
/// Bytes of one read.
const READ_BYTES: usize = 32 << 10;

/// Column of a line that could not be read.
pub(crate) const FAULT: &str = "!";

/// The names of the columns behind the path.
pub(crate) const COLUMNS: [&str; 5] = ["entry", "inode", "entries", "content", "attributes"];

/// Records everything below the root.
pub(crate) fn record(fs: &dyn FileSystem) -> String {
    let mut text = String::new();
    let mut paths = 1;
    match fs.getattr(fs.root()) {
        Ok(attr) => walk(fs, &attr, b"", "-", &mut paths, &mut text),
        Err(_) => text.push_str("/\t-\t!\t-\t-\t-\n"),
    }
    text
}

/// Records a path and all below it.
fn walk(
    fs: &dyn FileSystem,
    attr: &Attr,
    path: &[u8],
    entry: &str,
    paths: &mut usize,
    text: &mut String,
) {
    let is_dir = attr.kind == FileKind::Directory;
    let names = is_dir.then(|| names(fs, attr.ino));
    let entries = match &names {
        Some(Ok(names)) => names.len().to_string(),
        Some(Err(_)) => FAULT.into(),
        None => "-".into(),
    };
    let shown = escape(if path.is_empty() { b"/" } else { path });
    let content = content(fs, attr).unwrap_or_else(|_| FAULT.into());
    let xattrs = xattrs(fs, attr.ino).unwrap_or_else(|_| FAULT.into());
    let inode = inode(attr);
    let _ = writeln!(
        text,
        "{shown}\t{entry}\t{inode}\t{entries}\t{content}\t{xattrs}"
    );
    for (name, ino, kind) in names.and_then(Result::ok).unwrap_or_default() {
        if *paths == PATHS_MAX {
            return;
        }
        *paths += 1;
        let path = [path, b"/", &name].concat();
        let entry = format!("{}:{}", ino.0, kind.name().replace(' ', "-"));
        // Directories that are their own parents are not walked for ever.
        let is_deep = path.len() > 1000;
        match fs.lookup(attr.ino, &name) {
            Ok(attr) if !is_deep => walk(fs, &attr, &path, &entry, paths, text),
            Ok(_) => {}
            Err(_) => {
                let _ = writeln!(text, "{}\t{entry}\t!\t-\t-\t-", escape(&path));
            }
        }
    }
}

/// Returns what is known of an inode itself.
fn inode(attr: &Attr) -> String {
    let Attr {
        ino,
        kind,
        perm,
        nlink,
        uid,
        gid,
        rdev,
        size,
        blocks,
        mtime,
        ..
    } = attr;
    let rdev = match kind {
        FileKind::BlockDevice | FileKind::CharDevice => format!("{}:{}", rdev.major, rdev.minor),
        _ => "-".into(),
    };
    format!(
        "{} {} {perm:04o} {nlink} {uid}:{gid} {rdev} {size} {blocks} {}.{:09}",
        ino.0,
        kind.name().replace(' ', "-"),
        mtime.secs,
        mtime.nanos
    )
}

type Name = (Vec<u8>, Ino, FileKind);

fn names(fs: &dyn FileSystem, dir: Ino) -> FsResult<Vec<Name>> {
    let mut names = Vec::new();
    let mut from = 0;
    loop {
        let before = from;
        fs.readdir(dir, from, &mut |entry| {
            from = entry.next;
            if !matches!(entry.name, b"." | b"..") {
                names.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
            ControlFlow::Continue(())
        })?;
        if from == before || names.len() > PATHS_MAX {
            return Ok(names);
        }
    }
}

/// A checksum of what a file has at its beginning and its end, or the target of a symbolic link.
fn content(fs: &dyn FileSystem, attr: &Attr) -> FsResult<String> {
    match attr.kind {
        FileKind::Symlink => return Ok(escape(&fs.readlink(attr.ino)?)),
        FileKind::Regular => {}
        _ => return Ok("-".into()),
    }
    let mut sum = 0;
    let head = read(fs, attr.ino, 0, HEAD_BYTES, &mut sum)?;
    let mut tail = 0;
    if attr.size > HEAD_BYTES {
        let from = (attr.size - TAIL_BYTES.min(attr.size)).max(HEAD_BYTES);
        tail = read(fs, attr.ino, from, TAIL_BYTES, &mut sum)?;
    }
    Ok(format!("{sum:08x}/{}", head + tail))
}

/// Adds bytes of a file to a checksum; gives how many there were.
fn read(fs: &dyn FileSystem, ino: Ino, from: u64, bytes: u64, sum: &mut u32) -> FsResult<u64> {
    let mut buf = vec![0; READ_BYTES];
    let mut done = 0;
    while done < bytes {
        let count = fs.read(ino, from + done, &mut buf)?;
        if count == 0 {
            break;
        }
        *sum = crc32c::crc32c_append(*sum, &buf[..count]);
        done += count as u64;
    }
    Ok(done)
}

fn xattrs(fs: &dyn FileSystem, ino: Ino) -> FsResult<String> {
    let mut xattrs = Vec::new();
    for name in fs.listxattr(ino)? {
        let value = fs.getxattr(ino, &name)?;
        let (name, len, sum) = (escape(&name), value.len(), crc32c::crc32c(&value));
        xattrs.push(format!("{name}={len}:{sum:08x}"));
    }
    xattrs.sort();
    Ok(match xattrs.is_empty() {
        true => "-".into(),
        false => xattrs.join(","),
    })
}

fn escape(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, &byte| {
        if byte.is_ascii_graphic() && !b"%,=".contains(&byte) {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}
