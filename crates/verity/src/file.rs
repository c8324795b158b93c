//! The digest that fs-verity gives a file, by which the kernel and signatures know its content.
//!
//! It is that of a descriptor, in which the length of the file stands and the root hash of a tree like the one of dm-verity.
//! Source: the kernel's `Documentation/filesystems/fsverity.rst`.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes, Unaligned};

use crate::{Algorithm, Digest};

/// Bytes of a block of the tree, as a shift.
const BLOCK_BITS: u8 = 12;
const BLOCK_BYTES: usize = 1 << BLOCK_BITS;

/// A descriptor, which is hashed at last; all fields little endian.
#[derive(FromZeros, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct RawDescriptor {
    version: u8,
    /// 1 is SHA-256, 2 is SHA-512.
    algorithm: u8,
    block_bits: u8,
    salt_bytes: u8,
    reserved: U32,
    file_bytes: U64,
    root_hash: [u8; 64],
    salt: [u8; 32],
    reserved2: [u8; 144],
}

const _: () = assert!(size_of::<RawDescriptor>() == 256);

/// A file that is hashed as it is read, from its beginning to its end.
#[derive(Debug)]
pub struct FileDigest {
    algorithm: Algorithm,
    bytes: u64,
    /// The block that is not full yet of the content, and of each level above.
    levels: Vec<Vec<u8>>,
}

impl FileDigest {
    /// A file of which nothing has been read.
    pub fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            bytes: 0,
            levels: vec![Vec::new()],
        }
    }

    /// Hashes what comes next.
    pub fn update(&mut self, mut content: &[u8]) {
        self.bytes += content.len() as u64;
        while !content.is_empty() {
            if self.levels[0].len() == BLOCK_BYTES {
                self.close(0);
            }
            let room = BLOCK_BYTES - self.levels[0].len();
            let (front, rest) = content.split_at(room.min(content.len()));
            self.levels[0].extend_from_slice(front);
            content = rest;
        }
    }

    /// Appends the digest of a block, which is full or the last one, to the level above.
    fn close(&mut self, level: usize) {
        self.levels[level].resize(BLOCK_BYTES, 0);
        let digest = self.algorithm.digest(b"", &self.levels[level]);
        self.levels[level].clear();
        if level + 1 == self.levels.len() {
            self.levels.push(Vec::new());
        }
        if self.levels[level + 1].len() == BLOCK_BYTES {
            self.close(level + 1);
        }
        self.levels[level + 1].extend_from_slice(digest.as_bytes());
    }

    /// The digest of the file, which has no more content.
    pub fn finish(mut self) -> Digest {
        let mut raw = RawDescriptor::new_zeroed();
        raw.version = 1;
        raw.algorithm = match self.algorithm {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        };
        raw.block_bits = BLOCK_BITS;
        raw.file_bytes = self.bytes.into();
        if self.bytes > 0 {
            let root = self.root_hash();
            raw.root_hash[..root.as_bytes().len()].copy_from_slice(root.as_bytes());
        }
        self.algorithm.digest(b"", raw.as_bytes())
    }

    /// The digest of the only block of the uppermost level.
    fn root_hash(&mut self) -> Digest {
        let mut level = 0;
        // A block that stands alone and got no digest above is the root.
        while level + 1 < self.levels.len() {
            self.close(level);
            level += 1;
        }
        self.levels[level].resize(BLOCK_BYTES, 0);
        self.algorithm.digest(b"", &self.levels[level])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digest of a file by the definition: all levels, one after the other.
    fn plain(algorithm: Algorithm, content: &[u8]) -> Digest {
        let mut level: Vec<u8> = content.to_vec();
        let root = loop {
            let blocks = level.chunks(BLOCK_BYTES).map(|block| {
                let mut block = block.to_vec();
                block.resize(BLOCK_BYTES, 0);
                algorithm.digest(b"", &block)
            });
            let digests: Vec<Digest> = blocks.collect();
            match digests[..] {
                [root] => break root,
                _ => level = digests.iter().flat_map(|d| d.as_bytes().to_vec()).collect(),
            }
        };
        let mut descriptor = [0; 256];
        descriptor[..4].copy_from_slice(&[
            1,
            if algorithm == Algorithm::Sha256 { 1 } else { 2 },
            12,
            0,
        ]);
        descriptor[8..16].copy_from_slice(&(content.len() as u64).to_le_bytes());
        descriptor[16..][..root.as_bytes().len()].copy_from_slice(root.as_bytes());
        algorithm.digest(b"", &descriptor)
    }

    #[test]
    fn a_file_has_one_digest_however_it_is_read() {
        let content: Vec<u8> = (0..3_000_000u32)
            .map(|n| (n / 3).wrapping_mul(n) as u8)
            .collect();
        for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
            for len in [
                1,
                4095,
                4096,
                4097,
                8192,
                128 * 4096,
                128 * 4096 + 1,
                64 * 4096,
                64 * 4096 + 1,
                3_000_000,
            ] {
                let content = &content[..len];
                let expected = plain(algorithm, content);
                for step in [1000, 4096, 65_536, 3_000_000] {
                    let mut file = FileDigest::new(algorithm);
                    content.chunks(step).for_each(|part| file.update(part));
                    assert_eq!(file.finish(), expected, "{len} bytes by {step}");
                }
            }
        }
    }

    #[test]
    fn an_empty_file_has_one_too() {
        let digest = FileDigest::new(Algorithm::Sha256).finish().to_string();
        assert_eq!(
            digest,
            "3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95"
        );
    }
}
