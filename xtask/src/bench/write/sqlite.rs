//! Part `sqlite`: transactions of one row each, with either kind of journal.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::harness::{Bench, Subject};
use super::native::Native;
use crate::bench::report::Unit;
use crate::outcome::Outcome;
use crate::run::{output, run};

/// Journals, with how many transactions take long enough.
pub(in crate::bench) const JOURNALS: [(&str, usize); 2] = [("delete", 500), ("wal", 2000)];
/// The goals look for it.
pub(super) const METRIC: &str = "sqlite: transactions of one row";

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn sqlite(bench: &mut Bench) -> Outcome {
    if let Err(error) = output(Command::new("sqlite3").arg("-version")) {
        bench.note(format!("SQLite takes no part: {error}"));
        return Ok(());
    }
    let ways = bench.everybody();
    bench.on_each(Native::in_memory, |bench, native| {
        for (journal, rows) in JOURNALS {
            let subject = Subject {
                name: native.kind.name,
                at: None,
                metrics: &[(format!("{METRIC}, journal {journal}"), Unit::PerSecond)],
            };
            let script = bench.place.scratch().join("script.sql");
            fs::write(&script, text(journal, rows)?)?;
            bench.contest(&subject, &ways, |bench, way| {
                let nothing = |_: &Path| Ok(());
                bench.fresh(native, way, nothing, |served| {
                    let seconds = seconds(
                        Path::new("sqlite3"),
                        &script,
                        &served.directory.join("db"),
                        rows,
                    )?;
                    Ok(vec![rows as f64 / seconds])
                })
            });
        }
        Ok(())
    })
}

/// Returns what SQLite is told to do.
pub(in crate::bench) fn text(journal: &str, rows: usize) -> Outcome<String> {
    let mut script = format!(
        "pragma journal_mode={journal};\ncreate table t(number integer primary key, word text);\n"
    );
    for row in 0..rows {
        writeln!(
            script,
            "insert into t(word) values('a word for row {row}');"
        )?;
    }
    Ok(script)
}

/// Returns how long it takes; afterwards all rows must be there.
pub(in crate::bench) fn seconds(
    sqlite3: &Path,
    script: &Path,
    database: &Path,
    rows: usize,
) -> Outcome<f64> {
    let script = fs::File::open(script)?;
    let start = Instant::now();
    run(Command::new(sqlite3)
        .args(["-batch", "-bail"])
        .arg(database)
        .stdin(script)
        .stdout(Stdio::null()))?;
    let seconds = start.elapsed().as_secs_f64();
    let mut count = Command::new(sqlite3);
    let count = output(count.arg(database).arg("select count(*) from t"))?;
    match count.trim().parse::<usize>() {
        Ok(found) if rows == found => Ok(seconds),
        _ => Err(format!("{} rows are there, not {rows}", count.trim()).into()),
    }
}
