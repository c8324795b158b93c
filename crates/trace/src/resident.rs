//! Pages of a file that are in memory, as `mincore(2)` tells them; needs `unsafe`.

use std::ffi::{c_int, c_uchar, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes that are mapped at once: a multiple of all page sizes.
const WINDOW_BYTES: u64 = 256 << 20;
/// The end of what is looked at: a hole of any length has no pages.
const END_MAX: u64 = 1 << 40;

// In mman.h of any C library for Linux.
unsafe extern "C" {
    fn mincore(start: *mut c_void, len: usize, pages: *mut c_uchar) -> c_int;
}

/// Returns which bytes of a file of so many bytes are in the page cache, in whole pages and in order. Nothing is read for
/// that. The kernel tells it of files that the caller owns or may write to; of others, it says that all pages are.
///
/// # Errors
///
/// When the file cannot be mapped, or the kernel does not tell.
pub fn resident(file: impl AsFd, size: u64) -> io::Result<Vec<Range<u64>>> {
    let page_bytes = rustix::param::page_size() as u64;
    let mut found: Vec<Range<u64>> = Vec::new();
    let end = size.min(END_MAX);
    for start in (0..end).step_by(WINDOW_BYTES as usize) {
        let window = Window::map(&file, start, (end - start).min(WINDOW_BYTES) as usize)?;
        let pages = window.pages(page_bytes as usize)?;
        for (page, _) in pages.iter().enumerate().filter(|(_, page)| *page & 1 == 1) {
            let at = start + page as u64 * page_bytes;
            match found.last_mut() {
                Some(last) if last.end == at => last.end += page_bytes,
                _ => found.push(at..at + page_bytes),
            }
        }
    }
    Ok(found)
}

/// A part of a file that is mapped and not touched.
struct Window {
    start: *mut c_void,
    len: usize,
}

impl Window {
    fn map(file: &impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses addresses that nobody uses, and nothing is read or written there.
        let start = unsafe {
            mmap(
                null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        Ok(Self { start, len })
    }

    /// Tells of each page whether it is in memory, in the lowest bit.
    fn pages(&self, page_bytes: usize) -> io::Result<Vec<c_uchar>> {
        let mut pages = vec![0; self.len.div_ceil(page_bytes)];
        // SAFETY: the addresses are those of this mapping, and there is a byte for each of its pages.
        match unsafe { mincore(self.start, self.len, pages.as_mut_ptr()) } {
            0 => Ok(pages),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody has a reference into it.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};

    use super::*;

    #[test]
    fn pages_that_were_written_are_in_memory_and_holes_are_not() {
        let page_bytes = rustix::param::page_size() as u64;
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(WINDOW_BYTES + 10 * page_bytes + 1).unwrap();
        for page in [3, 4, WINDOW_BYTES / page_bytes + 9] {
            file.seek(SeekFrom::Start(page * page_bytes)).unwrap();
            file.write_all(b"text").unwrap();
        }
        let found = resident(&file, WINDOW_BYTES + 10 * page_bytes + 1).unwrap();
        let far = WINDOW_BYTES + 9 * page_bytes;
        let expected = [3 * page_bytes..5 * page_bytes, far..far + page_bytes];
        assert_eq!(found, expected);
        assert_eq!(resident(&file, 0).unwrap(), []);
    }
}
