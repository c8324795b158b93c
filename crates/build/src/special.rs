//! Inodes that no directory names: the packed inode, and the metabox, which has inodes that are compressed with all that
//! lies behind them.
//!
//! Content comes in order. Whenever it fills a segment, workers compress that one.

use anteros_format::inode::{COMPACT_BYTES, EXTENDED_BYTES};

use crate::Error;
use crate::extent::{Extent, Run, Tail};
use crate::index::IndexKind;
use crate::ordered::Ordered;
use crate::outbox::{Done, Outbox, Work};
use crate::output::Output;
use crate::segments::Segments;

/// An inode that no directory names, with all of its content written.
#[derive(Debug)]
pub(crate) struct SpecialInode {
    /// Bytes of content.
    pub size: u64,
    pub runs: Runs,
}

/// Segments, each with the byte of the image at which it begins.
pub(crate) type Runs = Vec<(u64, Vec<Extent>)>;

impl SpecialInode {
    /// Returns whether its size needs an extended inode.
    pub fn is_extended(&self) -> bool {
        self.size > u32::MAX.into()
    }

    /// Bytes of the inode without its index.
    fn head_bytes(&self) -> u64 {
        match self.is_extended() {
            true => EXTENDED_BYTES as u64,
            false => COMPACT_BYTES as u64,
        }
    }

    /// The index of extents that lie apart from each other: packs, as far as they can tell of these.
    pub fn index_apart(&self, usual: IndexKind) -> IndexKind {
        let full = usual.full();
        full.in_packs(
            usual,
            self.head_bytes(),
            &self.runs(),
            Tail::Blocks,
            self.size,
        )
    }

    /// Bytes of the inode and its index.
    pub fn record_bytes(&self, index: IndexKind) -> u64 {
        let head = self.head_bytes();
        head + index.bytes(head, &self.runs(), Tail::Blocks, self.size)
    }

    /// Extents that lie behind each other, segment by segment.
    pub fn runs(&self) -> Vec<Run<'_>> {
        let runs = self.runs.iter();
        runs.map(|(at, extents)| (*at, &extents[..])).collect()
    }

    /// Bytes of the image that all segments take.
    pub fn stored_bytes(&self) -> u64 {
        let extents = self.runs.iter().flat_map(|(_, extents)| extents);
        extents.map(|extent| u64::from(extent.stored)).sum()
    }
}

/// The content of such an inode, as far as it is known.
#[derive(Debug)]
pub(crate) struct Content {
    /// Bytes that are in no segment which has been written.
    pub segments: Segments,
    /// The segments that have been written.
    pub runs: Runs,
}

impl Content {
    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.segments.size()
    }

    /// The inode, if it has any content that has been written, behind the extents of an image that is patched.
    pub fn into_inode(self, former: &[(u64, Vec<Extent>)]) -> Option<SpecialInode> {
        (!self.runs.is_empty()).then(|| SpecialInode {
            size: self.size(),
            runs: former.iter().cloned().chain(self.runs).collect(),
        })
    }
}

/// Such an inode on its way to the image.
pub(crate) struct Growing<'a, R> {
    content: Content,
    outbox: Outbox<'a, R>,
    /// Bytes of segments that may be under way; one always may.
    budget: u64,
}

impl<'a, R> Growing<'a, R> {
    pub fn new(content: Content, budget: u64, output: &'a mut Output) -> Self {
        Self {
            content,
            outbox: Outbox::new(output),
            budget,
        }
    }

    /// Appends bytes.
    pub fn append<J>(
        &mut self,
        pool: &mut Ordered<Work<J>, Done<R>>,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.content.segments.append(bytes);
        self.submit(pool, false)
    }

    /// Appends zeros up to a byte of the content.
    pub fn pad_to(&mut self, end: u64) {
        self.content.segments.pad_to(end);
    }

    /// Writes all that is left.
    pub fn finish<J>(mut self, pool: &mut Ordered<Work<J>, Done<R>>) -> Result<Content, Error> {
        self.submit(pool, true)?;
        self.content.runs.extend(self.outbox.finish()?.runs);
        Ok(self.content)
    }

    fn submit<J>(
        &mut self,
        pool: &mut Ordered<Work<J>, Done<R>>,
        is_end: bool,
    ) -> Result<(), Error> {
        while let Some(segment) = self.content.segments.take(is_end) {
            let cost = segment.len() as u64;
            self.outbox.make_room(self.budget.saturating_sub(cost))?;
            let segment = pool.submit_aside(Work::Segment(segment));
            self.outbox.push(segment, cost);
        }
        self.outbox.settle()
    }
}
