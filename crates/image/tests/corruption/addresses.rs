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

fn plain_at(start_lo: u32, start_hi: u16) -> Fixture {
    Fixture::read("lz4hc-extended").extended("data/noise", |inode| {
        inode.i_format = 1.into();
        inode.i_u = start_lo.into();
        inode.i_nb = start_hi.into();
    })
}

#[test]
fn high_parts_of_an_address_count_whatever_the_features() {
    let image = plain_at(3, 1);
    let sb = image.open().unwrap().superblock().clone();
    assert!(!sb.has_48bit());
    let address = (1 << 32 | 3) << sb.block_bits;
    let at = Location::Device { device: 0, address };
    let size = image.inode("data/noise").size;
    let place = data(&image, "data/noise", 0);
    assert_eq!(image.extents("data/noise")[0].source, Source::Raw(at));
    let fault = Corrupt::OutOfBounds {
        what: "it",
        end: address + size,
        of: "the image",
        size: image.bytes.len() as u64,
    };
    refused(image.content("data/noise"), place, fault);
}

#[test]
fn holes_have_an_address_of_all_ones() {
    let hole = plain_at(u32::MAX, u16::MAX);
    assert_eq!(hole.extents("data/noise")[0].source, Source::Hole);
    assert!(hole.content("data/noise").unwrap().iter().all(|&b| b == 0));
    // With a zero in the high part it is an address like others, but not one of this image.
    let high = plain_at(u32::MAX, 0);
    let place = data(&high, "data/noise", 0);
    refused_as(high.content("data/noise"), place, out_of_bounds);
    // The high part of a compact inode is its link count, unless it says otherwise.
    let compact = |format: u16, i_nb: u16| {
        Fixture::read("plain").compact("data/noise", |inode| {
            inode.i_format = format.into();
            inode.i_u = u32::MAX.into();
            inode.i_nb = i_nb.into();
        })
    };
    for hole in [compact(0, 1), compact(1 << 4, u16::MAX)] {
        assert_eq!(hole.extents("data/noise")[0].source, Source::Hole);
    }
    let high = compact(1 << 4, 1);
    let place = data(&high, "data/noise", 0);
    refused_as(high.content("data/noise"), place, out_of_bounds);
}
