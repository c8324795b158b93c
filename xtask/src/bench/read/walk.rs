//! Part `walk`: `find`, `ls -lR` and `tar` over a tree, cold and right after, and what the device reads for the former.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::contender::Contender;
use super::format::EROFS_4K;
use super::harness::Bench;
use crate::bench::report::Unit;
use crate::bench::tree;
use crate::outcome::Outcome;
use crate::run::output;

/// States what is run in the mount. Each tells on its output how much it found.
const WALKS: [(&str, &str); 3] = [
    ("find", "find . | wc -l"),
    ("ls -lR", "ls -lR . | wc -l"),
    ("tar", "tar --sort=name -cf - . | cat | wc -c"),
];

/// Runs the part on each corpus that is a tree.
///
/// # Errors
/// When a corpus cannot be had, or a peer is missing.
pub(super) fn walk(bench: &mut Bench) -> Outcome {
    let mut contenders = bench.erofs(&EROFS_4K)?;
    contenders.push(Bench::squashfuse("128K")?);
    contenders.extend(Bench::squashfs(&["128K"]));
    contenders.push(Bench::ext4());
    contenders.extend(bench.dwarfs());
    let contenders = bench.chosen(contenders);
    for name in bench.options.corpora_or(&["tree60k"]) {
        let corpus = crate::bench::corpus(&name)?;
        if tree::single_file(&corpus)?.is_some() {
            bench.note(format!("walk: {name} is one file, and left out"));
            continue;
        }
        bench.prepare(&contenders, &corpus);
        for (walk, script) in WALKS {
            eprintln!("bench read: walk, {name}, {walk}");
            let metrics = [
                (format!("walk, cold: {walk}"), Unit::Seconds),
                (format!("walk, right after: {walk}"), Unit::Seconds),
                (
                    format!("walk, cold: read from the device for {walk}"),
                    Unit::Bytes,
                ),
            ];
            bench.contest(&metrics, &name, &contenders, |bench, contender| {
                turn(bench, contender, &corpus, script)
            });
        }
    }
    Ok(())
}

/// One turn: seconds cold, seconds right after, bytes read from the device.
fn turn(bench: &Bench, contender: &Contender, corpus: &Path, script: &str) -> Outcome<Vec<f64>> {
    let counted = bench.counted(contender, corpus)?;
    let seconds = |directory: &Path| seconds(directory, script);
    let (cold, bytes, warm) = bench.count(contender, &counted, seconds, seconds)?;
    Ok(vec![cold, warm, bytes as f64])
}

fn seconds(directory: &Path, script: &str) -> Outcome<f64> {
    let start = Instant::now();
    let found = output(
        Command::new("sh")
            .args(["-c", script])
            .current_dir(directory),
    )?;
    let elapsed = start.elapsed();
    match found.trim().parse::<u64>()? {
        0 | 1 => Err("it found nothing".into()),
        _ => Ok(elapsed.as_secs_f64()),
    }
}
