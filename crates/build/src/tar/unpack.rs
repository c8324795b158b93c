//! Decompression of an archive that comes as a stream. The first bytes tell how it is compressed, of
//! each of several streams that follow each other anew.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use liblzma::bufread::XzDecoder;
use liblzma::stream::Stream;

use super::header::{BLOCK_BYTES, Block, Header};

/// Bytes of the stream that are read at once: as many as a pipe may hold.
const INPUT_BYTES: usize = 1 << 20;
/// Bytes that are read at once of a file that is listed by itself: large parts go past them.
const PLAIN_BYTES: usize = 4 << 10;
/// The most memory that a decoder of xz may take: `xz -9` takes 65 MiB.
const XZ_MEMORY_BYTES: u64 = 512 << 20;

/// The ways in which an archive can be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Xz,
    Lzma,
    Zstd,
    Bzip2,
    Lzip,
}

impl Format {
    /// Returns how a stream is compressed that begins so; `None` if it is not.
    pub fn of(start: &[u8]) -> Option<Self> {
        let magics: [(&[u8], Self); 6] = [
            (b"\x1f\x8b", Self::Gzip),
            (b"\xfd7zXZ\0", Self::Xz),
            (b"\x28\xb5\x2f\xfd", Self::Zstd),
            (b"\x5d\0\0", Self::Lzma),
            (b"BZh", Self::Bzip2),
            (b"LZIP", Self::Lzip),
        ];
        let found = magics.iter().find(|(magic, _)| start.starts_with(magic));
        found
            .map(|(_, format)| *format)
            .or_else(|| is_skippable_frame(start).then_some(Self::Zstd))
            .filter(|_| !is_header(start))
    }

    /// The program that decompresses it.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz | Self::Lzma => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Lzip => "lzip",
        }
    }
}

/// Zstandard has frames without data, of sixteen magics.
fn is_skippable_frame(start: &[u8]) -> bool {
    start.len() >= 4 && start[0] & 0xf0 == 0x50 && start[1..4] == [0x2a, 0x4d, 0x18]
}

/// Returns whether this is a header: names may begin like anything.
fn is_header(start: &[u8]) -> bool {
    let block: Option<&Block> = start
        .get(..BLOCK_BYTES)
        .and_then(|block| block.try_into().ok());
    block.is_some_and(|block| Header::parse(block).is_ok())
}

/// A stream, decompressed.
pub(super) struct Unpacked<R: Read> {
    /// `None` after an error, and at the end.
    state: Option<State<R>>,
    /// Decompressed bytes that were looked at.
    ahead: Cursor<Vec<u8>>,
    /// Tells whether zeros and other archives, compressed or not, may follow a stream.
    goes_on: bool,
}

/// Bytes that are looked at between archives at once.
const GAP_BYTES: usize = 8 << 10;

enum State<R: Read> {
    Plain(Peeked<R>),
    Gzip(flate2::bufread::GzDecoder<Peeked<R>>),
    Xz(XzDecoder<Peeked<R>>),
    Bzip2(bzip2::bufread::BzDecoder<Peeked<R>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Peeked<R>>>),
}

impl<R: Read> Unpacked<R> {
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] of a format that is known, but not decompressed.
    pub fn new(reader: R) -> io::Result<Self> {
        let mut input = Peeked::new(reader);
        let state = match Format::of(input.peek(BLOCK_BYTES)?) {
            None => State::Plain(input),
            Some(format) => State::decoder(format, input)?,
        };
        Ok(Self {
            state: Some(state),
            ahead: Cursor::default(),
            goes_on: false,
        })
    }

    /// A stream that is not compressed, whatever its first bytes are.
    pub fn plain(reader: R) -> Self {
        Self {
            state: Some(State::Plain(Peeked::with_capacity(PLAIN_BYTES, reader))),
            ahead: Cursor::default(),
            goes_on: false,
        }
    }

    /// Returns the first bytes, fewer than asked for only at the end.
    pub fn look(&mut self, len: usize) -> io::Result<&[u8]> {
        let mut start = Vec::new();
        self.take(len as u64).read_to_end(&mut start)?;
        self.ahead = Cursor::new(start);
        Ok(self.ahead.get_ref())
    }

    /// Has what follows a stream read as well, as the kernel reads the archives of an initramfs.
    pub const fn go_on(&mut self) {
        self.goes_on = true;
    }

    /// Passes over zeros between archives, as far as one step reaches, and to a compressed one if that follows; answers
    /// how many zeros there were, and whether something else is next, or the end.
    pub fn gap(&mut self) -> io::Result<(u64, bool)> {
        let mut zeros = pass_zeros(&mut self.ahead);
        if !self.ahead.fill_buf()?.is_empty() {
            return Ok((zeros, true));
        }
        match self.state.take() {
            None => Ok((zeros, true)),
            Some(State::Plain(mut input)) => {
                zeros += input.pass_zeros()?;
                let start = input.peek(BLOCK_BYTES)?;
                let (is_over, format) = (start.first() != Some(&0), Format::of(start));
                self.state = Some(match format {
                    Some(format) => State::decoder(format, input)?,
                    None => State::Plain(input),
                });
                Ok((zeros, is_over))
            }
            Some(mut state) => {
                let mut buf = vec![0; GAP_BYTES];
                let len = state.read(&mut buf)?;
                buf.truncate(len);
                self.ahead = Cursor::new(buf);
                self.state = match len {
                    0 => state.next(self.goes_on)?,
                    _ => Some(state),
                };
                Ok((zeros, false))
            }
        }
    }
}

/// Passes over zeros; answers how many there were.
fn pass_zeros(bytes: &mut Cursor<Vec<u8>>) -> u64 {
    let at = bytes.position();
    let rest = &bytes.get_ref()[at as usize..];
    let zeros = rest.iter().take_while(|byte| **byte == 0).count() as u64;
    bytes.set_position(at + zeros);
    zeros
}

impl<R: Read> State<R> {
    fn decoder(format: Format, input: Peeked<R>) -> io::Result<Self> {
        Ok(match format {
            Format::Gzip => Self::Gzip(flate2::bufread::GzDecoder::new(input)),
            Format::Xz => {
                let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES, 0)?;
                Self::Xz(XzDecoder::new_stream(input, stream))
            }
            Format::Lzma => {
                let stream = Stream::new_lzma_decoder(XZ_MEMORY_BYTES)?;
                Self::Xz(XzDecoder::new_stream(input, stream))
            }
            Format::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(input)?;
                Self::Zstd(Box::new(decoder.single_frame()))
            }
            Format::Bzip2 => Self::Bzip2(bzip2::bufread::BzDecoder::new(input)),
            Format::Lzip => {
                let program = format.program();
                let text =
                    format!("{program} is not supported; decompress it by `{program} -dc` first");
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        })
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.read(buf),
            Self::Gzip(decoder) => decoder.read(buf),
            Self::Xz(decoder) => decoder.read(buf),
            Self::Bzip2(decoder) => decoder.read(buf),
            Self::Zstd(decoder) => decoder.read(buf),
        }
    }

    /// Returns what decodes the stream behind this one, if there is one. Anything else is left alone, unless it `goes_on`.
    fn next(self, goes_on: bool) -> io::Result<Option<Self>> {
        let mut input = match self {
            Self::Plain(_) => return Ok(None),
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Xz(decoder) => decoder.into_inner(),
            Self::Bzip2(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
        };
        let start = input.peek(BLOCK_BYTES)?;
        match Format::of(start) {
            Some(format) => Self::decoder(format, input).map(Some),
            None => Ok((goes_on && !start.is_empty()).then_some(Self::Plain(input))),
        }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.ahead.read(buf)?;
        if len > 0 {
            return Ok(len);
        }
        while let Some(mut state) = self.state.take() {
            let len = state.read(buf)?;
            if len > 0 || buf.is_empty() {
                self.state = Some(state);
                return Ok(len);
            }
            self.state = state.next(self.goes_on)?;
        }
        Ok(0)
    }
}

/// A reader whose next bytes can be looked at.
struct Peeked<R> {
    /// Bytes that were looked at.
    ahead: Cursor<Vec<u8>>,
    reader: BufReader<R>,
}

impl<R: Read> Peeked<R> {
    fn new(reader: R) -> Self {
        Self::with_capacity(INPUT_BYTES, reader)
    }

    fn with_capacity(bytes: usize, reader: R) -> Self {
        Self {
            ahead: Cursor::default(),
            reader: BufReader::with_capacity(bytes, reader),
        }
    }

    /// Returns the next bytes, fewer than asked for only at the end.
    fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        let at = self.ahead.position() as usize;
        let ahead = self.ahead.get_mut();
        ahead.drain(..at);
        self.ahead.set_position(0);
        let ahead = self.ahead.get_mut();
        let missing = len.saturating_sub(ahead.len()) as u64;
        self.reader.by_ref().take(missing).read_to_end(ahead)?;
        Ok(ahead)
    }

    /// Passes over the zeros that are at hand; answers how many there were.
    fn pass_zeros(&mut self) -> io::Result<u64> {
        let bytes = self.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        self.consume(zeros);
        Ok(zeros as u64)
    }
}

impl<R: Read> Read for Peeked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.ahead.read(buf)? {
            0 => self.reader.read(buf),
            len => Ok(len),
        }
    }
}

impl<R: Read> BufRead for Peeked<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.ahead.position() < self.ahead.get_ref().len() as u64 {
            true => self.ahead.fill_buf(),
            false => self.reader.fill_buf(),
        }
    }

    fn consume(&mut self, amount: usize) {
        match self.ahead.position() < self.ahead.get_ref().len() as u64 {
            true => self.ahead.consume(amount),
            false => self.reader.consume(amount),
        }
    }
}
