//! Standard output, pipes and character devices as the place of an image.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anteros_build::Error;

use super::arguments::Args;
use super::failure::{Before, failure};
use crate::failure::{Failure, Kind};

/// Stands for standard output.
const STDOUT: &str = "-";

/// A place that takes the bytes of an image in order.
pub struct Stream {
    pub file: File,
    /// The path; `None` for standard output.
    path: Option<PathBuf>,
}

impl Args {
    /// Opens the place of the image, if it is one that takes bytes in order alone.
    pub fn stream(&self) -> Result<Option<Stream>, Failure> {
        let is_stdout = !self.is_peer && self.image == Path::new(STDOUT);
        let stream = match is_stdout || is_stream(&self.image) {
            false => return Ok(None),
            true => Stream::open(Some(&self.image).filter(|_| !is_stdout))?,
        };
        let refused = [
            (self.verify, "--verify reads the image back"),
            (self.vmdk_desc.is_some(), "--vmdk-desc names the image"),
            (
                self.json && stream.is_stdout(),
                "--json prints on standard output",
            ),
        ];
        match refused.iter().find(|(is_asked, _)| *is_asked) {
            None => Ok(Some(stream)),
            Some((_, what)) => {
                let message = format!("{what}, and the image goes to {}", stream.name());
                Err(Failure::new(Kind::Usage, message).hint("write the image into a file"))
            }
        }
    }
}

impl Stream {
    /// Opens a pipe or a device, or else standard output.
    fn open(path: Option<&PathBuf>) -> Result<Self, Failure> {
        let stream = match path {
            Some(path) => Self {
                file: OpenOptions::new()
                    .write(true)
                    .open(path)
                    .map_err(|e| Failure::system(path, &e))?,
                path: Some(path.clone()).filter(|path| !is_also_stdout(path)),
            },
            None => Self {
                file: rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)
                    .map_err(io::Error::from)?
                    .into(),
                path: None,
            },
        };
        match stream.file.is_terminal() {
            false => Ok(stream),
            true => {
                let message = format!(
                    "{} is a terminal, which an image would fill with what is no text",
                    stream.name()
                );
                Err(Failure::new(Kind::Usage, message).hint("name a file for the image"))
            }
        }
    }

    /// Returns whether whatever else is printed would be a part of the image.
    pub fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    fn name(&self) -> String {
        let path = self.path.as_ref();
        path.map_or("standard output".into(), |path| path.display().to_string())
    }

    /// The failure that an error of the builder is.
    pub fn failure(&self, error: Error) -> Failure {
        match (error, &self.path) {
            (Error::Image { cause, .. }, None) => cause.into(),
            (Error::Image { cause, .. }, Some(path)) => Failure::system(path, &cause),
            (error, _) => failure(Path::new(&self.name()), Before::Nothing, &error),
        }
    }
}

fn is_stream(path: &Path) -> bool {
    let kind = std::fs::metadata(path).map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device())
}

/// Returns whether a path leads to what standard output is, as `/dev/stdout` does.
fn is_also_stdout(path: &Path) -> bool {
    let found = std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let stdout = rustix::fs::fstat(rustix::stdio::stdout());
    let stdout = stdout.map(|stat| (stat.st_dev, stat.st_ino));
    found.ok().is_some_and(|found| Ok(found) == stdout)
}
