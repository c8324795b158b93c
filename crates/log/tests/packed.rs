//! Tests what is compressed when it is written reads as it was written, whatever happens to it.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use anteros_core::{FileSystem, MemoryDevice, WritableDevice};
use anteros_log::layout::Block;
use anteros_log::layout::packed::{self, Slot, SlotKind};
use anteros_log::{Cause, Codec, Log, Options, Policy, check, repair};
use support::surgeon::Surgeon;
use support::*;

fn with(policy: Policy) -> Options {
    Options {
        policy,
        memory_bytes: 1 << 20,
        ..options()
    }
}

fn with_codec(policy: Policy, codec: Codec) -> Options {
    Options {
        codec,
        ..with(policy)
    }
}

fn mounted(device: &Arc<MemoryDevice>, policy: Policy) -> Tree {
    mounted_with(device, &with(policy))
}

fn mounted_with(device: &Arc<MemoryDevice>, options: &Options) -> Tree {
    open_with(device.clone(), options.clone())
}

/// Numbers that look like any others, and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Text that shrinks to a third, about; or what does not shrink.
fn content(dice: &mut Dice, len: usize) -> Vec<u8> {
    match dice.below(5) {
        0 => bytes(dice.below(1 << 30), len),
        _ => text(dice, len),
    }
}

/// Text that shrinks to a third, about.
fn text(dice: &mut Dice, len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 40);
    while text.len() < len {
        let row = format!(
            "|{:06}|the same again and again|{}",
            dice.below(1_000_000),
            dice.below(9)
        );
        text.extend_from_slice(row.as_bytes());
    }
    text.truncate(len);
    text
}

fn assert_sound(device: &Arc<MemoryDevice>, policy: Policy, step: usize) {
    let device: Arc<dyn WritableDevice> = device.clone();
    let report = check(device, with(policy)).unwrap();
    assert!(
        report.faults.is_empty(),
        "{policy:?}, step {step}: {:#?}",
        report.faults
    );
}

const NAMES: [&str; 6] = [
    "a.db",
    "a.db-journal",
    "b.db-wal",
    "b.sqlite",
    "text",
    "lib.so",
];

/// Makes so many changes to some files, and to their images in memory.
fn churn(device: &Arc<MemoryDevice>, options: &Options, seed: u64, steps: usize) {
    let (policy, codec) = (options.policy, options.codec);
    let mut dice = Dice(seed);
    let mut files: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let mut tree = mounted_with(device, options);
    for step in 0..steps {
        let name = NAMES[dice.below(NAMES.len() as u64) as usize];
        let file = files.entry(name).or_insert_with(|| {
            tree.create(name).unwrap();
            Vec::new()
        });
        let pages = dice.below(90);
        match dice.below(21) {
            0..=10 => {
                let skip = if dice.below(3) == 0 {
                    dice.below(4096)
                } else {
                    0
                };
                let at = (pages * 4096 + skip) as usize;
                let len = match dice.below(3) {
                    0 => 4096,
                    1 => 1 + dice.below(9000) as usize,
                    _ => 4096 * (1 + dice.below(40) as usize),
                };
                let data = content(&mut dice, len);
                assert_eq!(tree.write(name, at as u64, &data).unwrap(), len);
                file.resize(file.len().max(at + len), 0);
                file[at..at + len].copy_from_slice(&data);
            }
            11 => {
                let size = (pages * 4096 / 2 + dice.below(4096)) as usize;
                tree.truncate(name, size as u64).unwrap();
                file.resize(size, 0);
            }
            12 => {
                let (at, len) = (pages * 2048, 1 + dice.below(70_000));
                tree.allocate(name, at, len, 3).unwrap();
                let size = file.len();
                file[size.min(at as usize)..size.min((at + len) as usize)].fill(0);
            }
            13 => {
                tree.unlink(name).unwrap();
                files.remove(name);
            }
            14 => tree.0.checkpoint().unwrap(),
            15 => drop(tree.0.clean().unwrap()),
            16 => {
                tree.0.sync().unwrap();
                drop(tree);
                tree = mounted_with(device, options);
            }
            19 if policy != Policy::None => drop(tree.sweep_all().unwrap()),
            20 if policy != Policy::None => {
                let names: Vec<&str> = files.keys().copied().collect();
                drop(tree.compact(&names).unwrap());
            }
            _ => tree.fsync(name).unwrap(),
        }
        for (name, file) in &files {
            let found = tree.read(name).unwrap();
            assert!(
                found == *file,
                "{policy:?}, {codec:?}, step {step}: {name} differs"
            );
        }
        if step % 50 == 49 {
            tree.0.sync().unwrap();
            assert_sound(device, policy, step);
        }
    }
    tree.0.close().unwrap();
    assert_sound(device, policy, steps);
    let used = tree.0.condition().used_blocks;
    for name in files.keys() {
        tree.unlink(name).unwrap();
    }
    tree.0.close().unwrap();
    assert!(tree.0.condition().used_blocks <= used);
    assert_eq!(
        tree.0.condition().used_blocks,
        1,
        "nothing is left but the root"
    );
}

#[test]
fn every_policy_keeps_what_is_written() {
    for (_, policy) in Policy::ALL {
        for seed in 0..3 {
            churn(&device(64 * MIB), &with(policy), seed, 250);
        }
    }
}

#[test]
fn policies_may_change_from_mount_to_mount() {
    let device = device(64 * MIB);
    for (seed, (_, policy)) in (9..).zip(Policy::ALL) {
        churn(&device, &with(policy), seed, 120);
    }
}

#[test]
fn every_codec_keeps_what_is_written() {
    for (_, policy) in &Policy::ALL[1..] {
        for codec in [Codec::Lzo, Codec::Zstd] {
            churn(&device(64 * MIB), &with_codec(*policy, codec), 4, 150);
        }
    }
}

/// All chunks in the packed blocks that are valid, with the blocks that they begin in.
fn chunks(device: &Arc<MemoryDevice>) -> Vec<(u64, Slot)> {
    let surgeon = Surgeon::new(device.clone());
    let blocks = surgeon.checkpoint.bst_journal.iter();
    let slots = blocks.flat_map(|&(block, _)| {
        let (_, slots) = packed::parse(&surgeon.read(block)).unwrap();
        slots.into_iter().map(move |slot| (block, slot))
    });
    slots
        .filter(|(_, slot)| slot.kind == SlotKind::Data && !slot.continued)
        .collect()
}

/// The slots with data of all packed blocks there are, valid or not.
fn all_slots(device: &Arc<MemoryDevice>) -> Vec<Slot> {
    let bytes = device.to_vec();
    let blocks = bytes.chunks_exact(4096).map(|block| {
        let block: &Block = block.try_into().unwrap();
        packed::parse(block).map_or_else(|_| Vec::new(), |(_, slots)| slots)
    });
    let slots = blocks.flatten();
    slots.filter(|slot| slot.kind == SlotKind::Data).collect()
}

/// A chunk of a journal has as many pages as a write, so it lies in many blocks, but never in two segments: at the end of
/// one the pages are compressed in smaller pieces.
#[test]
fn long_chunks_of_groups_are_there_after_a_crash() {
    const JOURNALS: usize = 100;
    // How many blocks one takes depends on the codec.
    let options = with_codec(Policy::Record, Codec::Lz4);
    let device = device(64 * MIB);
    let tree = mounted_with(&device, &options);
    let mut dice = Dice(7);
    let data: Vec<Vec<u8>> = (0..JOURNALS).map(|_| text(&mut dice, 32 * 4096)).collect();
    for (n, data) in data.iter().enumerate() {
        let name = format!("{n}.db-journal");
        tree.put(&name, data).unwrap();
        tree.fsync(&name).unwrap();
    }
    let crashed = Arc::new(MemoryDevice::new(device.to_vec()));
    let slots = all_slots(&crashed);
    let begun = slots.iter().filter(|slot| !slot.continued).count();
    let middles = slots.iter().filter(|slot| slot.continued && slot.continues);
    assert!(middles.count() > 4 * JOURNALS, "chunks of many blocks");
    assert!(begun > JOURNALS, "smaller pieces at the end of a segment");
    let tree = mounted_with(&crashed, &options);
    for (n, data) in data.iter().enumerate() {
        let found = tree.read(&format!("{n}.db-journal")).unwrap();
        assert!(found == *data, "{n}");
    }
    tree.0.close().unwrap();
    assert_sound(&crashed, Policy::Record, 0);
}

/// By the paper's rules, nothing but an executable lies in more blocks than one.
#[test]
fn chunks_of_groups_lie_in_one_block_by_the_papers_rules() {
    let device = device(64 * MIB);
    let tree = mounted(&device, Policy::Paper);
    let data = text(&mut Dice(7), 32 * 4096);
    tree.put("a.db-journal", &data).unwrap();
    tree.fsync("a.db-journal").unwrap();
    let slots = all_slots(&device);
    assert!(slots.len() > 4 && slots.iter().all(|slot| !slot.continues));
}

/// Tests that what was written with one codec is read, moved and written over by a mount with another.
#[test]
fn codecs_may_change_from_mount_to_mount() {
    let device = device(64 * MIB);
    let mut files = Vec::new();
    for (name, codec) in Codec::ALL {
        let tree = mounted_with(&device, &with_codec(Policy::Record, codec));
        let name = format!("{name}.db");
        let data = content(&mut Dice(3), 40_000);
        tree.put(&name, &data).unwrap();
        files.push((name, data));
        tree.0.close().unwrap();
        for (name, data) in &mut files {
            assert!(tree.read(name).unwrap() == *data, "{name}, {codec:?}");
            let page = content(&mut Dice(7), 4096);
            tree.write(name, 8192, &page).unwrap();
            data[8192..12_288].copy_from_slice(&page);
        }
        tree.0.close().unwrap();
    }
    assert_sound(&device, Policy::Record, 0);
    let chunks = chunks(&device);
    for (name, codec) in Codec::ALL {
        let has = |(_, slot): &&(u64, Slot)| slot.codec == codec as u8;
        assert!(chunks.iter().filter(has).count() > 1, "{name}: {chunks:?}");
    }
    let tree = mounted(&device, Policy::None);
    for (name, data) in &files {
        assert!(tree.read(name).unwrap() == *data, "{name}");
    }
    for (seed, (_, codec)) in (20..).zip(Codec::ALL) {
        let device = self::device(64 * MIB);
        churn(&device, &with_codec(Policy::Force, codec), seed, 60);
    }
}

/// Journals are compressed many pages at once by every codec, and others as well.
#[test]
fn every_codec_takes_many_pages_of_a_journal_at_once() {
    for (name, codec) in Codec::ALL {
        let device = device(64 * MIB);
        let tree = mounted_with(&device, &with_codec(Policy::Paper, codec));
        let data = content(&mut Dice(3), 32 * 4096);
        tree.put("a.db-journal", &data).unwrap();
        tree.0.close().unwrap();
        let chunks = chunks(&device);
        let pages = |(_, slot): &(u64, Slot)| u32::from(slot.blocks);
        assert_eq!(chunks.iter().map(pages).sum::<u32>(), 32, "{name}");
        assert!(chunks.len() <= 16, "{name}: {}", chunks.len());
    }
}

/// A slot of a block on the device, as its sixteen bytes say.
fn change_slot(device: &Arc<MemoryDevice>, block: u64, number: usize, change: impl Fn(&mut [u8])) {
    let surgeon = Surgeon::new(device.clone());
    let mut bytes: Box<Block> = surgeon.read(block);
    change(&mut bytes[32 + 16 * number..][..16]);
    bytes[4..8].fill(0);
    let crc = crc32c::crc32c(&*bytes).to_le_bytes();
    bytes[4..8].copy_from_slice(&crc);
    surgeon.write(block, &bytes);
}

/// With a right checksum around it: the decoders must find it themselves.
#[test]
fn a_chunk_that_is_no_stream_of_its_codec_is_an_error() {
    for (name, codec) in Codec::ALL {
        let others = (0..=3).filter(|&number| number != codec as u8);
        let mut changes: Vec<(usize, u8)> = others.map(|number| (1, number)).collect();
        // One byte less, and one logical block more.
        changes.extend([(4, u8::MAX), (6, 1)]);
        for (at, found) in changes {
            let device = device(64 * MIB);
            let tree = mounted_with(&device, &with_codec(Policy::Record, codec));
            let page = content(&mut Dice(3), 4096);
            tree.put("a.db", &page).unwrap();
            tree.0.close().unwrap();
            let (block, slot) = chunks(&device)[0];
            assert_eq!((slot.codec, slot.blocks), (codec as u8, 1), "{name}");
            change_slot(&device, block, 0, |slot| match at {
                1 => slot[at] = found,
                _ => slot[at] = slot[at].wrapping_add(found),
            });
            let error = mounted(&device, Policy::Record).read("a.db");
            let error = error.unwrap_err().to_string();
            assert!(
                error.contains("a chunk cannot be decoded"),
                "{name}: {error}"
            );
        }
    }
}

#[test]
fn compressed_files_take_less_room() {
    let device = device(64 * MIB);
    let tree = mounted(&device, Policy::Record);
    let before = tree.0.condition().used_blocks;
    let data = b"all work and no play ".repeat(50_000);
    tree.put("a.db", &data).unwrap();
    tree.fsync("a.db").unwrap();
    let taken = tree.0.condition().used_blocks - before;
    assert!(taken < 257 / 8, "{taken} blocks");
    assert_eq!(tree.attr("a.db").unwrap().blocks / 8, 257, "as du has it");
    assert_eq!(tree.read("a.db").unwrap(), data);
    tree.unlink("a.db").unwrap();
    assert_eq!(tree.0.condition().used_blocks, before);
}

/// Small pieces anywhere, a sync behind each; what is written of which is compressed once that is known.
#[test]
fn files_are_known_by_how_they_are_used() {
    let data = b"all work and no play ".repeat(50_000);
    let written = |learns: bool| {
        let device = device(64 * MIB);
        let options = Options {
            learns,
            ..with(Policy::Record)
        };
        let tree = open_with(device.clone(), options);
        tree.put("state", &data).unwrap();
        tree.fsync("state").unwrap();
        let blocks = || tree.0.condition().statistics.blocks(Cause::Data);
        let before = blocks();
        for at in 0..100_u64 {
            let place = at * 37 % 250 * 4096;
            tree.write("state", place, &data[at as usize..][..8192])
                .unwrap();
            tree.fsync("state").unwrap();
        }
        let written = blocks() - before;
        tree.0.close().unwrap();
        assert_sound(&device, Policy::Record, 0);
        written
    };
    let (without, with) = (written(false), written(true));
    assert_eq!(without, 200);
    assert!(with < 125, "{with} blocks");
}

/// A log with two databases that were synced one after the other, unmounted.
fn two_databases() -> (Arc<MemoryDevice>, Vec<u8>) {
    let device = device(64 * MIB);
    let tree = mounted(&device, Policy::Record);
    let data = content(&mut Dice(3), 40_000);
    for name in ["a.db", "b.db"] {
        tree.put(name, &data).unwrap();
        tree.fsync(name).unwrap();
    }
    tree.0.close().unwrap();
    (device, data)
}

#[test]
fn a_wrong_table_of_slots_is_found_and_repaired() {
    let (device, data) = two_databases();
    let mut surgeon = Surgeon::new(device.clone());
    let (_, slots) = &mut surgeon.checkpoint.bst_journal[0];
    *slots ^= 1 << 31 | 1;
    surgeon.finish();
    let faults = check(device.clone(), with(Policy::Record)).unwrap().faults;
    let says = |word: &str| faults.iter().any(|fault| fault.contains(word));
    assert!(
        says("slots belong to nothing") && says("does not count it as valid"),
        "{faults:#?}"
    );
    let told = repair(device.clone(), with(Policy::Record)).unwrap();
    assert!(told.left.is_empty(), "{:?}", told.left);
    assert_sound(&device, Policy::Record, 0);
    assert!(mounted(&device, Policy::Record).read("a.db").unwrap() == data);
}

/// To know what kind of file it is, its beginning is read; that this cannot be is no reason to stop writing.
#[test]
fn a_file_whose_beginning_is_damaged_can_be_written_to() {
    let device = device(64 * MIB);
    let tree = mounted(&device, Policy::Force);
    let data = content(&mut Dice(3), 40_000);
    tree.put("plain", &data).unwrap();
    tree.fsync("plain").unwrap();
    tree.0.close().unwrap();
    let surgeon = Surgeon::new(device.clone());
    let (block, _) = surgeon.checkpoint.bst_journal[0];
    let mut bytes = surgeon.read(block);
    bytes[2000] ^= 4;
    surgeon.write(block, &bytes);
    let tree = mounted(&device, Policy::Force);
    tree.put("a.db", &data).unwrap();
    let page = &data[..4096];
    tree.write("plain", 50 * 4096, page).unwrap();
    tree.0.checkpoint().unwrap();
    assert_eq!(tree.0.failure(), None);
    assert!(tree.read("a.db").unwrap() == data);
    let mut found = vec![0; 4096];
    let ino = tree.ino("plain").unwrap();
    assert_eq!(tree.0.read(ino, 50 * 4096, &mut found).unwrap(), 4096);
    assert!(found == page);
}

#[test]
fn a_damaged_block_is_told_and_takes_nothing_else_along() {
    let (device, data) = two_databases();
    let surgeon = Surgeon::new(device.clone());
    let (block, _) = surgeon.checkpoint.bst_journal[0];
    let mut bytes = surgeon.read(block);
    bytes[2000] ^= 4;
    surgeon.write(block, &bytes);
    let tree = mounted(&device, Policy::Record);
    let error = tree.read("a.db").unwrap_err().to_string();
    assert!(error.contains("the checksum is wrong"), "{error}");
    assert!(tree.read("b.db").unwrap() == data);
    let faults = check(device, with(Policy::Record)).unwrap().faults;
    assert!(
        faults.iter().any(|fault| fault.contains("checksum")),
        "{faults:#?}"
    );
}

/// That compression may come is said in the superblock, by a mount that succeeds alone.
#[test]
fn a_log_that_cannot_be_mounted_is_not_written_to() {
    let device = device(64 * MIB);
    let mut surgeon = Surgeon::new(device.clone());
    surgeon.checkpoint.used_blocks += 1;
    surgeon.finish();
    let before = device.to_vec();
    assert!(Log::open(device.clone(), with(Policy::Record)).is_err());
    assert!(device.to_vec() == before);
}

/// Guards against a fault: what is compressed and lies behind the end of a file was found, and left there.
#[test]
fn packed_content_behind_the_end_of_a_file_is_freed() {
    let device = device(32 * MIB);
    let tree = mounted(&device, Policy::Force);
    tree.put("f", &[7; 10 * 4096]).unwrap();
    let ino = tree.ino("f").unwrap().0 as u32;
    tree.0.close().unwrap();
    drop(tree);
    let surgeon = Surgeon::new(device.clone());
    surgeon.change_inode(ino, |inode| inode.attributes.size = 7 * 4096 + 1);
    surgeon.finish();
    let faults = check(device.clone(), with(Policy::Force)).unwrap().faults;
    assert_eq!(faults.len(), 2, "{faults:?}");
    let told = repair(device.clone(), with(Policy::Force)).unwrap();
    assert_eq!(told.repairs.len(), 2, "{told:?}");
    assert_eq!(told.left, [""; 0]);
    let report = check(device.clone(), with(Policy::Force)).unwrap();
    assert_eq!(report.faults, [""; 0]);
    let found = mounted(&device, Policy::Force).read("f").unwrap();
    assert_eq!(found, [7; 7 * 4096 + 1]);
}
