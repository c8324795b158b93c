//! `check`: images that mkfs.erofs made are without fault, and an image with one field changed has
//! just the fault that belongs to it.

mod common;

use std::sync::atomic::AtomicBool;

use anteros_format::Nid;
use anteros_format::inode::{DataLayout, FORMAT_NLINK_1};
use anteros_format::superblock::{RawDeviceSlot, SUPERBLOCK_OFFSET};
use anteros_image::{CheckOptions, Severity, check};
use common::{FIXTURES, Fixture, file_inode};
use zerocopy::IntoBytes;

#[test]
fn sound_images_have_no_faults() {
    for name in FIXTURES {
        let image = Fixture::read(name).open().unwrap();
        let report = check(
            &image,
            &CheckOptions::default(),
            &(),
            &AtomicBool::new(false),
        );
        for finding in &report.findings {
            println!("{name}: {:?} {finding}", finding.severity());
        }
        println!(
            "{name}: {} inodes, {} extents, {} bytes",
            report.inodes, report.extents, report.data_bytes
        );
        assert!(report.is_clean(), "{name}");
        assert_eq!(report.inodes, image.superblock().inodes, "{name}");
    }
}

/// Asserts that these are all the faults and warnings of an image whose checksum is made right.
#[track_caller]
fn only(image: Fixture, findings: &[String]) {
    assert_eq!(image.sealed().faults(), findings);
}

/// Asserts that nothing is wrong, and that these are the notes.
#[track_caller]
fn only_notes(image: Fixture, notes: &[&str]) {
    let findings = image.sealed().check().findings;
    let found: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(found, notes);
    assert!(findings.iter().all(|f| f.severity() == Severity::Note));
}

/// The image that most tests change, which has no notes either.
fn plain() -> Fixture {
    Fixture::read("plain")
}

fn nid(image: &Fixture, path: &str) -> Nid {
    image.inode(path).nid
}

#[test]
fn nothing_is_noted_of_the_image_that_is_changed() {
    only_notes(plain(), &[]);
}

#[test]
fn checksum() {
    let image = plain().superblock(|sb| sb.uuid[0] ^= 1);
    let faults = image.faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("superblock: the superblock checksum is 0x"));
}

#[test]
fn superblock_fields() {
    let name = "superblock: the volume name is not terminated by NUL, which older kernels refuse";
    let image = plain().superblock(|sb| sb.volume_name = [b'x'; 16]);
    only(image, &[name.into()]);
    for at in [0x6a, 0x78] {
        let image = plain().put(SUPERBLOCK_OFFSET as usize + at, &[1]);
        only(image, &["superblock: reserved bytes are not zero".into()]);
    }
}

#[test]
fn totals() {
    let image = plain();
    let inodes = image.open().unwrap().superblock().inodes;
    for recorded in [0, inodes - 1, inodes + 1] {
        let image = plain().superblock(|sb| sb.inos = recorded.into());
        let words = format!("superblock: {recorded} inodes are recorded, but {inodes} were found");
        only(image, &[words]);
    }
    let size = image.bytes.len();
    let image = plain().superblock(|sb| sb.blocks_lo += 1);
    let words = format!(
        "image: {} bytes are recorded, but the device ends at {size}: the image is cut off",
        size + 4096
    );
    only(image, &[words]);
}

#[test]
fn truncation() {
    let mut image = plain();
    let size = image.bytes.len();
    image.bytes.truncate(size - 4096);
    let faults = image.faults();
    let words = format!(
        "image: {size} bytes are recorded, but the device ends at {}: the image is cut off",
        size - 4096
    );
    assert!(faults.contains(&words), "{faults:?}");
    assert!(
        faults.iter().any(|fault| fault.contains("which has 0x")),
        "what is missing is told as well: {faults:?}"
    );
}

#[test]
fn bytes_that_nothing_refers_to() {
    let mut longer = plain();
    let recorded = longer.bytes.len();
    longer.bytes.extend([7; 5000]);
    let words = format!("image: 5000 bytes follow the {recorded} that are recorded");
    only_notes(longer, &[&words]);
    let (image, _) = plain().append(&[7; 5000]);
    only_notes(image, &["image: nothing refers to 8192 bytes in 2 blocks"]);
}

#[test]
fn algorithms_that_nothing_uses() {
    // The shared attributes, which follow the configuration of LZMA, move out of the way.
    let image = Fixture::read("lzma");
    let first_block = image.bytes[..4096].to_vec();
    let (image, block) = image.append(&first_block);
    let image = image.superblock(|sb| {
        sb.available_compr_algs |= 1 << 2;
        sb.xattr_blkaddr = block.into();
    });
    let end = SUPERBLOCK_OFFSET as usize + 128 + 16;
    let image = image.put(end, &[6, 0, 15, 0, 0, 0, 0, 0]);
    let words = "compression configurations: deflate is announced, but nothing is compressed by it";
    only_notes(image, &[words]);
}

#[test]
fn link_counts() {
    let file = nid(&plain(), "data/size-511");
    let words = |recorded: u16| {
        format!(
            "inode {file} (/data/size-511): the link count is {recorded}, but the number of names 1"
        )
    };
    for recorded in [0, 2, 500] {
        let image = plain().compact("data/size-511", |inode| inode.i_nb = recorded.into());
        only(image, &[words(recorded)]);
    }
    let dir = nid(&plain(), "deep");
    for recorded in [2, 4] {
        let image = plain().compact("deep", |inode| inode.i_nb = recorded.into());
        let words = format!(
            "inode {dir} (/deep): the link count is {recorded}, but should be 3, by the subdirectories"
        );
        only(image, &[words]);
    }
}

#[test]
fn entry_types() {
    let file = nid(&plain(), "data/hello");
    let dir = nid(&plain(), "data");
    let index = plain().entry_index("data", "hello");
    for (file_type, says) in [(2, "directory"), (5, "fifo"), (7, "symlink")] {
        let image = plain().dirent("data", index, |entry| entry.file_type = file_type);
        let words = format!(
            "directory at inode {dir}, block 0 (/data): the entry `hello` says {says}, but inode \
             {file} is a file"
        );
        only(image, &[words]);
    }
}

#[test]
fn dots() {
    let (data, deep) = (nid(&plain(), "data"), nid(&plain(), "deep"));
    let root = plain().open().unwrap().superblock().root;
    for (index, name, right) in [(0, ".", data), (1, "..", root)] {
        let image = plain().dirent("data", index, |entry| entry.nid = deep.0.into());
        let words = format!(
            "directory at inode {data}, block 0 (/data): the entry `{name}` leads to inode {deep} \
             instead of {right}"
        );
        only(image, &[words]);
    }
    let image = plain().compact("data", |inode| inode.i_format |= FORMAT_NLINK_1);
    let words = format!(
        "inode {data} (/data): the entry `.` is there, but the inode says that it is omitted"
    );
    only(image, &[words]);
    let image = Fixture::read("dot-omitted");
    let data = nid(&image, "data");
    let image = image.compact("data", |inode| inode.i_format &= !FORMAT_NLINK_1);
    only(
        image,
        &[format!("inode {data} (/data): the entry `.` is missing")],
    );
}

#[test]
fn order_of_names() {
    let dir = nid(&plain(), "data");
    let index = plain().entry_index("data", "hello");
    let at = plain().name_offset("data", index);
    let words = format!(
        "directory at inode {dir}, block 0 (/data): entry {index}: `aello` does not sort after \
         `empty`"
    );
    only(plain().put(at, b"a"), &[words]);
}

#[test]
fn data_outside_the_image() {
    let file = nid(&plain(), "data/words");
    let (size, image_size) = (plain().inode("data/words").size, plain().bytes.len());
    let image = plain().compact("data/words", |inode| inode.i_u = 0xffff.into());
    let blocks = size >> 12 << 12;
    let words = format!(
        "data of inode {file} at 0 (/data/words): its data reaches byte {:#x} of the image, which \
         has {image_size:#x}",
        (0xffff << 12) + blocks
    );
    only(image, &[words]);
}

#[test]
fn shared_attributes_outside_the_image() {
    let file = nid(&plain(), "xattrs/shared-a");
    let at = plain().xattr_offset("xattrs/shared-a") + 12;
    let faults = plain().put(at, &[0xff; 4]).sealed().faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let words = format!("xattrs of inode {file} (/xattrs/shared-a): it reaches byte 0x");
    assert!(faults[0].starts_with(&words), "{faults:?}");
}

#[test]
fn attribute_names() {
    let file = nid(&plain(), "xattrs/one");
    let at = plain().xattr_offset("xattrs/one");
    let words = format!(
        "xattrs of inode {file} (/xattrs/one): the name filter excludes the attribute \
         `user.comment`, which is there"
    );
    only(plain().put(at, &[0xff; 4]), &[words]);
}

#[test]
fn overlaps() {
    let block = (plain().data_offset("data/words") / 4096) as u32;
    let [words, noise] = ["data/words", "data/noise"].map(|path| nid(&plain(), path));
    let image = plain().compact("data/noise", |inode| inode.i_u = block.into());
    let faults = image.sealed().faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let at = u64::from(block) * 4096;
    assert!(faults[0].contains(&format!("bytes at {at:#x} with data of inode")));
    assert!(faults[0].contains(&format!("data of inode {words} at 0")));
    assert!(faults[0].contains(&format!("data of inode {noise} at 0")));
}

#[test]
fn streams_that_do_not_decode() {
    let image = Fixture::read("lz4hc-full-16k");
    let file = nid(&image, "data/words");
    let at = image.data_offset("data/words");
    let faults = image.put(at, &[0xff; 4096]).sealed().faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let words = format!("data of inode {file} at 0 (/data/words): lz4 stream of ");
    assert!(faults[0].starts_with(&words), "{faults:?}");
}

#[test]
fn streams_that_are_longer_than_one_of_their_extents() {
    // A second extent on the pcluster of the first, but shorter and not marked as partial.
    let image = Fixture::read("ztailpacking-full");
    let file = nid(&image, "data/words");
    let block = (image.data_offset("data/words") / 4096) as u32;
    let second = image.extents("data/words")[1];
    let lcn = (second.offset / 4096) as usize;
    let image = image.index("data/words", lcn, |entry| entry.di_u = block.into());
    let faults = image.sealed().faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let words = format!(
        "data of inode {file} at {} (/data/words): lz4 stream of ",
        second.offset
    );
    assert!(faults[0].starts_with(&words), "{faults:?}");
}

/// An image of a file of full indexes, which has one lz4 pcluster of literals in a block, zeros in front of them.
fn tail_in_a_block(content: &[u8]) -> Fixture {
    let mut stream = vec![0xf0];
    let mut more = content.len() - 15;
    while more >= 255 {
        stream.push(255);
        more -= 255;
    }
    stream.push(more as u8);
    stream.extend(content);
    let mut block = vec![0; 4096 - stream.len()];
    block.extend(stream);
    let (image, at) = Fixture::read("lz4hc-full-16k").append(&block);
    let mut inode = file_inode(DataLayout::CompressedFull, content.len() as u64);
    // The count of what follows the block's number belongs to compressed files.
    inode.i_u = 1.into();
    let mut inode = inode.as_bytes().to_vec();
    inode.extend([0; 16]); // map header: lz4, lclusters of a block
    inode.extend([1, 0, 0, 0]); // a head at byte 0
    inode.extend(at.to_le_bytes());
    image.with_inode("data/words", &inode)
}

#[test]
fn tails_shorter_than_the_block_that_they_are_compressed_to() {
    for len in [15, 100, 4000, 4074, 4078] {
        let content: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let image = tail_in_a_block(&content);
        assert_eq!(image.content("data/words").unwrap(), content, "{len}");
        let faults = image.sealed().faults();
        let about_it = faults
            .iter()
            .filter(|fault| fault.contains("compressed to"));
        assert_eq!(about_it.count(), 0, "{len} bytes: {faults:?}");
    }
}

#[test]
fn extents_that_take_more_blocks_than_they_would_as_they_are() {
    let image = Fixture::read("lz4hc-full-16k");
    let words = "compressed to 32768 bytes, more blocks than its 28131 bytes fill";
    let image = image.index("data/words", 1, |entry| {
        entry.di_u = (1 << 11 | 8 | 6 << 16).into();
    });
    let faults = image.sealed().faults();
    assert!(
        faults.iter().any(|fault| fault.contains(words)),
        "{faults:?}"
    );
}

#[test]
fn index_entries_that_only_some_offsets_meet() {
    let image = Fixture::read("lz4hc-full-16k");
    let file = nid(&image, "data/words");
    let image = image.index("data/words", 3, |entry| entry.di_u = (3 | 9 << 16).into());
    let words = format!(
        "data of inode {file} at 12288 (/data/words): lcluster 3: 9 lclusters ahead lies beyond \
         the next head, lcluster 6"
    );
    only(image, &[words]);
}

#[test]
fn reserved_bytes_of_inodes() {
    let file = nid(&plain(), "data/size-511");
    let image = plain().compact("data/size-511", |inode| inode.i_reserved = 1.into());
    let words = |file| format!("inode {file} (/data/size-511): reserved bytes are not zero");
    only(image, &[words(file)]);
    let image = Fixture::read("lz4hc-extended");
    let file = nid(&image, "data/size-511");
    let image = image.extended("data/size-511", |inode| inode.i_reserved2[15] = 1);
    only(image, &[words(file)]);
}

#[test]
fn devices_in_the_unified_address_space() {
    let image = Fixture::read("blobdev");
    let sb = image.open().unwrap().superblock().clone();
    let table = sb.device_table_offset as usize;
    let slot = image.open().unwrap().devices()[1].slot.clone().unwrap();
    let place =
        |start: u64| move |slot: &mut RawDeviceSlot| slot.uniaddr_lo = (start as u32).into();
    // The last block of the primary device, which holds no data.
    let over = image.clone().edit(table, place(sb.blocks - 1));
    let words =
        "device table: extra device 1 overlaps the primary one in the unified address space";
    only(over, &[words.into()]);
    assert_eq!(
        image.edit(table, place(sb.blocks)).sealed().faults(),
        [] as [&str; 0]
    );
    assert!(slot.blocks > 1);
}
