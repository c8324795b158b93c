//! `cargo xtask mutants`: would a judge of the log notice if a statement were missing?
//!
//! Every statement of `crates/log` that marks something as changed, flushes, wakes somebody or takes a lock for its
//! own sake can be left out: in a copy of the workspace it is put behind a question, and all of them are compiled at
//! once. Then the tests of the crate run for one after the other (`ANTEROS_MUTANT` has its number), the fast ones
//! first, until one fails or hangs. What nobody notices is told.
//!
//! Locks whose guard is what one works with cannot be left out: the compiler sees to them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::run::{cargo, output, words};

const PLACE: &str = "target/mutants";
/// The question that is put in front of each statement.
const QUESTION: &str = r#"
/// Tells whether the statement with this number is left out.
pub(crate) fn is_left_out(number: u32) -> bool {
    static LEFT_OUT: std::sync::LazyLock<Option<u32>> = std::sync::LazyLock::new(|| {
        std::env::var("ANTEROS_MUTANT").ok()?.parse().ok()
    });
    *LEFT_OUT == Some(number)
}
"#;

/// Calls that mark something as changed, or to be written, or to be looked at.
const MARKS: [&str; 27] = [
    "soil",
    "touch",
    "touch_inode",
    "touched.insert",
    "dirty.set",
    "inode_mut",
    "pointers_mut",
    "page_mut",
    "block_mut",
    "note_changed",
    "note_written",
    "invalidate",
    "mark",
    "promise",
    "occupy",
    "wanted.insert",
    "dropped.insert",
    "unrecorded.insert",
    "unrecorded.extend",
    "forget_block",
    "forget_unrecorded",
    "supersede",
    "note_emptied",
    "set_pointer",
    "set_pointers",
    "fail",
    "hand_over",
];
/// Calls that bring something to the device, or wait until it is there.
const FLUSHES: [&str; 14] = [
    "flush",
    "submit",
    "write_nodes",
    "write_content",
    "write_pack",
    "write_sit_block",
    "rewrite_summaries",
    "write_superblock",
    "discard_released",
    "seal",
    "seal_unmixed",
    "begin_writing",
    "wrote",
    "wrote_blocks",
];
/// Calls that wake somebody.
const WAKES: [&str; 3] = ["notify_all", "notify_one", "wake"];
/// Fields that mark something when they are set.
const FIELDS: [&str; 6] = [
    "content_changed",
    "xattrs_changed",
    "dirty",
    "dirty_pages",
    "durable",
    "is_due",
];

/// A judge that needs no longer than this, by itself, is asked once more before the others get their turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// A statement that can be left out.
#[derive(Debug, Clone)]
struct Statement {
    number: u32,
    file: String,
    line: usize,
    text: String,
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// A test program, and how long it takes where nothing is left out.
struct Judge {
    name: String,
    program: PathBuf,
    takes: Duration,
}

/// Runs the judges for each statement.
///
/// # Errors
/// When the copy does not compile, or its tests fail as it is.
pub(crate) fn mutants(options: &[&str]) -> Outcome {
    let (only, end) = match options {
        [] => (None, None),
        ["--only", word] => (Some(*word), None),
        ["--minutes", minutes] => (
            None,
            Some(Instant::now() + 60 * Duration::from_secs(minutes.parse()?)),
        ),
        _ => return Err(format!("{}: unknown", options.join(" ")).into()),
    };
    let tree = copy()?;
    let statements = instrument(&tree)?;
    println!("{} statements can be left out", statements.len());
    let judges = build(&tree)?;
    let mut unnoticed = Vec::new();
    let mut noticed: BTreeMap<String, u32> = BTreeMap::new();
    let mut asked = 0;
    for statement in &statements {
        if only.is_some_and(|word| !statement.to_string().contains(word)) {
            continue;
        }
        if end.is_some_and(|end| Instant::now() > end) {
            break;
        }
        asked += 1;
        match notices(&tree, &judges, statement.number)? {
            Some(judge) => {
                println!("noticed by {judge}: {statement}");
                *noticed.entry(judge).or_default() += 1;
            }
            None => {
                println!("NOT NOTICED: {statement}");
                unnoticed.push(statement);
            }
        }
    }
    println!(
        "\n{asked} left out, one at a time: {} noticed",
        asked - unnoticed.len()
    );
    for (judge, count) in noticed {
        println!("  by {judge}: {count}");
    }
    for statement in unnoticed {
        println!("NOT NOTICED: {statement}");
    }
    Ok(())
}

/// Copies what is under version control, and what is changed of it.
fn copy() -> Outcome<PathBuf> {
    let tree = Path::new(PLACE).join("tree");
    let files = output(Command::new("git").args(["ls-files", "-z"]))?;
    for name in files
        .split('\0')
        .filter(|name| !name.is_empty() && Path::new(name).is_file())
    {
        let to = tree.join(name);
        fs::create_dir_all(to.parent().unwrap_or(&tree))?;
        let is_same = fs::read(&to).is_ok_and(|old| fs::read(name).is_ok_and(|new| old == new));
        if !is_same {
            fs::copy(name, &to)?;
        }
    }
    Ok(tree)
}

/// Puts each statement of the crate behind a question.
fn instrument(tree: &Path) -> Outcome<Vec<Statement>> {
    let source = tree.join("crates/log/src");
    let mut statements = Vec::new();
    let mut pending = vec![source.clone()];
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            match path.is_dir() {
                true => pending.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    for path in files {
        let text = fs::read_to_string(&path)?;
        let name = path.strip_prefix(&source)?.display().to_string();
        let changed = instrument_text(&name, &text, &mut statements);
        if changed != text {
            fs::write(&path, changed)?;
        }
    }
    let root = source.join("lib.rs");
    fs::write(&root, fs::read_to_string(&root)? + QUESTION)?;
    Ok(statements)
}

/// The same for one file; tests stay as they are.
fn instrument_text(file: &str, text: &str, statements: &mut Vec<Statement>) -> String {
    let mut changed = String::new();
    let mut is_test = false;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        is_test |= line.trim() == "#[cfg(test)]";
        let statement = line.trim();
        if is_test || !can_be_left_out(statement) {
            changed.push_str(line);
            continue;
        }
        let number = statements.len() as u32;
        statements.push(Statement {
            number,
            file: file.to_owned(),
            line: index + 1,
            text: statement.to_owned(),
        });
        changed.push_str(&behind_question(statement, number));
    }
    changed
}

/// Tells whether a line is a statement of those that are looked for, and nothing else.
fn can_be_left_out(line: &str) -> bool {
    if is_bare_lock(line) {
        return true;
    }
    let Some(statement) = line.strip_suffix(';') else {
        return false;
    };
    if [
        "let ", "return", "use ", "pub ", "//", "}", ")", ".", "*", "fn ",
    ]
    .iter()
    .any(|begin| statement.starts_with(begin))
    {
        return false;
    }
    if let Some((field, _)) = statement
        .split_once(" = ")
        .or_else(|| statement.split_once(" += "))
    {
        return FIELDS.iter().any(|name| ends_in(field, name));
    }
    let balance = |open, close| statement.matches(open).count() == statement.matches(close).count();
    let is_call =
        statement.trim_end_matches('?').ends_with(')') && balance('(', ')') && balance('{', '}');
    let names = || [&MARKS[..], &FLUSHES, &WAKES].concat();
    is_call
        && names().iter().any(|name| {
            let call = format!("{name}(");
            statement
                .find(&call)
                .is_some_and(|at| ends_in(&statement[..at + name.len()], name))
        })
}

/// Tells whether a path of fields and methods ends in a name, and not in a longer one.
fn ends_in(path: &str, name: &str) -> bool {
    path.strip_suffix(name)
        .is_some_and(|before| before.is_empty() || before.ends_with(['.', ':']))
}

/// A lock whose guard nobody uses: `let _alone = self.lock();`.
fn is_bare_lock(line: &str) -> bool {
    line.starts_with("let _")
        && line.ends_with(';')
        && ["lock(", "read()", "write()"]
            .iter()
            .any(|call| line.contains(call))
        && !line.contains("else {")
}

fn behind_question(statement: &str, number: u32) -> String {
    let question = format!("crate::is_left_out({number})");
    match statement.split_once(" = ") {
        Some((guard, lock)) if is_bare_lock(statement) => {
            let lock = lock.trim_end_matches(';');
            format!("{guard} = (!{question}).then(|| {lock});\n")
        }
        _ => format!("if !{question} {{ {statement} }}\n"),
    }
}

/// Compiles all tests of the crate, and has each run once.
fn build(tree: &Path) -> Outcome<Vec<Judge>> {
    let mut command = cargo();
    command.current_dir(tree).args([
        "test",
        "--locked",
        "-p",
        "anteros-log",
        "--lib",
        "--tests",
        "--no-run",
    ]);
    command
        .args(["--message-format", "json"])
        .env("CARGO_TARGET_DIR", target()?);
    command
        .env("RUSTFLAGS", "--cap-lints allow")
        .stderr(Stdio::inherit());
    let said = output(&mut command)?;
    let mut judges = Vec::new();
    for line in said.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let (Some(program), Some(name)) = (
            message["executable"].as_str(),
            message["target"]["name"].as_str(),
        ) else {
            continue;
        };
        let mut judge = Judge {
            name: name.to_owned(),
            program: program.into(),
            takes: Duration::from_secs(600),
        };
        let start = Instant::now();
        if !judge.passes(tree, None)? {
            return Err(format!("{name} fails where nothing is left out").into());
        }
        judge.takes = start.elapsed();
        judges.push(judge);
    }
    judges.sort_by_key(|judge| judge.takes);
    Ok(judges)
}

fn target() -> Outcome<PathBuf> {
    Ok(std::env::current_dir()?.join(PLACE).join("target"))
}

/// The first judge that fails, or hangs, where a statement is left out.
fn notices(tree: &Path, judges: &[Judge], number: u32) -> Outcome<Option<String>> {
    for judge in judges {
        if !judge.passes(tree, Some(number))? {
            return Ok(Some(judge.name.clone()));
        }
    }
    Ok(None)
}

impl Judge {
    /// Runs it; one that takes many times as long as usual fails.
    fn passes(&self, tree: &Path, left_out: Option<u32>) -> Outcome<bool> {
        let log = File::create(Path::new(PLACE).join("log"))?;
        let mut command = Command::new(&self.program);
        command
            .current_dir(tree.join("crates/log"))
            .stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        if let Some(number) = left_out {
            command.env("ANTEROS_MUTANT", number.to_string());
        }
        let end = Instant::now() + self.takes * 5 + PATIENCE;
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", words(&command)))?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status.success());
            }
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_and_put_behind_a_question() {
        let text = "\
fn change(&mut self) {
    self.touch(parent)?;
    self.retouch(parent)?;
    let flushed = self.flush();
    live.content_changed = true;
    live.content_changed_at = 1;
    let _alone = self.reclaiming.lock();
    self.dirty_pages += 1;
    self.flush()?;
}
#[cfg(test)]
    self.flush()?;
";
        let mut statements = Vec::new();
        let changed = instrument_text("a.rs", text, &mut statements);
        let lines: Vec<usize> = statements.iter().map(|statement| statement.line).collect();
        assert_eq!(lines, [2, 5, 7, 8, 9]);
        assert!(changed.contains("if !crate::is_left_out(0) { self.touch(parent)?; }\n"));
        assert!(
            changed
                .contains("let _alone = (!crate::is_left_out(2)).then(|| self.reclaiming.lock());")
        );
        assert!(changed.ends_with("#[cfg(test)]\n    self.flush()?;\n"));
    }
}
