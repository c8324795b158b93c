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

/// Writes a profile, with a remark of one line, to standard output, or into a file: one that is not there yet, is empty, or holds a profile already; or into
/// a pipe or terminal. Whatever goes wrong, what was there is there.
pub fn save(profile: &Profile, remark: Option<&str>, path: Option<&Path>) -> Result<(), Failure> {
    if profile.ranges.len() > RANGES_MAX {
        let message = format!(
            "{} ranges, more than the {RANGES_MAX} that a profile may have",
            profile.ranges.len()
        );
        return Err(Failure::new(Kind::Unsupported, message));
    }
    let Some(path) = path else {
        let mut out = BufWriter::new(io::stdout().lock());
        return Ok(profile
            .write_with(remark, &mut out)
            .and_then(|()| out.flush())?);
    };
    write(path, &|mut file| {
        profile
            .write_with(remark, &mut file)
            .and_then(|()| file.flush())
    })
}

fn write(path: &Path, fill: &dyn Fn(BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
    let system = |error| Failure::system(path, &error);
    let kind = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found.map_err(system)?.file_type()),
    };
    match kind {
        Some(kind) if kind.is_fifo() || kind.is_char_device() => {
            let file = OpenOptions::new().write(true).open(path);
            return fill(BufWriter::new(file.map_err(system)?)).map_err(system);
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
    replace(path, fill).map_err(system)
}

/// Writes a file beside, which then takes the place; a symbolic link stays one.
fn replace(path: &Path, fill: &dyn Fn(BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let path = places::behind_links(path)?;
    let temporary = places::beside(&path)?;
    let file = BufWriter::new(File::create_new(&temporary)?);
    let written = fill(file).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}
