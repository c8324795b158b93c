//! Memory that comes from the system page by page and goes back to it at once.
//!
//! The heap keeps what was freed, more or less of it; a process that promises to stay small cannot
//! build on that for buffers of megabytes. A mapping takes a page when the page is first written, and
//! gives all of them back when it is dropped.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Makes the C library's heap take blocks of 64 KiB and more from the system one by one, and give
/// them back when they are freed. By itself glibc learns to keep ever larger ones, up to 32 MiB
/// each, and the decoders in C allocate and free such blocks. This is for programs that promise to
/// stay small. Other C libraries are left alone.
pub fn keep_heap_small() {
    #[cfg(target_env = "gnu")]
    {
        use std::ffi::c_int;

        // In glibc's malloc.h, and part of its ABI.
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        const M_MMAP_THRESHOLD: c_int = -3;
        const M_ARENA_MAX: c_int = -8;
        // SAFETY: it takes two numbers and may be called at any time; what it does not know, it
        // refuses without effect.
        unsafe {
            mallopt(M_MMAP_THRESHOLD, 64 << 10);
            mallopt(M_ARENA_MAX, 1);
        }
    }
}

/// Makes the C library's heap give back to the system what is free of it, page by page: blocks that
/// were freed between others stay with it by themselves. Other C libraries than glibc are left alone.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    {
        // In glibc's malloc.h, and part of its ABI.
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: it takes a number, may be called at any time, and leaves alone what is in use.
        unsafe {
            malloc_trim(0);
        }
    }
}

/// A stretch of address space that is this value's own.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, and this value is its only owner.
unsafe impl Send for Mapping {}

// SAFETY: whoever shares a mapping can only read of it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// At least `len` zero bytes, none of which takes memory yet.
    fn zeroed(len: usize) -> io::Result<Self> {
        Self::anonymous(len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// `len` addresses, not zero of them, with nothing behind them.
    pub(crate) fn reserved(len: usize) -> io::Result<Self> {
        Self::anonymous(len, ProtFlags::empty())
    }

    fn anonymous(len: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: the system chooses addresses that are not in use.
        let start = unsafe { mmap_anonymous(null_mut(), len, protection, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Puts the first `len` bytes of a file at `offset`, to be read and written there.
    ///
    /// Both are multiples of the page size; the stretch must lie inside the mapping.
    pub(crate) fn map_file(
        &mut self,
        offset: usize,
        file: impl AsFd,
        len: usize,
    ) -> io::Result<()> {
        assert!(
            len <= self.len && offset <= self.len - len,
            "the stretch lies inside the mapping"
        );
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the addresses that are mapped anew are this mapping's own, as asserted, and no
        // reference into it lives, since this one is exclusive.
        unsafe {
            let at = self.start.as_ptr().add(offset);
            mmap(at.cast(), len, protection, flags, file, 0)
        }?;
        Ok(())
    }

    /// The first address, to read from.
    fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The first address.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives the value.
        // An error would mean that it is not mapped, so there is nothing to be done about one.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A buffer for one use: the system's pages, and the system's again when it is dropped.
///
/// Its bytes are zero until written. This is what the EROFS paper (section 3.3) calls the vmap
/// strategy: memory for all that a stream decodes to, for as long as that takes.
pub struct Scratch {
    mapping: Mapping,
    len: usize,
}

impl Scratch {
    /// A buffer of `len` bytes.
    ///
    /// # Errors
    ///
    /// The system's, when it has no room for it.
    pub fn new(len: usize) -> io::Result<Self> {
        // There is no mapping of no pages.
        let mapping = Mapping::zeroed(len.max(1))?;
        Ok(Self { mapping, len })
    }

    /// All of the buffer, to read.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: as below; what is shared is not written.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr(), self.len) }
    }

    /// All of the buffer.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable and initialised (with zeros) for `len` bytes,
        // and borrowed for as long as the slice is. The system grants no more than `isize::MAX`.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_mut_ptr(), self.len) }
    }
}
