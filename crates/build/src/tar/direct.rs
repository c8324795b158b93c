//! Content of a stream that is written to the image at once, in the order in which it comes.

use super::fault::Fault;
use crate::output::Output;
use crate::{Content, Options, Order};

/// Writes whole files to an image.
pub(crate) struct Direct<'a> {
    output: &'a mut Output,
    /// Bytes to a multiple of which files are aligned.
    align: u64,
}

impl<'a> Direct<'a> {
    /// Returns whether options allow it: files lie in blocks of their own as they are, in any order, and nobody looks at
    /// them before.
    pub fn is_allowed(options: &Options) -> bool {
        let is_plain =
            options.any_compression().is_none() && options.hints.is_empty() && !options.inline_data;
        let is_whole = options.chunk_bytes.is_none() && options.exclude.is_empty();
        let is_alone =
            options.append.is_none() && options.content == Content::Copy && !options.has_devices();
        let looks = options.digest_xattr.is_some() || options.dedupe || !options.hot.is_empty();
        options.order == Order::Stream && is_plain && is_whole && is_alone && !looks
    }

    pub fn new(output: &'a mut Output, options: &Options) -> Self {
        Self {
            output,
            align: options.data_align_bytes(),
        }
    }

    /// Begins a file: tells its first block.
    pub fn begin(&mut self) -> Result<u32, Fault> {
        let start = self.output.position().next_multiple_of(self.align);
        let begun = self.output.pad_to(start);
        begun
            .and_then(|()| self.output.block_of(start))
            .map_err(Fault::image)
    }

    /// Writes the next bytes of a file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.output.write(bytes).map_err(Fault::image)
    }

    /// Fills the last block of a file.
    pub fn end(&mut self) -> Result<(), Fault> {
        let block_bytes = self.output.block_bytes();
        let end = self.output.position().next_multiple_of(block_bytes);
        let ended = self.output.pad_to(end);
        ended
            .and_then(|()| self.output.check(end))
            .map_err(Fault::image)
    }
}
