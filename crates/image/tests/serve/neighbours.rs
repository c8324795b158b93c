//! Tests what is decoded beyond what was asked for: whole pages, of the right bytes.
//!
//! Invariant S7 of `docs/design/serving.md`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anteros_core::{FileSystem, Ino};
use anteros_image::{ImageFs, OpenOptions, STAND_IN};
use anteros_tests::trees::Random;

use crate::samples::{File, Sample, large, packed, small};

const PAGE: u64 = 4096;

type Told = Arc<Mutex<Vec<(Ino, u64, Vec<u8>)>>>;

/// Reads pages of a sample anywhere, and checks what was told. How many bytes that were.
fn compare(sample: &Sample, reads: usize) -> usize {
    let fs = Arc::new(sample.open(OpenOptions {
        verify_checksum: false,
        ..OpenOptions::default()
    }));
    let told = Told::default();
    let hook = told.clone();
    fs.on_neighbours(true, move |ino, offset, data| {
        hook.lock().unwrap().push((ino, offset, data.to_vec()));
        true
    });
    let mut random = Random(9);
    let mut bytes = 0;
    for _ in 0..reads {
        let file = sample.any_file(&mut random);
        let offset = random.below(file.content.len() as u64);
        let len = 1 + random.below(3 * PAGE);
        file.compare(&fs, offset, len as usize, &sample.name);
        for (ino, at, data) in told.lock().unwrap().drain(..) {
            let what = format!(
                "{}: {}, {} bytes at {at}",
                sample.name,
                file.path,
                data.len()
            );
            assert!(at % PAGE == 0 && data.len() as u64 % PAGE == 0, "{what}");
            assert!(!data.is_empty(), "{what}");
            assert_eq!(ino, file.ino, "{what}");
            let end = at + data.len() as u64;
            assert!(end <= offset || offset + len <= at, "{what}: asked for");
            assert!(file.at(at, data.len()) == data, "{what}: other bytes");
            bytes += data.len();
        }
    }
    bytes
}

#[test]
fn of_the_fixtures() {
    let told: usize = small().iter().map(|sample| compare(sample, 200)).sum();
    assert!(told > 1 << 20, "{told}");
}

#[test]
fn of_long_extents() {
    let told: usize = large().iter().map(|sample| compare(sample, 20)).sum();
    assert!(told > 1 << 20, "{told}");
}

#[test]
fn of_the_rest_of_long_extents_that_readers_come_back_to() {
    let mut pages = 0;
    for sample in large() {
        let fs = Arc::new(sample.open(OpenOptions::default()));
        let rests = Arc::new(Mutex::new(Vec::new()));
        let hook = rests.clone();
        fs.on_rest(move |rest| hook.lock().unwrap().push(rest));
        let mut random = Random(5);
        for _ in 0..40 {
            let file = sample.any_file(&mut random);
            let offset = random.below(file.content.len() as u64) / PAGE * PAGE;
            file.compare(&fs, offset, PAGE as usize, &sample.name);
            let mut data = Vec::new();
            for rest in rests.lock().unwrap().drain(..) {
                while let Some((ino, at)) = fs.decode_rest(&rest, &mut data) {
                    let what = format!("{}: {}, at {at}", sample.name, file.path);
                    assert_eq!(ino, file.ino, "{what}");
                    let whole =
                        data.len() as u64 % PAGE == 0 && (data.is_empty() || at % PAGE == 0);
                    assert!(whole, "{what}: {} bytes", data.len());
                    assert!(file.at(at, data.len()) == data, "{what}: other bytes");
                    pages += data.len() as u64 / PAGE;
                    // Readers of what goes by find it all the same.
                    let near = (at + PAGE).min(file.content.len() as u64 - 1);
                    file.compare(&fs, near, 100_000, &sample.name);
                }
            }
        }
    }
    assert!(pages > 1000, "{pages}");
}

/// Readers at random come back to an extent. Readers in order ask for its rest themselves.
#[test]
fn of_the_rest_of_a_long_extent_at_its_first_touch_unless_it_is_read_in_order() {
    for sample in large() {
        let offered = |len: usize| {
            let fs = Arc::new(sample.open(OpenOptions::default()));
            let rests = Arc::new(AtomicU32::new(0));
            let hook = rests.clone();
            fs.on_rest(move |_| _ = hook.fetch_add(1, Ordering::Relaxed));
            sample
                .file("/repeated")
                .compare(&fs, 8 * PAGE, len, &sample.name);
            rests.load(Ordering::Relaxed)
        };
        // LZ4 is decoded another way.
        let is_streamed = !sample.name.starts_with("lz4");
        let what = &sample.name;
        assert_eq!(offered(PAGE as usize), u32::from(is_streamed), "{what}");
        assert_eq!(offered(256 << 10), 0, "{what}");
    }
}

/// Pages of the packed inode, as a kernel keeps them.
type Kept = Arc<Mutex<HashMap<u64, Vec<u8>>>>;

/// Has what is told of the packed inode kept in pages; of the rest of extents, too.
fn keep(fs: &Arc<ImageFs>) -> Kept {
    let kept = Kept::default();
    let put = |kept: &Kept, offset: u64, data: &[u8]| {
        let pages = data.chunks_exact(PAGE as usize).map(<[u8]>::to_vec);
        let numbers = offset / PAGE..;
        kept.lock().unwrap().extend(numbers.zip(pages));
    };
    let hook = kept.clone();
    fs.on_neighbours(false, move |ino, offset, data| {
        assert_eq!(ino, STAND_IN);
        put(&hook, offset, data);
        true
    });
    let (hook, decoder) = (kept.clone(), Arc::downgrade(fs));
    fs.on_rest(move |rest| {
        let mut data = Vec::new();
        let next = |data: &mut _| decoder.upgrade()?.decode_rest(&rest, data);
        while let Some((ino, offset)) = next(&mut data) {
            assert_eq!(ino, STAND_IN);
            put(&hook, offset, &data);
        }
    });
    let giver = kept.clone();
    fs.on_packed("stand-in".into(), move |offset, out| {
        let kept = giver.lock().unwrap();
        let mut places = (offset..).zip(out.iter_mut());
        places.all(|(at, byte)| {
            let page = kept.get(&(at / PAGE));
            page.is_some_and(|page| {
                *byte = page[(at % PAGE) as usize];
                true
            })
        })
    });
    kept
}

/// Opens a sample with so much memory that not all of it can be kept decoded.
fn open(sample: &Sample) -> Arc<ImageFs> {
    let options = OpenOptions::default();
    let least = sample.open(options).image().cache_bytes_min(1, 256 << 10);
    let cache_bytes = least + (1 << 20);
    Arc::new(sample.open(OpenOptions {
        cache_bytes,
        ..options
    }))
}

/// Reads files at random, and returns how many bytes were decoded.
fn read_files(sample: &Sample, fs: &ImageFs) -> u64 {
    let mut random = Random(3);
    for _ in 0..250 {
        let file = sample.any_file(&mut random);
        let offset = random.below(file.content.len() as u64);
        let len = 1 + random.below(3 * PAGE) as usize;
        file.compare(fs, offset, len, &sample.name);
    }
    fs.image().read_statistics().decoded_bytes
}

#[test]
fn of_the_packed_inode_are_decoded_once_and_given_back() {
    for sample in packed() {
        let alone = read_files(&sample, &open(&sample));
        let fs = open(&sample);
        let kept = keep(&fs);
        let decoded = read_files(&sample, &fs);
        let stats = fs.image().read_statistics();
        assert!(stats.retrieved > 100, "{}: {stats:?}", sample.name);
        assert!(
            decoded < alone / 3 && decoded < 3 * fs.image().packed_bytes(),
            "{}: {decoded} bytes, {alone} without",
            sample.name
        );
        // A kernel that has dropped some, or all.
        kept.lock().unwrap().retain(|page, _| page % 3 != 1);
        read_files(&sample, &fs);
        kept.lock().unwrap().clear();
        read_files(&sample, &fs);
    }
}

/// As much as a decoder keeps: who reads the next file finds it there.
#[test]
fn of_the_packed_inode_a_little_is_decoded_ahead_of_whoever_reads_one_file_after_the_other() {
    for sample in packed() {
        let decoded_for = |file: &File| {
            let fs = open(&sample);
            keep(&fs);
            file.compare(&fs, 0, PAGE as usize, &sample.name);
            fs.image().read_statistics().decoded_bytes
        };
        // One of them lies in front.
        let least = sample.files.iter().take(20).map(decoded_for).min().unwrap();
        let is_little = (256 << 10..512 << 10).contains(&least);
        assert!(is_little, "{}: {least} bytes", sample.name);
    }
}

#[test]
fn of_the_packed_inode_can_be_looked_up_by_one_name() {
    let [sample, ..] = packed();
    let fs = open(&sample);
    let root = fs.root();
    assert!(fs.lookup(root, b"stand-in").is_err());
    assert!(fs.getattr(STAND_IN).is_err());
    keep(&fs);
    let attr = fs.lookup(root, b"stand-in").unwrap();
    assert_eq!((attr.ino, attr.perm), (STAND_IN, 0));
    assert_eq!(attr.size, fs.image().packed_bytes());
    assert_eq!(fs.getattr(STAND_IN).unwrap(), attr);
    assert!(fs.read(STAND_IN, 0, &mut [0; 100]).is_err());
    assert!(fs.lookup(root, b"text1").is_ok() && fs.lookup(root, b"text1000").is_err());
}
