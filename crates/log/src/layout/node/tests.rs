use super::super::Broken;
use super::*;

fn attributes() -> Attributes {
    Attributes {
        kind: FileKind::Regular,
        perm: 0o4755,
        is_inline: true,
        is_launched: true,
        is_settled: true,
        is_own: true,
        nlink: 2,
        uid: 1000,
        gid: 100,
        size: 5,
        blocks: 1,
        atime: Timestamp {
            secs: -1,
            nanos: 999_999_999,
        },
        mtime: Timestamp {
            secs: 1 << 40,
            nanos: 1,
        },
        ctime: Timestamp::default(),
        btime: Timestamp { secs: 3, nanos: 4 },
        generation: 9,
        parent: 1,
        rdev: Rdev { major: 8, minor: 1 },
    }
}

fn inode() -> Inode {
    Inode {
        attributes: attributes(),
        xattr_nid: 0,
        xattrs: b"abc".to_vec(),
        inline: b"hello".to_vec(),
        nids: [1, 2, 3, 4, 5],
        entries: 0,
    }
}

fn header(kind: NodeKind) -> NodeHeader {
    NodeHeader {
        nid: 12,
        ino: 12,
        version: 3,
        kind,
        position: 0,
    }
}

#[test]
fn an_inode_comes_back() {
    let mut block = [0; BLOCK_BYTES];
    inode().store(&mut block);
    header(NodeKind::Inode).seal(&mut block);
    assert_eq!(
        NodeHeader::check(&block, 12).unwrap(),
        header(NodeKind::Inode)
    );
    assert_eq!(Inode::parse(&block, 12).unwrap(), inode());
    assert_eq!(
        Attributes::parse(&attributes().encode(), 12).unwrap(),
        attributes()
    );
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let mut block = [0; BLOCK_BYTES];
    inode().store(&mut block);
    header(NodeKind::Inode).seal(&mut block);
    for at in 0..BLOCK_BYTES {
        block[at] ^= 0x10;
        assert!(NodeHeader::check(&block, 12).is_err(), "byte {at}");
        block[at] ^= 0x10;
    }
    let fault = NodeHeader::check(&block, 13).unwrap_err();
    assert!(fault.to_string().contains("another node"), "{fault}");
}

#[test]
fn what_cannot_be_is_refused() {
    let broken: [Broken<RawInode>; 7] = [
        ("mode", |raw| raw.attributes.mode = 0o030_000.into()),
        ("flag", |raw| raw.attributes.flags = 16.into()),
        ("is no file", |raw| raw.attributes.mode = 0o040_755.into()),
        ("nanoseconds", |raw| {
            raw.attributes.nanos[2] = 1_000_000_000.into()
        }),
        ("beyond all files", |raw| {
            raw.attributes.size = u64::MAX.into()
        }),
        ("extended attributes", |raw| raw.xattr_len = 225.into()),
        ("inline content", |raw| raw.inline_len = 3681.into()),
    ];
    for (word, break_it) in broken {
        let mut block = [0; BLOCK_BYTES];
        inode().store(&mut block);
        let (mut raw, _) = RawInode::read_from_prefix(&block[HEADER_BYTES..]).unwrap();
        break_it(&mut raw);
        block[HEADER_BYTES..XATTR_AT].copy_from_slice(raw.as_bytes());
        let fault = Inode::parse(&block, 12).unwrap_err();
        assert!(fault.to_string().contains(word), "{word}: {fault}");
    }
}

#[test]
fn pointers_and_nids_have_their_places() {
    let mut block = [0; BLOCK_BYTES];
    for (kind, count) in [
        (NodeKind::Inode, INODE_POINTERS),
        (NodeKind::Direct, DIRECT_POINTERS),
    ] {
        set_pointer(&mut block, kind, count as u16 - 1, 0x0123_4567_89ab_cdef);
        assert_eq!(
            pointer(&block, kind, count as u16 - 1),
            0x0123_4567_89ab_cdef
        );
    }
    set_nid(&mut block, INDIRECT_NIDS as u16 - 1, 77);
    assert_eq!(nid(&block, INDIRECT_NIDS as u16 - 1), 77);
}

#[test]
fn every_logical_block_has_one_way_and_no_other_has_it() {
    let edges = [
        (0, None, [0, 0, 0]),
        (459, None, [459, 0, 0]),
        (460, Some(0), [0, 0, 0]),
        (968, Some(1), [0, 0, 0]),
        (1475, Some(1), [507, 0, 0]),
        (1476, Some(2), [0, 0, 0]),
        (1476 + 508 * 1016 - 1, Some(2), [1015, 507, 0]),
        (1476 + 508 * 1016, Some(3), [0, 0, 0]),
        (1476 + 2 * 508 * 1016, Some(4), [0, 0, 0]),
        (FILE_BLOCKS - 1, Some(4), [1015, 1015, 507]),
    ];
    for (lblk, root, indexes) in edges {
        let path = Path::to(lblk).unwrap();
        assert_eq!((path.root, path.indexes), (root, indexes), "block {lblk}");
        assert_eq!(path.first + u32::from(path.index()), lblk);
    }
    assert_eq!(Path::to(FILE_BLOCKS), None);
    assert_eq!(Path::to(u32::MAX), None);
}

#[test]
fn positions_count_the_nodes_in_the_order_of_what_they_map() {
    let mut last = 0;
    for lblk in
        (INODE_POINTERS..1476 + 2 * 508 * 1016 + 3 * 508 * 1016).step_by(DIRECT_POINTERS as usize)
    {
        let path = Path::to(lblk).unwrap();
        let position = path.positions[usize::from(path.depth) - 1];
        assert!(
            position > last && position - last <= 3,
            "{position} behind {last}"
        );
        last = position;
    }
}
