//! Tests that content is what was written, or is not handed out: a changed bit is found wherever it lies.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::{Device, FileSystem, FsError, MemoryDevice, WritableDevice};
use anteros_log::layout::checksum::Checksum;
use anteros_log::layout::superblock::INCOMPAT_CHECKSUMS;
use anteros_log::layout::{Block, SEGMENT_CONTENT};
use anteros_log::{Log, Options, ScrubPosition, Scrubbed, check, check_data};
use support::surgeon::Surgeon;
use support::*;

const BLOCK: u64 = 4096;

type Contents = BTreeMap<String, Vec<u8>>;

/// A log with content of each kind, unmounted.
fn filled() -> (Arc<MemoryDevice>, Contents) {
    let device = device(32 * MIB);
    let tree = open(device.clone());
    let mut contents = Contents::new();
    let mut put = |path: &str, data: Vec<u8>| {
        tree.put(path, &data).unwrap();
        contents.insert(path.into(), data);
    };
    tree.mkdir("d").unwrap();
    for n in 0..60 {
        put(&format!("d/{n}-{}", "x".repeat(150)), bytes(n, 50));
    }
    put("plain", bytes(100, 400_000));
    put("far", bytes(101, 2_500_001));
    put("a.db", b"a page of a database ".repeat(8000));
    tree.fsync("a.db").unwrap();
    tree.0.close().unwrap();
    (device, contents)
}

fn flip(device: &MemoryDevice, block: u64, bit: u64) {
    let at = block * BLOCK + bit / 8;
    let mut byte = [0];
    device.read_at(at, &mut byte).unwrap();
    device.write_at(at, &[byte[0] ^ 1 << (bit % 8)]).unwrap();
}

fn is_corrupt<T>(read: &Result<T, FsError>) -> bool {
    matches!(read, Err(FsError::Corrupt(_)))
}

/// Reads a file in the middle of a block, one byte.
fn byte(tree: &Tree, path: &str, offset: u64) -> Result<u8, FsError> {
    let mut byte = [0];
    let ino = tree.ino(path)?;
    tree.0.read(ino, offset, &mut byte).map(|_| byte[0])
}

/// Blocks of the main area that hold something.
fn valid_blocks(device: &Arc<MemoryDevice>) -> Vec<u64> {
    let surgeon = Surgeon::new(device.clone());
    let mut valid = Vec::new();
    for segment in 0..surgeon.superblock.segments {
        let (start, entry) = (
            surgeon.superblock.segment_start(segment),
            surgeon.segment(segment),
        );
        let blocks = (0..SEGMENT_CONTENT as usize)
            .filter(|index| entry.bits[index / 8] >> (index % 8) & 1 == 1);
        valid.extend(blocks.map(|index| start + index as u64));
    }
    valid
}

#[test]
fn a_changed_bit_is_found_in_each_block_and_never_handed_out() {
    let (device, contents) = filled();
    let blocks = valid_blocks(&device);
    assert!(blocks.len() > 700, "{}", blocks.len());
    let mut below = dice(7);
    for block in blocks {
        let bit = below(BLOCK * 8);
        flip(&device, block, bit);
        let report = check_data(device.clone(), options()).unwrap();
        assert!(report.fault_count > 0, "bit {bit} of block {block}");
        let tree = open_to_read(device.clone());
        let mut lost = 0;
        for (path, content) in &contents {
            match tree.read(path) {
                Ok(found) => assert!(found == *content, "{path}: bit {bit} of block {block}"),
                Err(_) => lost += 1,
            }
        }
        assert!(lost > 0, "bit {bit} of block {block}");
        flip(&device, block, bit);
    }
    assert_eq!(check_data(device, options()).unwrap().fault_count, 0);
}

#[test]
fn what_is_wrong_is_told_with_its_file_and_its_place() {
    let (device, contents) = filled();
    let surgeon = Surgeon::new(device.clone());
    let ino = open_to_read(device.clone()).ino("plain").unwrap().0 as u32;
    let place = surgeon.pointer(ino, 3);
    flip(&device, place, 77);
    let tree = open_to_read(device.clone());
    let told = tree.read("plain").unwrap_err().to_string();
    let expected = format!("byte 12288 of inode {ino}: block {place} does not hold");
    assert!(told.contains(&expected), "{told}");
    // What lies beside it can be read, by parts of blocks as well.
    assert!(is_corrupt(&byte(&tree, "plain", 12_288)));
    assert!(is_corrupt(&byte(&tree, "plain", 16_383)));
    for offset in [12_287, 16_384, 399_999] {
        let read = byte(&tree, "plain", offset).unwrap();
        assert_eq!(read, contents["plain"][offset as usize]);
    }
    // Metadata alone says nothing.
    assert_eq!(check(device.clone(), options()).unwrap().fault_count, 0);
    let report = check_data(device, options()).unwrap();
    let expected = format!("\"/plain\" (inode {ino}): {expected}");
    assert_eq!(report.fault_count, 1);
    assert!(report.faults[0].contains(&expected), "{:?}", report.faults);
}

#[test]
fn the_bytes_behind_the_end_of_a_file_are_checked_with_its_last_block() {
    let (device, _) = filled();
    let surgeon = Surgeon::new(device.clone());
    let ino = open_to_read(device.clone()).ino("plain").unwrap().0 as u32;
    let last = surgeon.pointer(ino, (400_000 / BLOCK) as u16);
    flip(&device, last, BLOCK * 8 - 1);
    let tree = open_to_read(device);
    assert!(is_corrupt(&byte(&tree, "plain", 399_999)));
    assert!(byte(&tree, "plain", 0).is_ok());
}

/// A part of a damaged block that is written would make the rest look right.
#[test]
fn a_damaged_block_is_not_written_in_part_and_is_healed_as_a_whole() {
    let (device, contents) = filled();
    let surgeon = Surgeon::new(device.clone());
    let tree = open(device.clone());
    let ino = tree.ino("plain").unwrap().0 as u32;
    flip(&device, surgeon.pointer(ino, 5), 123);
    assert!(is_corrupt(&tree.write("plain", 5 * BLOCK + 7, b"x")));
    assert!(is_corrupt(&tree.truncate("plain", 5 * BLOCK + 7)));
    assert!(is_corrupt(&tree.read("plain")));
    assert_eq!(tree.0.failure(), None);
    // Others go on.
    tree.put("other", &bytes(1, 50_000)).unwrap();
    tree.fsync("other").unwrap();
    let whole = &contents["plain"][5 * BLOCK as usize..6 * BLOCK as usize];
    tree.write("plain", 5 * BLOCK, whole).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    let tree = open(device.clone());
    assert!(tree.read("plain").unwrap() == contents["plain"]);
    drop(tree);
    assert_eq!(check_data(device, options()).unwrap().fault_count, 0);
}

/// Neither its place nor its checksum changes, so it stays to be found.
#[test]
fn cleaning_does_not_move_what_is_damaged() {
    let (device, contents) = filled();
    let surgeon = Surgeon::new(device.clone());
    let tree = open(device.clone());
    let ino = tree.ino("plain").unwrap().0 as u32;
    let place = surgeon.pointer(ino, 5);
    flip(&device, place, 123);
    tree.unlink("far").unwrap();
    tree.0.checkpoint().unwrap();
    tree.0.clean_all(|_| true).unwrap();
    assert!(is_corrupt(&tree.read("plain")));
    let told = tree.0.take_warnings().join("\n");
    assert!(
        told.contains(&format!("block {place} does not hold")),
        "{told}"
    );
    flip(&device, place, 123);
    assert!(tree.read("plain").unwrap() == contents["plain"]);
}

/// Returns the checksums of the first blocks of a file, as its inode has them.
fn checksums(device: &Arc<MemoryDevice>, path: &str, count: u16) -> Vec<Checksum> {
    let ino = open_to_read(device.clone()).ino(path).unwrap().0 as u32;
    let surgeon = Surgeon::new(device.clone());
    (0..count).map(|lblk| surgeon.checksum(ino, lblk)).collect()
}

fn expected(content: &[u8]) -> Vec<Checksum> {
    let blocks = content.chunks_exact(BLOCK as usize);
    let blocks = blocks.flat_map(<&Block>::try_from);
    blocks.map(Checksum::of).collect()
}

/// Records of a group have the checksums of all that it maps: of content that left with it, before it, and that was moved.
#[test]
fn checksums_outlive_a_crash() {
    for order in [anteros_log::Order::Together, anteros_log::Order::DataFirst] {
        let device = device(64 * MIB);
        let options = || Options {
            order,
            memory_bytes: 1 << 20,
            ..plainly()
        };
        let tree = open_with(device.clone(), options());
        let (large, small) = (bytes(1, 300 << 12), bytes(2, 20 << 12));
        for n in 0..20 {
            tree.put(&format!("f{n}"), &bytes(n, 1 << 20)).unwrap();
            tree.put(&format!("small{n}"), &small).unwrap();
        }
        tree.0.checkpoint().unwrap();
        for n in 0..20 {
            tree.unlink(&format!("f{n}")).unwrap();
        }
        tree.put("large", &large).unwrap();
        tree.put("new", &small).unwrap();
        let cleaned = tree.0.clean_all(|_| true).unwrap();
        assert!(cleaned > 3, "{cleaned}");
        for path in ["large", "new", "small0", "small19"] {
            tree.fsync(path).unwrap();
        }
        // The power goes.
        let after = Arc::new(MemoryDevice::new(device.to_vec()));
        drop(tree);
        let tree = open_with(after.clone(), options());
        assert!(tree.read("large").unwrap() == large);
        tree.0.close().unwrap();
        drop(tree);
        let found = checksums(&after, "large", 300);
        assert!(found == expected(&large), "{order:?}");
        for path in ["new", "small0", "small19"] {
            assert!(
                checksums(&after, path, 20) == expected(&small),
                "{order:?}, {path}"
            );
        }
        assert_eq!(check_data(after, options()).unwrap().fault_count, 0);
    }
}

/// Makes a log one that was written before there were checksums.
fn age(device: &Arc<MemoryDevice>, path: &str, count: u16) {
    let ino = open_to_read(device.clone()).ino(path).unwrap().0 as u32;
    let surgeon = Surgeon::new(device.clone());
    for lblk in 0..count {
        surgeon.set_pointer(ino, lblk, surgeon.pointer(ino, lblk));
    }
    let mut superblock = surgeon.superblock.clone();
    superblock.incompat &= !INCOMPAT_CHECKSUMS;
    for copy in 0..2 {
        device
            .write_at(copy * BLOCK + 1024, &superblock.encode())
            .unwrap();
    }
}

#[test]
fn a_log_without_checksums_is_read_and_gets_them_as_it_is_written() {
    let (device, contents) = filled();
    age(&device, "plain", 90);
    let features = |device: &Arc<MemoryDevice>| Surgeon::new(device.clone()).superblock.incompat;
    assert_eq!(features(&device) & INCOMPAT_CHECKSUMS, 0);
    let tree = open_to_read(device.clone());
    assert!(tree.read("plain").unwrap() == contents["plain"]);
    drop(tree);
    assert_eq!(features(&device) & INCOMPAT_CHECKSUMS, 0, "nobody wrote");
    assert_eq!(
        check_data(device.clone(), options()).unwrap().fault_count,
        0
    );
    let tree = open(device.clone());
    tree.write("plain", 0, &contents["plain"][..2 * BLOCK as usize])
        .unwrap();
    tree.0.close().unwrap();
    drop(tree);
    assert_ne!(features(&device) & INCOMPAT_CHECKSUMS, 0);
    let found = checksums(&device, "plain", 90);
    let all = expected(&contents["plain"]);
    assert!(found[..2] == all[..2]);
    assert!(found[2..].iter().all(|&sum| sum == Checksum::UNKNOWN));
    // Cleaning moves the others.
    let tree = open(device.clone());
    tree.unlink("far").unwrap();
    tree.0.checkpoint().unwrap();
    while tree.0.clean().unwrap() {}
    tree.0.clean_all(|_| true).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    assert!(checksums(&device, "plain", 90) == all[..90]);
    assert_eq!(check_data(device, options()).unwrap().fault_count, 0);
}

/// A log that is mounted finds what changes below it.
#[test]
fn what_changes_while_it_is_mounted_is_found() {
    let (device, _) = filled();
    let tree: Tree = open(device.clone());
    let log: &Log = &tree.0;
    let ino = tree.ino("plain").unwrap();
    let place = Surgeon::new(device.clone()).pointer(ino.0 as u32, 10);
    let mut buf = vec![0; 32 * BLOCK as usize];
    log.read(ino, 0, &mut buf).unwrap();
    flip(&device, place, 1);
    assert!(is_corrupt(&log.read(ino, 0, &mut buf)));
    flip(&device, place, 1);
    log.read(ino, 0, &mut buf).unwrap();
}

/// Reads everything once.
fn scrub(log: &Log) -> Scrubbed {
    let mut at = ScrubPosition::default();
    let mut all = Scrubbed::default();
    while !all.is_round {
        let step = log.scrub(&mut at);
        assert!(step.blocks <= 32);
        all.blocks += step.blocks;
        all.faults.extend(step.faults);
        all.is_round = step.is_round;
    }
    all
}

#[test]
fn a_scrub_reads_all_that_is_valid_and_finds_each_changed_bit() {
    let (device, contents) = filled();
    let blocks = valid_blocks(&device);
    let tree = open_to_read(device.clone());
    let sound = scrub(&tree.0);
    assert!(sound.faults.is_empty(), "{:?}", sound.faults);
    assert_eq!(sound.blocks, blocks.len() as u64);
    assert_eq!(tree.0.condition().scrubbed_blocks, sound.blocks);
    let mut below = dice(8);
    for &block in blocks.iter().step_by(5) {
        let bit = below(BLOCK * 8);
        flip(&device, block, bit);
        let tree = open_to_read(device.clone());
        let found = scrub(&tree.0);
        let told = format!("block {block}");
        assert!(
            found.faults.iter().any(|fault| fault.contains(&told)),
            "{told}: {:?}",
            found.faults
        );
        flip(&device, block, bit);
    }
    let ino = tree.ino("plain").unwrap().0 as u32;
    flip(&device, Surgeon::new(device.clone()).pointer(ino, 3), 5);
    let found = scrub(&tree.0).faults;
    assert!(
        found.len() == 1 && found[0].starts_with("\"/plain\": byte 12288 of inode"),
        "{found:?}"
    );
    // Nothing was changed by that.
    drop(tree);
    assert!(open(device).read("far").unwrap() == contents["far"]);
}

/// Blocks come and go, and are moved, while others are read.
#[test]
fn a_scrub_finds_nothing_wrong_with_what_is_being_written() {
    let tree = open_with(
        device(64 * MIB),
        Options {
            memory_bytes: 1 << 20,
            ..options()
        },
    );
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scrubs = scope.spawn(|| {
            let (mut blocks, mut faults) = (0, Vec::new());
            loop {
                let is_last = is_done.load(Ordering::Relaxed);
                let found = scrub(&tree.0);
                blocks += found.blocks;
                faults.extend(found.faults);
                if is_last {
                    return (blocks, faults);
                }
            }
        });
        let mut below = dice(9);
        for n in 0..600 {
            let name = format!("f{}", below(40));
            match below(4) {
                0 => drop(tree.unlink(&name)),
                1 => tree
                    .put(&name, &b"text that shrinks ".repeat(2000))
                    .unwrap(),
                _ => tree.put(&name, &bytes(n, below(300_000) as usize)).unwrap(),
            }
            match below(8) {
                0 => drop(tree.fsync(&name)),
                1 => tree.0.checkpoint().unwrap(),
                2 => drop(tree.0.clean().unwrap()),
                _ => {}
            }
        }
        is_done.store(true, Ordering::Relaxed);
        let (blocks, faults) = scrubs.join().unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        assert!(blocks > 0);
    });
}
