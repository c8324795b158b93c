//! `--verity`: the hash tree behind an image.

use std::io::{self, Write};
use std::str::FromStr;

use anteros_build::{HashAlgorithm, HashTree, Verity};
use anteros_verity::{Parity, hex};
use serde::Serialize;

/// A hash tree that is wanted.
#[derive(Debug, clap::Args)]
pub struct VerityArgs {
    /// Append a hash tree, as veritysetup and the kernel's dm-verity read it, and print its root hash: who knows that can have
    /// each block verified that is read (`--verity` of check, mount and others)
    #[arg(long)]
    verity: bool,

    /// Hash with this function
    #[arg(
        long,
        value_enum,
        value_name = "FUNCTION",
        default_value = "sha256",
        requires = "verity"
    )]
    verity_hash: Function,

    /// Bytes that are hashed in front of each block, in hexadecimal, or - for none; derived from the UUID by default
    #[arg(long, value_name = "SALT", requires = "verity")]
    verity_salt: Option<Salt>,

    /// Append parity as well, by which the kernel and veritysetup repair damaged blocks: so many bytes for each 255 less these,
    /// 2 to 24
    #[arg(
        long,
        value_name = "ROOTS",
        value_parser = clap::value_parser!(u8).range(2..=24),
        requires = "verity"
    )]
    verity_fec: Option<u8>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Function {
    Sha256,
    Sha512,
}

/// Bytes in hexadecimal, as on the command line.
#[derive(Debug, Clone)]
struct Salt(Vec<u8>);

impl FromStr for Salt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let text = if text == "-" { "" } else { text };
        let bytes = hex::decode(text);
        bytes
            .map(Self)
            .ok_or("pairs of hexadecimal digits are wanted, or -")
    }
}

impl VerityArgs {
    pub fn tree(&self) -> Option<HashTree> {
        self.verity.then(|| HashTree {
            algorithm: match self.verity_hash {
                Function::Sha256 => HashAlgorithm::Sha256,
                Function::Sha512 => HashAlgorithm::Sha512,
            },
            salt: self.verity_salt.clone().map(|salt| salt.0),
            parity_roots: self.verity_fec,
        })
    }
}

/// A hash tree as scripts see it.
#[derive(Serialize)]
pub struct View {
    algorithm: &'static str,
    root_hash: String,
    salt: String,
    block_bytes: u32,
    data_blocks: u64,
    /// Byte of the image at which the superblock of the tree begins.
    hash_offset: u64,
    /// Parity, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    fec: Option<Fec>,
    /// The line for the kernel's device mapper, with `DEVICE` in place of the device.
    table: String,
}

/// Parity as scripts see it.
#[derive(Serialize)]
struct Fec {
    roots: u8,
    /// Blocks of data and tree.
    blocks: u64,
    /// Byte of the image at which it begins.
    offset: u64,
}

impl From<Parity> for Fec {
    fn from(parity: Parity) -> Self {
        Self {
            roots: parity.roots(),
            blocks: parity.blocks(),
            offset: parity.start(),
        }
    }
}

impl View {
    pub fn new(verity: &Verity) -> Self {
        let params = &verity.superblock.params;
        Self {
            algorithm: params.algorithm.name(),
            root_hash: verity.root.to_string(),
            salt: hex::encode(&params.salt),
            block_bytes: params.block_bytes,
            data_blocks: verity.superblock.data_blocks,
            hash_offset: verity.start,
            fec: verity.parity.map(Fec::from),
            table: verity.table("DEVICE"),
        }
    }
}

pub fn print(out: &mut impl Write, verity: &Verity) -> io::Result<()> {
    writeln!(out, "  root hash {}", verity.root)?;
    writeln!(out, "  dm-verity {}", verity.table("DEVICE"))
}
