//! Ranges of files that are known to be read.

/// A range of a file that is read, for example whenever a program starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRange {
    /// The path relative to the source. Slashes around it do not matter.
    pub path: Vec<u8>,
    /// Begins at this byte.
    pub offset: u64,
    /// Bytes of the range. What lies beyond the end of the file does not count; none stand for a look at the inode alone.
    pub len: u64,
}

impl ReadRange {
    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.path.len()) as u64
    }
}
