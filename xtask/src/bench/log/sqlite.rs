//! Part `sqlite`: transactions of one row each, with either kind of journal.

use std::fs;
use std::process::Command;

use super::Bench;
use crate::Outcome;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::bench::write::sqlite::{JOURNALS, seconds, text};
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
    let systems = bench.systems.clone();
    let metrics = [(
        "sqlite: transactions of one row".to_owned(),
        Unit::PerSecond,
    )];
    for (journal, rows) in JOURNALS {
        let script = bench.place.scratch().join("script.sql");
        fs::write(&script, text(journal, rows)?)?;
        let subject = format!("journal {journal}");
        bench.contest(&subject, &metrics, &systems, |bench, system| {
            let turn = bench.turn(system, &memory.file)?;
            let seconds = seconds(&script, &turn.directory()?.join("db"), rows)?;
            turn.end()?;
            Ok(vec![rows as f64 / seconds])
        });
    }
    Ok(())
}
