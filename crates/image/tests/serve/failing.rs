//! Failing media and broken data: an error where they are, and right bytes everywhere else.
//!
//! Invariant S8 of `docs/design/serving.md`.

use anteros_core::Algorithm;
use anteros_image::{Encoding, Error, Extent, Image, ImageFs, OpenOptions, Source, Strategy};
use anteros_tests::trees::Random;

use crate::cohort::place;
use crate::medium::{Medium, NAME};
use crate::samples::{STRATEGIES, Sample, large, named, read};

const CODECS: [&str; 5] = ["lz4", "lz4hc-64k", "lzma", "deflate", "zstd"];

const FILE: &str = "/data/words";

fn options(strategy: Strategy) -> OpenOptions {
    OpenOptions {
        strategy,
        ..OpenOptions::default()
    }
}

/// The extent in the middle of a file.
fn middle(sample: &Sample, path: &str) -> Extent {
    let extents = sample.extents(path);
    extents[extents.len() / 2]
}

#[test]
fn only_reads_of_what_is_bad_fail_until_it_recovers() {
    for name in CODECS {
        let sample = named(name);
        let (file, extent) = (sample.file(FILE), middle(sample, FILE));
        for strategy in STRATEGIES {
            let what = format!("{name}, {strategy:?}");
            let medium = Medium::new(&sample.fixture.bytes);
            let fs = sample.open_on(medium.clone(), options(strategy));
            medium.change(|state| state.bad = place(&extent));
            let mut random = Random(1);
            for _ in 0..60 {
                let (offset, len) = file.any_range(&mut random);
                let end = offset + file.at(offset, len).len() as u64;
                if end <= extent.offset || extent.end() <= offset {
                    file.compare(&fs, offset, len, &what);
                } else {
                    let error = read(&fs, file.ino, offset, len).unwrap_err().to_string();
                    assert!(
                        error.contains(NAME) && error.contains("bad sector"),
                        "{error}"
                    );
                }
            }
            medium.change(|state| state.bad = 0..0);
            file.compare(&fs, extent.offset + 1, 100, &what);
            file.compare(&fs, 0, file.content.len(), &what);
        }
    }
}

/// The error says which inode, and where in it.
#[test]
fn what_is_bad_is_named() {
    let sample = named("lz4");
    let extent = middle(sample, FILE);
    let medium = Medium::new(&sample.fixture.bytes);
    let fs = sample.open_on(medium.clone(), OpenOptions::default());
    medium.change(|state| state.bad = place(&extent));
    let file = sample.file(FILE);
    let error = read(&fs, file.ino, extent.offset, 10)
        .unwrap_err()
        .to_string();
    let expected = format!("inode {}", file.ino.0);
    assert!(error.contains(&expected), "{error}");
    assert!(error.contains(&extent.offset.to_string()), "{error}");
}

#[test]
fn what_is_cut_off_is_an_error_and_never_zeros() {
    for name in ["plain", "lz4", "lzma"] {
        let sample = named(name);
        for strategy in STRATEGIES {
            let medium = Medium::new(&sample.fixture.bytes);
            let fs = sample.open_on(medium.clone(), options(strategy));
            medium.change(|state| state.len = 4096);
            let mut failed = 0;
            for file in &sample.files {
                match read(&fs, file.ino, 0, file.content.len()) {
                    Ok(found) => assert!(found == file.content, "{name}: {}", file.path),
                    Err(_) => failed += 1,
                }
            }
            assert!(failed > 3, "{name}: {failed}");
            medium.change(|state| state.len = u64::MAX);
            for file in &sample.files {
                file.compare(&fs, 0, file.content.len(), name);
            }
        }
    }
}

/// Makes a stream one that no decoder takes.
fn spoil(sample: &Sample, extent: &Extent) -> Vec<u8> {
    let mut bytes = sample.fixture.bytes.clone();
    let place = place(extent);
    let stream = &mut bytes[place.start as usize..place.end as usize];
    let start = stream.iter().position(|&byte| byte != 0).unwrap();
    let Source::Pcluster(pcluster) = extent.source else {
        panic!("{extent:?}");
    };
    match pcluster.encoding {
        // Its first byte are the properties, inverted: these are none.
        Encoding::Compressed(Algorithm::Lzma) => stream[start] = 1,
        _ => {
            let len = stream.len();
            stream[(start + len) / 2..len].fill(0xff);
        }
    }
    bytes
}

fn bytes_read(image: &Image, sample: &Sample, path: &str) -> Vec<Option<Vec<u8>>> {
    let inode = image.find(path.as_bytes()).unwrap();
    let mut reader = anteros_image::Reader::new(image);
    let extents = sample.extents(path).into_iter().map(|extent| {
        let mut bytes = Vec::new();
        let read = reader.read_extent(&inode, &extent, |_, piece| {
            bytes.extend_from_slice(piece);
            Ok::<_, Error>(())
        });
        read.ok().map(|()| bytes)
    });
    extents.collect()
}

/// Reads parts of a broken extent and of its neighbours in any order. Parts may come from before the fault.
fn compare_broken(fs: &ImageFs, sample: &Sample, path: &str, extent: &Extent, what: &str) {
    let file = sample.file(path);
    let mut random = Random(7);
    for _ in 0..40 {
        let (offset, len) = file.any_range(&mut random);
        let expected = file.at(offset, len);
        let end = offset + expected.len() as u64;
        let found = read(fs, file.ino, offset, len);
        let is_whole = offset <= extent.offset && extent.end() <= end;
        assert!(
            found.is_err() || !is_whole,
            "{what}: {len} bytes at {offset}"
        );
        if end <= extent.offset || extent.end() <= offset {
            assert!(
                found.unwrap() == expected,
                "{what}: {len} bytes at {offset}"
            );
        } else if let Ok(found) = found {
            let right = expected
                .iter()
                .zip(&found)
                .take_while(|(a, b)| a == b)
                .count();
            let at = offset + right as u64;
            assert!(
                found == expected,
                "{what}: {len} bytes at {offset}: other bytes from {at}"
            );
        }
    }
}

#[test]
fn a_broken_stream_fails_alone() {
    for sample in CODECS.map(named) {
        let extent = middle(sample, FILE);
        let broken = spoil(sample, &extent);
        for strategy in STRATEGIES {
            let fs = sample.open_on(Medium::new(&broken), options(strategy));
            let plainly = bytes_read(fs.image(), sample, FILE);
            let failed = plainly.iter().filter(|bytes| bytes.is_none()).count();
            assert_eq!(failed, 1, "{}", sample.name);
            let what = format!("{}, {strategy:?}", sample.name);
            compare_broken(&fs, sample, FILE, &extent, &what);
        }
    }
}

/// A stream that is sound and ends before its extent does: after its end there is nothing, not even zeros.
#[test]
fn a_stream_that_ends_early_fails_from_there_on() {
    for sample in large()
        .iter()
        .filter(|sample| sample.name.starts_with("deflate"))
    {
        let path = "/text";
        let extent = &sample.extents(path)[0];
        let file = sample.file(path);
        let place = place(extent);
        let mut bytes = sample.fixture.bytes.clone();
        let content = &file.content[extent.offset as usize..];
        let held = store(
            &mut bytes[place.start as usize..place.end as usize],
            content,
        );
        assert!(
            held + 300_000 < extent.len as usize,
            "{held} of {}",
            extent.len
        );
        for cache_bytes in [0, 64 << 20] {
            let options = OpenOptions {
                cache_bytes,
                ..OpenOptions::default()
            };
            let fs = sample.open_on(Medium::new(&bytes), options);
            let end = extent.offset + held as u64;
            file.compare(&fs, 0, 100, "a stream is suspended");
            for (offset, len) in [
                (end + 100_000, 10),
                (end - 10, 20),
                (end - 5000, 10_000),
                (end, 1),
            ] {
                let found = read(&fs, file.ino, offset, len);
                assert!(found.is_err(), "{len} bytes at {offset}, held up to {end}");
                for back in [300_000, 200_000, 100_000, 400_000] {
                    // Who decodes all of it meets the fault.
                    if let Ok(found) = read(&fs, file.ino, end - back, 100) {
                        assert!(found == file.at(end - back, 100), "{back} before {end}");
                    }
                }
            }
        }
    }
}

/// Fills a pcluster with a DEFLATE stream of stored blocks (RFC 1951, section 3.2.4), and says how many bytes it holds.
fn store(pcluster: &mut [u8], content: &[u8]) -> usize {
    const HEAD: usize = 5;
    let mut done = 0;
    let mut rest = pcluster;
    while !rest.is_empty() {
        let len = (rest.len() - HEAD).min(0xffff);
        // No room for a head may be left over.
        let len = match rest.len() - HEAD - len {
            1..=HEAD => len - HEAD,
            _ => len,
        };
        let is_last = rest.len() == HEAD + len;
        let (block, others) = rest.split_at_mut(HEAD + len);
        // The five bits behind the head are of any value: a first byte of zero would be padding.
        block[0] = 0xf8 | u8::from(is_last);
        block[1..3].copy_from_slice(&(len as u16).to_le_bytes());
        block[3..5].copy_from_slice(&(!len as u16).to_le_bytes());
        block[HEAD..].copy_from_slice(&content[done..done + len]);
        done += len;
        rest = others;
    }
    done
}
