//! Parity of data and tree, by which the kernel and `veritysetup` repair blocks that were damaged.
//!
//! The blocks of data and those of the tree, without its superblock, are one row. It is cut into `255 - roots` columns of
//! as many blocks, the *rounds*; what is missing of the last column is zeros. A codeword of a Reed-Solomon code is a byte of
//! each column, and `roots` bytes of parity, which lie together:
//!
//! ```text
//! column 0        column 1              parity
//! ┌──────────┐    ┌──────────┐         ┌──────────────────┐
//! │ block 0  │    │ block r  │  …  ─►  │ of all bytes of  │  4096 × roots bytes
//! │          │    │          │         │ the first blocks │
//! │ block 1  │    │ block r+1│  …  ─►  │ of the second    │
//! ```
//!
//! So each of the lost bytes of a long damage is in a codeword of its own. If it is known which bytes are damaged, as the tree
//! tells of blocks, `roots` of a codeword can be repaired.
//!
//! Source: the kernel's `Documentation/admin-guide/device-mapper/verity.rst`; the code is the one of the polynomial
//! 0x11d whose first root is 1.

use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::Device;
use reed_solomon::Encoder;

use crate::units::each;
use crate::{Levels, Superblock, Write};

/// Bytes of a codeword.
const CODEWORD_BYTES: u64 = 255;
/// Rounds for which columns are read at once.
const UNIT_ROUNDS: u64 = 4;
/// Codewords that are put together at once, so that a line of the processor's cache is used up when it is there.
const TOGETHER: usize = 64;

/// Tells where the parity of a hash tree and its data lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity {
    roots: u8,
    block_bytes: u64,
    /// Blocks of data.
    data_blocks: u64,
    /// The first block of the tree, behind its superblock.
    tree_block: u64,
    /// Blocks of data and tree.
    blocks: u64,
    /// Byte at which the parity begins.
    start: u64,
}

impl Parity {
    /// Bytes of parity that a codeword may have.
    pub const ROOTS: RangeInclusive<u8> = 2..=24;

    /// The place of the parity behind a tree whose superblock begins at byte `start`; `None` if that is further than bytes are
    /// counted, or `roots` is not one of [`Self::ROOTS`].
    pub fn new(superblock: &Superblock, start: u64, roots: u8) -> Option<Self> {
        let levels = Levels::new(superblock, start)?;
        let block_bytes = u64::from(superblock.params.block_bytes);
        let tree_block = levels.first_block();
        let tree_blocks = levels.end() / block_bytes - tree_block;
        let parity = Self {
            roots,
            block_bytes,
            data_blocks: superblock.data_blocks,
            tree_block,
            blocks: superblock.data_blocks.checked_add(tree_blocks)?,
            start: levels.end(),
        };
        let bytes = parity.rounds().checked_mul(parity.round_bytes())?;
        parity.start.checked_add(bytes)?;
        Self::ROOTS.contains(&roots).then_some(parity)
    }

    /// Bytes of parity in a codeword.
    pub const fn roots(&self) -> u8 {
        self.roots
    }

    /// Blocks of data and tree.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Byte at which the parity begins.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// The byte behind the parity.
    pub const fn end(&self) -> u64 {
        self.start + self.rounds() * self.round_bytes()
    }

    /// The block at which the parity begins: what the kernel is told.
    pub const fn first_block(&self) -> u64 {
        self.start / self.block_bytes
    }

    const fn columns(&self) -> u64 {
        CODEWORD_BYTES - self.roots as u64
    }

    /// Blocks of a column.
    const fn rounds(&self) -> u64 {
        self.blocks.div_ceil(self.columns())
    }

    const fn round_bytes(&self) -> u64 {
        self.roots as u64 * self.block_bytes
    }

    /// Makes the parity of a device with its tree, which is complete, and gives it to `write` in pieces.
    ///
    /// # Errors
    ///
    /// Errors of the device and of `write`; `Interrupted` if `cancel` became true.
    pub fn make(
        &self,
        device: &dyn Device,
        workers: usize,
        cancel: &AtomicBool,
        write: Write<'_>,
    ) -> io::Result<()> {
        each(self.rounds(), UNIT_ROUNDS, workers, cancel, |rounds| {
            let at = self.start + rounds.start * self.round_bytes();
            write(at, &self.of(device, rounds)?)
        })?;
        match cancel.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// The parity of some rounds.
    fn of(&self, device: &dyn Device, rounds: Range<u64>) -> io::Result<Vec<u8>> {
        let column_bytes = ((rounds.end - rounds.start) * self.block_bytes) as usize;
        let mut columns = vec![0; self.columns() as usize * column_bytes];
        for (n, column) in (0u64..).zip(columns.chunks_exact_mut(column_bytes)) {
            self.read(device, n * self.rounds() + rounds.start, column)?;
        }
        Ok(self.encode(&columns, column_bytes))
    }

    /// Fills a buffer with blocks of the row; behind its end there are zeros.
    fn read(&self, device: &dyn Device, first: u64, buf: &mut [u8]) -> io::Result<()> {
        let blocks = (first..).zip(buf.chunks_exact_mut(self.block_bytes as usize));
        let mut blocks = blocks.peekable();
        while let Some((block, buf)) = blocks.next_if(|(block, _)| *block < self.blocks) {
            let place = match block.checked_sub(self.data_blocks) {
                Some(of_tree) => self.tree_block + of_tree,
                None => block,
            };
            device.read_at(place * self.block_bytes, buf)?;
        }
        Ok(())
    }

    /// The parity of all codewords of some columns.
    fn encode(&self, columns: &[u8], column_bytes: usize) -> Vec<u8> {
        let encoder = Encoder::new(self.roots.into());
        let data_bytes = self.columns() as usize;
        let mut parity = Vec::with_capacity(column_bytes * usize::from(self.roots));
        let mut words = vec![0; TOGETHER * data_bytes];
        for first in (0..column_bytes).step_by(TOGETHER) {
            for (n, column) in columns.chunks_exact(column_bytes).enumerate() {
                for (word, byte) in column[first..first + TOGETHER].iter().enumerate() {
                    words[word * data_bytes + n] = *byte;
                }
            }
            for word in words.chunks_exact(data_bytes) {
                parity.extend_from_slice(encoder.encode(word).ecc());
            }
        }
        parity
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use reed_solomon::Decoder;

    use super::*;

    #[test]
    fn it_lies_behind_the_tree() {
        let parity = Parity::new(&Superblock::plain(300), 300 * 4096, 24).unwrap();
        // Data, three blocks of digests, and their root.
        assert_eq!((parity.blocks(), parity.first_block()), (304, 305));
        assert_eq!(parity.end() - parity.start(), 2 * 24 * 4096);
        assert_eq!(Parity::new(&Superblock::plain(300), 300 * 4096, 1), None);
        assert_eq!(Parity::new(&Superblock::plain(300), 300 * 4096, 25), None);
        assert_eq!(Parity::new(&Superblock::plain(u64::MAX), 0, 2), None);
    }

    #[test]
    fn a_lost_column_comes_back() {
        let blocks = 600;
        let start = blocks * 4096;
        let parity = Parity::new(&Superblock::plain(blocks), start, 3).unwrap();
        let device: Vec<u8> = (0..parity.start())
            .map(|n| (n * n / 77 + n / 4096) as u8)
            .collect();
        let made = Mutex::new(vec![0; (parity.end() - parity.start()) as usize]);
        let write = |at: u64, bytes: &[u8]| {
            let at = (at - parity.start()) as usize;
            made.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let cancel = AtomicBool::new(false);
        parity.make(&device, 3, &cancel, &write).unwrap();
        let made = made.into_inner().unwrap();
        let byte = |block: u64, at: usize| match block {
            0..600 => device[block as usize * 4096 + at],
            // The superblock of the tree is left out.
            600..606 => device[(block as usize + 1) * 4096 + at],
            _ => 0,
        };
        let rounds = parity.rounds();
        for (round, at) in [(0, 0), (1, 4095), (rounds - 1, 77)] {
            let word = (0..252).map(|column| byte(round + column * rounds, at));
            let mut word: Vec<u8> = word.collect();
            let of_word = (round as usize * 4096 + at) * 3;
            word.extend_from_slice(&made[of_word..of_word + 3]);
            let whole = word.clone();
            for lost in [0, 100, 251] {
                word[lost] ^= 0x55;
            }
            let found = Decoder::new(3)
                .correct(&word, Some(&[0, 100, 251]))
                .unwrap();
            assert!(found[..] == whole[..], "byte {at} of round {round}");
        }
    }
}
