//! Arguments that several commands take.

use std::path::PathBuf;

use anteros_trace::profile::Profile;

use super::fit::Fit;
use super::tree::Tree;
use crate::failure::{Failure, Outcome, Verdict};
use crate::profiles;

/// Places of a profile that a command makes.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Write the profile into this file, not to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Files that a profile is of.
#[derive(Debug, clap::Args)]
pub struct FilesArgs {
    /// The files that the profile is of: an image, a log, or a directory. Each range gets a digest of its content, and what
    /// is not there is left out
    #[arg(long, value_name = "IMAGE|DIR")]
    files: Option<PathBuf>,
}

impl FilesArgs {
    /// Opens the files, if any were told.
    pub fn open(&self) -> Result<Option<Tree>, Failure> {
        self.files.as_deref().map(Tree::open).transpose()
    }
}

impl OutputArgs {
    /// Returns whether the profile goes into a file.
    pub fn has_file(&self) -> bool {
        self.output.is_some()
    }

    /// Writes a profile. If there are files, it has digests of them, and only what they have.
    pub fn write(&self, profile: Profile, tree: Option<&Tree>) -> Outcome {
        self.write_with(None, profile, tree)
    }

    /// Writes a profile likewise, with a remark of one line.
    pub fn write_with(
        &self,
        remark: Option<&str>,
        mut profile: Profile,
        tree: Option<&Tree>,
    ) -> Outcome {
        let mut verdict = Verdict::Good;
        if let Some(tree) = tree {
            let mut fit = Fit::new(tree);
            profile
                .ranges
                .iter_mut()
                .for_each(|range| range.digest = None);
            profile.ranges = fit.with_digests(profile.ranges);
            verdict = fit.tell();
        }
        profiles::save(&profile, remark, self.output.as_deref())?;
        Ok(verdict)
    }
}
