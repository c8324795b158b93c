use super::super::Broken;
use super::*;

const MIB: u64 = 256;

fn shape() -> Shape {
    Shape {
        label: "größe".into(),
        uuid: [7; 16],
        hash_seed: [9; 16],
        ..Shape::default()
    }
}

fn planned() -> Superblock {
    Superblock::plan(40 * MIB, &shape()).unwrap()
}

/// The bytes with a change that the checksum knows of.
fn forged(break_it: impl Fn(&mut RawSuperblock)) -> [u8; SUPERBLOCK_BYTES] {
    let mut raw: RawSuperblock = zerocopy::transmute!(planned().encode());
    break_it(&mut raw);
    let mut bytes: [u8; SUPERBLOCK_BYTES] = zerocopy::transmute!(raw);
    seal(&mut bytes, CRC_AT);
    bytes
}

#[test]
fn plans_of_all_sizes_are_valid_and_waste_little() {
    let shapes = [
        shape(),
        Shape {
            segments_per_section: 3,
            sections_per_zone: 2,
            ..shape()
        },
        Shape {
            nids: Some(1000),
            ..shape()
        },
    ];
    for blocks in [
        33 * MIB,
        40 * MIB,
        100 * MIB + 7,
        1024 * MIB,
        1 << 32,
        BLOCKS_MAX,
        u64::MAX,
    ] {
        for shape in &shapes {
            let planned = Superblock::plan(blocks, shape).unwrap();
            assert_eq!(
                Superblock::parse(&planned.encode()).unwrap(),
                planned,
                "{blocks}"
            );
            let section = u64::from(SEGMENT_BLOCKS) * u64::from(shape.segments_per_section);
            let left = planned.blocks - planned.main_end();
            assert!(left < 2 * section, "{blocks}: {left} blocks are left");
            let is_large = blocks > 64 * u64::from(SEGMENT_BLOCKS);
            assert!(!is_large || planned.main_start % 512 == 0, "{blocks}");
            assert!(
                planned.capacity() * 6 >= planned.content_blocks(),
                "{blocks}"
            );
        }
    }
}

#[test]
fn one_block_less_than_the_least_is_too_small() {
    let shapes = [
        shape(),
        Shape {
            segments_per_section: 64,
            ..shape()
        },
        Shape {
            segments_per_section: u16::MAX,
            ..shape()
        },
        Shape {
            nids: Some(u32::MAX),
            ..shape()
        },
    ];
    for shape in &shapes {
        let least = Superblock::plan(0, shape).unwrap_err().blocks_min;
        let planned = Superblock::plan(least, shape).unwrap();
        assert_eq!(Superblock::parse(&planned.encode()).unwrap(), planned);
        let error = Superblock::plan(least - 1, shape).unwrap_err();
        assert_eq!(
            error,
            TooSmall {
                blocks: least - 1,
                blocks_min: least
            }
        );
    }
    assert_eq!(
        Superblock::plan(0, &shape()).unwrap_err().blocks_min,
        32 * MIB
    );
}

#[test]
fn what_a_shape_says_is_held_to_its_bounds() {
    let odd = Shape {
        segments_per_section: 0,
        sections_per_zone: 0,
        slots_max: 99,
        nids: Some(0),
        label: "ä".repeat(40),
        ..shape()
    };
    let planned = Superblock::plan(40 * MIB, &odd).unwrap();
    let parsed = Superblock::parse(&planned.encode()).unwrap();
    assert_eq!(
        (parsed.segments_per_section, parsed.sections_per_zone),
        (1, 1)
    );
    assert_eq!((parsed.slots_max, parsed.nids), (32, 16));
    assert_eq!(parsed.label, "ä".repeat(32));
    assert_eq!(
        decode_label(&encode_label(&format!("a{}", "ä".repeat(40))))
            .unwrap()
            .len(),
        63
    );
    assert_eq!(decode_label(&encode_label("a\0b")).unwrap(), "a");
}

#[test]
fn blocks_are_found_in_their_segments() {
    let planned = planned();
    let last = planned.segments - 1;
    assert_eq!(
        planned.locate(planned.segment_start(last) + 510),
        Some((last, 510))
    );
    assert_eq!(planned.locate(planned.main_start), Some((0, 0)));
    let outside = [
        0,
        planned.main_start - 1,
        planned.segment_start(last) + 511,
        planned.main_end(),
        u64::MAX,
    ];
    for block in outside {
        assert_eq!(planned.locate(block), None, "{block}");
    }
}

#[test]
fn broken_rules_are_named() {
    let broken: [Broken<RawSuperblock>; 20] = [
        ("no log", |raw| raw.magic[0] = 0),
        ("256 bytes", |raw| raw.bytes = 255.into()),
        ("incompatible features 0x40", |raw| raw.incompat = 64.into()),
        ("blocks of 2^13", |raw| raw.block_bits = 13),
        ("segments of 2^8", |raw| raw.segment_bits = 8),
        ("not UTF-8", |raw| raw.label[0] = 0xff),
        ("behind its end", |raw| raw.label[63] = b'x'),
        ("2^40", |raw| raw.blocks = (BLOCKS_MAX + 1).into()),
        ("without segments", |raw| {
            raw.segments_per_section = 0.into()
        }),
        ("without sections", |raw| raw.sections_per_zone = 0.into()),
        ("whole sections", |raw| raw.segments_per_section = 2.into()),
        ("whole sections", |raw| raw.segments = 0.into()),
        ("the root", |raw| raw.nids = 1.into()),
        ("1 to 32", |raw| raw.slots_max = 33),
        ("are reserved", |raw| {
            raw.reserved_segments = u32::MAX.into()
        }),
        ("few blocks for the segments", |raw| {
            raw.sit_blocks = 0.into()
        }),
        ("few blocks for the segments", |raw| {
            raw.bst_blocks = 1.into()
        }),
        ("few blocks for the nids", |raw| raw.nids = u32::MAX.into()),
        ("must hold", |raw| raw.checkpoint_blocks = 1.into()),
        ("can need", |raw| {
            raw.checkpoint_blocks = (raw.checkpoint_blocks.get() + 200).into()
        }),
    ];
    for (word, break_it) in broken {
        let fault = Superblock::parse(&forged(break_it))
            .unwrap_err()
            .to_string();
        assert!(fault.contains(word), "{word}: {fault}");
    }
}

#[test]
fn areas_do_not_overlap_and_lie_within_the_device() {
    let broken: [Broken<RawSuperblock>; 8] = [
        ("checkpoint packs", |raw| raw.checkpoint_start = 1.into()),
        ("segment table", |raw| raw.sit_start = u64::MAX.into()),
        ("segment table", |raw| raw.sit_blocks = 60_000.into()),
        ("block state table", |raw| raw.bst_start = raw.sit_start),
        ("node address table", |raw| raw.nat_start = 5.into()),
        ("main area", |raw| {
            raw.main_start = (raw.main_start.get() - 1).into()
        }),
        ("main area", |raw| raw.main_start = (u64::MAX - 5).into()),
        ("main area", |raw| {
            raw.blocks = (raw.blocks.get() - 512).into()
        }),
    ];
    for (area, break_it) in broken {
        let fault = Superblock::parse(&forged(break_it))
            .unwrap_err()
            .to_string();
        assert!(fault.contains(area), "{area}: {fault}");
    }
}

#[test]
fn areas_may_lie_in_any_order() {
    let planned = planned();
    let bytes = forged(|raw| {
        // Where the segment table was, the node address table, and the other way round.
        raw.nat_start = planned.sit_start.into();
        raw.sit_start = (planned.main_start - 2 * u64::from(planned.sit_blocks)).into();
        raw.bst_start = (planned.sit_start + 2 * u64::from(planned.nat_blocks)).into();
    });
    Superblock::parse(&bytes).unwrap();
}

#[test]
fn a_log_of_another_size_keeps_its_segments_and_its_tables_until_they_are_written() {
    let shapes = [
        shape(),
        Shape {
            segments_per_section: 4,
            ..shape()
        },
    ];
    let sizes = [40, 41, 80, 1000, 1003, 300, 64, 47, 5000, 40, 60];
    for shape in &shapes {
        let mut now = Superblock::plan(48 * MIB, shape).unwrap();
        let (mut done, mut moved) = (0, 0);
        for blocks in sizes.map(|mib| mib * MIB) {
            let Some(new) = now.resized(blocks, 100) else {
                continue;
            };
            assert_eq!(Superblock::parse(&new.encode()).unwrap(), new);
            assert_eq!(new.main_start, now.main_start);
            assert_eq!((new.blocks, new.nids >= 100), (blocks, true));
            let (old_tables, tables) = (now.tables(), new.tables());
            let is_apart = tables.start >= old_tables.end || tables.end <= old_tables.start;
            assert!(is_apart || tables == old_tables, "{blocks}");
            let kept = now.main_start..now.main_end().min(new.main_end());
            assert!(
                tables.start >= kept.end || tables.end <= kept.start,
                "{blocks}"
            );
            let lost = blocks - new.main_end().max(tables.end);
            assert!(lost <= 512 * 4 + old_tables.end - old_tables.start);
            done += 1;
            moved += u32::from(tables != old_tables);
            now = new;
        }
        assert!(done > 7 && moved > 4, "{done} done, {moved} moved");
        assert_eq!(now.resized(now.blocks + 1, 0), None);
        assert_eq!(now.resized(31 * MIB, 0), None);
        assert_eq!(now.resized(BLOCKS_MAX + 1, 0), None);
    }
}

#[test]
fn the_newer_copy_counts_if_it_is_whole() {
    let old = planned();
    let new = Superblock {
        generation: 2,
        ..planned()
    };
    let (old_bytes, new_bytes) = (old.encode(), new.encode());
    assert_eq!(Superblock::choose(&old_bytes, &new_bytes).unwrap(), new);
    assert_eq!(Superblock::choose(&new_bytes, &old_bytes).unwrap(), new);
    let mut torn = new_bytes;
    torn[200] ^= 1;
    assert_eq!(Superblock::choose(&old_bytes, &torn).unwrap(), old);
    assert_eq!(Superblock::choose(&torn, &old_bytes).unwrap(), old);
    let fault = Superblock::choose(&torn, &[0; SUPERBLOCK_BYTES]).unwrap_err();
    assert!(
        matches!(fault, Fault::Corrupt(Corrupt::SuperblockChecksum { .. })),
        "{fault}"
    );
    let unknown = forged(|raw| {
        raw.generation = 3.into();
        raw.incompat = 64.into();
    });
    let fault = Superblock::choose(&old_bytes, &unknown).unwrap_err();
    assert_eq!(fault, Unsupported::Incompat(64).into());
}

#[test]
fn unknown_features_forbid_what_they_say() {
    let bytes = forged(|raw| {
        raw.ro_compat = 3.into();
        raw.compat = 4.into();
    });
    let parsed = Superblock::parse(&bytes).unwrap();
    assert_eq!(parsed.check_writable(), Err(Unsupported::RoCompat(2)));
    assert_eq!(parsed.encode(), bytes);
    assert_eq!(planned().check_writable(), Ok(()));
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let mut bytes = planned().encode();
    for at in 0..SUPERBLOCK_BYTES {
        bytes[at] ^= 0x40;
        assert!(Superblock::parse(&bytes).is_err(), "byte {at}");
        bytes[at] ^= 0x40;
    }
}
