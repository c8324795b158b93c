//! Sources of what is read.

use anteros_trace::profile::Profile;

use crate::failure::Failure;

/// Something that knows what is read.
pub trait Source {
    /// Begins to listen.
    fn begin(&mut self) -> Result<(), Failure>;
    /// Stops, and tells what was read since.
    fn end(&mut self) -> Result<Profile, Failure>;
    /// Returns what people are to know of its profiles.
    fn remark(&self) -> Option<&'static str> {
        None
    }
}
