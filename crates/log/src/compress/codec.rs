//! The codecs of chunks.
//!
//! Bytes that are decoded are hostile: they fill the pages exactly, or nothing is said of these. An encoder writes into the room
//! that it is given and no further. LZ4 takes as much of its input as fits there; the others take all of it or nothing.

use std::cell::RefCell;

use anteros_codec::{Algorithm, Decoder, Effort, Encoded, Length, Lz4Encoder, Params, ZstdEncoder};
use lzokay::compress::{Dict, compress_no_alloc};
use lzokay::decompress::decompress;

/// Tells how a chunk is compressed; the number is that of its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// An LZ4 block.
    #[default]
    Lz4 = 1,
    /// LZO1X, as FPC has it (5.1).
    Lzo,
    /// A frame of Zstandard.
    Zstd,
}

impl Codec {
    /// All of them, with the names they are asked for by.
    pub const ALL: [(&'static str, Self); 3] =
        [("lz4", Self::Lz4), ("lzo", Self::Lzo), ("zstd", Self::Zstd)];

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::found(|known, _| known == name)
    }

    /// The one that a slot names.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::found(|_, codec| codec as u8 == number)
    }

    fn found(is_it: impl Fn(&str, Self) -> bool) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(name, codec)| is_it(name, *codec))
            .map(|(_, codec)| codec)
    }

    /// Fills `pages` with what a chunk holds, if that is as much; else they hold anything.
    #[must_use]
    pub fn decode(self, chunk: &[u8], pages: &mut [u8]) -> Option<()> {
        match self {
            Self::Lz4 => decode(Algorithm::Lz4, chunk, pages),
            Self::Lzo => (decompress(chunk, pages).ok()? == pages.len()).then_some(()),
            Self::Zstd => decode(Algorithm::Zstd, chunk, pages),
        }
    }

    /// Returns whether an encoder takes what fits, if not all does.
    pub(crate) fn takes_parts(self) -> bool {
        self == Self::Lz4
    }
}

fn decode(algorithm: Algorithm, chunk: &[u8], pages: &mut [u8]) -> Option<()> {
    thread_local!(static DECODER: RefCell<Decoder> = RefCell::default());
    let params = Params::default();
    DECODER.with_borrow_mut(|decoder| {
        let decoded = decoder.decode(algorithm, &params, chunk, pages, Length::Exact);
        decoded.ok()
    })
}

/// Tells how hard encoders try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pace {
    /// Somebody waits for it.
    #[default]
    Quick,
    /// It is done once, and read often. (Of LZO there is one encoder.)
    Thorough,
}

impl Pace {
    /// Of single pages, LZ4 itself finds out that they gain nothing before a look at them would.
    fn lz4(self) -> Option<Lz4Encoder> {
        match self {
            Self::Quick => Some(Lz4Encoder::new(Effort::Fast).ok()?.without_probe()),
            Self::Thorough => Lz4Encoder::new(Effort::High(9)).ok(),
        }
    }

    fn of_zstd(self) -> i32 {
        match self {
            Self::Quick => 1,
            Self::Thorough => 9,
        }
    }
}

/// The encoders, with memory that is used again; each takes it when it is asked for first.
#[derive(Default)]
pub(crate) struct Encoders {
    pace: Pace,
    lz4: Option<Lz4Encoder>,
    lzo: Option<Box<Dict>>,
    zstd: Option<ZstdEncoder>,
}

impl Encoders {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            ..Self::default()
        }
    }

    /// Compresses the front of `input` into the front of `output`; `None` if it does not fit, or gains nothing.
    pub(crate) fn encode(
        &mut self,
        codec: Codec,
        input: &[u8],
        output: &mut [u8],
    ) -> Option<Encoded> {
        match codec {
            Codec::Lz4 => {
                let pace = self.pace;
                self.lz4 = self.lz4.take().or_else(|| pace.lz4());
                self.lz4.as_mut()?.encode(input, output)
            }
            Codec::Lzo => {
                let dict = self.lzo.get_or_insert_with(Dict::new);
                whole(input, compress_no_alloc(input, output, dict).ok()?)
            }
            Codec::Zstd => {
                let level = self.pace.of_zstd();
                self.zstd = self.zstd.take().or_else(|| ZstdEncoder::new(level));
                whole(input, self.zstd.as_mut()?.encode(input, output)?)
            }
        }
    }
}

fn whole(input: &[u8], written: usize) -> Option<Encoded> {
    let consumed = input.len();
    (written < consumed).then_some(Encoded { consumed, written })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Numbers that look like any others, and are the same each time.
    struct Dice(u32);

    impl Dice {
        fn next(&mut self) -> u8 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.0 >> 24) as u8
        }
    }

    /// Pages of which one byte in so many comes as a surprise.
    fn pages(count: usize, every: usize) -> Vec<u8> {
        let mut dice = Dice(every as u32);
        let mut bytes: Vec<u8> = b"a row of a table|".repeat(count * PAGE / 16);
        bytes.truncate(count * PAGE);
        let surprises = bytes.iter_mut().step_by(every);
        surprises.for_each(|byte| *byte = dice.next());
        bytes
    }

    fn encoded(codec: Codec, pages: &[u8]) -> Option<Vec<u8>> {
        let mut output = vec![0; pages.len()];
        let encoded = Encoders::default().encode(codec, pages, &mut output)?;
        output.truncate(encoded.written);
        (encoded.consumed == pages.len()).then_some(output)
    }

    #[test]
    fn names_and_numbers_are_those_of_a_codec() {
        for (name, codec) in Codec::ALL {
            assert_eq!(Codec::named(name), Some(codec));
            assert_eq!(Codec::numbered(codec as u8), Some(codec));
        }
        assert_eq!((Codec::named("none"), Codec::numbered(0)), (None, None));
    }

    /// One encoder after the other: it remembers nothing of what it had before.
    #[test]
    fn every_codec_gives_back_what_it_took() {
        let mut encoders = Encoders::default();
        for count in [1, 2, 5, 13, 32] {
            for every in [1, 2, 3, 7, 30, 100, 1000, 5000] {
                let pages = pages(count, every);
                for (name, codec) in Codec::ALL {
                    let mut chunk = vec![0; pages.len() - 256];
                    let Some(encoded) = encoders.encode(codec, &pages, &mut chunk) else {
                        assert!(every < 7, "{name}: {count} pages, {every}");
                        continue;
                    };
                    let mut again = vec![0; encoded.consumed];
                    codec.decode(&chunk[..encoded.written], &mut again).unwrap();
                    assert!(
                        again == pages[..encoded.consumed],
                        "{name}: {count}, {every}"
                    );
                }
            }
        }
    }

    #[test]
    fn nothing_is_written_where_there_is_no_room() {
        let pages = pages(4, 50);
        for (name, codec) in Codec::ALL {
            let chunk = encoded(codec, &pages).unwrap();
            for room in [0, 1, 20, chunk.len() - 1] {
                let part = Encoders::default().encode(codec, &pages, &mut vec![0; room]);
                let consumed = part.map_or(0, |part| part.consumed);
                assert!(consumed < pages.len(), "{name}: {room}");
                assert!(codec.takes_parts() || part.is_none(), "{name}: {room}");
            }
        }
    }

    #[test]
    fn a_chunk_fills_its_pages_exactly() {
        let pages = pages(2, 50);
        for (name, codec) in Codec::ALL {
            let chunk = encoded(codec, &pages).unwrap();
            let decode = |chunk: &[u8], len| codec.decode(chunk, &mut vec![0; len]);
            assert_eq!(decode(&chunk, pages.len()), Some(()), "{name}");
            for len in [0, PAGE, pages.len() - 1, pages.len() + 1, 32 * PAGE] {
                assert_eq!(decode(&chunk, len), None, "{name}: {len}");
            }
            for len in 0..chunk.len() {
                assert_eq!(decode(&chunk[..len], pages.len()), None, "{name}: {len}");
            }
            let longer = [&chunk[..], &[0]].concat();
            assert_eq!(decode(&longer, pages.len()), None, "{name}");
        }
    }

    /// Whatever is made of a chunk decodes to something or to nothing, and nothing panics.
    #[test]
    fn damaged_chunks_are_no_trouble() {
        let mut dice = Dice(5);
        for (_, codec) in Codec::ALL {
            let chunk = encoded(codec, &pages(4, 50)).unwrap();
            for _ in 0..3000 {
                let mut damaged = chunk.clone();
                for _ in 0..=dice.next() % 4 {
                    let at = usize::from(dice.next()) * 7 % damaged.len();
                    damaged[at] = dice.next();
                }
                let _ = codec.decode(&damaged, &mut vec![0; 4 * PAGE]);
                let noise: Vec<u8> = (0..dice.next()).map(|_| dice.next()).collect();
                let _ = codec.decode(&noise, &mut vec![0; PAGE]);
            }
        }
    }

    /// Bytes by hand, after what the format says: it is LZO1X and no dialect of it.
    #[test]
    fn lzo_is_read_as_it_is_written_down() {
        let literals = b"\x16hello\x11\0\0";
        let mut hello = [0; 5];
        assert_eq!(Codec::Lzo.decode(literals, &mut hello), Some(()));
        assert_eq!(&hello, b"hello");
        // Four literals, then as many as 33 bytes from a distance of four.
        let repeated = b"\x15abcd\x3f\x0c\0\x11\0\0";
        let mut found = [0; 37];
        assert_eq!(Codec::Lzo.decode(repeated, &mut found), Some(()));
        assert_eq!(&found[..], &b"abcd".repeat(10)[..37]);
        // A distance beyond what there is.
        let wild = b"\x15abcd\x3f\x10\0\x11\0\0";
        assert_eq!(Codec::Lzo.decode(wild, &mut found), None);
    }
}
