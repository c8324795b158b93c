//! Requests over io_uring (Linux 6.14, where `enable_uring` of the module `fuse` is on): whoever asks is answered on
//! the processor it runs on, where a read of `/dev/fuse` has some worker woken, often that of another processor.
//!
//! The kernel has a queue of requests for each processor. A ring offers room for one request of a queue: a head and a
//! payload, as `linux/fuse.h` has them. An answer goes the same way back, and asks for the next request.
//!
//! What has no answer (forgetting, interrupts) and what we say unasked still goes over [`Device`](crate::device).
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::slice;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::device::Request;
use crate::place::Place;
use crate::proto::{InHeader, OutHeader};

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;

/// States where a payload begins behind its head: on a page.
const PAYLOAD_START: usize = 4096;

/// `struct fuse_uring_req_header`.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    /// An [`InHeader`], or the [`OutHeader`] of the answer.
    header: [u8; 128],
    /// The arguments of the opcode. What follows them in a request (names, content) is the payload.
    arguments: [u8; 128],
    flags: u64,
    /// Names the request in its answer.
    commit_id: u64,
    /// Bytes of the payload.
    payload_len: u32,
    padding: u32,
    reserved: u64,
}

/// `struct fuse_uring_cmd_req`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    queue: u16,
    padding: [u8; 6],
}

const _: () = assert!(size_of::<Head>() == 288 && size_of::<Command>() == 24);

/// The kernel's setting, which root changes, and which holds for mounts that are made from then on.
pub const IO_URING_SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The reason why requests do not come over io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoIoUring {
    /// It was not asked for ([`MountOptions::io_uring`](crate::MountOptions::io_uring)).
    Unwanted,
    /// The kernel does not have it, or does not say so ([`IO_URING_SETTING`]).
    NotOffered,
    /// The kernel has it, and it is off.
    Off,
    /// This process may have no rings.
    Refused,
    /// There are not two workers for each processor.
    FewWorkers,
    /// The guardian could do no more than answer, which only the server can over io_uring.
    Guarded,
}

/// Returns whether the kernel's setting is on; `None` if it has none.
pub fn is_io_uring_on() -> Option<bool> {
    Some(read(IO_URING_SETTING)?.trim() == "Y")
}

/// Returns how many queues the kernel has, one for each processor that there can be.
pub fn queues() -> Result<u16, NoIoUring> {
    match is_io_uring_on() {
        None => return Err(NoIoUring::NotOffered),
        Some(false) => return Err(NoIoUring::Off),
        Some(true) => {}
    }
    set_up().map_err(|_| NoIoUring::Refused)?;
    let queues = read("/sys/devices/system/cpu/possible").and_then(|list| count(list.trim()));
    queues
        .filter(|&queues| queues > 0)
        .ok_or(NoIoUring::Refused)
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Returns how many numbers there are in a list like `0-3,8`.
fn count(list: &str) -> Option<u16> {
    let numbers = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    numbers.sum()
}

type Rings = IoUring<Entry128, cqueue::Entry>;

fn set_up() -> io::Result<Rings> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(1)
}

/// Room for one request of a queue.
pub struct Ring<'device> {
    // Dropped before the memory that the kernel was told of.
    rings: Rings,
    device: BorrowedFd<'device>,
    queue: u16,
    place: Place,
    /// Of the request that was received.
    unique: u64,
    memory: Memory,
}

impl<'device> Ring<'device> {
    /// Offers the kernel room for a request of `queue` and an answer with a payload of up to `payload_len_max` bytes,
    /// which must be as much as was agreed upon; the next [`receive`](Self::receive) tells it so. A ring is for the
    /// thread that makes it.
    pub fn new(
        device: BorrowedFd<'device>,
        queue: u16,
        payload_len_max: usize,
    ) -> io::Result<Self> {
        let mut ring = Self {
            rings: set_up()?,
            device,
            queue,
            place: Place::new(queue),
            unique: 0,
            memory: Memory::new(PAYLOAD_START + payload_len_max)?,
        };
        let parts = ring.memory.parts();
        ring.push(REGISTER, 0, Some(&parts))?;
        // The kernel copies the list when it is submitted.
        ring.submit()?;
        Ok(ring)
    }

    /// Sends the answer that is there, if it was not, and waits for a request; `false` when the mount is gone.
    pub fn receive(&mut self, request: &mut Request, len_max: usize) -> io::Result<bool> {
        let result = loop {
            if let Some(done) = self.rings.completion().next() {
                break done.result();
            }
            again(|| self.rings.submit_and_wait(1))?;
        };
        if result < 0 {
            return match Errno::from_raw_os_error(-result) {
                Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV => Ok(false),
                errno => Err(errno.into()),
            };
        }
        let (head, payload) = self.memory.split();
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let (header, _) = InHeader::read_from_prefix(&head.header).map_err(|_| malformed())?;
        let payload = payload.get(..head.payload_len as usize);
        let payload = payload.ok_or_else(malformed)?;
        let arguments = (header.len as usize)
            .checked_sub(size_of::<InHeader>() + payload.len())
            .and_then(|len| head.arguments.get(..len))
            .ok_or_else(malformed)?;
        self.unique = header.unique;
        self.place.after(header.opcode, arguments);
        request.fill(len_max, [header.as_bytes(), arguments, payload]);
        Ok(true)
    }

    /// Returns where the payload of an answer belongs.
    pub fn payload(&mut self) -> &mut [u8] {
        self.memory.split().1
    }

    /// The number of the request that was received.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Answers the request with so many bytes of the payload or an error. It may stay here until the next one is
    /// waited for, or [`submit`](Self::submit).
    pub fn answer(&mut self, unique: u64, payload: Result<usize, Errno>) -> io::Result<()> {
        let (head, _) = self.memory.split();
        let (error, len) = match payload {
            Ok(len) => (0, len),
            Err(errno) => (-errno.raw_os_error(), 0),
        };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + len) as u32,
            error,
            unique,
        };
        head.header[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        head.payload_len = len as u32;
        let commit_id = head.commit_id;
        self.push(COMMIT_AND_FETCH, commit_id, None)
    }

    /// Sends the answer that is there.
    pub fn submit(&mut self) -> io::Result<()> {
        again(|| self.rings.submit())
    }

    fn push(&mut self, code: u32, commit_id: u64, parts: Option<&[IoVec; 2]>) -> io::Result<()> {
        let command = Command {
            flags: 0,
            commit_id,
            queue: self.queue,
            padding: [0; 6],
        };
        let mut bytes = [0; 80];
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        let fd = types::Fd(self.device.as_raw_fd());
        let mut entry = opcode::UringCmd80::new(fd, code).cmd(bytes);
        if let Some(parts) = parts {
            entry = entry.addr(Some(parts.as_ptr().addr() as u64));
        }
        let mut entry = entry.build();
        if let Some(parts) = parts {
            set_len(&mut entry, parts.len() as u32);
        }
        // SAFETY: what the kernel is told of (`parts`, when it is submitted; the memory they name, as long as the ring
        // lives) is there: `new` submits before `parts` goes, and the memory goes after the rings.
        let pushed = unsafe { self.rings.submission().push(&entry) };
        pushed.map_err(|_| io::ErrorKind::ResourceBusy.into())
    }
}

/// Calls the kernel until neither a signal nor a lack that passes keeps it from going on.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    loop {
        match call() {
            Ok(_) => return Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                _ => return Err(error),
            },
        }
    }
}

/// Sets the field `len` of an entry, which the crate leaves at 0 for commands.
fn set_len(entry: &mut Entry128, len: u32) {
    const LEN_AT: usize = 24;
    let entry: *mut Entry128 = entry;
    // SAFETY: an entry is a `struct io_uring_sqe`, 128 bytes of the kernel's interface, in which a u32 at 24 is `len`.
    unsafe { entry.byte_add(LEN_AT).cast::<u32>().write(len) };
}

/// `struct iovec`.
#[repr(C)]
struct IoVec {
    start: *mut u8,
    len: usize,
}

/// A head and a payload, of zeroes in the beginning; pages that are not used take no memory. The kernel writes to it,
/// but only while the thread that has the ring is in [`Ring::receive`] or [`Ring::submit`].
struct Memory {
    start: NonNull<u8>,
    len: usize,
    /// As if they were owned.
    owned: PhantomData<Vec<u8>>,
}

impl Memory {
    fn new(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(null_mut(), len, access, flags) }?;
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?,
            len,
            owned: PhantomData,
        })
    }

    /// As the kernel is told of it.
    fn parts(&self) -> [IoVec; 2] {
        let part = |start: usize, len| IoVec {
            start: self.start.as_ptr().wrapping_add(start),
            len,
        };
        let payload = self.len - PAYLOAD_START;
        [part(0, size_of::<Head>()), part(PAYLOAD_START, payload)]
    }

    fn split(&mut self) -> (&mut Head, &mut [u8]) {
        // SAFETY: the mapping has that many bytes, all of them initialised; nobody else has a reference, for this one
        // borrows `self`, and the kernel writes only in calls that borrow it as well.
        let all = unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) };
        let (head, payload) = all.split_at_mut(PAYLOAD_START);
        let (head, _) =
            Head::mut_from_prefix(head).expect("a page has room for a head and is aligned");
        (head, payload)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and no reference to it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        for (list, found) in [
            ("0", Some(1)),
            ("0-1", Some(2)),
            ("0-3,8-9,12", Some(7)),
            ("", None),
            ("3-1", None),
            ("0-65535", None),
            ("0-x", None),
        ] {
            assert_eq!(count(list), found, "{list}");
        }
    }

    #[test]
    fn memory_is_split_where_the_kernel_is_told() {
        let mut memory = Memory::new(PAYLOAD_START + 8192).unwrap();
        let told = memory.parts().map(|part| (part.start.addr(), part.len));
        let (head, payload) = memory.split();
        assert_eq!(told[0], ((&raw mut *head).addr(), 288));
        assert_eq!(told[1], (payload.as_ptr().addr(), 8192));
        assert!(payload.iter().all(|byte| *byte == 0));
    }
}
