//! Part `launch`: how long programs take that start cold from the mount (table 3 and figure 12 of the EROFS paper):
//! as they are, while others read and write, and with little memory.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::background::Background;
use super::contender::Contender;
use super::format::EROFS_4K;
use super::memory_limit::MemoryLimit;
use super::{Bench, State};
use crate::Outcome;
use crate::bench::mounted::bind;
use crate::bench::report::Unit;

/// What programs write to that nobody reads.
const NULL: &str = "/dev/null";

/// Programs of the corpus `apps`.
const PROGRAMS: [(&str, &[&str]); 4] = [
    (
        "python3, many imports",
        &[
            "/usr/bin/python3",
            "-c",
            "import json, http.client, email, xml.dom.minidom, asyncio, unittest, ctypes, decimal",
        ],
    ),
    ("git --version", &["/usr/bin/git", "--version"]),
    (
        "git hash-object",
        &[
            "/usr/bin/git",
            "hash-object",
            "--no-filters",
            "/usr/bin/git",
        ],
    ),
    (
        "perl, some modules",
        &[
            "/usr/bin/perl",
            "-MPOSIX",
            "-MEncode",
            "-MStorable",
            "-e",
            "exit 0",
        ],
    ),
];

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
                let root = served.directory();
                // A daemon may be told to show no devices.
                let _null = bind(Path::new(NULL), &root.join("dev/null"))?;
                Ok(vec![seconds(root, program, limit)?])
            })
        });
    }
}

/// How long a program takes, whose root is the mount.
fn seconds(root: &Path, program: &[&str], limit: Option<&MemoryLimit>) -> Outcome<f64> {
    let members = limit.map_or(OsString::from(NULL), |limit| limit.members().into());
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ >\"$0\" && exec chroot \"$@\""])
        .arg(members)
        .arg(root)
        .args(program)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let output = command.output()?;
    let elapsed = start.elapsed();
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {}", program[0], output.status, complaint.trim()).into());
    }
    Ok(elapsed.as_secs_f64())
}
