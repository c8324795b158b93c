use super::*;

#[track_caller]
fn refused_inode(image: &Fixture, nid: Nid, fault: impl Into<Fault>) {
    refused(image.open().unwrap().inode(nid), Place::Inode(nid), fault);
    // A check says so as well, and where the inode has its name.
    check_finds(image, &format!("inode {nid} (/data/size-511): "));
}

fn size_511(change: impl FnOnce(&mut anteros_format::inode::RawCompactInode)) -> (Fixture, Nid) {
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
    let image = Fixture::read("plain").compact("data/size-511", |inode| inode.i_size = 4095.into());
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

/// The kernel stops to ask for any attribute of a mount, or any hole, once it hears that a file
/// system has none: one unknown inode must not say so.
#[test]
fn unknown_inodes_do_not_speak_for_the_file_system() {
    let (format, nid) = size_511(|inode| inode.i_format |= 0x8000);
    let fs = ImageFs::new(Arc::new(format.open().unwrap()));
    let ino = Ino(nid.0);
    let lclusters = Fixture::read("ztailpacking-full");
    let file = lclusters.inode("data/words").nid;
    let lclusters = lclusters.map_header("data/words", |header| header.h_clusterbits = 1);
    let other = ImageFs::new(Arc::new(lclusters.open().unwrap()));
    let errors = [
        fs.getattr(ino).err(),
        fs.getxattr(ino, b"user.a").err(),
        fs.listxattr(ino).err(),
        fs.seek(ino, 0, Seek::Hole).err(),
        fs.read(ino, 0, &mut [0]).err(),
        other.seek(Ino(file.0), 0, Seek::Data).err(),
        other.read(Ino(file.0), 0, &mut [0]).err(),
    ];
    for error in errors {
        let Some(FsError::Io(error)) = error else {
            panic!("{error:?}");
        };
        assert!(error.to_string().starts_with("inode "), "{error}");
    }
}

#[test]
fn owners_that_are_nobody() {
    for change in [
        (|inode| inode.i_uid = u32::MAX.into()) as fn(&mut anteros_format::inode::RawExtendedInode),
        |inode| inode.i_gid = u32::MAX.into(),
    ] {
        let image = Fixture::read("lz4hc-extended").extended("data/size-511", change);
        check_finds(
            &image,
            "(/data/size-511): the owner or the group is 4294967295",
        );
    }
}
