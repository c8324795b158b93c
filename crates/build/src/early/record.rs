//! Segments as they are kept: their extents, then their blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use anteros_codec::{Decoder, Length, Params, strip_zero_padding};
use anteros_core::Algorithm;

use crate::Options;
use crate::extent::{Extent, Share};

/// Bytes of an extent: its length, what it takes, how it is stored.
const EXTENT_BYTES: usize = 12;

const PLAIN: u32 = 1;
const QUICK: u32 = 2;

/// A segment in the file of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Byte of the file at which it begins.
    pub place: u64,
    /// Number of extents.
    pub count: u32,
    /// Bytes of all blocks.
    pub stored: u32,
}

impl Record {
    /// Appends a segment, and tells of its record, whose place counts from the front of `out`.
    pub fn append(extents: &[Extent], blocks: &[u8], out: &mut Vec<u8>) -> Self {
        let place = out.len() as u64;
        for extent in extents {
            let flags =
                [0, PLAIN][usize::from(extent.plain)] | [0, QUICK][usize::from(extent.quick)];
            for word in [extent.len, extent.stored, flags] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out.extend_from_slice(blocks);
        Self {
            place,
            count: extents.len() as u32, // of a block at least, in a segment of some MiB
            stored: blocks.len() as u32, // no more than the segment and a block
        }
    }

    fn head_bytes(&self) -> u64 {
        u64::from(self.count) * EXTENT_BYTES as u64
    }

    pub fn extents(&self, file: &File) -> io::Result<Vec<Extent>> {
        let mut head = vec![0; self.head_bytes() as usize];
        file.read_exact_at(&mut head, self.place)?;
        Ok(head.chunks_exact(EXTENT_BYTES).map(extent).collect())
    }

    /// Fills `blocks` from a byte of them on.
    pub fn read_blocks(&self, file: &File, offset: u64, blocks: &mut [u8]) -> io::Result<()> {
        file.read_exact_at(blocks, self.place + self.head_bytes() + offset)
    }
}

fn extent(bytes: &[u8]) -> Extent {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Extent {
        len: word(0),
        stored: word(4),
        plain: word(8) & PLAIN != 0,
        quick: word(8) & QUICK != 0,
        share: Share::None,
    }
}

/// Tells how extents become content again.
#[derive(Debug)]
pub(crate) struct Coding {
    usual: Algorithm,
    quick: Option<Algorithm>,
    block_bytes: usize,
}

impl Coding {
    /// The coding of files; `None` without compression.
    pub fn of(options: &Options) -> Option<Self> {
        let (usual, quick) = options.setting()?.codecs();
        Some(Self {
            usual: usual.algorithm(),
            quick: quick.map(|codec| codec.algorithm()),
            block_bytes: options.block_bytes() as usize,
        })
    }

    /// The content of an extent.
    pub fn content(&self, extent: &Extent, blocks: &[u8]) -> io::Result<Vec<u8>> {
        let len = extent.len as usize;
        if extent.plain {
            return Ok(blocks[..len].to_vec());
        }
        let algorithm = match self.quick {
            Some(quick) if extent.quick => quick,
            _ => self.usual,
        };
        let mut content = vec![0; len];
        let stream = strip_zero_padding(blocks, self.block_bytes);
        let stream = stream.ok_or_else(|| io::Error::other("a compressed block is all zeros"))?;
        let params = Params::default();
        Decoder::new()
            .decode(algorithm, &params, stream, &mut content, Length::Exact)
            .map_err(io::Error::other)?;
        Ok(content)
    }
}
