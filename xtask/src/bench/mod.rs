//! `cargo xtask bench`: anteros beside its peers, in one run on one machine.
//!
//! A benchmark yields comparisons. In a comparison anteros and its peers take turns, so that whatever else the machine
//! does falls on all; the figure is the median of the turns, told with the least and the greatest. Comparisons go to the
//! terminal as a table, and with the machine, the versions and every command to `target/bench/NAME.json` and to a page
//! that needs nothing else, `target/bench/NAME.html`.

mod archives;
mod build;
mod caches;
mod callers;
mod contest;
mod corpora;
mod device;
mod findings;
mod fpc;
mod goal;
mod growth;
mod here;
mod html;
mod image;
mod images;
mod io_uring;
mod launch;
mod log;
mod machine;
mod measure;
mod metadata;
mod mounted;
mod names;
mod options;
mod part;
mod patch;
mod place;
mod profile;
pub(crate) mod random;
mod read;
mod report;
mod throttle;
pub(crate) mod tree;
mod verity;
mod write;

use std::fs;
use std::path::Path;

use crate::outcome::Outcome;
use io_uring::IoUring;
use machine::Machine;
use options::Options;
use report::Report;

pub(crate) use corpora::{corpus, print_corpus};

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
        "patch" => patch::patch(&options)?,
        "profile" => profile::profile(&options)?,
        "read" => read::read(&options)?,
        "write" => write::write(&options)?,
        _ => {
            let names = "build, fpc, image, log, patch, profile, read, write";
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
    write(&report, Path::new("target/bench"))
}

/// Makes a log for the benchmark of names.
///
/// # Errors
/// When the words say nothing that can be made, or the log cannot be made.
pub(crate) fn log_of_names(words: &[&str]) -> Outcome {
    log::names::make(words)
}

/// Writes `NAME.json` and `NAME.html` into a directory.
///
/// # Errors
/// When they cannot be written.
fn write(report: &Report, directory: &Path) -> Outcome {
    fs::create_dir_all(directory)?;
    let json = directory.join(&report.name).with_extension("json");
    let html = directory.join(&report.name).with_extension("html");
    fs::write(&json, serde_json::to_string_pretty(&report.json())?)?;
    fs::write(&html, html::page(report))?;
    println!("\nwritten: {} and {}", json.display(), html.display());
    Ok(())
}
