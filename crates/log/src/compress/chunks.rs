//! Pages into chunks, and back.

use std::ops::Deref;

use anteros_codec::Encoded;

use crate::compress::codec::{Codec, Encoders, Pace};
use crate::compress::policy::{Rules, Sample};
use crate::layout::packed::{Slot, SlotKind};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::{BLOCK_BYTES, Block};

/// States what a page has to save at least: less is not worth decoding it.
const GAIN_MIN: usize = 256;

/// Stored as it is, as a slot has it.
const STORED: u8 = 0;

/// The most logical blocks of a chunk.
pub(crate) const CHUNK_BLOCKS_MAX: u32 = 32;

/// The most bytes of a chunk.
pub(crate) const CHUNK_BYTES_MAX: usize = CHUNK_BLOCKS_MAX as usize * BLOCK_BYTES;

/// Pages of a file that follow each other, compressed.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) ino: u32,
    /// The first one.
    pub(crate) lblk: u32,
    pub(crate) blocks: u8,
    pub(crate) codec: u8,
    /// Tells whether each launch that was recorded read it, or more than one.
    pub(crate) core: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Chunk {
    /// Pages as they are.
    pub(crate) fn stored(ino: u32, pages: &[(u32, impl Deref<Target = Block>)]) -> Self {
        Self {
            ino,
            lblk: pages[0].0,
            blocks: pages.len() as u8,
            codec: STORED,
            core: false,
            bytes: pages.iter().flat_map(|(_, page)| **page).collect(),
        }
    }

    /// Returns those of some pages, by rising number, that it holds.
    pub(crate) fn pages_of<'a, T>(&self, pages: &'a [(u32, T)]) -> &'a [(u32, T)] {
        let first = pages.partition_point(|(lblk, _)| *lblk < self.lblk);
        &pages[first..first + usize::from(self.blocks)]
    }

    /// Returns where its pages are, if it begins there.
    pub(crate) fn pointers(&self, at: Slotted) -> Vec<Pointer> {
        let pages = 0..self.blocks;
        pages
            .map(|sequence| Pointer::Packed(Slotted { sequence, ..at }))
            .collect()
    }

    /// A slot with the front of it, or the rest.
    pub(crate) fn slot(&self) -> Slot {
        Slot {
            codec: self.codec,
            core: self.core,
            blocks: self.blocks,
            ino: self.ino,
            lblk: self.lblk,
            ..Slot::new(SlotKind::Data)
        }
    }
}

/// Returns whether one of some chunks, by rising number, has a logical block.
pub(crate) fn have(chunks: &[Chunk], lblk: u32) -> bool {
    let first_behind = chunks.partition_point(|chunk| chunk.lblk <= lblk);
    let chunk = first_behind.checked_sub(1).and_then(|at| chunks.get(at));
    chunk.is_some_and(|chunk| lblk - chunk.lblk < u32::from(chunk.blocks))
}

impl Rules {
    /// Returns what becomes of pages that gain nothing.
    fn stored(&self, ino: u32, pages: &[(u32, impl Deref<Target = Block>)]) -> Vec<Chunk> {
        let pieces = pages.chunks(CHUNK_BLOCKS_MAX as usize);
        let pieces = pieces.filter(|_| self.stores);
        pieces.map(|piece| Chunk::stored(ino, piece)).collect()
    }
}

/// Compresses pages, with memory that is used again.
#[derive(Default)]
pub(crate) struct Compressor {
    encoders: Encoders,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            encoders: Encoders::new(pace),
            ..Self::default()
        }
    }

    /// Compresses the pages of a file, by rising number, that gain; a chunk has at most `room` bytes.
    pub(crate) fn compress(
        &mut self,
        ino: u32,
        pages: &[(u32, impl Deref<Target = Block>)],
        rules: &Rules,
        codec: Codec,
        room: usize,
    ) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        if rules.sample == Sample::First && !self.halves(codec, pages) {
            return chunks;
        }
        for run in pages.chunk_by(|(left, _), (right, _)| left + 1 == *right) {
            let mut rest = run;
            // How many pages before the rest gain nothing.
            let mut left = 0;
            while left < rest.len() {
                let window = &rest[left..rest.len().min(left + rules.window)];
                let Some(chunk) = self.chunk(ino, window, codec, room) else {
                    left += 1;
                    continue;
                };
                let (kept, behind) = rest.split_at(left);
                chunks.extend(rules.stored(ino, kept));
                rest = &behind[usize::from(chunk.blocks)..];
                left = 0;
                chunks.push(chunk);
            }
            chunks.extend(rules.stored(ino, rest));
        }
        chunks
    }

    /// Compresses the pages of a window together; `None` if that gains less than an eighth.
    pub(crate) fn window(
        &mut self,
        ino: u32,
        pages: &[(u32, impl Deref<Target = Block>)],
        codec: Codec,
    ) -> Option<Chunk> {
        self.pages(ino, pages, codec, |compressor, input| {
            let gains = compressor.encode(codec, input, input.len() / 8 * 7);
            gains.then_some(pages.len())
        })
    }

    /// A block that is no page of a file, compressed, if that takes no more than so many bytes.
    pub(crate) fn block(&mut self, codec: Codec, block: &Block, most: usize) -> Option<Vec<u8>> {
        self.encode(codec, block, most).then(|| self.output.clone())
    }

    /// Returns whether the first page shrinks to a half.
    fn halves(&mut self, codec: Codec, pages: &[(u32, impl Deref<Target = Block>)]) -> bool {
        pages
            .first()
            .is_some_and(|(_, page)| self.encode(codec, &**page, BLOCK_BYTES / 2))
    }

    /// A chunk of as many of the pages as fit; `None` if the first gains nothing.
    fn chunk(
        &mut self,
        ino: u32,
        pages: &[(u32, impl Deref<Target = Block>)],
        codec: Codec,
        room: usize,
    ) -> Option<Chunk> {
        self.pages(ino, pages, codec, |compressor, input| {
            compressor.fit(codec, input, room)
        })
    }

    /// A chunk of as many of the pages as `encode` says that are in the output then.
    fn pages(
        &mut self,
        ino: u32,
        pages: &[(u32, impl Deref<Target = Block>)],
        codec: Codec,
        encode: impl FnOnce(&mut Self, &[u8]) -> Option<usize>,
    ) -> Option<Chunk> {
        let lblk = pages.first()?.0;
        let mut input = std::mem::take(&mut self.input);
        input.clear();
        pages
            .iter()
            .for_each(|(_, page)| input.extend_from_slice(&**page));
        let count = encode(self, &input);
        self.input = input;
        Some(Chunk {
            ino,
            lblk,
            blocks: u8::try_from(count?).ok()?,
            codec: codec as u8,
            core: false,
            bytes: self.output.clone(),
        })
    }

    /// Returns how many of the pages are in the output now. Where the first gains nothing by itself, it is left,
    /// whatever comes behind: trying all of them again for each that gains nothing would take much longer than they are
    /// worth.
    fn fit(&mut self, codec: Codec, input: &[u8], room: usize) -> Option<usize> {
        let mut count = input.len() / BLOCK_BYTES;
        if count > 1 && !self.encode_page(codec, input, room) {
            return None;
        }
        while count > 1 {
            let pages = &input[..count * BLOCK_BYTES];
            let most = room.min(pages.len() - count * GAIN_MIN);
            self.output.resize(most, 0);
            match self.encoders.encode(codec, pages, &mut self.output) {
                Some(encoded) if encoded.consumed == pages.len() => {
                    self.output.truncate(encoded.written);
                    return Some(count);
                }
                Some(encoded) => count = pages_worth(encoded),
                None if codec.takes_parts() => count = 1,
                None => count /= 2,
            }
        }
        self.encode_page(codec, input, room).then_some(1)
    }

    /// Returns whether the first page gains and fits; then it is the output.
    fn encode_page(&mut self, codec: Codec, input: &[u8], room: usize) -> bool {
        let page = &input[..BLOCK_BYTES];
        self.encode(codec, page, room.min(BLOCK_BYTES - GAIN_MIN))
    }

    /// Returns whether all of it fits into so many bytes; then these are the output.
    fn encode(&mut self, codec: Codec, input: &[u8], room: usize) -> bool {
        self.output.resize(room, 0);
        let encoded = self.encoders.encode(codec, input, &mut self.output);
        let whole = encoded.filter(|encoded| encoded.consumed == input.len());
        self.output
            .truncate(whole.map_or(0, |encoded| encoded.written));
        whole.is_some()
    }
}

/// Returns how many pages may be worth a chunk, if so much of them gains so much: no fewer of them gain more.
fn pages_worth(encoded: Encoded) -> usize {
    let gained = encoded.consumed - encoded.written;
    (encoded.consumed / BLOCK_BYTES).min(gained / GAIN_MIN)
}

/// The pages of a chunk.
pub(crate) fn expand(slot: &Slot, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut pages = vec![0; usize::from(slot.blocks) * BLOCK_BYTES];
    if slot.codec == STORED {
        return (bytes.len() == pages.len()).then(|| bytes.to_vec());
    }
    Codec::numbered(slot.codec)?.decode(bytes, &mut pages)?;
    Some(pages)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::compress::kind::ContentKind;
    use crate::compress::policy::Policy;

    /// Pages of noise (`n`) and of text (`t`).
    fn pages(kinds: &str) -> Vec<(u32, Arc<Block>)> {
        let mut state = 7_u32;
        let mut noise = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut page = |kind| match kind {
            'n' => std::array::from_fn(&mut noise),
            _ => std::array::from_fn(|at| b"a row of a table "[at % 17]),
        };
        let pages = kinds.chars().map(|kind| Arc::new(page(kind)));
        (0..).zip(pages).collect()
    }

    /// The first page and the number of pages of each chunk, all of which hold what they should.
    fn chunks(kinds: &str) -> Vec<(u32, u8)> {
        let pages = pages(kinds);
        let rules = Policy::Record.rules(ContentKind::RollbackJournal).unwrap();
        let room = CHUNK_BYTES_MAX;
        let chunks = Compressor::default().compress(3, &pages, &rules, Codec::Lz4, room);
        for chunk in &chunks {
            let expanded = expand(&chunk.slot(), &chunk.bytes).unwrap();
            let whole = &pages[chunk.lblk as usize..][..chunk.blocks.into()];
            let whole: Vec<u8> = whole.iter().flat_map(|(_, page)| **page).collect();
            assert!(expanded == whole);
            assert!(chunk.bytes.len() <= whole.len() - GAIN_MIN * usize::from(chunk.blocks));
        }
        chunks
            .iter()
            .map(|chunk| (chunk.lblk, chunk.blocks))
            .collect()
    }

    #[test]
    fn a_chunk_begins_with_a_page_that_gains() {
        assert_eq!(chunks("nnntttttnnn"), [(3, 8)]);
        assert_eq!(chunks("tn"), [(0, 2)]);
        assert_eq!(chunks("nnnnnn"), []);
    }

    #[test]
    fn a_chunk_has_as_many_pages_as_gain_enough_together() {
        let noise = "n".repeat(30);
        let [(0, blocks)] = chunks(&format!("t{noise}"))[..] else {
            panic!("one chunk");
        };
        // A page of text gains nearly all of its 4 KiB: 256 bytes for each of 14 pages, 13 of which LZ4 makes longer by 16.
        assert_eq!(blocks, 14);
        assert_eq!(chunks(&format!("{noise}tt"))[..], [(30, 2)]);
    }
}
