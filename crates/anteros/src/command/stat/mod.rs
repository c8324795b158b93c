//! `anteros stat`

mod image;
#[cfg(feature = "whole")]
pub mod log;
mod mirror;
pub mod numbers;
mod requests;

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::daemon::controls::FILE_ATTRIBUTE;
use crate::daemon::exposition::ATTRIBUTE;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;
use numbers::{LOG_INFO, Numbers};
use serde_json::Value;

/// Show what a FUSE mount has cost so far, and who moves the content of a file in a mirrored directory
///
/// Of an image: memory, reads, decoding, latencies, faults. Of a mirrored directory: who moves the content of files and
/// why, what was agreed, memory, the buffer, open files, latencies, faults. Of a log: space, segments, memory, what was
/// written and why, syncs, latencies, faults.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory on which `anteros mount --fuse`, `anteros passthru` or `anteros log mount` has mounted something, or a
    /// file that the second of these shows
    path: PathBuf,

    /// As JSON
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,

    /// As the text that Prometheus and its node exporter read
    #[arg(long)]
    prometheus: bool,
}

/// The functions that make JSON and text of numbers.
type Forms = (fn(&Numbers) -> Value, fn(&Numbers) -> String);

/// The forms of the numbers of a mirrored directory, a log, or an image.
fn forms(numbers: &Numbers) -> Result<Forms, Failure> {
    let is = |info| numbers.words(info).is_some();
    match (is(mirror::INFO), is(LOG_INFO)) {
        (true, _) => Ok((mirror::json, mirror::table)),
        #[cfg(feature = "whole")]
        (_, true) => Ok((log::json, log::table)),
        #[cfg(not(feature = "whole"))]
        (_, true) => {
            let message = "these are the numbers of a log, which this program knows nothing of";
            let failure = Failure::new(Kind::Unsupported, message);
            Err(failure.hint("--prometheus shows them as they are"))
        }
        _ => Ok((image::json, image::table)),
    }
}

impl Args {
    /// To show what is mounted on a directory.
    pub const fn of(path: PathBuf, json: bool) -> Self {
        Self {
            path,
            json,
            prometheus: false,
        }
    }

    pub fn run(self) -> Outcome {
        let metadata = std::fs::metadata(&self.path).map_err(|e| self.failure(&e))?;
        match metadata.is_dir() {
            true => self.show_mount()?,
            false => self.show_file(&metadata)?,
        }
        Ok(Verdict::Good)
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let failure = Failure::system(&self.path, error);
        match Errno::from_io_error(error) {
            Some(Errno::NOTCONN) => {
                failure.hint("its daemon is gone; `anteros umount` takes the mount away")
            }
            _ => failure,
        }
    }

    fn show_mount(&self) -> Result<(), Failure> {
        let text = attribute(&self.path, ATTRIBUTE)
            .map_err(|error| self.failure(&error))?
            .ok_or_else(|| no_mount(&self.path))?;
        if self.prometheus {
            return Ok(output::text(&text)?);
        }
        let numbers = Numbers::parse(&text);
        let (json, table) = forms(&numbers)?;
        match self.json {
            true => output::json(&json(&numbers))?,
            false => output::text(&table(&numbers))?,
        }
        Ok(())
    }

    /// Opens the file, for that is when it is decided who serves it.
    fn show_file(&self, metadata: &Metadata) -> Result<(), Failure> {
        if self.prometheus {
            let message = format!("{}: a file has no numbers of its own", self.path.display());
            let hint = "--prometheus is for the directory that was mounted on";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        if !metadata.is_file() {
            let message = format!(
                "{}: neither a directory nor a regular file",
                self.path.display()
            );
            return Err(Failure::new(Kind::System, message));
        }
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path)
            .map_err(|e| self.failure(&e))?;
        let mut value = [0; 4096];
        let told = match rustix::fs::fgetxattr(&file, FILE_ATTRIBUTE, &mut value) {
            Ok(len) => String::from_utf8_lossy(&value[..len]).into_owned(),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Err(no_mirror(&self.path)),
            Err(errno) => return Err(self.failure(&errno.into())),
        };
        let (way, why) = told.split_once('\n').ok_or_else(|| no_mirror(&self.path))?;
        match self.json {
            true => output::json(&serde_json::json!({
                "path": self.path.to_string_lossy(),
                "way": way,
                "why": why,
            }))?,
            false => {
                let path = output::name(self.path.as_os_str().as_encoded_bytes());
                output::text(&format!("{path}: {way}: {why}\n"))?;
            }
        }
        Ok(())
    }
}

/// Returns what a mount tells of itself under this name; `None` if there is no such thing.
pub fn attribute(directory: &Path, name: &str) -> io::Result<Option<String>> {
    let value = anteros_fuse::own_attribute(directory, name)?;
    Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

fn no_mount(directory: &Path) -> Failure {
    let message = format!("{}: no FUSE mount of anteros", directory.display());
    let hint = "name the directory itself that `anteros mount --fuse`, `anteros passthru` or `anteros log mount` was \
                given; what the kernel mounts has no such numbers";
    Failure::new(Kind::System, message).hint(hint)
}

fn no_mirror(file: &Path) -> Failure {
    let message = format!("{}: in no directory mirrored by anteros", file.display());
    let hint = "of an image, name the directory that `anteros mount --fuse` was given";
    Failure::new(Kind::System, message).hint(hint)
}
