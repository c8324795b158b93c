//! A device that fails when it is told to.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Mutex;

use anteros_core::{Device, WritableDevice};
use rustix::io::Errno;

/// Tells what is asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A read, of one buffer or many.
    Read,
    /// A write, of one buffer or many.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

/// Tells which calls fail. They are counted from 0 for each kind, since the fault was injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// This one.
    Nth(u64),
    /// This one and all after it.
    From(u64),
    /// Those that touch a range of bytes. A flush touches none.
    Touching(Range<u64>),
}

struct Fault {
    call: Call,
    when: When,
    errno: Errno,
    /// Calls of that kind up to now.
    count: u64,
}

impl Fault {
    /// Returns whether it strikes this call, which is counted.
    fn strikes(&mut self, call: Call, range: &Range<u64>) -> bool {
        if call != self.call {
            return false;
        }
        let number = self.count;
        self.count += 1;
        match &self.when {
            When::Nth(nth) => number == *nth,
            When::From(first) => number >= *first,
            When::Touching(bad) => range.start < bad.end && bad.start < range.end,
        }
    }
}

/// A device around another that fails when it is told to. A call that fails has had no effect.
pub struct Faulty<D> {
    inner: D,
    faults: Mutex<Vec<Fault>>,
}

impl<D> Faulty<D> {
    /// A device that works, up to now.
    pub fn new(inner: D) -> Self {
        let faults = Mutex::default();
        Self { inner, faults }
    }

    /// The device underneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Lets calls fail with an error such as `EIO` or `ENOSPC`. Faults add up.
    ///
    /// # Panics
    ///
    /// If a thread has panicked while it used the device.
    pub fn inject(&self, call: Call, when: When, errno: Errno) {
        self.faults.lock().unwrap().push(Fault {
            call,
            when,
            errno,
            count: 0,
        });
    }

    /// Takes all faults away.
    ///
    /// # Panics
    ///
    /// If a thread has panicked while it used the device.
    pub fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    fn check(&self, call: Call, offset: u64, len: u64) -> io::Result<()> {
        let range = offset..offset.saturating_add(len);
        let mut faults = self.faults.lock().unwrap();
        let mut result = Ok(());
        // All of them count the call.
        for fault in &mut *faults {
            if fault.strikes(call, &range) {
                result = Err(fault.errno.into());
            }
        }
        result
    }
}

impl<D: Device> Device for Faulty<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(Call::Read, offset, buf.len() as u64)?;
        self.inner.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check(Call::Read, offset, len)?;
        self.inner.read_vectored_at(offset, bufs)
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

impl<D: WritableDevice> WritableDevice for Faulty<D> {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(Call::Write, offset, data.len() as u64)?;
        self.inner.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check(Call::Write, offset, len)?;
        self.inner.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.check(Call::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(Call::Discard, offset, len)?;
        self.inner.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use anteros_core::MemoryDevice;

    use super::*;

    fn errno(result: io::Result<()>) -> Option<Errno> {
        result
            .err()
            .map(|error| Errno::from_io_error(&error).unwrap())
    }

    #[test]
    fn calls_fail_when_they_are_told_to_and_have_no_effect() {
        let device = Faulty::new(MemoryDevice::new(vec![0; 100]));
        device.inject(Call::Write, When::Nth(1), Errno::NOSPC);
        device.inject(Call::Flush, When::From(1), Errno::IO);
        device.inject(Call::Read, When::Touching(10..20), Errno::IO);
        let write = |byte| errno(device.write_at(0, &[byte]));
        assert_eq!([write(1), write(2)], [None, Some(Errno::NOSPC)]);
        assert_eq!(device.inner().to_vec()[0], 1);
        let bufs = [IoSlice::new(&[3])];
        assert_eq!(errno(device.write_vectored_at(0, &bufs)), None);
        let flushes = [(); 3].map(|()| errno(device.flush()));
        assert_eq!(flushes, [None, Some(Errno::IO), Some(Errno::IO)]);

        let read = |offset| errno(device.read_at(offset, &mut [0; 10]));
        let io = Some(Errno::IO);
        assert_eq!([0, 1, 19, 20].map(read), [None, io, io, None]);
        let mut buf = [0; 10];
        let bufs = &mut [IoSliceMut::new(&mut buf)];
        assert_eq!(errno(device.read_vectored_at(5, bufs)), io);

        device.inject(Call::Discard, When::Nth(0), Errno::IO);
        assert_eq!(errno(device.discard(0, 1)), io);
        assert_eq!(device.inner().to_vec()[0], 3);
        device.heal();
        assert_eq!([read(15), errno(device.flush())], [None, None]);
    }
}
