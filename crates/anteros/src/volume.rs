//! The amount that is to be read of an image, known before reading begins.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::FileKind;
use anteros_image::{DirCursor, Image, NidSet};
use indicatif::ProgressBar;

/// Memory for the sets of inodes that were counted, in bytes.
const COUNTED_BYTES: usize = 1 << 20;

/// Gives a bar that is shown its end: the sizes of all files below a path.
pub fn tell(bar: &ProgressBar, image: &Image, from: &[u8], cancel: &AtomicBool) {
    if !bar.is_hidden() {
        bar.set_length(data_bytes(image, from, cancel));
    }
}

/// Moves a bar on, and its end if there is more than was told.
pub fn advance(bar: &ProgressBar, bytes: u64) {
    bar.inc(bytes);
    if bar.length().is_some_and(|end| bar.position() > end) {
        bar.set_length(bar.position());
    }
}

/// The sizes of all files below a path, as far as that can be read: what is broken is told by whoever extracts it.
fn data_bytes(image: &Image, from: &[u8], cancel: &AtomicBool) -> u64 {
    let Ok(start) = image.find(from) else {
        return 0;
    };
    if start.kind != FileKind::Directory {
        return start.size;
    }
    let mut bytes = 0_u64;
    let mut counted = NidSet::new(COUNTED_BYTES);
    let _ = counted.insert(start.nid);
    let mut levels = vec![(start, DirCursor::default())];
    while let Some((directory, cursor)) = levels.last_mut() {
        let mut below = None;
        let read = image.visit_dir(directory, *cursor, |entry, next| {
            *cursor = next;
            match entry.kind {
                FileKind::Directory if !matches!(entry.name, b"." | b"..") => {
                    below = Some(entry.nid);
                    return ControlFlow::Break(());
                }
                FileKind::Regular => {
                    if let Ok(inode) = image.inode(entry.nid) {
                        let is_new = inode.nlink < 2 || counted.insert(inode.nid).unwrap_or(true);
                        bytes = bytes.saturating_add(if is_new { inode.size } else { 0 });
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        if read.is_err() || cancel.load(Ordering::Relaxed) {
            return bytes;
        }
        match below {
            Some(nid) if counted.insert(nid).unwrap_or(false) => {
                levels.extend(image.inode(nid).map(|inode| (inode, DirCursor::default())));
            }
            Some(_) => {}
            None => drop(levels.pop()),
        }
    }
    bytes
}
