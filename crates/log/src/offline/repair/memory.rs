//! Memory of a repair.

use crate::error::LogError;

/// The memory that notes of a repair may take: half of all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory(pub(super) usize);

impl Memory {
    /// The share of each table, of which there are three.
    pub(super) fn of_table(self) -> usize {
        self.0 / 16
    }

    /// The share of the records of one kind, of which so many are kept at once, with what sorting adds.
    pub(super) fn of_records(self) -> usize {
        self.0 / 16
    }

    /// Bytes that the names of a damaged directory may take.
    pub(super) fn of_directory(self) -> usize {
        self.0 / 4
    }

    /// Refuses notes of damage that would take more than their share.
    pub(super) fn admit(self, damage_bytes: usize) -> Result<(), LogError> {
        self.refuse_beyond(self.0 / 4, damage_bytes)
    }

    /// Refuses what takes more than a share of the memory.
    pub(super) fn refuse_beyond(self, share: usize, bytes: usize) -> Result<(), LogError> {
        match bytes <= share {
            true => Ok(()),
            false => Err(LogError::Memory {
                needed: bytes as u64 * (2 * self.0).div_ceil(share.max(1)) as u64,
                memory: 2 * self.0 as u64,
            }),
        }
    }
}
