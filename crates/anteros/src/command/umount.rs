//! `anteros umount`

use std::path::PathBuf;

use crate::failure::{Failure, Kind, Outcome, Verdict};

/// Unmount what `anteros mount` has mounted
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where it is mounted
    directory: PathBuf,
}

impl Args {
    pub fn run(self) -> Outcome {
        anteros_fuse::unmount(&self.directory)
            .map_err(|error| Failure::new(Kind::System, &error).hint_if(error.hint()))?;
        Ok(Verdict::Good)
    }
}
