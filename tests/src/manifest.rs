//! A file system as text.
//!
//! - [`manifest`]: what users keep in files; `fixtures/README.md` describes the columns.
//! - [`manifest_with_faults`]: the same, as far as it can be read.
//! - [`details`]: inode numbers and space used, which two readers of one image agree on.
//! - [`holes`]: where the files have data.
//! - [`listing`]: directories in their own order.

use std::fmt::Write;
use std::ops::ControlFlow;

use anteros_core::{Attr, FileKind, FileSystem, FsError, FsResult, Ino, Seek};
use sha2::{Digest, Sha256};

/// Columns of a manifest's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Column {
    Path,
    Kind,
    Mode,
    Uid,
    Gid,
    Mtime,
    Size,
    Nlink,
    Content,
    Xattrs,
}

/// The manifest of everything below the root, in byte order of the paths.
///
/// # Errors
///
/// The first error of the file system.
pub fn manifest(fs: &dyn FileSystem) -> FsResult<String> {
    describe(fs, &mut |path, attr| line(fs, path, attr))
}

/// The manifest of everything below the root; a path that cannot be read has a line of its own kind, as
/// [`is_fault`] says.
///
/// # Errors
///
/// The first directory that cannot be listed, or name in it that cannot be looked up.
pub fn manifest_with_faults(fs: &dyn FileSystem) -> FsResult<String> {
    describe(fs, &mut |path, attr| {
        Ok(line(fs, path, attr).unwrap_or_else(|_| format!("{}\t!\n", escape(path))))
    })
}

/// Returns whether a line says that its path cannot be read.
pub fn is_fault(line: &str) -> bool {
    line.ends_with("\t!")
}

/// Inode number, space used, preferred I/O size and device number of each path.
///
/// # Errors
///
/// The first error of the file system.
pub fn details(fs: &dyn FileSystem) -> FsResult<String> {
    describe(fs, &mut |path, attr| {
        let Attr {
            ino,
            blocks,
            block_size,
            size,
            rdev,
            ..
        } = attr;
        let (path, ino, rdev) = (
            escape(path),
            ino.0,
            format!("{}:{}", rdev.major, rdev.minor),
        );
        Ok(format!(
            "{path}\t{ino}\t{size}\t{blocks}\t{block_size}\t{rdev}\n"
        ))
    })
}

/// The ranges of data of each regular file, as bytes from and to.
///
/// # Errors
///
/// The first error of the file system.
pub fn holes(fs: &dyn FileSystem) -> FsResult<String> {
    describe(fs, &mut |path, attr| {
        if attr.kind != FileKind::Regular {
            return Ok(String::new());
        }
        let ranges = data_ranges(fs, attr)?;
        let ranges: Vec<_> = ranges
            .iter()
            .map(|(from, to)| format!("{from}-{to}"))
            .collect();
        Ok(format!(
            "{}\t{}\t{}\n",
            escape(path),
            attr.size,
            ranges.join(",")
        ))
    })
}

/// The ranges of a file that are no holes, as bytes from and to.
///
/// # Errors
///
/// The first error of the file system.
pub fn data_ranges(fs: &dyn FileSystem, attr: &Attr) -> FsResult<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut offset = 0;
    while offset < attr.size {
        let start = match fs.seek(attr.ino, offset, Seek::Data) {
            Err(FsError::BeyondEnd) => break,
            start => start?,
        };
        offset = fs.seek(attr.ino, start, Seek::Hole)?;
        assert!(
            start < offset,
            "a hole is found at {offset}, where data was at {start}"
        );
        ranges.push((start, offset));
    }
    Ok(ranges)
}

/// The entries of each directory in the directory's order, `.` and `..` included, with inode number and kind.
///
/// # Errors
///
/// The first error of the file system.
pub fn listing(fs: &dyn FileSystem) -> FsResult<String> {
    describe(fs, &mut |path, attr| {
        let mut text = escape(path);
        if attr.kind != FileKind::Directory {
            return Ok(String::new());
        }
        fs.readdir(attr.ino, 0, &mut |entry| {
            write!(
                text,
                "\t{}:{}:{}",
                escape(entry.name),
                entry.ino.0,
                entry.kind.name()
            )
            .expect("text");
            ControlFlow::Continue(())
        })?;
        Ok(text + "\n")
    })
}

/// A manifest with some columns changed; lines for which `change` says no are left out.
pub fn edit(manifest: &str, change: impl Fn(&mut [String]) -> bool) -> String {
    let lines = manifest.lines().filter_map(|line| {
        let mut columns: Vec<_> = line.split('\t').map(str::to_owned).collect();
        change(&mut columns).then(|| columns.join("\t") + "\n")
    });
    lines.collect()
}

/// The first line in which two texts differ, for a message; `None` if they are the same.
pub fn difference(found: &str, expected: &str) -> Option<String> {
    if found == expected {
        return None;
    }
    let (mut a, mut b) = (found.lines(), expected.lines());
    loop {
        let (found, expected) = (a.next(), b.next());
        if found != expected {
            let show = |line: Option<&str>| {
                line.unwrap_or("(nothing)")
                    .chars()
                    .take(600)
                    .collect::<String>()
            };
            return Some(format!(
                "\n  found    {}\n  expected {}",
                show(found),
                show(expected)
            ));
        }
        found?;
    }
}

/// One text for each path, sorted by the paths.
fn describe(
    fs: &dyn FileSystem,
    text: &mut dyn FnMut(&[u8], &Attr) -> FsResult<String>,
) -> FsResult<String> {
    let mut lines = vec![text(b"/", &fs.getattr(fs.root())?)?];
    walk(fs, fs.root(), b"", text, &mut lines)?;
    lines.sort();
    Ok(lines.concat())
}

fn walk(
    fs: &dyn FileSystem,
    dir: Ino,
    prefix: &[u8],
    text: &mut dyn FnMut(&[u8], &Attr) -> FsResult<String>,
    lines: &mut Vec<String>,
) -> FsResult<()> {
    for (name, ino, kind) in names(fs, dir)? {
        let path = [prefix, b"/", &name].concat();
        let attr = fs.lookup(dir, &name)?;
        assert_eq!(
            (attr.ino, attr.kind),
            (ino, kind),
            "{}",
            path.escape_ascii()
        );
        lines.push(text(&path, &attr)?);
        if kind == FileKind::Directory {
            walk(fs, ino, &path, text, lines)?;
        }
    }
    Ok(())
}

fn names(fs: &dyn FileSystem, dir: Ino) -> FsResult<Vec<(Vec<u8>, Ino, FileKind)>> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            names.push((entry.name.to_vec(), entry.ino, entry.kind));
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

fn line(fs: &dyn FileSystem, path: &[u8], attr: &Attr) -> FsResult<String> {
    let (kind, content) = match attr.kind {
        FileKind::Regular => ('f', digest(fs, attr)?),
        FileKind::Directory => ('d', "-".into()),
        FileKind::Symlink => ('l', escape(&fs.readlink(attr.ino)?)),
        FileKind::BlockDevice => ('b', format!("{}:{}", attr.rdev.major, attr.rdev.minor)),
        FileKind::CharDevice => ('c', format!("{}:{}", attr.rdev.major, attr.rdev.minor)),
        FileKind::Fifo => ('p', "-".into()),
        FileKind::Socket => ('s', "-".into()),
    };
    let size = match attr.kind {
        FileKind::Regular | FileKind::Symlink => attr.size.to_string(),
        _ => "-".into(),
    };
    let Attr {
        perm,
        uid,
        gid,
        nlink,
        mtime,
        ..
    } = attr;
    let (path, xattrs) = (escape(path), xattrs(fs, attr.ino)?);
    let time = format!("{}.{:09}", mtime.secs, mtime.nanos);
    Ok(format!(
        "{path}\t{kind}\t{perm:04o}\t{uid}\t{gid}\t{time}\t{size}\t{nlink}\t{content}\t{xattrs}\n"
    ))
}

/// Files larger than this are hashed without their zeros, or a sparse one would take hours.
const WHOLE_BYTES_MAX: u64 = 1 << 30;

/// Reads in pieces of an odd size, so that extents are entered in the middle.
fn digest(fs: &dyn FileSystem, attr: &Attr) -> FsResult<String> {
    if attr.size > WHOLE_BYTES_MAX {
        return sparse_digest(fs, attr);
    }
    let mut hash = Sha256::new();
    let mut buf = vec![0; if attr.size < 1 << 20 { 7001 } else { 70_001 }];
    let mut offset = 0;
    loop {
        let count = fs.read(attr.ino, offset, &mut buf)?;
        if count == 0 {
            assert_eq!(offset, attr.size);
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buf[..count]);
        offset += count as u64;
    }
}

/// The hash of each piece of 64 KiB that is not all zeros, and of its offset: the same wherever the holes lie.
fn sparse_digest(fs: &dyn FileSystem, attr: &Attr) -> FsResult<String> {
    const PIECE: usize = 64 << 10;
    let mut hash = Sha256::new();
    let mut buf = vec![0; PIECE];
    let mut next = 0;
    for (from, to) in data_ranges(fs, attr)? {
        let first = next.max(from / PIECE as u64);
        next = to.div_ceil(PIECE as u64);
        for piece in first..next {
            let count = fs.read(attr.ino, piece * PIECE as u64, &mut buf)?;
            if buf[..count].iter().any(|&byte| byte != 0) {
                hash.update(piece.to_le_bytes());
                hash.update(&buf[..count]);
            }
        }
    }
    Ok(format!("sparse:{}", hex(&hash.finalize())))
}

fn xattrs(fs: &dyn FileSystem, ino: Ino) -> FsResult<String> {
    let mut xattrs = Vec::new();
    for name in fs.listxattr(ino)? {
        xattrs.push(format!(
            "{}={}",
            escape(&name),
            hex(&fs.getxattr(ino, &name)?)
        ));
    }
    xattrs.sort();
    Ok(if xattrs.is_empty() {
        "-".into()
    } else {
        xattrs.join(",")
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text");
        text
    })
}

fn escape(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, &byte| {
        match byte {
            b'%' => text.push_str("%25"),
            b'!'..=b'~' => text.push(byte.into()),
            _ => write!(text, "%{byte:02X}").expect("text"),
        }
        text
    })
}
