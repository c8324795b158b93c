//! Part `memory`: the most memory that a daemon holds while a file is read from end to end (figure 10 of the EROFS
//! paper, which measures the whole system). The page cache is not counted: it is the system's, and all fill it alike.

use super::contender::Contender;
use super::format::{EROFS_4K, EROFS_LZMA_1M};
use super::harness::{Bench, State};
use super::pattern;
use crate::bench::report::Unit;
use crate::outcome::Outcome;

/// Runs the part on each corpus that is one file.
///
/// # Errors
/// When a corpus cannot be had, or a peer is missing.
pub(super) fn memory(bench: &mut Bench) -> Outcome {
    let mut contenders = bench.ours(&EROFS_4K);
    contenders.push(Contender::peer("erofsfuse", "erofsfuse", EROFS_4K)?);
    contenders.push(Bench::squashfuse("4K")?);
    contenders.push(Bench::squashfuse("128K")?);
    contenders.extend(bench.dwarfs());
    let mut lzma = bench.ours(&EROFS_LZMA_1M);
    lzma.push(Contender::peer("erofsfuse", "erofsfuse", EROFS_LZMA_1M)?);
    of_one(bench, "4K", contenders, &["text1g"])?;
    // Which takes long to make: hence a smaller corpus.
    of_one(bench, "lzma 1M", lzma, &["silesia"])
}

/// Reads each corpus that is one file.
fn of_one(
    bench: &mut Bench,
    label: &str,
    contenders: Vec<Contender>,
    otherwise: &[&str],
) -> Outcome {
    let contenders = bench.chosen(contenders);
    for (name, corpus, file) in bench.single_file_corpora("memory", otherwise)? {
        let subject = format!("{name} {label}");
        eprintln!("bench read: memory, {subject}");
        bench.prepare(&contenders, &corpus);
        let metric = ("memory: peak of the daemon".to_owned(), Unit::Bytes);
        bench.contest(&[metric], &subject, &contenders, |bench, contender| {
            bench.fresh(contender, &corpus, State::Cold, |served| {
                pattern::read_whole(&served.directory().join(&file))?;
                Ok(vec![served.memory_peak()? as f64])
            })
        });
    }
    Ok(())
}
