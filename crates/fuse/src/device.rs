//! `/dev/fuse`: whole requests in, whole replies out. Their meaning is `dispatch`'s business.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use anteros_core::{Payload, begin_on_page};
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use zerocopy::IntoBytes;

use crate::ioctl;
use crate::proto::{OutHeader, WRITE_HEAD_LEN};

/// States where the kernel offers its side of the protocol.
pub const PATH: &str = "/dev/fuse";

/// Room for a request that writes nothing. The kernel refuses to read into less than 8 KiB plus its
/// largest write; reads carry names at most, and batches of forgotten nodes fill what there is. The value
/// of an extended attribute may have 64 KiB.
pub const REQUEST_LEN_MAX: usize = 64 << 10;

/// States what a request has besides the content that is to be written, and less than a page in front of it.
pub const REQUEST_HEAD_MAX: usize = 16 << 10;

/// A request as it was received.
#[derive(Debug, Default)]
pub struct Request {
    buffer: Vec<u8>,
    start: usize,
}

impl Request {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Copies the request into a buffer no larger than it.
    pub fn copy(&self) -> Self {
        Self {
            buffer: self.bytes().to_vec(),
            start: 0,
        }
    }

    /// A part of it, in its buffer, which may be kept.
    ///
    /// # Panics
    ///
    /// When the request does not reach so far.
    pub fn payload(&mut self, part: Range<usize>) -> Payload<'_> {
        let place = self.start + part.start..self.start + part.end;
        Payload::new(&mut self.buffer, place)
    }

    /// Another request, which is there in parts, in a buffer of `len_max` bytes.
    pub fn fill(&mut self, len_max: usize, parts: [&[u8]; 3]) {
        let buffer = self.prepare(len_max);
        parts.iter().for_each(|part| buffer.extend_from_slice(part));
    }

    /// Makes room for another request, of up to `len_max` bytes with what lies in front: there, the content of
    /// one that writes begins on a page.
    fn prepare(&mut self, len_max: usize) -> &mut Vec<u8> {
        if self.buffer.capacity() < len_max {
            self.buffer = Vec::with_capacity(len_max);
        }
        self.start = begin_on_page(&mut self.buffer, WRITE_HEAD_LEN);
        &mut self.buffer
    }
}

#[cfg(test)]
impl From<&[u8]> for Request {
    fn from(bytes: &[u8]) -> Self {
        Self {
            buffer: bytes.to_vec(),
            start: 0,
        }
    }
}

/// An open `/dev/fuse`.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl Device {
    /// Opens the device, not yet attached to a mount.
    pub fn open() -> rustix::io::Result<Self> {
        rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// Takes over a descriptor that someone else opened and attached.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The number to name in mount options.
    pub fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Another descriptor of the same mount: a channel of its own, or, where the device may not be
    /// opened again (users without access to it), one that shares this one's.
    pub fn another(&self) -> io::Result<Self> {
        let own = Self::open().and_then(|fresh| {
            ioctl::attach(fresh.0.as_fd(), self.0.as_fd())?;
            Ok(fresh)
        });
        match own {
            Ok(device) => Ok(device),
            Err(_) => self.same(),
        }
    }

    /// Another descriptor of the same channel.
    pub fn same(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Waits for a request, for which a buffer of `len_max` bytes is taken; `false` when the mount is gone.
    pub fn receive(&self, request: &mut Request, len_max: usize) -> io::Result<bool> {
        let buffer = request.prepare(len_max);
        loop {
            match rustix::io::read(&self.0, spare_capacity(buffer)) {
                Ok(_) => return Ok(true),
                Err(Errno::NODEV) => return Ok(false),
                // A signal; or the caller gave up just as its request was handed out.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Answers a request with a payload or an error.
    ///
    /// A reply that comes too late, because the caller or the whole mount has gone, is no error. One
    /// that the kernel finds malformed ends its request with EIO rather than leave it waiting.
    pub fn send(&self, unique: u64, payload: Result<&[u8], Errno>) -> io::Result<()> {
        match self.write(unique, payload) {
            Err(Errno::INVAL) => allow_late(self.write(unique, Err(Errno::IO))),
            result => allow_late(result),
        }
    }

    fn write(&self, unique: u64, payload: Result<&[u8], Errno>) -> rustix::io::Result<()> {
        let (error, payload) = match payload {
            Ok(payload) => (0, payload),
            Err(errno) => (-errno.raw_os_error(), &[][..]),
        };
        self.put(unique, error, &[], payload)
    }

    /// Tells the kernel something unasked: `code` says what, `head` and `data` the particulars.
    pub fn notify(&self, code: i32, head: &[u8], data: &[u8]) -> rustix::io::Result<()> {
        self.put(0, code, head, data)
    }

    fn put(&self, unique: u64, error: i32, head: &[u8], data: &[u8]) -> rustix::io::Result<()> {
        let len = size_of::<OutHeader>() + head.len() + data.len();
        let len = u32::try_from(len).map_err(|_| Errno::INVAL)?;
        let header = OutHeader { len, error, unique };
        let parts = [header.as_bytes(), head, data].map(IoSlice::new);
        retry_on_intr(|| rustix::io::writev(&self.0, &parts)).map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn allow_late(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn written_content_begins_on_a_page_whatever_buffer_is_there() {
        let (kernel, end) = UnixDatagram::pair().unwrap();
        let device = Device::from_fd(end.into());
        let mut request = Request::default();
        let mut kept = Vec::new();
        for round in 0..8 {
            let sent: Vec<u8> = (0..3 * 4096).map(|i| (i % 251) as u8 ^ round).collect();
            assert_eq!(kernel.send(&sent).unwrap(), sent.len());
            assert!(device.receive(&mut request, REQUEST_LEN_MAX).unwrap());
            assert!(request.bytes() == sent);
            let payload = request.payload(WRITE_HEAD_LEN..sent.len());
            assert!(payload.bytes() == &sent[WRITE_HEAD_LEN..]);
            assert_eq!(payload.bytes().as_ptr().addr() % 4096, 0);
            if round % 2 == 0 {
                let other = Vec::with_capacity(payload.capacity() + usize::from(round));
                kept.push(payload.exchange(other));
            }
        }
    }
}
