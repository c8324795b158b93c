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
        anteros_fuse::unmount(&self.directory).map_err(|error| {
            let failure = Failure::new(Kind::System, &error);
            match error.hint() {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
        Ok(Verdict::Good)
    }
}
