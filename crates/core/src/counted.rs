//! A device that counts what is asked of it.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Device, WritableDevice};

/// Holds what a [`Counted`] device has done so far. A call of many buffers counts once; what failed, not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes that were discarded.
    pub discarded_bytes: u64,
}

/// A device around another that counts what is asked of it.
#[derive(Debug)]
pub struct Counted<D> {
    inner: D,
    reads: Calls,
    writes: Calls,
    flushes: Calls,
    discards: Calls,
}

#[derive(Debug, Default)]
struct Calls {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Calls {
    fn add(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (get(&self.count), get(&self.bytes))
    }
}

impl<D> Counted<D> {
    /// Counts what is asked of `inner`, from nothing on.
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            reads: Calls::default(),
            writes: Calls::default(),
            flushes: Calls::default(),
            discards: Calls::default(),
        }
    }

    /// The device underneath. What is asked of it directly is not counted.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The numbers so far. While calls are under way, they may not fit each other.
    pub fn counts(&self) -> DeviceCounts {
        let (reads, read_bytes) = self.reads.get();
        let (writes, written_bytes) = self.writes.get();
        let (discards, discarded_bytes) = self.discards.get();
        DeviceCounts {
            reads,
            read_bytes,
            writes,
            written_bytes,
            flushes: self.flushes.get().0,
            discards,
            discarded_bytes,
        }
    }
}

impl<D: Device> Device for Counted<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)?;
        self.reads.add(buf.len() as u64);
        Ok(())
    }

    fn read_alone_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_alone_at(offset, buf)?;
        self.reads.add(buf.len() as u64);
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        // The device underneath may advance the slices.
        let bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.inner.read_vectored_at(offset, bufs)?;
        self.reads.add(bytes);
        Ok(())
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.inner.will_need(offset, len);
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

impl<D: WritableDevice> WritableDevice for Counted<D> {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)?;
        self.writes.add(data.len() as u64);
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write_vectored_at(offset, bufs)?;
        self.writes
            .add(bufs.iter().map(|buf| buf.len() as u64).sum());
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()?;
        self.flushes.add(0);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.zero(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)?;
        self.discards.add(len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn what_succeeds_is_counted_once() {
        let device = Counted::new(MemoryDevice::new(vec![0; 8192]));
        let (mut a, mut b) = ([0; 100], [0; 28]);
        device.read_at(0, &mut a).unwrap();
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        device.read_vectored_at(0, &mut bufs).unwrap();
        device.write_at(8000, &[1; 192]).unwrap();
        let bufs = [IoSlice::new(&[2; 30]), IoSlice::new(&[3; 2])];
        device.write_vectored_at(0, &bufs).unwrap();
        device.discard(4096, 4096).unwrap();
        device.flush().unwrap();
        let expected = DeviceCounts {
            reads: 2,
            read_bytes: 228,
            writes: 2,
            written_bytes: 224,
            flushes: 1,
            discards: 1,
            discarded_bytes: 4096,
        };
        assert_eq!(device.counts(), expected);

        device.read_at(8192, &mut a).unwrap_err();
        device.write_at(8192, &[1]).unwrap_err();
        device.discard(8192, 1).unwrap_err();
        assert_eq!(device.counts(), expected);
        assert_eq!(
            device.inner().to_vec()[..33],
            [[2; 30].as_slice(), &[3, 3, 0]].concat()
        );
    }
}
