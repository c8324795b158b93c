//! The image file.
//!
//! A new image is written beside its final name and renamed when it is complete, so that nobody
//! ever sees half of one under that name; whatever goes wrong before removes it. It gets the owner and the permissions
//! of the file whose place it takes, but not its further names, which keep the old image. Only block devices, and
//! files that keep something in front of the image, are written in place. There the superblock's
//! block is cleared first and written last, so that what is unfinished is no image.
//!
//! All bytes pass through a hash, from which the image's UUID is made.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anteros_core::{FileDevice, Occupant};
use xxhash_rust::xxh3::Xxh3;

use crate::{Error, Options};

/// Bytes that are gathered for one write.
const BUFFER_BYTES: usize = 1 << 20;

/// An image that is being written.
pub(crate) struct Output {
    device: FileDevice,
    /// The final name.
    path: PathBuf,
    /// The name until then, if it is another.
    temporary: Option<PathBuf>,
    is_device: bool,
    offset: u64,
    block_bytes: u32,
    /// Tells where the buffer's first byte belongs in the image.
    flushed: u64,
    buffer: Vec<u8>,
    hash: Box<Xxh3>,
}

/// A position to go back to.
pub(crate) struct Checkpoint {
    position: u64,
    hash: Box<Xxh3>,
}

/// The file that an image of this name is to become: a symbolic link leads to it, whether it is there or not.
pub(crate) fn target(path: &Path) -> PathBuf {
    let Ok(leads_to) = std::fs::read_link(path) else {
        return path.to_owned();
    };
    let beyond = || parent(path).join(leads_to);
    path.canonicalize().unwrap_or_else(|_| beyond())
}

/// Tells what is there before the image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing, or a file whose name the image takes.
    Name,
    /// A file that keeps something in front of the image.
    Part,
    /// A block device.
    Device,
    /// Any other that no image can take the place of.
    Other,
}

impl Place {
    fn of(path: &Path, options: &Options) -> Self {
        match std::fs::metadata(path).map(|found| found.file_type()) {
            Ok(found) if found.is_block_device() => Self::Device,
            Ok(found) if found.is_file() && options.offset > 0 => Self::Part,
            Ok(found) if !found.is_file() => Self::Other,
            _ => Self::Name,
        }
    }

    /// Returns whether it is written in place.
    fn is_written(self) -> bool {
        matches!(self, Self::Part | Self::Device)
    }
}

/// Fails if what is there must not be overwritten, or is in use. What is written in place is asked again when it is locked.
pub(crate) fn check(path: &Path, options: &Options) -> Result<(), Error> {
    let fail = |cause| Error::Image {
        path: path.to_owned(),
        action: "create",
        cause,
    };
    let opened = match Place::of(path, options) {
        Place::Name if !path.exists() => return Ok(()),
        Place::Name => FileDevice::open(path),
        Place::Part | Place::Device => FileDevice::open_writable(path),
        Place::Other => {
            let cause = "it is there, and is neither a file nor a block device";
            return Err(fail(io::Error::other(cause)));
        }
    };
    match opened {
        Ok(device) => refuse_occupied(path, &device, options),
        // Of what may not be read nobody knows what it is; its name may be given away all the same.
        Err(_) if Place::of(path, options) == Place::Name && options.overwrite => Ok(()),
        Err(cause) => Err(fail(cause)),
    }
}

fn refuse_occupied(path: &Path, device: &FileDevice, options: &Options) -> Result<(), Error> {
    let fail = |cause| Error::Image {
        path: path.to_owned(),
        action: "overwrite",
        cause,
    };
    match device.occupant_from(options.offset).map_err(fail)? {
        None | Some(Occupant::Image) => Ok(()),
        Some(occupant) if !options.overwrite => Err(Error::Occupied {
            path: path.to_owned(),
            occupant,
        }),
        // Readers of an image keep the file that they have; whoever writes to a log would write to what has no name any more.
        Some(Occupant::Log) if Place::of(path, options) == Place::Name => {
            FileDevice::open_unchanging(path).map(|_| ()).map_err(fail)
        }
        Some(_) => Ok(()),
    }
}

/// Gives a new file the owner and the permissions of the one whose place it takes, as far as that is allowed: nobody else may
/// read the new image than might read the old one.
fn resemble(new: &File, old: &Path) {
    let Ok(old) = std::fs::metadata(old) else {
        return;
    };
    // Only root gives files away.
    let _ = fchown(new, Some(old.uid()), Some(old.gid()));
    let Ok(made) = new.metadata() else { return };
    // What was meant for another group is not for this one.
    let kept = match made.gid() == old.gid() {
        true => 0o777,
        false => 0o707,
    };
    let _ = new.set_permissions(Permissions::from_mode(old.mode() & kept));
}

impl Output {
    /// Opens the image; the first `reserved` bytes are left for the superblock.
    pub fn create(path: &Path, options: &Options, reserved: u64) -> Result<Self, Error> {
        let fail = |cause| Error::Image {
            path: path.to_owned(),
            action: "create",
            cause,
        };
        let place = Place::of(path, options);
        let (device, temporary) = if place.is_written() {
            let device = FileDevice::open_writable(path).map_err(fail)?;
            refuse_occupied(path, &device, options)?;
            (device, None)
        } else {
            let temporary = temporary_name(path).map_err(fail)?;
            let device = FileDevice::create_writable(&temporary).map_err(fail)?;
            resemble(device.file(), path);
            (device, Some(temporary))
        };
        let mut output = Self {
            device,
            path: path.to_owned(),
            temporary,
            is_device: place == Place::Device,
            offset: options.offset,
            block_bytes: options.block_bytes(),
            flushed: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            hash: Box::new(Xxh3::new()),
        };
        output.write(&vec![0; reserved as usize])?;
        if place.is_written() {
            output.flush()?;
        }
        Ok(output)
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.hash.update(bytes);
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= BUFFER_BYTES {
            self.write_at(self.flushed, bytes)?;
            self.flushed += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Appends zeros up to a position.
    pub fn pad_to(&mut self, position: u64) -> Result<(), Error> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.position() < position {
            let len = (position - self.position()).min(ZEROS.len() as u64);
            self.write(&ZEROS[..len as usize])?;
        }
        Ok(())
    }

    /// Bytes so far.
    pub fn position(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes.into()
    }

    /// The number of the block that begins at a position.
    pub fn block_of(&self, position: u64) -> Result<u32, Error> {
        debug_assert_eq!(position % u64::from(self.block_bytes), 0);
        self.number(position)
    }

    /// Fails if the block that a position lies in has no number.
    pub fn check(&self, position: u64) -> Result<(), Error> {
        self.number(position).map(|_| ())
    }

    fn number(&self, position: u64) -> Result<u32, Error> {
        let block = u32::try_from(position / u64::from(self.block_bytes));
        // The last number stands for holes.
        block
            .ok()
            .filter(|&block| block < u32::MAX)
            .ok_or_else(|| Error::TooLarge {
                path: self.path.clone(),
                block_bytes: self.block_bytes,
            })
    }

    /// Remembers the position.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            position: self.position(),
            hash: self.hash.clone(),
        }
    }

    /// Takes back what was written since.
    pub fn rewind(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        self.flush()?;
        self.flushed = checkpoint.position;
        self.hash = checkpoint.hash;
        Ok(())
    }

    /// The hash of all bytes so far and of some that are not written.
    pub fn hash_with(&self, more: &[u8]) -> u128 {
        let mut hash = self.hash.clone();
        hash.update(more);
        hash.digest128()
    }

    /// Writes the superblock at byte `at` of the image, which is complete then.
    pub fn complete(&mut self, at: u64, superblock: &[u8]) -> Result<(), Error> {
        self.flush()?;
        self.write_at(at, superblock)
    }

    /// Takes what was written behind a complete image, up to this position, as a part of it.
    pub fn set_end(&mut self, position: u64) {
        debug_assert!(self.buffer.is_empty() && position >= self.flushed);
        self.flushed = position;
    }

    /// Writes bytes of a complete image, or behind it.
    pub fn write_back(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.device.file();
        file.write_all_at(bytes, self.offset + position)
    }

    /// Reads bytes that were written.
    pub fn read_back(&self, position: u64, bytes: &mut [u8]) -> io::Result<()> {
        let file = self.device.file();
        file.read_exact_at(bytes, self.offset + position)
    }

    /// Gives the file of a complete image its length and its name.
    pub fn finish(mut self, sync: bool) -> Result<(), Error> {
        if !self.is_device {
            let end = self.offset + self.flushed;
            self.device
                .set_len(end)
                .map_err(|e| self.error("resize", e))?;
        }
        if sync {
            self.device
                .file()
                .sync_all()
                .map_err(|e| self.error("sync", e))?;
        }
        if let Some(temporary) = &self.temporary {
            std::fs::rename(temporary, &self.path).map_err(|e| self.error("rename", e))?;
            self.temporary = None;
            if sync {
                self.sync_directory().map_err(|e| self.error("sync", e))?;
            }
        }
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(parent(&self.path))?.sync_all()
    }

    /// Writes what was gathered.
    pub fn flush(&mut self) -> Result<(), Error> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write_at(self.flushed, &buffer)?;
        self.flushed += buffer.len() as u64;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self
            .device
            .file()
            .write_all_at(bytes, self.offset + position);
        written.map_err(|e| self.error("write", e))
    }

    /// An error with what was tried, as `write`.
    pub fn error(&self, action: &'static str, cause: io::Error) -> Error {
        Error::Image {
            path: self.path.clone(),
            action,
            cause,
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // There is an error under way already, and nothing else to be done about this one.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// The directory of a path.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".anteros-{}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
}
