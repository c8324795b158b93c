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
    let image = Fixture::read("lz4").compact("data/words", |inode| inode.i_size = u32::MAX.into());
    check_finds(&image, "(/data/words): its metadata reaches byte");
}

/// An image with blocks of 8 KiB that holds nothing but a compressed inode, and its node id.
fn large_blocks(advise: u16) -> (Fixture, Nid) {
    const BLOCK: usize = 8192;
    let mut sb = RawSuperblock::new_zeroed();
    sb.magic = MAGIC.into();
    sb.blkszbits = 13;
    sb.feature_incompat = Incompat::ZERO_PADDING.bits().into();
    let mut inode = file_inode(DataLayout::CompressedCompact, 20 * BLOCK as u64);
    inode.i_u = 1.into();
    let header = RawMapHeader {
        h_fragmentoff: 0.into(),
        h_advise: advise.into(),
        h_algorithmtype: 0,
        h_clusterbits: 0,
    };
    let image = Fixture {
        bytes: vec![0; 3 * BLOCK],
        extra: None,
        extra_count: 0,
    };
    let image = image
        .put(SUPERBLOCK_OFFSET as usize, sb.as_bytes())
        .put(2 * BLOCK, inode.as_bytes())
        .put(2 * BLOCK + inode.as_bytes().len(), header.as_bytes());
    let nid = image.nid_at(2);
    (image, nid)
}

#[test]
fn small_packs_of_lclusters_that_are_too_large_for_them() {
    let map = |(image, nid): (Fixture, Nid)| {
        let opened = image.open().unwrap();
        let inode = opened.inode(nid).unwrap();
        (opened.map(&inode).map(|_| ()), Place::Inode(nid))
    };
    let (refusal, place) = map(large_blocks(ADVISE_COMPACTED_2B));
    refused(refusal, place, Unsupported::LclusterBits { bits: 13 });
    map(large_blocks(0)).0.unwrap();
}
