//! Access profiles in files.

use std::fs::File;
use std::path::Path;

use anteros_trace::profile::{Profile, ProfileError};

use crate::failure::{Failure, Kind};

/// Reads a profile.
pub fn load(path: &Path) -> Result<Profile, Failure> {
    let system = |error| Failure::system(path, &error);
    let file = File::open(path).map_err(system)?;
    Profile::read(file).map_err(|error| match error {
        ProfileError::Io(error) => system(error),
        error => Failure::new(Kind::Usage, format_args!("{}: {error}", path.display())),
    })
}
