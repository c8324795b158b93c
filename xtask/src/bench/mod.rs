//! `cargo xtask bench`: anteros beside its peers, in one run on one machine.
//!
//! A benchmark yields comparisons. In a comparison anteros and its peers take turns, so that whatever else the machine
//! does falls on all; the figure is the median of the turns, told with the least and the greatest. Comparisons go to the
//! terminal as a table, and with the machine, the versions and every command to `target/bench/NAME.json` and to a page
//! that needs nothing else, `target/bench/NAME.html`.

mod archives;
mod build;
mod callers;
mod contest;
mod device;
mod fpc;
mod goal;
mod growth;
mod html;
mod image;
mod io_uring;
mod launch;
mod log;
mod machine;
mod measure;
mod metadata;
mod mounted;
mod names;
mod part;
mod place;
pub(crate) mod random;
mod read;
mod report;
pub(crate) mod tree;
mod verity;
mod write;

use std::env;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::peers;
use crate::run::{cargo, output, run};
use goal::Goal;
use io_uring::IoUring;
use machine::Machine;
use report::{Comparison, Report};

/// Holds what a benchmark found out.
struct Findings {
    /// Programs and their versions.
    versions: Vec<String>,
    notes: Vec<String>,
    comparisons: Vec<Comparison>,
    goals: Vec<Goal>,
}

/// Holds what the command line asks for; where it asks for nothing, the lists are empty.
struct Options {
    corpora: Vec<String>,
    /// Native file systems.
    filesystems: Vec<String>,
    runs: usize,
    /// Parts of the benchmark.
    only: Vec<String>,
    /// Words of which a contender's name must contain one.
    contenders: Vec<String>,
    /// Arguments of our daemon; for each, it takes part once more.
    with: Vec<String>,
    /// Tells whether the kernel is to offer FUSE over io_uring, `on` or `off`; else it is left as it is.
    io_uring: Option<String>,
    /// The tool that is measured; else it is built.
    anteros: Option<PathBuf>,
}

/// Runs a benchmark and writes its report.
///
/// # Errors
/// When a corpus or a peer cannot be had, a command fails, or the report cannot be written.
pub(crate) fn bench(name: &str, options: &[&str]) -> Outcome {
    let options = Options::of(options)?;
    let wanted = options.io_uring.as_deref();
    let _io_uring = wanted.map(IoUring::set).transpose()?;
    let findings = match name {
        "build" => build::build(&options)?,
        "fpc" => fpc::fpc(&options)?,
        "image" => image::image(&options)?,
        "log" => log::log(&options)?,
        "read" => read::read(&options)?,
        "write" => write::write(&options)?,
        _ => {
            let names = "build, fpc, image, log, read, write";
            return Err(format!("no benchmark {name}; there are: {names}").into());
        }
    };
    let report = Report {
        name: name.to_owned(),
        machine: Machine::read(),
        versions: findings.versions,
        notes: findings.notes,
        comparisons: findings.comparisons,
        goals: findings.goals,
    };
    report.print();
    report.write(Path::new("target/bench"))
}

/// Makes a log for the benchmark of names.
///
/// # Errors
/// When the words say nothing that can be made, or the log cannot be made.
pub(crate) fn log_of_names(words: &[&str]) -> Outcome {
    log::names::make(words)
}

/// Makes a corpus, unless it is there, and prints where it is.
///
/// # Errors
/// When it is not there and cannot be made.
pub(crate) fn print_corpus(name: &str) -> Outcome {
    println!("{}", corpus(name)?.display());
    Ok(())
}

/// Makes a corpus, unless it is there, and tells where it is.
pub(crate) fn corpus(name: &str) -> Outcome<PathBuf> {
    let path = output(
        Command::new("scripts/corpus.sh")
            .arg(name)
            .stderr(Stdio::inherit()),
    )?;
    Ok(PathBuf::from(path.trim_end()))
}

/// The versions of our tool and of the peers' builder.
fn versions(anteros: &Path) -> Outcome<Vec<String>> {
    let ours = output(Command::new(anteros).arg("--version"))?;
    let peer = output(peers::command("mkfs.erofs")?.arg("--version"))?;
    Ok([ours, peer]
        .iter()
        .filter_map(|text| text.lines().next().map(str::to_owned))
        .collect())
}

impl Options {
    fn of(words: &[&str]) -> Outcome<Self> {
        let mut options = Self {
            corpora: Vec::new(),
            filesystems: Vec::new(),
            runs: 3,
            only: Vec::new(),
            contenders: Vec::new(),
            with: Vec::new(),
            io_uring: None,
            anteros: None,
        };
        for pair in words.chunks(2) {
            let [option, value] = *pair else {
                return Err(format!("bench: {} needs a value", pair[0]).into());
            };
            let value = value.to_owned();
            match option {
                "--corpus" => options.corpora.push(value),
                "--filesystem" => options.filesystems.push(value),
                "--runs" => options.runs = value.parse::<usize>()?.max(1),
                "--only" => options.only.push(value),
                "--contender" => options.contenders.push(value),
                "--anteros" => options.anteros = Some(path::absolute(&value)?),
                "--io-uring" => options.io_uring = Some(value),
                "--with" => options.with.push(value),
                _ => return Err(format!("bench: unknown option {option}").into()),
            }
        }
        Ok(options)
    }

    /// Returns where the tool is; unless it was named, it is built as it is shipped.
    fn anteros(&self) -> Outcome<PathBuf> {
        if let Some(anteros) = &self.anteros {
            return Ok(anteros.clone());
        }
        run(cargo().args(["build", "--release", "--locked", "--package", "anteros"]))?;
        let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        Ok(path::absolute(Path::new(&target).join("release/anteros"))?)
    }

    /// The corpora asked for, or those that the benchmark takes otherwise.
    fn corpora_or(&self, otherwise: &[&str]) -> Vec<String> {
        match self.corpora.is_empty() {
            true => otherwise.iter().map(|name| (*name).to_owned()).collect(),
            false => self.corpora.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_pairs() {
        let options = Options::of(&["--corpus", "a", "--runs", "0", "--corpus", "b"]).unwrap();
        assert_eq!(options.corpora, ["a", "b"]);
        assert_eq!(options.runs, 1);
        assert_eq!(options.corpora_or(&["c"]), ["a", "b"]);
        assert!(Options::of(&["--corpus"]).is_err());
        assert!(Options::of(&["--speed", "2"]).is_err());
    }
}
