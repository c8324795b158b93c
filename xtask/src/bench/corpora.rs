//! Trees of files that are measured.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::outcome::Outcome;
use crate::run::output;

/// Makes a corpus, unless it is there, and prints where it is.
///
/// # Errors
/// When it is not there and cannot be made.
pub(crate) fn print_corpus(name: &str) -> Outcome {
    println!("{}", corpus(name)?.display());
    Ok(())
}

/// Makes a corpus, unless it is there, and tells where it is.
pub(crate) fn corpus(name: &str) -> Outcome<PathBuf> {
    let path = output(
        Command::new("scripts/corpus.sh")
            .arg(name)
            .stderr(Stdio::inherit()),
    )?;
    Ok(PathBuf::from(path.trim_end()))
}
