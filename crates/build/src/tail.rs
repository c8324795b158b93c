//! The end of a compressed file, where it does not lie in blocks of its own.
//!
//! Behind the inode there is room for less than a block. What the last extent takes there is known when the file has been
//! compressed, but written only with the metadata. It is kept until then as far as memory allows; else it is compressed again
//! from the source, by `data::Tails`. A stream depends on its input alone, so the second one is the first one.
//!
//! Invariant B6 of `docs/design/building.md`: a stream depends on its input alone, not on what was compressed before.

use std::collections::HashMap;
use std::sync::Mutex;

use anteros_codec::{right_align, strip_zero_padding};
use anteros_core::unpoisoned;

use crate::Options;
use crate::compress::{Compressor, Stopped};
use crate::extent::{Extent, Share, Tail};
use crate::tree::NodeId;

impl From<&Option<Inline>> for Tail {
    fn from(inline: &Option<Inline>) -> Self {
        match inline {
            Some(inline) => Self::Inline(inline.bytes.len() as u16), // less than a block, of 64 KiB at most
            None => Self::Blocks,
        }
    }
}

/// Bytes that a kept end takes beside its own.
const KEPT_BYTES: usize = 64;

/// Ends of files that are kept until they are written.
#[derive(Debug)]
pub(crate) struct KeptEnds {
    ends: Mutex<Ends>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Ends {
    by_node: HashMap<NodeId, Box<[u8]>>,
    bytes: usize,
}

impl KeptEnds {
    /// Keeps nothing yet, and later no more than a sixteenth of the memory.
    pub fn new(options: &Options) -> Self {
        Self {
            ends: Mutex::default(),
            bytes_max: (options.memory_bytes / 16) as usize,
        }
    }

    /// Keeps the end of a file, if there is room.
    pub fn keep(&self, id: NodeId, bytes: Vec<u8>) {
        let mut ends = unpoisoned(self.ends.lock());
        let cost = KEPT_BYTES + bytes.len();
        if ends.bytes + cost <= self.bytes_max {
            ends.bytes += cost;
            ends.by_node.insert(id, bytes.into());
        }
    }

    /// Appends the end of a file, if it was kept; answers whether it was.
    pub fn append(&self, id: NodeId, out: &mut Vec<u8>) -> bool {
        let ends = unpoisoned(self.ends.lock());
        let kept = ends.by_node.get(&id);
        kept.map(|bytes| out.extend_from_slice(bytes)).is_some()
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
    pub fn inline(&mut self, content: &[u8], room: usize) -> Result<Option<Inline>, Stopped> {
        let mut bytes = vec![0; room.min(content.len())];
        let written = self.encoder().encode_all(content, &mut bytes);
        Ok(match written.map_err(Stopped::Failed)? {
            Some(written) => {
                bytes.truncate(written);
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
        })
    }

    /// Takes the end of a file out of the blocks in `out`, if it fits into `room` bytes: the last extent, if that takes one
    /// block, or what of it does not fit into all of its blocks but one. Answers what lies behind the inode then.
    pub fn move_inline(
        &mut self,
        content: &[u8],
        room: usize,
        out: &mut Vec<u8>,
        extents: &mut Vec<Extent>,
    ) -> Result<Option<Inline>, Stopped> {
        let Some(&last) = extents.last().filter(|e| e.stored > 0 && room > 0) else {
            return Ok(None);
        };
        let end = &content[content.len() - last.len as usize..];
        let stored = last.stored as usize;
        let front = match stored - self.block_bytes() {
            0 => Front::default(),
            bytes => match self.front(end, bytes)? {
                Some(front) => front,
                None => return Ok(None),
            },
        };
        let is_made =
            front.len == 0 && !last.plain && !last.quick && self.encoder().is_same_alone();
        let inline = match is_made {
            true => made_inline(&out[out.len() - stored..], end, room),
            false => self.inline(&end[front.len..], room)?,
        };
        let Some(inline) = inline else {
            return Ok(None);
        };
        extents.pop();
        if front.len > 0 {
            extents.push(Extent {
                len: front.len as u32,             // less than the extent had
                stored: front.blocks.len() as u32, // less than before
                plain: false,
                quick: false,
                share: Share::None,
            });
        }
        extents.push(Extent {
            len: (end.len() - front.len) as u32,
            stored: 0,
            plain: inline.plain,
            quick: false,
            share: Share::None,
        });
        out.truncate(out.len() - stored);
        out.extend_from_slice(&front.blocks);
        Ok(Some(inline))
    }

    /// As much of an end as fits into so many bytes, if these hold more than they are, and not all of it.
    fn front(&mut self, end: &[u8], bytes: usize) -> Result<Option<Front>, Stopped> {
        let mut blocks = vec![0; bytes];
        self.encoder().restart();
        let encoded = self.encoder().encode_next(end, 0..end.len(), &mut blocks);
        let Some(encoded) = encoded.map_err(Stopped::Failed)? else {
            return Ok(None);
        };
        let is_front = bytes < encoded.consumed && encoded.consumed < end.len();
        right_align(&mut blocks, encoded.written);
        let is_full = encoded.written > bytes - self.block_bytes();
        Ok((is_front && is_full).then_some(Front {
            len: encoded.consumed,
            blocks,
        }))
    }
}

/// The end of a file of which the stream is in a block, if it fits into `room` bytes.
fn made_inline(block: &[u8], end: &[u8], room: usize) -> Option<Inline> {
    let stream = strip_zero_padding(block, block.len())?;
    let is_short = stream.len() <= room.min(end.len());
    is_short.then(|| Inline {
        bytes: stream.to_vec(),
        plain: false,
    })
}

/// The part of an end that stays in blocks.
#[derive(Default)]
struct Front {
    /// Bytes of content.
    len: usize,
    blocks: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use anteros_codec::{Codec, Effort};

    use super::*;
    use crate::Compression;

    fn compressor() -> Compressor {
        Compressor::new(&Compression::new(Effort::High(9)), 4096)
    }

    fn text() -> Vec<u8> {
        let lines = (0..200).map(|line| format!("line {line} of the end, {}\n", line * line % 97));
        lines.collect::<String>().into_bytes()
    }

    fn noise(len: usize) -> Vec<u8> {
        let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let states = std::iter::successors(Some(1), next);
        states.map(|state| (state >> 24) as u8).take(len).collect()
    }

    #[test]
    fn an_end_takes_what_is_shorter_and_no_more_than_there_is_room() {
        let mut compressor = compressor();
        let mut inline = |content: &[u8], room| compressor.inline(content, room).unwrap();
        assert_eq!(inline(&text(), 10), None);
        let plain = Inline {
            bytes: noise(900),
            plain: true,
        };
        assert_eq!(inline(&noise(900), 900), Some(plain));
        assert_eq!(inline(&noise(900), 899), None);
    }

    /// Invariant B6 of `docs/design/building.md`.
    #[test]
    fn an_end_is_the_same_again_whatever_was_compressed_before() {
        let lzma = Codec::Lzma {
            level: 6,
            extreme: false,
            dict_bytes: 32 << 10,
        };
        let zstd = |level| Codec::Zstd {
            level,
            window_log: 15,
        };
        let lz4 = [
            Effort::Fast,
            Effort::High(9),
            Effort::Lazy(160),
            Effort::Optimal(64),
        ];
        let others = [lzma, Codec::Deflate { level: 9 }, zstd(3), zstd(19)];
        for codec in lz4.map(Codec::from).into_iter().chain(others) {
            let compressor = || Compressor::new(&Compression::new(codec), 4096);
            let first = compressor().inline(&text(), 4000).unwrap().unwrap();
            assert!(!first.plain && first.bytes.len() < 3000);
            let mut other = compressor();
            other.inline(&noise(2000), 4000).unwrap();
            other.inline(b"as it was the end of a file", 4000).unwrap();
            let again = other.inline(&text(), 4000).unwrap();
            assert!(again.as_ref() == Some(&first), "{codec:?}");
        }
    }

    #[test]
    fn a_stream_that_is_made_already_is_the_one_that_would_be_made() {
        let lzma = Codec::Lzma {
            level: 6,
            extreme: true,
            dict_bytes: 32 << 10,
        };
        let compressor = || Compressor::new(&Compression::new(lzma), 4096);
        let never = AtomicBool::new(false);
        for len in (4200..90_000).step_by(1777) {
            let content = text().repeat(24)[..len].to_vec();
            let (mut out, mut extents) = (Vec::new(), Vec::new());
            let mut first = compressor();
            let end = first.segment(&content, false, &mut out, &mut extents, &never);
            assert_eq!(end.unwrap(), len);
            let last = extents.last().unwrap().len as usize;
            let moved = first.move_inline(&content, 4000, &mut out, &mut extents);
            let again = compressor().inline(&content[len - last..], 4000);
            let (moved, again) = (moved.unwrap(), again.unwrap());
            assert!(moved.is_some() && moved == again, "{len}");
        }
    }

    #[test]
    fn what_does_not_fill_a_block_moves() {
        let extent = |len, blocks: u32| Extent {
            len,
            stored: blocks * 4096,
            plain: false,
            quick: false,
            share: Share::None,
        };
        let noise = noise(12_000);
        let halves = |piece: &[u8]| [piece, &vec![0; piece.len()]].concat();
        let content: Vec<u8> = noise.chunks(100).flat_map(halves).collect();
        let moved = |extents: Vec<Extent>, room| {
            let (mut out, mut extents) = (vec![0; 20_480], extents);
            let tail = compressor().move_inline(&content, room, &mut out, &mut extents);
            (Tail::from(&tail.unwrap()), out.len(), extents)
        };
        for (len, blocks, room) in [(24_000, 4, 0), (24_000, 4, 3), (3000, 1, 1000)] {
            let extents = vec![extent(len, blocks)];
            let expected = (Tail::Blocks, 20_480, extents.clone());
            assert_eq!(moved(extents, room), expected);
        }
        let (tail, left, extents) = moved(vec![extent(20_000, 3), extent(4000, 1)], 4000);
        assert!(matches!(tail, Tail::Inline(2000..2400)), "{tail:?}");
        assert_eq!(
            (left, extents),
            (16_384, vec![extent(20_000, 3), extent(4000, 0)])
        );
        let (tail, left, extents) = moved(vec![extent(24_000, 4)], 4000);
        assert!(matches!(tail, Tail::Inline(1..2400)), "{tail:?}");
        assert_eq!((left, extents.len()), (16_384, 2));
        assert_eq!((extents[0].stored, extents[1].stored), (3 * 4096, 0));
        assert_eq!(extents[0].len + extents[1].len, 24_000);
    }
}
