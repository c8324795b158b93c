//! Open files.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anteros_core::{FsError, FsResult, Seek};
use rustix::fs::{
    FallocateFlags, OFlags, SeekFrom, copy_file_range, fallocate, fdatasync, fsync, seek,
};
use rustix::io::{Errno, pread, pwrite, pwritev, retry_on_intr};

use crate::host::refused;

/// The most that is copied by one call, in bytes: who wants more asks again, and others are answered in between.
const COPIED_MAX: u64 = 64 << 20;

/// A regular file that is open.
#[derive(Debug)]
pub(crate) struct HostFile {
    fd: OwnedFd,
    flags: OFlags,
}

impl HostFile {
    pub fn new(fd: OwnedFd, flags: OFlags) -> Self {
        Self { fd, flags }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn is_writable(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    }

    /// Returns whether all that is written goes to the end.
    pub fn appends(&self) -> bool {
        self.flags.contains(OFlags::APPEND)
    }

    /// Returns whether what is written is on the device when the host says that it is written.
    pub fn syncs_writes(&self, data_only: bool) -> bool {
        self.flags.contains(match data_only {
            true => OFlags::DSYNC,
            false => OFlags::SYNC,
        })
    }

    pub fn read(&self, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match retry_on_intr(|| pread(&self.fd, &mut buf[done..], at)) {
                Ok(0) => break,
                Ok(len) => done += len,
                // What was read is told; the next call meets the error again.
                Err(_) if done > 0 => break,
                Err(errno) => return Err(refused(errno)),
            }
        }
        Ok(done)
    }

    pub fn write(&self, offset: u64, data: &[u8]) -> FsResult<usize> {
        let mut done = 0;
        // A write of nothing goes to the host too: it may have an error to tell.
        loop {
            let at = offset + done as u64;
            match retry_on_intr(|| pwrite(&self.fd, &data[done..], at)) {
                Ok(0) => return Ok(done),
                Ok(len) => done += len,
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(refused(errno)),
            }
            if done == data.len() {
                return Ok(done);
            }
        }
    }

    pub fn write_pieces(&self, offset: u64, pieces: &[IoSlice<'_>]) -> FsResult<usize> {
        retry_on_intr(|| pwritev(&self.fd, pieces, offset)).map_err(refused)
    }

    pub fn sync(&self, data_only: bool) -> FsResult<()> {
        retry_on_intr(|| match data_only {
            true => fdatasync(&self.fd),
            false => fsync(&self.fd),
        })
        .map_err(refused)
    }

    /// The position of the descriptor moves, which nobody minds: all reads and writes bring their own.
    pub fn seek(&self, offset: u64, what: Seek) -> FsResult<u64> {
        let from = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        seek(&self.fd, from).map_err(|errno| match errno {
            Errno::NXIO => FsError::NoData,
            errno => refused(errno),
        })
    }

    pub fn allocate(&self, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        let mode = FallocateFlags::from_bits_retain(mode);
        retry_on_intr(|| fallocate(&self.fd, mode, offset, len)).map_err(refused)
    }

    pub fn copy_to(&self, from: u64, target: &Self, to: u64, len: u64) -> FsResult<u64> {
        let len = len.min(COPIED_MAX) as usize;
        let copied = retry_on_intr(|| {
            let (mut from, mut to) = (from, to);
            copy_file_range(&self.fd, Some(&mut from), &target.fd, Some(&mut to), len)
        });
        Ok(copied.map_err(refused)? as u64)
    }
}
