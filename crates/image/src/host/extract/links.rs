//! The first names of files that have several: a few in memory, the others in a temporary file.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anteros_core::Table;
use anteros_format::Nid;

use crate::host::descent::{Descent, Identity};
use crate::trail::Trail;

/// Names that are kept in memory.
pub(super) const NEAR_MAX: usize = 4096;
/// Memory for where the others are in the file, in bytes.
const PLACES_BYTES: usize = 1 << 20;
/// The longest path that is written to the file: only a tree that was made to be a burden has longer ones.
const PATH_MAX: usize = 1 << 16;
/// Bytes in front of a path: names still to come, device and inode number, length of the path.
const HEAD_BYTES: usize = 24;

/// The first name of a file that has several.
pub(super) struct FirstName {
    pub(super) trail: Arc<Trail>,
    pub(super) identity: Identity,
    /// Names that are still to come.
    pub(super) left: u32,
}

/// The files of which names are still to come.
pub(super) struct Links {
    near_max: usize,
    near: HashMap<Nid, FirstName>,
    far: Option<Far>,
}

struct Far {
    file: File,
    end: u64,
    /// The place in the file at which each begins, plus one.
    places: Table<8>,
}

impl Links {
    pub(super) fn new(near_max: usize) -> Self {
        Self {
            near_max,
            near: HashMap::new(),
            far: None,
        }
    }

    pub(super) fn contains(&mut self, nid: Nid) -> io::Result<bool> {
        Ok(self.near.contains_key(&nid) || self.place(nid)?.is_some())
    }

    pub(super) fn insert(&mut self, nid: Nid, first: FirstName) -> io::Result<()> {
        if self.near.len() < self.near_max {
            self.near.insert(nid, first);
            return Ok(());
        }
        let bytes = encode(&first)?;
        let far = match &mut self.far {
            Some(far) => far,
            none => none.insert(Far {
                file: tempfile::tempfile()?,
                end: 0,
                places: Table::new(PLACES_BYTES),
            }),
        };
        far.file.write_all_at(&bytes, far.end)?;
        far.places.set(nid.0, (far.end + 1).to_le_bytes())?;
        far.end += bytes.len() as u64;
        Ok(())
    }

    /// The first name of a file, on the way of a walk, and who the file is.
    pub(super) fn get(
        &mut self,
        nid: Nid,
        descent: &Descent,
    ) -> io::Result<Option<(Arc<Trail>, Identity)>> {
        if let Some(first) = self.near.get(&nid) {
            return Ok(Some((first.trail.clone(), first.identity)));
        }
        let (Some(place), Some(far)) = (self.place(nid)?, &self.far) else {
            return Ok(None);
        };
        let mut head = [0; HEAD_BYTES];
        far.file.read_exact_at(&mut head, place)?;
        let mut path = vec![0; number(&head[20..]) as usize];
        far.file
            .read_exact_at(&mut path, place + HEAD_BYTES as u64)?;
        let trail = descent.trail_to(path.split(|&byte| byte == b'/'));
        Ok(Some((trail, (number(&head[4..12]), number(&head[12..20])))))
    }

    /// One name less is still to come.
    pub(super) fn count_down(&mut self, nid: Nid) -> io::Result<()> {
        if let Some(first) = self.near.get_mut(&nid) {
            first.left -= 1;
            if first.left == 0 {
                self.near.remove(&nid);
            }
            return Ok(());
        }
        let (Some(place), Some(far)) = (self.place(nid)?, &mut self.far) else {
            return Ok(());
        };
        let mut left = [0; 4];
        far.file.read_exact_at(&mut left, place)?;
        match u32::from_le_bytes(left) {
            0 | 1 => far.places.set(nid.0, [0; 8]),
            left => far.file.write_all_at(&(left - 1).to_le_bytes(), place),
        }
    }

    fn place(&mut self, nid: Nid) -> io::Result<Option<u64>> {
        let Some(far) = &mut self.far else {
            return Ok(None);
        };
        Ok(u64::from_le_bytes(far.places.get(nid.0)?).checked_sub(1))
    }
}

fn encode(first: &FirstName) -> io::Result<Vec<u8>> {
    let below_root = |trail: &&Trail| trail.parent.is_some();
    let trails = std::iter::successors(Some(&*first.trail), |trail| trail.parent.as_deref());
    let mut names: Vec<&[u8]> = trails
        .take_while(below_root)
        .map(|trail| &*trail.name)
        .collect();
    names.reverse();
    let path = names.join(&b'/');
    if path.len() > PATH_MAX {
        let text = "so many files have further names still to come that one of so long a path cannot be noted";
        return Err(io::Error::other(text));
    }
    let mut bytes = first.left.to_le_bytes().to_vec();
    bytes.extend(first.identity.0.to_le_bytes());
    bytes.extend(first.identity.1.to_le_bytes());
    bytes.extend((path.len() as u32).to_le_bytes());
    bytes.extend(path);
    Ok(bytes)
}

/// A number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}
