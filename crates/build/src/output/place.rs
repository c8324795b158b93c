//! Place of an image: a new file that takes a name when it is complete, or a place that is there already.

use std::ffi::OsString;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anteros_core::{FileDevice, Occupant};

use crate::{Error, Options};

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
pub(crate) enum Place {
    /// Nothing, or a file whose name the image takes.
    Name,
    /// A file that keeps something in front of the image, or all of its names.
    Part,
    /// A block device.
    Device,
    /// Any other that no image can take the place of.
    Other,
}

impl Place {
    pub fn of(path: &Path, options: &Options) -> Self {
        let keeps =
            |found: &Metadata| options.offset > 0 || options.keeps_names && found.nlink() > 1;
        match std::fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => Self::Device,
            Ok(found) if !found.is_file() => Self::Other,
            Ok(found) if keeps(&found) => Self::Part,
            _ => Self::Name,
        }
    }

    /// Returns whether it is written in place.
    pub fn is_written(self) -> bool {
        matches!(self, Self::Part | Self::Device)
    }
}

/// Returns whether an image of this name is written in place.
pub(crate) fn is_written_in_place(path: &Path, options: &Options) -> bool {
    Place::of(path, options).is_written()
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

pub(super) fn refuse_occupied(
    path: &Path,
    device: &FileDevice,
    options: &Options,
) -> Result<(), Error> {
    let fail = |cause| Error::Image {
        path: path.to_owned(),
        action: "overwrite",
        cause,
    };
    match device.occupant_from(options.offset).map_err(fail)? {
        None | Some(Occupant::Image) => Ok(()),
        Some(Occupant::Sparse) if options.android_sparse => Ok(()),
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

/// A file beside its final name, which it gets when it is complete; else it is removed.
pub(crate) struct Beside {
    device: FileDevice,
    name: PathBuf,
    path: PathBuf,
    is_placed: bool,
}

impl Beside {
    /// Creates a file that is to become this one.
    pub fn create(path: &Path) -> io::Result<Self> {
        let name = temporary_name(path)?;
        let device = FileDevice::create_writable(&name)?;
        resemble(device.file(), path);
        Ok(Self {
            device,
            name,
            path: path.to_owned(),
            is_placed: false,
        })
    }

    pub fn file(&self) -> &File {
        self.device.file()
    }

    /// The final name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, which is on the medium then if that is wished.
    pub fn place(mut self, sync: bool) -> Result<(), Error> {
        let fail = |action, cause| Error::Image {
            path: self.path.clone(),
            action,
            cause,
        };
        if sync {
            self.file().sync_all().map_err(|e| fail("sync", e))?;
        }
        std::fs::rename(&self.name, &self.path).map_err(|e| fail("rename", e))?;
        if sync {
            let directory = File::open(parent(&self.path));
            let synced = directory.and_then(|directory| directory.sync_all());
            synced.map_err(|e| fail("sync", e))?;
        }
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_placed {
            // There is an error under way already, and nothing else to be done about this one.
            let _ = std::fs::remove_file(&self.name);
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
