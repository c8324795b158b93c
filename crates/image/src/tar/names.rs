//! The first names of files that have several: some in memory, the others in a temporary file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use anteros_core::Table;
use anteros_format::Nid;

/// Bytes in front of a name: its length.
const HEAD_BYTES: usize = 4;

/// Names by inode. They lie behind each other; those that memory has no room for, in a file.
pub(super) struct FirstNames {
    /// The place of each name, plus one.
    places: Table<8>,
    near_max: usize,
    near: Vec<u8>,
    file: Option<File>,
    end: u64,
}

impl FirstNames {
    /// Notes that keep about so many bytes in memory, and as much again for the places.
    pub(super) fn new(memory: usize) -> Self {
        Self {
            places: Table::new(memory),
            near_max: memory,
            near: Vec::new(),
            file: None,
            end: 0,
        }
    }

    pub(super) fn insert(&mut self, nid: Nid, name: &[u8]) -> io::Result<()> {
        let bytes = [&(name.len() as u32).to_le_bytes(), name].concat();
        let place = self.end;
        if self.file.is_none() && self.near.len() + bytes.len() <= self.near_max {
            self.near.extend(&bytes);
        } else {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(tempfile::tempfile()?),
            };
            file.write_all_at(&bytes, place - self.near.len() as u64)?;
        }
        self.end += bytes.len() as u64;
        self.places.set(nid.0, (place + 1).to_le_bytes())
    }

    /// The first name of a file, if it was noted.
    pub(super) fn get(&mut self, nid: Nid) -> io::Result<Option<Vec<u8>>> {
        let place = u64::from_le_bytes(self.places.get(nid.0)?);
        let Some(place) = place.checked_sub(1) else {
            return Ok(None);
        };
        let mut head = [0; HEAD_BYTES];
        self.read(place, &mut head)?;
        let mut name = vec![0; u32::from_le_bytes(head) as usize];
        self.read(place + HEAD_BYTES as u64, &mut name)?;
        Ok(Some(name))
    }

    fn read(&self, place: u64, out: &mut [u8]) -> io::Result<()> {
        let near = self.near.len() as u64;
        match (place.checked_sub(near), &self.file) {
            (Some(place), Some(file)) => file.read_exact_at(out, place),
            _ => {
                out.copy_from_slice(&self.near[place as usize..][..out.len()]);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_from_memory_and_from_the_file() {
        for memory in [0, 100, 1 << 20] {
            let mut names = FirstNames::new(memory);
            let name = |n: u64| vec![b'a' + (n % 26) as u8; n as usize % 300];
            for n in 0..1000 {
                names.insert(Nid(n << 20), &name(n)).unwrap();
            }
            assert_eq!(names.file.is_some(), memory < 1 << 20);
            for n in 0..1000 {
                assert_eq!(names.get(Nid(n << 20)).unwrap(), Some(name(n)));
            }
            assert_eq!(names.get(Nid(1)).unwrap(), None);
        }
    }
}
