use super::super::Broken;
use super::super::superblock::Shape;
use super::*;

fn superblock() -> Superblock {
    Superblock::plan(100 << 8, &Shape::default()).unwrap()
}

fn head(kind: HeadKind, segment: u32, next: u16) -> Head {
    Head {
        segment,
        next,
        kind,
        serial: 40 + segment,
        next_segment: None,
        threaded: false,
    }
}

fn owners(count: u32) -> Vec<Owner> {
    (0..count).map(|lblk| Owner { ino: 9, lblk }).collect()
}

fn checkpoint() -> Checkpoint {
    let superblock = superblock();
    let bits = |blocks: u32| {
        let mut bits = Bits::new(blocks as usize);
        bits.flip(blocks as usize - 1);
        bits
    };
    let packed = Head {
        next_segment: Some(8),
        ..head(HeadKind::Packed, 7, 2)
    };
    let threaded = Head {
        threaded: true,
        ..head(HeadKind::ColdData, 5, 40)
    };
    let mut valid = SitEntry {
        valid: 1,
        kind: 3,
        serial: 5,
        ..SitEntry::default()
    };
    valid.bits[2] = 4;
    Checkpoint {
        version: 17,
        clean: true,
        superseded: false,
        time: Timestamp {
            secs: -5,
            nanos: 999_999_999,
        },
        used_blocks: 1000,
        reserved_blocks: 20,
        inodes: 12,
        nodes: 30,
        next_nid: 31,
        next_sequence: 1 << 40,
        serial: 77,
        record_ino: 6,
        heads: vec![
            head(HeadKind::HotNode, 2, 0),
            head(HeadKind::WarmData, 3, 511),
            threaded,
            packed,
        ],
        nat_bits: bits(superblock.nat_blocks),
        sit_bits: bits(superblock.sit_blocks),
        bst_bits: bits(superblock.bst_blocks),
        orphans: vec![4, 9],
        orphans_left_out: true,
        nat_journal: vec![(
            1,
            NatEntry {
                pointer: 1 << 50,
                ino: 1,
                generation: 3,
            },
        )],
        sit_journal: vec![(3, valid), (superblock.segments - 1, SitEntry::default())],
        bst_journal: vec![(superblock.main_start + 6, 0x8000_0001)],
        summaries: vec![vec![], owners(511), owners(511), owners(2)],
        rewritten: vec![(9, owners(511)), (11, owners(511))],
    }
}

/// The pack with a change that the checksum knows of.
fn forged(break_it: impl Fn(&mut RawHeader)) -> Vec<u8> {
    let mut bytes = checkpoint().encode();
    let (mut raw, _) = RawHeader::read_from_prefix(&bytes).unwrap();
    break_it(&mut raw);
    bytes[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
    seal(&mut bytes, CRC_AT);
    bytes
}

fn refused(bytes: &[u8], word: &str) {
    let fault = Checkpoint::parse(bytes, &superblock())
        .unwrap_err()
        .to_string();
    assert!(fault.contains(word), "{word}: {fault}");
}

#[test]
fn a_pack_comes_back() {
    let mut bytes = checkpoint().encode();
    assert_eq!(bytes.len() % BLOCK_BYTES, 0);
    let first: &Block = bytes[..BLOCK_BYTES].try_into().unwrap();
    assert_eq!(
        Checkpoint::header_blocks(first),
        Some((bytes.len() / BLOCK_BYTES) as u32)
    );
    assert_eq!(Checkpoint::header_blocks(&[0; BLOCK_BYTES]), None);
    assert_eq!(Checkpoint::parse(&bytes, &superblock()), Ok(checkpoint()));
    bytes.resize(bytes.len() + BLOCK_BYTES, 0xaa);
    assert_eq!(Checkpoint::parse(&bytes, &superblock()), Ok(checkpoint()));
}

#[test]
fn a_pack_that_is_superseded_can_still_be_read() {
    let bytes = checkpoint().encode();
    let mut first: Block = bytes[..BLOCK_BYTES].try_into().unwrap();
    assert!(Checkpoint::supersede(&mut first));
    assert!(!Checkpoint::supersede(&mut first));
    assert!(!Checkpoint::supersede(&mut [0; BLOCK_BYTES]));
    // It is one sector that changes.
    assert_eq!(first[512..], bytes[512..BLOCK_BYTES]);
    let marked = [&first, &bytes[BLOCK_BYTES..]].concat();
    let parsed = Checkpoint::parse(&marked, &superblock()).unwrap();
    let superseded = Checkpoint {
        superseded: true,
        ..checkpoint()
    };
    assert_eq!(parsed, superseded);
    assert_eq!(superseded.encode(), marked);
}

#[test]
fn summaries_stay_with_their_heads() {
    let mut shuffled = checkpoint();
    shuffled.heads.rotate_left(1);
    shuffled.summaries.rotate_left(1);
    assert_eq!(shuffled.encode(), checkpoint().encode());
}

#[test]
fn an_empty_pack_has_room_for_what_must_be_there() {
    let superblock = superblock();
    let full = |kind: HeadKind| head(kind, kind as u32, 511);
    let most = Checkpoint {
        heads: HeadKind::ALL.map(full).to_vec(),
        summaries: vec![owners(511); HeadKind::ALL.len()],
        orphans: vec![1; 16 * 1024],
        nat_journal: vec![(1, NatEntry::default()); 8 * BLOCK_BYTES / NAT_JOURNAL_BYTES],
        sit_journal: Vec::new(),
        bst_journal: Vec::new(),
        rewritten: (20..20 + superblock.summaries_max())
            .map(|segment| (segment, owners(511)))
            .collect(),
        ..checkpoint()
    };
    let bytes = most.encode();
    assert!(bytes.len() <= superblock.checkpoint_blocks as usize * BLOCK_BYTES);
    assert_eq!(Checkpoint::parse(&bytes, &superblock), Ok(most));
}

#[test]
fn hostile_counts_are_refused_before_room_is_made_for_them() {
    let broken: [Broken<RawHeader>; 15] = [
        ("magic", |raw| raw.magic = 0.into()),
        ("number of blocks", |raw| raw.blocks = 0.into()),
        ("number of blocks", |raw| raw.blocks = u32::MAX.into()),
        ("flag", |raw| raw.flags = 4.into()),
        ("nanoseconds", |raw| raw.nanos = 1_000_000_000.into()),
        ("orphans", |raw| raw.orphans = u32::MAX.into()),
        ("journal of the node", |raw| {
            raw.nat_journal = u32::MAX.into()
        }),
        ("journal of the segment", |raw| {
            raw.sit_journal = u32::MAX.into()
        }),
        ("journal of the block state", |raw| {
            raw.bst_journal = u32::MAX.into()
        }),
        ("blocks are used", |raw| raw.used_blocks = u64::MAX.into()),
        ("are preallocated", |raw| {
            raw.reserved_blocks = u64::MAX.into()
        }),
        ("more nodes", |raw| raw.nodes = u32::MAX.into()),
        ("more inodes", |raw| raw.inodes = 31.into()),
        ("free nid", |raw| raw.next_nid = u32::MAX.into()),
        ("summaries lie beyond", |raw| {
            raw.rewritten = u32::MAX.into()
        }),
    ];
    for (word, break_it) in broken {
        refused(&forged(break_it), word);
    }
    refused(&[0; 100], "cut off");
    refused(&checkpoint().encode()[..BLOCK_BYTES], "number of blocks");
}

#[test]
fn heads_that_cannot_be_are_refused() {
    let broken: [Broken<RawHeader>; 9] = [
        ("flag", |raw| raw.heads[0].flags = 2),
        ("as it is", |raw| raw.heads[0].flags = 1),
        ("that of its place", |raw| raw.heads[0].kind = 1),
        ("that of its place", |raw| {
            raw.heads[10] = RawHead {
                kind: 10,
                ..raw.heads[0]
            }
        }),
        ("beyond the segment", |raw| raw.heads[0].next = 512.into()),
        ("no such segment", |raw| raw.heads[0].segment = 1000.into()),
        ("no such segment", |raw| {
            raw.heads[6].next_segment = 1000.into()
        }),
        ("two heads", |raw| raw.heads[0].segment = 8.into()),
        ("only the packed log", |raw| {
            raw.heads[0].next_segment = 20.into()
        }),
    ];
    for (word, break_it) in broken {
        refused(&forged(break_it), word);
    }
    // More owners than there are bytes.
    refused(&forged(|raw| raw.heads[0].next = 511.into()), "summaries");
}

#[test]
fn entries_of_streams_are_checked() {
    let broken: [Broken<Checkpoint>; 9] = [
        ("impossible segment", |made| made.rewritten[1].0 = 1000),
        ("in the order", |made| made.rewritten[1].0 = 9),
        ("orphan", |made| made.orphans[0] = 0),
        ("orphan", |made| made.orphans[0] = u32::MAX),
        ("impossible nid", |made| made.nat_journal[0].0 = 0),
        ("impossible segment", |made| made.sit_journal[0].0 = 1000),
        ("not that of the set bits", |made| {
            made.sit_journal[0].1.valid = 2
        }),
        ("no content", |made| made.bst_journal[0].0 += 505),
        ("last stream", |made| {
            made.nat_journal = vec![(1, NatEntry::default()); 500]
        }),
    ];
    for (word, break_it) in broken {
        let mut made = checkpoint();
        break_it(&mut made);
        let mut bytes = made.encode();
        if word == "last stream" {
            let (mut raw, _) = RawHeader::read_from_prefix(&bytes).unwrap();
            raw.nat_journal = 1.into();
            raw.sit_journal = 0.into();
            raw.bst_journal = 0.into();
            raw.rewritten = 0.into();
            bytes[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
            seal(&mut bytes, CRC_AT);
        }
        refused(&bytes, word);
    }
    let mut bytes = checkpoint().encode();
    let stray = HEADER_BYTES + Bits::bytes_of(superblock().nat_blocks as usize) + 7;
    bytes[stray] |= 0x80;
    seal(&mut bytes, CRC_AT);
    refused(&bytes, "behind the last block");
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let mut bytes = checkpoint().encode();
    for at in 0..bytes.len() {
        bytes[at] ^= 1;
        assert!(
            Checkpoint::parse(&bytes, &superblock()).is_err(),
            "byte {at}"
        );
        bytes[at] ^= 1;
    }
}
