//! The command line of a benchmark.

use std::env;
use std::path::{self, Path, PathBuf};

use crate::outcome::Outcome;
use crate::run::{cargo, run};

/// Holds what the command line asks for; where it asks for nothing, the lists are empty.
pub(super) struct Options {
    pub(super) corpora: Vec<String>,
    /// Native file systems.
    pub(super) filesystems: Vec<String>,
    pub(super) runs: usize,
    /// Parts of the benchmark.
    pub(super) only: Vec<String>,
    /// Words of which a contender's name must contain one.
    pub(super) contenders: Vec<String>,
    /// Arguments of our daemon; for each, it takes part once more.
    pub(super) with: Vec<String>,
    /// Tells whether the kernel is to offer FUSE over io_uring, `on` or `off`; else it is left as it is.
    pub(super) io_uring: Option<String>,
    /// The tool that is measured; else it is built.
    pub(super) anteros: Option<PathBuf>,
}

impl Options {
    pub(super) fn of(words: &[&str]) -> Outcome<Self> {
        let mut options = Self {
            corpora: Vec::new(),
            filesystems: Vec::new(),
            runs: 3,
            only: Vec::new(),
            contenders: Vec::new(),
            with: Vec::new(),
            io_uring: None,
            anteros: None,
        };
        for pair in words.chunks(2) {
            let [option, value] = *pair else {
                return Err(format!("bench: {} needs a value", pair[0]).into());
            };
            let value = value.to_owned();
            match option {
                "--corpus" => options.corpora.push(value),
                "--filesystem" => options.filesystems.push(value),
                "--runs" => options.runs = value.parse::<usize>()?.max(1),
                "--only" => options.only.push(value),
                "--contender" => options.contenders.push(value),
                "--anteros" => options.anteros = Some(path::absolute(&value)?),
                "--io-uring" => options.io_uring = Some(value),
                "--with" => options.with.push(value),
                _ => return Err(format!("bench: unknown option {option}").into()),
            }
        }
        Ok(options)
    }

    /// Returns where the tool is; unless it was named, it is built as it is shipped.
    pub(super) fn anteros(&self) -> Outcome<PathBuf> {
        if let Some(anteros) = &self.anteros {
            return Ok(anteros.clone());
        }
        run(cargo().args(["build", "--release", "--locked", "--package", "anteros"]))?;
        let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        Ok(path::absolute(Path::new(&target).join("release/anteros"))?)
    }

    /// The corpora asked for, or those that the benchmark takes otherwise.
    pub(super) fn corpora_or(&self, otherwise: &[&str]) -> Vec<String> {
        match self.corpora.is_empty() {
            true => otherwise.iter().map(|name| (*name).to_owned()).collect(),
            false => self.corpora.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_pairs() {
        let options = Options::of(&["--corpus", "a", "--runs", "0", "--corpus", "b"]).unwrap();
        assert_eq!(options.corpora, ["a", "b"]);
        assert_eq!(options.runs, 1);
        assert_eq!(options.corpora_or(&["c"]), ["a", "b"]);
        assert!(Options::of(&["--corpus"]).is_err());
        assert!(Options::of(&["--speed", "2"]).is_err());
    }
}
