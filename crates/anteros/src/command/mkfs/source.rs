//! The sources of an image, which are layers if there are several: directories, and tar archives in
//! files or on standard input.

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anteros_build::{Archive, Input, Layer};
use anteros_format::superblock::{MAGIC, SUPERBLOCK_OFFSET};

use super::{Args, oci};
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
    /// Opens the sources, as far as they are archives.
    pub fn input(&self) -> Result<Input<'_>, Failure> {
        match &self.sources[..] {
            [] => self.archive(stdin()?).map(Input::One),
            [source] if oci::Place::of(source).is_none() => {
                let layer = self.layer(source)?;
                match layer {
                    Layer::Directory(_) if self.aufs || self.strips_overlay() => {
                        let message = "--aufs and --ovlfs-strip have a meaning for archives alone";
                        Err(Failure::new(Kind::Usage, message))
                    }
                    layer => Ok(Input::One(layer)),
                }
            }
            sources => self.layers(sources),
        }
    }

    /// Opens sources that are layers.
    fn layers<'a>(&'a self, sources: &'a [PathBuf]) -> Result<Input<'a>, Failure> {
        let refused = |message, hint| Err(Failure::new(Kind::Usage, message).hint(hint));
        if self.verify {
            return refused(
                "--verify compares with a directory, and the sources are layers",
                "mount them by overlayfs and use `anteros verify IMAGE DIRECTORY`",
            );
        }
        if sources.iter().filter(|source| is_stdin(source)).count() > 1 {
            return refused(
                "standard input can be but one of the sources",
                "name the other archives",
            );
        }
        let mut layers = Vec::new();
        for source in sources {
            match oci::Place::of(source) {
                Some(place) => layers.extend(oci::layers(&place, self.platform.as_ref())?),
                None => layers.push(self.layer(source)?),
            }
        }
        Ok(Input::Layers(layers))
    }

    /// Opens a source.
    fn layer<'a>(&self, path: &'a Path) -> Result<Layer<'a>, Failure> {
        if is_stdin(path) {
            return self.archive(stdin()?);
        }
        if self.image.is_dir() && !path.is_dir() {
            return Err(swapped(&self.image, "mkfs IMAGE SOURCE"));
        }
        let metadata = std::fs::metadata(path).map_err(|e| Failure::system(path, &e))?;
        let usage = |what: &str, hint: &str| {
            let message = format!("{}: {what}", path.display());
            Err(Failure::new(Kind::Usage, message).hint(hint))
        };
        match (metadata.is_dir(), self.tar) {
            (true, None) => Ok(Layer::Directory(path)),
            (true, Some(Tar)) => usage(
                "is a directory, not an archive",
                "leave --tar away to pack it",
            ),
            (false, _) if metadata.is_file() && is_image(path)? => usage(
                "is an EROFS image, which cannot be a source",
                "`anteros tar` makes an archive of it, `anteros extract` a directory",
            ),
            (false, None) if self.is_peer => {
                usage("the source is not a directory", "--tar=f packs an archive")
            }
            (false, _) => {
                self.archive(Archive::open(path).map_err(|e| Failure::new(Kind::System, e))?)
            }
        }
    }

    pub fn strips_overlay(&self) -> bool {
        self.ovlfs_strip.as_deref() == Some("1")
    }

    fn archive<'a>(&self, archive: Archive<'a>) -> Result<Layer<'a>, Failure> {
        match self.verify {
            false => Ok(Layer::Tar(archive)),
            true => {
                let message = "--verify compares with a directory, and the source is an archive";
                let hint = "extract it and use `anteros verify IMAGE DIRECTORY`";
                Err(Failure::new(Kind::Usage, message).hint(hint))
            }
        }
    }
}

fn is_stdin(source: &Path) -> bool {
    source == Path::new(STDIN)
}

/// Returns whether a regular file is an image of EROFS.
fn is_image(path: &Path) -> Result<bool, Failure> {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|file| file.read_at(&mut magic, SUPERBLOCK_OFFSET));
    read.map_err(|e| Failure::system(path, &e))?;
    Ok(magic == MAGIC.to_le_bytes())
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
