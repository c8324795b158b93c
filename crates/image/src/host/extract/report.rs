//! Words about an extraction: what an observer hears, what was left out, what is there at the end.

use std::fmt;
use std::io;

use anteros_core::FileKind;

use super::problem::ExtractError;
use crate::ImagePath;

/// Hears how an extraction goes on, from several threads.
pub trait ExtractObserver: Sync {
    /// A name was created.
    fn created(&self, _path: &ImagePath, _kind: FileKind) {}

    /// So many more bytes of data were written.
    fn wrote(&self, _bytes: u64) {}

    /// Something was left out, and the extraction goes on.
    fn warning(&self, _warning: &Warning) {}

    /// Returns whether [`created`](Self::created) should be called at all: paths take time to put together.
    fn wants_names(&self) -> bool {
        false
    }
}

/// Hears nothing.
impl ExtractObserver for () {}

/// Something that was left out because the system does not permit or know it, or because it would be
/// a privilege of whoever extracts.
#[derive(Debug)]
pub struct Warning {
    /// The file.
    pub path: ImagePath,
    /// Holds what was left out.
    pub omitted: Omitted,
    /// Holds what the system says.
    pub source: io::Error,
}

/// Tells what may be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Omitted {
    /// A device.
    Device,
    /// An extended attribute of this name.
    Xattr(Vec<u8>),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            omitted,
            source,
        } = self;
        match omitted {
            Omitted::Device => write!(f, "{path}: the device was left out: {source}"),
            Omitted::Xattr(name) => {
                let name = name.escape_ascii();
                write!(f, "{path}: the attribute {name} was left out: {source}")
            }
        }
    }
}

/// Holds what was extracted.
#[derive(Debug, Default)]
pub struct ExtractSummary {
    /// Directories.
    pub directories: u64,
    /// Regular files, each counted once.
    pub files: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub nodes: u64,
    /// Bytes of data written; holes are not.
    pub bytes: u64,
    /// Devices that were left out.
    pub devices_omitted: u64,
    /// Extended attributes that were left out.
    pub xattrs_omitted: u64,
    /// The first errors, [`ERRORS_KEPT`] at the most. Of a file with an error, what could be read
    /// stays.
    pub errors: Vec<ExtractError>,
    /// All errors.
    pub error_count: u64,
}

/// States how many errors [`ExtractSummary::errors`] keeps.
pub const ERRORS_KEPT: usize = 100;

impl ExtractSummary {
    /// Returns whether all of the tree is there.
    pub const fn is_complete(&self) -> bool {
        self.devices_omitted == 0 && self.xattrs_omitted == 0 && self.error_count == 0
    }
}
