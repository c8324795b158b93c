//! Extended attributes of up to 64 KiB: beyond what one node has room for, they lie in several.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use anteros_core::{Device, FileSystem, FsError, MemoryDevice, Writable, WritableDevice};
use anteros_log::layout::Superblock;
use anteros_log::layout::node::NodeKind;
use anteros_log::layout::superblock::{INCOMPAT_LARGE_XATTRS, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use anteros_log::layout::xattr::{NODE_XATTR_BYTES, Stored, VALUE_BYTES_MAX, XATTR_BYTES_MAX};
use anteros_log::{Inspector, Log, Options, check, repair, resize};
use anteros_tests::crash::{Plan, Recorder};
use support::surgeon::Surgeon;
use support::*;

const NAME: &[u8] = b"user.v";
/// Returns the bytes of an attribute's entry besides its value.
const ENTRY_BYTES: usize = 4 + NAME.len();

fn set(tree: &Tree, path: &str, name: &[u8], value: &[u8]) -> Result<(), FsError> {
    tree.0.setxattr(tree.ino(path)?, name, value, 0)
}

fn get(tree: &Tree, path: &str, name: &[u8]) -> Result<Vec<u8>, FsError> {
    tree.0.getxattr(tree.ino(path)?, name)
}

/// Returns a device as a cut of the power leaves it that loses nothing.
fn cut(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(device.to_vec()))
}

fn superblock(device: &MemoryDevice) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    let at = SUPERBLOCK_OFFSET as u64;
    device.read_at(at, &mut bytes).unwrap();
    Superblock::parse(&bytes).unwrap()
}

#[test]
fn values_of_every_length_come_back_and_give_back_their_room() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.put("f", b"content").unwrap();
    tree.fsync("f").unwrap();
    let used = || tree.0.condition().used_blocks;
    let before = used();
    let edge = NODE_XATTR_BYTES - ENTRY_BYTES;
    assert_eq!(edge + ENTRY_BYTES, 4062);
    for len in [edge - 1, edge, edge + 1, 4200, 9000, VALUE_BYTES_MAX] {
        let value = bytes(len as u64, len);
        set(&tree, "f", NAME, &value).unwrap();
        assert!(get(&tree, "f", NAME).unwrap() == value, "{len} bytes");
        let nodes = match len <= edge {
            true => 1,
            false => 1 + (len + ENTRY_BYTES).div_ceil(4064) as u64,
        };
        assert_eq!(used() - before, nodes, "{len} bytes");
        assert_eq!(tree.attr("f").unwrap().blocks / 8, nodes, "{len} bytes");
        let is_large = superblock(&device).incompat & INCOMPAT_LARGE_XATTRS != 0;
        assert_eq!(is_large, len > edge, "{len} bytes");
        // Replayed from the records of a group, and then from nodes.
        tree.fsync("f").unwrap();
        let cut = cut(&device);
        for _ in 0..2 {
            let found = open(cut.clone());
            assert!(get(&found, "f", NAME).unwrap() == value, "{len} bytes");
            found.0.close().unwrap();
            assert_sound(cut.clone());
        }
    }
    set(&tree, "f", NAME, b"short").unwrap();
    assert_eq!((used(), get(&tree, "f", NAME).unwrap().len()), (before, 5));
    set(&tree, "f", NAME, &[1; VALUE_BYTES_MAX]).unwrap();
    let ino = tree.ino("f").unwrap();
    tree.0.removexattr(ino, NAME).unwrap();
    assert_eq!((used(), tree.0.listxattr(ino).unwrap().len()), (before, 0));
    set(&tree, "f", NAME, &[1; VALUE_BYTES_MAX]).unwrap();
    tree.unlink("f").unwrap();
    assert!(used() < before);
    tree.0.close().unwrap();
    assert_sound(device.clone());
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.create("f").unwrap();
    let name = |n: u8| [b"user.", &[b'a' + n][..]].concat();
    let most = VALUE_BYTES_MAX - ENTRY_BYTES;
    for n in 0..4 {
        set(&tree, "f", &name(n), &bytes(n.into(), most)).unwrap();
    }
    assert_eq!(4 * (most + ENTRY_BYTES), XATTR_BYTES_MAX);
    assert!(is(set(&tree, "f", b"user.e", b""), FsError::NoSpace));
    assert!(set(&tree, "f", b"user.a", &[0; VALUE_BYTES_MAX + 1]).is_err());
    for n in 0..4 {
        let value = get(&tree, "f", &name(n)).unwrap();
        assert!(value == bytes(n.into(), most));
    }
    // Where there is no room on the device either.
    tree.create("g").unwrap();
    set(&tree, "g", NAME, &[5; 20_000]).unwrap();
    tree.create("fill").unwrap();
    let fill = vec![1; 1 << 20];
    let mut at = 0;
    loop {
        match tree.write("fill", at, &fill) {
            Ok(done) => at += done as u64,
            Err(FsError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(is(
        set(&tree, "g", NAME, &[6; VALUE_BYTES_MAX]),
        FsError::NoSpace
    ));
    assert_eq!(get(&tree, "g", NAME).unwrap(), [5; 20_000]);
    tree.0.close().unwrap();
    assert_sound(device.clone());
}

/// Attributes of a few files, set and removed by dice, against a map; with checkpoints, cuts of the power and cleaning.
#[test]
fn a_model_agrees() {
    let mut device = device(64 * MIB);
    let mut tree = open(device.clone());
    let mut model: BTreeMap<(String, Vec<u8>), Vec<u8>> = BTreeMap::new();
    let mut dice = dice(5);
    for n in 0..3 {
        tree.create(&format!("f{n}")).unwrap();
    }
    for step in 0..120 {
        let path = format!("f{}", dice(3));
        let name = format!("user.{}", dice(6)).into_bytes();
        let key = (path.clone(), name.clone());
        match dice(12) {
            0..=6 => {
                let limit = [300, 5000, 20_000, 65_537][dice(4) as usize];
                let value = bytes(step, dice(limit) as usize);
                set(&tree, &path, &name, &value).unwrap_or_else(|error| {
                    assert!(matches!(error, FsError::NoSpace), "{error}");
                });
                let sum = |model: &BTreeMap<(String, Vec<u8>), Vec<u8>>| -> usize {
                    let of = model.iter().filter(|((other, _), _)| *other == path);
                    of.map(|((_, name), value)| 4 + name.len() + value.len())
                        .sum()
                };
                let old = model.insert(key.clone(), value);
                if sum(&model) > XATTR_BYTES_MAX {
                    match old {
                        Some(old) => model.insert(key, old),
                        None => model.remove(&key),
                    };
                }
            }
            7 => {
                let removed = tree.0.removexattr(tree.ino(&path).unwrap(), &name);
                assert_eq!(removed.is_ok(), model.remove(&key).is_some());
            }
            8 => tree.fsync(&path).unwrap(),
            9 => tree.0.checkpoint().unwrap(),
            10 => drop(tree.0.clean().unwrap()),
            _ => {
                tree.fsync(&path).unwrap();
                device = cut(&device);
                tree = open(device.clone());
            }
        }
        for ((path, name), value) in &model {
            assert!(get(&tree, path, name).unwrap() == *value, "step {step}");
        }
    }
    for n in 0..3 {
        let path = format!("f{n}");
        let names = tree.0.listxattr(tree.ino(&path).unwrap()).unwrap();
        let wanted = model.keys().filter(|(other, _)| *other == path);
        assert!(names.iter().eq(wanted.map(|(_, name)| name)));
    }
    tree.0.close().unwrap();
    assert_sound(device.clone());
}

/// The attributes are those of before or of after, and after a sync those of after.
#[test]
fn a_cut_of_the_power_finds_one_set_or_the_other() {
    let empty = device(32 * MIB);
    let sets: [&[u8]; 6] = [
        &bytes(1, 30_000),
        &bytes(2, VALUE_BYTES_MAX),
        b"short",
        &bytes(3, 9000),
        &bytes(4, 40_000),
        &bytes(5, 4000),
    ];
    for memory_bytes in [160 << 10, 32 << 20] {
        let options = || Options {
            memory_bytes,
            ..options()
        };
        let recorder = Arc::new(Recorder::new(&empty.to_vec()));
        let tree = open_with(recorder.clone(), options());
        tree.put("f", b"content").unwrap();
        tree.fsync("f").unwrap();
        recorder.mark("there");
        for (n, value) in sets.iter().enumerate() {
            recorder.mark(format!("begun {n}"));
            set(&tree, "f", NAME, value).unwrap();
            match n % 2 {
                0 => tree.fsync("f").unwrap(),
                _ => tree.0.checkpoint().unwrap(),
            }
            recorder.mark(format!("done {n}"));
        }
        let plan = Plan {
            subsets_max: 2,
            samples: 1,
            tears: 1,
            seed: 3,
        };
        let explored = recorder.recording().explore(&plan, |state| {
            if !state.has_mark("there") {
                return Ok(());
            }
            let device: Arc<dyn WritableDevice> = Arc::new(state.device());
            let opened = Log::open(device.clone(), options());
            let tree = Tree(opened.map_err(|error| format!("no mount: {error}"))?);
            let found = match get(&tree, "f", NAME) {
                Ok(value) => Some(value),
                Err(FsError::NoData) => None,
                Err(error) => return Err(error.to_string()),
            };
            let marked = |word: &str| {
                let all = 0..sets.len();
                all.filter(|n| state.has_mark(&format!("{word} {n}")))
                    .count()
            };
            let is = |count: usize| match count {
                0 => found.is_none(),
                _ => found.as_deref() == Some(sets[count - 1]),
            };
            if !(marked("done")..=marked("begun")).any(is) {
                let len = found.map(|value| value.len());
                return Err(format!("{len:?} bytes after {}", marked("done")));
            }
            tree.0.close().map_err(|error| error.to_string())?;
            let report = check(device, options()).map_err(|error| error.to_string())?;
            match report.fault_count {
                0 => Ok(()),
                _ => Err(report.faults.join(", ")),
            }
        });
        explored.expect_none_failed();
    }
}

/// A log with a file whose attributes lie in several nodes, one whose attributes lie in one, and the numbers of both.
fn with_attributes() -> (Arc<MemoryDevice>, [u32; 2]) {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    tree.put("f", &bytes(1, 50_000)).unwrap();
    tree.put("g", b"other").unwrap();
    set(&tree, "f", NAME, &bytes(7, 30_000)).unwrap();
    set(&tree, "g", NAME, &bytes(8, 3000)).unwrap();
    let inos = ["f", "g"].map(|path| tree.ino(path).unwrap().0 as u32);
    tree.0.close().unwrap();
    (device, inos)
}

/// The nodes of the attributes of an inode.
fn nodes(device: &Arc<MemoryDevice>, ino: u32) -> Vec<u32> {
    let mut log = Inspector::open(device.clone(), &options()).unwrap();
    let nodes = log.inode(ino).unwrap().nodes;
    let kind = |place: Option<(NodeKind, u32)>| place.map(|(kind, _)| kind);
    let wanted = nodes
        .iter()
        .filter(|node| kind(node.place) == Some(NodeKind::Attributes));
    wanted.map(|node| node.nid).collect()
}

/// Checks that the damage is told, that nothing but the attributes of `f` is lost by a repair, and that this is told too.
fn assert_repaired(device: &Arc<MemoryDevice>, what: &str) {
    let report = check(device.clone(), options()).unwrap();
    let faults = report.faults.join(", ");
    assert!(report.fault_count > 0, "{what}");
    let tree = open_to_read(device.clone());
    assert!(get(&tree, "f", NAME).is_err(), "{what}");
    assert!(tree.read("f").unwrap() == bytes(1, 50_000), "{what}");
    drop(tree);
    let repaired = repair(device.clone(), options()).unwrap();
    let said = repaired.repairs.join(", ");
    assert!(said.contains("attributes are lost"), "{what}: {said}");
    assert_eq!(repaired.left, [""; 0], "{what}: {faults}");
    assert_sound(device.clone());
    let tree = open(device.clone());
    assert!(is(get(&tree, "f", NAME), FsError::NoData), "{what}");
    assert!(tree.read("f").unwrap() == bytes(1, 50_000), "{what}");
    assert!(get(&tree, "g", NAME).unwrap() == bytes(8, 3000), "{what}");
    set(&tree, "f", NAME, &[1; 20_000]).unwrap();
    tree.0.close().unwrap();
    assert_sound(device.clone());
}

#[test]
fn a_broken_further_node_costs_the_attributes_and_not_the_file() {
    let (whole, [ino, _]) = with_attributes();
    let nids = nodes(&whole, ino);
    assert_eq!(nids.len(), 1 + 8);
    for broken in [0, 1, 5, 8] {
        let device = cut(&whole);
        let surgeon = Surgeon::new(device.clone());
        let place = surgeon.place(nids[broken]);
        let mut block = surgeon.read(place);
        block[100] ^= 1;
        surgeon.write(place, &block);
        assert_repaired(&device, &format!("node {broken}"));
    }
}

/// Tries attributes that no program of ours wrote, with right checksums.
#[test]
fn lengths_and_numbers_are_not_believed() {
    let (whole, [ino, other]) = with_attributes();
    let nids = nodes(&whole, ino);
    let others = nodes(&whole, other)[0];
    let stored = |len: usize, change: &dyn Fn(&mut Vec<u32>)| {
        let mut further = nids[1..].to_vec();
        change(&mut further);
        Stored::Further { len, nids: further }
    };
    let len = 30_000 + ENTRY_BYTES;
    let cases = [
        ("too long", stored(XATTR_BYTES_MAX + 1, &|_| ())),
        ("far too long", stored(u32::MAX as usize, &|_| ())),
        ("too short", stored(NODE_XATTR_BYTES, &|_| ())),
        ("one node more", stored(len + 4064, &|_| ())),
        ("beyond the end", stored(len + 1, &|_| ())),
        ("none", stored(len, &|nids| nids[3] = 0)),
        ("itself", stored(len, &|further| further[3] = nids[0])),
        ("twice", stored(len, &|nids| nids[3] = nids[2])),
        ("another order", stored(len, &|nids| nids.swap(1, 4))),
        ("of another", stored(len, &|nids| nids[3] = others)),
        ("the inode", stored(len, &|nids| nids[3] = ino)),
        ("beyond", stored(len, &|nids| nids[3] = u32::MAX)),
    ];
    for (what, stored) in cases {
        let device = cut(&whole);
        let surgeon = Surgeon::new(device.clone());
        surgeon.node(nids[0], |block| stored.store(block));
        assert_repaired(&device, what);
    }
    let device = cut(&whole);
    let mut superblock = superblock(&device);
    superblock.incompat &= !INCOMPAT_LARGE_XATTRS;
    for block in 0..2 {
        let at = block * 4096 + SUPERBLOCK_OFFSET as u64;
        device.write_at(at, &superblock.encode()).unwrap();
    }
    assert_repaired(&device, "without their feature");
}

#[test]
fn they_go_along_with_a_new_size_and_with_cleaning() {
    let (device, [ino, _]) = with_attributes();
    let count = nodes(&device, ino).len();
    let shrunk: Arc<dyn WritableDevice> = device.clone();
    resize(&shrunk, 40 * MIB, &options()).unwrap();
    assert_sound(device.clone());
    assert_eq!(nodes(&device, ino).len(), count);
    let tree = open(device.clone());
    for round in 0..30 {
        tree.put("churn", &bytes(round, 2 << 20)).unwrap();
        tree.fsync("churn").unwrap();
        tree.0.clean().unwrap();
    }
    assert!(get(&tree, "f", NAME).unwrap() == bytes(7, 30_000));
    tree.0.close().unwrap();
    assert_sound(device.clone());
    assert!(superblock(&device).incompat & INCOMPAT_LARGE_XATTRS != 0);
}
