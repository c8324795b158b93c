//! What a hostile image may try, rule by rule: one field of a sound image is changed, and the entry
//! that meets it must refuse it by the rule that is broken.

mod common;

use std::fmt::Debug;

use anteros_core::{Algorithm, FileKind};
use anteros_format::extent::RawExtent;
use anteros_format::features::{Compat, Incompat};
use anteros_format::lcluster::RawFullIndex;
use anteros_format::superblock::{RawDeviceSlot, SUPERBLOCK_OFFSET};
use anteros_format::zmap::{ADVISE_EXTENTS, RawMapHeader};
use anteros_format::{Corrupt, EXTENT_BYTES_MAX, Fault, Nid, Unsupported};
use anteros_image::{Error, OpenOptions, Place, Result, Source};
use common::Fixture;
use zerocopy::IntoBytes;

/// Asserts that something is refused, where and by which rule.
#[track_caller]
fn refused<T: Debug>(result: Result<T>, place: Place, fault: impl Into<Fault>) {
    let found = match result.expect_err("it is refused") {
        Error::Corrupt { place, fault } => (place, Fault::Corrupt(fault)),
        Error::Unsupported { place, fault } => (place, Fault::Unsupported(fault)),
        other => panic!("{other}"),
    };
    assert_eq!(found, (place, fault.into()));
}

/// As [`refused`], where the fault has numbers that the layout of the image decides.
#[track_caller]
fn refused_as<T: Debug>(result: Result<T>, place: Place, rule: impl Fn(&Corrupt) -> bool) {
    match result.expect_err("it is refused") {
        Error::Corrupt { place: at, fault } => {
            assert_eq!(at, place, "{fault}");
            assert!(rule(&fault), "{fault:?}");
        }
        other => panic!("{other}"),
    }
}

/// Asserts that opening is refused.
#[track_caller]
fn open_refused(fixture: &Fixture, place: Place, fault: impl Into<Fault>) {
    refused(fixture.open().map(|_| ()), place, fault);
}

/// Asserts that a check finds something whose words contain these.
#[track_caller]
fn check_finds(fixture: &Fixture, words: &str) {
    let faults = fixture.faults();
    assert!(
        faults.iter().any(|fault| fault.contains(words)),
        "{words:?} is not in {faults:#?}"
    );
}

fn data(fixture: &Fixture, path: &str, offset: u64) -> Place {
    Place::Data {
        nid: fixture.inode(path).nid,
        offset,
    }
}

fn out_of_bounds(fault: &Corrupt) -> bool {
    matches!(fault, Corrupt::OutOfBounds { .. })
}

mod superblock {
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
        let image =
            Fixture::read("lz4hc-64k").superblock(|sb| sb.available_compr_algs = 0x11.into());
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
            let image =
                Fixture::read(name).superblock(|sb| sb.xattr_prefix_start = u32::MAX.into());
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
                given: 0
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
}

mod addresses {
    use super::*;

    #[test]
    fn node_ids_that_overflow() {
        let nid = Nid(u64::MAX >> 1);
        let image = Fixture::read("48bit").superblock(|sb| sb.rootnid_8b = nid.0.into());
        let fault = Corrupt::AddressOverflow { what: "the inode" };
        refused(image.open().unwrap().root(), Place::Inode(nid), fault);
    }

    #[test]
    fn node_ids_beyond_the_image() {
        let image = Fixture::read("plain").superblock(|sb| sb.rootnid_2b = u16::MAX.into());
        refused_as(
            image.open().unwrap().root(),
            Place::Inode(Nid(0xffff)),
            out_of_bounds,
        );
        let image = Fixture::read("plain").superblock(|sb| sb.meta_blkaddr = u32::MAX.into());
        let root = image.open().unwrap().superblock().root;
        refused_as(
            image.open().unwrap().root(),
            Place::Inode(root),
            out_of_bounds,
        );
    }

    #[test]
    fn node_ids_in_a_metabox_that_is_not_there() {
        let nid = Nid(1 << 63 | 40);
        let image = Fixture::read("plain");
        let index = image.entry_index("data", "hello");
        let image = image.dirent("data", index, |entry| entry.nid = nid.0.into());
        refused(
            image.find("data/hello"),
            Place::Inode(nid),
            Corrupt::NoMetabox { nid },
        );
    }

    #[test]
    fn node_ids_beyond_the_metabox() {
        let image = Fixture::read("metabox").open().unwrap();
        let nid = Nid(1 << 63 | 1 << 20);
        refused_as(image.inode(nid), Place::Inode(nid), out_of_bounds);
    }

    #[test]
    fn data_beyond_the_image() {
        let image = Fixture::read("plain").compact("data/words", |inode| inode.i_u = 0xffff.into());
        refused_as(
            image.content("data/words"),
            data(&image, "data/words", 0),
            out_of_bounds,
        );
        check_finds(&image, "its data reaches byte 0x1000");
    }

    #[test]
    fn data_beyond_the_address_space() {
        let image = Fixture::read("lz4hc-extended");
        let image = image.extended("data/noise", |inode| {
            inode.i_format = 1.into();
            inode.i_size = (1 << 62).into();
        });
        let fault = Corrupt::AddressOverflow { what: "its data" };
        let nid = image.inode("data/noise").nid;
        refused(image.try_extents("data/noise"), Place::Inode(nid), fault);
    }
}

mod inodes {
    use super::*;

    #[track_caller]
    fn refused_inode(image: &Fixture, nid: Nid, fault: impl Into<Fault>) {
        refused(image.open().unwrap().inode(nid), Place::Inode(nid), fault);
        // A check says so as well, and where the inode has its name.
        check_finds(image, &format!("inode {nid} (/data/size-511): "));
    }

    fn size_511(
        change: impl FnOnce(&mut anteros_format::inode::RawCompactInode),
    ) -> (Fixture, Nid) {
        let image = Fixture::read("plain");
        let nid = image.inode("data/size-511").nid;
        (image.compact("data/size-511", change), nid)
    }

    #[test]
    fn reserved_format_bits() {
        let (image, nid) = size_511(|inode| inode.i_format |= 0x8000);
        let i_format = 0x8004;
        refused_inode(&image, nid, Unsupported::InodeFormat { i_format });
    }

    #[test]
    fn unknown_layouts() {
        for layout in 5..8u16 {
            let (image, nid) = size_511(|inode| inode.i_format = (layout << 1).into());
            let i_format = layout << 1;
            refused_inode(&image, nid, Unsupported::InodeFormat { i_format });
        }
    }

    #[test]
    fn modes_of_no_kind() {
        let (image, nid) = size_511(|inode| inode.i_mode = 0o150_644.into());
        refused_inode(&image, nid, Corrupt::Mode { mode: 0o150_644 });
    }

    #[test]
    fn negative_sizes() {
        let size = 1 << 63;
        let image = Fixture::read("lz4hc-extended");
        let nid = image.inode("data/size-511").nid;
        let image = image.extended("data/size-511", |inode| inode.i_size = size.into());
        refused_inode(
            &image,
            nid,
            Corrupt::Size {
                size,
                kind: FileKind::Regular,
            },
        );
    }

    #[test]
    fn symlink_sizes() {
        for size in [0, 4097, u32::MAX] {
            let image = Fixture::read("plain");
            let nid = image.inode("links/soft").nid;
            let image = image.compact("links/soft", |inode| inode.i_size = size.into());
            let fault = Corrupt::Size {
                size: size.into(),
                kind: FileKind::Symlink,
            };
            refused(image.open().unwrap().inode(nid), Place::Inode(nid), fault);
        }
    }

    #[test]
    fn symlink_targets_with_nul() {
        let image = Fixture::read("plain");
        let at = image.data_offset("links/soft");
        let image = image.put(at + 3, &[0]);
        let inode = image.inode("links/soft");
        let target = image.open().unwrap().read_link(&inode);
        refused(target, Place::Inode(inode.nid), Corrupt::SymlinkNul);
        check_finds(&image, "the target of the symbolic link contains NUL");
    }

    #[test]
    fn nanoseconds() {
        let nanos = u32::MAX;
        let image = Fixture::read("lz4hc-extended");
        let nid = image.inode("data/size-511").nid;
        let image = image.extended("data/size-511", |inode| inode.i_mtime_nsec = nanos.into());
        refused_inode(&image, nid, Corrupt::Nanoseconds { nanos });
    }

    #[test]
    fn xattr_regions_of_a_header_alone() {
        let (image, nid) = size_511(|inode| inode.i_xattr_icount = 1.into());
        refused_inode(&image, nid, Corrupt::XattrRegionEmpty);
    }

    #[test]
    fn inline_data_across_a_block() {
        let image =
            Fixture::read("plain").compact("data/size-511", |inode| inode.i_size = 4095.into());
        let inode = image.inode("data/size-511");
        let offset = image.inode_offset("data/size-511") as u64 + 32;
        let fault = Corrupt::InlineCrossesBlock { offset, len: 4095 };
        refused(image.map("data/size-511"), Place::Inode(inode.nid), fault);
        check_finds(&image, "(/data/size-511): 4095 bytes of inline data");
    }

    #[test]
    fn reserved_bytes() {
        let (image, _) = size_511(|inode| inode.i_reserved = 1.into());
        check_finds(&image, "(/data/size-511): reserved bytes are not zero");
    }
}

mod xattrs {
    use super::*;

    fn at(image: &Fixture, path: &str) -> Place {
        Place::Xattrs(image.inode(path).nid)
    }

    #[test]
    fn more_shared_ids_than_fit() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/one");
        let image = image.put(offset + 4, &[200]);
        let fault = Corrupt::XattrSharedCount {
            count: 200,
            region: 36,
        };
        refused(image.xattrs("xattrs/one"), at(&image, "xattrs/one"), fault);
        check_finds(&image, "(/xattrs/one): 200 shared xattrs do not fit");
    }

    #[test]
    fn entries_beyond_the_region() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/one") + 12;
        let image = image.put(offset + 2, &[0xff, 0xff]);
        let fault = Corrupt::XattrEntry {
            offset: 12,
            region: 36,
        };
        refused(image.xattrs("xattrs/one"), at(&image, "xattrs/one"), fault);
    }

    #[test]
    fn shared_ids_outside_the_image() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/shared-a") + 12;
        let image = image.put(offset, &[0xff, 0xff, 0xff, 0xff]);
        refused_as(
            image.xattrs("xattrs/shared-a"),
            at(&image, "xattrs/shared-a"),
            out_of_bounds,
        );
        check_finds(&image, "(/xattrs/shared-a): it reaches byte");
    }

    #[test]
    fn prefixes_outside_the_table() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/one") + 12;
        let image = image.put(offset + 1, &[0x85]);
        let fault = Corrupt::XattrPrefixIndex { index: 5, count: 0 };
        refused(image.xattrs("xattrs/one"), at(&image, "xattrs/one"), fault);
    }

    #[test]
    fn unknown_name_indexes() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/one") + 12;
        let image = image.put(offset + 1, &[9]);
        let fault = Corrupt::XattrNameIndex {
            offset: 12,
            index: 9,
        };
        refused(image.xattrs("xattrs/one"), at(&image, "xattrs/one"), fault);
    }

    #[test]
    fn names_longer_than_255_bytes_with_their_prefix() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/large") + 12;
        let value_bytes = image.xattrs("xattrs/large").unwrap()[0].value.len() as u16 - 250;
        let image = image
            .put(offset, &[255])
            .put(offset + 2, &value_bytes.to_le_bytes());
        let fault = Corrupt::XattrNameLength {
            offset: 12,
            len: 260,
        };
        refused(
            image.xattrs("xattrs/large"),
            at(&image, "xattrs/large"),
            fault,
        );
    }

    #[test]
    fn names_with_nul() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/one") + 12;
        let image = image.put(offset + 5, &[0]);
        let fault = Corrupt::XattrNameNul { offset: 12 };
        refused(image.xattrs("xattrs/one"), at(&image, "xattrs/one"), fault);
    }

    #[test]
    fn names_that_their_filter_excludes() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/one");
        let image = image.put(offset, &[0xff; 4]);
        check_finds(
            &image,
            "(/xattrs/one): the name filter excludes the attribute `user.comment`",
        );
    }

    #[test]
    fn names_that_are_there_twice() {
        let image = Fixture::read("plain");
        let offset = image.xattr_offset("xattrs/prefixed") + 12;
        let suffix = b"org.example.fixture.third";
        let third = image.bytes[offset..]
            .windows(suffix.len())
            .position(|w| w == suffix)
            .unwrap();
        let image = image.put(offset + third + 20, b"first");
        check_finds(
            &image,
            "the attribute `user.org.example.fixture.first` is there twice",
        );
    }
}

mod directories {
    use super::*;

    fn block(image: &Fixture, path: &str) -> Place {
        Place::Directory {
            nid: image.inode(path).nid,
            block: 0,
        }
    }

    #[test]
    fn entry_tables_of_no_possible_length() {
        for nameoff in [0, 6, 13, 4096, 65532] {
            let image =
                Fixture::read("plain").dirent("many", 0, |entry| entry.nameoff = nameoff.into());
            let fault = Corrupt::DirentTable {
                nameoff,
                block_len: 4096,
            };
            refused(image.read_dir("many"), block(&image, "many"), fault);
            check_finds(&image, "the name table begins at");
        }
    }

    #[test]
    fn names_outside_the_block() {
        let image = Fixture::read("plain").dirent("many", 3, |entry| entry.nameoff = 5000.into());
        let place = block(&image, "many");
        refused_as(image.read_dir("many"), place, |fault| {
            matches!(fault, Corrupt::DirentName { index: 2, .. })
        });
    }

    #[test]
    fn names_that_run_backwards() {
        let image = Fixture::read("plain");
        let first = image.name_offset("many", 0) - image.data_offset("many");
        let image = image.dirent("many", 3, |entry| entry.nameoff = (first as u16).into());
        let place = block(&image, "many");
        refused_as(image.read_dir("many"), place, |fault| {
            matches!(fault, Corrupt::DirentName { index: 2, .. })
        });
    }

    #[test]
    fn names_that_are_too_long() {
        let image = Fixture::read("plain");
        let beyond = image.name_offset("many", 8) - image.data_offset("many");
        let image = image.dirent("many", 3, |entry| entry.nameoff = (beyond as u16).into());
        let place = block(&image, "many");
        let fault = Corrupt::DirentNameLength { index: 2, len: 360 };
        refused(image.read_dir("many"), place, fault);
    }

    #[test]
    fn names_that_are_empty() {
        let image = Fixture::read("plain");
        let last = image.read_dir("data").unwrap().len() - 1;
        let at = image.name_offset("data", last);
        let image = image.put(at, &[0]);
        let fault = Corrupt::DirentNameLength {
            index: last,
            len: 0,
        };
        refused(image.read_dir("data"), block(&image, "data"), fault);
    }

    #[test]
    fn names_with_slash_or_nul() {
        for (byte, shown) in [(b'/', "/ello"), (0, "\\x00ello")] {
            let image = Fixture::read("plain");
            let index = image.entry_index("data", "hello");
            let at = image.name_offset("data", index);
            let image = image.put(at, &[byte]);
            let fault = Corrupt::DirentNameByte {
                index,
                name: shown.into(),
            };
            refused(image.read_dir("data"), block(&image, "data"), fault);
        }
    }

    #[test]
    fn names_out_of_order_or_twice() {
        for name in ["aello", "empty"] {
            let image = Fixture::read("plain");
            let index = image.entry_index("data", "hello");
            assert_eq!(image.entry_index("data", "empty"), index - 1);
            let at = image.name_offset("data", index);
            let image = image.put(at, name.as_bytes());
            let (name, previous) = (name.into(), "empty".into());
            let fault = Corrupt::DirentOrder {
                index,
                name,
                previous,
            };
            refused(image.read_dir("data"), block(&image, "data"), fault);
            check_finds(&image, "does not sort after `empty`");
        }
    }

    #[test]
    fn unknown_types() {
        for file_type in [0, 8, 255] {
            let image =
                Fixture::read("plain").dirent("data", 2, |entry| entry.file_type = file_type);
            let fault = Corrupt::DirentType {
                index: 2,
                file_type,
            };
            refused(image.read_dir("data"), block(&image, "data"), fault);
        }
    }

    #[test]
    fn types_other_than_the_inode() {
        let image = Fixture::read("plain");
        let index = image.entry_index("data", "hello");
        let image = image.dirent("data", index, |entry| entry.file_type = 5);
        let nid = image.inode("data/hello").nid;
        let words = format!("the entry `hello` says fifo, but inode {nid} is a file");
        check_finds(&image, &words);
    }

    #[test]
    fn dots_that_are_missing_or_lead_elsewhere() {
        let image = Fixture::read("plain");
        let at = image.name_offset("data", 0);
        let renamed = image.clone().put(at, b"-");
        check_finds(&renamed, "(/data): the entry `.` is missing");
        let elsewhere = image.clone().dirent("data", 0, |entry| entry.nid += 1);
        check_finds(&elsewhere, "(/data): the entry `.` leads to inode");
        let elsewhere = image.dirent("data", 1, |entry| entry.nid += 1);
        check_finds(&elsewhere, "(/data): the entry `..` leads to inode");
    }

    #[test]
    fn sizes_that_are_not_plausible() {
        let size = 1 << 50;
        let image = Fixture::read("lz4hc-extended");
        let nid = image.inode("many").nid;
        let image = image.extended("many", |inode| inode.i_size = size.into());
        let fault = Corrupt::Size {
            size,
            kind: FileKind::Directory,
        };
        refused(image.open().unwrap().inode(nid), Place::Inode(nid), fault);
    }
}

mod graph {
    use super::*;

    #[test]
    fn directory_loops() {
        let image = Fixture::read("plain");
        let root = image.open().unwrap().superblock().root;
        let index = image.entry_index("deep/1/2", "3");
        let image = image.dirent("deep/1/2", index, |entry| entry.nid = root.0.into());
        check_finds(
            &image,
            &format!("the entry `3` is a further name of directory {root}"),
        );
        common::read_all(&image.open().unwrap());
    }

    #[test]
    fn hard_linked_directories() {
        let image = Fixture::read("plain");
        let nid = image.inode("data").nid;
        let index = image.entry_index("deep", "1");
        let image = image.dirent("deep", index, |entry| entry.nid = nid.0.into());
        check_finds(&image, &format!("is a further name of directory {nid}"));
    }

    #[test]
    fn link_counts() {
        let image = Fixture::read("plain").compact("data/size-511", |inode| inode.i_nb = 5.into());
        check_finds(
            &image,
            "(/data/size-511): the link count is 5, but the number of names 1",
        );
        let image = Fixture::read("plain").compact("deep", |inode| inode.i_nb = 2.into());
        check_finds(
            &image,
            "(/deep): the link count is 2, but should be 3, by the subdirectories",
        );
    }

    #[test]
    fn inodes_of_two_kinds() {
        let image = Fixture::read("plain");
        let fifo = image.inode("nodes/fifo").nid;
        let index = image.entry_index("data", "lines");
        let image = image.dirent("data", index, |entry| entry.nid = fifo.0.into());
        check_finds(
            &image,
            &format!("the entry `lines` says file, but inode {fifo} is a fifo"),
        );
    }
}

mod full_indexes {
    use super::*;

    /// One extent of seven lclusters in a pcluster of four blocks.
    const BIG: &str = "lz4hc-full-16k";
    /// Extents in pclusters of one block.
    const SMALL: &str = "ztailpacking-full";
    const FILE: &str = "data/words";

    #[test]
    fn distances_back_of_zero_or_beyond_the_start() {
        for delta in [0, 3, 2047] {
            let image =
                Fixture::read(BIG).index(FILE, 2, |entry| entry.di_u = (delta | 1 << 16).into());
            let place = data(&image, FILE, 2 * 4096);
            let inode = image.inode(FILE);
            let opened = image.open().unwrap();
            let map = opened.map(&inode).unwrap();
            let fault = Corrupt::LookBack {
                lcn: 2,
                delta: delta.into(),
            };
            refused(opened.extent_at(&inode, &map, 2 * 4096), place, fault);
            check_finds(
                &image,
                &format!("lcluster 2: {delta} lclusters back lies no head"),
            );
        }
    }

    #[test]
    fn distances_ahead_of_zero_or_beyond_the_next_head() {
        let image = Fixture::read(BIG).index(FILE, 1, |entry| entry.di_u = (1 << 11 | 4).into());
        refused(
            image.try_extents(FILE),
            data(&image, FILE, 0),
            Corrupt::LookAhead { lcn: 1 },
        );
        let image = Fixture::read(BIG).index(FILE, 3, |entry| entry.di_u = (3 | 9 << 16).into());
        check_finds(
            &image,
            "lcluster 3: 9 lclusters ahead lies beyond the next head, lcluster 6",
        );
    }

    #[test]
    fn files_that_begin_inside_an_extent() {
        let nonhead = Fixture::read(BIG).index(FILE, 0, |entry| entry.di_advise = 2.into());
        assert!(nonhead.try_extents(FILE).is_err());
        let late = Fixture::read(BIG).index(FILE, 0, |entry| entry.di_clusterofs = 5.into());
        refused(
            late.try_extents(FILE),
            data(&late, FILE, 0),
            Corrupt::FirstLcluster,
        );
    }

    #[test]
    fn heads_outside_their_lcluster() {
        let image = Fixture::read(SMALL).index(FILE, 1, |entry| entry.di_clusterofs = 4096.into());
        let fault = Corrupt::ClusterOffset {
            lcn: 1,
            clusterofs: 4096,
            lcluster_bytes: 4096,
        };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn pclusters_of_no_or_too_many_blocks() {
        for blocks in [0, 257, 2047] {
            let image = Fixture::read(BIG).index(FILE, 1, |entry| {
                entry.di_u = (1 << 11 | blocks | 5 << 16).into();
            });
            let fault = Corrupt::PclusterBlocks { lcn: 0, blocks };
            refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
        }
    }

    #[test]
    fn pcluster_sizes_where_none_belong() {
        let stray = |entry: &mut RawFullIndex| {
            entry.di_u = (1 << 11 | 2 | 1 << 16).into();
        };
        // Without big pclusters, anywhere.
        let image = Fixture::read(SMALL).index("data/lines", 1, stray);
        let fault = Corrupt::PclusterBlocksStray { lcn: 1 };
        refused(
            image.try_extents("data/lines"),
            data(&image, "data/lines", 0),
            fault,
        );
        // With them, elsewhere than behind a head.
        let image = Fixture::read(BIG).index(FILE, 3, stray);
        check_finds(
            &image,
            "lcluster 3: the size of a pcluster is recorded where none belongs",
        );
    }

    #[test]
    fn pcluster_sizes_that_are_missing() {
        let image = Fixture::read(BIG).index(FILE, 1, |entry| entry.di_u = (1 | 5 << 16).into());
        let fault = Corrupt::PclusterBlocksMissing { lcn: 0 };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn plain_extents_longer_than_their_pcluster() {
        let image = Fixture::read(BIG).index(FILE, 0, |entry| entry.di_advise = 0.into());
        let fault = Corrupt::PlainLength {
            offset: 0,
            len: 28131,
            encoded: 4096,
        };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn extents_longer_than_12_mib() {
        let size = EXTENT_BYTES_MAX as u32 + 4096;
        let image = Fixture::read(BIG)
            .compact(FILE, |inode| inode.i_size = size.into())
            .index(FILE, 1, |entry| {
                entry.di_u = (1 << 11 | 4 | 0xffff << 16).into()
            });
        let fault = Corrupt::ExtentLength {
            offset: 0,
            len: size.into(),
        };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn pclusters_over_the_superblock() {
        let image = Fixture::read(BIG).index(FILE, 0, |entry| entry.di_u = 0.into());
        let fault = Corrupt::PclusterAtZero { offset: 0 };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn streams_that_are_not_right_aligned() {
        let image = Fixture::read(SMALL).superblock(|sb| {
            sb.feature_incompat &= !Incompat::ZERO_PADDING.bits();
        });
        refused(
            image.try_extents(FILE),
            data(&image, FILE, 0),
            Unsupported::NoZeroPadding,
        );
    }

    #[test]
    fn second_algorithms_without_the_feature() {
        let image = Fixture::read(SMALL).index(FILE, 0, |entry| entry.di_advise = 3.into());
        refused(
            image.try_extents(FILE),
            data(&image, FILE, 0),
            Corrupt::Head2Feature,
        );
    }

    #[test]
    fn algorithms_that_are_unknown_or_not_listed() {
        let image = Fixture::read(BIG).map_header(FILE, |header| header.h_algorithmtype = 1);
        let fault = Corrupt::AlgorithmNotListed {
            name: Algorithm::Lzma,
        };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
        let image = Fixture::read(BIG);
        let nid = image.inode(FILE).nid;
        let image = image.map_header(FILE, |header| header.h_algorithmtype = 4);
        refused(
            image.map(FILE),
            Place::Inode(nid),
            Unsupported::Algorithm { id: 4 },
        );
    }

    #[test]
    fn big_pclusters_without_the_feature() {
        let image = Fixture::read(BIG).superblock(|sb| {
            sb.feature_incompat &= !Incompat::COMPR_CFGS.bits();
        });
        let place = Place::Inode(image.inode(FILE).nid);
        refused(image.map(FILE), place, Corrupt::BigPclusterFeature);
    }

    #[test]
    fn inline_tails_that_are_fragments_too() {
        let image = Fixture::read(SMALL).map_header(FILE, |header| header.h_advise |= 0x28);
        let place = Place::Inode(image.inode(FILE).nid);
        refused(image.map(FILE), place, Corrupt::Advise { advise: 0x28 });
    }

    #[test]
    fn lclusters_larger_than_a_block() {
        let image = Fixture::read(SMALL).map_header(FILE, |header| header.h_clusterbits = 1);
        let place = Place::Inode(image.inode(FILE).nid);
        refused(
            image.map(FILE),
            place,
            Unsupported::LclusterBits { bits: 13 },
        );
    }

    #[test]
    fn inline_tails_across_a_block() {
        let image = Fixture::read(SMALL);
        let image = image.map_header("data/lines", |header| {
            header.h_fragmentoff = (4096 << 16).into()
        });
        let place = data(&image, "data/lines", 0);
        refused_as(image.try_extents("data/lines"), place, |fault| {
            matches!(fault, Corrupt::InlinePcluster { len: 4096, .. })
        });
    }

    #[test]
    fn indexes_beyond_the_image() {
        let image = Fixture::read(BIG).compact(FILE, |inode| inode.i_size = u32::MAX.into());
        check_finds(&image, "(/data/words): its metadata reaches byte");
    }

    #[test]
    fn pclusters_larger_than_their_extent() {
        let image = Fixture::read(BIG).compact(FILE, |inode| inode.i_size = 12288.into());
        check_finds(
            &image,
            "the extent at 0 is compressed to 16384 bytes, more than its 12288",
        );
    }
}

mod compact_indexes {
    use super::*;

    #[test]
    fn big_pcluster_flags_that_differ() {
        let image = Fixture::read("lz4hc-64k").map_header("data/words", |header| {
            header.h_advise &= !4;
        });
        let place = Place::Inode(image.inode("data/words").nid);
        refused_as(image.map("data/words"), place, |fault| {
            matches!(fault, Corrupt::BigPclusterFlags { .. })
        });
    }

    /// Changes the 16 bits of an entry in the 4-byte packs at the beginning.
    fn entry(image: Fixture, path: &str, lcn: usize, value: u16) -> Fixture {
        let base = image.map_offset(path) + 8;
        let initial = (32 - base % 32) / 4 % 8;
        assert!(lcn < initial, "lcluster {lcn} lies in a larger pack");
        image.put(base + lcn / 2 * 8 + lcn % 2 * 2, &value.to_le_bytes())
    }

    #[test]
    fn heads_outside_their_lcluster() {
        let image = entry(Fixture::read("lz4-512"), "data/words", 1, 1 << 12 | 515);
        let fault = Corrupt::ClusterOffset {
            lcn: 1,
            clusterofs: 515,
            lcluster_bytes: 512,
        };
        refused(
            image.try_extents("data/words"),
            data(&image, "data/words", 0),
            fault,
        );
    }

    #[test]
    fn distances_back_beyond_the_start() {
        let image = entry(Fixture::read("lz4-512"), "data/words", 0, 2 << 12 | 7);
        let place = data(&image, "data/words", 0);
        let fault = Corrupt::LookBack { lcn: 0, delta: 7 };
        refused(image.try_extents("data/words"), place, fault);
    }

    #[test]
    fn pcluster_sizes_where_none_belong() {
        let image = entry(
            Fixture::read("lz4-512"),
            "data/words",
            1,
            2 << 12 | 1 << 11 | 1,
        );
        let fault = Corrupt::PclusterBlocksStray { lcn: 1 };
        refused(
            image.try_extents("data/words"),
            data(&image, "data/words", 0),
            fault,
        );
    }

    #[test]
    fn indexes_beyond_the_image() {
        let image =
            Fixture::read("lz4").compact("data/words", |inode| inode.i_size = u32::MAX.into());
        check_finds(&image, "(/data/words): its metadata reaches byte");
    }
}

mod encoded_extents {
    use super::*;

    /// Has records of 4 bytes.
    const FIXED: &str = "48bit";
    const FILE: &str = "data/words";

    /// An image in which the file has two records of 16 bytes.
    fn variable(change: impl FnOnce(&mut RawMapHeader, &mut [RawExtent; 2])) -> Fixture {
        let image = Fixture::read(FIXED);
        let plen = image.bytes[image.map_offset(FILE) + 16..][..8].to_vec();
        let plen = |i: usize| u32::from_le_bytes(plen[4 * i..][..4].try_into().unwrap());
        let mut header = RawMapHeader {
            h_fragmentoff: 2.into(),
            h_advise: (ADVISE_EXTENTS | 2 << 1).into(),
            h_algorithmtype: 0,
            h_clusterbits: 0,
        };
        let extents = image.extents(FILE);
        let mut records = [0, 1].map(|i| match extents[i].source {
            Source::Pcluster(pcluster) => RawExtent {
                plen: plen(i).into(),
                pstart_lo: (pcluster.location.address() as u32).into(),
                pstart_hi: 0.into(),
                lstart_lo: (extents[i].offset as u32).into(),
                lstart_hi: 0.into(),
                reserved: [0; 12],
            },
            other => panic!("{other:?}"),
        });
        change(&mut header, &mut records);
        let records = records
            .iter()
            .flat_map(|record| &record.as_bytes()[..16])
            .copied();
        let tail: Vec<u8> = header
            .as_bytes()
            .iter()
            .copied()
            .chain([0; 8])
            .chain(records)
            .collect();
        image.move_inode(FILE, &tail)
    }

    #[test]
    fn records_of_16_bytes_are_sound() {
        let sound = Fixture::read(FIXED);
        let image = variable(|_, _| ()).sealed();
        assert_eq!(image.faults(), [] as [&str; 0]);
        assert_eq!(image.content(FILE).unwrap(), sound.content(FILE).unwrap());
    }

    fn first_length(image: Fixture, plen: u32) -> Fixture {
        let at = image.map_offset(FILE) + 16;
        image.put(at, &plen.to_le_bytes())
    }

    #[test]
    fn lengths_that_mean_nothing() {
        // A zero behind the mask, reserved bits, a plain partial reference, more than 1 MiB.
        for plen in [0x0200_0000, 0x1020_0000 | 4096, 0x0800_1000, 0x1010_0001] {
            let image = first_length(Fixture::read(FIXED), plen);
            refused(
                image.try_extents(FILE),
                data(&image, FILE, 0),
                Corrupt::ExtentPlen { plen },
            );
        }
    }

    #[test]
    fn unknown_algorithms() {
        let image = first_length(Fixture::read(FIXED), 0x5000_1000);
        let fault = Unsupported::Algorithm { id: 4 };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
        let image = first_length(Fixture::read(FIXED), 0x2000_1000);
        let fault = Corrupt::AlgorithmNotListed {
            name: Algorithm::Lzma,
        };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn addresses_that_overflow() {
        let image = Fixture::read(FIXED);
        let at = image.map_offset(FILE) + 8;
        let image = image.put(at, &0xffff_ffff_ffdc_ffedu64.to_le_bytes());
        let fault = Corrupt::AddressOverflow {
            what: "its pcluster",
        };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn addresses_outside_the_image() {
        let image = Fixture::read(FIXED);
        let at = image.map_offset(FILE) + 8;
        let image = image.put(at, &(1u64 << 40).to_le_bytes());
        refused_as(image.content(FILE), data(&image, FILE, 0), out_of_bounds);
        check_finds(&image, "its pcluster reaches byte 0x100");
    }

    #[test]
    fn file_offsets_that_do_not_ascend_from_zero() {
        let first = variable(|_, records| records[0].lstart_lo = 5.into());
        let fault = Corrupt::ExtentOrder {
            index: 0,
            start: 5,
            lower: 0,
            upper: 0,
        };
        refused(first.try_extents(FILE), data(&first, FILE, 0), fault);
        for start in [0, 28131, u32::MAX] {
            let image = variable(|_, records| records[1].lstart_lo = start.into());
            check_finds(
                &image,
                &format!("encoded extent 1 begins at {start}, which is not between"),
            );
        }
    }

    #[test]
    fn more_records_than_bytes_or_none() {
        for count in [0, u32::MAX] {
            let image = variable(|header, _| header.h_fragmentoff = count.into());
            let nid = image.inode(FILE).nid;
            let fault = Corrupt::ExtentCount {
                count: count.into(),
                size: 28131,
            };
            refused(image.map(FILE), Place::Inode(nid), fault);
        }
    }

    #[test]
    fn plain_extents_longer_than_their_pcluster() {
        let image = first_length(Fixture::read(FIXED), 100);
        let fault = Corrupt::PlainLength {
            offset: 0,
            len: 16384,
            encoded: 100,
        };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn pclusters_larger_than_their_extent() {
        let image = first_length(Fixture::read(FIXED), 4 << 28 | 20_000);
        check_finds(
            &image,
            "the extent at 0 is compressed to 20000 bytes, more than its 16384",
        );
    }
}

mod fragments {
    use super::*;

    const FILE: &str = "data/words";

    #[test]
    fn fragments_outside_the_packed_inode() {
        let image = Fixture::read("fragments");
        let opened = image.open().unwrap();
        let packed = opened.inode(opened.superblock().packed.unwrap()).unwrap();
        let image = image.map_header(FILE, |header| header.h_fragmentoff = u32::MAX.into());
        let (len, packed_size) = (28131, packed.size);
        refused_as(
            image.content(FILE),
            data(&image, FILE, 0),
            |fault| matches!(fault, Corrupt::Fragment { offset: 0xffff_ffff, packed_size: size, .. } if *size == packed_size),
        );
        check_finds(
            &image,
            &format!("a fragment of {len} bytes at 4294967295 lies outside"),
        );
    }

    #[test]
    fn fragments_without_packed_inode() {
        let image = Fixture::read("fragments").superblock(|sb| sb.packed_nid = 0.into());
        refused(
            image.content(FILE),
            data(&image, FILE, 0),
            Corrupt::FragmentWithoutPacked,
        );
        check_finds(
            &image,
            "(/data/words): a fragment, but the image has no packed inode",
        );
    }

    #[test]
    fn packed_inodes_that_are_no_files() {
        let image = Fixture::read("fragments");
        let root = image.open().unwrap().superblock().root;
        let image = image.superblock(|sb| sb.packed_nid = root.0.into());
        let fault = Corrupt::SpecialKind {
            which: "fragments",
            kind: FileKind::Directory,
        };
        open_refused(&image, Place::Inode(root), fault);
    }

    #[test]
    fn packed_inodes_with_holes() {
        let image = Fixture::read("fragments");
        let hole = image.inode("data/hello").nid;
        // A plain file that is all hole, in place of the packed inode.
        let image = image.compact("data/hello", |inode| {
            inode.i_format = 0.into();
            inode.i_u = u32::MAX.into();
            inode.i_size = (1 << 20).into();
        });
        let image = image.superblock(|sb| sb.packed_nid = hole.0.into());
        let place = Place::Data {
            nid: hole,
            offset: 0,
        };
        refused(image.content(FILE), place, Corrupt::SpecialHole);
        check_finds(&image, "a hole in the packed inode or the metabox");
    }

    #[test]
    fn fragments_in_the_packed_inode() {
        let image = Fixture::read("fragments");
        let packed = image.open().unwrap().superblock().packed.unwrap();
        let image = image.packed_map_header(|header| header.h_advise |= 0x20);
        open_refused(&image, Place::Inode(packed), Corrupt::FragmentInPacked);
        let image = Fixture::read("all-fragments");
        let packed = image.open().unwrap().superblock().packed.unwrap();
        let image = image.packed_map_header(|header| header.h_clusterbits |= 0x80);
        open_refused(&image, Place::Inode(packed), Corrupt::FragmentInPacked);
    }
}

mod chunks {
    use super::*;

    const FILE: &str = "data/words";

    #[test]
    fn unknown_chunk_formats() {
        let image = Fixture::read("chunks");
        let nid = image.inode(FILE).nid;
        let image = image.compact(FILE, |inode| inode.i_u = 0x80.into());
        let fault = Unsupported::ChunkFormat { format: 0x80 };
        refused(image.open().unwrap().inode(nid), Place::Inode(nid), fault);
    }

    #[test]
    fn devices_beyond_the_table() {
        let image = Fixture::read("blobdev");
        let at = image.open().unwrap().superblock().device_table_offset as usize;
        let size = image.extra.as_ref().unwrap().len() as u32;
        // Two devices, so that ids have two bits; both are the same file.
        let slot = |slot: &mut RawDeviceSlot| {
            slot.blocks_lo = (size / 512).into();
            slot.uniaddr_lo = 0.into();
        };
        let table = image.chunk_table_offset(FILE);
        let mut image = image.edit(at, slot).put(table + 2, &[3, 0]);
        image.extra_count = 2;
        let image = image
            .superblock(|sb| sb.extra_devices = 2.into())
            .edit(at + 128, slot);
        let fault = Corrupt::ChunkDevice {
            chunk: 0,
            device: 3,
            devices: 2,
        };
        refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    }

    #[test]
    fn chunks_outside_their_device() {
        for (name, at) in [("chunks", 0), ("chunk-indexes", 4), ("blobdev", 4)] {
            let image = Fixture::read(name);
            let table = image.chunk_table_offset(FILE);
            let image = image.put(table + at, &[0xff, 0xff, 0xff, 0x7f]);
            refused_as(image.content(FILE), data(&image, FILE, 0), out_of_bounds);
            check_finds(&image, "its data reaches byte 0x");
        }
    }

    #[test]
    fn tables_beyond_the_image() {
        let image = Fixture::read("chunks").compact(FILE, |inode| inode.i_size = u32::MAX.into());
        check_finds(&image, "(/data/words): its metadata reaches byte");
        assert!(image.try_extents(FILE).is_err());
    }
}

mod codecs {
    use super::*;

    const FILE: &str = "data/words";
    const CODECS: [(&str, Algorithm); 4] = [
        ("lz4hc-full-16k", Algorithm::Lz4),
        ("lzma", Algorithm::Lzma),
        ("deflate", Algorithm::Deflate),
        ("zstd", Algorithm::Zstd),
    ];

    fn pcluster_bytes(image: &Fixture) -> usize {
        match image.extents(FILE)[0].source {
            Source::Pcluster(pcluster) => pcluster.bytes as usize,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pclusters_of_zeros() {
        for (name, _) in CODECS {
            let image = Fixture::read(name);
            let (at, bytes) = (image.data_offset(FILE), pcluster_bytes(&image));
            let image = image.put(at, &vec![0; bytes]);
            let fault = Corrupt::Padding { found: bytes };
            refused(image.content(FILE), data(&image, FILE, 0), fault);
            check_finds(
                &image,
                "(/data/words): the padding in front of the compressed stream is",
            );
        }
    }

    /// What decoding says of a file after a change of its bytes.
    #[track_caller]
    fn undecodable(image: &Fixture, algorithm: Algorithm) {
        match image.content(FILE).unwrap_err() {
            Error::Decode { place, fault } => {
                assert_eq!((place, fault.algorithm), (data(image, FILE, 0), algorithm));
            }
            other => panic!("{other}"),
        }
        check_finds(image, &format!("(/data/words): {algorithm} stream of"));
    }

    #[test]
    fn garbage() {
        for (name, algorithm) in CODECS {
            let image = Fixture::read(name);
            let (at, bytes) = (image.data_offset(FILE), pcluster_bytes(&image));
            undecodable(&image.put(at, &vec![0xff; bytes]), algorithm);
        }
    }

    #[test]
    fn streams_longer_than_their_extent() {
        for (name, algorithm) in CODECS {
            let image = Fixture::read(name);
            assert_eq!(image.extents(FILE).len(), 1);
            undecodable(
                &image.compact(FILE, |inode| inode.i_size = 28130.into()),
                algorithm,
            );
        }
    }

    #[test]
    fn streams_shorter_than_their_extent() {
        let image = Fixture::read("lz4hc-full-16k")
            .compact(FILE, |inode| inode.i_size = 28132.into())
            .index(FILE, 6, |entry| entry.di_clusterofs += 1);
        undecodable(&image, Algorithm::Lz4);
    }

    #[test]
    fn lzma_properties_out_of_range() {
        let image = Fixture::read("lzma");
        let at = image.data_offset(FILE);
        let padding = image.bytes[at..]
            .iter()
            .position(|&byte| byte != 0)
            .unwrap();
        // The inverse of 225 and more; 224 would be lc 8, lp 4, pb 4, of which lc + lp is too much.
        for properties in [!224u8, !225, 1] {
            undecodable(
                &image.clone().put(at + padding, &[properties]),
                Algorithm::Lzma,
            );
        }
    }
}

mod bombs {
    use super::*;
    use std::sync::atomic::AtomicBool;

    use anteros_image::{CheckOptions, check};

    #[test]
    fn sparse_terabytes_are_no_work() {
        let image = Fixture::read("lz4hc-extended").extended("data/noise", |inode| {
            inode.i_format = 1.into();
            inode.i_u = u32::MAX.into();
            inode.i_nb = u16::MAX.into();
            inode.i_size = (1 << 40).into();
        });
        assert_eq!(image.clone().sealed().faults(), [] as [&str; 0]);
        assert_eq!(image.extents("data/noise").len(), 1);
    }

    #[test]
    fn directories_that_claim_terabytes() {
        let image = Fixture::read("lz4hc-extended").extended("many", |inode| {
            inode.i_format = 1.into();
            inode.i_u = u32::MAX.into();
            inode.i_nb = u16::MAX.into();
            inode.i_size = (1 << 40).into();
        });
        check_finds(
            &image,
            "the rest of the directory was not read, 64 of its blocks being",
        );
    }

    #[test]
    fn extents_on_one_pcluster_are_decoded_once() {
        let mut image = Fixture::read("ztailpacking-full");
        let whole = image.check().data_bytes;
        let block = image.extents("data/words")[0].source;
        let Source::Pcluster(first) = block else {
            panic!("{block:?}")
        };
        let block = (first.location.address() / 4096) as u32;
        // The second extent is a front part of the first one, as deduplication makes them.
        let lcn = (image.extents("data/words")[1].offset / 4096) as usize;
        image = image.index("data/words", lcn, |entry| {
            entry.di_advise |= 1 << 15;
            entry.di_u = block.into();
        });
        let second = image.extents("data/words")[1].len;
        assert_eq!(image.check().data_bytes, whole - second);
        assert_eq!(image.faults(), [] as [&str; 0]);
    }

    #[test]
    fn budgets_end_with_a_word() {
        let image = Fixture::read("lz4").open().unwrap();
        for work_bytes_max in [0, 1000, 10_000, 100_000] {
            let options = CheckOptions {
                work_bytes_max,
                ..CheckOptions::default()
            };
            let report = check(&image, &options, &(), &AtomicBool::new(false));
            let words = format!("image: the rest was not checked: {work_bytes_max} bytes of work");
            assert!(
                report
                    .findings
                    .iter()
                    .any(|f| f.to_string().starts_with(&words))
            );
            assert!(!report.is_clean());
        }
    }

    #[test]
    fn findings_beyond_the_most_are_counted() {
        let mut image = Fixture::read("lz4");
        image.bytes.truncate(image.bytes.len() / 2);
        let all = image.check().findings.len();
        let options = CheckOptions {
            findings_max: 1,
            ..CheckOptions::default()
        };
        let report = check(
            &image.open().unwrap(),
            &options,
            &(),
            &AtomicBool::new(false),
        );
        assert_eq!(report.findings.len(), 1);
        assert!(report.findings_omitted as usize >= all - 1);
    }

    #[test]
    fn cancelled_checks_say_so() {
        let image = Fixture::read("lz4").open().unwrap();
        let report = check(
            &image,
            &CheckOptions::default(),
            &(),
            &AtomicBool::new(true),
        );
        assert!(report.cancelled && !report.is_clean());
    }
}

mod overlap {
    use super::*;

    #[test]
    fn pclusters_that_overlap_without_being_the_same() {
        let image = Fixture::read("lz4hc-full-16k");
        let block = (image.data_offset("data/words") / 4096) as u32;
        let image = image.index("data/words", 0, |entry| entry.di_u = (block + 1).into());
        check_finds(&image, "shares 4096 bytes at 0x13000 with data of inode");
    }

    #[test]
    fn data_over_metadata() {
        let image = Fixture::read("plain");
        let block = (image.inode_offset("many") / 4096) as u32;
        let image = image.compact("data/noise", |inode| inode.i_u = block.into());
        check_finds(&image, "shares ");
    }

    #[test]
    fn data_over_the_superblock() {
        let image = Fixture::read("plain").compact("data/words", |inode| inode.i_u = 0.into());
        check_finds(&image, "shares");
    }

    #[test]
    fn inodes_inside_of_others() {
        let image = Fixture::read("plain");
        let large = image.inode("xattrs/large").nid.0;
        let index = image.entry_index("data", "hello");
        let inside = image.inode_offset("xattrs/large") + 1024;
        let hello = image.inode_offset("data/hello");
        let bytes: Vec<u8> = image.bytes[hello..hello + 48].to_vec();
        let image = image
            .put(inside, &bytes)
            .dirent("data", index, |entry| entry.nid = (large + 32).into());
        check_finds(&image, "shares 45 bytes");
    }
}
