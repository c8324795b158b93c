//! Part `trees`: real trees of files come to be: a copy of a Debian, and a clone of this repository.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::harness::{Bench, Subject};
use super::native::Native;
use super::throughput::STATES;
use super::turn::Served;
use crate::bench::report::Unit;
use crate::bench::{corpus, tree};
use crate::outcome::Outcome;
use crate::run::{output, root, run};

/// The tree that is copied.
const CORPUS: &str = "minbase";

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn trees(bench: &mut Bench) -> Outcome {
    match corpus(CORPUS) {
        Ok(corpus) => {
            let files = tree::files(&corpus)?;
            compare(
                bench,
                &format!("trees: cp -r of {CORPUS}"),
                &|directory| {
                    let mut cp = Command::new("cp");
                    run(cp.arg("-r").arg(&corpus).arg(directory.join("tree")))
                },
                &|source| match tree::files(&source.join("tree"))? == files {
                    true => Ok(()),
                    false => Err("the copy has other files".into()),
                },
            )?;
        }
        Err(error) => bench.note(format!("trees: no copy is measured: {error}")),
    }
    let repository = root();
    let git = |words: &[&str], directory: &Path| {
        let mut git = Command::new("git");
        git.arg("-C").arg(directory).args(words);
        git
    };
    if let Err(error) = output(&mut git(&["rev-parse"], &repository)) {
        bench.note(format!("trees: no clone is measured: {error}"));
        return Ok(());
    }
    compare(
        bench,
        "trees: git clone of this repository",
        &|directory| {
            let mut clone = git(&["clone", "--quiet", "--no-local"], directory);
            run(clone.arg(&repository).arg("tree"))
        },
        &|source| match output(&mut git(&["status", "--porcelain"], &source.join("tree")))?.as_str()
        {
            "" => Ok(()),
            changes => Err(format!("the clone is not clean: {changes}").into()),
        },
    )
}

/// Has all ways take turns at making a tree, which is looked at afterwards where it came to lie.
fn compare(
    bench: &mut Bench,
    what: &str,
    make: &dyn Fn(&Path) -> Outcome,
    check: &dyn Fn(&Path) -> Outcome,
) -> Outcome {
    let ways = bench.everybody();
    bench.on_each(Native::in_memory, |bench, native| {
        let subject = Subject {
            name: native.kind.name,
            at: None,
            metrics: &STATES.map(|state| (format!("{what}, {state}"), Unit::Seconds)),
        };
        bench.contest(&subject, &ways, |bench, way| {
            bench.fresh(
                native,
                way,
                |_| Ok(()),
                |served: &Served| {
                    let start = Instant::now();
                    make(&served.directory)?;
                    let cached = start.elapsed().as_secs_f64();
                    served.sync()?;
                    let stored = start.elapsed().as_secs_f64();
                    check(&served.source)?;
                    Ok(vec![cached, stored])
                },
            )
        });
        Ok(())
    })
}
