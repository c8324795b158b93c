//! A command of this crate: it asks for a piece of an attribute of the mount itself.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes that the command carries each way.
pub const ARGUMENT_BYTES: usize = 8 << 10;

/// Bytes of a value in one answer.
pub const PIECE_BYTES: usize = ARGUMENT_BYTES - size_of::<OwnOut>();

/// The longest name.
const NAME_BYTES_MAX: usize = 56;

/// `_IOWR(0xaf, 1, char[ARGUMENT_BYTES])`
pub const COMMAND: u32 = 3 << 30 | (ARGUMENT_BYTES as u32) << 16 | 0xaf << 8 | 1;

/// A question.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OwnIn {
    /// The number of the value that was told a piece of, or 0 for a new one.
    pub value: u32,
    pub offset: u32,
    /// Ended by a NUL.
    name: [u8; NAME_BYTES_MAX],
}

/// An answer; the bytes follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OwnOut {
    /// The number of the value.
    pub value: u32,
    /// Bytes of the value from the offset on.
    pub left: u32,
}

impl OwnIn {
    /// A question, unless the name is too long.
    pub fn new(value: u32, offset: u32, name: &[u8]) -> Option<Self> {
        let mut asked = Self::new_zeroed();
        (asked.value, asked.offset) = (value, offset);
        let (room, _) = asked.name.split_at_mut_checked(name.len())?;
        room.copy_from_slice(name);
        Some(asked).filter(|_| name.len() < NAME_BYTES_MAX)
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        self.name
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default()
    }
}
