//! The target `log_layout`.

use anteros_log::Codec;
use anteros_log::layout::bits::Bits;
use anteros_log::layout::checkpoint::Checkpoint;
use anteros_log::layout::node::{ATTRIBUTES_BYTES, Attributes, Inode, NodeHeader};
use anteros_log::layout::pointer::Pointer;
use anteros_log::layout::superblock::{SUPERBLOCK_BYTES, Superblock};
use anteros_log::layout::table::{NatEntry, SitEntry};
use anteros_log::layout::xattr::Xattrs;
use anteros_log::layout::{BLOCK_BYTES, Block, Shape, dir, packed, record, summary};

/// Blocks of the device that a checkpoint is read for.
const DEVICE_BLOCKS: u64 = 8192;

/// Reads bytes as each structure of a log, with the checksum made right: what is taken comes back as it was.
pub fn log_layout(input: &[u8]) {
    let superblock = Superblock::plan(DEVICE_BLOCKS, &Shape::default()).expect("room");
    check_superblock(input);
    check_pack(input, &superblock);
    check_block(input, &superblock);
    check_streams(input);
    check_chunks(input);
}

/// Decodes bytes as a chunk of each codec, of one page, of a few and of the most.
fn check_chunks(input: &[u8]) {
    let chunk = &input[..input.len().min(BLOCK_BYTES)];
    for (_, codec) in Codec::ALL {
        for pages in [1, 3, 32] {
            // Whether it decodes is all the same.
            let _ = codec.decode(chunk, &mut vec![0; pages * BLOCK_BYTES]);
        }
    }
}

/// The first bytes of the input, filled up with zeros, with their checksum.
fn sealed<const BYTES: usize>(input: &[u8], magic: &[u8], crc_at: usize) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let len = input.len().min(BYTES);
    bytes[..len].copy_from_slice(&input[..len]);
    bytes[..magic.len()].copy_from_slice(magic);
    seal(&mut bytes, crc_at);
    bytes
}

fn seal(bytes: &mut [u8], crc_at: usize) {
    bytes[crc_at..crc_at + 4].fill(0);
    let crc = crc32c::crc32c(bytes);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn check_superblock(input: &[u8]) {
    let bytes: [u8; SUPERBLOCK_BYTES] = sealed(input, b"antlog\r\n", 8);
    if let Ok(superblock) = Superblock::parse(&bytes) {
        assert_eq!(
            Superblock::parse(&superblock.encode()).as_ref(),
            Ok(&superblock)
        );
        assert!(superblock.capacity() <= superblock.content_blocks());
        assert!(superblock.segment_start(superblock.segments) <= superblock.blocks);
    }
}

fn check_pack(input: &[u8], superblock: &Superblock) {
    let blocks = input
        .len()
        .div_ceil(BLOCK_BYTES)
        .clamp(1, superblock.checkpoint_blocks as usize);
    let mut bytes = vec![0; blocks * BLOCK_BYTES];
    let len = input.len().min(bytes.len());
    bytes[..len].copy_from_slice(&input[..len]);
    bytes[..4].copy_from_slice(b"CKPT");
    bytes[0x10..0x14].copy_from_slice(&(blocks as u32).to_le_bytes());
    seal(&mut bytes, 4);
    if let Ok(checkpoint) = Checkpoint::parse(&bytes, superblock) {
        assert_eq!(
            Checkpoint::parse(&checkpoint.encode(), superblock),
            Ok(checkpoint)
        );
    }
}

fn check_block(input: &[u8], superblock: &Superblock) {
    let node: Block = sealed(input, b"NODE", 4);
    if let Ok(header) = NodeHeader::parse(&node) {
        let mut again = node;
        header.seal(&mut again);
        assert_eq!(NodeHeader::check(&again, header.nid), Ok(header));
    }
    if let Ok(inode) = Inode::parse(&node, 7) {
        let mut again = node;
        inode.store(&mut again);
        assert_eq!(Inode::parse(&again, 7), Ok(inode));
    }
    check_directory(&sealed(input, b"DIRB", 4));
    if let Ok((_, slots)) = packed::parse(&sealed(input, b"PACK", 4)) {
        let block: Block = sealed(input, b"PACK", 4);
        slots
            .iter()
            .for_each(|slot| assert!(!slot.bytes(&block).is_empty()));
    }
    let block: Block = sealed(input, b"", 0);
    if let Ok(owners) = summary::parse(&block, 7) {
        assert_eq!(*summary::encode(7, &owners), block);
    }
    let entry = SitEntry::read(&block, 3);
    if entry.check(3).is_ok() {
        assert!(entry.valid <= 511);
    }
    let pointer = NatEntry::read(&block, 5).pointer;
    if let Ok(decoded) = Pointer::decode(pointer, superblock, 5, 0) {
        assert_eq!(decoded.encode(), pointer);
        assert!(
            decoded
                .block()
                .is_none_or(|block| superblock.locate(block).is_some())
        );
    }
}

fn check_directory(block: &Block) {
    if dir::check(block, 0).is_err() {
        return;
    }
    let _ = dir::child(block, 1 << 40);
    let _ = dir::find(block, 1 << 40, b"name");
    let _ = dir::remove(&mut { *block }, 1 << 40, b"name");
    if let Ok(leaf) = dir::Leaf::parse(block) {
        for entry in &leaf.entries {
            assert_eq!(
                dir::find(block, entry.hash, &entry.name),
                Ok(Some((entry.ino, entry.kind)))
            );
            let mut without = *block;
            assert_eq!(dir::remove(&mut without, entry.hash, &entry.name), Ok(true));
            let mut left = leaf.clone();
            left.remove(entry.hash, &entry.name);
            assert_eq!(dir::Leaf::parse(&without), Ok(left));
        }
        let again = leaf.encode().expect("what fitted once");
        assert_eq!(dir::Leaf::parse(&again), Ok(leaf));
    }
    if let Ok(index) = dir::Index::parse(block) {
        let again = index.encode().expect("what fitted once");
        assert_eq!(dir::Index::parse(&again), Ok(index));
    }
}

fn check_streams(input: &[u8]) {
    let mut again = Vec::new();
    let mut is_whole = true;
    for record in record::records(input) {
        match record {
            Ok(record) => record.append(&mut again),
            Err(_) => is_whole = false,
        }
    }
    assert!(input.starts_with(&again) && (!is_whole || again == input));
    let entries = dir::entries(input).filter_map(Result::ok);
    entries.for_each(|entry| assert!(!entry.name.is_empty()));
    if let Ok(xattrs) = Xattrs::parse(input) {
        assert_eq!(Xattrs::parse(&xattrs.encode()), Ok(xattrs));
    }
    if let Some((attributes, _)) = input.split_first_chunk::<ATTRIBUTES_BYTES>() {
        if let Ok(parsed) = Attributes::parse(attributes, 7) {
            assert_eq!(&parsed.encode(), attributes);
        }
    }
    let len = input.len() * 8;
    if let Some(bits) = Bits::from_bytes(input, len) {
        assert_eq!((bits.as_bytes(), bits.len()), (input, len));
    }
}
