//! Devices that can be written to.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::device::{BUFFERS_MAX, Device, FileDevice};
use crate::lock::{self, Held};
use crate::poison::unpoisoned;

/// A [`Device`] whose bytes can be changed, by many threads at once.
///
/// What a write has taken is seen by every read after it. What survives when the power fails is only
/// what was written before a [`flush`](Self::flush) began that has returned; of later writes, any
/// part may be there, in any order, down to single sectors.
pub trait WritableDevice: Device {
    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the range does not lie wholly inside the device, which never grows;
    /// nothing is written then. After any other error, which is the medium's, the range may hold any
    /// mixture of old and new bytes.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Writes several buffers, one after the other, from `offset` on.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Self::write_at); buffers before the one that fails may have been written.
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = Some(offset);
        for buf in bufs {
            let start = at.ok_or_else(|| beyond_end(offset, u64::MAX, self.size()))?;
            self.write_at(start, buf)?;
            at = start.checked_add(buf.len() as u64);
        }
        Ok(())
    }

    /// Waits until all that was written before survives the loss of power.
    ///
    /// # Errors
    ///
    /// The error of the medium. Nobody knows then which of the writes will survive, and a second flush
    /// that succeeds does not say that they do.
    fn flush(&self) -> io::Result<()>;

    /// Says that what was written in a range should begin to reach the medium. Whoever can, begins; nobody waits.
    fn begin_writing(&self, _offset: u64, _len: u64) {}

    /// Makes a range zero, by less than a write of so many zeros where that can be.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Self::write_at); some of the range may be zero then.
    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        write_zeros(self, offset, len)
    }

    /// Takes the room that writes to a range will need, where the medium only takes it as it is written. Says whether there is
    /// anything to take: if not, it need not be asked again. What the range holds stays as it is.
    ///
    /// # Errors
    ///
    /// `StorageFull` when there is no room; else as [`write_at`](Self::write_at).
    fn reserve(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Says that the content of a range is not needed any more. Until it is written again, reads
    /// give anything, and not the same each time.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the range does not lie wholly inside the device; else that of the medium.
    /// A medium that cannot discard is no error.
    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

impl<D: WritableDevice + ?Sized> WritableDevice for Arc<D> {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        (**self).write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }

    fn begin_writing(&self, offset: u64, len: u64) {
        (**self).begin_writing(offset, len);
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        (**self).zero(offset, len)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<bool> {
        (**self).reserve(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        (**self).discard(offset, len)
    }
}

/// Bytes that are made zero by one write.
const ZEROS: u64 = 1 << 20;

fn write_zeros(device: &(impl WritableDevice + ?Sized), offset: u64, len: u64) -> io::Result<()> {
    let end = writable_range(offset, len, device.size())?.end;
    let zeros = vec![0; ZEROS.min(len) as usize];
    let mut at = offset;
    while at < end {
        let part = &zeros[..ZEROS.min(end - at) as usize];
        device.write_at(at, part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// The bytes from `offset` on, if they lie inside a device of `size` bytes.
///
/// # Errors
///
/// `InvalidInput`, naming the range and the size.
pub fn writable_range(offset: u64, len: u64, size: u64) -> io::Result<Range<u64>> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(offset..end),
        _ => Err(beyond_end(offset, len, size)),
    }
}

fn beyond_end(offset: u64, len: u64, size: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{len} bytes at offset {offset} do not fit a device of {size} bytes"),
    )
}

fn total_len(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}

impl FileDevice {
    /// Opens `path`, a regular file or a block device, for reading and writing, and for this process
    /// alone: as long as the device lives, whoever else opens it so is refused, by whatever way (a loop device, a part of a
    /// disk). What is mounted, or else in use, is not opened. Those who open a file by other means are let in: locks of files
    /// are advisory.
    ///
    /// # Errors
    ///
    /// `ResourceBusy` when it is in use; else whatever the operating system says. The path is in
    /// front.
    pub fn open_writable(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::locked(path.as_ref(), lock::open_alone)
    }

    /// Makes the regular file `path`, where nothing is, and [opens](Self::open_writable) it.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if something is there; else as there.
    pub fn create_writable(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::locked(path.as_ref(), lock::create_alone)
    }

    /// Opens `path` for reading, beside others who do. As long as the device lives, nobody [writes](Self::open_writable) to it.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open_unchanging(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::locked(path.as_ref(), lock::open_with_readers)
    }

    fn locked(path: &Path, open: impl Fn(&Path) -> io::Result<(File, Held)>) -> io::Result<Self> {
        let opened = open(path).and_then(|(file, held)| {
            let mut device = Self::from_file(file, path)?;
            device.held = held;
            Ok(device)
        });
        opened.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }
}

impl WritableDevice for FileDevice {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        writable_range(offset, data.len() as u64, self.size())?;
        self.file().write_all_at(data, offset)
    }

    fn write_vectored_at(&self, mut offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        writable_range(offset, total_len(bufs), self.size())?;
        let mut bufs = bufs.to_vec();
        let mut bufs = &mut bufs[..];
        while bufs.iter().any(|buf| !buf.is_empty()) {
            let count = bufs.len().min(BUFFERS_MAX);
            match rustix::io::pwritev(self.file(), &bufs[..count], offset) {
                // Empty buffers in front may fill a call.
                Ok(0) if bufs[..count].iter().all(|buf| buf.is_empty()) => {
                    bufs = &mut bufs[count..];
                }
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut bufs, written);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.file().sync_data()
    }

    fn begin_writing(&self, offset: u64, len: u64) {
        // Of pages that are dirty, Linux begins to write this advice's range; it lets go of none of them before.
        let advice = rustix::fs::Advice::DontNeed;
        if let Some(len) = std::num::NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(self.file(), offset, Some(len), advice);
        }
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        writable_range(offset, len, self.size())?;
        if len == 0 {
            return Ok(());
        }
        // Linux promises zeros behind both, of files and of block devices.
        for flags in [
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        ] {
            match rustix::fs::fallocate(self.file(), flags, offset, len) {
                // Of a part of a sector, as well.
                Err(Errno::OPNOTSUPP | Errno::INVAL) => {}
                done => return Ok(done?),
            }
        }
        write_zeros(self, offset, len)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<bool> {
        writable_range(offset, len, self.size())?;
        if len == 0 || !self.file().metadata()?.is_file() {
            return Ok(false);
        }
        loop {
            match rustix::fs::fallocate(self.file(), FallocateFlags::KEEP_SIZE, offset, len) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                // A quota is no more room than there is.
                Err(Errno::DQUOT) => return Err(Errno::NOSPC.into()),
                done => return Ok(done.map(|()| true)?),
            }
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        writable_range(offset, len, self.size())?;
        if len == 0 || self.keeps_all.load(Ordering::Relaxed) {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(self.file(), flags, offset, len) {
            Err(Errno::OPNOTSUPP) => {
                // It is not asked again.
                self.keeps_all.store(true, Ordering::Relaxed);
                Ok(())
            }
            done => Ok(done?),
        }
    }
}

/// Bytes in memory that can be written to. Nothing survives it, so a flush has nothing to do.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    size: u64,
}

impl MemoryDevice {
    /// A device that holds `bytes`, and is as large.
    pub fn new(bytes: Vec<u8>) -> Self {
        let size = bytes.len() as u64;
        let bytes = RwLock::new(bytes);
        Self { bytes, size }
    }

    /// Copy of its present bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let bytes = self.bytes.read();
        unpoisoned(bytes).clone()
    }

    fn change(&self, range: Range<u64>, change: impl FnOnce(&mut [u8])) {
        // No panic leaves the bytes half changed in a way that a write from outside could not.
        let mut bytes = unpoisoned(self.bytes.write());
        // The range lies inside, so it fits the address space.
        change(&mut bytes[range.start as usize..range.end as usize]);
    }
}

impl Device for MemoryDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = unpoisoned(self.bytes.read());
        bytes.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn name(&self) -> String {
        "memory".into()
    }
}

impl WritableDevice for MemoryDevice {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = writable_range(offset, data.len() as u64, self.size)?;
        self.change(range, |bytes| bytes.copy_from_slice(data));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let range = writable_range(offset, len, self.size)?;
        self.change(range, |bytes| bytes.fill(0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 10;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    /// Checks the rules of all devices.
    fn judge(device: &dyn WritableDevice) {
        let read = |offset, len| {
            let mut bytes = vec![0; len];
            device.read_at(offset, &mut bytes).unwrap();
            bytes
        };
        device.write_at(10, b"hello").unwrap();
        // More buffers than one call takes, and more empty ones in a row than that.
        let text: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
        let mut bufs = vec![IoSlice::new(&[]); BUFFERS_MAX + 1];
        bufs.extend(text.chunks(1).map(IoSlice::new));
        device.write_vectored_at(15, &bufs).unwrap();
        device.write_vectored_at(0, &[]).unwrap();
        device.write_vectored_at(0, &bufs[..BUFFERS_MAX]).unwrap();
        device.flush().unwrap();
        assert_eq!(read(10, 3005), [b"hello", &text[..]].concat());

        device.write_at(SIZE - 2, &[1, 2]).unwrap();
        device.write_at(SIZE, &[]).unwrap();
        for (offset, len) in [(SIZE - 2, 3), (SIZE, 1), (u64::MAX, 2)] {
            let data = vec![9; len];
            let errors = [
                device.write_at(offset, &data),
                device.write_vectored_at(offset, &[IoSlice::new(&data)]),
                device.discard(offset, len as u64),
            ];
            for error in errors.map(Result::unwrap_err) {
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                let expected = format!("{len} bytes at offset {offset} do not fit a device of");
                assert!(error.to_string().starts_with(&expected), "{error}");
            }
        }
        assert_eq!((read(SIZE - 2, 2), device.size()), (vec![1, 2], SIZE));

        device.discard(8192, 0).unwrap();
        device.write_at(8192, &[7; 8192]).unwrap();
        device.discard(8192, 4096).unwrap();
        let after = read(8192, 8192);
        assert!(after[..4096] == [0; 4096] || after[..4096] == [7; 4096]);
        assert_eq!(after[4096..], [7; 4096]);
    }

    #[test]
    fn a_device_takes_what_fits_and_never_grows() {
        judge(&MemoryDevice::new(vec![0; SIZE as usize]));
        let file = file(&vec![0; SIZE as usize]);
        judge(&Arc::new(FileDevice::open_writable(file.path()).unwrap()));
        assert_eq!(file.as_file().metadata().unwrap().len(), SIZE);
    }

    #[test]
    fn reads_past_the_cache_find_what_was_written_to_it() {
        let bytes: Vec<u8> = (0..1_000_003u32).map(|n| (n / 7) as u8).collect();
        let file = file(&bytes);
        let device = FileDevice::open_writable(file.path()).unwrap();
        let device = device.with_direct_reads();
        device.write_at(500_000, &[99; 10_000]).unwrap();
        let mut bytes = bytes;
        bytes[500_000..510_000].fill(99);
        let mut buffer = Vec::with_capacity(bytes.len() + crate::PAGE_BYTES);
        for (shift, offset, len) in [
            (0, 0, bytes.len()),
            (0, 4096, 900_000),
            (0, 4096, bytes.len() - 4096),
            (0, 100, 700_000),
            (1, 4096, 700_000),
        ] {
            let start = crate::begin_on_page(&mut buffer, 0) + shift;
            buffer.resize(start + len, 0);
            device.read_at(offset as u64, &mut buffer[start..]).unwrap();
            assert!(
                buffer[start..] == bytes[offset..offset + len],
                "{offset} {len}"
            );
        }
        let start = crate::begin_on_page(&mut buffer, 0);
        buffer.resize(start + bytes.len(), 0);
        let error = device.read_at(4096, &mut buffer[start..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_second_writer_is_refused_until_the_first_is_gone() {
        let file = file(&[0; 512]);
        let first = FileDevice::open_writable(file.path()).unwrap();
        let error = FileDevice::open_writable(file.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        let expected = format!("{}: is in use by another process", file.path().display());
        assert!(error.to_string().starts_with(&expected), "{error}");
        // Readers are let in.
        FileDevice::open(file.path()).unwrap();
        drop(first);
        FileDevice::open_writable(file.path()).unwrap();
    }

    #[test]
    fn what_is_no_device_is_not_opened_for_writing() {
        let error = FileDevice::open_writable("/").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let error = FileDevice::open_writable("/nowhere/at/all").unwrap_err();
        assert!(
            error.to_string().starts_with("/nowhere/at/all: "),
            "{error}"
        );
    }

    #[test]
    fn a_device_opened_for_reading_takes_no_write() {
        let file = file(&[5; 512]);
        let device = FileDevice::open(file.path()).unwrap();
        assert!(device.write_at(0, &[1]).is_err());
        assert!(device.write_vectored_at(0, &[IoSlice::new(&[1])]).is_err());
        assert!(device.discard(0, 512).is_err());
        assert_eq!(std::fs::read(file.path()).unwrap(), [5; 512]);
    }

    #[test]
    fn writes_of_many_threads_do_not_mix() {
        let device = MemoryDevice::new(vec![0; 4096]);
        std::thread::scope(|scope| {
            for byte in 1..=4 {
                let device = &device;
                scope.spawn(move || {
                    for _ in 0..500 {
                        device.write_at(0, &[byte; 4096]).unwrap();
                        let mut seen = [0; 4096];
                        device.read_at(0, &mut seen).unwrap();
                        assert!(seen.iter().all(|&other| other == seen[0] && other > 0));
                    }
                });
            }
        });
    }
}
