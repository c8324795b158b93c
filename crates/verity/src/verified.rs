//! A device of which nothing is read that its hash tree does not tell.
//!
//! Each block that is read is hashed, and so is each block of the tree on the way from it to the root hash. Blocks of the
//! tree that were found right are kept, no more than [`CACHE_BYTES`] of them.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::sync::{Arc, Mutex};

use anteros_core::{Device, unpoisoned};

use crate::digest::Digest;
use crate::superblock::{Fault, SUPERBLOCK_BYTES, Superblock};
use crate::{Levels, Params};

/// Most bytes of the tree that are kept in memory. Each block of 4 KiB tells 512 KiB of data.
pub const CACHE_BYTES: usize = 256 << 10;

/// Most bytes that are read aside, for what does not begin and end with blocks.
const ASIDE_BYTES: usize = 128 << 10;

/// Tells which block is not the one that the root hash stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// A block of data.
    #[error("block {0} is not the one that was hashed")]
    Data(u64),
    /// A block of the tree.
    #[error("block {block} of level {level} of the hash tree is not the one that was hashed")]
    Tree {
        /// The level, from 0, the one with the digests of data.
        level: usize,
        /// The block of the level.
        block: u64,
    },
}

/// A device, and the hash tree of its first blocks.
pub struct Verified<D> {
    inner: D,
    superblock: Superblock,
    levels: Levels,
    root: Digest,
    cache: Mutex<Cache>,
}

impl<D: Device> Verified<D> {
    /// A device with a hash tree whose superblock begins at byte `start`, and whose root hash is known.
    ///
    /// # Errors
    ///
    /// Errors of the device; `InvalidData` if there is no such tree.
    pub fn open(inner: D, start: u64, root: Digest) -> io::Result<Self> {
        let invalid = |text: &dyn fmt::Display| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: byte {start}: {text}", inner.name()),
            )
        };
        let mut bytes = [0; SUPERBLOCK_BYTES];
        match inner.read_at(start, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(invalid(&Fault::Signature));
            }
            read => read?,
        }
        let superblock = Superblock::parse(&bytes).map_err(|fault| invalid(&fault))?;
        let algorithm = superblock.params.algorithm;
        if root.as_bytes().len() != algorithm.bytes() {
            let text = format!(
                "the hash tree is of {}, whose root hash has {} hexadecimal digits",
                algorithm.name(),
                2 * algorithm.bytes()
            );
            return Err(invalid(&text));
        }
        let levels = Levels::new(&superblock, start);
        let data = superblock
            .data_blocks
            .checked_mul(superblock.params.block_bytes.into());
        let (Some(levels), Some(_)) = (levels, data.filter(|data| *data <= start)) else {
            let text = format!("a hash tree of {} blocks", superblock.data_blocks);
            return Err(invalid(&text));
        };
        let blocks = CACHE_BYTES / superblock.params.block_bytes as usize;
        let verified = Self {
            inner,
            superblock,
            levels,
            root,
            cache: Mutex::new(Cache::new(blocks.max(1))),
        };
        verified.check_root()?;
        Ok(verified)
    }

    /// Tells at once if the root hash is that of another tree.
    fn check_root(&self) -> io::Result<()> {
        let Some(top) = self.levels.levels.len().checked_sub(1) else {
            return Ok(());
        };
        let text = |what| format!("{}: its hash tree {what}", self.inner.name());
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, text(what));
        match self.tree_block(top, 0) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(invalid("has another root hash"))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(invalid("is cut off"))
            }
            Err(error) => Err(error),
        }
    }

    /// Parameters of the tree, and how much it tells of.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    fn block_bytes(&self) -> usize {
        self.superblock.params.block_bytes as usize
    }

    fn digest(&self, block: &[u8]) -> Digest {
        let Params {
            algorithm, salt, ..
        } = &self.superblock.params;
        algorithm.digest(salt, block)
    }

    /// Compares blocks of data that begin with the block `first` with their digests.
    fn verify(&self, first: u64, bytes: &[u8]) -> io::Result<()> {
        let per_block = self.levels.per_block;
        let mut tree_block: Option<(u64, Arc<[u8]>)> = None;
        for (block, bytes) in (first..).zip(bytes.chunks(self.block_bytes())) {
            let index = block / per_block;
            let expected = match &tree_block {
                _ if self.levels.levels.is_empty() => self.root.as_bytes(),
                Some((known, digests)) if *known == index => self.slot(digests, block),
                _ => {
                    let (_, digests) = tree_block.insert((index, self.tree_block(0, index)?));
                    self.slot(digests, block)
                }
            };
            if self.digest(bytes).as_bytes() != expected {
                return Err(mismatch(Mismatch::Data(block)));
            }
        }
        Ok(())
    }

    /// The digest of a block, in the block of the level above that has it.
    fn slot<'a>(&self, digests: &'a [u8], block: u64) -> &'a [u8] {
        let bytes = self.superblock.params.algorithm.bytes();
        let at = (block % self.levels.per_block) as usize * bytes;
        &digests[at..at + bytes]
    }

    /// A block of the tree, which is right.
    fn tree_block(&self, level: usize, block: u64) -> io::Result<Arc<[u8]>> {
        if let Some(known) = self.cache().get((level, block)) {
            return Ok(known);
        }
        let at = self.levels.levels[level].start + block * self.block_bytes() as u64;
        let mut bytes = vec![0; self.block_bytes()];
        self.inner.read_at(at, &mut bytes)?;
        let digest = self.digest(&bytes);
        let is_right = match level + 1 < self.levels.levels.len() {
            true => {
                let above = self.tree_block(level + 1, block / self.levels.per_block)?;
                self.slot(&above, block) == digest.as_bytes()
            }
            false => self.root == digest,
        };
        if !is_right {
            return Err(mismatch(Mismatch::Tree { level, block }));
        }
        let bytes: Arc<[u8]> = bytes.into();
        self.cache().insert((level, block), bytes.clone());
        Ok(bytes)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        unpoisoned(self.cache.lock())
    }

    /// Fails if a range does not lie in the data.
    fn check_range(&self, offset: u64, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len as u64);
        match end.is_some_and(|end| end <= self.size()) {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn is_whole(&self, offset: u64, len: usize) -> bool {
        offset % self.block_bytes() as u64 == 0 && len % self.block_bytes() == 0
    }

    fn read(&self, offset: u64, buf: &mut [u8], read: Read<'_, D>) -> io::Result<()> {
        self.check_range(offset, buf.len())?;
        if self.is_whole(offset, buf.len()) {
            read(&self.inner, offset, buf)?;
            return self.verify(offset / self.block_bytes() as u64, buf);
        }
        self.read_aside(offset, buf, read)
    }

    /// Reads what does not begin and end with blocks.
    fn read_aside(&self, offset: u64, buf: &mut [u8], read: Read<'_, D>) -> io::Result<()> {
        let block_bytes = self.block_bytes() as u64;
        let most = (ASIDE_BYTES as u64).max(block_bytes);
        let end = offset + buf.len() as u64;
        let mut aside = Vec::new();
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let start = at / block_bytes * block_bytes;
            let stop = end.next_multiple_of(block_bytes).min(start + most);
            aside.resize((stop - start) as usize, 0);
            read(&self.inner, start, &mut aside)?;
            self.verify(start / block_bytes, &aside)?;
            let found = &aside[(at - start) as usize..(stop.min(end) - start) as usize];
            buf[done..done + found.len()].copy_from_slice(found);
            done += found.len();
        }
        Ok(())
    }
}

/// Reads bytes at an offset.
type Read<'a, D> = &'a dyn Fn(&D, u64, &mut [u8]) -> io::Result<()>;

impl<D: Device> Device for Verified<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(offset, buf, &|inner, offset, buf| {
            inner.read_at(offset, buf)
        })
    }

    fn read_alone_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(offset, buf, &|inner, offset, buf| {
            inner.read_alone_at(offset, buf)
        })
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let block_bytes = self.block_bytes() as u64;
        let lens = bufs.iter().map(|buf| buf.len());
        let total = lens.clone().fold(0usize, usize::saturating_add);
        self.check_range(offset, total)?;
        let is_whole = offset % block_bytes == 0 && lens.clone().all(|len| self.is_whole(0, len));
        let mut at = offset;
        if !is_whole {
            for buf in bufs {
                self.read_at(at, buf)?;
                at += buf.len() as u64;
            }
            return Ok(());
        }
        self.inner.read_vectored_at(offset, bufs)?;
        for buf in bufs {
            self.verify(at / block_bytes, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.inner.will_need(offset, len);
    }

    /// Bytes that the tree tells of.
    fn size(&self) -> u64 {
        self.superblock.data_blocks * self.block_bytes() as u64
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

fn mismatch(found: Mismatch) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, found)
}

/// Level and number of a block of the tree.
type Place = (usize, u64);

/// Blocks of the tree, those that were used last.
struct Cache {
    blocks: HashMap<Place, (Arc<[u8]>, u64)>,
    blocks_max: usize,
    /// Counts uses.
    now: u64,
}

impl Cache {
    fn new(blocks_max: usize) -> Self {
        Self {
            blocks: HashMap::new(),
            blocks_max,
            now: 0,
        }
    }

    fn get(&mut self, place: Place) -> Option<Arc<[u8]>> {
        self.now += 1;
        let (block, used) = self.blocks.get_mut(&place)?;
        *used = self.now;
        Some(block.clone())
    }

    fn insert(&mut self, place: Place, block: Arc<[u8]>) {
        if self.blocks.len() >= self.blocks_max {
            let oldest = self.blocks.iter().min_by_key(|(_, (_, used))| *used);
            let oldest = oldest.map(|(place, _)| *place);
            oldest.and_then(|place| self.blocks.remove(&place));
        }
        self.blocks.insert(place, (block, self.now));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{Algorithm, make};

    /// Data, its tree behind it, and the root hash.
    fn tree(algorithm: Algorithm, block_bytes: u32, data_blocks: u64) -> (Vec<u8>, u64, Digest) {
        let len = data_blocks as usize * block_bytes as usize;
        let data: Vec<u8> = (0..len).map(|n| (n / 7 * n) as u8).collect();
        let superblock = Superblock {
            params: Params {
                algorithm,
                block_bytes,
                salt: b"salt".to_vec(),
                uuid: [1; 16],
            },
            data_blocks,
        };
        let end = Levels::new(&superblock, len as u64).unwrap().end();
        let medium = Mutex::new(data);
        medium.lock().unwrap().resize(end as usize, 0);
        let write = |at: u64, bytes: &[u8]| {
            medium.lock().unwrap()[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let root = make(
            &Shared(&medium),
            &superblock,
            len as u64,
            3,
            &AtomicBool::new(false),
            &write,
        );
        let root = root.unwrap();
        (medium.into_inner().unwrap(), len as u64, root)
    }

    struct Shared<'a>(&'a Mutex<Vec<u8>>);

    impl Device for Shared<'_> {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.0.lock().unwrap().read_at(offset, buf)
        }

        fn size(&self) -> u64 {
            self.0.lock().unwrap().len() as u64
        }

        fn name(&self) -> String {
            "memory".into()
        }
    }

    #[test]
    fn what_was_hashed_is_read_wherever_it_begins() {
        for (algorithm, block_bytes, blocks) in [
            (Algorithm::Sha256, 512, 1),
            (Algorithm::Sha256, 512, 300),
            (Algorithm::Sha512, 512, 100),
            (Algorithm::Sha256, 4096, 200),
        ] {
            let (bytes, len, root) = tree(algorithm, block_bytes, blocks);
            let verified = Verified::open(bytes.clone(), len, root).unwrap();
            assert_eq!(verified.size(), len);
            for (offset, count) in [
                (0, 1),
                (0, len),
                (100, 500),
                (511, 2),
                (len - 1, 1),
                (512, 0),
            ] {
                let count = count.min(len.saturating_sub(offset)) as usize;
                let mut found = vec![0; count];
                verified.read_at(offset, &mut found).unwrap();
                assert_eq!(found, bytes[offset as usize..][..count]);
                let (mut one, mut two) = (vec![0; count / 2], vec![0; count - count / 2]);
                let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
                verified.read_vectored_at(offset, &mut bufs).unwrap();
                assert_eq!([one, two].concat(), found);
            }
            let error = verified.read_at(len - 1, &mut [0; 2]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn no_changed_bit_is_read() {
        let (bytes, len, root) = tree(Algorithm::Sha256, 512, 300);
        // What is behind the last digest of a level is hashed as well, but not what fills up the superblock's block.
        for at in (0..bytes.len()).step_by(97) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            let unchanged = bytes[..len as usize].to_vec();
            let Ok(verified) = Verified::open(bytes, len, root) else {
                assert!(at as u64 >= len, "{at}");
                continue;
            };
            for block in 0..300 {
                let mut found = [0; 512];
                match verified.read_at(block * 512, &mut found) {
                    Ok(()) => {
                        assert_ne!(at as u64 / 512, block);
                        assert_eq!(found, unchanged[block as usize * 512..][..512]);
                    }
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}"),
                }
            }
        }
    }

    #[test]
    fn another_root_hash_is_told() {
        let (bytes, len, root) = tree(Algorithm::Sha256, 512, 300);
        let other = Algorithm::Sha256.digest(b"", b"other");
        let error = Verified::open(bytes.clone(), len, other).err().unwrap();
        assert!(error.to_string().contains("another root hash"), "{error}");
        let long = Algorithm::Sha512.digest(b"", b"other");
        let error = Verified::open(bytes.clone(), len, long).err().unwrap();
        assert!(
            error.to_string().contains("64 hexadecimal digits"),
            "{error}"
        );
        for start in [0, len + 512, u64::MAX - 600] {
            let error = Verified::open(bytes.clone(), start, root).err().unwrap();
            assert!(
                error.to_string().contains("there is no hash tree"),
                "{error}"
            );
        }
        let mut huge = bytes.clone();
        huge[len as usize + 79] = 0xff;
        let error = Verified::open(huge, len, root).err().unwrap();
        assert!(error.to_string().contains("a hash tree of"), "{error}");
    }

    #[test]
    fn the_cache_keeps_what_was_used_last() {
        let mut cache = Cache::new(2);
        cache.insert((0, 0), Arc::new([0]));
        cache.insert((0, 1), Arc::new([1]));
        assert!(cache.get((0, 0)).is_some());
        cache.insert((0, 2), Arc::new([2]));
        assert!(cache.get((0, 1)).is_none() && cache.get((0, 0)).is_some());
    }
}
