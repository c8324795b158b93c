//! Bytes at an offset.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that holds bytes at offsets and may be read by many threads at once.
pub trait Device: Send + Sync {
    /// Fills `buf` with the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the range does not lie wholly inside the device; a short read is never
    /// padded. Anything else is the error of the medium.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// The size in bytes, as found when the device was opened.
    fn size(&self) -> u64;

    /// What to call the device in a message: usually its path.
    fn name(&self) -> String;
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: u64,
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
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Unlike the length in the metadata, the end offset is also right for block devices.
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            size,
        })
    }

    /// The path this device was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Device for FileDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn size(&self) -> u64 {
        self.size
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

impl<D: Device + ?Sized> Device for Arc<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buf)
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
