//! `cargo xtask fuzz`: the targets of `fuzz/fuzz_targets`, for a bounded time, on the stable toolchain.
//!
//! The compiler's coverage instrumentation is asked for by hand, so no nightly and no further tool is needed. Debug
//! assertions and overflow checks are on: wrapping where nobody meant it is a find.
//!
//! A target starts from the committed inputs: the images of `fuzz/corpus/images`, its own in `fuzz/corpus/TARGET`, and
//! those that once made it fail, in `fuzz/regressions/TARGET`. New inputs, and those that make it fail, go to
//! `target/fuzz/TARGET`; a person decides what to commit (see `fuzz/README.md`).

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::outcome::Outcome;
use crate::run::{cargo, output, run};

/// States where the targets lie.
const TARGETS: &str = "fuzz/fuzz_targets";

/// States what makes the compiler tell libFuzzer which edges run and which values are compared.
const INSTRUMENTATION: &str = "\
    --cfg fuzzing \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Memory that one input may take, in MiB.
const MEMORY_MIB_MAX: u32 = 1024;
/// Time that one input may take, in seconds.
const INPUT_SECONDS_MAX: u32 = 20;
/// Length of an input, in bytes: any image of `fuzz/corpus` fits.
const INPUT_BYTES_MAX: u32 = 64 << 10;

/// Builds the targets and runs each for its share of the time.
///
/// # Errors
/// When a target does not compile, or finds an input that makes it fail.
pub(crate) fn fuzz(options: &[&str]) -> Outcome {
    let (seconds, wanted) = match options {
        ["--seconds", seconds, wanted @ ..] => (seconds.parse()?, wanted),
        wanted => (60, wanted),
    };
    let known = targets()?;
    if let Some(unknown) = wanted
        .iter()
        .find(|name| !known.iter().any(|target| target == *name))
    {
        return Err(format!("no fuzz target {unknown}; there are {}", known.join(", ")).into());
    }
    let chosen = if wanted.is_empty() {
        known
    } else {
        wanted.iter().map(|name| (*name).to_owned()).collect()
    };
    let share: u64 = (seconds / u64::try_from(chosen.len())?).max(1);
    let host = host()?;
    build(&host)?;
    chosen
        .iter()
        .try_for_each(|target| hunt(target, &host, share))
}

/// The names of the targets, sorted.
fn targets() -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    let directory = fs::read_dir(TARGETS).map_err(|error| format!("{TARGETS}: {error}"))?;
    for entry in directory {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}

/// The platform we run on, as the compiler calls it.
fn host() -> Outcome<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc -vV names no host")?.to_owned())
}

/// Builds all targets. Naming the platform keeps the instrumentation out of build scripts and macros.
fn build(host: &str) -> Outcome {
    let mut command = cargo();
    command.args([
        "build",
        "--release",
        "--locked",
        "--manifest-path=fuzz/Cargo.toml",
        "--target-dir=fuzz/target",
    ]);
    command.args(["--target", host]);
    command.env("RUSTFLAGS", INSTRUMENTATION);
    command.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    command.env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true");
    run(&mut command)
}

/// Runs one target, keeps what it says in a log, and tells how far it came.
fn hunt(target: &str, host: &str, seconds: u64) -> Outcome {
    let scratch = Path::new("target/fuzz").join(target);
    let finds = scratch.join("corpus");
    fs::create_dir_all(&finds)?;
    let log = scratch.join("log");
    let mut command = Command::new(
        Path::new("fuzz/target")
            .join(host)
            .join("release")
            .join(target),
    );
    command.arg(&finds);
    command.args(
        [
            "fuzz/corpus/images".to_owned(),
            format!("fuzz/corpus/{target}"),
            format!("fuzz/regressions/{target}"),
        ]
        .iter()
        .filter(|path| Path::new(path).is_dir()),
    );
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.arg(format!("-artifact_prefix={}/", scratch.display()));
    command
        .stdout(File::create(&log)?)
        .stderr(File::options().append(true).open(&log)?);
    let outcome = run(&mut command);
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if let Err(error) = outcome {
        return Err(format!(
            "{}\n{error}\nthe whole log: {}",
            tail(&said, 40),
            log.display()
        )
        .into());
    }
    println!("fuzz {target}: {}", tail(&said, 1));
    Ok(())
}

/// The last lines of a text.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
