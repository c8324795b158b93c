//! Logs that were made to do harm, each in one way.

mod support;

use std::sync::Arc;

use anteros_core::{Device, FileSystem, MemoryDevice, WritableDevice};
use anteros_log::layout::checkpoint::{Checkpoint, HeadKind};
use anteros_log::layout::node::{Inode, NodeHeader};
use anteros_log::layout::packed::{PackedBlock, PackedHeader, Slot, SlotKind};
use anteros_log::layout::pointer::Pointer;
use anteros_log::layout::record::{MapChecksums, Record};
use anteros_log::layout::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use anteros_log::layout::{BLOCK_BYTES, Block, SEGMENT_CONTENT, dir};
use anteros_log::{Log, Options, check};
use support::surgeon::Surgeon;
use support::*;

struct Craft {
    device: Arc<MemoryDevice>,
    superblock: Superblock,
    checkpoint: Checkpoint,
}

impl Craft {
    /// A log that was unmounted, with what `fill` makes.
    fn new(fill: impl FnOnce(&Tree)) -> Self {
        let device = device(32 * MIB);
        let tree = open_plainly(device.clone());
        fill(&tree);
        tree.0.close().unwrap();
        let bytes = device.to_vec();
        let superblock = Superblock::parse(
            bytes[SUPERBLOCK_OFFSET..][..SUPERBLOCK_BYTES]
                .try_into()
                .unwrap(),
        )
        .unwrap();
        let pack = |pack: u64| {
            let start =
                superblock.checkpoint_start + pack * u64::from(superblock.checkpoint_blocks);
            let end = start + u64::from(superblock.checkpoint_blocks);
            let bytes = &bytes[start as usize * BLOCK_BYTES..end as usize * BLOCK_BYTES];
            Checkpoint::parse(bytes, &superblock).unwrap()
        };
        let checkpoint = [pack(0), pack(1)]
            .into_iter()
            .max_by_key(|pack| pack.version)
            .unwrap();
        Self {
            device,
            superblock,
            checkpoint,
        }
    }

    fn put(&self, block: u64, bytes: &[u8]) {
        self.device
            .write_at(block * BLOCK_BYTES as u64, bytes)
            .unwrap();
    }

    /// Another checkpoint, the next one.
    fn with_checkpoint(mut self, change: impl FnOnce(&mut Checkpoint)) -> Self {
        self.checkpoint.version += 1;
        change(&mut self.checkpoint);
        let pack = self.checkpoint.version % 2 * u64::from(self.superblock.checkpoint_blocks);
        self.put(
            self.superblock.checkpoint_start + pack,
            &self.checkpoint.encode(),
        );
        self
    }

    fn packed(&self) -> anteros_log::layout::checkpoint::Head {
        *self
            .checkpoint
            .heads
            .iter()
            .find(|head| head.kind == HeadKind::Packed)
            .unwrap()
    }

    fn header(&self) -> PackedHeader {
        PackedHeader {
            sequence: self.checkpoint.next_sequence,
            checkpoint: self.checkpoint.version as u32,
            next_segment: self.packed().next_segment.unwrap(),
            lag: 0,
            first: true,
            last: true,
            left: 0,
        }
    }

    /// A group behind the checkpoint.
    fn with_group(self, records: &[Record<'_>]) -> Self {
        let mut stream = Vec::new();
        records.iter().for_each(|record| record.append(&mut stream));
        let head = self.packed();
        let start = self.superblock.segment_start(head.segment) + u64::from(head.next);
        let last = start + stream.chunks(4000).count() as u64 - 1;
        for (place, part) in (start..).zip(stream.chunks(4000)) {
            let mut block = PackedBlock::new(PackedHeader {
                first: place == start,
                last: place == last,
                ..self.header()
            });
            block.push(Slot::new(SlotKind::Records), part).unwrap();
            self.put(place, &*block.finish());
        }
        self
    }

    /// Changes the node of an inode.
    fn with_node(self, ino: u32, change: impl FnOnce(&mut Inode, &mut Block)) -> Self {
        let bytes = self.device.to_vec();
        let entry = self
            .checkpoint
            .nat_journal
            .iter()
            .find(|(nid, _)| *nid == ino)
            .unwrap()
            .1;
        let Pointer::Plain(place, _) =
            Pointer::decode(entry.pointer, &self.superblock, ino, 0).unwrap()
        else {
            panic!("inode {ino} lies nowhere");
        };
        let mut block: Block = bytes[place as usize * BLOCK_BYTES..][..BLOCK_BYTES]
            .try_into()
            .unwrap();
        let mut inode = Inode::parse(&block, ino).unwrap();
        change(&mut inode, &mut block);
        inode.store(&mut block);
        NodeHeader::parse(&block)
            .unwrap_or_else(|_| header(&bytes, place))
            .seal(&mut block);
        self.put(place, &block);
        self
    }

    fn refused(&self, word: &str) {
        for read_only in [true, false] {
            let opened = Log::open(
                self.device.clone(),
                Options {
                    read_only,
                    ..options()
                },
            );
            let error = opened
                .err()
                .unwrap_or_else(|| panic!("mounted, though `{word}`"))
                .to_string();
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}

fn header(bytes: &[u8], place: u64) -> NodeHeader {
    let block: Block = bytes[place as usize * BLOCK_BYTES..][..BLOCK_BYTES]
        .try_into()
        .unwrap();
    NodeHeader::parse(&block).unwrap()
}

fn nothing(_: &Tree) {}

/// It would go on with the summary, and then with the next segment.
#[test]
fn a_head_behind_its_segment_is_refused() {
    let craft = Craft::new(|tree| tree.put("f", &bytes(1, 10_000)).unwrap());
    let craft = craft.with_checkpoint(|pack| {
        let which = pack
            .heads
            .iter()
            .position(|head| head.kind == HeadKind::WarmData)
            .unwrap();
        pack.heads[which].next = SEGMENT_CONTENT as u16;
    });
    craft.refused("the segment is full");
}

/// Groups would be written where no mount finds them.
#[test]
fn a_packed_log_without_an_end_is_refused() {
    let craft = Craft::new(nothing).with_checkpoint(|pack| {
        let which = pack
            .heads
            .iter()
            .position(|head| head.kind == HeadKind::Packed)
            .unwrap();
        pack.heads[which].next_segment = None;
    });
    craft.refused("does not say where it goes on");
}

/// Such a checkpoint does not count, and the one before does.
#[test]
fn counts_that_would_overflow_are_refused() {
    let changes: [fn(&mut Checkpoint); 3] = [
        |pack| pack.version = u64::MAX - 1,
        |pack| pack.next_sequence = u64::MAX,
        |pack| pack.next_sequence = 0,
    ];
    for change in changes {
        let craft = Craft::new(|tree| tree.put("f", b"f").unwrap());
        let version = craft.checkpoint.version;
        let craft = craft.with_checkpoint(change);
        if craft.checkpoint.version % 2 == version % 2 {
            craft.refused("neither checkpoint is whole");
            continue;
        }
        let tree = open(craft.device);
        tree.put("f", b"more").unwrap();
        tree.fsync("f").unwrap();
        tree.0.close().unwrap();
    }
}

/// The number beyond the last one was given to a file, and no mount took the journal with it.
#[test]
fn the_search_for_a_free_number_may_begin_behind_the_last() {
    let craft = Craft::new(nothing);
    let nids = craft.superblock.nids;
    let craft = craft.with_checkpoint(|pack| {
        pack.next_nid = nids;
        pack.serial = u32::MAX;
        (pack.nodes, pack.inodes) = (1, 0);
    });
    let tree = open(craft.device.clone());
    tree.put("f", b"f").unwrap();
    tree.unlink("f").unwrap();
    tree.put("g", b"g").unwrap();
    assert!(tree.attr("g").unwrap().ino.0 < nids.into());
    tree.0.statfs().unwrap();
    tree.0.close().unwrap();
    drop(tree);
    assert_eq!(open(craft.device).read("g").unwrap(), b"g");
}

/// A group goes on in a segment all of whose blocks are the middle of it, and behind the last comes the first.
#[test]
fn a_group_that_goes_round_in_circles_ends() {
    let craft = Craft::new(|tree| tree.put("f", b"f").unwrap());
    let head = craft.packed();
    let next = head.next_segment.unwrap();
    let places = (u32::from(head.next)..SEGMENT_CONTENT).map(|index| (head.segment, index));
    for (segment, index) in places.chain((0..SEGMENT_CONTENT).map(|index| (next, index))) {
        let is_first = (segment, index) == (head.segment, head.next.into());
        let header = PackedHeader {
            next_segment: next,
            first: is_first,
            last: false,
            ..craft.header()
        };
        let mut block = PackedBlock::new(header);
        let mut stream = Vec::new();
        Record::NameRemoved {
            parent: 1,
            name: b"f",
        }
        .append(&mut stream);
        block.push(Slot::new(SlotKind::Records), &stream).unwrap();
        craft.put(
            craft.superblock.segment_start(segment) + u64::from(index),
            &*block.finish(),
        );
    }
    let tree = open(craft.device);
    assert!(tree.0.recovery().dropped);
    assert_eq!(tree.read("f").unwrap(), b"f");
}

/// A group says that the log goes on where something else lies, or will: there it never goes on.
#[test]
fn a_log_goes_on_in_no_segment_of_something_else() {
    let fill = |tree: &Tree| tree.put("f", &bytes(1, 3 << 20)).unwrap();
    let segments = Craft::new(fill).superblock.segments;
    for next_segment in 0..segments {
        let craft = Craft::new(fill);
        let header = PackedHeader {
            next_segment,
            ..craft.header()
        };
        let head = craft.packed();
        let start = craft.superblock.segment_start(head.segment);
        // In the middle of the segment, and in its last block.
        for last in [head.next.into(), SEGMENT_CONTENT - 1] {
            for (index, sequence) in (u32::from(head.next)..=last).zip(header.sequence..) {
                let mut block = PackedBlock::new(PackedHeader { sequence, ..header });
                let mut stream = Vec::new();
                Record::Xattrs {
                    ino: 1,
                    goes_on: false,
                    bytes: b"",
                }
                .append(&mut stream);
                block.push(Slot::new(SlotKind::Records), &stream).unwrap();
                craft.put(start + u64::from(index), &*block.finish());
            }
            let device = Arc::new(MemoryDevice::new(craft.device.to_vec()));
            for round in 0..2 {
                let tree = open(device.clone());
                assert_eq!(tree.read("f").unwrap(), bytes(1, 3 << 20));
                for n in 0..520 {
                    tree.put("new", &bytes(n + round, 100)).unwrap();
                    tree.fsync("new").unwrap();
                }
                drop(tree);
                assert_sound(device.clone());
            }
        }
    }
}

/// The attributes of the root, as a regular file of so many bytes.
fn attributes(size: u64, is_inline: bool) -> [u8; 96] {
    let mut bytes = [0; 96];
    bytes[..2].copy_from_slice(&(0o100_644u16).to_le_bytes());
    bytes[2] = is_inline.into();
    bytes[4] = 1;
    bytes[16..24].copy_from_slice(&size.to_le_bytes());
    bytes
}

#[test]
fn records_that_lie_are_refused() {
    let group = |records: &[Record<'_>]| {
        Craft::new(|tree| tree.put("f", b"f").unwrap()).with_group(records)
    };
    let long = attributes(5000, true);
    let long = Record::Attributes {
        ino: 9,
        whole: true,
        attributes: &long,
    };
    group(&[
        long.clone(),
        Record::Inline {
            ino: 9,
            bytes: &[1; 5000],
        },
    ])
    .refused("inline content");
    let mapped = attributes(0, false);
    let mapped = Record::Attributes {
        ino: 9,
        whole: true,
        attributes: &mapped,
    };
    let preallocated = Pointer::Preallocated.encode();
    let map = |count| Record::Map {
        ino: 9,
        lblk: 0,
        count,
        pointer: preallocated,
        checksums: MapChecksums::default(),
    };
    group(&[mapped.clone(), map(500_000_000)]).refused("more blocks than there are");
    let often = vec![map(3000); 10];
    group(&[&[mapped], &often[..]].concat()).refused("more blocks than there are");
    group(&[Record::NameAdded {
        parent: 77,
        ino: 9,
        kind: 8,
        name: b"x",
    }])
    .refused("an inode that is not there");
    group(&[Record::NameAdded {
        parent: 2,
        ino: 9,
        kind: 8,
        name: b"x",
    }])
    .refused("no directory");
    group(&[Record::Inline {
        ino: 50,
        bytes: b"x",
    }])
    .refused("an inode that is not there");
    // Content that the attributes promise and no record has.
    let craft = group(&[
        long,
        Record::NameAdded {
            parent: 1,
            ino: 9,
            kind: 8,
            name: b"x",
        },
    ]);
    let tree = open_to_read(craft.device);
    let error = tree.read("x").unwrap_err().to_string();
    assert!(error.contains("node 9"), "{error}");
}

/// Deleting the file gave another one back.
#[test]
fn attributes_that_are_someone_elses_are_not_given_back() {
    let fill = |tree: &Tree| {
        tree.put("f", b"f").unwrap();
        tree.put("g", b"g").unwrap();
    };
    let craft = Craft::new(fill).with_node(2, |inode, _| inode.xattr_nid = 3);
    let tree = open(craft.device.clone());
    let _ = tree.unlink("f");
    assert_eq!(tree.read("g").unwrap(), b"g");
    let _ = tree.0.close();
    drop(tree);
    assert_eq!(open(craft.device).read("g").unwrap(), b"g");
}

#[test]
fn numbers_of_an_inode_that_cannot_be_are_refused() {
    let craft = Craft::new(|tree| tree.put("f", &bytes(1, 10_000)).unwrap());
    let craft = craft.with_node(2, |inode, _| inode.attributes.size = 1 << 62);
    let error = open(craft.device).attr("f").unwrap_err().to_string();
    assert!(
        error.contains("node 2: the size is beyond all files"),
        "{error}"
    );
    let craft = Craft::new(|tree| tree.put("f", &bytes(1, 10_000)).unwrap());
    let craft = craft.with_node(2, |inode, _| inode.attributes.blocks = u64::MAX);
    let error = open(craft.device).attr("f").unwrap_err().to_string();
    assert!(error.contains("node 2: more blocks"), "{error}");
    let craft = Craft::new(|tree| tree.symlink("l", &[b'x'; 4000]).unwrap());
    let craft = craft.with_node(2, |inode, _| inode.attributes.size = 1 << 40);
    let error = open(craft.device).read("l").unwrap_err().to_string();
    assert!(error.contains("node 2: the target"), "{error}");
    // Times are anything, and do no harm.
    let craft = Craft::new(|tree| tree.put("f", b"f").unwrap());
    let craft = craft.with_node(2, |inode, _| {
        inode.attributes.atime.secs = i64::MIN;
        inode.attributes.mtime.secs = i64::MIN;
        inode.attributes.ctime.secs = i64::MIN;
    });
    assert_eq!(open(craft.device).read("f").unwrap(), b"f");
}

/// All items of an index lead to one leaf: each was listed as often.
#[test]
fn an_index_that_always_leads_to_the_same_leaf_is_found_out() {
    let craft = Craft::new(|tree| {
        for n in 0..200 {
            tree.create(&format!("{n}-{}", "x".repeat(200))).unwrap();
        }
    });
    let surgeon = Surgeon::new(craft.device.clone());
    let root = surgeon.read(surgeon.pointer(1, 0));
    let mut index = dir::Index::parse(&root).unwrap();
    let leaf = index.items[0].1;
    index.items.iter_mut().for_each(|item| item.1 = leaf);
    surgeon.set_content(1, 0, &index.encode().unwrap());
    let report = check(craft.device.clone(), options()).unwrap();
    assert!(
        report
            .faults
            .iter()
            .any(|fault| fault.contains("what comes before")),
        "{:?}",
        report.faults
    );
    assert!(open(craft.device).list("").is_err());
}

#[test]
fn what_only_a_newer_program_may_write_is_mounted_to_be_read() {
    let craft = Craft::new(|tree| tree.put("f", b"f").unwrap());
    let superblock = Superblock {
        ro_compat: 2,
        generation: 9,
        ..craft.superblock.clone()
    };
    craft
        .device
        .write_at(SUPERBLOCK_OFFSET as u64, &superblock.encode())
        .unwrap();
    let error = Log::open(craft.device.clone(), options())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("can only read"), "{error}");
    let tree = open_to_read(craft.device);
    assert_eq!(tree.read("f").unwrap(), b"f");
}

/// A checkpoint alone says something of the log's own record.
#[test]
fn a_group_that_names_what_belongs_to_the_log_is_refused() {
    let craft = Craft::new(|tree| tree.0.keep_record(b"record").unwrap());
    let ino = craft.checkpoint.record_ino;
    let attributes = Surgeon::new(craft.device.clone()).inode(ino).attributes;
    let craft = craft.with_group(&[Record::Attributes {
        ino,
        whole: false,
        attributes: &attributes.encode(),
    }]);
    craft.refused("belongs to the log itself");
}

/// Guards against a fault: where heads are many, the reserve that users do not fill was taken to be at least sixteen
/// segments.
#[test]
fn a_log_may_reserve_little() {
    let device = Arc::new(overlay::Overlay::new(
        &overlay::Base {
            size: 1 << 30,
            ..Default::default()
        },
        u64::MAX,
    ));
    make(device.clone());
    let mut copy = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET as u64, &mut copy).unwrap();
    let superblock = Superblock {
        reserved_segments: 1,
        generation: 9,
        ..Superblock::parse(&copy).unwrap()
    };
    device
        .write_at(SUPERBLOCK_OFFSET as u64, &superblock.encode())
        .unwrap();
    let tree = open(device);
    tree.put("f", &bytes(1, 100_000)).unwrap();
    tree.0.close().unwrap();
}
