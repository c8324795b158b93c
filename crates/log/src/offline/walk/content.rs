//! Content that is not packed, read in the order of the device and compared with its checksums. That of packed blocks is
//! looked at with [their owners](super::claims).

use anteros_core::FsResult;

use super::finding::Fault;
use super::records::PlainBlock;
use super::sweep::Placed;
use super::{Sink, Walk};
use crate::layout::checksum::Checksum;
use crate::layout::summary::Owner;

impl Placed for PlainBlock {
    fn place(&self) -> u64 {
        self.place
    }
}

impl<S: Sink> Walk<'_, S> {
    /// Has the walk gather what [`read_content`](Self::read_content) reads.
    pub(in crate::offline) fn gather_content(&mut self) {
        self.content = Some(self.sorter());
    }

    /// Reads all content that was gathered.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub(in crate::offline) fn read_content(&mut self) -> FsResult<()> {
        let Some(content) = self.content.take() else {
            return Ok(());
        };
        self.sweep(&content.finish()?, &mut |walk, plain, block| {
            let (ino, lblk) = (plain.ino, plain.lblk);
            let checksum = Checksum::from_bits(plain.checksum);
            let check = |block| Ok(checksum.check(block, Owner { ino, lblk }, plain.place)?);
            if let Err(error) = block.and_then(check) {
                walk.counts.damaged_blocks += 1;
                walk.find_in(ino, Fault::Content(error));
            }
            Ok(())
        })
    }
}
