//! One finding of a check: the place, and what is wrong there.

/// Tells where something is wrong.
pub(super) enum Place {
    Inode(u32),
    /// A name in this directory.
    Name(u32, Vec<u8>),
    /// The name at this position of this directory.
    Position(u32, u64),
    Other(String),
}

/// Something that is wrong.
pub(super) struct Finding {
    pub(super) place: Place,
    pub(super) fault: String,
}
