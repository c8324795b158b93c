//! Each kind of damage is seen, named and repaired, and the rest of the tree is unharmed.

mod support;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use anteros_core::{Device, FileKind, MemoryDevice, WritableDevice};
use anteros_log::layout::summary::{self, Owner};
use anteros_log::layout::table::NatEntry;
use anteros_log::layout::{BLOCK_BYTES, ROOT, SEGMENT_CONTENT};
use anteros_log::{Mode, Options, Repaired, check, repair};
use anteros_tests::crash::{Plan, Recorder};
use support::surgeon::Surgeon;
use support::*;

const REGULAR: u8 = 8;
const DIRECTORY: u8 = 4;

/// Names of the larger directory.
const MANY: usize = 400;

/// A log with files of several kinds, unmounted.
fn grown() -> Arc<MemoryDevice> {
    let device = device(64 * MIB);
    let tree = open(device.clone());
    for path in ["a", "a/b", "a/b/below", "many"] {
        tree.mkdir(path).unwrap();
    }
    tree.put("a/small", b"small").unwrap();
    tree.put("a/large", &bytes(1, 900_000)).unwrap();
    tree.put("a/other", &bytes(2, 100_000)).unwrap();
    tree.put("a/b/deep", &bytes(3, 20_000)).unwrap();
    tree.put("a/b/below/deepest", b"deepest").unwrap();
    // Large enough to fill a segment.
    tree.put("huge", &bytes(4, 5 << 20)).unwrap();
    tree.link("a/small", "linked").unwrap();
    tree.symlink("symlink", b"a/large").unwrap();
    for n in 0..MANY {
        tree.put(
            &format!("many/a name that is not short {n}"),
            format!("{n}").as_bytes(),
        )
        .unwrap();
    }
    tree.0.close().unwrap();
    device
}

type Content = BTreeMap<String, Vec<u8>>;

/// All paths below a directory with what they hold; directories hold nothing.
fn content(tree: &Tree, path: &str) -> Content {
    let mut found = Content::new();
    for name in tree.list(path).unwrap() {
        let path = format!("{path}/{name}");
        let is_directory = tree.attr(&path).unwrap().kind == FileKind::Directory;
        if is_directory {
            found.extend(content(tree, &path));
        }
        let bytes = if is_directory {
            Vec::new()
        } else {
            tree.read(&path).unwrap()
        };
        found.insert(path, bytes);
    }
    found
}

fn faults(device: &Arc<MemoryDevice>) -> u64 {
    check(device.clone(), options()).unwrap().fault_count
}

/// The numbers of inodes by their paths.
struct Numbers(Tree);

impl Numbers {
    fn of(&self, path: &str) -> u32 {
        self.0.ino(path).unwrap().0 as u32
    }
}

/// A log that is damaged and repaired: what it held before, what was said of the repair, what it holds now.
fn mended(damage: impl FnOnce(&mut Surgeon, &Numbers)) -> (Content, Repaired, Content) {
    let device = grown();
    let numbers = Numbers(open(Arc::new(MemoryDevice::new(device.to_vec()))));
    let before = content(&numbers.0, "");
    assert_eq!(faults(&device), 0);
    let mut surgeon = Surgeon::new(device.clone());
    damage(&mut surgeon, &numbers);
    surgeon.finish();
    assert!(
        check(device.clone(), options()).map_or(1, |report| report.fault_count) > 0,
        "the damage is not seen"
    );
    let damaged = device.to_vec();
    let told = repair(device.clone(), options()).unwrap();
    let again = check(device.clone(), options()).unwrap();
    mends_alike_in_little_memory(damaged, &told, &device);
    if told.left.is_empty() {
        assert_eq!(again.faults, [""; 0], "{told:?}");
        assert!(again.recovery.was_clean);
        let repaired = device.to_vec();
        assert_eq!(
            repair(device.clone(), options()).unwrap(),
            Repaired {
                recovery: again.recovery,
                ..Repaired::default()
            }
        );
        assert!(
            device.to_vec() == repaired,
            "a log without faults was changed"
        );
    } else {
        assert!(again.fault_count > 0, "{told:?}");
    }
    let tree = open(device.clone());
    let after = match told.left.is_empty() {
        true => content(&tree, ""),
        false => Content::new(),
    };
    // It can be worked with.
    tree.put("new", &bytes(9, 300_000)).unwrap();
    tree.0.close().unwrap();
    drop(tree);
    assert_eq!(open(device).read("new").unwrap(), bytes(9, 300_000));
    (before, told, after)
}

/// Repairs once more, with notes that have to go to temporary files.
fn mends_alike_in_little_memory(damaged: Vec<u8>, told: &Repaired, repaired: &Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::new(damaged));
    assert_eq!(
        repair(device.clone(), options_with(1 << 20)).unwrap(),
        *told
    );
    assert_eq!(faults(&device), faults(repaired));
    if told.left.is_empty() {
        let copy = Arc::new(MemoryDevice::new(repaired.to_vec()));
        assert!(content(&open(device), "") == content(&open(copy), ""));
    }
}

/// Damage after whose repair the log holds what it held, and of which this is said.
fn heals(words: &[&str], damage: impl FnOnce(&mut Surgeon, &Numbers)) {
    let (before, told, after) = mended(damage);
    says(&told, words);
    assert!(after == before, "{told:?}");
}

fn says(told: &Repaired, words: &[&str]) {
    assert_eq!(told.left, [""; 0]);
    for word in words {
        assert!(
            told.repairs.iter().any(|line| line.contains(word)),
            "{word}: {told:#?}"
        );
    }
    assert_eq!(told.repairs.len(), words.len(), "{told:#?}");
}

#[test]
fn a_log_without_faults_is_not_changed() {
    let device = grown();
    let before = device.to_vec();
    assert_eq!(repair(device.clone(), options()).unwrap().repairs, [""; 0]);
    assert!(device.to_vec() == before);
}

#[test]
fn names_of_what_is_not_there_are_removed() {
    heals(
        &[
            "\"ghost\": inode 7000 is not there",
            "\"beyond\": inode 4000000000 is not there",
        ],
        |surgeon, numbers| {
            surgeon.add_name(numbers.of("a"), b"ghost", 7000, REGULAR);
            surgeon.add_name(numbers.of("a"), b"beyond", 4_000_000_000, REGULAR);
        },
    );
}

#[test]
fn wrong_counts_are_set_right() {
    heals(
        &["said that it has 7 links, but has 2"],
        |surgeon, numbers| {
            surgeon.change_inode(numbers.of("a/small"), |inode| inode.attributes.nlink = 7);
        },
    );
    heals(
        &["said that it has 0 links, but has 3"],
        |surgeon, numbers| {
            surgeon.change_inode(numbers.of("a"), |inode| inode.attributes.nlink = 0);
        },
    );
    heals(
        &["said that it has 99 names, but has 4"],
        |surgeon, numbers| {
            surgeon.change_inode(numbers.of("a"), |inode| inode.entries = 99);
        },
    );
    heals(
        &["said that it takes 3 blocks, but takes 220"],
        |surgeon, numbers| {
            surgeon.change_inode(numbers.of("a/large"), |inode| inode.attributes.blocks = 3);
        },
    );
    heals(
        &["checkpoint: 416 nodes, but there are 414"],
        |surgeon, _| surgeon.checkpoint.nodes += 2,
    );
    heals(
        &["checkpoint: 1 preallocated blocks, but there are 0"],
        |surgeon, _| surgeon.checkpoint.reserved_blocks = 1,
    );
    heals(&["valid blocks, but"], |surgeon, _| {
        surgeon.checkpoint.used_blocks += 5
    });
}

#[test]
fn a_directory_says_where_it_lies() {
    heals(
        &["said that it lies in directory 1, but lies in"],
        |surgeon, numbers| {
            surgeon.change_inode(numbers.of("a/b"), |inode| inode.attributes.parent = ROOT);
        },
    );
}

#[test]
fn a_directory_has_one_name() {
    heals(&["\"again\": directory", "links"], |surgeon, numbers| {
        surgeon.add_name(ROOT, b"again", numbers.of("a/b"), DIRECTORY);
        surgeon.change_inode(ROOT, |inode| inode.attributes.nlink += 1);
    });
    // Below itself, where it even says that it lies.
    heals(
        &["\"circle\": directory", "said that it lies in"],
        |surgeon, numbers| {
            surgeon.add_name(
                numbers.of("a/b/below"),
                b"circle",
                numbers.of("a"),
                DIRECTORY,
            );
            surgeon.change_inode(numbers.of("a"), |inode| {
                inode.attributes.parent = numbers.of("a/b/below")
            });
        },
    );
}

#[test]
fn a_name_has_the_kind_of_its_inode() {
    heals(&["\"linked\": inode"], |surgeon, numbers| {
        surgeon.remove_name(ROOT, b"linked");
        surgeon.add_name(ROOT, b"linked", numbers.of("a/small"), DIRECTORY);
    });
}

#[test]
fn names_are_put_where_they_are_found() {
    heals(
        &["1 names lie where their hashes do not lead"],
        |surgeon, _| {
            surgeon.names(ROOT, |leaf| leaf.entries[0].hash = 0x100);
        },
    );
}

/// Moves what was lost back in mind: `#NID` below `lost+found` stands for the path it had.
fn found(after: &Content, homes: &[(u32, &str)]) -> Content {
    let back = |path: &String| {
        homes.iter().fold(path.clone(), |path, (ino, home)| {
            path.replacen(&format!("/lost+found/#{ino}"), home, 1)
        })
    };
    let kept = after.iter().filter(|(path, _)| *path != "/lost+found");
    kept.map(|(path, bytes)| (back(path), bytes.clone()))
        .collect()
}

#[test]
fn what_no_name_leads_to_is_put_into_lost_and_found() {
    let mut numbers = (0, 0);
    let (before, told, after) = mended(|surgeon, of| {
        numbers = (of.of("a/large"), of.of("a/b"));
        let a = of.of("a");
        surgeon.remove_name(a, b"large");
        surgeon.remove_name(a, b"b");
        surgeon.change_inode(a, |inode| inode.attributes.nlink -= 1);
    });
    says(&told, &["no name led to it", "no name led to it"]);
    assert!(after.contains_key("/lost+found"));
    assert!(
        found(&after, &[(numbers.0, "/a/large"), (numbers.1, "/a/b")]) == before,
        "{:?}",
        after.keys()
    );
}

#[test]
fn a_circle_that_no_name_leads_to_is_opened() {
    let mut ino = 0;
    let (before, told, after) = mended(|surgeon, of| {
        ino = of.of("a");
        surgeon.remove_name(ROOT, b"a");
        surgeon.change_inode(ROOT, |inode| inode.attributes.nlink -= 1);
        surgeon.add_name(of.of("a/b/below"), b"circle", ino, DIRECTORY);
        surgeon.change_inode(ino, |inode| inode.attributes.parent = of.of("a/b/below"));
        surgeon.change_inode(of.of("a/b/below"), |inode| inode.attributes.nlink += 1);
    });
    says(&told, &["circle", "no name led to it", "links"]);
    assert!(
        found(&after, &[(ino, "/a")]) == before,
        "{:?}",
        after.keys()
    );
}

#[test]
fn blocks_that_belong_to_nothing_are_freed() {
    heals(&["3 valid blocks belonged to nothing"], |surgeon, _| {
        let last = surgeon
            .superblock
            .segment_start(surgeon.superblock.segments - 1);
        (last + 7..last + 10).for_each(|block| surgeon.set_valid(block, true));
    });
}

#[test]
fn blocks_in_use_are_valid() {
    heals(
        &["1 blocks are in use and were not counted as valid"],
        |surgeon, numbers| {
            surgeon.set_valid(surgeon.pointer(numbers.of("a/large"), 100), false);
        },
    );
    heals(
        &["1 blocks are in use and were not counted as valid"],
        |surgeon, numbers| {
            surgeon.set_valid(surgeon.place(numbers.of("a/small")), false);
        },
    );
}

#[test]
fn numbers_that_belong_to_nothing_are_freed() {
    heals(
        &[
            "node 5000: was in use and belonged to nothing",
            "checkpoint: ",
        ],
        |surgeon, _| {
            surgeon.set_nat(
                5000,
                NatEntry {
                    pointer: 0,
                    ino: 5000,
                    generation: 3,
                },
            );
        },
    );
    heals(
        &[
            "node 5001: was in use and belonged to nothing",
            "checkpoint: ",
        ],
        |surgeon, numbers| {
            surgeon.set_nat(
                5001,
                NatEntry {
                    pointer: 0,
                    ino: numbers.of("a/large"),
                    generation: 3,
                },
            );
        },
    );
}

#[test]
fn an_entry_of_the_segment_table_is_one_that_can_be() {
    let last = |surgeon: &Surgeon| surgeon.superblock.segments - 1;
    heals(
        &["the count of valid blocks is not that of the set bits"],
        |surgeon, _| {
            surgeon.change_table(last(surgeon), |entry| entry.valid = 3);
        },
    );
    heals(&["the kind is unknown"], |surgeon, _| {
        surgeon.change_table(last(surgeon), |entry| entry.kind = 77);
    });
}

/// A logical block of `large` is put where something else lies.
fn stolen(of: impl FnOnce(&Surgeon, &Numbers) -> u64) {
    let (mut before, told, after) = mended(|surgeon, numbers| {
        let block = of(surgeon, numbers);
        surgeon.set_pointer(numbers.of("a/large"), 7, block);
    });
    says(
        &told,
        &[
            "logical block 7: was in block",
            "1 valid blocks belonged to nothing",
        ],
    );
    before.get_mut("/a/large").unwrap()[7 * BLOCK_BYTES..8 * BLOCK_BYTES].fill(0);
    // One block less than it said: that was counted when it was taken away.
    assert!(after == before, "{told:?}");
}

#[test]
fn a_block_of_two_owners_stays_with_the_right_one() {
    stolen(|surgeon, numbers| surgeon.pointer(numbers.of("a/other"), 3));
    stolen(|surgeon, numbers| surgeon.pointer(numbers.of("huge"), 30));
    stolen(|surgeon, numbers| surgeon.place(numbers.of("a/small")));
}

#[test]
fn a_block_of_two_owners_of_which_none_is_the_right_one_is_told_and_left() {
    let (_, told, _) = mended(|surgeon, numbers| {
        let last = surgeon
            .superblock
            .segment_start(surgeon.superblock.segments - 1);
        for path in ["a/large", "a/other"] {
            surgeon.set_pointer(numbers.of(path), 7, last + 9);
        }
    });
    assert_eq!(told.left.len(), 1, "{told:?}");
    assert!(
        told.left[0].contains("belongs to more than one"),
        "{told:?}"
    );
}

#[test]
fn blocks_behind_the_end_of_a_file_are_freed() {
    let (mut before, told, after) = mended(|surgeon, numbers| {
        surgeon.change_inode(numbers.of("a/large"), |inode| {
            inode.attributes.size = 890_000
        });
    });
    says(
        &told,
        &[
            "had a block 218 behind its end",
            "had a block 219 behind its end",
        ],
    );
    before.get_mut("/a/large").unwrap().truncate(890_000);
    assert!(after == before, "{told:?}");
}

/// They would be lost with the blocks that they lie in.
#[test]
fn names_behind_the_end_of_a_directory_are_written_anew() {
    heals(&["400 names that can be read"], |surgeon, numbers| {
        surgeon.change_inode(numbers.of("many"), |inode| {
            inode.attributes.size = BLOCK_BYTES as u64
        });
    });
}

#[test]
fn a_summary_that_is_broken_is_written_anew() {
    heals(&["its summary was broken"], |surgeon, numbers| {
        let (segment, _) = surgeon
            .superblock
            .locate(surgeon.pointer(numbers.of("huge"), 100))
            .unwrap();
        surgeon.write(
            surgeon.superblock.segment_start(segment) + 511,
            &[7; BLOCK_BYTES],
        );
    });
}

/// The summary of the segment that a block lies in, with other owners.
fn resummarize(surgeon: &Surgeon, block: u64, change: impl FnOnce(&mut Vec<Owner>, usize)) {
    let (segment, index) = surgeon.superblock.locate(block).unwrap();
    let at = surgeon.superblock.segment_start(segment) + u64::from(SEGMENT_CONTENT);
    let serial = surgeon.segment(segment).serial;
    let mut owners = summary::parse(&surgeon.read(at), serial).unwrap();
    change(&mut owners, index.into());
    surgeon.write(at, &summary::encode(serial, &owners));
}

#[test]
fn a_summary_that_names_others_than_the_owners_is_written_anew() {
    heals(&["named others"], |surgeon, numbers| {
        let huge = numbers.of("huge");
        resummarize(surgeon, surgeon.pointer(huge, 100), |owners, at| {
            assert_eq!(owners[at].ino, huge);
            owners.swap(at, at + 1);
        });
    });
    heals(&["named others"], |surgeon, numbers| {
        let large = numbers.of("a/large");
        let block = surgeon.pointer(numbers.of("huge"), 3);
        resummarize(surgeon, block, |owners, at| owners[at].ino = large);
    });
    heals(&["named others"], |surgeon, numbers| {
        let block = surgeon.pointer(numbers.of("huge"), 3);
        resummarize(surgeon, block, |owners, at| owners[at] = Owner::default());
    });
}

/// The summary of a segment that is still being filled lies in the checkpoint, and is written when it is closed.
#[test]
fn owners_in_the_checkpoint_are_held_against_the_pointers() {
    for of_nodes in [true, false] {
        heals(&[], |surgeon, _| {
            let open = surgeon.checkpoint.heads.iter().enumerate();
            let mut places = open.flat_map(|(which, head)| {
                let bits = surgeon.segment(head.segment).bits;
                let is_valid = move |index: &usize| bits[index / 8] >> (index % 8) & 1 == 1;
                let is_wanted = head.kind.has_nodes() == of_nodes;
                let valid = (0..head.next.into()).filter(is_valid);
                valid.filter_map(move |index| is_wanted.then_some((which, index)))
            });
            let (which, index) = places.next().unwrap();
            drop(places);
            surgeon.checkpoint.summaries[which][index].lblk += 1;
        });
    }
}

/// Shows what a broken summary is for: without a repair, it stands in the way of cleaning.
#[test]
fn a_log_can_be_cleaned_after_a_repair() {
    let device = grown();
    let open = |device| {
        let options = Options {
            mode: Mode::Adaptive,
            ..plainly()
        };
        open_with(device, options)
    };
    let tree = open(device.clone());
    let huge = tree.ino("huge").unwrap().0 as u32;
    for at in (0..5 << 20).step_by(8192) {
        tree.write("huge", at, &[9; 4096]).unwrap();
    }
    tree.0.close().unwrap();
    let surgeon = Surgeon::new(device.clone());
    let block = surgeon.pointer(huge, 101);
    resummarize(&surgeon, block, |owners, at| owners[at].lblk = 7);
    let damaged = Arc::new(MemoryDevice::new(device.to_vec()));
    let damaged = open(damaged);
    damaged.0.clean_all(|_| true).unwrap();
    let warnings = damaged.0.take_warnings();
    assert!(
        warnings.iter().any(|told| told.contains("summary")),
        "{warnings:?}"
    );
    let told = repair(device.clone(), options()).unwrap();
    says(&told, &["named others"]);
    let tree = open(device.clone());
    let before = tree.read("huge").unwrap();
    assert!(tree.0.clean_all(|_| true).unwrap() > 0);
    assert!(tree.read("huge").unwrap() == before);
    tree.0.close().unwrap();
    assert_eq!(faults(&device), 0);
}

/// A device that cannot discard.
struct WithoutDiscard(Arc<MemoryDevice>);

impl Device for WithoutDiscard {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

impl WritableDevice for WithoutDiscard {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A segment that was emptied, freed and filled again by groups behind the checkpoint still has its old summary,
/// which is whole and says nothing of what lies there now.
#[test]
fn a_segment_that_was_filled_again_gets_a_summary() {
    let device = device(64 * MIB);
    let tree = open(Arc::new(WithoutDiscard(device.clone())));
    tree.put("here", b"here").unwrap();
    let here = tree.ino("here").unwrap().0 as u32;
    tree.0.checkpoint().unwrap();
    // Each round fills what the one before has emptied.
    for round in 0..12 {
        tree.put("file", &bytes(round, 12 << 20)).unwrap();
        tree.fsync("file").unwrap();
        tree.truncate("file", 0).unwrap();
        tree.0.checkpoint().unwrap();
    }
    let surgeon = Surgeon::new(Arc::new(MemoryDevice::new(device.to_vec())));
    let was_used = |segment: &u32| surgeon.segment(*segment).serial != 0;
    let used = (0..surgeon.superblock.segments).filter(was_used).count();
    assert!(used + 1 >= surgeon.superblock.segments as usize, "{used}");
    tree.put("file", &bytes(99, 12 << 20)).unwrap();
    tree.fsync("file").unwrap();
    drop(tree);
    assert_eq!(faults(&device), 0);
    // Something to be repaired, so that there is a repair.
    let surgeon = Surgeon::new(device.clone());
    surgeon.change_inode(here, |inode| inode.attributes.nlink = 3);
    let told = repair(device.clone(), options()).unwrap();
    says(&told, &["said that it has 3 links"]);
    assert_sound(device.clone());
    let tree = open(device.clone());
    assert!(tree.read("file").unwrap() == bytes(99, 12 << 20));
    for at in (0..12 << 20).step_by(8192) {
        tree.write("file", at, &[9; 4096]).unwrap();
    }
    assert!(tree.0.clean_all(|_| true).unwrap() > 0);
}

#[test]
fn names_are_saved_from_a_directory_with_a_broken_block() {
    let mut lost = 0;
    let (before, told, after) = mended(|surgeon, numbers| {
        let many = numbers.of("many");
        let size = surgeon.inode(many).attributes.size;
        assert!(size >= 4 * BLOCK_BYTES as u64, "{size}");
        // Block 0 is the index, so this is a leaf.
        surgeon.write(surgeon.pointer(many, 1), &[1; BLOCK_BYTES]);
        lost = many;
    });
    assert_eq!(told.left, [""; 0]);
    assert!(
        told.repairs[0].contains(&format!("directory {lost}: ")),
        "{told:?}"
    );
    let whole = |content: &Content| {
        let mut all: Vec<_> = content
            .values()
            .filter(|bytes| !bytes.is_empty())
            .cloned()
            .collect();
        all.sort();
        all
    };
    assert!(whole(&before) == whole(&after), "content is lost");
    let kept = after
        .keys()
        .filter(|path| path.starts_with("/many/"))
        .count();
    assert!((1..MANY).contains(&kept), "{kept}");
    assert_eq!(
        after
            .keys()
            .filter(|path| path.starts_with("/lost+found/"))
            .count(),
        MANY - kept
    );
}

/// Tests that what cannot be read is not known, and so nothing that may belong to it is freed.
#[test]
fn what_cannot_be_read_is_told_and_left() {
    let device = grown();
    let of = Numbers(open(Arc::new(MemoryDevice::new(device.to_vec()))));
    let before = content(&of.0, "");
    let (large, small) = (of.of("a/large"), of.of("a/small"));
    let surgeon = Surgeon::new(device.clone());
    let place = surgeon.place(large);
    let mut block = surgeon.read(place);
    block[100] ^= 1;
    surgeon.write(place, &block);
    surgeon.change_inode(small, |inode| inode.attributes.nlink = 9);
    surgeon.finish();
    let told = repair(device.clone(), options()).unwrap();
    assert!(
        told.repairs
            .iter()
            .any(|line| line.contains("said that it has 9 links")),
        "{told:#?}"
    );
    assert!(
        told.left
            .iter()
            .any(|line| line.contains("\"large\": node") && line.contains("checksum")),
        "{told:#?}"
    );
    // Where the bit is turned back, all of it is there.
    let surgeon = Surgeon::new(device.clone());
    let place = surgeon.place(large);
    let mut block = surgeon.read(place);
    block[100] ^= 1;
    surgeon.write(place, &block);
    assert_sound(device.clone());
    assert!(content(&open(device), "") == before);
}

/// Changes nodes at random; whatever is not below them stays as it is.
#[test]
fn random_damage_harms_nothing_else() {
    for seed in 0..40 {
        let device = grown();
        let of = Numbers(open(Arc::new(MemoryDevice::new(device.to_vec()))));
        let before = content(&of.0, "");
        let surgeon = Surgeon::new(device.clone());
        let random = bytes(seed, 4);
        let paths = ["a/large", "a/small", "a/other", "a/b/deep", "many", "huge"];
        let hurt = paths[usize::from(random[0]) % paths.len()];
        let at = 0x20 + (usize::from(random[1]) * 17 + usize::from(random[2])) % 0x400;
        surgeon.node(of.of(hurt), |block| block[at] ^= random[3] | 1);
        surgeon.finish();
        let told = match repair(device.clone(), options()) {
            Ok(told) => told,
            Err(error) => panic!("seed {seed}, {hurt}: {error}"),
        };
        let tree = open(device);
        let hurt = format!("/{hurt}");
        for (path, bytes) in before
            .iter()
            .filter(|(path, _)| !path.starts_with(&hurt) && *path != "/linked")
        {
            let is_directory = tree.attr(path).unwrap().kind == FileKind::Directory;
            // What a pointer at random takes from another file is given back.
            assert!(
                is_directory || tree.read(path).unwrap() == *bytes,
                "seed {seed}, {hurt}, {path}: {told:#?}"
            );
        }
    }
}

/// The tree of a large file loses a node: what is left of it is not given to others.
#[test]
fn a_file_without_one_of_its_nodes_is_left() {
    let (_, told, _) = mended(|surgeon, numbers| {
        let nid = surgeon.inode(numbers.of("huge")).nids[0];
        assert_ne!(nid, 0);
        let place = surgeon.place(nid);
        surgeon.write(place, &[0; BLOCK_BYTES]);
    });
    assert!(
        told.left.iter().any(|line| line.contains("magic number")),
        "{told:#?}"
    );
    assert!(
        told.left
            .iter()
            .any(|line| line.contains("valid blocks belong to nothing that can be read")),
        "{told:#?}"
    );
}

/// Groups behind the checkpoint are part of what is repaired.
#[test]
fn a_log_that_was_not_unmounted_is_repaired_with_what_was_synced() {
    let device = grown();
    let numbers = Numbers(open(Arc::new(MemoryDevice::new(device.to_vec()))));
    let mut surgeon = Surgeon::new(device.clone());
    surgeon.add_name(ROOT, b"ghost", 7000, REGULAR);
    surgeon.change_inode(numbers.of("a/large"), |inode| inode.attributes.nlink = 3);
    surgeon.checkpoint.clean = false;
    surgeon.finish();
    let tree = open(device.clone());
    tree.put("synced", &bytes(5, 200_000)).unwrap();
    tree.fsync("synced").unwrap();
    tree.put("a/large", &bytes(6, 50_000)).unwrap();
    tree.unlink("a/other").unwrap();
    tree.fsync("a/large").unwrap();
    drop(tree);
    let told = repair(device.clone(), options()).unwrap();
    assert_eq!(told.recovery.groups, 2);
    says(&told, &["\"ghost\"", "said that it has 3 links, but has 1"]);
    assert_sound(device.clone());
    let tree = open(device);
    assert_eq!(tree.read("synced").unwrap(), bytes(5, 200_000));
    let mut large = bytes(1, 900_000);
    large[..50_000].copy_from_slice(&bytes(6, 50_000));
    assert_eq!(tree.read("a/large").unwrap(), large);
    assert!(tree.ino("a/other").is_err());
}

/// Wherever the power fails in a repair, there is a log that can be repaired to the same end.
#[test]
fn a_repair_may_be_interrupted_anywhere() {
    let device = grown();
    let numbers = Numbers(open(Arc::new(MemoryDevice::new(device.to_vec()))));
    let mut surgeon = Surgeon::new(device.clone());
    let a = numbers.of("a");
    surgeon.remove_name(a, b"large");
    surgeon.set_valid(surgeon.pointer(numbers.of("a/other"), 3), false);
    surgeon.set_pointer(
        numbers.of("huge"),
        7,
        surgeon.pointer(numbers.of("a/other"), 4),
    );
    surgeon.add_name(a, b"ghost", 7000, REGULAR);
    surgeon.finish();
    let recorder = Arc::new(Recorder::new(&device.to_vec()));
    repair(recorder.clone() as Arc<dyn WritableDevice>, options()).unwrap();
    let wanted = {
        repair(device.clone(), options()).unwrap();
        content(&open(device), "")
    };
    let mut states = 0;
    for state in recorder.recording().states(&Plan {
        subsets_max: 16,
        samples: 4,
        tears: 1,
        seed: 1,
    }) {
        let cut = Arc::new(MemoryDevice::new(state.image()));
        repair(cut.clone(), options()).unwrap_or_else(|error| panic!("`{}`: {error}", state.id()));
        assert_eq!(
            check(cut.clone(), options()).unwrap().faults,
            [""; 0],
            "`{}`",
            state.id()
        );
        assert!(content(&open(cut), "") == wanted, "`{}`", state.id());
        states += 1;
    }
    assert!(states > 10, "{states}");
}

/// Its serials are the same; what the new log has not yet written there is not its own.
#[test]
fn summaries_of_a_log_that_was_here_before_are_not_held_against_the_new_one() {
    let device = device(1024 * MIB);
    let fill = |files: u64| {
        let tree = open(device.clone());
        for file in 0..files {
            let name = format!("f{file}");
            tree.put(&name, &bytes(file, 120_000)).unwrap();
            tree.fsync(&name).unwrap();
        }
        tree.0.close().unwrap();
    };
    fill(40);
    make(device.clone());
    fill(10);
    assert_eq!(faults(&device), 0);
}
