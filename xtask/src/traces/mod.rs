//! `cargo xtask trace NAME`: writes of applications, recorded once and kept in `~/.cache/anteros/traces`.
//!
//! The databases are those of SQLite itself, driven by scripts that are the same each time; what is in them is real text in
//! several languages and real pictures, of packages of the distribution. The browsers are driven by pages that lead from one to
//! the next, so each recording of one is another one.

mod browser;
mod pictures;
mod sqlite;
mod text;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::outcome::Outcome;
use crate::record::Recorder;
use browser::{CHROMIUM, FIREFOX};
use pictures::pictures;
use text::Text;

/// An application: its name, and what it does in the directory of a recorder.
type Application = (&'static str, fn(&Recorder) -> Outcome);

const APPLICATIONS: [Application; 8] = [
    ("messages-delete", |recorder| messages(recorder, "delete")),
    ("messages-persist", |recorder| messages(recorder, "persist")),
    ("messages-truncate", |recorder| {
        messages(recorder, "truncate")
    }),
    ("messages-wal", |recorder| messages(recorder, "wal")),
    ("tiles", |recorder| {
        sqlite::run(recorder, &sqlite::tiles(&pictures()?)?)
    }),
    ("mail", |recorder| {
        sqlite::run(recorder, &sqlite::mail(&Text::read()?, &pictures()?)?)
    }),
    ("chromium-news", |recorder| {
        browser::visit(recorder, &CHROMIUM)
    }),
    ("firefox-news", |recorder| {
        browser::visit(recorder, &FIREFOX)
    }),
];

/// The names of all.
pub(crate) const NAMES: [&str; APPLICATIONS.len()] = {
    let mut names = [""; APPLICATIONS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = APPLICATIONS[index].0;
        index += 1;
    }
    names
};

/// Records an application, unless that was done before, and prints where the trace is.
///
/// # Errors
/// When it is not there and cannot be recorded.
pub(crate) fn print(name: &str) -> Outcome {
    println!("{}", path(name)?.display());
    Ok(())
}

/// Returns where the trace of an application is; it is recorded if need be.
///
/// # Errors
/// When there is no such application, or what it needs is missing.
pub(crate) fn path(name: &str) -> Outcome<PathBuf> {
    let application = APPLICATIONS.iter().find(|(one, _)| *one == name);
    let Some((_, run)) = application else {
        return Err(format!("no application {name}; there are: {}", NAMES.join(", ")).into());
    };
    let path = directory()?.join(format!("{name}.trace.zst"));
    if !path.exists() {
        eprintln!("traces: recording {name}");
        let recorder = Recorder::start(&path)?;
        match run(&recorder) {
            Ok(()) => recorder.end().map(drop)?,
            Err(error) => {
                recorder.give_up();
                return Err(error);
            }
        }
    }
    Ok(path)
}

/// `$ANTEROS_TRACES`, or beside the corpora.
fn directory() -> Outcome<PathBuf> {
    let directory = match env::var_os("ANTEROS_TRACES") {
        Some(directory) => directory.into(),
        None => cache()?.join("anteros/traces"),
    };
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn cache() -> Outcome<PathBuf> {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    Ok(cache
        .or_else(home)
        .ok_or("there is no $HOME to keep traces in")?)
}

fn messages(recorder: &Recorder, journal: &str) -> Outcome {
    sqlite::run(recorder, &sqlite::messages(&Text::read()?, journal))
}
