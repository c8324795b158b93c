//! `bench build --only growth`: how time and memory grow with the number of files, and with the size of one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::images::{Bench, clear};
use super::report::Comparison;
use crate::outcome::Outcome;

/// The numbers of files in one directory.
const FILES: [u64; 5] = [10_000, 31_623, 100_000, 316_228, 1_000_000];
/// Sizes of a file that is a hole but for a block in each sixteenth, in bytes.
const SPARSE: [u64; 3] = [1_000_000_000, 10_000_000_000, 100_000_000_000];
const BLOCKS: u64 = 16;

/// Builds images of many small files in one directory, and of a large file that is nearly all hole.
///
/// # Errors
/// When a source or an image cannot be made.
pub(super) fn growth(bench: &Bench) -> Outcome<Vec<Comparison>> {
    let source = bench.path("growing");
    let mut comparisons = Vec::new();
    for count in FILES {
        clear(&source)?;
        write_files(&source, count)?;
        let subject = format!("{count} files in a directory");
        comparisons.extend(build(bench, &source, &["-zlz4"], &subject)?);
    }
    for size in SPARSE {
        clear(&source)?;
        write_sparse(&source, size)?;
        let subject = format!("a sparse file of {} GB", size / 1_000_000_000);
        comparisons.extend(build(bench, &source, &["--chunksize=65536"], &subject)?);
    }
    clear(&source)?;
    Ok(comparisons)
}

fn build(
    bench: &Bench,
    source: &Path,
    options: &[&str],
    subject: &str,
) -> Outcome<Vec<Comparison>> {
    eprintln!("bench build: {subject}");
    let (ours, peer) = (bench.path("ours.erofs"), bench.path("peer.erofs"));
    bench.build(source, options, subject, &ours, &peer)
}

/// Each file has another content, some of them alike.
fn write_files(directory: &Path, count: u64) -> Outcome {
    fs::create_dir(directory)?;
    for n in 0..count {
        let content = format!("This is file {n} of {count}.\n");
        fs::write(directory.join(format!("file-{n:07}")), content)?;
    }
    Ok(())
}

fn write_sparse(directory: &Path, size: u64) -> Outcome {
    fs::create_dir(directory)?;
    let file = File::create(directory.join("sparse"))?;
    file.set_len(size)?;
    for n in 0..BLOCKS {
        file.write_all_at(&[1; 4096], size / BLOCKS * n)?;
    }
    Ok(())
}
