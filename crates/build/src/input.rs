//! Sources that an image can be built of, and how they are scanned.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::FileSystem;

use crate::output::Output;
use crate::source::{Scanned, Source};
use crate::{
    Archive, Base, Error, Manifest, Observer, Options, Places, layers, manifest, scan, seam, tar,
};

/// Source of an image.
#[derive(Debug)]
pub enum Input<'a> {
    /// A single source, whose whiteouts stay in the image.
    One(Layer<'a>),
    /// Layers, the lowest first. Whiteouts of overlayfs, and in archives those of AUFS, remove what is
    /// below; none of them is in the image.
    Layers(Vec<Layer<'a>>),
    /// A source whose tree takes the place of that of the image which is patched ([`Options::patch`]).
    Replaced {
        /// The image, a [`Layer::Base`].
        former: Layer<'a>,
        /// The source.
        source: Layer<'a>,
    },
}

/// A directory, an archive, a manifest or a file system.
pub enum Layer<'a> {
    /// A directory.
    Directory(&'a Path),
    /// An archive of tar or cpio.
    Tar(Archive<'a>),
    /// A list of files, whose content lies elsewhere.
    Manifest(Manifest<'a>),
    /// Anything that answers as a file system, such as an image, and its path for messages. It must not change.
    FileSystem(Arc<dyn FileSystem>, PathBuf),
    /// A file system whose content may stay where it is ([`Content::Refer`](crate::Content::Refer)).
    Placed(Arc<dyn FileSystem>, Arc<dyn Places>, PathBuf),
    /// The image that is appended to ([`Options::append`]), the lowest layer.
    Base(Arc<dyn FileSystem>, Arc<dyn Base>, PathBuf),
}

impl fmt::Debug for Layer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => f.debug_tuple("Directory").field(path).finish(),
            Self::Tar(archive) => f.debug_tuple("Tar").field(archive).finish(),
            Self::Manifest(manifest) => f.debug_tuple("Manifest").field(manifest).finish(),
            Self::FileSystem(_, path) | Self::Placed(_, _, path) | Self::Base(_, _, path) => {
                f.debug_tuple("FileSystem").field(path).finish()
            }
        }
    }
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for Input<'a> {
    fn from(path: &'a P) -> Self {
        Self::One(Layer::Directory(path.as_ref()))
    }
}

impl<'a> From<Archive<'a>> for Input<'a> {
    fn from(archive: Archive<'a>) -> Self {
        Self::One(Layer::Tar(archive))
    }
}

impl<'a> From<Manifest<'a>> for Input<'a> {
    fn from(manifest: Manifest<'a>) -> Self {
        Self::One(Layer::Manifest(manifest))
    }
}

impl<'a> From<Vec<Layer<'a>>> for Input<'a> {
    fn from(layers: Vec<Layer<'a>>) -> Self {
        Self::Layers(layers)
    }
}

impl Input<'_> {
    /// Returns whether it is an archive by itself.
    pub(crate) const fn is_archive(&self) -> bool {
        matches!(self, Self::One(Layer::Tar(_)))
    }

    /// The tree of the image that is patched; `None` if none is.
    pub(crate) fn former(
        &self,
        options: &Options,
        observer: &dyn Observer,
        cancel: &AtomicBool,
    ) -> Result<Option<Scanned>, Error> {
        if !options.is_patch() {
            return Ok(None);
        }
        let former = match self {
            Self::Replaced { former, .. } => Some(former),
            Self::Layers(layers) => layers.first(),
            Self::One(_) => None,
        };
        let Some(Layer::Base(fs, base, path)) = former else {
            return Err(Error::Option("there is no image to patch".into()));
        };
        let options = &Options::default();
        let scanned = seam::scan(fs.clone(), path.clone(), options, observer, cancel)?;
        Ok(Some(scanned.based_on(base.clone())))
    }

    pub(crate) fn scan(
        self,
        image: &Path,
        options: &Options,
        observer: &dyn Observer,
        cancel: &AtomicBool,
        output: Option<&mut Output>,
    ) -> Result<Scanned, Error> {
        let layers = match self {
            Self::Replaced { source, .. } => {
                return Self::One(source).scan(image, options, observer, cancel, output);
            }
            Self::One(Layer::Directory(path)) => {
                return scan::scan(path, image, options, observer, cancel);
            }
            Self::One(Layer::Tar(archive)) => {
                return tar::scan(archive, image, options, false, output, observer, cancel);
            }
            Self::One(Layer::Manifest(manifest)) => {
                return manifest::scan(manifest, options, observer, cancel);
            }
            Self::One(Layer::FileSystem(fs, path)) => {
                return seam::scan(fs, path, options, observer, cancel);
            }
            Self::One(Layer::Placed(fs, places, path)) => {
                let scanned = seam::scan(fs, path, options, observer, cancel)?;
                return Ok(scanned.placed(places));
            }
            Self::One(Layer::Base(..)) => {
                return Err(Error::Option(
                    "nothing is to be appended to an image".into(),
                ));
            }
            Self::Layers(layers) => layers,
        };
        layers::check_count(layers.len())?;
        let directory_options = of_layer(options);
        let archive_options = Options {
            exclude: Vec::new(), // hard links may lead to what is excluded
            ..directory_options.clone()
        };
        let scan = |layer| match layer {
            Layer::Directory(path) => scan::scan(path, image, &directory_options, observer, cancel),
            Layer::Tar(archive) => tar::scan(
                archive,
                image,
                &archive_options,
                true,
                None,
                observer,
                cancel,
            ),
            Layer::Manifest(manifest) => {
                manifest::scan(manifest, &archive_options, observer, cancel)
            }
            Layer::FileSystem(fs, path) => {
                seam::scan(fs, path, &directory_options, observer, cancel)
            }
            Layer::Placed(fs, places, path) => {
                let scanned = seam::scan(fs, path, &directory_options, observer, cancel)?;
                Ok(scanned.placed(places))
            }
            Layer::Base(fs, base, path) => {
                let scanned = seam::scan(fs, path, &Options::default(), observer, cancel)?;
                Ok(scanned.based_on(base))
            }
        };
        let layers = layers.into_iter().map(scan);
        layers::merge(layers.collect::<Result<_, _>>()?, options, cancel)
    }
}

impl Scanned {
    /// Adds what tells of inodes.
    fn based_on(self, base: Arc<dyn Base>) -> Self {
        let source = match self.source {
            Source::FileSystem(fs) => Source::FileSystem(fs.based_on(base)),
            source => source,
        };
        Self { source, ..self }
    }

    /// Adds what tells where content lies.
    fn placed(self, places: Arc<dyn Places>) -> Self {
        let source = match self.source {
            Source::FileSystem(fs) => Source::FileSystem(fs.with(places)),
            source => source,
        };
        Self { source, ..self }
    }
}

/// The options by which a layer is scanned: with all that tells what is gone below it, and how names
/// belong together.
fn of_layer(options: &Options) -> Options {
    Options {
        aufs_whiteouts: true,
        strip_overlay: false,
        hard_dereference: false,
        xattr_share_above: options.xattr_share_above.or(Some(0)),
        ..options.clone()
    }
}
