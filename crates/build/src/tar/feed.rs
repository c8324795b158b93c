//! The bytes of an archive, from front to end, and the content of its members among them.
//!
//! In a regular file the content stays where it is and is not even looked at. From a stream it goes
//! into a file without a name, which is gone with this process.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::AtFlags;

use super::Fault;
use super::header::{BLOCK_BYTES, Block};
use crate::source::directory::{fingerprint, stat};
use crate::tree::Fingerprint;

/// Bytes that are read at once where content is passed over: a few headers and small files.
const HEADER_BYTES: usize = 8 << 10;
/// Bytes that are taken from a stream at once.
const STEP_BYTES: usize = 128 << 10;
/// Bytes that are gathered for one write to the spool.
const SPOOL_BYTES: usize = 1 << 20;

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
        reader: Box<dyn Read + 'a>,
        spool: Spool,
    },
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
    pub fn stream(reader: Box<dyn Read + 'a>, spool: Spool, cancel: &'a AtomicBool) -> Self {
        Self {
            bytes: Bytes::Stream { reader, spool },
            position: 0,
            cancel,
        }
    }

    /// Byte of the archive that comes next.
    pub const fn position(&self) -> u64 {
        self.position
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
        let len = padded(len)?;
        match &mut self.bytes {
            Bytes::InPlace { .. } => self.pass(len),
            Bytes::Stream { .. } => self.copy(len, |_, _| Ok(())),
        }
    }

    /// Passes over content that will be read later; answers where it lies in the file of content.
    pub fn keep(&mut self, len: u64) -> Result<u64, Fault> {
        match &mut self.bytes {
            Bytes::InPlace { start, .. } => {
                let place = *start + self.position;
                self.pass(padded(len)?)?;
                Ok(place)
            }
            Bytes::Stream { spool, .. } => {
                let place = spool.len;
                self.copy(len, |spool, data| spool.append(data))?;
                self.copy(padded(len)? - len, |_, _| Ok(()))?;
                Ok(place)
            }
        }
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
        mut len: u64,
        take: impl Fn(&mut Spool, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut buffer = vec![0; len.min(STEP_BYTES as u64) as usize];
        while len > 0 {
            self.check_cancelled()?;
            let step = len.min(STEP_BYTES as u64) as usize;
            if self.fill(&mut buffer[..step])? < step {
                return Err(Fault::Truncated);
            }
            if let Bytes::Stream { spool, .. } = &mut self.bytes {
                take(spool, &buffer[..step])?;
            }
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

    /// Returns the file that holds the content of members, and if that is the archive itself, what it was before anything
    /// was read.
    pub fn into_content(self) -> Result<(File, Option<Fingerprint>), Fault> {
        match self.bytes {
            Bytes::InPlace {
                reader,
                fingerprint,
                ..
            } => Ok((reader.into_inner(), Some(fingerprint))),
            Bytes::Stream { spool, .. } => Ok((spool.finish()?, None)),
        }
    }

    fn check_cancelled(&self) -> Result<(), Fault> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(Fault::Cancelled),
            false => Ok(()),
        }
    }
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

/// A file without a name, for the content of members.
pub(super) struct Spool {
    file: File,
    directory: PathBuf,
    /// Bytes so far.
    len: u64,
    /// The last of them, which are not written yet.
    gathered: Vec<u8>,
}

impl Spool {
    pub fn create(directory: &Path) -> Result<Self, Fault> {
        let file = tempfile::tempfile_in(directory).map_err(|cause| Fault::Spool {
            directory: directory.to_owned(),
            len: 0,
            cause,
        })?;
        Ok(Self {
            file,
            directory: directory.to_owned(),
            len: 0,
            gathered: Vec::with_capacity(SPOOL_BYTES),
        })
    }

    /// Adds content. Long parts that are all zeros take no room.
    fn append(&mut self, data: &[u8]) -> Result<(), Fault> {
        let is_hole = data.len() == STEP_BYTES && data.iter().all(|byte| *byte == 0);
        if is_hole || self.gathered.len() + data.len() > SPOOL_BYTES {
            self.flush()?;
        }
        if !is_hole {
            self.gathered.extend_from_slice(data);
        }
        self.len += data.len() as u64;
        Ok(())
    }

    /// Writes what was gathered.
    fn flush(&mut self) -> Result<(), Fault> {
        let start = self.len - self.gathered.len() as u64;
        let written = self.file.write_all_at(&self.gathered, start);
        written.map_err(|cause| self.fault(cause))?;
        self.gathered.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<File, Fault> {
        self.flush()?;
        let cut = self.file.set_len(self.len);
        cut.map_err(|cause| self.fault(cause))?;
        Ok(self.file)
    }

    fn fault(&self, cause: std::io::Error) -> Fault {
        Fault::Spool {
            directory: self.directory.clone(),
            len: self.len,
            cause,
        }
    }
}
