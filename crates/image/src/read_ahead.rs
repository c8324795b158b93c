//! Encoded bytes, read ahead of whoever decodes one extent after the other.

use crate::map::Location;
use crate::{Image, Place, Result};

/// The most that is read at a time beyond what is asked for.
const AHEAD_BYTES_MAX: usize = 128 << 10;
/// Bytes begin at a multiple of this in memory.
///
/// AMD processors copy at a quarter of their speed to an address that lies a little behind that of
/// the source, both counted from their page. Large allocations of glibc begin 16 bytes behind a page.
const ALIGNMENT: usize = 64;

/// A piece of a device. While it is asked for bytes that follow each other, the pieces grow, so that
/// small pclusters do not cost a system call each.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Tells where the bytes lie; `None` if they are of no use.
    start: Option<Location>,
    /// The bytes, and in front of them what aligns them.
    memory: Vec<u8>,
    front: usize,
}

impl ReadAhead {
    /// `len` bytes from a location on.
    pub fn get(&mut self, image: &Image, place: Place, at: Location, len: usize) -> Result<&[u8]> {
        let skip = self.skip(at);
        if let Some(skip) = skip.filter(|skip| skip + len <= self.bytes().len()) {
            return Ok(&self.bytes()[skip..skip + len]);
        }
        let ahead = skip.map_or(0, |_| AHEAD_BYTES_MAX.min(2 * self.bytes().len()));
        let ahead = usize::try_from(image.bytes_from(at)).map_or(ahead, |left| left.min(ahead));
        // What nobody has asked for may be what cannot be read.
        if ahead <= len || self.read(image, place, at, ahead).is_err() {
            self.read(image, place, at, len)?;
        }
        Ok(&self.bytes()[..len])
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.front..]
    }

    /// Returns how far into the bytes that are there, or to their end, a location is.
    fn skip(&self, at: Location) -> Option<usize> {
        let start = self.start?;
        let distance = at.address().checked_sub(start.address())?;
        let is_near = distance <= self.bytes().len() as u64;
        (is_near && at.with_address(start.address()) == start).then_some(distance as usize)
    }

    fn read(&mut self, image: &Image, place: Place, at: Location, len: usize) -> Result<()> {
        self.start = None;
        self.memory.resize(len + ALIGNMENT, 0);
        self.front = self.memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        self.memory.truncate(self.front + len);
        image.read_raw(place, at, &mut self.memory[self.front..])?;
        self.start = Some(at);
        Ok(())
    }
}
