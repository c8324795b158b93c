//! The image file.
//!
//! A new image is written beside its final name and renamed when it is complete, so that nobody
//! ever sees half of one under that name; whatever goes wrong before removes it. It gets the owner and the permissions
//! of the file whose place it takes, but not its further names, which keep the old image unless [`Options::keeps_names`] says otherwise. Only block devices, and
//! files that keep something in front of the image, or those names, are written in place. There the superblock's
//! block is cleared first and written last, so that what is unfinished is no image.
//!
//! An image for a pipe, which takes bytes in order alone, is kept in a file without a name until it is complete. A sink is
//! no file, but can be written to at any place; it has a thread of its own.
//!
//! All bytes pass through a hash, from which the image's UUID is made.
//!
//! Invariant B2 of `docs/design/building.md`: an image under its final name is complete; a build that fails leaves
//! nothing.

mod place;
mod sink;
mod store;

use std::io;

use anteros_core::zeros;
use xxhash_rust::xxh3::Xxh3;

pub(crate) use place::{Beside, check, is_written_in_place, parent, target};
pub(crate) use sink::write_into;
pub(crate) use store::{Sender, Store};

use crate::{Error, Options};

/// Bytes that are gathered for one write.
const BUFFER_BYTES: usize = 1 << 20;

/// An image that is being written.
pub(crate) struct Output {
    store: Store,
    offset: u64,
    block_bytes: u32,
    /// Tells where the buffer's first byte belongs in the image.
    flushed: u64,
    buffer: Vec<u8>,
    hash: Box<Xxh3>,
}

/// A move of bytes from a place in the image to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub from: u64,
    pub to: u64,
    pub bytes: u64,
}

/// A position to go back to.
pub(crate) struct Checkpoint {
    position: u64,
    hash: Box<Xxh3>,
}

impl Output {
    /// Begins an image; the first `reserved` bytes are left for the superblock.
    pub fn create(store: Store, options: &Options, reserved: u64) -> Result<Self, Error> {
        let clears_first = store.is_in_place();
        let mut output = Self {
            store,
            offset: options.offset,
            block_bytes: options.block_bytes(),
            flushed: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            hash: Box::new(Xxh3::new()),
        };
        output.write(&vec![0; reserved as usize])?;
        if clears_first {
            output.flush()?;
        }
        Ok(output)
    }

    /// Goes on behind an image, at a block of it.
    pub fn append(store: Store, options: &Options, end: u64) -> Self {
        Self {
            store,
            offset: options.offset,
            block_bytes: options.block_bytes(),
            flushed: end,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            hash: Box::new(Xxh3::new()),
        }
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.hash.update(bytes);
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= BUFFER_BYTES {
            self.write_at(self.flushed, bytes)?;
            self.flushed += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Appends bytes of an image that stay as they are, and need no hash.
    pub fn copy(&mut self, bytes: &[u8]) -> Result<(), Error> {
        debug_assert!(self.buffer.is_empty());
        self.write_at(self.flushed, bytes)?;
        self.flushed += bytes.len() as u64;
        Ok(())
    }

    /// Writes bytes in front of the position, where there was room for them.
    pub fn write_over(&mut self, position: u64, bytes: &[u8]) -> Result<(), Error> {
        self.hash.update(bytes);
        self.write_at(position, bytes)
    }

    /// Moves bytes that were written, each move to the place that is in front of it or free, one after the other. The image
    /// goes on at a position then.
    pub fn rearrange(&mut self, moves: &[Move], position: u64) -> Result<(), Error> {
        self.flush()?;
        let mut buffer = vec![0; BUFFER_BYTES];
        for &Move { from, to, bytes } in moves.iter().filter(|step| step.from != step.to) {
            let mut done = 0;
            while done < bytes {
                let part = &mut buffer[..(bytes - done).min(BUFFER_BYTES as u64) as usize];
                let read = self.read_back(from + done, part);
                read.map_err(|e| self.error("read back", e))?;
                self.write_at(to + done, part)?;
                done += part.len() as u64;
            }
        }
        self.flushed = position;
        Ok(())
    }

    /// Appends zeros up to a position.
    pub fn pad_to(&mut self, position: u64) -> Result<(), Error> {
        let missing = position.saturating_sub(self.position());
        zeros(missing).try_for_each(|piece| self.write(piece))
    }

    /// Bytes so far.
    pub fn position(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes.into()
    }

    /// The number of the block that begins at a position.
    pub fn block_of(&self, position: u64) -> Result<u32, Error> {
        debug_assert_eq!(position % u64::from(self.block_bytes), 0);
        self.number(position)
    }

    /// Fails if the block that a position lies in has no number.
    pub fn check(&self, position: u64) -> Result<(), Error> {
        self.number(position).map(|_| ())
    }

    fn number(&self, position: u64) -> Result<u32, Error> {
        let block = u32::try_from(position / u64::from(self.block_bytes));
        // The last number stands for holes.
        block
            .ok()
            .filter(|&block| block < u32::MAX)
            .ok_or_else(|| Error::TooLarge {
                path: self.store.path().to_owned(),
                block_bytes: self.block_bytes,
            })
    }

    /// Remembers the position.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            position: self.position(),
            hash: self.hash.clone(),
        }
    }

    /// Takes back what was written since.
    pub fn rewind(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        self.flush()?;
        self.flushed = checkpoint.position;
        self.hash = checkpoint.hash;
        Ok(())
    }

    /// The hash of all bytes so far and of some that are not written.
    pub fn hash_with(&self, more: &[u8]) -> u128 {
        let mut hash = self.hash.clone();
        hash.update(more);
        hash.digest128()
    }

    /// Writes the superblock at byte `at` of the image, which is complete then. The root of a patch, if it is not among what was
    /// written, is before that, where there are zeros.
    pub fn complete(
        &mut self,
        at: u64,
        superblock: &[u8],
        root: Option<(u64, Vec<u8>)>,
    ) -> Result<(), Error> {
        self.flush()?;
        if let Some((root_at, root)) = &root {
            self.write_at(*root_at, root)?;
        }
        let prepared = self.store.prepare(self.offset + self.flushed);
        if let (Err(_), Some((root_at, root))) = (&prepared, &root) {
            // There is an error already; if this fails as well, a slot is lost.
            let _ = self.write_at(*root_at, &vec![0; root.len()]);
        }
        prepared?;
        self.write_at(at, superblock)
    }

    /// Takes what was written behind a complete image, up to this position, as a part of it.
    pub fn set_end(&mut self, position: u64) {
        debug_assert!(self.buffer.is_empty() && position >= self.flushed);
        self.flushed = position;
    }

    /// Writes bytes of a complete image, or behind it.
    pub fn write_back(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.store.write_at(bytes, self.offset + position)
    }

    /// Reads bytes that were written.
    pub fn read_back(&self, position: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.store.read_at(bytes, self.offset + position)
    }

    /// Gives the file of a complete image its length and its name.
    pub fn finish(self, sync: bool) -> Result<(), Error> {
        debug_assert!(self.buffer.is_empty());
        self.store.finish(self.offset + self.flushed, sync)
    }

    /// Writes what was gathered.
    pub fn flush(&mut self) -> Result<(), Error> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write_at(self.flushed, &buffer)?;
        self.flushed += buffer.len() as u64;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self.store.write_at(bytes, self.offset + position);
        written.map_err(|e| self.error("write", e))
    }

    /// An error with what was tried, as `write`.
    pub fn error(&self, action: &'static str, cause: io::Error) -> Error {
        self.store.error(action, self.flushed, cause)
    }
}
