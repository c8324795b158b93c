//! Programs on a file system that is mounted.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, XattrFlags};

use super::step::{ALIGNED, Falloc, Step};

const XATTR: &str = "user.ace";

impl Step {
    /// Does it below a directory.
    ///
    /// Memory is not mapped here, which no safe code can do: what is to be written to a mapping is written to the file,
    /// and `msync` is `fdatasync`.
    ///
    /// # Errors
    ///
    /// What the file system says; with the programs of this module, only one that is full or at fault has anything to say.
    pub fn run(&self, root: &Path) -> io::Result<()> {
        let open = |path: &str| File::options().read(true).write(true).open(root.join(path));
        match self {
            Self::Creat { path } => File::create_new(root.join(path)).map(drop),
            Self::Mkdir { path } => fs::create_dir(root.join(path)),
            Self::Falloc {
                path,
                mode,
                offset,
                len,
            } => Ok(rustix::fs::fallocate(
                open(path)?,
                mode.flags(),
                *offset,
                *len,
            )?),
            Self::Write {
                path,
                offset,
                len,
                fill,
            }
            | Self::MmapWrite {
                path,
                offset,
                len,
                fill,
            } => open(path)?.write_all_at(&vec![*fill; *len as usize], *offset),
            Self::DirectWrite {
                path,
                offset,
                len,
                fill,
            } => write_direct(&root.join(path), *offset, *len as usize, *fill),
            Self::Link { from, to } => fs::hard_link(root.join(from), root.join(to)),
            Self::Unlink { path } => fs::remove_file(root.join(path)),
            Self::Rmdir { path } => fs::remove_dir(root.join(path)),
            Self::Remove { path } if root.join(path).is_dir() => fs::remove_dir(root.join(path)),
            Self::Remove { path } => fs::remove_file(root.join(path)),
            Self::Rename { from, to } => fs::rename(root.join(from), root.join(to)),
            Self::SetXattr { path } => {
                let flags = XattrFlags::empty();
                Ok(rustix::fs::setxattr(
                    root.join(path),
                    XATTR,
                    b"value",
                    flags,
                )?)
            }
            Self::RemoveXattr { path } => Ok(rustix::fs::removexattr(root.join(path), XATTR)?),
            Self::Truncate { path, size } => open(path)?.set_len(*size),
            Self::Fsync { path } => File::open(root.join(path))?.sync_all(),
            Self::Fdatasync { path } | Self::Msync { path, .. } => open(path)?.sync_data(),
            Self::Sync => Ok(rustix::fs::syncfs(File::open(root)?)?),
        }
    }
}

impl Falloc {
    /// Flags of the call.
    pub const fn flags(self) -> FallocateFlags {
        let keep_size = FallocateFlags::KEEP_SIZE;
        match self {
            Self::ZeroRange => FallocateFlags::ZERO_RANGE,
            Self::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE.union(keep_size),
            Self::PunchHole => FallocateFlags::PUNCH_HOLE.union(keep_size),
            Self::KeepSize => keep_size,
            Self::Allocate => FallocateFlags::empty(),
        }
    }
}

/// Writes from aligned memory to a file that is opened for that.
fn write_direct(path: &Path, offset: u64, len: usize, fill: u8) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    options.custom_flags(OFlags::DIRECT.bits() as i32);
    let aligned = ALIGNED as usize;
    let buffer = vec![fill; len + aligned];
    let start = buffer.as_ptr().align_offset(aligned);
    options
        .open(path)?
        .write_all_at(&buffer[start..][..len], offset)
}
