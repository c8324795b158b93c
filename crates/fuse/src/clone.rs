//! The one ioctl of the session: attaching another descriptor of `/dev/fuse` to the same mount.
//!
//! The kernel keeps the requests that are being answered per descriptor, so workers with their own
//! do not contend for that list.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Result;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE` of `linux/fuse.h`: group 229, number 0. The direction says "read", but the
/// kernel reads the number of the descriptor to join.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Attaches `fresh`, a newly opened `/dev/fuse`, to the mount that `session` serves.
pub fn attach(fresh: BorrowedFd<'_>, session: BorrowedFd<'_>) -> Result<()> {
    let session = session.as_raw_fd() as u32;
    // SAFETY: the kernel reads one u32 through the pointer and writes nothing; `Setter` points it at
    // a u32 that lives until the call returns. Any other descriptor, or any other number in it, is
    // answered with an error and no effect.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(session)) }
}
