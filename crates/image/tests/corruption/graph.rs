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
