//! Inodes in slots of packed blocks: what they save, and what holds when one is damaged, moved or grows.

mod support;

use std::sync::Arc;

use anteros_core::{Device, FsError, MemoryDevice, WritableDevice};
use anteros_log::layout::BLOCK_BYTES;
use anteros_log::layout::node::Inode;
use anteros_log::layout::packed::{self, SlotKind};
use anteros_log::layout::superblock::INCOMPAT_PACKED_INODES;
use anteros_log::{Cause, Options, Policy, check, repair};
use support::surgeon::Surgeon;
use support::*;

const FILES: u32 = 2000;

fn record() -> Options {
    Options {
        policy: Policy::Record,
        ..options()
    }
}

fn mounted(device: &Arc<MemoryDevice>) -> Tree {
    open_with(device.clone(), record())
}

fn name(n: u32) -> String {
    format!("d{}/file{n}", n % 20)
}

fn content(n: u32) -> Vec<u8> {
    format!("the text of file {n}\n")
        .repeat(n as usize % 40)
        .into()
}

/// A log with many small files that was unmounted.
fn filled() -> Arc<MemoryDevice> {
    let device = device(64 * MIB);
    let tree = mounted(&device);
    (0..20).for_each(|n| tree.mkdir(&format!("d{n}")).unwrap());
    for n in 0..FILES {
        tree.put(&name(n), &content(n)).unwrap();
    }
    tree.0.close().unwrap();
    device
}

fn assert_whole(tree: &Tree) {
    for n in 0..FILES {
        assert!(tree.read(&name(n)).unwrap() == content(n), "{}", name(n));
    }
}

#[test]
fn small_files_share_blocks() {
    let device = filled();
    let tree = mounted(&device);
    let used = tree.0.condition().used_blocks;
    assert!(used < 250, "{used} blocks for {FILES} files");
    assert_whole(&tree);
    // A checkpoint writes those that have changed, together.
    tree.0.checkpoint().unwrap();
    let before = tree.0.condition().statistics.blocks(Cause::Node);
    for n in 0..30 {
        tree.write(&name(n), 0, b"T").unwrap();
    }
    tree.0.checkpoint().unwrap();
    let written = tree.0.condition().statistics.blocks(Cause::Node) - before;
    assert!(written <= 4, "{written} blocks for 30 inodes");
    tree.0.close().unwrap();
    assert_sound(device.clone());
    (0..FILES).for_each(|n| tree.unlink(&name(n)).unwrap());
    (0..20).for_each(|n| tree.rmdir(&format!("d{n}")).unwrap());
    tree.0.close().unwrap();
    assert_eq!(tree.0.condition().used_blocks, 1);
    assert_sound(device);
}

/// By the paper's rules, the inode of a rollback journal alone lies in a slot.
#[test]
fn inodes_of_rollback_journals_share_blocks_by_the_papers_rules() {
    let device = device(64 * MIB);
    let tree = open_with(device.clone(), with(Policy::Paper));
    let databases: Vec<String> = (0..20).map(|n| format!("{n}.db")).collect();
    for name in &databases {
        tree.put(name, &content(30)).unwrap();
        tree.put(&format!("{name}-journal"), &content(30)).unwrap();
        tree.put(&format!("{name}-wal"), &content(30)).unwrap();
    }
    tree.0.checkpoint().unwrap();
    let before = tree.0.condition().statistics.blocks(Cause::Node);
    for name in &databases {
        tree.write(&format!("{name}-journal"), 0, b"T").unwrap();
    }
    tree.0.checkpoint().unwrap();
    let written = tree.0.condition().statistics.blocks(Cause::Node) - before;
    assert!(written <= 2, "{written} blocks for 20 inodes");
    tree.rename("0.db-journal", "notes", 0).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = open_to_read(device.clone());
    let is_in_slot = |name: &str| {
        let ino = tree.ino(name).unwrap().0 as u32;
        Surgeon::new(device.clone()).slot(ino).is_some()
    };
    for name in &databases[1..] {
        let found = ["", "-journal", "-wal"].map(|ending| is_in_slot(&format!("{name}{ending}")));
        assert_eq!(found, [false, true, false], "{name}");
    }
    assert!(!is_in_slot("notes"));
    assert_sound(device);
}

/// The other policies are there to be compared with what others do.
#[test]
fn a_log_says_that_it_has_them_before_it_has() {
    let device = device(64 * MIB);
    let features = || Surgeon::new(device.clone()).superblock.incompat;
    for policy in [Policy::None, Policy::Comp, Policy::FpcN] {
        let options = Options {
            policy,
            ..options()
        };
        let tree = open_with(device.clone(), options);
        tree.put("a", b"text").unwrap();
        tree.0.close().unwrap();
        assert_eq!(features() & INCOMPAT_PACKED_INODES, 0, "{policy:?}");
    }
    let tree = mounted(&device);
    assert_ne!(features() & INCOMPAT_PACKED_INODES, 0);
    tree.write("a", 0, b"T").unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let ino = open_to_read(device.clone()).ino("a").unwrap().0 as u32;
    assert!(Surgeon::new(device.clone()).slot(ino).is_some());
    // Whoever packs none takes them as they are, and writes others.
    let tree = open_plainly(device.clone());
    tree.write("a", 1, b"E").unwrap();
    tree.0.close().unwrap();
    assert_eq!(tree.read("a").unwrap(), b"TExt");
    assert!(Surgeon::new(device.clone()).slot(ino).is_none());
    assert_sound(device);
}

/// Tests that inodes in blocks of their own share blocks after a compaction.
#[test]
fn compaction_packs_what_was_not() {
    let device = device(64 * MIB);
    let tree = open_plainly(device.clone());
    (0..300).for_each(|n| tree.put(&format!("file{n}"), &content(n)).unwrap());
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    assert!(tree.0.condition().used_blocks > 300);
    let names: Vec<String> = (0..300).map(|n| format!("file{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    tree.compact(&names).unwrap();
    tree.0.checkpoint().unwrap();
    let used = tree.0.condition().used_blocks;
    assert!(used < 60, "{used} blocks");
    (0..300).for_each(|n| assert!(tree.read(&format!("file{n}")).unwrap() == content(n)));
    tree.0.close().unwrap();
    assert_sound(device);
}

/// An inode that no longer shrinks needs a block, and is refused where there is none.
#[test]
fn inodes_that_grow_on_a_full_log_are_refused_in_time() {
    let device = device(64 * MIB);
    let tree = mounted(&device);
    (0..1500).for_each(|n| tree.put(&format!("file{n}"), &content(n)).unwrap());
    tree.0.checkpoint().unwrap();
    tree.fill("rest", 4096);
    let mut contents: Vec<Vec<u8>> = (0..1500).map(content).collect();
    let mut refused = 0;
    for (n, content) in contents.iter_mut().enumerate() {
        let path = format!("file{n}");
        // What finds a slot whatever it is takes no more room.
        let small = bytes(n as u64, 2000);
        tree.write(&path, 0, &small).unwrap();
        content.resize(content.len().max(2000), 0);
        content[..2000].copy_from_slice(&small);
        let large = bytes(n as u64 + 1, 3600);
        match tree.write(&path, 0, &large) {
            Ok(_) => *content = large,
            Err(error) => {
                assert!(matches!(error, FsError::NoSpace), "{error}");
                refused += 1;
            }
        }
        if n % 100 == 0 {
            tree.0.checkpoint().unwrap();
        }
    }
    assert!(refused > 1400, "{refused}");
    tree.0.close().unwrap();
    drop(tree);
    let tree = mounted(&device);
    for (n, content) in contents.iter().enumerate() {
        assert!(tree.read(&format!("file{n}")).unwrap() == *content, "{n}");
    }
    tree.unlink("rest").unwrap();
    tree.0.close().unwrap();
    assert_sound(device);
}

/// Tests that cleaning moves slots, and gives their blocks back.
#[test]
fn inodes_are_moved_by_cleaning() {
    let device = filled();
    let tree = mounted(&device);
    for round in 0..6 {
        for n in (round..FILES).step_by(3) {
            tree.write(&name(n), 0, &content(n)).unwrap();
        }
        tree.put(&format!("filler{round}"), &bytes(round.into(), 3 << 20))
            .unwrap();
        tree.0.checkpoint().unwrap();
        if round > 0 {
            tree.unlink(&format!("filler{}", round - 1)).unwrap();
        }
        tree.0.clean_all(|_| true).unwrap();
    }
    tree.0.close().unwrap();
    assert_sound(device.clone());
    drop(tree);
    let tree = mounted(&device);
    assert_whole(&tree);
    assert!(tree.0.condition().statistics.cleaned == 0);
}

/// The block that has the slot of an inode, and the numbers of the others in it.
fn shared_by(device: &Arc<MemoryDevice>, ino: u32) -> (u64, Vec<u32>) {
    let surgeon = Surgeon::new(device.clone());
    let place = surgeon.place(ino);
    let (_, slots) = packed::parse(&surgeon.read(place)).unwrap();
    let nodes = slots.iter().filter(|slot| slot.kind == SlotKind::Node);
    (place, nodes.map(|slot| slot.lblk).collect())
}

#[test]
fn a_broken_block_takes_its_inodes_along_and_no_more() {
    let device = filled();
    let ino = open_to_read(device.clone()).ino(&name(500)).unwrap().0 as u32;
    let (place, lost) = shared_by(&device, ino);
    let mut byte = [0];
    let at = place * BLOCK_BYTES as u64 + 2000;
    device.read_at(at, &mut byte).unwrap();
    device.write_at(at, &[byte[0] ^ 4]).unwrap();
    let tree = open_to_read(device.clone());
    let (mut whole, mut broken) = (0, 0);
    for n in 0..FILES {
        match tree.read(&name(n)) {
            Ok(found) => {
                assert!(found == content(n));
                whole += 1;
            }
            Err(error) => {
                assert!(matches!(error, FsError::Corrupt(_)), "{error}");
                broken += 1;
            }
        }
    }
    assert_eq!((whole + broken, broken), (FILES, lost.len() as u32));
    drop(tree);
    let report = check(device.clone(), options()).unwrap();
    assert!(report.fault_count >= lost.len() as u64, "{report:?}");
    assert!(
        report.faults[0].contains("checksum"),
        "{:?}",
        report.faults[0]
    );
    // What cannot be read may be one day: nothing of it is taken away.
    repair(device.clone(), options()).unwrap();
    let tree = mounted(&device);
    let found = (0..FILES).filter(|&n| tree.read(&name(n)).is_ok()).count();
    assert_eq!(found as u32, whole);
}

#[test]
fn slots_that_are_not_what_the_table_says_are_errors() {
    let device = filled();
    let bytes = device.to_vec();
    let [ino, other] = [500, 1501].map(|n| {
        let tree = open_to_read(device.clone());
        tree.ino(&name(n)).unwrap().0 as u32
    });
    let nat = Surgeon::new(device.clone()).nat(other);
    let swap = |change: &dyn Fn(u64) -> u64| {
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let mut surgeon = Surgeon::new(device.clone());
        let mut entry = surgeon.nat(ino);
        entry.pointer = change(entry.pointer);
        surgeon.set_nat(ino, entry);
        surgeon.finish();
        let tree = open_to_read(device.clone());
        let error = tree.read(&name(500)).unwrap_err();
        assert!(matches!(error, FsError::Corrupt(_)), "{error}");
        let report = check(device.clone(), options()).unwrap();
        assert!(report.fault_count > 0);
        // The inode is lost, and all else is there.
        drop(tree);
        let repaired = repair(device.clone(), options());
        assert!(repaired.is_ok(), "{repaired:?}");
        let tree = mounted(&device);
        assert!(tree.read(&name(501)).unwrap() == content(501));
    };
    // Of another inode; a slot that is not there; a chunk of content; one that goes on.
    swap(&|_| nat.pointer);
    swap(&|pointer| pointer | 31 << 40);
    swap(&|pointer| pointer | 1 << 45);
    swap(&|pointer| pointer | 1 << 50);
}

/// Tests that a slot of the right inode with something else in it is an error.
#[test]
fn an_inode_that_says_something_else_is_an_error() {
    let device = filled();
    let ino = open_to_read(device.clone()).ino(&name(500)).unwrap().0 as u32;
    let surgeon = Surgeon::new(device.clone());
    surgeon.node(ino, |block| {
        block[32..36].fill(0xff);
    });
    assert!(Inode::parse(&surgeon.read_node(ino), ino).is_err());
    let tree = open_to_read(device.clone());
    assert!(tree.read(&name(500)).is_err());
    assert!(tree.read(&name(501)).unwrap() == content(501));
    assert!(check(device, options()).unwrap().fault_count > 0);
}

/// Tests that a table that cannot be read is found again from slots as well as from blocks.
#[test]
fn the_table_is_made_again_from_slots() {
    let device = filled();
    let superblock = Surgeon::new(device.clone()).superblock.clone();
    for table_block in 0..FILES / 256 {
        let surgeon = Surgeon::new(device.clone());
        let is_second = surgeon.checkpoint.nat_bits.get(table_block as usize);
        let copy = u64::from(is_second) * u64::from(superblock.nat_blocks);
        let broken = superblock.nat_start + copy + u64::from(table_block);
        let tree = Tree(
            anteros_log::Log::open(
                Arc::new(Unreadable {
                    inner: device.clone(),
                    block: broken,
                }),
                Options {
                    read_only: true,
                    ..record()
                },
            )
            .unwrap(),
        );
        assert_whole(&tree);
    }
}

/// A device of which one block cannot be read.
struct Unreadable {
    inner: Arc<MemoryDevice>,
    block: u64,
}

impl Device for Unreadable {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let block = BLOCK_BYTES as u64;
        let wanted = offset / block..(offset + buf.len() as u64).div_ceil(block);
        match wanted.contains(&self.block) {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => self.inner.read_at(offset, buf),
        }
    }

    fn name(&self) -> String {
        "scratched".into()
    }
}

impl WritableDevice for Unreadable {
    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
