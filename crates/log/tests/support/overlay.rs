//! Devices that share what they hold until it is changed.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anteros_core::{Device, WritableDevice};

/// Bytes of a block.
pub const BLOCK: usize = 4096;

type Block = [u8; BLOCK];

/// Holds what a device holds: all blocks that are not zero.
#[derive(Debug, Clone, Default)]
pub struct Base {
    pub blocks: HashMap<u64, Arc<Block>>,
    pub size: u64,
}

impl Base {
    pub fn new(bytes: &[u8]) -> Self {
        let blocks = (0u64..).zip(bytes.chunks_exact(BLOCK));
        let filled = blocks.filter(|(_, block)| block.iter().any(|&byte| byte != 0));
        let blocks = filled
            .map(|(number, block)| (number, Arc::new(block.try_into().unwrap())))
            .collect();
        Self {
            blocks,
            size: bytes.len() as u64,
        }
    }

    /// The bytes of some blocks.
    pub fn bytes(&self, first: u64, count: u64) -> Vec<u8> {
        let blocks = (first..first + count)
            .map(|block| self.blocks.get(&block).map_or([0; BLOCK], |block| **block));
        blocks.flatten().collect()
    }

    /// Changes blocks.
    pub fn put(&mut self, first: u64, bytes: &[u8]) {
        for (number, block) in (first..).zip(bytes.chunks_exact(BLOCK)) {
            self.blocks
                .insert(number, Arc::new(block.try_into().unwrap()));
        }
    }
}

/// A device that begins as a [`Base`]. It takes so many reads and no more, so that whoever never ends is noticed.
pub struct Overlay {
    base: Mutex<Base>,
    reads: AtomicU64,
    reads_max: u64,
}

impl Overlay {
    pub fn new(base: &Base, reads_max: u64) -> Self {
        Self {
            base: Mutex::new(base.clone()),
            reads: AtomicU64::new(0),
            reads_max,
        }
    }

    /// Returns whether more was read than there may be.
    pub fn is_exhausted(&self) -> bool {
        self.reads.load(Ordering::Relaxed) > self.reads_max
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        let size = self.size();
        match offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= size)
        {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The pieces of a range: block, where in it, which part of the range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK as u64) as usize;
        let part = done..len.min(done + BLOCK - within);
        done = part.end;
        (!part.is_empty()).then_some((at / BLOCK as u64, within, part))
    })
}

impl Device for Overlay {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        if self.reads.fetch_add(1, Ordering::Relaxed) >= self.reads_max {
            return Err(io::Error::other("too many reads"));
        }
        let base = self.base.lock().unwrap();
        for (block, within, part) in pieces(offset, buf.len()) {
            let len = part.len();
            match base.blocks.get(&block) {
                Some(bytes) => buf[part].copy_from_slice(&bytes[within..within + len]),
                None => buf[part].fill(0),
            }
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.base.lock().unwrap().size
    }

    fn name(&self) -> String {
        "overlay".into()
    }
}

impl WritableDevice for Overlay {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let mut base = self.base.lock().unwrap();
        for (block, within, part) in pieces(offset, data.len()) {
            let bytes = base
                .blocks
                .entry(block)
                .or_insert_with(|| Arc::new([0; BLOCK]));
            Arc::make_mut(bytes)[within..within + part.len()].copy_from_slice(&data[part]);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
