//! Encoded bytes, read ahead of whoever decodes one extent after the other.

use crate::aligned::Aligned;
use crate::map::Location;
use crate::{Image, Place, Result};

/// The most that is read at a time beyond what is asked for.
const AHEAD_BYTES_MAX: usize = 128 << 10;

/// A piece of a device. While it is asked for bytes that follow each other, the pieces grow, so that
/// small pclusters do not cost a system call each.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Tells where the bytes lie; `None` if they are of no use.
    start: Option<Location>,
    memory: Aligned,
}

impl ReadAhead {
    /// `len` bytes from a location on.
    pub fn get(&mut self, image: &Image, place: Place, at: Location, len: usize) -> Result<&[u8]> {
        let skip = self.skip(at);
        if let Some(skip) = skip.filter(|skip| skip + len <= self.memory.bytes().len()) {
            return Ok(&self.memory.bytes()[skip..skip + len]);
        }
        let ahead = skip.map_or(0, |_| AHEAD_BYTES_MAX.min(2 * self.memory.bytes().len()));
        let ahead = usize::try_from(image.bytes_from(at)).map_or(ahead, |left| left.min(ahead));
        // What nobody has asked for may be what cannot be read.
        if ahead <= len || self.read(image, place, at, ahead).is_err() {
            self.read(image, place, at, len)?;
        }
        Ok(&self.memory.bytes()[..len])
    }

    /// Returns how far into the bytes that are there, or to their end, a location is.
    fn skip(&self, at: Location) -> Option<usize> {
        let start = self.start?;
        let distance = at.address().checked_sub(start.address())?;
        let is_near = distance <= self.memory.bytes().len() as u64;
        (is_near && at.with_address(start.address()) == start).then_some(distance as usize)
    }

    fn read(&mut self, image: &Image, place: Place, at: Location, len: usize) -> Result<()> {
        self.start = None;
        image.read_raw(place, at, self.memory.resized(len))?;
        self.start = Some(at);
        Ok(())
    }
}
