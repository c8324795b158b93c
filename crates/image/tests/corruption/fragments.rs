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
fn packed_inodes_that_are_empty() {
    let image = Fixture::read("fragments");
    let empty = image.inode("data/hello").nid;
    let image = image.compact("data/hello", |inode| inode.i_size = 0.into());
    let image = image.superblock(|sb| sb.packed_nid = empty.0.into());
    assert!(!image.open().unwrap().packs_large_extents());
    let fault = |fault: &Corrupt| matches!(fault, Corrupt::Fragment { packed_size: 0, .. });
    refused_as(image.content(FILE), data(&image, FILE, 0), fault);
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

#[test]
fn metaboxes_that_are_no_files() {
    let image = Fixture::read("metabox");
    let metabox = image.open().unwrap().superblock().metabox.unwrap();
    let image = image.edit_inode(metabox, |inode| inode.i_mode = 0o010_644.into());
    let fault = Corrupt::SpecialKind {
        which: "metadata",
        kind: FileKind::Fifo,
    };
    open_refused(&image, Place::Inode(metabox), fault);
}

#[test]
fn metaboxes_that_claim_too_much() {
    let image = Fixture::read("metabox");
    let metabox = image.open().unwrap().superblock().metabox.unwrap();
    let device_bytes = image.bytes.len() as u64;
    let size = device_bytes * 1024;
    let image = image.edit_inode(metabox, |inode| inode.i_size = (size as u32).into());
    let fault = Corrupt::MetaboxSize { size, device_bytes };
    open_refused(&image, Place::Inode(metabox), fault);
}

#[test]
fn metaboxes_with_holes() {
    let image = Fixture::read("metabox");
    let nid = image.open().unwrap().superblock().metabox.unwrap();
    let image = image.edit_inode(nid, |inode| {
        inode.i_format = 0.into();
        inode.i_u = u32::MAX.into();
    });
    let place = Place::Data { nid, offset: 0 };
    refused(image.open().unwrap().root(), place, Corrupt::SpecialHole);
    check_finds(&image, "a hole in the packed inode or the metabox");
}

#[test]
fn packed_inodes_without_the_feature_mean_nothing() {
    let image = Fixture::read("plain").superblock(|sb| sb.packed_nid = (1 << 40).into());
    assert_eq!(image.open().unwrap().superblock().packed, None);
    assert_eq!(image.sealed().faults(), [] as [&str; 0]);
    let image = Fixture::read("fragments").superblock(|sb| {
        sb.feature_incompat &= !Incompat::FRAGMENTS.bits();
    });
    refused(
        image.content(FILE),
        data(&image, FILE, 0),
        Corrupt::FragmentWithoutPacked,
    );
}

/// More than any other extent may have.
const LONG: usize = 13 << 20;

/// An image whose packed inode has this content, uncompressed.
fn packed(content: &[u8]) -> Fixture {
    let (image, block) = Fixture::read("fragments").append(content);
    let mut inode = file_inode(DataLayout::FlatPlain, content.len() as u64);
    inode.i_u = block.into();
    let (image, block) = image.append(inode.as_bytes());
    let nid = image.nid_at(block);
    image.superblock(|sb| sb.packed_nid = nid.0.into())
}

fn long_content() -> Vec<u8> {
    let words = (0..LONG as u32 / 4 + 1).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes());
    words.take(LONG + 3).collect()
}

/// Returns what a look at both ends of a file gives.
fn ends(image: &Fixture) -> [Vec<u8>; 2] {
    let opened = image.open().unwrap();
    let inode = image.inode(FILE);
    let map = opened.map(&inode).unwrap();
    [0, LONG as u64 - 100].map(|offset| {
        let mut bytes = vec![0; 100];
        opened.read(&inode, &map, offset, &mut bytes).unwrap();
        bytes
    })
}

#[test]
fn fragments_are_as_long_as_the_packed_inode() {
    let content = long_content();
    let expected = [&content[3..103], &content[LONG - 97..LONG + 3]];
    let image = packed(&content);

    let inode = file_inode(DataLayout::CompressedFull, LONG as u64);
    let header = (3u64 | 1 << 63).to_le_bytes();
    let whole = [inode.as_bytes(), &header, &[0; 8]].concat();
    let whole = image.clone().with_inode(FILE, &whole);
    assert_eq!(ends(&whole), expected);
    assert_eq!(whole.content(FILE).unwrap(), content[3..]);

    let header = RawMapHeader {
        h_fragmentoff: 3.into(),
        h_advise: ADVISE_FRAGMENT_PCLUSTER.into(),
        h_algorithmtype: 0,
        h_clusterbits: 0,
    };
    let lclusters = LONG as u32 / 4096;
    // The distances to the head and to the end are longer than an entry can tell.
    let nonhead = |lcn: u32| Lcluster::NonHead {
        back: lcn,
        ahead: lclusters - lcn,
        pcluster_blocks: None,
    };
    let head = Lcluster::Head {
        kind: HeadKind::Head1,
        clusterofs: 0,
        block: 0,
        partial: false,
    };
    let entries = std::iter::once(head).chain((1..lclusters).map(nonhead));
    let index = entries.flat_map(|entry| entry.encode_full().as_bytes().to_vec());
    let index: Vec<u8> = index.collect();
    let tail = [inode.as_bytes(), header.as_bytes(), &[0; 8], &index].concat();
    let tail = image.with_inode(FILE, &tail);
    assert_eq!(tail.extents(FILE).len(), 1);
    assert_eq!(ends(&tail), expected);
    assert_eq!(tail.content(FILE).unwrap(), content[3..]);
}
