//! A device, as a rule in memory, that tells what it is about to do, and waits until that has been heard.

use std::io::{self, IoSlice};
use std::sync::Arc;

use anteros_core::{Device, MemoryDevice, WritableDevice};

/// Something that is asked of the device, by offset and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Read(u64, usize),
    /// That nothing beside it is read.
    ReadAlone(u64, usize),
    Write(u64, usize),
    Flush,
    Discard(u64, u64),
    BeginWriting(u64, u64),
}

type Hook = Box<dyn Fn(Asked) + Send + Sync>;

pub struct Hooked<D = MemoryDevice> {
    inner: Arc<D>,
    hook: Hook,
}

impl Hooked {
    pub fn new(content: Vec<u8>, hook: impl Fn(Asked) + Send + Sync + 'static) -> Self {
        Self::around(Arc::new(MemoryDevice::new(content)), hook)
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.inner.to_vec()
    }
}

impl<D> Hooked<D> {
    pub fn around(inner: Arc<D>, hook: impl Fn(Asked) + Send + Sync + 'static) -> Self {
        let hook = Box::new(hook);
        Self { inner, hook }
    }
}

impl<D: WritableDevice> Device for Hooked<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (self.hook)(Asked::Read(offset, buf.len()));
        self.inner.read_at(offset, buf)
    }

    fn read_alone_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (self.hook)(Asked::ReadAlone(offset, buf.len()));
        self.inner.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

impl<D: WritableDevice> WritableDevice for Hooked<D> {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (self.hook)(Asked::Write(offset, data.len()));
        self.inner.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        (self.hook)(Asked::Write(offset, len));
        self.inner.write_vectored_at(offset, bufs)
    }

    fn begin_writing(&self, offset: u64, len: u64) {
        (self.hook)(Asked::BeginWriting(offset, len));
    }

    fn flush(&self) -> io::Result<()> {
        (self.hook)(Asked::Flush);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        (self.hook)(Asked::Discard(offset, len));
        self.inner.discard(offset, len)
    }
}
