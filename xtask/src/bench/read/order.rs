//! Part `order`: a file is read in order, in small pieces and in large ones, by one reader and by several that have a part of
//! it each; beside a daemon of zeros, which is as fast as FUSE can be. And what our daemon decodes and reads for it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::contender::Contender;
use super::format::{EROFS_4K, EROFS_64K, EROFS_LZMA_1M, Format};
use super::harness::{Bench, State};
use super::pattern::{self, BLOCK, Reading};
use super::patterns::throughput;
use crate::bench::report::Unit;
use crate::outcome::Outcome;

/// The most that is read of a file.
const BYTES: u64 = 256 << 20;
const PIECES: [(&str, usize); 2] = [("4 KiB", BLOCK), ("128 KiB", 128 << 10)];
const READERS: [u64; 4] = [1, 2, 4, 8];

/// Images, each of a corpus that is one file. Those with large pclusters take long to make: hence of a smaller one.
const IMAGES: [(&str, Format, &str); 4] = [
    ("4K", EROFS_4K, "text1g"),
    ("64K", EROFS_64K, "text1g"),
    (
        "zstd 1M",
        Format::Erofs(&["-zzstd,level=9", "-C1048576"]),
        "silesia",
    ),
    ("lzma 1M", EROFS_LZMA_1M, "silesia"),
];

/// A corpus that is one file.
struct Corpus {
    directory: PathBuf,
    file: PathBuf,
    bytes: u64,
}

/// Runs the part.
///
/// # Errors
/// When a corpus cannot be had or read, or a peer is missing.
pub(super) fn order(bench: &mut Bench) -> Outcome {
    for (label, format, otherwise) in IMAGES {
        let mut contenders = bench.erofs(&format)?;
        contenders.push(Contender::zeros(format)?);
        let contenders = bench.chosen(contenders);
        for (name, directory, file) in bench.single_file_corpora("order", &[otherwise])? {
            bench.prepare(&contenders, &directory);
            let corpus = Corpus {
                bytes: directory.join(&file).metadata()?.len(),
                directory,
                file,
            };
            of_an_image(bench, &format!("{name} {label}"), &contenders, &corpus)?;
        }
    }
    Ok(())
}

fn of_an_image(
    bench: &mut Bench,
    subject: &str,
    contenders: &[Contender],
    corpus: &Corpus,
) -> Outcome {
    for (piece_name, piece) in PIECES {
        for readers in READERS {
            let parts = parts(corpus.bytes.min(BYTES), readers);
            let read = |directory: &Path| {
                let path = directory.join(&corpus.file);
                Ok(pattern::read_in_order(&path, &parts, piece)?)
            };
            let genuine = read(&corpus.directory)?;
            let way = format!("{readers} in order, pieces of {piece_name}");
            for state in [State::Cold, State::Warm] {
                eprintln!("bench read: order, {subject}, {}, {way}", state.name());
                let metric = throughput("order", state, &way);
                bench.contest(&[metric], subject, contenders, |bench, contender| {
                    bench.throughput(contender, &corpus.directory, state, &genuine, read)
                });
            }
            // A part of a file does not shrink as all of it does.
            let counted = match corpus.bytes <= BYTES {
                true => &["decoded for each byte", "times that the image was read"][..],
                false => &["decoded for each byte"],
            };
            let metric = |what: &&str| (format!("order, cold: {way}: {what}"), Unit::Times);
            let metrics: Vec<_> = counted.iter().map(metric).collect();
            bench.contest(&metrics, subject, &contenders[..1], |bench, contender| {
                let mut counts = counts(bench, contender, corpus, &genuine, read)?;
                counts.truncate(metrics.len());
                Ok(counts)
            });
        }
    }
    Ok(())
}

/// Bytes that our daemon decodes for each that is read, and bytes that it reads for each of the image, if all of the file is
/// read.
fn counts(
    bench: &Bench,
    contender: &Contender,
    corpus: &Corpus,
    genuine: &Reading,
    read: impl Fn(&Path) -> Outcome<Reading>,
) -> Outcome<Vec<f64>> {
    let mut told = Value::Null;
    bench.throughput(
        contender,
        &corpus.directory,
        State::Cold,
        genuine,
        |mount| {
            let reading = read(mount)?;
            told = bench.statistics(mount)?;
            Ok(reading)
        },
    )?;
    let count = |name: &str| told[name].as_f64().ok_or(format!("no {name} in {told}"));
    let image = bench.image(contender, &corpus.directory)?.metadata()?.len() as f64;
    Ok(vec![
        count("decoded_bytes_total")? / genuine.bytes as f64,
        count("device_bytes_total")? / image,
    ])
}

/// The part of each reader.
fn parts(bytes: u64, readers: u64) -> Vec<Range<u64>> {
    let blocks = bytes.div_ceil(BLOCK as u64);
    let start = |reader: u64| (blocks * reader / readers * BLOCK as u64).min(bytes);
    (0..readers)
        .map(|reader| start(reader)..start(reader + 1))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_a_file_without_a_gap() {
        assert_eq!(parts(8192 + 1, 2), [0..4096, 4096..8193]);
        assert_eq!(parts(4096, 2), [0..0, 0..4096]);
        assert_eq!(parts(1 << 20, 8).len(), 8);
    }
}
