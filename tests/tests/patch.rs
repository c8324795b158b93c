//! Tests whether a patch survives the loss of power everywhere: the image is the old one or the new one, whole.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{
    Appended, Base, Compression, Difference, Input, Layer, Options, Patch, Record, Rollback,
    apply_to_device, build_into, patch_device, roll_back_device,
};
use anteros_codec::Effort;
use anteros_core::{Device, FsError, FsResult, Ino, StoredRun, Timestamp, WritableDevice};
use anteros_format::patch::{ROOT_SLOTS, Slots};
use anteros_format::superblock::{SUPERBLOCK_OFFSET, checksum_len};
use anteros_image::{CheckOptions, Image, ImageFs, OpenOptions, Place, check};
use anteros_tests::crash::{Plan, Recorder, Recording, SECTOR_BYTES, StateId};
use anteros_tests::manifest::manifest;
use anteros_tests::trees::{Tree, words};

/// Room behind the image.
const ROOM: usize = 3 << 20;

/// An image that is patched.
struct Former(Arc<ImageFs>);

impl Base for Former {
    fn record(&self, ino: Ino) -> FsResult<Record> {
        let image = self.0.image();
        let inode = self.0.inode(ino)?;
        let (address, bytes) = image.record(&inode)?.ok_or(FsError::Unsupported)?;
        Ok(Record {
            address,
            bytes,
            is_inline: true,
        })
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> FsResult<()> {
        Ok(self.0.image().read_primary(Place::Image, address, buf)?)
    }

    fn stored(&self, ino: Option<Ino>, bytes: Range<u64>) -> FsResult<Vec<StoredRun>> {
        self.0.stored(ino, bytes)
    }
}

fn open(device: Arc<dyn Device>) -> Image {
    Image::open(device, Vec::new(), OpenOptions::default()).unwrap()
}

/// Free slots within the first 2 MiB behind the origin, in which there are zeros.
fn free_slots(image: &Image) -> Vec<Slots> {
    let sb = image.superblock();
    let origin = u64::from(sb.meta_block) << sb.block_bits;
    let start = origin.max(4096);
    let end = (origin + ROOT_SLOTS * 32).min(image.recorded_bytes());
    let options = CheckOptions {
        gaps_in: std::iter::once(start..end).collect(),
        ..CheckOptions::default()
    };
    let report = check(image, &options, &(), &AtomicBool::new(false));
    assert!(report.is_clean(), "{report:?}");
    let slots = report.gaps.iter().map(|gap| {
        let first = (gap.start - origin).div_ceil(32);
        let end = (gap.end - origin) / 32;
        Slots {
            first: first as u16,
            count: end.saturating_sub(first) as u16,
        }
    });
    slots.filter(|slots| slots.count > 0).collect()
}

/// An image without anything packed, as a build knows it.
fn appended(image: &Image) -> Appended {
    let mut superblock = vec![0; checksum_len(image.superblock().block_bits)];
    let read = image.read_primary(Place::Superblock, SUPERBLOCK_OFFSET, &mut superblock);
    read.unwrap();
    Appended {
        superblock,
        cfgs: *image.compr_cfgs(),
        end: image.recorded_bytes(),
        packed: None,
    }
}

/// Patches the image on a device; `takes_slots` gives the root a slot of the image.
fn patch(device: Arc<dyn WritableDevice>, tree: &Tree, options: Options, takes_slots: bool) {
    let image = Arc::new(open(Arc::new(device.clone())));
    let state = image.patched().unwrap();
    let free = match (takes_slots, &state) {
        (true, Some(state)) => state.record.free.clone(),
        (true, None) => free_slots(&image),
        (false, _) => Vec::new(),
    };
    let options = Options {
        append: Some(appended(&image)),
        patch: Some(Patch {
            number: state.as_ref().map_or(0, |state| state.record.number) + 1,
            time: Timestamp::default(),
            previous: state.map(|state| state.at),
            free,
            dry_run: false,
        }),
        ..options
    };
    let fs = Arc::new(ImageFs::new(image));
    let former = Arc::new(Former(fs.clone()));
    let input = Input::Replaced {
        former: Layer::Base(fs, former, PathBuf::from("former")),
        source: Layer::Directory(tree.path()),
    };
    let summary = patch_device(device, input, &options, &(), &AtomicBool::new(false)).unwrap();
    let patch = summary.patch.unwrap();
    let has_large = tree.path().join("large").exists();
    assert!(
        patch.stay > 0 && (!has_large || patch.kept_bytes > 90_000),
        "{patch:?}"
    );
}

fn shown(image: Vec<u8>) -> String {
    let image = Arc::new(open(Arc::new(image)));
    let report = check(
        &image,
        &CheckOptions::default(),
        &(),
        &AtomicBool::new(false),
    );
    assert!(report.is_clean(), "{report:?}");
    manifest(&ImageFs::new(image)).unwrap()
}

/// The bytes of a device when all was written.
fn last(recording: &Recording) -> Vec<u8> {
    let all = StateId::prefix(recording.operations().len());
    recording.state(&all).unwrap().image()
}

/// Options of images that are patched: with a root of 16 bits, and one that lies anywhere.
fn forms() -> [Options; 3] {
    let lz4 = Options {
        compression: Some(Compression::new(Effort::Fast)),
        workers: 2,
        ..Options::default()
    };
    let wide = Options {
        wide: true,
        ..lz4.clone()
    };
    [Options::default(), lz4, wide]
}

#[test]
fn an_image_is_the_old_or_the_new_one_wherever_the_power_fails() {
    for (number, options) in forms().into_iter().enumerate() {
        let tree = Tree::new();
        for name in 0..60 {
            tree.write(
                format!("file{name}"),
                &words(name, 100 + 300 * name as usize),
            );
        }
        let mut large = words(77, 400_000);
        tree.write("large", &large);
        let mut bytes = built(&tree, &options);
        // A slot that is free for sure, twice over, is left by a patch that had none.
        for (round, takes_slots) in [false, true, true].into_iter().enumerate() {
            let old = shown(bytes.clone());
            tree.write("file7", &words(round as u64, 70_000));
            // Most of it stays where it is.
            large.splice(200_000..200_000, words(5, round));
            large[100_000] = b'0' + round as u8;
            tree.write("large", &large);
            tree.write(format!("new{round}"), &words(9, 1_300_000 / (round + 1)));
            std::fs::remove_file(tree.path().join(format!("file{}", 20 + round))).unwrap();
            let recorder = Arc::new(Recorder::new(&bytes));
            patch(recorder.clone(), &tree, options.clone(), takes_slots);
            recorder.mark("done");
            let recording = recorder.recording();
            let new = shown(last(&recording));
            assert_ne!(old, new);
            let plan = Plan {
                samples: 16,
                ..Plan::default()
            };
            let explored = recording.explore(&plan, |state| {
                let found = shown(state.image());
                let is_allowed = found == new || found == old && !state.has_mark("done");
                is_allowed.then_some(()).ok_or_else(|| "neither".into())
            });
            let states = explored.expect_none_failed_in(format!("form {number}, round {round}"));
            assert!(states > 10, "{states}");
            bytes = last(&recording);
        }
    }
}

/// An image of a tree, with room behind it.
fn built(tree: &Tree, options: &Options) -> Vec<u8> {
    let mut image = std::io::Cursor::new(Vec::new());
    let cancel = AtomicBool::new(false);
    build_into(&mut image, tree.path(), options, &(), &cancel).unwrap();
    let mut bytes = image.into_inner();
    bytes.resize(bytes.len() + ROOM, 0);
    bytes
}

fn twenty_files() -> Tree {
    let tree = Tree::new();
    for name in 0..20 {
        tree.write(format!("file{name}"), &words(name, 3000));
    }
    tree
}

/// A rollback is there or not, as well, and brings back what the image was before its patch.
#[test]
fn a_rollback_is_there_or_not_wherever_the_power_fails() {
    for options in forms() {
        let tree = twenty_files();
        let bytes = built(&tree, &options);
        let built = shown(bytes.clone());
        tree.write("file7", b"patched");
        let recorder = Arc::new(Recorder::new(&bytes));
        patch(recorder.clone(), &tree, options.clone(), false);
        let patched = last(&recorder.recording());
        let recorder = Arc::new(Recorder::new(&patched));
        roll_back(recorder.clone(), options.clone());
        recorder.mark("done");
        let recording = recorder.recording();
        assert_eq!(shown(last(&recording)), built);
        let patched = shown(patched);
        let explored = recording.explore(&Plan::default(), |state| {
            let found = shown(state.image());
            let is_allowed = found == built || found == patched && !state.has_mark("done");
            is_allowed.then_some(()).ok_or_else(|| "neither".into())
        });
        assert!(explored.expect_none_failed_in("the rollback") > 3);
    }
}

/// Gives the image on a device the state before its last patch again.
fn roll_back(device: Arc<dyn WritableDevice>, options: Options) {
    let image = open(Arc::new(device.clone()));
    let state = image.patched().unwrap().unwrap();
    let options = Options {
        append: Some(appended(&image)),
        patch: Some(Patch {
            number: state.record.number + 1,
            time: Timestamp::default(),
            previous: Some(state.at),
            free: Vec::new(),
            dry_run: false,
        }),
        ..options
    };
    let rollback = Rollback {
        number: state.record.number - 1,
        superblock: state.record.former,
    };
    roll_back_device(device, &rollback, &options).unwrap();
}

/// A patch that was made elsewhere is there or not, as well, also if it was begun before.
#[test]
fn an_applied_patch_is_there_or_not_wherever_the_power_fails() {
    for (number, options) in forms().into_iter().enumerate() {
        let tree = twenty_files();
        let mut bytes = built(&tree, &options);
        // The first patch leaves slots, of which the second one takes one.
        let mut roots = 0;
        for (round, takes_slots) in [false, true].into_iter().enumerate() {
            tree.write("file7", &words(round as u64, 50_000));
            let recorder = Arc::new(Recorder::new(&bytes));
            patch(recorder.clone(), &tree, options.clone(), takes_slots);
            let patched = last(&recorder.recording());
            let difference = difference(&bytes, &patched);
            roots += difference.1.len();
            let recorder = Arc::new(Recorder::new(&bytes));
            apply(recorder.clone(), &difference, &options);
            recorder.mark("done");
            let recording = recorder.recording();
            assert!(last(&recording) == patched);
            let (old, new) = (shown(bytes.clone()), shown(patched.clone()));
            let plan = Plan {
                samples: 16,
                ..Plan::default()
            };
            let explored = recording.explore(&plan, |state| {
                let found = shown(state.image());
                let is_allowed = found == new || found == old && !state.has_mark("done");
                if found == old {
                    let again = Arc::new(Recorder::new(&state.image()));
                    apply(again.clone(), &difference, &options);
                    assert!(last(&again.recording()) == patched);
                }
                is_allowed.then_some(()).ok_or_else(|| "neither".into())
            });
            let states = explored.expect_none_failed_in(format!("form {number}, round {round}"));
            assert!(states > 4, "{states}");
            bytes = patched;
        }
        assert_eq!(roots, usize::from(!options.wide));
    }
}

/// The end of an image, roots in slots of it, and what lies behind it in the patched one.
type Parts = (u64, Vec<(u64, Vec<u8>)>, Vec<u8>, Vec<u8>);

/// Finds the bytes in which an image differs from the patched one.
fn difference(before: &[u8], after: &[u8]) -> Parts {
    let image = open(Arc::new(after.to_vec()));
    let state = image.patched().unwrap().unwrap();
    let start = state.record.start;
    let mut roots = Vec::new();
    if let Some(at) = state.record.root {
        let root = image.root().unwrap();
        let (_, bytes) = image.record(&root).unwrap().unwrap();
        let root = &after[at as usize..][..bytes as usize];
        assert!(
            before[at as usize..][..bytes as usize]
                .iter()
                .all(|b| *b == 0)
        );
        roots.push((at, root.to_vec()));
    }
    let behind = after[start as usize..state.record.end as usize].to_vec();
    (start, roots, behind, state.superblock.to_vec())
}

/// Applies these bytes.
fn apply(
    device: Arc<dyn WritableDevice>,
    (start, roots, bytes, superblock): &Parts,
    options: &Options,
) {
    let image = open(Arc::new(device.clone()));
    let options = Options {
        append: Some(appended(&image)),
        ..options.clone()
    };
    let difference = Difference {
        start: *start,
        bytes,
        roots: roots.clone(),
        superblock: superblock[..].try_into().unwrap(),
    };
    apply_to_device(device, &difference, &options).unwrap();
}

/// Tests that no byte is written over that the image refers to, but for those of the superblock, which are one sector.
#[test]
fn what_is_there_is_not_written_over() {
    for options in forms() {
        let tree = Tree::everything();
        let bytes = built(&tree, &options);
        let len = bytes.len() - ROOM;
        tree.write("patched", b"new");
        let recorder = Arc::new(Recorder::new(&bytes));
        patch(recorder.clone(), &tree, options, true);
        let after = last(&recorder.recording());
        let changed = (0..len).filter(|at| bytes[*at] != after[*at]);
        let (front, behind): (Vec<_>, Vec<_>) = changed.partition(|at| *at < 4096);
        let sector = SUPERBLOCK_OFFSET as usize / SECTOR_BYTES as usize;
        assert!(front.iter().all(|at| at / SECTOR_BYTES as usize == sector));
        assert!(!front.is_empty());
        assert!(behind.iter().all(|at| bytes[*at] == 0));
    }
}
