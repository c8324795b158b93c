//! The superblock of a hash tree, in front of it.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Algorithm;

/// The first bytes.
const SIGNATURE: [u8; 8] = *b"verity\0\0";
const VERSION: u32 = 1;
/// The salt comes first, and digests lie at powers of two.
const HASH_TYPE: u32 = 1;

/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: usize = 512;
/// Most bytes of a salt.
pub const SALT_BYTES_MAX: usize = 256;

/// The superblock as it lies on disk; all fields little endian.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    signature: [u8; 8],
    version: U32,
    hash_type: U32,
    uuid: [u8; 16],
    /// Name, filled up with zeros.
    algorithm: [u8; 32],
    data_block_bytes: U32,
    hash_block_bytes: U32,
    data_blocks: U64,
    salt_bytes: U16,
    reserved: [u8; 6],
    salt: [u8; SALT_BYTES_MAX],
    reserved2: [u8; 168],
}

const _: () = assert!(size_of::<Raw>() == SUPERBLOCK_BYTES);

/// Parameters of a hash tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// The hash function.
    pub algorithm: Algorithm,
    /// Bytes of a block of data, and of one of the tree: a power of two.
    pub block_bytes: u32,
    /// Bytes that are hashed in front of each block, at most [`SALT_BYTES_MAX`].
    pub salt: Vec<u8>,
    /// A name for the tree.
    pub uuid: [u8; 16],
}

/// Parameters of a hash tree, and how much data it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The parameters.
    pub params: Params,
    /// Blocks of data.
    pub data_blocks: u64,
}

/// Tells why bytes are no superblock that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The signature is another: there is no hash tree.
    Signature,
    /// A field has a value that this version does not know.
    Field {
        /// The field.
        name: &'static str,
        /// Its value.
        found: String,
        /// Values that are known.
        known: &'static str,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signature => write!(f, "there is no hash tree"),
            Self::Field { name, found, known } => {
                write!(f, "the hash tree has {name} {found}; {known} can be read")
            }
        }
    }
}

impl Superblock {
    /// Reads a superblock.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, Fault> {
        let raw = Raw::read_from_bytes(bytes).expect("as long as the structure");
        if raw.signature != SIGNATURE {
            return Err(Fault::Signature);
        }
        let field = |name, found: &dyn fmt::Display, known| Fault::Field {
            name,
            found: found.to_string(),
            known,
        };
        let (version, hash_type) = (raw.version.get(), raw.hash_type.get());
        let (data, hash) = (raw.data_block_bytes.get(), raw.hash_block_bytes.get());
        let algorithm = raw.algorithm.split(|byte| *byte == 0).next();
        let name = String::from_utf8_lossy(algorithm.unwrap_or_default());
        let algorithm = Algorithm::named(&name);
        let algorithm = algorithm
            .ok_or_else(|| field("the algorithm", &name.escape_default(), "sha256 and sha512"))?;
        let salt_bytes = usize::from(raw.salt_bytes.get());
        match () {
            () if version != VERSION => Err(field("version", &version, "version 1")),
            () if hash_type != HASH_TYPE => Err(field("type", &hash_type, "type 1")),
            () if !(512..=1 << 20).contains(&data) || !data.is_power_of_two() => {
                Err(field("blocks of", &data, "powers of two from 512 to 1M"))
            }
            () if data != hash => Err(field("blocks of its own of", &hash, "those of the data")),
            () if salt_bytes > SALT_BYTES_MAX => Err(field("a salt of", &salt_bytes, "256 bytes")),
            () => Ok(Self {
                params: Params {
                    algorithm,
                    block_bytes: data,
                    salt: raw.salt[..salt_bytes].to_vec(),
                    uuid: raw.uuid,
                },
                data_blocks: raw.data_blocks.get(),
            }),
        }
    }

    /// The superblock as it lies on disk.
    ///
    /// # Panics
    ///
    /// If the salt is too long.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut raw = Raw::new_zeroed();
        raw.signature = SIGNATURE;
        raw.version = VERSION.into();
        raw.hash_type = HASH_TYPE.into();
        raw.uuid = self.params.uuid;
        let name = self.params.algorithm.name().as_bytes();
        raw.algorithm[..name.len()].copy_from_slice(name);
        raw.data_block_bytes = self.params.block_bytes.into();
        raw.hash_block_bytes = self.params.block_bytes.into();
        raw.data_blocks = self.data_blocks.into();
        let salt = &self.params.salt;
        raw.salt_bytes = (salt.len() as u16).into(); // it would not fit otherwise
        raw.salt[..salt.len()].copy_from_slice(salt);
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

#[cfg(test)]
impl Superblock {
    /// The superblock of a tree by SHA-256 without a salt, over blocks of 4 KiB.
    pub(crate) fn plain(data_blocks: u64) -> Self {
        Self {
            params: Params {
                algorithm: Algorithm::Sha256,
                block_bytes: 4096,
                salt: Vec::new(),
                uuid: [0; 16],
            },
            data_blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            params: Params {
                algorithm: Algorithm::Sha512,
                block_bytes: 4096,
                salt: b"some salt".to_vec(),
                uuid: [7; 16],
            },
            data_blocks: 1 << 40,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let expected = superblock();
        assert_eq!(Superblock::parse(&expected.encode()), Ok(expected));
    }

    #[test]
    fn values_that_are_not_known_are_told() {
        for (at, byte, said) in [
            (0, b'V', "there is no hash tree"),
            (8, 2, "version 2"),
            (12, 0, "type 0"),
            (35, b'x', "the algorithm shax12"),
            (65, 0, "blocks of 0"),
            (69, 32, "blocks of its own of 8192"),
            (81, 2, "a salt of 521"),
        ] {
            let mut bytes = superblock().encode();
            bytes[at] = byte;
            let fault = Superblock::parse(&bytes).unwrap_err().to_string();
            assert!(fault.contains(said), "{at}: {fault}");
        }
    }
}
