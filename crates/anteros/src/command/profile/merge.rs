//! `anteros profile merge`

use std::path::PathBuf;

use anteros_trace::profile::merge;

use super::arguments::{FilesArgs, OutputArgs};
use crate::failure::{Failure, Outcome};
use crate::profiles;

/// Merge profiles of one program or several: what all rounds read comes first, then what most did, then the rest
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The profiles
    #[arg(required = true)]
    profiles: Vec<PathBuf>,

    #[command(flatten)]
    files: FilesArgs,

    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub fn run(self) -> Outcome {
        let profiles = self.profiles.iter().map(|path| profiles::load(path));
        let profiles = profiles.collect::<Result<Vec<_>, Failure>>()?;
        let tree = self.files.open()?;
        self.output.write(merge(&profiles), tree.as_ref())
    }
}
