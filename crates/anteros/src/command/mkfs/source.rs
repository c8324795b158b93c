//! The sources of an image, which are layers if there are several: directories, archives and
//! manifests, in files or on standard input, other images, and logs.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::slice::Iter;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{Archive, Input, Layer, Manifest, ManifestFormat};
use anteros_core::{FileDevice, Occupant};

use super::arguments::Args;
use super::oci;
use super::values::Tar;
use crate::args::swapped;
use crate::command::log;
use crate::failure::{Failure, Kind};
use anteros_image::Image;

/// Bytes that a pipe may hold: as many as any user may ask for.
const PIPE_BYTES: usize = 1 << 20;

/// Stands for standard input.
const STDIN: &str = "-";

/// Beginnings of sources that are manifests.
const MANIFESTS: [(&[u8], ManifestFormat); 2] = [
    (b"mtree:", ManifestFormat::Mtree),
    (b"composefs-dump:", ManifestFormat::ComposefsDump),
];

impl Args {
    /// Opens the sources, as far as they are archives. They lie over the image that is appended to.
    pub fn input(
        &self,
        base: Option<Arc<Image>>,
        cancel: &AtomicBool,
    ) -> Result<Input<'_>, Failure> {
        let input = self.input_alone()?;
        let Some(base) = base else {
            return Ok(input);
        };
        if self.verify {
            let message = "--verify compares with a directory, and --append adds to what is there";
            return Err(Failure::new(Kind::Usage, message));
        }
        let base = self.base_layer(base, cancel)?;
        let layers = match input {
            Input::One(layer) => vec![layer],
            Input::Layers(layers) => layers,
            Input::Replaced { source, .. } => vec![source],
        };
        let layers = [base].into_iter().chain(layers);
        Ok(Input::Layers(layers.collect()))
    }

    /// Opens the sources, whether they are appended or not.
    fn input_alone(&self) -> Result<Input<'_>, Failure> {
        self.check_content_root()?;
        let mut devices = self.source_devices.iter();
        let input = match &self.sources[..] {
            [] => self.archive(stdin()?).map(Input::One),
            [source] if oci::Place::of(source).is_none() => self.single(source, &mut devices),
            sources => self.layers(sources, &mut devices),
        }?;
        match devices.next() {
            None => Ok(input),
            Some(device) => {
                let message = format!("{}: no source has this device", device.display());
                let hint = "--device names the extra devices of images that are sources, in order";
                Err(Failure::new(Kind::Usage, message).hint(hint))
            }
        }
    }

    /// Opens the only source.
    fn single<'a>(
        &self,
        source: &'a Path,
        devices: &mut Iter<'_, PathBuf>,
    ) -> Result<Input<'a>, Failure> {
        let layer = self.layer(source, devices)?;
        let is_image = matches!(layer, Layer::FileSystem(..) | Layer::Placed(..));
        match layer {
            // Whiteouts are about what is there already.
            _ if self.append => Ok(Input::One(layer)),
            Layer::Tar(_) => Ok(Input::One(layer)),
            _ if is_image && self.strips_overlay() => Ok(Input::Layers(vec![layer])),
            _ if self.strips_overlay() || self.aufs && !(is_image && self.is_peer) => {
                let message = "--aufs and --ovlfs-strip have a meaning for archives alone";
                Err(Failure::new(Kind::Usage, message))
            }
            _ => Ok(Input::One(layer)),
        }
    }

    /// Opens sources that are layers.
    fn layers<'a>(
        &'a self,
        sources: &'a [PathBuf],
        devices: &mut Iter<'_, PathBuf>,
    ) -> Result<Input<'a>, Failure> {
        let refused = |message, hint| Err(Failure::new(Kind::Usage, message).hint(hint));
        if self.verify {
            return refused(
                "--verify compares with a directory, and the sources are layers",
                "mount them by overlayfs and use `anteros verify IMAGE DIRECTORY`",
            );
        }
        let takes_stdin = |source: &&PathBuf| {
            let named = manifest(source).map_or(&***source, |(_, path)| path);
            is_stdin(named)
        };
        if sources.iter().filter(takes_stdin).count() > 1 {
            return refused(
                "standard input can be but one of the sources",
                "name the other archives",
            );
        }
        let mut layers = Vec::new();
        for source in sources {
            match oci::Place::of(source) {
                Some(place) => layers.extend(oci::layers(&place, self.platform.as_ref())?),
                None => layers.push(self.layer(source, devices)?),
            }
        }
        Ok(Input::Layers(layers))
    }

    /// Makes sure that content is looked for if there is a place to look in.
    fn check_content_root(&self) -> Result<(), Failure> {
        let is_manifest = |source: &PathBuf| manifest(source).is_some();
        match &self.content_root {
            Some(_) if !self.sources.iter().any(is_manifest) => {
                let message = "--content-root has a meaning for manifests alone";
                let hint = "`mtree:FILE` or `composefs-dump:FILE` is such a source";
                Err(Failure::new(Kind::Usage, message).hint(hint))
            }
            _ => Ok(()),
        }
    }

    /// Opens a manifest.
    fn manifest(&self, format: ManifestFormat, path: &Path) -> Result<Layer<'static>, Failure> {
        if self.verify {
            let message = "--verify compares with a directory, and the source is a manifest";
            let hint = "`anteros ls --digest` tells the digests of files";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        let manifest = match is_stdin(path) {
            true => Manifest::from_file(format, "standard input", stdin_file("manifest")?),
            false => Manifest::open(format, path).map_err(|e| Failure::new(Kind::System, e))?,
        };
        Ok(Layer::Manifest(match &self.content_root {
            Some(root) => manifest.content_root(root),
            None => manifest,
        }))
    }

    /// Opens a source, with its devices if it is an image that has some.
    fn layer<'a>(
        &self,
        path: &'a Path,
        devices: &mut Iter<'_, PathBuf>,
    ) -> Result<Layer<'a>, Failure> {
        if let Some((format, path)) = manifest(path) {
            return self.manifest(format, path);
        }
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
            (true, Some(_)) => usage(
                "is a directory, not an archive",
                "leave --tar away to pack it",
            ),
            (false, Some(_)) if holds(&metadata, path, Occupant::Image)? => usage(
                "is an EROFS image, and no archive",
                "leave --tar away to make another image of it",
            ),
            (false, None) if holds(&metadata, path, Occupant::Image)? => self.image(path, devices),
            (false, None) if self.is_peer => usage(
                "the source is neither a directory nor an image",
                "--tar=f packs an archive",
            ),
            (false, None) if holds(&metadata, path, Occupant::Log)? => self.log(path),
            (false, _) => {
                self.archive(Archive::open(path).map_err(|e| Failure::new(Kind::System, e))?)
            }
        }
    }

    /// Returns whether content stays in the archive.
    pub fn is_index(&self) -> bool {
        self.tar == Some(Tar::Index)
    }

    /// Returns whether the archive has no content of files.
    pub fn has_bare_headers(&self) -> bool {
        self.tar == Some(Tar::Headers)
    }

    /// Opens a log of which nobody changes anything meanwhile.
    fn log(&self, path: &Path) -> Result<Layer<'static>, Failure> {
        self.check_answering(path)?;
        Ok(Layer::FileSystem(
            Arc::new(log::as_source(path)?),
            path.into(),
        ))
    }

    /// Makes sure that an image or a log can be a source: it is not overwritten while it is read, nor compared with.
    pub(super) fn check_answering(&self, path: &Path) -> Result<(), Failure> {
        let usage = |message: String, hint| Err(Failure::new(Kind::Usage, message).hint(hint));
        if self.verify {
            let message = "--verify compares with a directory, and the source is none";
            return usage(message.into(), "`anteros verify IMAGE DIRECTORY` compares");
        }
        let (Ok(source), Ok(image)) = (std::fs::metadata(path), std::fs::metadata(&self.image))
        else {
            return Ok(());
        };
        let is_same = match source.file_type().is_block_device() {
            true => image.file_type().is_block_device() && source.rdev() == image.rdev(),
            false => (source.dev(), source.ino()) == (image.dev(), image.ino()),
        };
        let is_in_place = self.offset > 0 || !image.is_file() || self.is_peer && image.nlink() > 1;
        match is_same && (self.refers() || is_in_place) {
            false => Ok(()),
            true if self.refers() => usage(
                format!(
                    "{}: is to keep content, and would be replaced",
                    path.display()
                ),
                "write the image to another place",
            ),
            true => usage(
                format!("{}: would be overwritten while it is read", path.display()),
                "write the image to another place",
            ),
        }
    }

    /// Returns whether the image keeps the marks of layers that it is made of: if that is told, and as mkfs.erofs does of images.
    pub fn keeps_overlay(&self) -> bool {
        match self.ovlfs_strip.as_deref() {
            None => self.append || self.is_peer && self.takes_images(),
            Some(strips) => strips == "0",
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

/// The format of a manifest and its place, if a source is one.
fn manifest(source: &Path) -> Option<(ManifestFormat, &Path)> {
    let bytes = source.as_os_str().as_bytes();
    MANIFESTS.iter().find_map(|(prefix, format)| {
        let path = bytes.strip_prefix(*prefix)?;
        Some((*format, Path::new(OsStr::from_bytes(path))))
    })
}

/// Returns whether a file or a block device is what it takes; nothing else is looked at.
pub(super) fn holds(metadata: &Metadata, path: &Path, wanted: Occupant) -> Result<bool, Failure> {
    if !may_hold(metadata) {
        return Ok(false);
    }
    let found = FileDevice::open(path).and_then(|device| device.occupant());
    let found = found.map_err(|e| Failure::system(path, &e))?;
    Ok(found == Some(wanted))
}

/// Returns whether something is a file or a block device.
pub(super) fn may_hold(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.file_type().is_block_device()
}

/// The archive on standard input.
pub fn stdin() -> Result<Archive<'static>, Failure> {
    let file = stdin_file("archive")?;
    Ok(Archive::from_file("standard input", file))
}

fn stdin_file(what: &str) -> Result<File, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let message = format!("the {what} is to come from standard input, which is a terminal");
        let hint = format!("name the {what}, or pipe it in");
        return Err(Failure::new(Kind::Usage, message).hint(hint));
    }
    // Who writes to a pipe waits less often then. What is none has no such size.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdin, PIPE_BYTES);
    Ok(File::from(stdin.as_fd().try_clone_to_owned()?))
}
