//! The directories that are still to be read: a queue that takes bounded memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use anteros_format::Nid;

/// A directory, and the one in which its first name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) nid: Nid,
    pub(super) parent: Nid,
}

const DIRECTORY_BYTES: usize = 16;
/// Directories that are written to the file, or read from it, at a time.
const STEP: usize = 4096;

/// First come the directories of `front`, then those of the file, then those of `back`.
#[derive(Default)]
pub(super) struct Pending {
    front: VecDeque<Directory>,
    back: Vec<Directory>,
    file: Option<File>,
    /// The part of the file that is still to be read.
    start: u64,
    end: u64,
}

impl Pending {
    pub(super) fn push(&mut self, directory: Directory) -> io::Result<()> {
        self.back.push(directory);
        if self.back.len() < STEP {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        let file = self.file.as_ref().expect("it was just made");
        let bytes: Vec<u8> = self.back.drain(..).flat_map(store).collect();
        file.write_all_at(&bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn pop(&mut self) -> io::Result<Option<Directory>> {
        if self.front.is_empty() {
            self.refill()?;
        }
        Ok(self.front.pop_front())
    }

    fn refill(&mut self) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.start < self.end) else {
            self.front.extend(self.back.drain(..));
            return Ok(());
        };
        let mut bytes = vec![0; STEP * DIRECTORY_BYTES];
        file.read_exact_at(&mut bytes, self.start)?;
        self.start += bytes.len() as u64;
        self.front
            .extend(bytes.chunks_exact(DIRECTORY_BYTES).map(load));
        if self.start == self.end {
            // All was read: the file begins anew.
            file.set_len(0)?;
            (self.start, self.end) = (0, 0);
        }
        Ok(())
    }
}

fn store(directory: Directory) -> [u8; DIRECTORY_BYTES] {
    let mut bytes = [0; DIRECTORY_BYTES];
    bytes[..8].copy_from_slice(&directory.nid.0.to_le_bytes());
    bytes[8..].copy_from_slice(&directory.parent.0.to_le_bytes());
    bytes
}

fn load(bytes: &[u8]) -> Directory {
    let number = |bytes: &[u8]| Nid(u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
    Directory {
        nid: number(&bytes[..8]),
        parent: number(&bytes[8..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_come_back_in_their_order() {
        let directory = |n: u64| Directory {
            nid: Nid(n),
            parent: Nid(n / 2),
        };
        let mut pending = Pending::default();
        let (mut pushed, mut popped) = (0, 0);
        for _ in 0..5 {
            for _ in 0..STEP * 2 + 7 {
                pending.push(directory(pushed)).unwrap();
                pushed += 1;
            }
            for _ in 0..STEP + 3 {
                assert_eq!(pending.pop().unwrap(), Some(directory(popped)));
                popped += 1;
            }
        }
        while let Some(found) = pending.pop().unwrap() {
            assert_eq!(found, directory(popped));
            popped += 1;
        }
        assert_eq!((popped, pending.pop().unwrap()), (pushed, None));
    }
}
