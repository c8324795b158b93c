//! Arguments of all daemons.

use std::path::Path;

use super::background;
use super::faults::Faults;
use crate::failure::Failure;
use crate::places;

/// Describes where a daemon may mount, and how it was started.
#[derive(Debug, clap::Args)]
pub struct DaemonArgs {
    /// Mount also where an image, a log or a mirror is mounted already, which it hides
    #[arg(long)]
    stack: bool,

    /// Report on standard output that the mount stands, then detach from the terminal
    #[arg(long, hide = true)]
    pub detach: bool,
}

impl DaemonArgs {
    /// Refuses a directory where the mount would hide another one, unless that is asked for.
    pub fn check_free(&self, directory: &Path) -> Result<(), Failure> {
        places::check_free(directory, self.stack)
    }

    /// Goes into the background, if that is asked for, now that the mount stands.
    pub fn stands(&self, faults: &Faults) -> Result<(), Failure> {
        if self.detach {
            background::detach().map_err(Failure::os)?;
            faults.go_to_background();
        }
        Ok(())
    }
}
