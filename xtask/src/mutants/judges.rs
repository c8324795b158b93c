//! The tests of the log, each of them by itself.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::run::{cargo, output, words};

pub(super) const PLACE: &str = "target/mutants";

/// Time that a judge may take beside a multiple of its own: others may be at work on the machine.
const PATIENCE: Duration = Duration::from_secs(15);

/// KiB of addresses that a judge may have: what is left out may have it grow without end.
const ADDRESSES_MAX: &str = "8000000";

/// A test, how long it takes where nothing is left out, and which statements it reaches then.
pub(super) struct Judge {
    program: PathBuf,
    program_name: String,
    name: String,
    pub(super) takes: Duration,
    reached: BTreeSet<u32>,
}

/// The verdict of a judge on a log from which a statement is missing.
pub(super) enum Verdict {
    Passes,
    Fails,
    Hangs,
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.program_name, self.name)
    }
}

/// Compiles all tests of the crate, and has each of them run once. The fast ones come first. One that fails is told
/// and left out.
pub(super) fn build(tree: &Path, words: &[String]) -> Outcome<Vec<Judge>> {
    let (mut judges, mut failed) = (Vec::new(), Vec::new());
    for (program_name, program) in compile(tree)? {
        let said = output(
            Command::new(&program)
                .args(["--list", "--format", "terse"])
                .current_dir(tree.join("crates/log")),
        )?;
        let ignored = output(
            Command::new(&program)
                .args(["--list", "--format", "terse", "--ignored"])
                .current_dir(tree.join("crates/log")),
        )?;
        let ignored: BTreeSet<&str> = ignored.lines().collect();
        let names = said.lines().filter(|line| !ignored.contains(line));
        for name in names.filter_map(|line| line.strip_suffix(": test")) {
            let mut judge = Judge {
                program: program.clone(),
                program_name: program_name.clone(),
                name: name.to_owned(),
                takes: Duration::from_secs(60),
                reached: BTreeSet::new(),
            };
            let called = judge.to_string();
            if !words.is_empty() && !words.iter().any(|word| called.contains(word)) {
                continue;
            }
            match judge.record(tree)? {
                Some(said) => failed.push((judge.to_string(), said)),
                None if judge.reached.is_empty() => {}
                None => judges.push(judge),
            }
        }
    }
    for (name, said) in failed {
        println!("NO JUDGE, as it fails where nothing is left out: {name}\n{said}");
    }
    if judges.is_empty() {
        return Err("no test passes that reaches one of them".into());
    }
    judges.sort_by_key(|judge| judge.takes);
    let all: Duration = judges.iter().map(|judge| judge.takes).sum();
    println!("{} tests reach some of them, in {all:.1?}", judges.len());
    for judge in judges.iter().rev().take(12) {
        println!("  {judge}: {:.1?}", judge.takes);
    }
    Ok(judges)
}

fn compile(tree: &Path) -> Outcome<Vec<(String, PathBuf)>> {
    let target = std::env::current_dir()?.join(PLACE).join("target");
    let mut command = cargo();
    command
        .current_dir(tree)
        .args(["test", "--locked", "-p", "anteros-log", "--lib", "--tests"])
        .args(["--no-run", "--message-format", "json"])
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit());
    let said = command.output()?;
    let mut programs = Vec::new();
    for line in String::from_utf8(said.stdout)?.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if message["message"]["level"] == "error" {
            println!("{}", message["message"]["rendered"].as_str().unwrap_or(""));
        }
        if let (Some(program), Some(name)) = (
            message["executable"].as_str(),
            message["target"]["name"].as_str(),
        ) {
            programs.push((name.to_owned(), program.into()));
        }
    }
    match said.status.success() {
        true => Ok(programs),
        false => Err("the copy does not compile".into()),
    }
}

impl Judge {
    pub(super) fn reaches(&self, number: u32) -> bool {
        self.reached.contains(&number)
    }

    /// Runs it where nothing is left out, twice if it fails; says what it said if it does so again.
    fn record(&mut self, tree: &Path) -> Outcome<Option<String>> {
        let first = self.record_once(tree)?;
        match first {
            None => Ok(None),
            Some(_) => self.record_once(tree),
        }
    }

    fn record_once(&mut self, tree: &Path) -> Outcome<Option<String>> {
        let reached = std::env::current_dir()?.join(PLACE).join("reached");
        fs::write(&reached, "")?;
        let variable = ("ANTEROS_MUTANTS_REACHED", reached.display().to_string());
        let start = Instant::now();
        let verdict = self.run(tree, variable, 0, 60 * PATIENCE)?;
        self.takes = start.elapsed();
        if !matches!(verdict, Verdict::Passes) {
            let said = fs::read_to_string(Path::new(PLACE).join("log.0"))?;
            return Ok(Some(said));
        }
        let numbers = fs::read_to_string(&reached)?;
        self.reached = numbers.lines().flat_map(str::parse).collect();
        Ok(None)
    }

    /// Runs it where a statement is left out. One that takes many times as long as usual is asked once more.
    pub(super) fn ask(&self, tree: &Path, number: u32, worker: usize) -> Outcome<Verdict> {
        let limit = self.takes * 8 + PATIENCE;
        for limit in [limit, 2 * limit] {
            let variable = ("ANTEROS_MUTANT", number.to_string());
            match self.run(tree, variable, worker, limit)? {
                Verdict::Hangs => {}
                verdict => return Ok(verdict),
            }
        }
        Ok(Verdict::Hangs)
    }

    fn run(
        &self,
        tree: &Path,
        (variable, value): (&str, String),
        worker: usize,
        limit: Duration,
    ) -> Outcome<Verdict> {
        let log = File::create(Path::new(PLACE).join(format!("log.{worker}")))?;
        let temporary = std::env::current_dir()?
            .join(PLACE)
            .join(format!("tmp.{worker}"));
        if temporary.exists() {
            fs::remove_dir_all(&temporary)?;
        }
        fs::create_dir_all(&temporary)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -v $0; exec \"$@\"", ADDRESSES_MAX])
            .arg(&self.program)
            .args(["--exact", &self.name])
            .current_dir(tree.join("crates/log"))
            .env("TMPDIR", &temporary)
            .env(variable, value)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let end = Instant::now() + limit;
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", words(&command)))?;
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(match status.success() {
                    true => Verdict::Passes,
                    false => Verdict::Fails,
                });
            }
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                return Ok(Verdict::Hangs);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}
