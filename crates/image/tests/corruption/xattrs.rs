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

/// Returns what `xattrs/one` has when this is what follows the header of its region.
fn with_entries(entries: &[u8]) -> Fixture {
    let image = Fixture::read("plain");
    let at = image.xattr_offset("xattrs/one");
    let mut region = [0; 36]; // the name filter excludes nothing
    region[12..12 + entries.len()].copy_from_slice(entries);
    image.put(at, &region).sealed()
}

#[test]
fn room_for_attributes_to_come_is_no_attribute() {
    // As `mkfs.erofs --root-xattr-isize` leaves it: behind the attributes, or there are none.
    let entry = b"\x01\x01\x01\x00cv\0\0";
    let none = with_entries(b"");
    assert_eq!(none.xattrs("xattrs/one").unwrap(), []);
    let behind = with_entries(entry);
    let in_front = with_entries(&[&[0; 8], &entry[..]].concat());
    for image in [behind, in_front] {
        let xattrs = image.xattrs("xattrs/one").unwrap();
        let (name, value) = (b"user.c".to_vec(), b"v".to_vec());
        assert_eq!(xattrs, [Xattr { name, value }]);
        assert_eq!(image.faults(), [] as [&str; 0]);
    }
    assert_eq!(none.faults(), [] as [&str; 0]);
}

#[test]
fn names_of_acls_are_whole_and_others_are_not() {
    let image = Fixture::read("plain");
    let offset = image.xattr_offset("xattrs/one") + 12;
    for (index, len) in [(2, 30), (3, 31)] {
        let image = image.clone().put(offset + 1, &[index]);
        let fault = Corrupt::XattrNameLength { offset: 12, len };
        refused(image.xattrs("xattrs/one"), at(&image, "xattrs/one"), fault);
    }
    // A prefix alone.
    let image = with_entries(b"\x00\x01\x01\x00v\0\0\0");
    let fault = Corrupt::XattrNameLength { offset: 12, len: 5 };
    refused(image.xattrs("xattrs/one"), at(&image, "xattrs/one"), fault);
}

#[test]
fn inline_attributes_come_before_shared_ones_of_the_same_name() {
    let image = Fixture::read("plain");
    let shared = image.xattr_offset("xattrs/shared-a");
    assert_ne!(image.bytes[shared + 4], 0, "it has a shared attribute");
    let id = image.bytes[shared + 12..shared + 16].to_vec();
    let name = image.xattrs("xattrs/shared-a").unwrap().pop().unwrap().name;
    let suffix = name.strip_prefix(b"user.").unwrap();
    let entry = [&[suffix.len() as u8, 1, 3, 0], suffix, b"own"].concat();
    let image = with_entries(&[id, entry].concat());
    let at = image.xattr_offset("xattrs/one");
    let image = image.put(at + 4, &[1]);
    let opened = image.open().unwrap();
    let value = opened.xattr(&image.inode("xattrs/one"), &name).unwrap();
    assert_eq!(value.as_deref(), Some(&b"own"[..]));
    let shown = String::from_utf8(name).unwrap();
    check_finds(
        &image,
        &format!("(/xattrs/one): the attribute `{shown}` is there twice"),
    );
}

#[test]
fn shared_attributes_in_a_metabox_that_is_not_there() {
    let image = Fixture::read("plain").superblock(|sb| {
        sb.feature_compat |= Compat::SHARED_EA_IN_METABOX.bits();
    });
    refused(
        image.xattrs("xattrs/shared-a"),
        at(&image, "xattrs/shared-a"),
        Corrupt::NoMetabox { nid: Nid(1 << 63) },
    );
}

#[test]
fn shared_attributes_that_are_nothing_but_zeros() {
    let (image, block) = Fixture::read("plain").append(&[0; 4]);
    let first = image.open().unwrap().superblock().xattr_block;
    let offset = image.xattr_offset("xattrs/shared-a") + 12;
    let id = (block - first) * (4096 / 4);
    let image = image.put(offset, &id.to_le_bytes());
    let fault = Corrupt::XattrNameIndex {
        offset: 0,
        index: 0,
    };
    let place = at(&image, "xattrs/shared-a");
    refused(image.xattrs("xattrs/shared-a"), place, fault);
}

/// An image in which `xattrs/one` has one attribute more: of a namespace, with the rest of a name and a value.
fn with_value(index: u8, rest: &[u8], value: &[u8]) -> Fixture {
    let image = Fixture::read("plain");
    let mut inode = file_inode(DataLayout::FlatPlain, 0);
    let mut entry = [
        &[rest.len() as u8, index][..],
        &(value.len() as u16).to_le_bytes(),
        rest,
        value,
    ]
    .concat();
    entry.resize(entry.len().next_multiple_of(4), 0);
    inode.i_xattr_icount = anteros_format::xattr::icount_for(entry.len())
        .unwrap()
        .into();
    image
        .with_inode("xattrs/one", &[inode.as_bytes(), &[0; 12], &entry].concat())
        .sealed()
}

#[test]
fn access_lists_that_the_kernel_does_not_give() {
    const OWNER: [u8; 8] = [1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff];
    const USER: [u8; 8] = [2, 0, 6, 0, 0xe8, 3, 0, 0];
    let list = |entries: &[&[u8]]| [&[2, 0, 0, 0][..], &entries.concat()].concat();
    let words = "the value of the attribute `system.posix_acl_";
    for index in [2, 3] {
        assert_eq!(
            with_value(index, b"", &list(&[&OWNER, &USER])).faults(),
            [""; 0]
        );
        for value in [
            vec![],
            vec![1, 0, 0, 0],
            list(&[]),
            list(&[&OWNER[..7]]),
            list(&[&[3, 0, 6, 0, 0, 0, 0, 0]]),
            list(&[&[1, 0, 6, 0, 0, 0, 0, 0]]),
            list(&[&OWNER, &[2, 0, 6, 0, 0xff, 0xff, 0xff, 0xff]]),
        ] {
            check_finds(&with_value(index, b"", &value), words);
        }
    }
}

#[test]
fn capabilities_that_the_kernel_does_not_give() {
    let caps = |version: u32, len: usize, root: u8| {
        let mut value = version.to_le_bytes().to_vec();
        value.resize(len, 1);
        if len == 24 {
            value[20..].copy_from_slice(&[root, 0, 0, 0]);
        }
        with_value(6, b"capability", &value)
    };
    for sound in [
        caps(0x0200_0000, 20, 0),
        caps(0x0200_0001, 20, 0),
        caps(0x0300_0001, 24, 5),
    ] {
        assert_eq!(sound.faults(), [""; 0]);
    }
    for (version, len, root) in [
        (0x0200_0000, 24, 5),
        (0x0300_0000, 20, 0),
        (0x0100_0000, 12, 0),
        (0x0200_0002, 20, 0),
        (0x0300_0000, 24, 0),
        (0, 2, 0),
    ] {
        let value = caps(version, len.max(4), root);
        check_finds(
            &value,
            "the value of the attribute `security.capability` is ",
        );
    }
}
