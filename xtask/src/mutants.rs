//! `cargo xtask mutants`: would a judge of the log notice if a statement were missing?
//!
//! Every statement of `crates/log` that marks something as changed (or as changed no more), writes, flushes, wakes
//! somebody or takes a lock for its own sake can be left out: in a copy of the workspace it is put behind a question,
//! and all of them are compiled at once. Then each test of the crate runs once by itself and writes down which of the
//! statements it reaches; those tests, and no others, run for a statement (`ANTEROS_MUTANT` has its number), the fast
//! ones first, until one fails or hangs. What nobody notices is told.
//!
//! Locks whose guard is what one works with cannot be left out: the compiler sees to them.

mod judges;
mod statements;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use self::judges::{Judge, PLACE, Verdict};
use self::statements::Statement;
use crate::outcome::Outcome;
use crate::run::output;

/// Has what was noticed last, and by whom.
const NOTICED: &str = "noticed";

/// Statements that are left out at the same time, each in processes of its own.
const WORKERS: usize = 2;

/// The judges that take longer than one of these run when all statements have been before those that do not.
const FAST: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];

/// The verdict on a statement.
#[derive(Debug, Clone)]
enum Fate {
    Noticed(String),
    Unnoticed,
    NotReached,
    NotAsked,
}

/// The options of the command line.
#[derive(Debug, Default)]
struct Wanted {
    only: Vec<String>,
    end: Option<Instant>,
    /// Words of which one is in the name of each test that judges; none is in all.
    judges: Vec<String>,
    lists: bool,
    /// Only what nobody noticed when this ran last.
    again: bool,
}

/// Runs the judges for each statement.
///
/// # Errors
/// When the copy does not compile, or its tests fail as it is.
pub(crate) fn mutants(options: &[&str]) -> Outcome {
    let wanted = Wanted::from(options)?;
    let tree = copy()?;
    let mut statements = statements::instrument(&tree)?;
    println!("{} statements can be left out", statements.len());
    let known = Known::read(&statements, wanted.judges.is_empty())?;
    statements.retain(|statement| wanted.has(statement));
    if wanted.lists {
        statements
            .iter()
            .for_each(|statement| println!("{statement}"));
        return Ok(());
    }
    let judges = judges::build(&tree, &wanted.judges)?;
    let fates = Mutex::new(wanted.fates(&statements, &known));
    let turn = |judge: &Judge| FAST.iter().filter(|&&fast| judge.takes > fast).count();
    for number in 0..=FAST.len() {
        let some: Vec<&Judge> = judges
            .iter()
            .filter(|judge| turn(judge) == number)
            .collect();
        println!("{} judges have their turn", some.len());
        ask_all(&tree, &some, &statements, &fates, &known, wanted.end)?;
    }
    let mut fates = fates.into_inner()?;
    for (statement, fate) in statements.iter().zip(&mut fates) {
        let is_noticed = matches!(fate, Fate::Noticed(_));
        let asked_all = wanted.judges.is_empty();
        if asked_all && !is_noticed && !judges.iter().any(|judge| judge.reaches(statement.number)) {
            *fate = Fate::NotReached;
        }
    }
    tell(&statements, &fates);
    Ok(())
}

impl Wanted {
    fn from(mut options: &[&str]) -> Outcome<Self> {
        let mut wanted = Self::default();
        loop {
            options = match options {
                [] => return Ok(wanted),
                ["--again", rest @ ..] => {
                    wanted.again = true;
                    rest
                }
                ["--list", rest @ ..] => {
                    wanted.lists = true;
                    rest
                }
                ["--only", word, rest @ ..] => {
                    wanted.only.push((*word).to_owned());
                    rest
                }
                ["--judge", word, rest @ ..] => {
                    wanted.judges.push((*word).to_owned());
                    rest
                }
                ["--minutes", minutes, rest @ ..] => {
                    wanted.end = Some(Instant::now() + 60 * Duration::from_secs(minutes.parse()?));
                    rest
                }
                _ => return Err(format!("{}: unknown", options.join(" ")).into()),
            };
        }
    }

    /// The verdicts that are known before a judge is asked.
    fn fates(&self, statements: &[Statement], known: &Known) -> Vec<Fate> {
        let known = |statement: &Statement| known.noticed.get(&statement.to_string()).cloned();
        let fate = |statement: &Statement| match known(statement).filter(|_| self.again) {
            Some(judge) => Fate::Noticed(judge),
            None => Fate::NotAsked,
        };
        statements.iter().map(fate).collect()
    }

    fn has(&self, statement: &Statement) -> bool {
        let name = statement.to_string();
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word))
    }
}

/// Tests that noticed each statement in the last run, for the next one.
struct Known {
    noticed: BTreeMap<String, String>,
    /// Tells whether all are asked, so that what none of them notices is not known any more.
    asks_all: bool,
}

impl Known {
    /// Entries that are kept of these statements; others are not there any more.
    fn read(statements: &[Statement], asks_all: bool) -> Outcome<Self> {
        let text = match fs::read_to_string(Path::new(PLACE).join(NOTICED)) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let names: Vec<String> = statements.iter().map(ToString::to_string).collect();
        let noticed = Self::parse(&text, &names);
        Ok(Self { noticed, asks_all })
    }

    fn parse(text: &str, names: &[String]) -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let known = lines.filter(|(name, _)| names.iter().any(|known| known == name));
        known
            .map(|(name, judge)| (name.to_owned(), judge.to_owned()))
            .collect()
    }

    /// Entries that are to be kept now: of statements that nobody was asked about, those of before.
    fn and<'a>(&self, asked: impl Iterator<Item = (String, &'a Fate)>) -> String {
        let mut known = self.noticed.clone();
        for (name, fate) in asked {
            match fate {
                Fate::Noticed(judge) => drop(known.insert(name, judge.clone())),
                Fate::Unnoticed if self.asks_all => drop(known.remove(&name)),
                Fate::Unnoticed | Fate::NotReached | Fate::NotAsked => {}
            }
        }
        let lines = known
            .iter()
            .map(|(name, judge)| format!("{name}\t{judge}\n"));
        lines.collect()
    }

    fn write(&self, statements: &[Statement], fates: &[Fate]) -> Outcome {
        let names = statements.iter().map(ToString::to_string);
        let text = self.and(names.zip(fates));
        Ok(fs::write(Path::new(PLACE).join(NOTICED), text)?)
    }
}

/// Copies what is under version control or could be, as it is now; but the source that is instrumented.
fn copy() -> Outcome<PathBuf> {
    let tree = Path::new(PLACE).join("tree");
    let files = output(Command::new("git").args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    for name in files
        .split('\0')
        .filter(|name| !name.is_empty() && Path::new(name).is_file())
        .filter(|name| !name.starts_with(statements::SOURCE))
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

/// Asks some judges about each statement that nobody has noticed.
fn ask_all(
    tree: &Path,
    judges: &[&Judge],
    statements: &[Statement],
    fates: &Mutex<Vec<Fate>>,
    known: &Known,
    end: Option<Instant>,
) -> Outcome {
    let next = AtomicUsize::new(0);
    let work = |worker: usize| -> Result<(), String> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(statement) = statements.get(at) else {
                break;
            };
            if end.is_some_and(|end| Instant::now() > end) {
                break;
            }
            let is_noticed = |fates: &Vec<Fate>| matches!(fates[at], Fate::Noticed(_));
            if fates.lock().is_ok_and(|fates| is_noticed(&fates)) {
                continue;
            }
            let noticed =
                notices(tree, judges, statement, worker).map_err(|error| error.to_string())?;
            let fate = noticed.map_or(Fate::Unnoticed, Fate::Noticed);
            println!("{statement}: {fate:?}");
            if let Ok(mut fates) = fates.lock() {
                fates[at] = fate;
                let written = known.write(statements, &fates);
                written.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
    })?;
    Ok(())
}

/// The first judge that fails, or hangs, where a statement is left out.
fn notices(
    tree: &Path,
    judges: &[&Judge],
    statement: &Statement,
    worker: usize,
) -> Outcome<Option<String>> {
    let number = statement.number;
    for judge in judges.iter().filter(|judge| judge.reaches(number)) {
        match judge.ask(tree, number, worker)? {
            Verdict::Passes => {}
            Verdict::Fails => return Ok(Some(judge.to_string())),
            Verdict::Hangs => return Ok(Some(format!("{judge}, which hangs"))),
        }
    }
    Ok(None)
}

fn tell(statements: &[Statement], fates: &[Fate]) {
    let mut by: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut noticed, mut asked) = (0, 0);
    for fate in fates {
        asked += u32::from(!matches!(fate, Fate::NotAsked));
        if let Fate::Noticed(judge) = fate {
            noticed += 1;
            let program = judge.split_once("::").map_or(&judge[..], |(name, _)| name);
            *by.entry(program).or_default() += 1;
        }
    }
    println!("\n{asked} left out, one at a time: {noticed} noticed");
    for (program, count) in by {
        println!("  by {program}: {count}");
    }
    for (statement, fate) in statements.iter().zip(fates) {
        match fate {
            Fate::Unnoticed => println!("NOT NOTICED: {statement}"),
            Fate::NotReached => println!("NOT REACHED: {statement}"),
            Fate::Noticed(_) | Fate::NotAsked => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_others_is_kept() {
        let names = ["a", "b", "c", "d"].map(String::from);
        let text = "a\tfirst\nb\tsecond\ngone\tthird\nc\tfourth\n";
        // `--only` asks about some alone.
        let asked = [
            ("b", Fate::Unnoticed),
            ("c", Fate::NotAsked),
            ("d", Fate::Noticed("fifth".into())),
        ];
        let after = |asks_all| {
            let noticed = Known::parse(text, &names);
            let asked = asked.iter().map(|(name, fate)| (String::from(*name), fate));
            Known { noticed, asks_all }.and(asked)
        };
        assert_eq!(after(true), "a\tfirst\nc\tfourth\nd\tfifth\n");
        let kept = "a\tfirst\nb\tsecond\nc\tfourth\nd\tfifth\n";
        assert_eq!(after(false), kept, "other tests may notice");
    }
}
