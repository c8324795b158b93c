//! Part `launch`: how long programs take that start cold from the mount (table 3 and figure 12 of the EROFS paper):
//! as they are, while others read and write, and with little memory.

use std::path::Path;

use super::background::Background;
use super::contender::Contender;
use super::format::EROFS_4K;
use super::harness::{Bench, State};
use super::memory_limit::MemoryLimit;
use crate::bench::launch::{PROGRAMS, seconds};
use crate::bench::report::Unit;
use crate::outcome::Outcome;

/// Runs the part.
///
/// # Errors
/// When the corpus cannot be had, or a peer is missing.
pub(super) fn launch(bench: &mut Bench) -> Outcome {
    let corpus = crate::bench::corpus("apps")?;
    bench.note(
        "launch: no program with a window takes part (the tree of programs has none)".to_owned(),
    );
    let mut contenders = bench.erofs(&EROFS_4K)?;
    contenders.extend(Bench::squashfs(&["4K", "128K"]));
    contenders.push(Bench::ext4());
    let contenders = bench.chosen(contenders);

    bench.prepare(&contenders, &corpus);
    rounds(bench, &contenders, &corpus, "launch", None);
    let background = Background::start(&bench.scratch.join("background"))?;
    rounds(
        bench,
        &contenders,
        &corpus,
        "launch beside others that read and write",
        None,
    );
    drop(background);
    match MemoryLimit::new() {
        Ok(limit) => rounds(
            bench,
            &contenders,
            &corpus,
            "launch with 32 MiB of memory",
            Some(&limit),
        ),
        Err(error) => bench.note(format!("launch with little memory not measured: {error}")),
    }
    Ok(())
}

fn rounds(
    bench: &mut Bench,
    contenders: &[Contender],
    corpus: &Path,
    metric: &str,
    limit: Option<&MemoryLimit>,
) {
    for (name, program) in PROGRAMS {
        eprintln!("bench read: {metric}: {name}");
        let metric = (metric.to_owned(), Unit::Seconds);
        bench.contest(&[metric], name, contenders, |bench, contender| {
            bench.fresh(contender, corpus, State::Cold, |served| {
                let members = limit.map(MemoryLimit::members);
                Ok(vec![seconds(served.directory(), program, members)?])
            })
        });
    }
}
