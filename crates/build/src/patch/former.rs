//! Content of the packed inode of an image that is patched.

use crate::extent::Extent;
use crate::special::Runs;

/// Content of the packed inode that stays.
#[derive(Debug, Default)]
pub(crate) struct FormerPacked {
    /// Its extents, in order and without gaps.
    pub runs: Runs,
    /// Bytes that they hold.
    pub bytes: u64,
    /// Content behind these that is packed once more, for no extent of its own can begin there.
    pub rest: Vec<u8>,
}

impl FormerPacked {
    /// Has all extents lie so many bytes of the image further on.
    pub fn move_up(&mut self, bytes: u64) {
        self.runs.iter_mut().for_each(|(at, _)| *at += bytes);
    }

    /// Appends an extent that lies at a byte of the image.
    pub fn push(&mut self, at: u64, extent: Extent) {
        self.bytes += u64::from(extent.len);
        if let Some((start, extents)) = self.runs.last_mut() {
            let stored = extents.iter().map(|extent| u64::from(extent.stored));
            if *start + stored.sum::<u64>() == at {
                extents.push(extent);
                return;
            }
        }
        self.runs.push((at, vec![extent]));
    }

    /// Takes the last extent out.
    pub fn pop(&mut self) -> Option<Extent> {
        let (_, extents) = self.runs.last_mut()?;
        let extent = extents.pop()?;
        if extents.is_empty() {
            self.runs.pop();
        }
        self.bytes -= u64::from(extent.len);
        Some(extent)
    }
}
