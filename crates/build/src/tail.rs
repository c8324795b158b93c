//! The end of a compressed file, where it does not lie in blocks of its own.
//!
//! Behind the inode there is room for less than a block. What the last extent takes there is known when the file has been
//! compressed, but written only with the metadata; it is not kept until then, but compressed again from the source. A
//! stream depends on its input alone, so the second one is the first one.

use crate::Error;
use crate::compress::{Compressor, Extent};
use crate::data::Job;
use crate::tree::NodeId;

/// Tells where the last extent of a compressed file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tail {
    /// In blocks, like the others.
    #[default]
    Blocks,
    /// In so many bytes behind the index.
    Inline(u16),
    /// At this byte of the packed inode.
    Fragment(u64),
}

impl Tail {
    /// Bytes behind the index.
    pub fn inline_bytes(self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.into(),
            Self::Blocks | Self::Fragment(_) => 0,
        }
    }
}

/// An end of a file as it will lie behind the inode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inline {
    pub bytes: Vec<u8>,
    /// Tells whether it is stored as it is.
    pub plain: bool,
}

impl Compressor {
    /// The end of a file in less than a block and at most `room` bytes, as it is or compressed, whichever is shorter.
    pub fn inline(&mut self, content: &[u8], room: usize) -> Option<Inline> {
        let mut bytes = vec![0; room.min(content.len())];
        self.encoder.restart();
        let encoded = self.encoder.encode(content, &mut bytes);
        match encoded.filter(|e| e.consumed == content.len() && e.written < content.len()) {
            Some(encoded) => {
                bytes.truncate(encoded.written);
                Some(Inline {
                    bytes,
                    plain: false,
                })
            }
            None if content.len() <= room => Some(Inline {
                bytes: content.to_vec(),
                plain: true,
            }),
            None => None,
        }
    }

    /// Takes the last extent of a file out of the blocks in `out`, if it takes one and fits into `room` bytes.
    pub fn move_inline(
        &mut self,
        content: &[u8],
        room: usize,
        out: &mut Vec<u8>,
        extents: &mut [Extent],
    ) -> Tail {
        let Some(last) = extents.last_mut().filter(|e| e.blocks == 1 && room > 0) else {
            return Tail::Blocks;
        };
        let end = &content[content.len() - last.len as usize..];
        let Some(inline) = self.inline(end, room) else {
            return Tail::Blocks;
        };
        out.truncate(out.len() - self.block_bytes());
        last.blocks = 0;
        last.plain = inline.plain;
        Tail::Inline(inline.bytes.len() as u16) // less than a block, of 64 KiB at most
    }
}

/// Compresses ends of files again, for one thread.
pub(crate) struct Tails<'a> {
    job: &'a Job<'a>,
    /// Made for the first one.
    compressor: Option<Compressor>,
    /// Reused from file to file.
    content: Vec<u8>,
}

impl<'a> Tails<'a> {
    pub fn new(job: &'a Job<'a>) -> Self {
        Self {
            job,
            compressor: None,
            content: Vec::new(),
        }
    }

    /// Appends the last extent of a file, which takes so many bytes.
    pub fn append(
        &mut self,
        id: NodeId,
        extent: &Extent,
        bytes: u16,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Job { tree, source, .. } = self.job;
        let node = tree.node(id);
        self.content.resize(extent.len as usize, 0);
        let file = source.open_file(tree, id)?;
        file.read(node.size - u64::from(extent.len), &mut self.content)?;
        file.finish()?;
        if extent.plain {
            out.extend_from_slice(&self.content);
            return Ok(());
        }
        let room = self.job.plan.tail_room(id, node) as usize;
        let compressor = self.compressor.get_or_insert_with(|| self.job.compressor());
        let inline = compressor.inline(&self.content, room);
        let same = inline.filter(|inline| inline.bytes.len() == usize::from(bytes));
        let path = || tree.full_path(source.path(), id);
        let same = same.ok_or_else(|| Error::Changed { path: path() })?;
        out.extend_from_slice(&same.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anteros_codec::Effort;

    use super::*;
    use crate::Compression;

    fn compressor() -> Compressor {
        Compressor::new(&Compression::new(Effort::High(9)), 4096)
    }

    fn noise(len: usize) -> Vec<u8> {
        let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let states = std::iter::successors(Some(1), next);
        states.map(|state| (state >> 24) as u8).take(len).collect()
    }

    #[test]
    fn an_end_takes_what_is_shorter_and_no_more_than_there_is_room() {
        let mut compressor = compressor();
        let text = b"the end of a file ".repeat(100);
        let inline = compressor.inline(&text, 4000).unwrap();
        assert!(!inline.plain && inline.bytes.len() < 100);
        assert_eq!(compressor.inline(&text, inline.bytes.len()), Some(inline));
        assert_eq!(compressor.inline(&text, 10), None);
        let plain = Inline {
            bytes: noise(900),
            plain: true,
        };
        assert_eq!(compressor.inline(&noise(900), 900), Some(plain));
        assert_eq!(compressor.inline(&noise(900), 899), None);
    }

    #[test]
    fn an_end_is_the_same_again_whatever_was_compressed_before() {
        let text = b"the end of a file, as it was ".repeat(100);
        let first = compressor().inline(&text, 4000);
        let mut other = compressor();
        other.inline(&noise(2000), 4000);
        other.inline(b"as it was the end of a file", 4000);
        assert_eq!(other.inline(&text, 4000), first);
    }

    #[test]
    fn only_an_extent_of_one_block_moves() {
        let extent = |len, blocks| Extent {
            len,
            blocks,
            plain: false,
        };
        let content = vec![b'x'; 30_000];
        let moved = |extents: &mut [Extent], room| {
            let mut out = vec![0; 8192];
            let tail = compressor().move_inline(&content, room, &mut out, extents);
            (tail, out.len())
        };
        for (blocks, room) in [(2, 4000), (1, 0), (1, 3)] {
            let mut extents = [extent(30_000, blocks)];
            assert_eq!(moved(&mut extents, room), (Tail::Blocks, 8192));
            assert_eq!(extents, [extent(30_000, blocks)]);
        }
        let mut extents = [extent(20_000, 1), extent(10_000, 1)];
        let (tail, left) = moved(&mut extents, 4000);
        assert!(matches!(tail, Tail::Inline(1..100)));
        assert_eq!((left, extents[1].blocks), (4096, 0));
    }
}
