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
