//! A file system as text: one line for each path, as `fixtures/README.md` describes.

use std::fmt::Write;
use std::ops::ControlFlow;

use anteros_core::{Attr, FileKind, FileSystem, FsResult, Ino};
use sha2::{Digest, Sha256};

/// The manifest of everything below the root, in byte order of the paths.
///
/// # Errors
///
/// The first error of the file system.
pub fn manifest(fs: &dyn FileSystem) -> FsResult<String> {
    let mut lines = vec![line(fs, b"/", &fs.getattr(fs.root())?)?];
    walk(fs, fs.root(), b"", &mut lines)?;
    lines.sort();
    Ok(lines.concat())
}

fn walk(fs: &dyn FileSystem, dir: Ino, prefix: &[u8], lines: &mut Vec<String>) -> FsResult<()> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            names.push((entry.name.to_vec(), entry.ino, entry.kind));
        }
        ControlFlow::Continue(())
    })?;
    for (name, ino, kind) in names {
        let path = [prefix, b"/", &name].concat();
        let attr = fs.lookup(dir, &name)?;
        assert_eq!(
            (attr.ino, attr.kind),
            (ino, kind),
            "{}",
            path.escape_ascii()
        );
        lines.push(line(fs, &path, &attr)?);
        if kind == FileKind::Directory {
            walk(fs, ino, &path, lines)?;
        }
    }
    Ok(())
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

/// Reads in pieces of an odd size, so that extents are entered in the middle.
fn digest(fs: &dyn FileSystem, attr: &Attr) -> FsResult<String> {
    let mut hash = Sha256::new();
    let mut buf = vec![0; 7001];
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
