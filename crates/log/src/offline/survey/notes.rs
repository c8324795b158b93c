//! Notes of everything in a log, in bounded memory.

use anteros_core::{FsError, FsResult, Table};

use crate::error::LogError;
use crate::store::medium;

/// The memory that a survey may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory(pub(super) usize);

impl Memory {
    /// The share of each table, of which there are five.
    pub(super) fn of_table(self) -> usize {
        self.0 / 8
    }

    /// Bytes that the names of a damaged directory may take.
    pub(super) fn of_directory(self) -> usize {
        self.0 / 4
    }

    /// Refuses notes of damage that would take more than their share.
    pub(super) fn admit(self, damage_bytes: usize) -> Result<(), LogError> {
        refuse_beyond(self.0 / 4, damage_bytes, self.0)
    }
}

/// Refuses what takes more than a share of the memory that a survey may take: half of all.
pub(super) fn refuse_beyond(share: usize, bytes: usize, whole: usize) -> Result<(), LogError> {
    match bytes <= share {
        true => Ok(()),
        false => Err(LogError::Memory {
            needed: bytes as u64 * (2 * whole).div_ceil(share.max(1)) as u64,
            memory: 2 * whole as u64,
        }),
    }
}

/// Place of the name that a directory keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) parent: u32,
    /// Tells where the name stands in the parent; 0: somewhere.
    pub(crate) position: u64,
}

/// The homes of directories.
pub(crate) struct Homes {
    /// The number of the parent, plus one, and the position.
    table: Table<12>,
    count: u64,
}

impl Homes {
    pub(super) fn new(memory: usize) -> Self {
        Self {
            table: Table::new(memory),
            count: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.count
    }

    pub(super) fn get(&mut self, ino: u32) -> FsResult<Option<Home>> {
        Ok(decode(self.table.get(ino.into())?))
    }

    pub(super) fn put(&mut self, ino: u32, home: Home) -> FsResult<()> {
        let was_there = self.get(ino)?.is_some();
        let mut value = [0; 12];
        let (parent, position) = value.split_at_mut(4);
        parent.copy_from_slice(&home.parent.saturating_add(1).to_le_bytes());
        position.copy_from_slice(&home.position.to_le_bytes());
        self.table.set(ino.into(), value)?;
        self.count += u64::from(!was_there);
        Ok(())
    }

    /// The first directory from a number on, with its home.
    ///
    /// # Errors
    ///
    /// Those of the temporary file.
    pub(crate) fn next(&mut self, from: u32) -> FsResult<Option<(u32, Home)>> {
        let next = self.table.next(from.into())?;
        Ok(next.and_then(|(ino, value)| Some((u32::try_from(ino).ok()?, decode(value)?))))
    }
}

fn decode(value: [u8; 12]) -> Option<Home> {
    let (parent, position) = value.split_first_chunk::<4>()?;
    Some(Home {
        parent: u32::from_le_bytes(*parent).checked_sub(1)?,
        position: u64::from_le_bytes(position.try_into().ok()?),
    })
}

/// Numbers that wait for their turn.
pub(super) struct Queue {
    table: Table<4>,
    first: u64,
    end: u64,
}

impl Queue {
    pub(super) fn new(memory: usize) -> Self {
        Self {
            table: Table::new(memory),
            first: 0,
            end: 0,
        }
    }

    pub(super) fn push(&mut self, number: u32) -> FsResult<()> {
        self.table.set(self.end, number.to_le_bytes())?;
        self.end += 1;
        Ok(())
    }

    pub(super) fn pop(&mut self) -> FsResult<Option<u32>> {
        if self.first == self.end {
            return Ok(None);
        }
        let number = u32::from_le_bytes(self.table.get(self.first)?);
        self.first += 1;
        Ok(Some(number))
    }
}

/// Returns whether an error means damage of the log at one place. Others mean that it cannot be read at all, or not by
/// us.
pub(super) fn is_damage(error: &FsError) -> bool {
    medium::is_damage(error) || matches!(error, FsError::NotFound)
}
