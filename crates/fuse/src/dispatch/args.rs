//! Arguments out of requests, and values into replies.

use anteros_core::{Attr, Timestamp};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::proto::{RawAttr, StatxTime, XattrSize, rdev};

/// The arguments of a request, consumed from the front.
pub(super) struct Args<'a>(pub &'a [u8]);

impl<'a> Args<'a> {
    /// Takes the next structure.
    pub fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// A name: not empty, ended by a NUL.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        let len = self
            .0
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(Errno::INVAL)?;
        let (name, rest) = self.0.split_at(len);
        self.0 = &rest[1..];
        if name.is_empty() {
            Err(Errno::INVAL)
        } else {
            Ok(name)
        }
    }
}

/// Puts a payload at the front of the reply buffer.
pub(super) fn put<T: IntoBytes + Immutable + ?Sized>(
    out: &mut [u8],
    value: &T,
) -> Result<usize, Errno> {
    let bytes = value.as_bytes();
    out.get_mut(..bytes.len())
        .ok_or(Errno::INVAL)?
        .copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Puts a value of which the caller takes at most `size` bytes; with 0 it asks how many there are.
pub(super) fn put_sized(out: &mut [u8], size: u32, value: &[u8]) -> Result<usize, Errno> {
    let len = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    match size {
        0 => put(
            out,
            &XattrSize {
                size: len,
                padding: 0,
            },
        ),
        size if size < len => Err(Errno::RANGE),
        _ => put(out, value),
    }
}

/// A time as STATX replies with it.
pub(super) const fn statx_time(time: Timestamp) -> StatxTime {
    StatxTime {
        secs: time.secs,
        nanos: time.nanos,
        reserved: 0,
    }
}

/// Attributes as replies have them.
pub(super) fn raw_attr(attr: &Attr) -> RawAttr {
    // The kernel reads the seconds as signed again.
    let secs = |time: Timestamp| time.secs as u64;
    RawAttr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: secs(attr.atime),
        mtime: secs(attr.mtime),
        ctime: secs(attr.ctime),
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: attr.kind.mode_bits() | u32::from(attr.perm & 0o7777),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: rdev(attr.rdev.major, attr.rdev.minor),
        blksize: attr.block_size,
        flags: 0,
    }
}
