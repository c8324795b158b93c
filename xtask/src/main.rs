//! Chores of the repository: `cargo xtask <chore>`.
//!
//! What installs or prepares things is written in shell (`scripts/`, `tests/fixtures/make.sh`), because it
//! calls programs and little else; a chore here calls it. What reads, judges or measures is written in Rust.

mod bench;
mod compare;
mod dist;
mod fuzz;
mod hollow;
mod imports;
mod licenses;
mod metadata;
mod msrv;
mod mutants;
mod outcome;
mod peers;
mod record;
mod run;
mod traces;

use std::env;
use std::process::ExitCode;

use outcome::Outcome;

const USAGE: &str = "\
usage: cargo xtask <chore>

  bench NAME [--corpus NAME]... [--runs N]   measure beside the peers; writes target/bench/NAME.{json,html}
                                 NAME is image, build, patch, profile, read, write, log or fpc, and knows [--only PART]...; the
                                 last four run as root and know [--contender WORD]...; read, log and fpc know
                                 [--with DAEMON-ARGUMENTS]..., write and log [--filesystem NAME]...; with
                                 --anteros PROGRAM that tool is measured, else it is built
  compare [--mutants N] [--seed N]  what the kernel, in a virtual machine, and check make of mutated images
                                 (default 2000); writes target/compare
  corpus NAME                    make a corpus for the benchmarks and print where it is
  dist [--target TARGET] [NAME]...  build programs to hand out into target/dist, static and small: anteros, anteros-read
                                 (the commands that read images) and anteros-warm, or those that are named;
                                 --packages alone: all of them, in a tarball and a .deb, with checksums
  fixtures                       make the images of tests/fixtures again
  fuzz [--seconds N] [TARGET]... run the fuzz targets, N seconds in all (default 60)
  hollow [IMAGE] DIRECTORY       mount a file system that keeps nothing but names, or has the names of an image, to
                                 measure beside ours
  imports                        refuse imports that go round in a circle, or upwards between floors
  licenses                       refuse dependencies whose licence deny.toml does not allow
  msrv                           refuse dependencies that need a newer Rust, and compile with the oldest
  mutants [--again] [--only WORD]... [--judge WORD]... [--minutes N] [--list]  leave out each statement of the log
                                 that marks, writes, flushes, wakes or locks, one at a time, and tell which of them
                                 no test notices; --again leaves out those that were noticed before, --only asks
                                 about some, --judge asks only tests whose names have the word; what was known of
                                 the others is kept
  peer PROGRAM [ARGUMENT]...     run a program of the peers' tree, making the tree first if need be
  peers                          make the peers' tree
  record TRACE COMMAND...        run a command in an empty directory and record what it writes there, with every byte
  trace NAME                     record an application, unless that was done before, and print where the trace is";

fn main() -> ExitCode {
    if std::process::id() == 1 {
        compare::judge_in_virtual_machine();
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match chore(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn chore(words: &[&str]) -> Outcome {
    env::set_current_dir(run::root())?;
    match words {
        ["bench", name, options @ ..] => bench::bench(name, options),
        ["compare", options @ ..] => compare::compare(options),
        ["corpus", name] => bench::print_corpus(name),
        ["dist", words @ ..] => dist::dist(words),
        ["fixtures"] => peers::fixtures(),
        ["fuzz", options @ ..] => fuzz::fuzz(options),
        ["hollow", image, directory] => hollow::hollow_image(image.as_ref(), directory.as_ref()),
        ["hollow", directory] => hollow::hollow(directory.as_ref()),
        // Called by `bench log --only names`.
        ["log-of-names", words @ ..] => bench::log_of_names(words),
        ["imports"] => imports::imports(),
        ["licenses"] => licenses::licenses(),
        ["msrv"] => msrv::msrv(),
        ["mutants", options @ ..] => mutants::mutants(options),
        ["peer", program, arguments @ ..] => peers::peer(program, arguments),
        ["peers"] => peers::make(),
        ["record", trace, command @ ..] if !command.is_empty() => record::record(trace, command),
        ["trace", name] => traces::print(name),
        _ => Err(USAGE.into()),
    }
}
