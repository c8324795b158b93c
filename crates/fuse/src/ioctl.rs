//! The ioctls of the session: attaching another descriptor of `/dev/fuse` to the same mount, and
//! lending the kernel files whose content it may then read without asking. One more asks a mount of this crate for what it
//! tells of itself. And, as it takes `unsafe` too, closing descriptors that nobody here has opened.
//!
//! The kernel keeps the requests that are being answered per descriptor, so workers with their own
//! do not contend for that list.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::io::Result;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};
use zerocopy::IntoBytes;

use crate::proto::own::{ARGUMENT_BYTES, COMMAND, OwnIn};

/// `FUSE_DEV_IOC_CLONE` of `linux/fuse.h`: group 229, number 0. The direction says "read", but the
/// kernel reads the number of the descriptor to join.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// `FUSE_DEV_IOC_BACKING_OPEN`; what it returns is the backing id.
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(229, 1);

/// `FUSE_DEV_IOC_BACKING_CLOSE`, of a backing id.
const BACKING_CLOSE: Opcode = opcode::write::<u32>(229, 2);

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// Attaches `fresh`, a newly opened `/dev/fuse`, to the mount that `session` serves.
pub fn attach(fresh: BorrowedFd<'_>, session: BorrowedFd<'_>) -> Result<()> {
    let session = session.as_raw_fd() as u32;
    // SAFETY: the kernel reads one u32 through the pointer and writes nothing; `Setter` points it at
    // a u32 that lives until the call returns. Any other descriptor, or any other number in it, is
    // answered with an error and no effect.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(session)) }
}

/// Lends `file` to the kernel for the mount that `session` serves, and returns the id to name it by.
/// The kernel takes a reference of its own; the descriptor may be closed.
pub fn lend(session: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<i32> {
    let map = BackingMap {
        fd: file.as_raw_fd(),
        flags: 0,
        padding: 0,
    };
    // SAFETY: `BackingMap` is laid out as the kernel's struct, and `Lend` hands it over as below.
    unsafe { ioctl(session, Lend(map)) }
}

/// Ends the loan of a file; whoever has it open keeps it.
pub fn take_back(session: BorrowedFd<'_>, id: i32) -> Result<()> {
    // SAFETY: the kernel reads one u32 through the pointer and writes nothing; `Setter` points it at
    // a u32 that lives until the call returns. An id that is none is answered with an error.
    unsafe { ioctl(session, Setter::<BACKING_CLOSE, u32>::new(id as u32)) }
}

/// Asks the mount of a directory for a piece of an attribute of its own. Returns an answer with what follows it.
pub fn own_piece(directory: impl AsFd, asked: &OwnIn) -> Result<[u8; ARGUMENT_BYTES]> {
    let mut argument = [0; ARGUMENT_BYTES];
    argument[..size_of::<OwnIn>()].copy_from_slice(asked.as_bytes());
    // SAFETY: the command says that the kernel reads and writes `ARGUMENT_BYTES` through the pointer at the most, and `Updater`
    // points it at as many, borrowed until the call returns. A file system that does not know the command answers with an error.
    unsafe {
        let updater = Updater::<{ COMMAND as Opcode }, [u8; ARGUMENT_BYTES]>::new(&mut argument);
        ioctl(directory, updater)?;
    }
    Ok(argument)
}

/// Closes what this process has inherited besides its three streams. It must have opened nothing itself.
pub fn close_beyond_streams() -> io::Result<()> {
    let listing = Path::new("/proc/self/fd");
    let names = std::fs::read_dir(listing)?.flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.filter(|number| *number > 2).collect();
    for number in numbers {
        // The descriptor of the listing is closed already.
        if listing.join(number.to_string()).symlink_metadata().is_ok() {
            // SAFETY: the descriptor is open, and nothing in this process owns it, for it was inherited by number alone.
            unsafe { rustix::io::close(number) };
        }
    }
    Ok(())
}

/// [`BACKING_OPEN`] with its argument. As `Setter`, but what the call returns is the result.
struct Lend(BackingMap);

// SAFETY: the opcode takes a pointer to a `BackingMap`, which `as_ptr` returns and which lives as
// long as the borrow of `self`. The kernel only reads it, so the call does not mutate, and the
// result is its return value alone.
unsafe impl Ioctl for Lend {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(returned: IoctlOutput, _: *mut c_void) -> Result<i32> {
        Ok(returned)
    }
}
