//! Android's sparse form of images, and writing a complete image in order.
//!
//! A sparse image is a header and chunks, in the order of the image. A chunk is some blocks as they are (raw), or four bytes that
//! repeat in all of some blocks (fill). All numbers are little endian.
//!
//! ```text
//! header  | magic u32 | major u16 | minor u16 | header bytes u16 | chunk header bytes u16 | block bytes u32
//!         | blocks u32 | chunks u32 | checksum u32, 0 for none |
//! chunk   | type u16 | 0 u16 | blocks u32 | bytes with this header u32 | raw: the blocks, fill: 4 bytes |
//! ```
//!
//! Zeros are filled as well: what a device has where nothing is written is not known. The image is read twice, first to count the
//! chunks.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::output::{Beside, Output, is_written_in_place, parent};
use crate::stages::{Build, spool};
use crate::{Error, Options, Summary};

const MAGIC: u32 = 0xed26_ff3a;
const VERSION: (u16, u16) = (1, 0);
const HEADER_BYTES: u16 = 28;
const CHUNK_HEADER_BYTES: u16 = 12;
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;

/// Largest block: Android's tools take no image apart more coarsely.
const BLOCK_BYTES_MAX: u32 = 4096;
/// Most bytes of a chunk of blocks as they are. The field has 32 bits.
const RAW_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are read at a time, whole blocks.
const STEP_BYTES: u64 = 1 << 20;

/// Blocks that follow each other in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    /// The four bytes that repeat; `None` if the blocks are stored as they are.
    fill: Option<[u8; 4]>,
    /// The byte of the image at which it begins.
    start: u64,
    blocks: u32,
}

/// Tells why a complete image could not be written in order.
pub(crate) enum Fault {
    Read(io::Error),
    Write(io::Error),
    Blocks(u64),
    Cancelled,
}

impl Fault {
    /// The error, of an image that is kept in an output, and to be written to a path.
    pub fn at(self, path: &Path, output: &Output) -> Error {
        match self {
            Self::Read(cause) => output.error("read", cause),
            Self::Write(cause) => Error::Image {
                path: path.to_owned(),
                action: "write",
                cause,
            },
            Self::Blocks(blocks) => Error::Option(format!(
                "a sparse image of {blocks} blocks; {} are the most",
                u32::MAX
            )),
            Self::Cancelled => Error::Cancelled,
        }
    }
}

/// Builds a sparse image that gets its name when it is complete.
pub(crate) fn build_file(image: &Path, job: Build<'_, '_>) -> Result<Summary, Error> {
    let Build {
        options, cancel, ..
    } = job;
    if is_written_in_place(image, options) {
        let text =
            "a sparse image is a file by itself; `fastboot` or `simg2img` write it to a device";
        return Err(Error::Option(text.into()));
    }
    let (summary, output) = job.run(image, || spool(options, parent(image)))?;
    let output = output.expect("a patch of a sparse image was refused");
    let fail = |cause| Fault::Write(cause).at(image, &output);
    let beside = Beside::create(image).map_err(fail)?;
    let stream = Stream {
        output: &output,
        options,
        cancel,
    };
    let written = stream.write(&mut beside.file());
    written.map_err(|fault| fault.at(image, &output))?;
    beside.place(options.sync)?;
    Ok(summary)
}

/// A complete image that is to be written in order.
pub(crate) struct Stream<'a> {
    pub output: &'a Output,
    pub options: &'a Options,
    pub cancel: &'a AtomicBool,
}

impl Stream<'_> {
    /// Writes the image as it is, or in the sparse form.
    pub fn write(&self, out: &mut dyn Write) -> Result<(), Fault> {
        let mut out = BufWriter::new(out);
        let written = match self.options.android_sparse {
            true => self.sparse(&mut out),
            false => self.copy(0, self.output.position(), &mut out),
        };
        let flushed = written.and_then(|()| out.flush().map_err(Fault::Write));
        // What is still in memory would come behind the error.
        let _ = out.into_parts();
        flushed
    }

    fn copy(&self, start: u64, end: u64, out: &mut dyn Write) -> Result<(), Fault> {
        let mut buffer = Vec::new();
        for at in (start..end).step_by(STEP_BYTES as usize) {
            self.read(at, end, &mut buffer)?;
            out.write_all(&buffer).map_err(Fault::Write)?;
        }
        Ok(())
    }

    /// Reads some of what comes before a byte.
    fn read(&self, at: u64, end: u64, buffer: &mut Vec<u8>) -> Result<(), Fault> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Fault::Cancelled);
        }
        buffer.resize(STEP_BYTES.min(end - at) as usize, 0);
        self.output.read_back(at, buffer).map_err(Fault::Read)
    }

    fn block_bytes(&self) -> u32 {
        self.options.block_bytes().min(BLOCK_BYTES_MAX)
    }

    fn sparse(&self, out: &mut dyn Write) -> Result<(), Fault> {
        let block_bytes = self.block_bytes();
        let blocks = self.output.position().div_ceil(block_bytes.into());
        let blocks = u32::try_from(blocks).map_err(|_| Fault::Blocks(blocks))?;
        let mut chunks = 0;
        self.chunks(|_| {
            chunks += 1;
            Ok(())
        })?;
        let header = header(block_bytes, blocks, chunks);
        out.write_all(&header).map_err(Fault::Write)?;
        self.chunks(|chunk| self.chunk(&chunk, out))
    }

    /// Hands over all chunks.
    fn chunks(&self, mut take: impl FnMut(Chunk) -> Result<(), Fault>) -> Result<(), Fault> {
        let end = self.output.position();
        let block_bytes = self.block_bytes();
        let (mut buffer, mut last) = (Vec::new(), None);
        for start in (0..end).step_by(STEP_BYTES as usize) {
            self.read(start, end, &mut buffer)?;
            let places = (start..).step_by(block_bytes as usize);
            for (start, block) in places.zip(buffer.chunks(block_bytes as usize)) {
                let next = Chunk {
                    fill: repeated(block),
                    start,
                    blocks: 1,
                };
                if let Some(complete) = joined(&mut last, next, block_bytes) {
                    take(complete)?;
                }
            }
        }
        last.map_or(Ok(()), take)
    }

    fn chunk(&self, chunk: &Chunk, out: &mut dyn Write) -> Result<(), Fault> {
        let bytes = u64::from(chunk.blocks) * u64::from(self.block_bytes());
        let (kind, body) = match chunk.fill {
            Some(_) => (FILL, 4),
            None => (RAW, bytes as u32), // at most 64 MiB
        };
        let head = [
            &kind.to_le_bytes()[..],
            &[0; 2],
            &chunk.blocks.to_le_bytes(),
            &(u32::from(CHUNK_HEADER_BYTES) + body).to_le_bytes(),
        ];
        out.write_all(&head.concat()).map_err(Fault::Write)?;
        match chunk.fill {
            Some(fill) => out.write_all(&fill).map_err(Fault::Write),
            None => self.copy(chunk.start, chunk.start + bytes, out),
        }
    }
}

/// The four bytes that a block consists of, if it does.
fn repeated(block: &[u8]) -> Option<[u8; 4]> {
    let first: [u8; 4] = block.get(..4)?.try_into().ok()?;
    block.chunks(4).all(|word| *word == first).then_some(first)
}

/// Adds a block to the last chunk, or returns that one, which is complete, and makes it the last.
fn joined(last: &mut Option<Chunk>, next: Chunk, block_bytes: u32) -> Option<Chunk> {
    let bytes = |chunk: &Chunk| u64::from(chunk.blocks) * u64::from(block_bytes);
    match last {
        Some(chunk)
            if chunk.fill == next.fill
                && (chunk.fill.is_some() || bytes(chunk) < RAW_BYTES_MAX) =>
        {
            chunk.blocks += 1;
            None
        }
        _ => last.replace(next),
    }
}

fn header(block_bytes: u32, blocks: u32, chunks: u32) -> Vec<u8> {
    let numbers = [HEADER_BYTES, CHUNK_HEADER_BYTES];
    let mut header = MAGIC.to_le_bytes().to_vec();
    for half in [VERSION.0, VERSION.1].into_iter().chain(numbers) {
        header.extend(half.to_le_bytes());
    }
    for word in [block_bytes, blocks, chunks, 0] {
        header.extend(word.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_join_as_long_as_they_are_of_a_kind() {
        let block = |fill, start| Chunk {
            fill,
            start,
            blocks: 1,
        };
        let (zeros, ones) = (Some([0; 4]), Some([1; 4]));
        let kinds = [zeros, zeros, None, None, None, ones, zeros];
        let mut last = None;
        let mut chunks = Vec::new();
        for (at, fill) in kinds.into_iter().enumerate() {
            chunks.extend(joined(&mut last, block(fill, at as u64), 32 << 20));
        }
        chunks.extend(last);
        let found: Vec<_> = chunks.iter().map(|c| (c.fill, c.start, c.blocks)).collect();
        let expected = [
            (zeros, 0, 2),
            (None, 2, 2),
            (None, 4, 1),
            (ones, 5, 1),
            (zeros, 6, 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn four_bytes_repeat_or_not() {
        assert_eq!(repeated(&[7; 512]), Some([7; 4]));
        assert_eq!(repeated(&[1, 2, 3, 4, 1, 2, 3, 4]), Some([1, 2, 3, 4]));
        assert_eq!(repeated(&[1, 2, 3, 4, 1, 2, 3, 5]), None);
        assert_eq!(repeated(&[0, 0, 0, 0, 0, 0]), None);
        assert_eq!(header(4096, 5, 2).len(), usize::from(HEADER_BYTES));
    }
}
