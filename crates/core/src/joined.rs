//! Two devices, one behind the other.

use std::io;

use crate::Device;

/// A device that goes on with another one at a byte. Where the first one ends before that, zeros lie in between.
#[derive(Debug)]
pub struct Joined<D, E> {
    front: D,
    at: u64,
    back: E,
}

impl<D: Device, E: Device> Joined<D, E> {
    /// The bytes of `front` up to the byte `at`, and those of `back` from there on.
    pub fn new(front: D, at: u64, back: E) -> Self {
        Self { front, at, back }
    }
}

impl<D: Device, E: Device> Device for Joined<D, E> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let below = self.at.saturating_sub(offset).min(buf.len() as u64);
        let (front, back) = buf.split_at_mut(below as usize);
        let there = self.front.size().saturating_sub(offset).min(below);
        let (read, zeros) = front.split_at_mut(there as usize);
        if !read.is_empty() {
            self.front.read_at(offset, read)?;
        }
        zeros.fill(0);
        match back.is_empty() {
            true => Ok(()),
            false => self.back.read_at(offset.max(self.at) - self.at, back),
        }
    }

    fn will_need(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        if offset < self.at {
            self.front.will_need(offset, end.min(self.at) - offset);
        }
        if end > self.at {
            let start = offset.max(self.at);
            self.back.will_need(start - self.at, end - start);
        }
    }

    fn size(&self) -> u64 {
        self.at.saturating_add(self.back.size())
    }

    fn name(&self) -> String {
        self.front.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_on_in_the_second_device() {
        for (at, whole) in [(3, &b"012abc"[..]), (5, b"01234abc"), (7, b"01234\0\0abc")] {
            let device = Joined::new(b"01234".to_vec(), at, b"abc".to_vec());
            assert_eq!(device.size(), whole.len() as u64);
            for start in 0..=whole.len() {
                for end in start..=whole.len() {
                    let mut buf = vec![7; end - start];
                    device.read_at(start as u64, &mut buf).unwrap();
                    assert_eq!(buf, whole[start..end]);
                }
            }
            assert!(device.read_at(device.size(), &mut [0]).is_err());
            assert!(device.read_at(u64::MAX, &mut [0; 2]).is_err());
        }
    }
}
