//! The target `walk`.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use anteros_core::{DirEntry, FileSystem, FsError, FsResult, Ino, Seek};
use anteros_image::ImageFs;

use super::image::open_image;

/// Inodes that are visited, each once.
const INODES_MAX: usize = 300;
/// Entries that are taken from a directory.
const ENTRIES_MAX: usize = 600;
/// Attributes, and names, of which each is asked for by its name.
const ASKED_MAX: usize = 8;

/// Walks the tree through the seam that a mount uses: everything but the content of files.
///
/// An entry's name is one that a name can be; a directory read from any position goes on as it did when it was read
/// from the beginning.
pub fn walk(input: &[u8]) {
    let Ok(image) = open_image(input) else { return };
    let fs = ImageFs::new(Arc::new(image));
    fs.statfs()
        .expect("what is known since the image was opened");
    let mut pending = vec![fs.root()];
    let mut seen = HashSet::new();
    while let Some(ino) = pending.pop().filter(|_| seen.len() < INODES_MAX) {
        if seen.insert(ino) {
            pending.extend(visit(&fs, ino));
        }
    }
}

/// Asks for all that an inode has, and returns the inodes that it names, if it is a directory.
fn visit(fs: &ImageFs, ino: Ino) -> Vec<Ino> {
    if let Ok(attr) = fs.getattr(ino) {
        assert_eq!(attr.perm & !0o7777, 0);
        assert!(attr.mtime.nanos < 1_000_000_000);
        for offset in [0, attr.size / 2, attr.size] {
            for what in [Seek::Data, Seek::Hole] {
                if let Ok(at) = fs.seek(ino, offset, what) {
                    assert!((offset..=attr.size).contains(&at));
                }
            }
        }
    }
    if let Ok(target) = fs.readlink(ino) {
        assert!(!target.contains(&0));
    }
    for name in fs.listxattr(ino).unwrap_or_default().iter().take(ASKED_MAX) {
        // May fail: the filter of a hostile inode hides what it has.
        let _ = fs.getxattr(ino, name);
    }
    visit_entries(fs, ino)
}

fn visit_entries(fs: &ImageFs, dir: Ino) -> Vec<Ino> {
    let (outcome, entries) = entries_from(fs, dir, 0);
    let is_whole = outcome.is_ok() && entries.len() < ENTRIES_MAX;
    if is_whole {
        let middle = entries.len() / 2;
        for at in [middle, entries.len()].into_iter().filter(|&at| at > 0) {
            let (outcome, rest) = entries_from(fs, dir, entries[at - 1].next);
            match outcome {
                Ok(()) => assert_eq!(rest, entries[at..], "from entry {at} of {dir:?}"),
                // A stream may be broken behind what was decoded of it before.
                Err(error) => assert!(matches!(error, FsError::Corrupt(_)), "{error:?}"),
            }
        }
    }
    for entry in entries.iter().take(ASKED_MAX) {
        // May fail: the blocks of a hostile directory need not ascend.
        let _ = fs.lookup(dir, &entry.name);
    }
    entries.into_iter().map(|entry| entry.ino).collect()
}

/// An entry that owns its name.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    ino: Ino,
    next: u64,
    name: Vec<u8>,
}

/// The entries from a position on as far as they can be read, and how that ended.
fn entries_from(fs: &ImageFs, dir: Ino, from: u64) -> (FsResult<()>, Vec<Entry>) {
    let mut entries = Vec::new();
    let outcome = fs.readdir(dir, from, &mut |entry| {
        check_name(&entry);
        entries.push(Entry {
            ino: entry.ino,
            next: entry.next,
            name: entry.name.to_vec(),
        });
        match entries.len() {
            ENTRIES_MAX.. => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    (outcome, entries)
}

fn check_name(entry: &DirEntry<'_>) {
    let name = entry.name;
    assert!((1..=255).contains(&name.len()));
    assert!(!name.contains(&b'/') && !name.contains(&0));
}
