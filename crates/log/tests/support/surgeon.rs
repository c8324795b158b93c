//! Damage on purpose, with right checksums.

use std::sync::Arc;

use anteros_codec::{Effort, Lz4Encoder};
use anteros_core::{Device, MemoryDevice, WritableDevice};
use anteros_log::Codec;
use anteros_log::layout::checkpoint::Checkpoint;
use anteros_log::layout::checksum::Checksum;
use anteros_log::layout::dir::{self, Leaf, OwnedEntry};
use anteros_log::layout::node::{self, Inode, NodeHeader, NodeKind};
use anteros_log::layout::packed::{self, PackedBlock};
use anteros_log::layout::pointer::Pointer;
use anteros_log::layout::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use anteros_log::layout::table::{NAT_PER_BLOCK, NatEntry, SIT_PER_BLOCK, SitEntry};
use anteros_log::layout::{BLOCK_BYTES, Block, Superblock};

/// Changes a log that was unmounted; [`finish`](Self::finish) writes the checkpoint.
pub struct Surgeon {
    device: Arc<MemoryDevice>,
    pub superblock: Superblock,
    pub checkpoint: Checkpoint,
}

impl Surgeon {
    pub fn new(device: Arc<MemoryDevice>) -> Self {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device
            .read_at(SUPERBLOCK_OFFSET as u64, &mut bytes)
            .unwrap();
        let superblock = Superblock::parse(&bytes).unwrap();
        let pack = |which: u64| {
            let room = u64::from(superblock.checkpoint_blocks);
            let mut bytes = vec![0; room as usize * BLOCK_BYTES];
            device
                .read_at(
                    (superblock.checkpoint_start + which * room) * BLOCK_BYTES as u64,
                    &mut bytes,
                )
                .unwrap();
            Checkpoint::parse(&bytes, &superblock).ok()
        };
        let checkpoint = [pack(0), pack(1)]
            .into_iter()
            .flatten()
            .max_by_key(|pack| pack.version)
            .unwrap();
        Self {
            device,
            superblock,
            checkpoint,
        }
    }

    pub fn finish(self) {
        let room = u64::from(self.superblock.checkpoint_blocks);
        let place = self.superblock.checkpoint_start + self.checkpoint.version % 2 * room;
        self.device
            .write_at(place * BLOCK_BYTES as u64, &self.checkpoint.encode())
            .unwrap();
    }

    pub fn read(&self, block: u64) -> Box<Block> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        self.device
            .read_at(block * BLOCK_BYTES as u64, &mut *bytes)
            .unwrap();
        bytes
    }

    pub fn write(&self, block: u64, bytes: &Block) {
        self.device
            .write_at(block * BLOCK_BYTES as u64, bytes)
            .unwrap();
    }

    pub fn nat(&self, nid: u32) -> NatEntry {
        if let Some((_, entry)) = self
            .checkpoint
            .nat_journal
            .iter()
            .find(|(found, _)| *found == nid)
        {
            return *entry;
        }
        let index = nid / NAT_PER_BLOCK;
        let copy = u64::from(self.checkpoint.nat_bits.get(index as usize))
            * u64::from(self.superblock.nat_blocks);
        NatEntry::read(
            &self.read(self.superblock.nat_start + copy + u64::from(index)),
            nid % NAT_PER_BLOCK,
        )
    }

    pub fn set_nat(&mut self, nid: u32, entry: NatEntry) {
        self.checkpoint
            .nat_journal
            .retain(|(found, _)| *found != nid);
        self.checkpoint.nat_journal.push((nid, entry));
    }

    pub fn segment(&self, segment: u32) -> SitEntry {
        if let Some((_, entry)) = self
            .checkpoint
            .sit_journal
            .iter()
            .find(|(found, _)| *found == segment)
        {
            return *entry;
        }
        let index = segment / SIT_PER_BLOCK;
        let copy = u64::from(self.checkpoint.sit_bits.get(index as usize))
            * u64::from(self.superblock.sit_blocks);
        SitEntry::read(
            &self.read(self.superblock.sit_start + copy + u64::from(index)),
            segment % SIT_PER_BLOCK,
        )
    }

    /// Changes an entry in the segment table, of a segment that the journal does not have.
    pub fn change_table(&self, segment: u32, change: impl FnOnce(&mut SitEntry)) {
        let in_journal = |(found, _): &(u32, SitEntry)| *found == segment;
        assert!(!self.checkpoint.sit_journal.iter().any(in_journal));
        let index = segment / SIT_PER_BLOCK;
        let copy = u64::from(self.checkpoint.sit_bits.get(index as usize))
            * u64::from(self.superblock.sit_blocks);
        let place = self.superblock.sit_start + copy + u64::from(index);
        let mut block = self.read(place);
        let mut entry = SitEntry::read(&block, segment % SIT_PER_BLOCK);
        change(&mut entry);
        entry.write(&mut block, segment % SIT_PER_BLOCK);
        self.write(place, &block);
    }

    /// Makes a block valid, or not, and counts it.
    pub fn set_valid(&mut self, block: u64, is_valid: bool) {
        let (segment, index) = self.superblock.locate(block).unwrap();
        let mut entry = self.segment(segment);
        let bit = 1 << (index % 8);
        let byte = &mut entry.bits[usize::from(index / 8)];
        assert_ne!(*byte & bit != 0, is_valid, "block {block}");
        *byte ^= bit;
        let change: i16 = if is_valid { 1 } else { -1 };
        entry.valid = entry.valid.checked_add_signed(change).unwrap();
        self.checkpoint.used_blocks = self
            .checkpoint
            .used_blocks
            .checked_add_signed(change.into())
            .unwrap();
        self.checkpoint
            .sit_journal
            .retain(|(found, _)| *found != segment);
        self.checkpoint.sit_journal.push((segment, entry));
    }

    /// The block that a node lies in.
    pub fn place(&self, nid: u32) -> u64 {
        Pointer::decode(self.nat(nid).pointer, &self.superblock, nid, 0)
            .unwrap()
            .block()
            .unwrap()
    }

    /// Changes a node where it lies.
    pub fn node(&self, nid: u32, change: impl FnOnce(&mut Block)) {
        let mut block = self.read_node(nid);
        let header = NodeHeader::check(&block, nid).unwrap();
        change(&mut block);
        header.seal(&mut block);
        match self.slot(nid) {
            Some(slot) => self.write_slot(self.place(nid), slot, &block),
            None => self.write(self.place(nid), &block),
        }
    }

    /// The slot of its block that a node lies in, if it has not all of that.
    pub fn slot(&self, nid: u32) -> Option<u8> {
        match Pointer::decode(self.nat(nid).pointer, &self.superblock, nid, 0).unwrap() {
            Pointer::Packed(at) => Some(at.slot),
            _ => None,
        }
    }

    /// A node, wherever it lies.
    pub fn read_node(&self, nid: u32) -> Box<Block> {
        let block = self.read(self.place(nid));
        let Some(slot) = self.slot(nid) else {
            return block;
        };
        let slot = packed::parse(&block).unwrap().1[usize::from(slot)];
        let mut node = Box::new([0; BLOCK_BYTES]);
        let codec = Codec::numbered(slot.codec).unwrap();
        codec.decode(slot.bytes(&block), &mut *node).unwrap();
        node
    }

    fn write_slot(&self, place: u64, number: u8, node: &Block) {
        let block = self.read(place);
        let (header, slots) = packed::parse(&block).unwrap();
        let mut changed = PackedBlock::new(header);
        for (at, slot) in (0..).zip(slots) {
            let mut bytes = slot.bytes(&block).to_vec();
            if at == number {
                bytes.resize(BLOCK_BYTES, 0);
                let mut encoder = Lz4Encoder::new(Effort::Fast).unwrap().without_probe();
                let encoded = encoder.encode(node, &mut bytes).unwrap();
                assert_eq!(encoded.consumed, BLOCK_BYTES);
                bytes.truncate(encoded.written);
            }
            changed.push(slot, &bytes).unwrap();
        }
        self.write(place, &changed.finish());
    }

    pub fn inode(&self, ino: u32) -> Inode {
        Inode::parse(&self.read_node(ino), ino).unwrap()
    }

    pub fn change_inode(&self, ino: u32, change: impl FnOnce(&mut Inode)) {
        let mut inode = self.inode(ino);
        change(&mut inode);
        self.node(ino, |block| inode.store(block));
    }

    /// Returns where a logical block lies that is among the first of its file.
    pub fn pointer(&self, ino: u32, lblk: u16) -> u64 {
        let raw = node::pointer(&self.read_node(ino), NodeKind::Inode, lblk);
        Pointer::decode(raw, &self.superblock, ino, lblk)
            .unwrap()
            .block()
            .unwrap()
    }

    /// The checksum of such a block.
    pub fn checksum(&self, ino: u32, lblk: u16) -> Checksum {
        let raw = node::pointer(&self.read_node(ino), NodeKind::Inode, lblk);
        match Pointer::decode(raw, &self.superblock, ino, lblk).unwrap() {
            Pointer::Plain(_, checksum) => checksum,
            other => panic!("inode {ino}, block {lblk}: {other:?}"),
        }
    }

    /// Has a pointer name another block, without a checksum.
    pub fn set_pointer(&self, ino: u32, lblk: u16, block: u64) {
        self.node(ino, |node| {
            node::set_pointer(
                node,
                NodeKind::Inode,
                lblk,
                Pointer::unchecked(block).encode(),
            )
        });
    }

    /// Changes a block of content where it lies, and its checksum.
    pub fn set_content(&self, ino: u32, lblk: u16, block: &Block) {
        let place = self.pointer(ino, lblk);
        self.write(place, block);
        let pointer = Pointer::Plain(place, Checksum::of(block)).encode();
        self.node(ino, |node| {
            node::set_pointer(node, NodeKind::Inode, lblk, pointer)
        });
    }

    /// Changes the names of a small directory.
    pub fn names(&self, ino: u32, change: impl FnOnce(&mut Leaf)) {
        self.change_inode(ino, |inode| {
            let mut leaf = Leaf::from_inline(&inode.inline).unwrap();
            change(&mut leaf);
            inode.entries = leaf.entries.len() as u32;
            inode.inline = leaf.encode_inline();
        });
    }

    /// Adds a name to a small directory.
    pub fn add_name(&self, parent: u32, name: &[u8], ino: u32, kind: u8) {
        let hash = dir::hash(name, &self.superblock.hash_seed);
        self.names(parent, |leaf| {
            leaf.insert(OwnedEntry {
                hash,
                ino,
                kind,
                name: name.into(),
            })
            .unwrap()
        });
    }

    /// Takes a name out of a small directory.
    pub fn remove_name(&self, parent: u32, name: &[u8]) {
        let hash = dir::hash(name, &self.superblock.hash_seed);
        self.names(parent, |leaf| drop(leaf.remove(hash, name).unwrap()));
    }
}
