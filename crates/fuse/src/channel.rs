//! Ways by which requests come to a worker, and answers go back.

use std::io;

use anteros_core::PAGE_BYTES;
use rustix::io::Errno;

use crate::device::{Device, Request};
use crate::ring::Ring;

/// A worker's way to the kernel.
pub trait Channel<'device> {
    /// Returns where an answer may also go, from another thread and while this one receives the next request.
    fn device(&self) -> Option<&'device Device>;

    /// Waits for a request, for which a buffer of `len_max` bytes is taken; `false` when the mount is gone.
    fn receive(&mut self, request: &mut Request, len_max: usize) -> io::Result<bool>;

    /// Returns where the payload of an answer belongs.
    fn payload(&mut self) -> &mut [u8];

    /// Answers a request with so many bytes of the payload or an error. With `at_once` it has gone when this returns;
    /// else at the latest when the next request is waited for.
    fn answer(
        &mut self,
        unique: u64,
        payload: Result<usize, Errno>,
        at_once: bool,
    ) -> io::Result<()>;

    /// Passes over a request that wants no answer.
    fn pass(&mut self) -> io::Result<()>;
}

/// By reading from a device and writing to it.
pub struct Line<'device> {
    device: &'device Device,
    buffer: Vec<u8>,
    start: usize,
    payload_len_max: usize,
}

impl<'device> Line<'device> {
    pub fn new(device: &'device Device, payload_len_max: usize) -> Self {
        // On a page: a device may be read into it as it is. Of zeroes from the system no page exists before it is used.
        let buffer = vec![0; payload_len_max + PAGE_BYTES];
        Self {
            device,
            start: buffer.as_ptr().addr().wrapping_neg() % PAGE_BYTES,
            buffer,
            payload_len_max,
        }
    }
}

impl<'device> Channel<'device> for Line<'device> {
    fn device(&self) -> Option<&'device Device> {
        Some(self.device)
    }

    fn receive(&mut self, request: &mut Request, len_max: usize) -> io::Result<bool> {
        self.device.receive(request, len_max)
    }

    fn payload(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..][..self.payload_len_max]
    }

    fn answer(&mut self, unique: u64, payload: Result<usize, Errno>, _: bool) -> io::Result<()> {
        let device = self.device;
        device.send(unique, payload.map(|len| &self.payload()[..len]))
    }

    fn pass(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'device> Channel<'device> for Ring<'device> {
    /// Nowhere: the place of a request is its own until it is answered.
    fn device(&self) -> Option<&'device Device> {
        None
    }

    fn receive(&mut self, request: &mut Request, len_max: usize) -> io::Result<bool> {
        self.receive(request, len_max)
    }

    fn payload(&mut self) -> &mut [u8] {
        self.payload()
    }

    fn answer(
        &mut self,
        unique: u64,
        payload: Result<usize, Errno>,
        at_once: bool,
    ) -> io::Result<()> {
        self.answer(unique, payload)?;
        if at_once { self.submit() } else { Ok(()) }
    }

    /// The kernel wants an answer to whatever comes this way.
    fn pass(&mut self) -> io::Result<()> {
        let unique = self.unique();
        self.answer(unique, Err(Errno::NOSYS))
    }
}
