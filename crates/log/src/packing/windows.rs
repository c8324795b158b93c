//! Windows of dirty pages, before and after they were compressed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compress::chunks::{Chunk, Compressor};
use crate::compress::codec::Codec;
use crate::layout::Block;

pub(super) type Pages = Vec<(u32, Arc<Block>)>;

/// Dirty pages of a file that follow each other, to be compressed together.
pub(crate) struct DirtyWindow {
    pub(super) ino: u32,
    pub(super) codec: Codec,
    pub(super) pages: Pages,
    /// The logical block behind it, with those for which there are no pages.
    pub(crate) end: u32,
}

impl DirtyWindow {
    pub(crate) fn compress(self, compressor: &mut Compressor) -> PreparedWindow {
        let begun = Instant::now();
        let chunk = compressor.window(self.ino, &self.pages, self.codec);
        PreparedWindow {
            ino: self.ino,
            pages: self.pages,
            chunk,
            took: begun.elapsed(),
        }
    }
}

/// Window that was compressed, while its pages have not left.
pub(crate) struct PreparedWindow {
    pub(super) ino: u32,
    pages: Pages,
    /// `None` if it gains nothing.
    pub(super) chunk: Option<Chunk>,
    pub(super) took: Duration,
}

impl PreparedWindow {
    pub(super) fn range(&self) -> Range<u32> {
        let first = self.pages.first().map_or(0, |(lblk, _)| *lblk);
        first..first + self.pages.len() as u32
    }

    /// Returns whether it holds these pages as they are.
    pub(super) fn is_of(&self, pages: &[(u32, Arc<Block>)]) -> bool {
        let is_same = |((left, old), (right, new)): (&(u32, _), &(u32, _))| {
            left == right && Arc::ptr_eq(old, new)
        };
        self.pages.len() == pages.len() && self.pages.iter().zip(pages).all(is_same)
    }
}

/// Prepared windows of each file, by their first logical block.
#[derive(Default)]
pub(super) struct Prepared {
    files: HashMap<u32, BTreeMap<u32, PreparedWindow>>,
    /// Logical blocks of all of them.
    pub(super) blocks: usize,
}

impl Prepared {
    pub(super) fn get(&self, ino: u32, first: u32) -> Option<&PreparedWindow> {
        self.files.get(&ino)?.get(&first)
    }

    pub(super) fn insert(&mut self, window: PreparedWindow) {
        self.blocks += window.pages.len();
        let windows = self.files.entry(window.ino).or_default();
        if let Some(old) = windows.insert(window.range().start, window) {
            self.blocks -= old.pages.len();
        }
    }

    pub(super) fn take(&mut self, ino: u32) -> BTreeMap<u32, PreparedWindow> {
        let windows = self.files.remove(&ino).unwrap_or_default();
        self.blocks -= windows
            .values()
            .map(|window| window.pages.len())
            .sum::<usize>();
        windows
    }
}
