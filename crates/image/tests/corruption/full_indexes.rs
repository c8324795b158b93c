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
        "the extent at 0 is compressed to 16384 bytes, more blocks than its 12288 bytes fill",
    );
}

#[test]
fn plain_extents_that_are_partial() {
    let image = Fixture::read(BIG).index(FILE, 0, |entry| entry.di_advise = (1 << 15).into());
    let fault = Corrupt::PartialPlain { offset: 0 };
    refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
}

#[test]
fn extents_of_one_pcluster_and_two_lengths_are_told_apart() {
    let image = second_extent_from_first(Fixture::read(SMALL));
    let [first, second] = [0, 1].map(|i| image.extents(FILE)[i]);
    assert!(second.len < first.len);
    let first_bytes = &image.content(FILE).unwrap()[..first.len as usize];
    let inode = image.inode(FILE);
    for long_first in [true, false] {
        let opened = image.open().unwrap();
        let map = opened.map(&inode).unwrap();
        // Parts of extents, which therefore are kept; the end of each is what the other lacks.
        let read_end = |extent: &Extent| {
            let mut bytes = [0; 16];
            let offset = extent.end() - 16;
            opened.read(&inode, &map, offset, &mut bytes).unwrap();
            let end = extent.len as usize;
            assert_eq!(bytes, first_bytes[end - 16..end], "{long_first}");
        };
        let order = if long_first {
            [first, second]
        } else {
            [second, first]
        };
        order.iter().for_each(read_end);
        order.iter().for_each(read_end);
    }
}
