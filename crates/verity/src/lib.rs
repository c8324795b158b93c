//! Hash trees of dm-verity, version 1, as the kernel and `veritysetup` read them.
//!
//! ```text
//! | data …                | superblock | root level | … | level 1 | level 0 |
//! 0                       ^ a block of the tree                 ^ a digest for each block of data
//! ```
//!
//! Each block of a level holds the digests of blocks of the level below it, as many as fit. The digest of the only block
//! of the root level is the *root hash*: who knows it knows all data. A digest is that of the salt and the block.
//!
//! | module | job |
//! |---|---|
//! | `superblock` | parameters, as they lie on disk |
//! | `levels` | where each level lies |
//! | `digest` | algorithms, and the root hash as text |
//! | `make` | from data to a tree, by all cores |
//! | `parity` | from data and tree to what repairs them |
//! | `verified` | a device of which nothing is read that the tree does not tell |
//! | `check` | all of a device, by all cores |
//! | `hex` | bytes as digits |
//! | `file` | the digest that fs-verity gives a file |
//!
//! Source: the kernel's `Documentation/admin-guide/device-mapper/verity.rst`, and cryptsetup's description of the superblock.

mod check;
mod digest;
mod file;
pub mod hex;
mod levels;
mod make;
mod parity;
mod superblock;
mod units;
mod verified;

pub use check::check;
pub use digest::{Algorithm, Digest, ParseError};
pub use file::FileDigest;
pub use levels::Levels;
pub use make::{Write, make};
pub use parity::Parity;
pub use superblock::{Fault, Params, SALT_BYTES_MAX, SUPERBLOCK_BYTES, Superblock};
pub use verified::{CACHE_BYTES, Mismatch, Verified};
