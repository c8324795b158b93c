//! `anteros manual`

use std::path::PathBuf;

use clap::CommandFactory;

use crate::failure::{Failure, Outcome, Verdict};

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory
    directory: PathBuf,
}

impl Args {
    pub fn run(self) -> Outcome {
        let written = clap_mangen::generate_to(crate::Cli::command(), &self.directory);
        written.map_err(|e| Failure::system(&self.directory, &e))?;
        Ok(Verdict::Good)
    }
}
