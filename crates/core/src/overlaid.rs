//! A device with other bytes laid over some of it.

use std::io;

use crate::Device;

/// A device of which some bytes are others, and that may be longer: bytes in between are zeros.
#[derive(Debug)]
pub struct Overlaid<D> {
    inner: D,
    /// Bytes and where they begin, ascending and apart from each other.
    parts: Vec<(u64, Vec<u8>)>,
    size: u64,
}

impl<D: Device> Overlaid<D> {
    /// Lays bytes over a device, each at its offset. Where two of them lie on the same place, the later ones count.
    pub fn new(inner: D, parts: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Self {
        let mut overlaid = Self {
            size: inner.size(),
            inner,
            parts: Vec::new(),
        };
        for (offset, bytes) in parts {
            overlaid.size = overlaid.size.max(offset.saturating_add(bytes.len() as u64));
            overlaid.parts.push((offset, bytes));
        }
        overlaid
    }
}

impl<D: Device> Device for Overlaid<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        let end = end.filter(|end| *end <= self.size);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let below = self.inner.size().saturating_sub(offset);
        let below = below.min(buf.len() as u64) as usize;
        let (front, behind) = buf.split_at_mut(below);
        if !front.is_empty() {
            self.inner.read_at(offset, front)?;
        }
        behind.fill(0);
        for (start, bytes) in &self.parts {
            let from = offset.max(*start);
            let to = end.min(start + bytes.len() as u64);
            if from < to {
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.inner.will_need(offset, len);
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_bytes_count_and_gaps_are_zeros() {
        let parts = [
            (2, b"xyz".to_vec()),
            (4, b"!".to_vec()),
            (12, b"end".to_vec()),
        ];
        let device = Overlaid::new(b"0123456789".to_vec(), parts);
        assert_eq!(device.size(), 15);
        let whole = b"01xy!56789\0\0end";
        for start in 0..=15 {
            for end in start..=15 {
                let mut buf = vec![7; end - start];
                device.read_at(start as u64, &mut buf).unwrap();
                assert_eq!(buf, whole[start..end]);
            }
        }
        assert!(device.read_at(14, &mut [0; 2]).is_err());
        assert!(device.read_at(u64::MAX, &mut [0; 2]).is_err());
    }
}
