//! The hash tree behind an image, by which dm-verity and our own readers tell whether a block is the one that was written.

use std::io;
use std::sync::atomic::AtomicBool;

use anteros_core::Device;
use anteros_verity::{Digest, Levels, Params, Parity, Superblock, hex, make};

use crate::output::Output;
use crate::{Error, Options};

/// Bytes of a block of the tree and of what it hashes at once, whatever the image's are. Machines with pages of 4 KiB take no
/// larger ones.
const BLOCK_BYTES: u32 = 4096;

/// The hash tree that an image has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verity {
    /// The root hash: who knows it knows whether any block of the image was changed.
    pub root: Digest,
    /// Parameters, and how many blocks there are.
    pub superblock: Superblock,
    /// Byte of the image at which the superblock of the tree begins.
    pub start: u64,
    /// The parity behind the tree, if there is any.
    pub parity: Option<Parity>,
}

impl Verity {
    /// The line that `dmsetup create` takes, where image and tree lie on one device from its start on.
    pub fn table(&self, device: &str) -> String {
        let Params {
            algorithm,
            block_bytes,
            salt,
            ..
        } = &self.superblock.params;
        let blocks = self.superblock.data_blocks;
        let sectors = blocks * u64::from(*block_bytes) / 512;
        let first =
            Levels::new(&self.superblock, self.start).map_or(0, |levels| levels.first_block());
        let salt = match salt.is_empty() {
            true => "-".into(),
            false => hex::encode(salt),
        };
        format!(
            "0 {sectors} verity 1 {device} {device} {block_bytes} {block_bytes} {blocks} {first} {} {} {salt}",
            algorithm.name(),
            self.root
        ) + &self.repair(device)
    }

    /// The end of that line, by which the kernel repairs blocks.
    fn repair(&self, device: &str) -> String {
        self.parity.map_or_else(String::new, |parity| {
            let (roots, blocks, first) = (parity.roots(), parity.blocks(), parity.first_block());
            format!(
                " 8 use_fec_from_device {device} fec_roots {roots} fec_blocks {blocks} fec_start {first}"
            )
        })
    }
}

/// Appends the hash tree to an image that is complete, if one is wanted.
pub(crate) fn append(
    options: &Options,
    uuid: [u8; 16],
    output: &mut Output,
    cancel: &AtomicBool,
) -> Result<Option<Verity>, Error> {
    let Some(wanted) = &options.hash_tree else {
        return Ok(None);
    };
    let start = output.position().next_multiple_of(BLOCK_BYTES.into());
    output.pad_to(start)?;
    output.flush()?;
    let salt = || wanted.algorithm.digest(b"", &uuid).as_bytes().to_vec();
    let superblock = Superblock {
        params: Params {
            algorithm: wanted.algorithm,
            block_bytes: BLOCK_BYTES,
            salt: wanted.salt.clone().unwrap_or_else(salt),
            uuid,
        },
        data_blocks: start / u64::from(BLOCK_BYTES),
    };
    let written: &Output = output;
    let write = |at, bytes: &[u8]| written.write_back(at, bytes);
    let made = make(written, &superblock, start, options.workers, cancel, &write);
    let fail = |cause: io::Error| match cause.kind() {
        io::ErrorKind::Interrupted => Error::Cancelled,
        _ => written.error("write the hash tree of", cause),
    };
    let root = made.map_err(fail)?;
    let levels = Levels::new(&superblock, start).expect("it was written");
    let parity = wanted.parity_roots.map(|roots| {
        let parity = Parity::new(&superblock, start, roots);
        let parity = parity.ok_or_else(|| fail(io::ErrorKind::FileTooLarge.into()))?;
        let made = parity.make(written, options.workers, cancel, &write);
        made.map_err(fail).map(|()| parity)
    });
    let parity = parity.transpose()?;
    output.set_end(parity.map_or(levels.end(), |parity| parity.end()));
    Ok(Some(Verity {
        root,
        superblock,
        start,
        parity,
    }))
}

impl Device for Output {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_back(offset, buf)
    }

    fn size(&self) -> u64 {
        self.position()
    }

    fn name(&self) -> String {
        "the image".into()
    }
}
