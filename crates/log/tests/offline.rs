//! Work on logs that are not mounted.

mod support;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use anteros_core::{Caller, Device, MemoryDevice, WritableDevice};
use anteros_log::{Inspector, Shape, check, mkfs, repair, repair_going_back, resize};
use support::surgeon::Surgeon;
use support::*;

#[test]
fn an_attribute_node_beyond_the_node_address_table_is_told_and_the_rest_repaired() {
    for ino in [1_u32, 2] {
        let device = device(64 * MIB);
        let tree = open_plainly(device.clone());
        tree.put("f", &bytes(1, 50_000)).unwrap();
        assert_eq!(tree.ino("f").unwrap().0, 2);
        tree.0.close().unwrap();
        drop(tree);
        let nids = Surgeon::new(device.clone()).superblock.nids;
        for nid in [nids, u32::MAX] {
            let surgeon = Surgeon::new(device.clone());
            surgeon.change_inode(ino, |inode| inode.xattr_nid = nid);
            assert!(check(device.clone(), options()).unwrap().fault_count > 0);
            let repaired = repair(device.clone(), options()).unwrap();
            let repairs = repaired.repairs.join(", ");
            assert!(repairs.contains("attributes are lost"), "{repairs}");
            assert_eq!(repaired.left, [""; 0]);
            repair_going_back(device.clone(), options()).unwrap();
            let mut inspector = Inspector::open(device.clone(), &options()).unwrap();
            assert_eq!(inspector.inode(ino).unwrap().faults, [""; 0]);
            let tree = open_to_read(device.clone());
            assert_eq!(tree.read("f").unwrap(), bytes(1, 50_000));
        }
    }
}

/// A device whose discarded blocks read as zeros once, and then as anything, until they are written again. It begins with
/// all of them discarded.
struct Forgetful {
    inner: MemoryDevice,
    /// Blocks without content, and how often each was read since.
    discarded: Mutex<BTreeMap<u64, u64>>,
}

const BLOCK: u64 = 4096;

impl Forgetful {
    fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryDevice::new(vec![0; bytes as usize]),
            discarded: Mutex::new((0..bytes / BLOCK).map(|block| (block, 0)).collect()),
        })
    }
}

impl Device for Forgetful {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut discarded = self.discarded.lock().unwrap();
        let end = (offset + buf.len() as u64).div_ceil(BLOCK);
        for (block, reads) in discarded.range_mut(offset / BLOCK..end) {
            *reads += 1;
            let fill = if *reads == 1 { 0 } else { 0x5a ^ *reads as u8 };
            self.inner
                .write_at(block * BLOCK, &[fill; BLOCK as usize])?;
        }
        self.inner.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> String {
        "forgetful".into()
    }
}

impl WritableDevice for Forgetful {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = (offset + data.len() as u64).div_ceil(BLOCK);
        let mut discarded = self.discarded.lock().unwrap();
        for block in offset / BLOCK..end {
            discarded.remove(&block);
        }
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let blocks = offset.div_ceil(BLOCK)..(offset + len) / BLOCK;
        self.discarded
            .lock()
            .unwrap()
            .extend(blocks.map(|block| (block, 0)));
        Ok(())
    }
}

#[test]
fn a_log_is_made_and_grown_where_discarded_blocks_read_as_anything() {
    let device = Forgetful::new(200 * MIB);
    let writable: Arc<dyn WritableDevice> = device.clone();
    let shape = Shape {
        uuid: [7; 16],
        ..Shape::default()
    };
    let judge = |files: u64| {
        for _ in 0..2 {
            let report = assert_sound(device.clone());
            assert_eq!(report.files, files);
        }
    };
    mkfs(&writable, &shape, Caller::default(), &options()).unwrap();
    judge(0);
    for (number, bytes_now) in [100, 200, 64].into_iter().enumerate() {
        resize(&writable, bytes_now * MIB, &options()).unwrap();
        judge(number as u64);
        let tree = open(device.clone());
        let path = format!("{number}");
        tree.put(&path, &bytes(number as u64, 3 << 20)).unwrap();
        // Discards segments: they were full of it, and are empty.
        tree.put("large", &bytes(9, 20 << 20)).unwrap();
        tree.0.checkpoint().unwrap();
        tree.unlink("large").unwrap();
        tree.0.checkpoint().unwrap();
        tree.0.close().unwrap();
        drop(tree);
        judge(number as u64 + 1);
    }
    let tree = open(device.clone());
    for number in 0..3 {
        let content = tree.read(&format!("{number}")).unwrap();
        assert!(content == bytes(number, 3 << 20));
    }
    drop(tree);
    // Over what was there.
    mkfs(&writable, &shape, Caller::default(), &options()).unwrap();
    judge(0);
}

/// Each finding of a check tells the path that it concerns, and the block.
#[test]
fn what_a_check_finds_is_named_by_its_path_and_its_block() {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    tree.mkdir("dir").unwrap();
    tree.mkdir("dir/sub").unwrap();
    for name in ["dir/a", "dir/b", "dir/sub/c", "dir/sub/d"] {
        tree.put(name, &bytes(1, 20_000)).unwrap();
    }
    let ino = |path: &str| tree.ino(path).unwrap().0 as u32;
    let (dir, sub) = (ino("dir"), ino("dir/sub"));
    let (a, b, c, d) = (
        ino("dir/a"),
        ino("dir/b"),
        ino("dir/sub/c"),
        ino("dir/sub/d"),
    );
    tree.0.close().unwrap();
    let surgeon = Surgeon::new(device.clone());
    let (node, shared) = (surgeon.place(c), surgeon.pointer(a, 1));
    surgeon.write(node, &[0; BLOCK as usize]);
    surgeon.set_pointer(b, 1, shared);
    surgeon.remove_name(sub, b"d");
    surgeon.add_name(dir, b"gone", 999, 8);
    let report = check(device, options()).unwrap();
    let mut expected = [
        format!("\"/dir/sub/c\" (inode {c}): block {node}: node {c}: the magic number is wrong"),
        format!(
            "\"/dir/b\" (inode {b}): logical block 1 in block {shared}: belongs to something else as well, inode {a}"
        ),
        format!("inode {d}: no name leads to it"),
        "\"/dir/gone\": names inode 999, which is not there".to_owned(),
    ]
    .to_vec();
    for fault in &report.faults {
        expected.retain(|expected| !fault.starts_with(expected.as_str()));
    }
    assert_eq!(expected, [""; 0], "{:#?}", report.faults);
    assert!(report.faults.len() <= 5, "{:#?}", report.faults);
}
