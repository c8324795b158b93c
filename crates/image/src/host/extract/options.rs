//! Options of an extraction.

use std::num::NonZero;

use crate::host::xattrs::XattrScope;

/// Describes how to extract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractOptions {
    /// Tells how many threads write data, 1 to 64; one more creates names.
    pub workers: usize,
    /// Tells whether to replace what exists. Directories are kept, and never replaced by anything else.
    pub overwrite: bool,
    /// Tells whether to go on with the next file after an error.
    pub keep_going: bool,
    /// Tells whether to set owners and groups. If not, privileges are withheld as well: set-id bits
    /// are dropped, devices and attributes of the namespaces `security` and `trusted` left out.
    pub owners: bool,
    /// Tells whether to set modification times; access times are set to the same.
    pub times: bool,
    /// Tells which extended attributes to set.
    pub xattrs: XattrScope,
    /// Bits of permissions that nothing gets, such as 0o022.
    pub umask: u16,
    /// Lets the owner read everything, whatever the permissions say, for lists keep those. It changes nothing if owners are
    /// set.
    pub readable: bool,
    /// Files that are never replaced, by device and inode, as the system numbers them: those that the image lies in.
    pub spared: Vec<(u64, u64)>,
}

impl Default for ExtractOptions {
    /// One worker for each core. Root sets everything; others set no owners, and attributes in the
    /// namespace `user` alone.
    fn default() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            workers: std::thread::available_parallelism().map_or(1, NonZero::get),
            overwrite: false,
            keep_going: false,
            owners: is_root,
            times: true,
            xattrs: if is_root {
                XattrScope::All
            } else {
                XattrScope::User
            },
            umask: 0,
            readable: false,
            spared: Vec::new(),
        }
    }
}
