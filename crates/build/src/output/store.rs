//! Bytes of an image, wherever they are kept until it is complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use anteros_core::{FileDevice, WritableDevice};
use anteros_format::superblock::SUPERBLOCK_OFFSET;

use super::place::{Beside, Place, refuse_occupied};
use crate::{Appended, Error, Options};

/// Bytes for a sink, and where they belong.
pub(crate) type Sender = SyncSender<(u64, Vec<u8>)>;

/// Holds the bytes of an image.
pub(crate) enum Store {
    /// A file that gets its name when the image is complete.
    New(Beside),
    /// A file or a device that is written in place.
    InPlace {
        device: FileDevice,
        path: PathBuf,
        is_device: bool,
    },
    /// An image that is appended to.
    Grown(Grown),
    /// An image on a device that has room behind it, which is appended to.
    Medium {
        device: Arc<dyn WritableDevice>,
        path: PathBuf,
    },
    /// A file without a name, in a directory.
    Spool { file: File, directory: PathBuf },
    /// A thread that writes.
    Sink(Sender),
}

/// An image that is appended to. What is written to it without the superblock is taken away again.
pub(crate) struct Grown {
    device: FileDevice,
    path: PathBuf,
    /// Bytes before; none if they are to stay.
    len_before: Option<u64>,
}

impl Grown {
    fn open(path: &Path, append: &Appended) -> io::Result<Self> {
        let device = FileDevice::open_writable(path)?;
        if !device.file().metadata()?.is_file() {
            return Err(io::Error::other(
                "only an image in a regular file can be appended to",
            ));
        }
        let mut found = vec![0; append.superblock.len()];
        let len = device.file().metadata()?.len();
        let is_whole = len >= SUPERBLOCK_OFFSET + found.len() as u64;
        if is_whole {
            device.file().read_exact_at(&mut found, SUPERBLOCK_OFFSET)?;
        }
        if !is_whole || found != append.superblock || len > append.end {
            return Err(io::Error::other("another image is there meanwhile"));
        }
        Ok(Self {
            device,
            path: path.to_owned(),
            len_before: Some(len),
        })
    }
}

impl Drop for Grown {
    fn drop(&mut self) {
        if let Some(len) = self.len_before {
            // There is an error under way already, and what is behind the image does no harm.
            let _ = self.device.file().set_len(len);
        }
    }
}

impl Store {
    /// Opens the place of an image.
    pub fn open(path: &Path, options: &Options) -> Result<Self, Error> {
        let fail = |cause| Error::Image {
            path: path.to_owned(),
            action: "create",
            cause,
        };
        if let Some(append) = options.grown() {
            return Grown::open(path, append).map(Self::Grown).map_err(fail);
        }
        let place = Place::of(path, options);
        if !place.is_written() {
            return Beside::create(path).map(Self::New).map_err(fail);
        }
        let device = FileDevice::open_writable(path).map_err(fail)?;
        refuse_occupied(path, &device, options)?;
        Ok(Self::InPlace {
            device,
            path: path.to_owned(),
            is_device: place == Place::Device,
        })
    }

    /// Takes a device with an image that is appended to.
    pub fn on(device: Arc<dyn WritableDevice>, append: &Appended) -> Result<Self, Error> {
        let path = PathBuf::from(device.name());
        let mut found = vec![0; append.superblock.len()];
        let read = device.read_at(SUPERBLOCK_OFFSET, &mut found);
        let same = read.and_then(|()| match found == append.superblock {
            true => Ok(()),
            false => Err(io::Error::other("another image is there meanwhile")),
        });
        match same {
            Ok(()) => Ok(Self::Medium { device, path }),
            Err(cause) => Err(Error::Image {
                path,
                action: "open",
                cause,
            }),
        }
    }

    /// Makes a file without a name.
    pub fn spool(directory: &Path) -> Result<Self, Error> {
        let fail = |cause| Error::SpoolImage {
            directory: directory.to_owned(),
            kept_bytes: 0,
            cause,
        };
        Ok(Self::Spool {
            file: tempfile::tempfile_in(directory).map_err(fail)?,
            directory: directory.to_owned(),
        })
    }

    pub fn is_in_place(&self) -> bool {
        matches!(self, Self::InPlace { .. })
    }

    /// Name of it in messages.
    pub fn path(&self) -> &Path {
        match self {
            Self::New(beside) => beside.path(),
            Self::InPlace { path, .. } => path,
            Self::Grown(grown) => &grown.path,
            Self::Medium { path, .. } => path,
            Self::Spool { .. } | Self::Sink(_) => Path::new("the image"),
        }
    }

    fn file(&self) -> Option<&File> {
        match self {
            Self::New(beside) => Some(beside.file()),
            Self::InPlace { device, .. } => Some(device.file()),
            Self::Grown(grown) => Some(grown.device.file()),
            Self::Spool { file, .. } => Some(file),
            Self::Medium { .. } | Self::Sink(_) => None,
        }
    }

    pub fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self {
            // Whoever waits for the thread tells why it has ended.
            Self::Sink(sender) => sender
                .send((at, bytes.to_vec()))
                .map_err(|_| io::ErrorKind::BrokenPipe.into()),
            Self::Medium { device, .. } => device.write_at(at, bytes),
            _ => self
                .file()
                .map_or(Ok(()), |file| file.write_all_at(bytes, at)),
        }
    }

    /// Reads what was written; a sink does not give it back.
    pub fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        if let Self::Medium { device, .. } = self {
            return device.read_at(at, bytes);
        }
        let file = self.file().ok_or(io::ErrorKind::Unsupported)?;
        file.read_exact_at(bytes, at)
    }

    /// Has all be on the medium that the superblock of an image that is appended to will speak of, up to this byte.
    pub fn prepare(&self, end: u64) -> Result<(), Error> {
        let synced = match self {
            Self::Grown(grown) => {
                let file = grown.device.file();
                file.set_len(end).and_then(|()| file.sync_all())
            }
            Self::Medium { device, .. } => device.flush(),
            _ => return Ok(()),
        };
        synced.map_err(|e| self.error("sync", end, e))
    }

    /// Ends a complete image at a byte. It gets its name then.
    pub fn finish(mut self, end: u64, sync: bool) -> Result<(), Error> {
        if let Self::Grown(grown) = &mut self {
            grown.len_before = None;
        }
        let fixed = matches!(
            self,
            Self::InPlace {
                is_device: true,
                ..
            } | Self::Sink(_)
        );
        if let Some(file) = self.file().filter(|_| !fixed) {
            file.set_len(end)
                .map_err(|e| self.error("resize", end, e))?;
        }
        match self {
            Self::New(beside) => beside.place(sync),
            Self::Medium { ref device, .. } if sync => {
                let flushed = device.flush();
                flushed.map_err(|e| self.error("sync", end, e))
            }
            Self::InPlace { .. } | Self::Grown(_) if sync => {
                let synced = self.file().map_or(Ok(()), File::sync_all);
                synced.map_err(|e| self.error("sync", end, e))
            }
            _ => Ok(()),
        }
    }

    /// An error with what was tried, when so many bytes were there.
    pub fn error(&self, action: &'static str, kept_bytes: u64, cause: io::Error) -> Error {
        match self {
            Self::Spool { directory, .. } => Error::SpoolImage {
                directory: directory.clone(),
                kept_bytes,
                cause,
            },
            _ => Error::Image {
                path: self.path().to_owned(),
                action,
                cause,
            },
        }
    }
}
