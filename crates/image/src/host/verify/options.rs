//! Options of a comparison.

use std::num::NonZero;

use anteros_core::Timestamp;

use crate::host::xattrs::XattrScope;

/// Holds what to compare, and how.
#[derive(Clone, Copy)]
pub struct VerifyOptions<'a> {
    /// Tells how many threads compare data, 1 to 64; one more compares names.
    pub workers: usize,
    /// Owner and group that a file of the image should have, told by those of its source; `None`
    /// for any.
    pub owner: &'a (dyn Fn((u32, u32)) -> Option<(u32, u32)> + Sync),
    /// The modification time that a file of the image should have, told by that of its source;
    /// `None` for any.
    pub time: &'a (dyn Fn(Timestamp) -> Option<Timestamp> + Sync),
    /// Tells whether to compare permissions.
    pub permissions: bool,
    /// Tells which extended attributes to compare.
    pub xattrs: XattrScope,
    /// Tells whether names that are hard links of each other must be so in the image, and the reverse.
    pub links: bool,
    /// Tells whether the image was made without this path of the source and what is below, given
    /// without a leading `/`.
    pub excluded: &'a (dyn Fn(&[u8]) -> bool + Sync),
    /// Tells how many differences to keep, and how many of what cannot be read besides, so that the
    /// ones do not hide the others; the rest is only counted.
    pub differences_max: usize,
}

impl Default for VerifyOptions<'_> {
    /// Everything is compared, by one worker for each core, and 100 differences are kept.
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, NonZero::get),
            owner: &Some,
            time: &Some,
            permissions: true,
            xattrs: XattrScope::All,
            links: true,
            excluded: &|_| false,
            differences_max: 100,
        }
    }
}
