//! Parts `patterns` and `large`: reads of 4 KiB in three patterns, by one reader and by two (figures 7 and 8 of the EROFS
//! paper), from small pclusters and from large ones.
//!
//! A corpus of one file is read by the patterns of the paper. Of a corpus that is a tree, `large` reads all files, as
//! directories list them, and blocks anywhere in files anywhere; `patterns` leaves it out.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::contender::{Contender, ZEROS};
use super::format::{EROFS_64K, EROFS_LZMA_1M, Format};
use super::harness::{Bench, State};
use super::pattern::{self, BLOCK, Pattern, Reading};
use crate::bench::random::Random;
use crate::bench::report::Unit;
use crate::bench::tree;
use crate::outcome::Outcome;

/// The most that is read one after the other.
const SEQUENTIAL_BYTES: u64 = 512 << 20;
/// States what is read at random places, which a warm image yields much faster.
const RANDOM_COLD_BYTES: u64 = 16 << 20;
const RANDOM_WARM_BYTES: u64 = 64 << 20;
/// The same from large pclusters, each of which may have to be decoded for each block.
const RANDOM_BIG_BYTES: u64 = 8 << 20;
/// Files up to this length are put into images with large pclusters too, which take long to make.
const BIG_FILE_BYTES_MAX: u64 = 256 << 20;
/// States how many blocks are read at random places of a tree.
const RANDOM_TREE_BLOCKS: u64 = 16_384;

/// Each pattern with its number of readers.
const PATTERNS: [(&str, Pattern, u64); 5] = [
    ("sequential, 1 reader", Pattern::Sequential, 1),
    ("sequential, 2 readers", Pattern::Sequential, 2),
    ("random, 1 reader", Pattern::Random, 1),
    ("random, 2 readers", Pattern::Random, 2),
    ("stride", Pattern::Stride, 1),
];

/// Images whose pclusters are so large that reading a block costs much.
const BIG: [(&str, Format); 3] = [
    ("lzma 1M", EROFS_LZMA_1M),
    ("zstd 1M", Format::Erofs(&["-zzstd,level=9", "-C1048576"])),
    (
        "lz4hc 64K, fragments, dedupe",
        Format::Erofs(&["-zlz4hc", "-C65536", "-Eall-fragments,dedupe"]),
    ),
];

/// Images that a file is read from: a name, and those who read it.
type Images = Vec<(&'static str, Vec<Contender>)>;

/// Runs the part of files in small pclusters.
///
/// # Errors
/// When a corpus cannot be had or read, or a peer is missing.
pub(super) fn patterns(bench: &mut Bench) -> Outcome {
    for (name, corpus, file) in bench.single_file_corpora("patterns", &["text1g", "silesia"])? {
        let everybody = bench.everybody()?;
        let mut at_64k = bench.erofs(&EROFS_64K)?;
        at_64k.push(Bench::squashfuse("128K")?);
        let at_64k = bench.chosen(at_64k);
        let images = vec![("4K", everybody), ("64K", at_64k)];
        of_a_file(bench, &name, (&corpus, &file), images, false)?;
    }
    Ok(())
}

/// Runs the part of files and trees in large pclusters.
///
/// # Errors
/// As [`patterns`]; also when a file is too long for that.
pub(super) fn large(bench: &mut Bench) -> Outcome {
    for name in bench.options.corpora_or(&["silesia", "minbase"]) {
        let corpus = super::super::corpus(&name)?;
        let Some(file) = tree::single_file(&corpus)? else {
            of_a_tree(bench, &name, &corpus)?;
            continue;
        };
        if corpus.join(&file).metadata()?.len() > BIG_FILE_BYTES_MAX {
            return Err(format!("{name}: longer than {BIG_FILE_BYTES_MAX} bytes").into());
        }
        let mut images = Images::new();
        for (label, format) in BIG {
            let contenders = bench.erofs(&format)?;
            images.push((label, bench.chosen(contenders)));
        }
        of_a_file(bench, &name, (&corpus, &file), images, true)?;
    }
    Ok(())
}

/// Reads the file of a corpus from images, whose pclusters are large if they are `big`.
fn of_a_file(
    bench: &mut Bench,
    name: &str,
    (corpus, file): (&Path, &Path),
    images: Images,
    big: bool,
) -> Outcome {
    for (label, contenders) in images {
        bench.prepare(&contenders, corpus);
        let subject = format!("{name} {label}");
        for state in [State::Cold, State::Warm] {
            for (pattern_name, pattern, readers) in PATTERNS {
                if big && readers > 1 && pattern != Pattern::Sequential {
                    continue;
                }
                eprintln!("bench read: {subject}, {}, {pattern_name}", state.name());
                let plan = plan(&corpus.join(file), pattern, state, readers, big)?;
                let genuine = pattern::read(&corpus.join(file), &plan)?;
                let turn = |bench: &Bench, contender: &Contender| {
                    let read = |directory: &Path| Ok(pattern::read(&directory.join(file), &plan)?);
                    bench.throughput(contender, corpus, state, &genuine, read)
                };
                let metric = throughput("patterns", state, pattern_name);
                bench.contest(&[metric], &subject, &contenders, turn);
            }
        }
    }
    Ok(())
}

fn plan(
    file: &Path,
    pattern: Pattern,
    state: State,
    readers: u64,
    big: bool,
) -> Outcome<Vec<Vec<u64>>> {
    let bytes = file.metadata()?.len();
    let bytes_max = match (pattern, state) {
        (Pattern::Random, _) if big => RANDOM_BIG_BYTES,
        (Pattern::Random, State::Cold) => RANDOM_COLD_BYTES,
        (Pattern::Random, State::Warm) => RANDOM_WARM_BYTES,
        (Pattern::Sequential, _) => SEQUENTIAL_BYTES,
        (Pattern::Stride, _) => u64::MAX,
    };
    Ok(pattern::plan(pattern, bytes, bytes_max, readers))
}

fn of_a_tree(bench: &mut Bench, name: &str, corpus: &Path) -> Outcome {
    for (label, format) in BIG {
        let contenders = bench.erofs(&format)?;
        let subject = format!("{name} {label}");
        read_a_tree(bench, "patterns", &subject, corpus, contenders)?;
    }
    Ok(())
}

/// Lets contenders read all files of a tree, and blocks anywhere.
pub(super) fn read_a_tree(
    bench: &mut Bench,
    part: &str,
    subject: &str,
    corpus: &Path,
    contenders: Vec<Contender>,
) -> Outcome {
    let contenders = bench.chosen(contenders);
    bench.prepare(&contenders, corpus);
    let files = tree::files(corpus)?;
    for state in [State::Cold, State::Warm] {
        eprintln!("bench read: {subject}, {}", state.name());
        let genuine = read_all(corpus)?;
        let turn = |bench: &Bench, contender: &Contender| {
            bench.throughput(contender, corpus, state, &genuine, read_all)
        };
        let metric = throughput(part, state, "all files of a tree");
        bench.contest(&[metric], subject, &contenders, turn);

        let anywhere = |directory: &Path| read_anywhere(directory, &files);
        let genuine = anywhere(corpus)?;
        let turn = |bench: &Bench, contender: &Contender| {
            bench.throughput(contender, corpus, state, &genuine, anywhere)
        };
        let metric = throughput(part, state, "random blocks of random files");
        bench.contest(&[metric], subject, &contenders, turn);
    }
    Ok(())
}

/// The metric of a way to read.
pub(super) fn throughput(part: &str, state: State, way: &str) -> (String, Unit) {
    let metric = format!("{part}, {}: {way}", state.name());
    (metric, Unit::BytesPerSecond)
}

/// Reads all files of a tree, as directories list them.
fn read_all(directory: &Path) -> Outcome<Reading> {
    let start = Instant::now();
    let (mut bytes, mut digest) = (0, 0_u64);
    tree::walk(directory, &mut |path, _| {
        let (more, part) = pattern::read_whole(path)?;
        bytes += more;
        digest = digest.wrapping_add(part);
        Ok(())
    })?;
    Ok(Reading {
        bytes,
        elapsed: start.elapsed(),
        digest,
    })
}

/// Reads blocks anywhere in files anywhere; each file is opened for its block.
fn read_anywhere(directory: &Path, files: &[(PathBuf, u64)]) -> Outcome<Reading> {
    let mut random = Random::new(0);
    let start = Instant::now();
    let (mut bytes, mut digest) = (0, 0_u64);
    for _ in 0..RANDOM_TREE_BLOCKS {
        let index = random.below(files.len().max(1) as u64) as usize;
        let (path, file_bytes) = files.get(index).ok_or("a tree without a file")?;
        let block = BLOCK as u64;
        let offset = random.below(file_bytes.div_ceil(block)) * block;
        let (more, part) = pattern::read_block(&directory.join(path), offset)?;
        bytes += more;
        digest = digest.wrapping_add(part);
    }
    Ok(Reading {
        bytes,
        elapsed: start.elapsed(),
        digest,
    })
}

impl Bench<'_> {
    /// One turn: bytes per second of some reading from a fresh mount, which must yield what the corpus does.
    pub(super) fn throughput(
        &self,
        contender: &Contender,
        corpus: &Path,
        state: State,
        genuine: &Reading,
        read: impl FnOnce(&Path) -> Outcome<Reading>,
    ) -> Outcome<Vec<f64>> {
        let reading = self.fresh(contender, corpus, state, |served| read(served.directory()))?;
        let is_same = contender.name == ZEROS || reading.digest == genuine.digest;
        if reading.bytes != genuine.bytes || !is_same {
            return Err("it reads other data than the corpus holds".into());
        }
        Ok(vec![reading.bytes as f64 / reading.elapsed.as_secs_f64()])
    }
}
