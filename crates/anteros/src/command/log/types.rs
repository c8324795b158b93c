//! `anteros log stat --types`: what lies in a log, by type.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_log::{ClassUse, Log, Options, Plain, Policy, system_clock};
use serde_json::{Value, json};

use super::gc::{no_log, tell, wait};
use super::open;
use crate::command::stat::attribute;
use crate::daemon::compaction::{COUNT_ALL, ESTIMATE};
use crate::daemon::tally::Tally;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output};

/// Shows what lies in a log that is mounted on a directory, or in a device.
pub fn show(log: &Path, is_json: bool) -> Outcome {
    let asked_to_stop = interrupt::flag().map_err(Failure::os)?;
    let tally = match log.is_dir() {
        true => of_mounted(log, &asked_to_stop)?,
        false => of_device(log, &asked_to_stop)?,
    };
    interrupt::check(&asked_to_stop)?;
    match is_json {
        true => output::json(&as_json(&tally))?,
        false => output::text(&table(&tally))?,
    }
    Ok(match tally.unreadable {
        0 => Verdict::Good,
        _ => Verdict::Partial,
    })
}

fn of_mounted(directory: &Path, asked_to_stop: &AtomicBool) -> Result<Tally, Failure> {
    // What is no log has no such attribute, and must not get one.
    let told = attribute(directory, ESTIMATE).map_err(|e| Failure::system(directory, &e))?;
    told.ok_or_else(|| no_log(directory))?;
    tell(directory, ESTIMATE, COUNT_ALL)?;
    let goes_on = || !asked_to_stop.load(Ordering::Relaxed);
    let counted = wait(directory, ESTIMATE, |_| goes_on())?;
    if !goes_on() {
        tell(directory, ESTIMATE, b"stop")?;
    }
    Ok(Tally::of_numbers(&counted.counts))
}

fn of_device(path: &Path, asked_to_stop: &AtomicBool) -> Result<Tally, Failure> {
    let options = Options {
        read_only: true,
        policy: Policy::Record,
        ..Options::new(system_clock)
    };
    let log = Log::open(open::to_read(path)?, options);
    let log = log.map_err(|error| open::failure(path.display(), &error))?;
    let usage = log.usage(|| !asked_to_stop.load(Ordering::Relaxed));
    let usage = usage.map_err(|error| {
        Failure::new(Kind::Corrupt, format_args!("{}: {error}", path.display()))
            .hint("`anteros log check` says what is wrong with it")
    })?;
    let warnings = usage.warnings.iter();
    warnings.for_each(|warning| output::complain("warning", warning));
    Ok(Tally::of_usage(&usage))
}

fn as_json(tally: &Tally) -> Value {
    let types = tally.classes();
    let types = types.map(|(class, of)| (class.name().to_owned(), values(&of.used)));
    json!({
        "types": types.collect::<Value>(),
        "total": values(&tally.sum().used),
        "unreadable": tally.unreadable,
    })
}

fn values(used: &ClassUse) -> Value {
    let plain = Plain::ALL.map(|why| (why.name().to_owned(), json!(used.plain(why))));
    json!({
        "files": used.files,
        "bytes": used.bytes,
        "stored_bytes": used.stored_bytes,
        "ratio": used.ratio(),
        "plain_bytes": plain.into_iter().collect::<Value>(),
    })
}

fn table(tally: &Tally) -> String {
    let [content, takes, why] = ["content", "takes", "plain:"];
    let [futile, new, left] = Plain::ALL.map(Plain::name);
    let mut text = format!(
        "{:<10} {:>9} {content:>12} {takes:>12} {:>6}  {why} {futile:>12} {new:>12} {left:>12}\n",
        "type", "files", "ratio"
    );
    for (class, of) in tally.classes() {
        text += &line(class.name(), &of.used);
    }
    text += &line("total", &tally.sum().used);
    text + "\nplain: content that lies as it is, for it was tried in the background and gains too little (futile), was\n\
            not tried since its file changed (new), or is of a type that is compressed as it is written alone (left)\n"
}

fn line(name: &str, used: &ClassUse) -> String {
    let [content, takes] = [used.bytes, used.stored_bytes].map(output::bytes);
    let [futile, new, left] = Plain::ALL.map(|why| output::bytes(used.plain(why)));
    let files = output::count(used.files);
    let ratio = used
        .ratio()
        .map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let gap = "plain:".len();
    format!(
        "{name:<10} {files:>9} {content:>12} {takes:>12} {ratio:>6}  {:gap$} {futile:>12} {new:>12} {left:>12}\n",
        ""
    )
}
