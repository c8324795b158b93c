//! The source of an image: a directory, or a tar archive in a file or on standard input.

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::Path;
use std::str::FromStr;

use anteros_build::{Archive, Input};

use super::Args;
use crate::args::swapped;
use crate::failure::{Failure, Kind};

/// Bytes that a pipe may hold: as many as any user may ask for.
const PIPE_BYTES: usize = 1 << 20;

/// Stands for standard input.
const STDIN: &str = "-";

/// `--tar`: the source is an archive, of which a full image is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tar;

impl FromStr for Tar {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f" => Ok(Self),
            "i" | "headerball" => Err("not supported yet; `--tar=f` makes a full image".into()),
            _ if text.contains(',') => Err("maps of the source are not supported yet".into()),
            _ => Err("`f` is the only value".into()),
        }
    }
}

impl Args {
    /// Opens the source, as far as it is an archive.
    pub fn input(&self) -> Result<Input<'_>, Failure> {
        let path = match &self.source {
            Some(path) if path != Path::new(STDIN) => path,
            _ => return self.archive(stdin()?),
        };
        if self.image.is_dir() && !path.is_dir() {
            return Err(swapped(&self.image, "mkfs IMAGE SOURCE"));
        }
        let metadata = std::fs::metadata(path).map_err(|e| Failure::system(path, &e))?;
        match (metadata.is_dir(), self.tar) {
            (true, None) if self.aufs || self.strips_overlay() => {
                let message = "--aufs and --ovlfs-strip have a meaning for archives alone";
                Err(Failure::new(Kind::Usage, message))
            }
            (true, None) => Ok(Input::Directory(path)),
            (true, Some(Tar)) => {
                let message = format!("{}: is a directory, not an archive", path.display());
                Err(Failure::new(Kind::Usage, message).hint("leave --tar away to pack it"))
            }
            (false, None) if self.is_peer => {
                let message = format!("{}: the source is not a directory", path.display());
                Err(Failure::new(Kind::Usage, message).hint("--tar=f packs an archive"))
            }
            (false, _) => {
                self.archive(Archive::open(path).map_err(|e| Failure::new(Kind::System, e))?)
            }
        }
    }

    pub fn strips_overlay(&self) -> bool {
        self.ovlfs_strip.as_deref() == Some("1")
    }

    fn archive<'a>(&self, archive: Archive<'a>) -> Result<Input<'a>, Failure> {
        match self.verify {
            false => Ok(Input::Tar(archive)),
            true => {
                let message = "--verify compares with a directory, and the source is an archive";
                let hint = "extract it and use `anteros verify IMAGE DIRECTORY`";
                Err(Failure::new(Kind::Usage, message).hint(hint))
            }
        }
    }
}

fn stdin() -> Result<Archive<'static>, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let message = "the archive is to come from standard input, which is a terminal";
        return Err(Failure::new(Kind::Usage, message).hint("name the archive, or pipe it in"));
    }
    // Who writes to a pipe waits less often then. What is none has no such size.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdin, PIPE_BYTES);
    let file = File::from(stdin.as_fd().try_clone_to_owned()?);
    Ok(Archive::from_file("standard input", file))
}
