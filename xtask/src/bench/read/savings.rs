//! Part `savings`: throughput against what compression saves (figure 11 of the EROFS paper).
//!
//! As in the paper, files of a wanted compressibility are made of blocks whose savings are the wanted ones, found in
//! an image with pclusters of 4 KiB and repeated; several of each kind take turns, lest a block match its own copy.
//! What the finished image saves is the scale of the plot.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::contender::{Contender, How};
use super::format::EROFS_4K;
use super::harness::{Bench, State};
use super::pattern::{self, Pattern};
use super::patterns::throughput;
use crate::bench::tree;
use crate::outcome::Outcome;
use crate::run::output;

/// The savings that are wanted, in percent.
const LEVELS: [f64; 10] = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0];
/// States how far a block's savings may be from them.
const TOLERANCE: f64 = 2.0;
/// States how many blocks of a kind take turns, at the most.
const KINDS_MAX: usize = 256;
/// The size of each file.
const FILE_BYTES: u64 = 256 << 20;
/// States what is read at random places.
const RANDOM_BYTES: u64 = 16 << 20;

/// A part of a file that one pcluster holds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    offset: u64,
    bytes: u64,
    stored_bytes: u64,
}

/// Runs the part.
///
/// # Errors
/// When the corpus or its image cannot be had, or a file cannot be made.
pub(super) fn savings(bench: &mut Bench) -> Outcome {
    let corpus = crate::bench::corpus("silesia")?;
    let file = tree::single_file(&corpus)?.ok_or("silesia is not one file")?;
    let blocks = blocks(bench, &corpus, &file)?;
    let mut contenders = bench.ours(&EROFS_4K);
    contenders.extend([
        Contender::kernel("kernel erofs, file", EROFS_4K, How::File),
        Contender::kernel("kernel erofs, loop", EROFS_4K, How::Loop),
        Bench::ext4(),
    ]);
    let contenders = bench.chosen(contenders);
    // Both the files and their images are for this once.
    let kept = std::mem::replace(&mut bench.images, bench.scratch.join("savings"));
    for level in LEVELS {
        let chosen = choose(&blocks, level);
        if chosen.is_empty() {
            bench.note(format!(
                "savings: no block of {} saves {level} %",
                file.display()
            ));
            continue;
        }
        let outcome = make(&corpus.join(&file), &chosen, &bench.images)
            .and_then(|made| measure(bench, &contenders, &made));
        let _ = fs::remove_dir_all(&bench.images);
        outcome?;
    }
    bench.images = kept;
    Ok(())
}

/// The blocks of the corpus, as its image holds them.
fn blocks(bench: &Bench, corpus: &Path, file: &Path) -> Outcome<Vec<Block>> {
    let image = EROFS_4K.image(&bench.images, corpus)?;
    let mut dump = Command::new(&bench.anteros);
    dump.args(["dump", "--json", "--extents", "--path"]);
    dump.arg(Path::new("/").join(file)).arg(image);
    let dump: Value = serde_json::from_str(&output(&mut dump)?)?;
    let extents = dump["extents"].as_array().ok_or("a dump without extents")?;
    Ok(extents.iter().filter_map(block).collect())
}

fn block(extent: &Value) -> Option<Block> {
    Some(Block {
        offset: extent["offset"].as_u64()?,
        bytes: extent["bytes"].as_u64()?,
        stored_bytes: extent["stored_bytes"].as_u64()?,
    })
}

/// Some of the blocks that save about as much as is wanted, from all over the corpus.
fn choose(blocks: &[Block], level: f64) -> Vec<Block> {
    let percent = |block: &Block| 100.0 * (1.0 - block.stored_bytes as f64 / block.bytes as f64);
    let close = |block: &&Block| (percent(block) - level).abs() <= TOLERANCE;
    let close: Vec<Block> = blocks.iter().filter(close).copied().collect();
    let step = close.len().div_ceil(KINDS_MAX).max(1);
    close.into_iter().step_by(step).collect()
}

/// Makes a corpus of one file out of blocks of another file.
fn make(source: &Path, blocks: &[Block], directory: &Path) -> Outcome<PathBuf> {
    let corpus = directory.join("file");
    fs::create_dir_all(&corpus)?;
    let source = File::open(source)?;
    let mut file = BufWriter::new(File::create(corpus.join("data"))?);
    let mut written = 0;
    for block in blocks.iter().cycle() {
        if written >= FILE_BYTES {
            break;
        }
        let mut data = vec![0; block.bytes as usize];
        source.read_exact_at(&mut data, block.offset)?;
        file.write_all(&data)?;
        written += block.bytes;
    }
    file.into_inner().map_err(io::Error::from)?.sync_all()?;
    Ok(corpus)
}

fn measure(bench: &mut Bench, contenders: &[Contender], corpus: &Path) -> Outcome {
    let file = corpus.join("data");
    let bytes = file.metadata()?.len();
    let stored = EROFS_4K.image(&bench.images, corpus)?.metadata()?.len();
    let saved = (100.0 * (1.0 - stored as f64 / bytes as f64)).max(0.0);
    bench.prepare(contenders, corpus);
    let subject = format!("{saved:.0} % saved");
    eprintln!("bench read: savings, {subject}");
    for (name, pattern, bytes_max) in [
        ("sequential", Pattern::Sequential, FILE_BYTES),
        ("random", Pattern::Random, RANDOM_BYTES),
    ] {
        let plan = pattern::plan(pattern, bytes, bytes_max, 1);
        let genuine = pattern::read(&file, &plan)?;
        let metric = throughput("savings", State::Cold, name);
        bench.contest(&[metric], &subject, contenders, |bench, contender| {
            let read = |directory: &Path| Ok(pattern::read(&directory.join("data"), &plan)?);
            bench.throughput(contender, corpus, State::Cold, &genuine, read)
        });
        if let Some(comparison) = bench.comparisons.last_mut() {
            comparison.at = Some(saved);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_chosen_by_what_they_save() {
        let block = |offset, bytes| Block {
            offset,
            bytes,
            stored_bytes: 4096,
        };
        let blocks = [block(0, 4096), block(4096, 8192), block(12_288, 8300)];
        assert_eq!(choose(&blocks, 0.0), [blocks[0]]);
        assert_eq!(choose(&blocks, 50.0), blocks[1..]);
        assert!(choose(&blocks, 90.0).is_empty());
        assert_eq!(choose(&[blocks[0]; 1000], 0.0).len(), 250);
    }

    #[test]
    fn an_extent_of_a_dump_is_a_block() {
        let extent = serde_json::json!({ "offset": 1, "bytes": 9000, "stored_bytes": 4096, "storage": "lz4" });
        let expected = Block {
            offset: 1,
            bytes: 9000,
            stored_bytes: 4096,
        };
        assert_eq!(block(&extent), Some(expected));
        assert_eq!(block(&serde_json::json!({ "offset": 1 })), None);
    }
}
