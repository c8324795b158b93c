//! `anteros manual`

use std::path::PathBuf;

use clap::CommandFactory;

use crate::failure::{Failure, Outcome, Verdict};

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory, made if it is missing
    directory: PathBuf,
}

impl Args {
    pub fn run(self) -> Outcome {
        let written = std::fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(crate::Cli::command(), &self.directory));
        written.map_err(|e| Failure::system(&self.directory, &e))?;
        Ok(Verdict::Good)
    }
}
