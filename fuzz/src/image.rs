//! Bytes as an image, and its tree as far as there is time for it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use anteros_core::Device;
use anteros_format::inode::Inode;
use anteros_image::{DirCursor, Error, Image, OpenOptions, Result};

/// More extra devices than this are not given, whatever an image asks for.
const DEVICES_MAX: u16 = 4;
/// Inodes that are taken from a tree, each once.
const INODES_MAX: usize = 200;
/// Entries that are taken from a directory.
const ENTRIES_MAX: usize = 300;

/// Opens bytes, without verifying the checksum, which nothing made up would pass. All the extra devices that they name
/// are the same bytes once more.
pub(crate) fn open_image(input: &[u8]) -> Result<Image> {
    let options = OpenOptions {
        verify_checksum: false,
        ..OpenOptions::default()
    };
    open_with(input, options)
}

/// As [`open_image`], with any options.
pub(crate) fn open_with(input: &[u8], options: OpenOptions) -> Result<Image> {
    let device: Arc<dyn Device> = Arc::new(input.to_vec());
    match Image::open(device.clone(), vec![], options) {
        Err(Error::Devices { needed, .. }) if needed <= DEVICES_MAX => {
            let extra = vec![device.clone(); needed.into()];
            Image::open(device, extra, options)
        }
        result => result,
    }
}

/// The inodes of the tree, directories included, and those without a name.
pub(crate) fn inodes(image: &Image) -> Vec<Inode> {
    let sb = image.superblock();
    let specials = [sb.packed, sb.metabox].into_iter().flatten();
    let mut pending: Vec<_> = specials.chain([sb.root]).collect();
    let mut seen = HashSet::new();
    let mut inodes = Vec::new();
    while let Some(nid) = pending.pop().filter(|_| inodes.len() < INODES_MAX) {
        if !seen.insert(nid) {
            continue;
        }
        let Ok(inode) = image.inode(nid) else {
            continue;
        };
        let mut left = ENTRIES_MAX;
        // Fails for what is no directory.
        let _ = image.visit_dir(&inode, DirCursor::default(), |entry, _| {
            pending.push(entry.nid);
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        inodes.push(inode);
    }
    inodes
}

/// Holds what may still be done, in bytes.
pub(crate) struct Budget(pub(crate) u64);

impl Budget {
    /// Takes so many bytes, and says whether there were as many.
    pub(crate) fn spend(&mut self, bytes: u64) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}
