//! The metabox: inodes that are compressed, with all that lies behind them, as the content of an inode.
//!
//! Inodes come in order, as they do where they lie in the image itself. Whenever they fill a segment, it is compressed by the
//! workers that make inodes.

use crate::Error;
use crate::emit::{Pool, Records};
use crate::fragments::PackedInode;
use crate::options::Options;
use crate::outbox::{Outbox, Work};
use crate::output::Output;
use crate::segments::Segments;

/// The metabox on its way to the image.
pub(crate) struct Metabox<'a> {
    content: Segments,
    outbox: Outbox<'a, Records>,
    /// Bytes of segments that may be under way; one always may.
    budget: u64,
}

impl<'a> Metabox<'a> {
    pub fn new(options: &Options, output: &'a mut Output) -> Self {
        Self {
            content: Segments::new(options.metabox_segment_bytes(), options.block_bytes()),
            outbox: Outbox::new(output),
            budget: options.inodes_bytes(),
        }
    }

    /// Appends inodes that begin at a byte of the content.
    pub fn add(&mut self, pool: &mut Pool, start: u64, inodes: &[u8]) -> Result<(), Error> {
        self.content.pad_to(start);
        self.content.append(inodes);
        self.submit(pool, false)
    }

    /// Ends the content at a byte, and writes all of it.
    pub fn finish(mut self, pool: &mut Pool, size: u64) -> Result<PackedInode, Error> {
        self.content.pad_to(size);
        self.submit(pool, true)?;
        let runs = self.outbox.finish()?.runs;
        Ok(PackedInode { size, runs })
    }

    fn submit(&mut self, pool: &mut Pool, is_end: bool) -> Result<(), Error> {
        while let Some(segment) = self.content.take(is_end) {
            let cost = segment.len() as u64;
            self.outbox.make_room(self.budget.saturating_sub(cost))?;
            let segment = pool.submit_aside(Work::Segment(segment));
            self.outbox.push(segment, cost);
        }
        self.outbox.settle()
    }
}
