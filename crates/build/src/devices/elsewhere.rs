//! Places of the chunks of a file on an extra device.

use anteros_format::chunk::ChunkFormat;

/// Stands for a chunk of zeros.
pub(super) const HOLE: u32 = u32::MAX;

/// A file on an extra device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// The number of the device, from 1 on.
    pub(super) device: u16,
    pub(super) chunk_bits: u32,
    /// The block of the device at which each chunk begins.
    pub(super) blocks: Box<[u32]>,
}

impl Elsewhere {
    /// The low 16 bits of `i_u`.
    pub fn format(&self, block_bits: u8) -> u16 {
        let format = ChunkFormat {
            chunk_bits: self.chunk_bits,
            indexes: true,
            wide: false,
        };
        format.encode(block_bits)
    }

    /// Bytes from the end of inode and xattrs, which take `head_bytes`, to the end of the table.
    pub fn bytes_behind(&self, head_bytes: u64) -> u64 {
        head_bytes.next_multiple_of(8) - head_bytes + 8 * self.blocks.len() as u64
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.blocks)) as u64
    }

    /// Appends the table.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.resize(out.len().next_multiple_of(8), 0);
        for &block in &self.blocks {
            let device = if block == HOLE { 0 } else { self.device };
            out.extend_from_slice(&[0; 2]); // no high bits
            out.extend_from_slice(&device.to_le_bytes());
            out.extend_from_slice(&block.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_device_but_for_holes() {
        let file = Elsewhere {
            device: 1,
            chunk_bits: 12,
            blocks: [7, HOLE].into(),
        };
        let mut out = vec![9; 36];
        file.encode(&mut out);
        assert_eq!(out.len() as u64, 36 + file.bytes_behind(36));
        let hole = [0, 0, 0, 0, 255, 255, 255, 255];
        assert_eq!(out[40..], [&[0, 0, 1, 0, 7, 0, 0, 0][..], &hole].concat());
    }
}
