//! Access profiles in files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anteros_trace::profile::{Profile, ProfileError, RANGES_MAX};

use crate::failure::{Failure, Kind};
use crate::places;

/// Reads a profile.
pub fn load(path: &Path) -> Result<Profile, Failure> {
    let system = |error| Failure::system(path, &error);
    let file = File::open(path).map_err(system)?;
    Profile::read(file).map_err(|error| match error {
        ProfileError::Io(error) => system(error),
        error => Failure::new(Kind::Usage, format_args!("{}: {error}", path.display())),
    })
}

/// Writes a profile to standard output, or into a file: one that is not there yet, is empty, or holds a profile already; or into
/// a pipe or terminal. Whatever goes wrong, what was there is there.
pub fn save(profile: &Profile, path: Option<&Path>) -> Result<(), Failure> {
    if profile.ranges.len() > RANGES_MAX {
        let message = format!(
            "{} ranges, more than the {RANGES_MAX} that a profile may have",
            profile.ranges.len()
        );
        return Err(Failure::new(Kind::Unsupported, message));
    }
    let Some(path) = path else {
        let mut out = BufWriter::new(io::stdout().lock());
        return Ok(profile.write(&mut out).and_then(|()| out.flush())?);
    };
    write(profile, path)
}

fn write(profile: &Profile, path: &Path) -> Result<(), Failure> {
    let system = |error| Failure::system(path, &error);
    let kind = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found.map_err(system)?.file_type()),
    };
    match kind {
        Some(kind) if kind.is_fifo() || kind.is_char_device() => {
            let file = OpenOptions::new().write(true).open(path);
            let mut file = BufWriter::new(file.map_err(system)?);
            let written = profile.write(&mut file).and_then(|()| file.flush());
            return written.map_err(system);
        }
        Some(_) if load(path).is_err() => {
            let message = format!(
                "{}: exists and is no profile; it is not overwritten",
                path.display()
            );
            let hint = "name a file that does not exist, or a profile";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        _ => {}
    }
    replace(profile, path).map_err(system)
}

/// Writes a file beside, which then takes the place; a symbolic link stays one.
fn replace(profile: &Profile, path: &Path) -> io::Result<()> {
    let path = places::behind_links(path)?;
    let temporary = places::beside(&path)?;
    let mut file = BufWriter::new(File::create_new(&temporary)?);
    let written = profile
        .write(&mut file)
        .and_then(|()| file.flush())
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}
