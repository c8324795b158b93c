//! Tests what is decoded beyond what was asked for: whole pages, of the right bytes.
//!
//! Invariant S7 of `docs/design/serving.md`.

use std::sync::{Arc, Mutex};

use anteros_core::Ino;
use anteros_image::OpenOptions;
use anteros_tests::trees::Random;

use crate::samples::{Sample, large, small};

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
        for _ in 0..20 {
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
