//! Images as sources: their extra devices, and content that stays in them.

use std::io;
use std::path::{Path, PathBuf};
use std::slice::Iter;
use std::sync::Arc;

use anteros_build::{Layer, Placed, PlacedPart, Places, SourceDevice};
use anteros_core::{Device, FileDevice, FsResult, Ino, Occupant};
use anteros_format::inode::DataLayout;
use anteros_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use anteros_image::{Extent, Image, ImageFs, Location, OpenOptions, Source};

use super::arguments::Args;
use crate::args::ImageArgs;
use crate::failure::Failure;
use crate::output;

/// Most parts of a file that stays where it is. One of more is stored in the image.
const PARTS_MAX: usize = 1 << 20;

impl Args {
    /// Opens an image that is a source, with its devices from those that are told and not taken yet.
    pub(super) fn image(
        &self,
        path: &Path,
        devices: &mut Iter<'_, PathBuf>,
    ) -> Result<Layer<'static>, Failure> {
        self.check_answering(path)?;
        let wanted = superblock(path)?.map_or(0, |sb| usize::from(sb.extra_devices));
        let told: Vec<PathBuf> = devices.take(wanted).cloned().collect();
        let image = match told.len() == wanted || self.copies_content() {
            true => ImageArgs {
                devices: told.clone(),
                ..ImageArgs::usual(path)
            }
            .open()?,
            false => without_devices(path, &told, wanted)?,
        };
        let fs = Arc::new(ImageFs::new(image));
        if !self.refers() {
            return Ok(Layer::FileSystem(fs, path.into()));
        }
        let places = Arc::new(Referred {
            fs: fs.clone(),
            path: path.into(),
            devices: told,
        });
        Ok(Layer::Placed(fs, places, path.into()))
    }

    /// The shift of the block size that images as sources ask for: that of the smallest blocks, if content stays in them; under
    /// the name of mkfs.erofs, that of the uppermost one.
    pub(super) fn block_bits_of_images(&self) -> Result<Option<u8>, Failure> {
        if !(self.refers() || self.is_peer && self.takes_images()) {
            return Ok(None);
        }
        let mut bits = Vec::new();
        for path in &self.sources {
            let found = std::fs::metadata(path);
            if found.is_ok_and(|found| super::source::may_hold(&found)) {
                bits.extend(superblock(path)?.map(|sb| sb.block_bits));
            }
        }
        Ok(match self.refers() {
            true => bits.into_iter().min(),
            false => bits.pop(),
        })
    }

    /// Returns whether sources are archives.
    pub fn takes_archives(&self) -> bool {
        self.tar.is_some()
    }

    /// Returns whether the first source is an image.
    pub fn takes_images(&self) -> bool {
        let first = self.sources.first();
        let holds = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            super::source::holds(&found, path, Occupant::Image).ok()
        };
        self.tar.is_none() && first.and_then(holds).unwrap_or(false)
    }
}

/// The superblock of an image, if it is one.
fn superblock(path: &Path) -> Result<Option<Superblock>, Failure> {
    let device = FileDevice::open(path).map_err(|e| Failure::system(path, &e))?;
    let mut bytes = [0; SUPERBLOCK_BYTES];
    match device.read_at(SUPERBLOCK_OFFSET, &mut bytes) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(Failure::system(path, &e)),
        Ok(()) => Ok(Superblock::parse(&bytes).ok()),
    }
}

/// Opens an image of which some devices are not told, nor read.
fn without_devices(path: &Path, told: &[PathBuf], wanted: usize) -> Result<Arc<Image>, Failure> {
    let open = |path: &Path| {
        let device = FileDevice::open(path).map_err(|e| Failure::system(path, &e))?;
        Ok::<_, Failure>(Arc::new(device) as Arc<dyn Device>)
    };
    let told_devices = told.iter().map(|path| open(path));
    let absent = (told.len()..wanted).map(|number| {
        let name = format!("device {} of {}", number + 1, path.display());
        Ok(Arc::new(Absent { name }) as Arc<dyn Device>)
    });
    let devices = told_devices.chain(absent).collect::<Result<_, _>>()?;
    let image = Image::open(open(path)?, devices, OpenOptions::default());
    let image = image.map_err(|e| Failure::opening(path.display(), &e))?;
    Ok(Arc::new(image))
}

/// A device that is not told. Nothing can be read of it.
struct Absent {
    name: String,
}

impl Device for Absent {
    fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> io::Result<()> {
        let message = "it is not told by --device, and some content of it is stored in the image";
        Err(io::Error::new(io::ErrorKind::NotFound, message))
    }

    fn size(&self) -> u64 {
        u64::MAX >> 1
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// An image in which content stays: on its extra devices, or else, if it has none, on itself.
struct Referred {
    fs: Arc<ImageFs>,
    path: PathBuf,
    /// Paths of extra devices, as far as they are told.
    devices: Vec<PathBuf>,
}

impl Places for Referred {
    fn devices(&self) -> Vec<SourceDevice> {
        let image = self.fs.image();
        let uuid = output::uuid(&image.superblock().uuid).replace('-', "");
        let devices = image.devices();
        if devices.len() == 1 {
            return vec![SourceDevice {
                path: Some(self.path.clone()),
                bytes: image.recorded_bytes(),
                tag: uuid.into_bytes(),
            }];
        }
        let slots = devices.iter().filter_map(|device| device.slot.as_ref());
        let told = self.devices.iter().cloned().map(Some);
        let paths = told.chain(std::iter::repeat(None));
        slots
            .zip(paths)
            .map(|(slot, path)| SourceDevice {
                path,
                bytes: slot.blocks << image.superblock().block_bits,
                tag: match slot.tag[0] {
                    0 => uuid.clone().into_bytes(),
                    _ => slot.tag.to_vec(),
                },
            })
            .collect()
    }

    fn place(&self, ino: Ino) -> FsResult<Placed> {
        let image = self.fs.image();
        let inode = self.fs.inode(ino)?;
        if inode.layout.is_compressed() {
            return Ok(Placed::Encoded);
        }
        if inode.layout == DataLayout::FlatInline {
            return Ok(Placed::Apart);
        }
        let first = u16::from(image.devices().len() > 1);
        let map = image.map(&inode)?;
        let mut on = None;
        let mut parts = Vec::new();
        for extent in image.extents(&inode, &map) {
            let Extent {
                offset,
                len,
                source,
            } = extent?;
            let (device, place) = match source {
                Source::Hole => continue,
                Source::Raw(Location::Device { device, address }) if device >= first => {
                    (device, address)
                }
                _ => return Ok(Placed::Apart),
            };
            if *on.get_or_insert(device) != device || parts.len() == PARTS_MAX {
                return Ok(Placed::Apart);
            }
            parts.push(PlacedPart {
                start: offset,
                bytes: len,
                place,
            });
        }
        Ok(Placed::On {
            device: usize::from(on.unwrap_or(first) - first),
            parts,
        })
    }
}
