//! Pictures that applications keep.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::outcome::Outcome;
use crate::run::output;

/// Pictures, as files.
pub(super) fn pictures() -> Outcome<Vec<PathBuf>> {
    let tree = output(
        Command::new("scripts/corpus.sh")
            .arg("pictures")
            .stderr(Stdio::inherit()),
    )?;
    let mut pictures = Vec::new();
    for entry in fs::read_dir(tree.trim_end())? {
        pictures.push(entry?.path());
    }
    pictures.sort();
    match pictures.is_empty() {
        true => Err("the corpus pictures is empty".into()),
        false => Ok(pictures),
    }
}
