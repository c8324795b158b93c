use super::*;

const AT: Place = Place::Superblock;

#[test]
fn magic() {
    let image = Fixture::read("plain").superblock(|sb| sb.magic = 7.into());
    open_refused(&image, AT, Corrupt::Magic { found: 7 });
}

#[test]
fn block_size() {
    for bits in [0, 8, 17, 255] {
        let image = Fixture::read("plain").superblock(|sb| sb.blkszbits = bits);
        open_refused(&image, AT, Corrupt::BlockBits { bits });
    }
}

#[test]
fn extension_slots_beyond_the_block() {
    let image = Fixture::read("plain").superblock(|sb| sb.sb_extslots = 255);
    open_refused(
        &image,
        AT,
        Corrupt::SuperblockSize {
            slots: 255,
            block_bytes: 4096,
        },
    );
}

#[test]
fn directory_block_shift() {
    let image = Fixture::read("plain").superblock(|sb| sb.dirblkbits = 1);
    open_refused(&image, AT, Corrupt::DirBlockBits { found: 1 });
}

#[test]
fn unknown_incompatible_feature() {
    let bits = 1 << 30;
    let image = Fixture::read("plain").superblock(|sb| sb.feature_incompat |= bits);
    open_refused(&image, AT, Unsupported::Incompat { bits });
}

#[test]
fn checksum_unless_told_otherwise() {
    let image = Fixture::read("plain").superblock(|sb| sb.uuid[0] ^= 1);
    match image.open_with(OpenOptions::default()).err().unwrap() {
        Error::Corrupt {
            place: AT,
            fault: Corrupt::Checksum { stored, computed },
        } => {
            assert_ne!(stored, computed);
        }
        other => panic!("{other}"),
    }
    check_finds(&image, "superblock: the superblock checksum is");
}

#[test]
fn algorithms() {
    let image = Fixture::read("lz4hc-64k").superblock(|sb| sb.available_compr_algs = 0x11.into());
    open_refused(&image, AT, Unsupported::Algorithms { bits: 0x11 });
}

#[test]
fn compression_configuration_too_short() {
    let image = Fixture::read("lzma").put(SUPERBLOCK_OFFSET as usize + 128, &[0, 0]);
    let fault = Corrupt::ComprCfgSize {
        name: Algorithm::Lzma,
        found: 0,
        needed: 14,
    };
    open_refused(&image, Place::ComprCfgs, fault);
}

#[test]
fn compression_configuration_out_of_range() {
    let cases: [(_, _, &[u8], _, _); 4] = [
        (
            "lz4hc-64k",
            Algorithm::Lz4,
            &[0, 0, 1, 1],
            "pcluster size in blocks",
            257,
        ),
        (
            "lzma",
            Algorithm::Lzma,
            &[0, 0, 0, 1],
            "dictionary size",
            1 << 24,
        ),
        ("deflate", Algorithm::Deflate, &[16], "window shift", 16),
        ("zstd", Algorithm::Zstd, &[0, 11], "window shift", 21),
    ];
    for (fixture, name, payload, field, value) in cases {
        let image = Fixture::read(fixture).put(SUPERBLOCK_OFFSET as usize + 130, payload);
        open_refused(
            &image,
            Place::ComprCfgs,
            Corrupt::ComprCfg { name, field, value },
        );
    }
}

#[test]
fn metabox_without_room_for_its_node_id() {
    let image = Fixture::read("metabox").superblock(|sb| sb.sb_extslots = 0);
    open_refused(&image, AT, Corrupt::MetaboxSuperblock { bytes: 128 });
}

#[test]
fn special_inodes_in_the_metabox() {
    let nid = Nid(1 << 63 | 5);
    let image = Fixture::read("fragments").superblock(|sb| sb.packed_nid = nid.0.into());
    open_refused(
        &image,
        AT,
        Corrupt::SpecialNid {
            which: "packed",
            nid,
        },
    );
    let image = Fixture::read("metabox");
    let image = image.put(SUPERBLOCK_OFFSET as usize + 128, &nid.0.to_le_bytes());
    open_refused(
        &image,
        AT,
        Corrupt::SpecialNid {
            which: "metabox",
            nid,
        },
    );
}

#[test]
fn too_many_xattr_prefixes() {
    let image = Fixture::read("xattr-prefix").superblock(|sb| sb.xattr_prefix_count = 129);
    open_refused(&image, AT, Corrupt::PrefixCount { count: 129 });
}

#[test]
fn digest_prefix_outside_the_table() {
    let image = Fixture::read("xattr-prefix").superblock(|sb| {
        sb.feature_compat |= Compat::ISHARE_XATTRS.bits();
        sb.ishare_xattr_prefix_id = 2;
    });
    open_refused(&image, AT, Corrupt::DigestPrefix { index: 2, count: 2 });
}

#[test]
fn nanoseconds() {
    let nanos = 1_000_000_000;
    let image = Fixture::read("plain").superblock(|sb| sb.fixed_nsec = nanos.into());
    open_refused(&image, AT, Corrupt::Nanoseconds { nanos });
}

#[test]
fn xattr_prefix_table_outside_the_image() {
    for name in ["xattr-prefix", "xattr-prefix-packed"] {
        let image = Fixture::read(name).superblock(|sb| sb.xattr_prefix_start = u32::MAX.into());
        refused_as(
            image.open().map(|_| ()),
            Place::XattrPrefixes,
            out_of_bounds,
        );
    }
}

#[test]
fn xattr_prefix_of_no_size_or_no_base() {
    let image = Fixture::read("xattr-prefix");
    let at = image.open().unwrap().superblock().xattr_prefix_offset as usize;
    let empty = image.clone().put(at, &[0, 0]);
    let fault = Corrupt::XattrPrefixSize { index: 0, size: 0 };
    open_refused(&empty, Place::XattrPrefixes, fault);
    let baseless = image.clone().put(at + 2, &[9]);
    let fault = Corrupt::XattrPrefixBase { index: 0, base: 9 };
    open_refused(&baseless, Place::XattrPrefixes, fault);
    let long = image.put(at, &[1, 1]);
    let fault = Corrupt::XattrPrefixSize {
        index: 0,
        size: 257,
    };
    open_refused(&long, Place::XattrPrefixes, fault);
}

#[test]
fn device_table_outside_the_image() {
    let image = Fixture::read("blobdev").superblock(|sb| sb.devt_slotoff = u16::MAX.into());
    refused_as(image.open().map(|_| ()), Place::DeviceTable, out_of_bounds);
}

#[test]
fn device_beyond_the_address_space() {
    let image = Fixture::read("blobdev");
    let at = image.open().unwrap().superblock().device_table_offset as usize;
    let image = image
        .superblock(|sb| sb.feature_incompat |= Incompat::FORTY_EIGHT_BIT.bits())
        .edit(at, |slot: &mut RawDeviceSlot| {
            slot.blocks_lo = u32::MAX.into();
            slot.blocks_hi = u16::MAX.into();
            slot.uniaddr_hi = u16::MAX.into();
        });
    // 512-byte blocks: 2 * 2^48 of them are 2^58 bytes, which is allowed but not there.
    match image.open().err().unwrap() {
        Error::DeviceSize {
            index: 1, needed, ..
        } => assert_eq!(needed, ((1 << 48) - 1) << 9),
        other => panic!("{other}"),
    }
}

#[test]
fn devices_that_are_missing_or_too_small() {
    let mut image = Fixture::read("blobdev");
    image.extra = image
        .extra
        .map(|bytes| bytes[..bytes.len() - 4096].to_vec());
    assert!(matches!(
        image.open().err(),
        Some(Error::DeviceSize { index: 1, .. })
    ));
    image.extra = None;
    assert!(matches!(
        image.open().err(),
        Some(Error::Devices {
            needed: 1,
            given: 0,
            ..
        })
    ));
}

#[test]
fn cut_off() {
    for len in [0, 1023, 1024, 1100, 1151] {
        let mut image = Fixture::read("plain");
        image.bytes.truncate(len);
        refused_as(image.open().map(|_| ()), AT, out_of_bounds);
    }
}

#[test]
fn root_that_is_no_directory() {
    let image = Fixture::read("plain");
    let nid = image.inode("data/hello").nid.0 as u16;
    let image = image.superblock(|sb| sb.rootnid_2b = nid.into());
    check_finds(&image, "the root is a file");
}

#[test]
fn totals_that_are_wrong() {
    let image = Fixture::read("plain").superblock(|sb| sb.inos += 1);
    check_finds(&image, "255 inodes are recorded, but 254 were found");
    let image = Fixture::read("plain").superblock(|sb| sb.blocks_lo += 1);
    check_finds(&image, "the image is cut off");
}

#[test]
fn labels_and_reserved_bytes() {
    let image = Fixture::read("lz4-512").superblock(|sb| sb.volume_name = [b'x'; 16]);
    check_finds(&image, "the volume name is not terminated by NUL");
    let image = Fixture::read("plain").superblock(|sb| sb.reserved2[3] = 1);
    check_finds(&image, "superblock: reserved bytes are not zero");
}

#[test]
fn devices_that_overlap() {
    let mut image = Fixture::read("blobdev");
    let sb = image.open().unwrap().superblock().clone();
    let at = sb.device_table_offset as usize;
    image.extra_count = 2;
    let slot = image.bytes[at..at + 128].to_vec();
    let image = image
        .put(at + 128, &slot)
        .superblock(|sb| sb.extra_devices = 2.into());
    let beyond = |start: u64, image: Fixture, index: usize| {
        image.edit(at + 128 * index, |slot: &mut RawDeviceSlot| {
            slot.uniaddr_lo = (start as u32).into();
        })
    };
    let image = beyond(sb.blocks, image, 0);
    check_finds(
        &beyond(sb.blocks + 1, image, 1),
        "extra devices 1 and 2 overlap in the unified address space",
    );
}

/// The kernel reads the table that the number promises, feature or not.
#[test]
fn prefixes_without_their_feature() {
    let image = Fixture::read("plain").superblock(|sb| sb.xattr_prefix_count = 3);
    check_finds(
        &image,
        "superblock: 3 long prefixes of attributes are recorded without the feature",
    );
}
