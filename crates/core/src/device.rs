//! Bytes at an offset.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::OFlags;

use crate::lock::Held;
use crate::page::PAGE_BYTES;

/// Something that holds bytes at offsets and may be read by many threads at once.
pub trait Device: Send + Sync {
    /// Fills `buf` with the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the range does not lie wholly inside the device; a short read is never
    /// padded. Anything else is the error of the medium.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// The same where what lies around it will hardly be wanted: nothing is to be read with it.
    ///
    /// # Errors
    ///
    /// As [`read_at`](Self::read_at).
    fn read_alone_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, buf)
    }

    /// Fills several buffers, one after the other, with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// As [`read_at`](Self::read_at).
    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut at = Some(offset);
        for buf in bufs {
            let start = at.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.read_at(start, buf)?;
            at = start.checked_add(buf.len() as u64);
        }
        Ok(())
    }

    /// Says that these bytes will be wanted soon. Whoever can, begins to fetch them; nobody waits.
    fn will_need(&self, _offset: u64, _len: u64) {}

    /// The size in bytes, as found when the device was opened, or set since.
    fn size(&self) -> u64;

    /// Returns what to call the device in a message: usually its path.
    fn name(&self) -> String;
}

/// The least that is read past the cache: for less, the kernel reads ahead.
const DIRECT_MIN: usize = 128 << 10;

/// The most buffers that a vectored read or write may have (`IOV_MAX` of Linux).
pub(crate) const BUFFERS_MAX: usize = 1024;

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The file, opened past the cache of the kernel.
    direct: Option<File>,
    /// The file, opened without the readahead of the kernel.
    alone: Option<File>,
    path: PathBuf,
    size: AtomicU64,
    /// Locks on what lies behind it.
    pub(crate) held: Held,
    /// Tells whether the medium has said that it cannot discard.
    pub(crate) keeps_all: AtomicBool,
}

impl FileDevice {
    /// Opens `path` for reading.
    ///
    /// # Errors
    ///
    /// Whatever the operating system says, with the path in front.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        Self::open_file(path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    fn open_file(path: &Path) -> io::Result<Self> {
        Self::from_file(File::open(path)?, path)
    }

    pub(crate) fn from_file(file: File, path: &Path) -> io::Result<Self> {
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Unlike the length in the metadata, the end offset is also right for block devices.
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(Self {
            file,
            direct: None,
            alone: None,
            path: path.to_owned(),
            size: size.into(),
            held: Held::new(),
            keeps_all: AtomicBool::new(false),
        })
    }

    /// Has large reads pass by the cache of the kernel, where that can be: for whoever reads hardly anything twice, or
    /// is cached himself.
    #[must_use]
    pub fn with_direct_reads(mut self) -> Self {
        self.direct = self.open_again(OFlags::DIRECT);
        self
    }

    /// Has the kernel read nothing ahead of what is [read alone](Device::read_alone_at).
    #[must_use]
    pub fn with_reads_alone(mut self) -> Self {
        self.alone = self.open_again(OFlags::empty());
        self.alone.iter().for_each(expect_any_order);
        self
    }

    /// Opens the file for reading once more, if that can be.
    fn open_again(&self, flags: OFlags) -> Option<File> {
        // What lies at the path may be something else by now.
        let same = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        let flags = flags.bits() as i32;
        options.read(true).custom_flags(flags).open(same).ok()
    }

    /// Reads the front of a large buffer past the cache, and says how much that was.
    fn read_direct(&self, offset: u64, buf: &mut [u8]) -> usize {
        let is_fit = buf.len() >= DIRECT_MIN
            && offset % PAGE_BYTES as u64 == 0
            && buf.as_ptr().addr() % PAGE_BYTES == 0;
        let Some(direct) = self.direct.as_ref().filter(|_| is_fit) else {
            return 0;
        };
        let whole = buf.len() / PAGE_BYTES * PAGE_BYTES;
        // What is wrong, the other way to read will say.
        match direct.read_exact_at(&mut buf[..whole], offset) {
            Ok(()) => whole,
            Err(_) => 0,
        }
    }

    /// Says that reads will come in any order: the kernel then fetches what is read and no more. By
    /// itself it reads ahead, which under strides makes many times the bytes of it.
    pub fn expect_any_order(&self) {
        expect_any_order(&self.file);
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes a regular file longer or shorter, and the device with it. Nobody else may make use of it meanwhile.
    ///
    /// # Errors
    ///
    /// The error of the operating system: a block device has the size that it has. The device is as it was.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.size.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The path this device was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A hint: where it is not taken, reads are answered all the same.
fn expect_any_order(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
}

impl Device for FileDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let done = self.read_direct(offset, buf);
        self.file
            .read_exact_at(&mut buf[done..], offset + done as u64)
    }

    fn read_alone_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let done = self.read_direct(offset, buf);
        let file = self.alone.as_ref().unwrap_or(&self.file);
        file.read_exact_at(&mut buf[done..], offset + done as u64)
    }

    fn read_vectored_at(&self, mut offset: u64, mut bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        while bufs.iter().any(|buf| !buf.is_empty()) {
            let count = bufs.len().min(BUFFERS_MAX);
            match rustix::io::preadv(&self.file, &mut bufs[..count], offset) {
                // Empty buffers in front may fill a call.
                Ok(0) if bufs[..count].iter().all(|buf| buf.is_empty()) => {
                    bufs = &mut bufs[count..];
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    offset += read as u64;
                    IoSliceMut::advance_slices(&mut bufs, read);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn will_need(&self, offset: u64, len: u64) {
        let len = std::num::NonZeroU64::new(len.min(self.size().saturating_sub(offset)));
        if len.is_some() {
            let _ = rustix::fs::fadvise(&self.file, offset, len, rustix::fs::Advice::WillNeed);
        }
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Device for Vec<u8> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let bytes = start
            .checked_add(buf.len())
            .and_then(|end| self.get(start..end))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn name(&self) -> String {
        "memory".into()
    }
}

impl<D: Device + ?Sized> Device for &D {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buf)
    }

    fn read_alone_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_alone_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        (**self).read_vectored_at(offset, bufs)
    }

    fn will_need(&self, offset: u64, len: u64) {
        (**self).will_need(offset, len);
    }

    fn size(&self) -> u64 {
        (**self).size()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buf)
    }

    fn read_alone_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_alone_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        (**self).read_vectored_at(offset, bufs)
    }

    fn will_need(&self, offset: u64, len: u64) {
        (**self).will_need(offset, len);
    }

    fn size(&self) -> u64 {
        (**self).size()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

/// The part of a device from an offset to its end: an image embedded in a larger file.
#[derive(Debug)]
pub struct Window<D> {
    inner: D,
    start: u64,
}

impl<D: Device> Window<D> {
    /// Views `inner` from byte `start` on; a start beyond the end gives an empty device.
    pub fn new(inner: D, start: u64) -> Self {
        Self { inner, start }
    }
}

impl<D: Device> Device for Window<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let offset = offset
            .checked_add(self.start)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        self.inner.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let offset = offset
            .checked_add(self.start)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        self.inner.read_vectored_at(offset, bufs)
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.inner.will_need(offset.saturating_add(self.start), len);
    }

    fn size(&self) -> u64 {
        self.inner.size().saturating_sub(self.start)
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_is_an_error_not_zeros() {
        let device = vec![1u8, 2, 3, 4];
        let mut buf = [0; 3];
        device.read_at(1, &mut buf).unwrap();
        assert_eq!(buf, [2, 3, 4]);
        for offset in [2, 4, 5, u64::MAX] {
            let error = device.read_at(offset, &mut buf).unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::UnexpectedEof,
                "offset {offset}"
            );
        }
    }

    #[test]
    fn what_is_read_alone_is_the_same() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
        io::Write::write_all(&mut file, &content).unwrap();
        let plain = FileDevice::open(file.path()).unwrap();
        let alone = FileDevice::open(file.path()).unwrap().with_direct_reads();
        for device in [plain, alone.with_reads_alone()] {
            for range in [0..1, 4000..9000, 4096..4096 + (200 << 10), 1..300_000] {
                let mut buf = vec![0; range.len()];
                device.read_alone_at(range.start as u64, &mut buf).unwrap();
                assert!(buf == content[range]);
            }
            let beyond = device.read_alone_at(299_999, &mut [0; 2]).unwrap_err();
            assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn several_buffers_are_filled_one_after_the_other() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &(0..200).collect::<Vec<u8>>()).unwrap();
        let device = Window::new(FileDevice::open(file.path()).unwrap(), 10);
        let mut bytes = vec![0; 2500];
        // More buffers than one call takes, some of them empty.
        let read = |offset, len: usize, bytes: &mut [u8]| {
            let mut bufs: Vec<_> = (0..=BUFFERS_MAX)
                .map(|_| IoSliceMut::new(&mut []))
                .collect();
            for piece in bytes[..len].chunks_mut(1) {
                bufs.push(IoSliceMut::new(piece));
            }
            device.read_vectored_at(offset, &mut bufs)
        };
        read(5, 185, &mut bytes).unwrap();
        assert!(bytes[..185].iter().copied().eq(15..200));
        let error = read(5, 2000, &mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(read(u64::MAX, 1, &mut bytes).is_err());
    }

    #[test]
    fn a_window_starts_where_it_says() {
        let window = Window::new(vec![1u8, 2, 3, 4], 3);
        let mut buf = [0; 1];
        window.read_at(0, &mut buf).unwrap();
        assert_eq!((buf, window.size()), ([4], 1));
        assert!(window.read_at(u64::MAX, &mut buf).is_err());
        assert_eq!(Window::new(vec![0u8; 4], 9).size(), 0);
    }

    #[test]
    fn a_directory_is_no_device() {
        let error = FileDevice::open("/").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert!(error.to_string().starts_with("/: "), "{error}");
    }
}
