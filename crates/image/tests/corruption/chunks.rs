use super::*;

const FILE: &str = "data/words";

#[test]
fn unknown_chunk_formats() {
    let image = Fixture::read("chunks");
    let nid = image.inode(FILE).nid;
    let image = image.compact(FILE, |inode| inode.i_u = 0x80.into());
    let fault = Unsupported::ChunkFormat { format: 0x80 };
    refused(image.open().unwrap().inode(nid), Place::Inode(nid), fault);
}

#[test]
fn devices_beyond_the_table() {
    let image = Fixture::read("blobdev");
    let at = image.open().unwrap().superblock().device_table_offset as usize;
    let size = image.extra.as_ref().unwrap().len() as u32;
    // Two devices, so that ids have two bits; both are the same file.
    let slot = |slot: &mut RawDeviceSlot| {
        slot.blocks_lo = (size / 512).into();
        slot.uniaddr_lo = 0.into();
    };
    let table = image.chunk_table_offset(FILE);
    let mut image = image.edit(at, slot).put(table + 2, &[3, 0]);
    image.extra_count = 2;
    let image = image
        .superblock(|sb| sb.extra_devices = 2.into())
        .edit(at + 128, slot);
    let fault = Corrupt::ChunkDevice {
        chunk: 0,
        device: 3,
        devices: 2,
    };
    refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
}

#[test]
fn chunks_outside_their_device() {
    for (name, at) in [("chunks", 0), ("chunk-indexes", 4), ("blobdev", 4)] {
        let image = Fixture::read(name);
        let table = image.chunk_table_offset(FILE);
        let image = image.put(table + at, &[0xff, 0xff, 0xff, 0x7f]);
        refused_as(image.content(FILE), data(&image, FILE, 0), out_of_bounds);
        check_finds(&image, "its data reaches byte 0x");
    }
}

#[test]
fn tables_beyond_the_image() {
    let image = Fixture::read("chunks").compact(FILE, |inode| inode.i_size = u32::MAX.into());
    check_finds(&image, "(/data/words): its metadata reaches byte");
    assert!(image.try_extents(FILE).is_err());
}
