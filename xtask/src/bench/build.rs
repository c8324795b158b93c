//! `bench build`: the settings that build systems use, beside `mkfs.erofs` and `mksquashfs`.
//!
//! `bench image` compares every cluster size of LZ4, and reading as well. Here are the slow codecs and what packs files
//! together; a turn of the peer may take minutes. What `--small` makes is extracted and checked as well.

use super::archives::archives;
use super::callers::callers_lines;
use super::findings::Findings;
use super::growth::growth;
use super::images::{Bench, FIXED};
use super::metadata::metadata;
use super::options::Options;
use super::part;
use super::report::Comparison;
use super::verity::verity;
use crate::outcome::Outcome;
use crate::peers;

/// The options of the images, ours and the peer's.
const SETTINGS: [&[&str]; 8] = [
    &["-zlibdeflate,9", "-C32768"],
    &["-zlibdeflate,9", "-C65536"],
    &["-zzstd,3", "-C65536"],
    &["-zzstd,15", "-C65536"],
    &["-zzstd,15", "-C65536", "-E48bit"],
    &["-zzstd,15", "-C131072", "-Eall-fragments,dedupe"],
    &["-zlz4hc,12", "-C65536", "-Efragments,dedupe,ztailpacking"],
    &[
        "-zlzma,9",
        "-C1048576",
        "-Eall-fragments,dedupe,fragdedupe=inode",
    ],
];

/// The options of `mksquashfs` that `--small` is beside.
const SQUASHFS: [&str; 7] = [
    "-comp",
    "xz",
    "-b",
    "128K",
    "-noappend",
    "-all-root",
    "-no-progress",
];

/// A part of the benchmark.
#[derive(Clone, Copy)]
enum Part {
    Settings,
    Squashfs,
    Growth,
    Metadata,
    Verity,
    Archives,
    Callers,
}

const PARTS: [(&str, Part); 7] = [
    ("settings", Part::Settings),
    ("squashfs", Part::Squashfs),
    ("growth", Part::Growth),
    ("metadata", Part::Metadata),
    ("verity", Part::Verity),
    ("archives", Part::Archives),
    ("callers", Part::Callers),
];

/// Runs the benchmark.
///
/// # Errors
/// When a program or a corpus cannot be had, or a command fails.
pub(super) fn build(options: &Options) -> Outcome<Findings> {
    let parts = part::chosen(&PARTS, &options.only)?;
    let bench = Bench::new(options)?;
    let corpora = options.corpora_or(&["minbase"]);
    let mut comparisons = Vec::new();
    for (_, part) in parts {
        let of_corpora = match part {
            Part::Settings => settings,
            Part::Squashfs => squashfs,
            Part::Metadata => metadata,
            Part::Verity => verity,
            Part::Archives => archives,
            Part::Callers => callers_lines,
            Part::Growth => {
                comparisons.extend(growth(&bench)?);
                continue;
            }
        };
        for name in &corpora {
            comparisons.extend(of_corpora(&bench, name)?);
        }
    }
    bench.finish(comparisons)
}

fn settings(bench: &Bench, name: &str) -> Outcome<Vec<Comparison>> {
    let corpus = super::corpus(name)?;
    let mut comparisons = Vec::new();
    for options in SETTINGS {
        let subject = format!("{name} {}", options.join(" "));
        eprintln!("bench build: {subject}");
        let (ours, peer) = (bench.path("ours.erofs"), bench.path("peer.erofs"));
        comparisons.extend(bench.build(&corpus, options, &subject, &ours, &peer)?);
    }
    Ok(comparisons)
}

fn squashfs(bench: &Bench, name: &str) -> Outcome<Vec<Comparison>> {
    let corpus = super::corpus(name)?;
    let subject = format!("{name} --small, mksquashfs {}", SQUASHFS[..4].join(" "));
    eprintln!("bench build: {subject}");
    let (ours, peer) = (bench.path("ours.erofs"), bench.path("peer.squashfs"));
    let mut mkfs = bench.anteros("mkfs");
    mkfs.args(FIXED).arg("--small").arg(&ours).arg(&corpus);
    let mut mksquashfs = peers::command("mksquashfs")?;
    mksquashfs.arg(&corpus).arg(&peer).args(SQUASHFS);
    let mut comparisons =
        bench.built(&subject, (mkfs, &ours), ("mksquashfs", mksquashfs, &peer))?;
    comparisons.extend(bench.read(&format!("{name} --small"), &ours)?);
    Ok(comparisons)
}
