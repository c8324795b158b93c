//! Part `sqlite`: transactions of one row each, with either kind of journal, and by an SQLite that needs none where it can
//! write atomically.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::harness::Bench;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::bench::write::sqlite::{JOURNALS, seconds, text};
use crate::outcome::Outcome;
use crate::peers;
use crate::run::output;

const DEVICE_BYTES: u64 = 1 << 30;

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn sqlite(bench: &mut Bench) -> Outcome {
    if let Err(error) = output(Command::new("sqlite3").arg("-version")) {
        bench.note(format!("SQLite takes no part: {error}"));
        return Ok(());
    }
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    let sqlite3 = Path::new("sqlite3");
    for (journal, rows) in JOURNALS {
        let subject = format!("journal {journal}");
        transactions(bench, &memory, (&subject, sqlite3), (journal, rows))?;
    }
    match peers::sqlite() {
        Ok(sqlite3) => {
            let (journal, rows) = JOURNALS[0];
            let subject = format!("journal {journal}, or atomic writes");
            transactions(bench, &memory, (&subject, &sqlite3), (journal, rows))
        }
        Err(error) => {
            bench.note(format!("atomic writes take no part: {error}"));
            Ok(())
        }
    }
}

fn transactions(
    bench: &mut Bench,
    memory: &Memory,
    (subject, sqlite3): (&str, &Path),
    (journal, rows): (&str, usize),
) -> Outcome {
    let metrics = [
        ("sqlite: transactions of one row", Unit::PerSecond),
        ("sqlite: written until unmounted", Unit::Bytes),
    ];
    let metrics = metrics.map(|(what, unit)| (what.to_owned(), unit));
    let systems = bench.systems.clone();
    let script = bench.place.scratch().join("script.sql");
    fs::write(&script, text(journal, rows)?)?;
    bench.contest(subject, &metrics, &systems, |bench, system| {
        let mut turn = bench.turn(system, &memory.file)?;
        bench.count(&mut turn)?;
        let seconds = seconds(sqlite3, &script, &turn.directory()?.join("db"), rows)?;
        turn.unmount()?;
        let written = turn.written()?;
        turn.end()?;
        Ok(vec![rows as f64 / seconds, written as f64])
    });
    Ok(())
}
