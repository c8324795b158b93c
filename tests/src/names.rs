//! Images with very many names and no data, written without a builder: for what memory and time take.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

const BLOCK_BYTES: u64 = 4096;
/// Bytes of a compact inode, which are those of a nid as well.
const INODE_BYTES: u64 = 32;
/// The nid of the root; the others follow.
const FIRST_NID: u64 = 64;
/// Bytes of a directory entry without its name.
const ENTRY_BYTES: u64 = 12;
/// Bytes of a name other than `.` and `..`.
const NAME_BYTES: u64 = 8;

/// Tells how the names lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Empty files in one directory.
    Wide,
    /// Empty files, 1,000 in each directory.
    Files,
    /// Directories, ten in each.
    Directories,
    /// Directories, one inside the other.
    Chain,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Wide, Self::Files, Self::Directories, Self::Chain];

    /// The children of an inode among so many; the root is inode 0.
    fn children(self, inode: u64, inodes: u64) -> Range<u64> {
        let several = |first: u64, count: u64| first.min(inodes)..(first + count).min(inodes);
        match self {
            Self::Wide if inode == 0 => 1..inodes,
            Self::Files if inode == 0 => 1..directories(inodes) + 1,
            Self::Files if inode <= directories(inodes) => {
                several(directories(inodes) + 1 + (inode - 1) * 1000, 1000)
            }
            Self::Wide | Self::Files => 0..0,
            Self::Directories => several(inode * 10 + 1, 10),
            Self::Chain => several(inode + 1, 1),
        }
    }

    fn is_directory(self, inode: u64, inodes: u64) -> bool {
        match self {
            Self::Wide => inode == 0,
            Self::Files => inode <= directories(inodes),
            Self::Directories | Self::Chain => true,
        }
    }

    fn parent(self, inode: u64, inodes: u64) -> u64 {
        match self {
            _ if inode == 0 => 0,
            Self::Wide => 0,
            Self::Files if inode <= directories(inodes) => 0,
            Self::Files => (inode - directories(inodes) - 1) / 1000 + 1,
            Self::Directories => (inode - 1) / 10,
            Self::Chain => inode - 1,
        }
    }
}

/// The directories of [`Shape::Files`] besides the root.
fn directories(inodes: u64) -> u64 {
    inodes.div_ceil(1001)
}

/// Writes an image with so many inodes.
///
/// # Errors
///
/// Errors of the file.
pub fn write(path: &Path, shape: Shape, inodes: u64) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let first_block = ((FIRST_NID + inodes) * INODE_BYTES).div_ceil(BLOCK_BYTES);
    let blocks = (0..inodes)
        .map(|inode| blocks(shape, inode, inodes))
        .sum::<u64>();
    out.write_all(&superblock(inodes, first_block + blocks))?;
    let mut block = first_block;
    for inode in 0..inodes {
        out.write_all(&self::inode(shape, inode, inodes, block))?;
        block += self::blocks(shape, inode, inodes);
    }
    let written = (FIRST_NID + inodes) * INODE_BYTES;
    out.write_all(&vec![0; (first_block * BLOCK_BYTES - written) as usize])?;
    for inode in (0..inodes).filter(|&inode| shape.is_directory(inode, inodes)) {
        write_directory(&mut out, shape, inode, inodes)?;
    }
    out.flush()
}

fn superblock(inodes: u64, blocks: u64) -> [u8; (FIRST_NID * INODE_BYTES) as usize] {
    let mut bytes = [0; (FIRST_NID * INODE_BYTES) as usize];
    let sb = &mut bytes[1024..];
    sb[..4].copy_from_slice(&0xe0f5_e1e2_u32.to_le_bytes());
    sb[12] = BLOCK_BYTES.ilog2() as u8;
    sb[14..16].copy_from_slice(&(FIRST_NID as u16).to_le_bytes());
    sb[16..24].copy_from_slice(&inodes.to_le_bytes());
    sb[36..40].copy_from_slice(&(blocks as u32).to_le_bytes());
    bytes
}

fn inode(shape: Shape, inode: u64, inodes: u64, block: u64) -> [u8; INODE_BYTES as usize] {
    let children = shape.children(inode, inodes);
    let is_directory = shape.is_directory(inode, inodes);
    let subdirectories = children.filter(|&child| shape.is_directory(child, inodes));
    // 1 stands for more links than a compact inode can count.
    let links = u16::try_from(2 + subdirectories.count()).unwrap_or(1);
    let (mode, links, block) = match is_directory {
        true => (0o040_755_u16, links, block as u32),
        false => (0o100_644, 1, 0),
    };
    let mut bytes = [0; INODE_BYTES as usize];
    bytes[4..6].copy_from_slice(&mode.to_le_bytes());
    bytes[6..8].copy_from_slice(&links.to_le_bytes());
    bytes[8..12].copy_from_slice(&(size(shape, inode, inodes) as u32).to_le_bytes());
    bytes[16..20].copy_from_slice(&block.to_le_bytes());
    bytes[20..24].copy_from_slice(&(inode as u32 + 1).to_le_bytes());
    bytes
}

/// The entries that fit into a block; the first has `.` and `..`, whose names are shorter.
const BLOCK_ENTRIES: u64 = BLOCK_BYTES / (ENTRY_BYTES + NAME_BYTES);

fn entries(shape: Shape, inode: u64, inodes: u64) -> u64 {
    let children = shape.children(inode, inodes);
    2 + children.end - children.start
}

fn blocks(shape: Shape, inode: u64, inodes: u64) -> u64 {
    match shape.is_directory(inode, inodes) {
        true => entries(shape, inode, inodes).div_ceil(BLOCK_ENTRIES),
        false => 0,
    }
}

fn size(shape: Shape, inode: u64, inodes: u64) -> u64 {
    let blocks = blocks(shape, inode, inodes);
    if blocks == 0 {
        return 0;
    }
    let entries = entries(shape, inode, inodes);
    let last = entries - (blocks - 1) * BLOCK_ENTRIES;
    let saved = if blocks == 1 { 2 * NAME_BYTES - 3 } else { 0 };
    (blocks - 1) * BLOCK_BYTES + last * (ENTRY_BYTES + NAME_BYTES) - saved
}

fn write_directory(out: &mut impl Write, shape: Shape, inode: u64, inodes: u64) -> io::Result<()> {
    let children = shape.children(inode, inodes);
    let dots = [
        (inode, b".".to_vec()),
        (shape.parent(inode, inodes), b"..".to_vec()),
    ];
    let named = children.map(|child| (child, format!("{child:08x}").into_bytes()));
    let mut entries = dots.into_iter().chain(named).peekable();
    while entries.peek().is_some() {
        let block: Vec<_> = entries.by_ref().take(BLOCK_ENTRIES as usize).collect();
        let mut name_at = block.len() as u64 * ENTRY_BYTES;
        let mut bytes = Vec::with_capacity(BLOCK_BYTES as usize);
        for (child, name) in &block {
            let kind = if shape.is_directory(*child, inodes) {
                2
            } else {
                1
            };
            bytes.extend_from_slice(&(FIRST_NID + child).to_le_bytes());
            bytes.extend_from_slice(&(name_at as u16).to_le_bytes());
            bytes.extend_from_slice(&[kind, 0]);
            name_at += name.len() as u64;
        }
        block
            .iter()
            .for_each(|(_, name)| bytes.extend_from_slice(name));
        bytes.resize(BLOCK_BYTES as usize, 0);
        out.write_all(&bytes)?;
    }
    Ok(())
}
