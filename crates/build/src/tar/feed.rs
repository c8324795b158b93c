//! The bytes of an archive, from front to end, and the content of its members among them.
//!
//! In a regular file the content stays where it is and is not even looked at. From a stream it goes
//! into a file without a name, which is gone with this process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::AtFlags;

use super::direct::Direct;
use super::early::Early;
use super::fault::Fault;
use super::header::{BLOCK_BYTES, Block};
use super::spool::{STEP_BYTES, Spool};
use super::unpack::{Format, Unpacked};
use crate::early::{ContentPlace, Run, Segments};
use crate::source::directory::{fingerprint, stat};
use crate::tree::Fingerprint;

/// Bytes that are read at once where content is passed over: a few headers and small files.
const HEADER_BYTES: usize = 8 << 10;

/// The content of members.
pub(super) struct Content {
    pub file: File,
    /// Tells the archive from itself at other times, if the content lies in it.
    pub before: Option<Fingerprint>,
    /// Segments of files that are compressed already.
    pub segments: Option<Segments>,
}

/// The bytes of an archive.
pub(super) struct Feed<'a> {
    bytes: Bytes<'a>,
    /// Bytes read or passed over.
    position: u64,
    cancel: &'a AtomicBool,
}

enum Bytes<'a> {
    InPlace {
        reader: BufReader<File>,
        /// Byte of the file at which the archive begins.
        start: u64,
        /// Bytes of the archive.
        len: u64,
        /// The file as it was before anything was read.
        fingerprint: Fingerprint,
    },
    Stream {
        reader: Box<Unpacked<Box<dyn Read + 'a>>>,
        spool: Spool,
        taker: Option<Taker<'a>>,
    },
}

/// Takes whole files while a stream is read.
pub(super) enum Taker<'a> {
    /// Has them compressed.
    Early(Box<Early<'a>>),
    /// Writes them to the image.
    Direct(Direct<'a>),
}

impl Taker<'_> {
    /// Returns whether it takes a file of so many bytes.
    fn takes(&self, file_bytes: u64) -> bool {
        match self {
            Self::Early(early) => early.takes(file_bytes),
            Self::Direct(_) => file_bytes > 0,
        }
    }
}

impl<'a> Feed<'a> {
    /// An archive in a regular file, from the file's position on.
    pub fn in_place(mut file: File, cancel: &'a AtomicBool) -> std::io::Result<Self> {
        let start = file.stream_position()?;
        let len = file.metadata()?.len().saturating_sub(start);
        let fingerprint = fingerprint(&stat(&file, b"", AtFlags::EMPTY_PATH)?);
        let reader = BufReader::with_capacity(HEADER_BYTES, file);
        Ok(Self {
            bytes: Bytes::InPlace {
                reader,
                start,
                len,
                fingerprint,
            },
            position: 0,
            cancel,
        })
    }

    /// An archive that can be read but once.
    pub fn stream(
        reader: Unpacked<Box<dyn Read + 'a>>,
        spool: Spool,
        taker: Option<Taker<'a>>,
        cancel: &'a AtomicBool,
    ) -> Self {
        Self {
            bytes: Bytes::Stream {
                reader: Box::new(reader),
                spool,
                taker,
            },
            position: 0,
            cancel,
        }
    }

    /// Byte of the archive that comes next.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the first bytes, fewer than asked for only at the end. Nothing was read before.
    pub fn look(&mut self, len: usize) -> Result<Vec<u8>, Fault> {
        let found = match &mut self.bytes {
            Bytes::InPlace { reader, start, .. } => look_at(reader.get_ref(), *start, len),
            Bytes::Stream { reader, .. } => reader.look(len).map(<[u8]>::to_vec),
        };
        found.map_err(Fault::Read)
    }

    /// Reads the content of another file from here on.
    pub fn go_on_with(&mut self, content: Box<dyn Read + 'a>) {
        if let Bytes::Stream { reader, .. } = &mut self.bytes {
            **reader = Unpacked::plain(content);
        }
    }

    /// Has all archives of a stream read, not the first alone.
    pub const fn go_on(&mut self) {
        if let Bytes::Stream { reader, .. } = &mut self.bytes {
            reader.go_on();
        }
    }

    /// Passes over zeros between archives; answers whether a compressed one follows that cannot be read in place.
    pub fn gap(&mut self) -> Result<bool, Fault> {
        loop {
            self.check_cancelled()?;
            let step = match &mut self.bytes {
                Bytes::InPlace { reader, .. } => gap(reader),
                Bytes::Stream { reader, .. } => reader.gap(),
            };
            let (zeros, is_over) = step.map_err(Fault::Read)?;
            self.position += zeros;
            if is_over {
                return self.is_compressed();
            }
        }
    }

    /// Returns whether what comes next is compressed, and cannot be read in place.
    fn is_compressed(&mut self) -> Result<bool, Fault> {
        let Bytes::InPlace { reader, start, .. } = &mut self.bytes else {
            return Ok(false);
        };
        let next = look_at(reader.get_ref(), *start + self.position, BLOCK_BYTES);
        Ok(Format::of(&next.map_err(Fault::Read)?).is_some())
    }

    /// Fills a buffer; answers whether there was anything.
    pub fn exact(&mut self, buf: &mut [u8]) -> Result<bool, Fault> {
        self.check_cancelled()?;
        match self.fill(buf)? {
            0 => Ok(buf.is_empty()),
            len if len == buf.len() => Ok(true),
            _ => Err(Fault::Truncated),
        }
    }

    /// Reads a block; `None` if the archive ends here.
    pub fn block(&mut self) -> Result<Option<Block>, Fault> {
        self.check_cancelled()?;
        let mut block = [0; BLOCK_BYTES];
        match self.fill(&mut block)? {
            0 => Ok(None),
            BLOCK_BYTES => Ok(Some(block)),
            _ => Err(Fault::Truncated),
        }
    }

    /// Reads so many bytes and passes over what fills their last block.
    pub fn padded(&mut self, len: usize) -> Result<Vec<u8>, Fault> {
        let mut data = vec![0; len.next_multiple_of(BLOCK_BYTES)];
        if self.fill(&mut data)? < data.len() {
            return Err(Fault::Truncated);
        }
        data.truncate(len);
        Ok(data)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, Fault> {
        let reader: &mut dyn Read = match &mut self.bytes {
            Bytes::InPlace { reader, .. } => reader,
            Bytes::Stream { reader, .. } => reader,
        };
        let len = fill(reader, buf).map_err(Fault::Read)?;
        self.position += len as u64;
        // The end may be that of another program that the same signal has ended.
        self.check_cancelled()?;
        Ok(len)
    }

    /// Passes over bytes, and over what fills their last block.
    pub fn skip(&mut self, len: u64) -> Result<(), Fault> {
        self.skip_bytes(padded(len)?)
    }

    /// Passes over bytes.
    pub fn skip_bytes(&mut self, len: u64) -> Result<(), Fault> {
        match &mut self.bytes {
            Bytes::InPlace { .. } => self.pass(len),
            Bytes::Stream { .. } => self.copy(len, |_, _| Ok(())),
        }
    }

    /// Passes over content that will be read later; answers where it lies in the file of content.
    pub fn keep(&mut self, len: u64) -> Result<u64, Fault> {
        self.padded_by(len, Self::keep_bytes)
    }

    /// Passes over content that will be read later; answers where it lies in the file of content.
    pub fn keep_bytes(&mut self, len: u64) -> Result<u64, Fault> {
        match &mut self.bytes {
            Bytes::InPlace { start, .. } => {
                let place = *start + self.position;
                self.pass(len)?;
                Ok(place)
            }
            Bytes::Stream { spool, .. } => {
                let place = spool.len;
                self.copy(len, |spool, data| spool.append(data))?;
                Ok(place)
            }
        }
    }

    /// Passes over the content of a regular file, all of it, that will be read later.
    pub fn keep_file(&mut self, len: u64) -> Result<ContentPlace, Fault> {
        self.padded_by(len, Self::keep_file_bytes)
    }

    /// Keeps content, and passes over what fills its last block.
    fn padded_by<T>(
        &mut self,
        len: u64,
        keep: impl FnOnce(&mut Self, u64) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let padding = padded(len)? - len;
        let place = keep(self, len)?;
        self.skip_bytes(padding)?;
        Ok(place)
    }

    /// Passes over the content of a regular file, all of it, that will be read later.
    pub fn keep_file_bytes(&mut self, len: u64) -> Result<ContentPlace, Fault> {
        match &mut self.bytes {
            Bytes::Stream { taker, .. } if taker.as_ref().is_some_and(|taker| taker.takes(len)) => {
                let mut taken = taker.take().expect("there is one");
                let place = match &mut taken {
                    Taker::Early(early) => self.compress(len, early).map(ContentPlace::Segments),
                    Taker::Direct(direct) => self.store(len, direct).map(ContentPlace::Stored),
                };
                if let Bytes::Stream { taker, .. } = &mut self.bytes {
                    *taker = Some(taken);
                }
                place
            }
            _ => self.keep_bytes(len).map(ContentPlace::Bytes),
        }
    }

    /// Has the content of a file compressed.
    fn compress(&mut self, len: u64, early: &mut Early<'a>) -> Result<Run, Fault> {
        let run = early.file(len);
        for start in (0..len).step_by(run.segment_bytes as usize) {
            let len = u64::from(run.segment_bytes).min(len - start) as usize;
            if self.fill(early.segment(len))? < len {
                return Err(Fault::Truncated);
            }
            if let Bytes::Stream { spool, .. } = &mut self.bytes {
                early.settle(spool)?;
            }
        }
        Ok(run)
    }

    /// Has the content of a file written to the image; answers its first block.
    fn store(&mut self, len: u64, direct: &mut Direct<'a>) -> Result<u32, Fault> {
        let first_block = direct.begin()?;
        self.copy_all(len, |_, data| direct.write(data))?;
        direct.end()?;
        Ok(first_block)
    }

    /// Passes over content as [`keep_bytes`](Self::keep_bytes) does, and adds up all of its bytes.
    pub fn keep_summed(&mut self, len: u64) -> Result<(u64, u32), Fault> {
        let mut sum = 0u32;
        let place = match &self.bytes {
            Bytes::InPlace { start, .. } => *start + self.position,
            Bytes::Stream { spool, .. } => spool.len,
        };
        self.copy_all(len, |spool, data| {
            let bytes = data.iter().map(|byte| u32::from(*byte));
            sum = bytes.fold(sum, u32::wrapping_add);
            spool.map_or(Ok(()), |spool| spool.append(data))
        })?;
        Ok((place, sum))
    }

    fn pass(&mut self, bytes: u64) -> Result<(), Fault> {
        let Bytes::InPlace { reader, len, .. } = &mut self.bytes else {
            unreachable!("a stream is copied");
        };
        if bytes > len.saturating_sub(self.position) {
            return Err(Fault::Truncated);
        }
        reader.seek_relative(bytes as i64).map_err(Fault::Read)?;
        self.position += bytes;
        Ok(())
    }

    fn copy(
        &mut self,
        len: u64,
        take: impl Fn(&mut Spool, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.copy_all(len, |spool, data| {
            spool.map_or(Ok(()), |spool| take(spool, data))
        })
    }

    fn copy_all(
        &mut self,
        mut len: u64,
        mut take: impl FnMut(Option<&mut Spool>, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut buffer = vec![0; len.min(STEP_BYTES as u64) as usize];
        while len > 0 {
            self.check_cancelled()?;
            let step = len.min(STEP_BYTES as u64) as usize;
            if self.fill(&mut buffer[..step])? < step {
                return Err(Fault::Truncated);
            }
            let spool = match &mut self.bytes {
                Bytes::InPlace { .. } => None,
                Bytes::Stream { spool, .. } => Some(spool),
            };
            take(spool, &buffer[..step])?;
            len -= step as u64;
        }
        Ok(())
    }

    /// Reads a stream to its end, so that whoever writes to it comes to an end as well.
    pub fn drain(&mut self) -> Result<(), Fault> {
        let mut buffer = vec![0; STEP_BYTES];
        while matches!(self.bytes, Bytes::Stream { .. }) && self.fill(&mut buffer)? > 0 {
            self.check_cancelled()?;
        }
        Ok(())
    }

    /// Returns the file that holds the content of members.
    pub fn into_content(self) -> Result<Content, Fault> {
        match self.bytes {
            Bytes::InPlace {
                reader,
                fingerprint,
                ..
            } => Ok(Content {
                file: reader.into_inner(),
                before: Some(fingerprint),
                segments: None,
            }),
            Bytes::Stream {
                mut spool, taker, ..
            } => {
                let segments = match taker {
                    Some(Taker::Early(early)) => Some(early.finish(&mut spool)),
                    Some(Taker::Direct(_)) | None => None,
                };
                Ok(Content {
                    segments: segments.transpose()?,
                    file: spool.finish()?,
                    before: None,
                })
            }
        }
    }

    pub fn check_cancelled(&self) -> Result<(), Fault> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(Fault::Cancelled),
            false => Ok(()),
        }
    }
}

/// Reads bytes of a file, fewer than asked for only at its end.
pub(super) fn look_at(file: &File, start: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut found = Vec::new();
    while found.len() < len {
        let mut buf = vec![0; len - found.len()];
        let more = file.read_at(&mut buf, start + found.len() as u64)?;
        if more == 0 {
            break;
        }
        found.extend_from_slice(&buf[..more]);
    }
    Ok(found)
}

/// Passes over the zeros that are at hand; answers how many there were, and whether something else is next, or the end.
fn gap(reader: &mut BufReader<File>) -> std::io::Result<(u64, bool)> {
    let bytes = reader.fill_buf()?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let is_over = zeros < bytes.len() || bytes.is_empty();
    reader.consume(zeros);
    Ok((zeros as u64, is_over))
}

/// Returns the length with what fills the last block.
fn padded(len: u64) -> Result<u64, Fault> {
    len.checked_next_multiple_of(BLOCK_BYTES as u64)
        .filter(|len| i64::try_from(*len).is_ok())
        .ok_or(Fault::Truncated)
}

/// Reads as much as there is room for, less only at the end.
fn fill(reader: &mut (impl Read + ?Sized), buf: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while len < buf.len() {
        match reader.read(&mut buf[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(len)
}
