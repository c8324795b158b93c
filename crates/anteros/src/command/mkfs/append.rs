//! An image that sources are appended to: it is looked at first, and its files stay where they are.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{Appended, Base, Layer, Options, Record, Taken};
use anteros_core::{FsError, FsResult, Ino, StoredRun};
use anteros_format::features::Incompat;
use anteros_format::inode::{DataLayout, Inode};
use anteros_format::superblock::{SUPERBLOCK_OFFSET, checksum_len};
use anteros_image::{
    CheckOptions, CheckReport, Extent, Finding, FindingKind, Image, ImageFs, Place, Severity,
    Source, check,
};

use super::arguments::Args;
use crate::args::ImageArgs;
use crate::failure::{Failure, Kind};

/// Tells of the inodes of an image.
struct Inodes(Arc<ImageFs>);

impl Base for Inodes {
    fn record(&self, ino: Ino) -> FsResult<Record> {
        record(self.0.image(), &self.0.inode(ino)?)
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> FsResult<()> {
        Ok(self.0.image().read_primary(Place::Image, address, buf)?)
    }

    fn stored(&self, ino: Option<Ino>, bytes: Range<u64>) -> FsResult<Vec<StoredRun>> {
        self.0.stored(ino, bytes)
    }

    fn packed_bytes(&self) -> u64 {
        self.0.packed_bytes()
    }

    fn read_packed(&self, offset: u64, buf: &mut [u8]) -> FsResult<()> {
        self.0.read_packed(offset, buf)
    }

    fn taken(&self, ino: Ino) -> FsResult<Taken> {
        Ok(taken(self.0.image(), &self.0.inode(ino)?)?)
    }
}

fn record(image: &Image, inode: &Inode) -> FsResult<Record> {
    let (address, bytes) = image.record(inode)?.ok_or(FsError::Unsupported)?;
    // The end of a compressed file may lie behind its index.
    let is_inline = inode.layout == DataLayout::FlatInline || inode.layout.is_compressed();
    Ok(Record {
        address,
        bytes,
        is_inline,
    })
}

/// Returns what the content of an inode takes beside its record.
pub fn taken(image: &Image, inode: &Inode) -> anteros_image::Result<Taken> {
    let block_bytes = u64::from(image.superblock().block_bytes());
    let map = image.map(inode)?;
    let mut taken = Taken::default();
    for extent in image.extents(inode, &map) {
        let Extent { len, source, .. } = extent?;
        match source {
            Source::Fragment { offset } => taken.packed.push(offset..offset.saturating_add(len)),
            // What begins within a block lies behind its inode.
            Source::Raw(at) if at.address() % block_bytes == 0 => {
                let end = at.address().saturating_add(len);
                taken
                    .image
                    .push(at.address()..end.next_multiple_of(block_bytes));
            }
            Source::Pcluster(pcluster) if !pcluster.inline => {
                let at = pcluster.location.address();
                taken
                    .image
                    .push(at..at.saturating_add(pcluster.bytes.into()));
            }
            Source::Hole | Source::Raw(_) | Source::Pcluster(_) => {}
        }
    }
    Ok(taken)
}

/// Returns whether a finding speaks against appending. Counts are made anew, and mkfs.erofs appends with wrong ones.
fn matters(finding: &Finding) -> bool {
    let is_count = matches!(
        finding.kind,
        FindingKind::Links { .. }
            | FindingKind::DirectoryLinks { .. }
            | FindingKind::InodeCount { .. }
    );
    finding.severity() == Severity::Fault && !is_count
}

/// Returns who tells of the inodes of an image.
pub fn base_of(fs: Arc<ImageFs>) -> Arc<dyn Base> {
    Arc::new(Inodes(fs))
}

/// Makes sure that all metadata of an image can be read. `what` is done to no broken one.
pub fn check_metadata(
    image: &Image,
    options: &CheckOptions,
    what: &str,
    cancel: &AtomicBool,
) -> Result<CheckReport, Failure> {
    let report = check(image, options, &(), cancel);
    let fault = report.findings.iter().find(|finding| matters(finding));
    if fault.is_none() && report.findings_omitted == 0 {
        return Ok(report);
    }
    let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
    let name = image.name();
    let message = format!("{name}: {what} a broken image{fault}");
    let hint = format!("`anteros check {name}` lists every fault in the image");
    Err(Failure::new(Kind::Corrupt, message).hint(hint))
}

/// An image as a build knows it that appends to it.
pub fn appended(image: &Image) -> Result<Appended, Failure> {
    let fail = |error: anteros_image::Error| Failure::image(image.name(), &error);
    let sb = image.superblock();
    let mut superblock = vec![0; checksum_len(sb.block_bits)];
    image
        .read_primary(Place::Superblock, SUPERBLOCK_OFFSET, &mut superblock)
        .map_err(fail)?;
    let packed = sb.packed.map(|nid| {
        let record = record(image, &image.inode(nid).map_err(fail)?);
        let record = record.map_err(|e| Failure::new(Kind::Corrupt, e))?;
        let mut bytes = vec![0; usize::try_from(record.bytes).unwrap_or(usize::MAX)];
        let place = Place::Inode(nid);
        image
            .read_primary(place, record.address, &mut bytes)
            .map_err(fail)?;
        Ok::<_, Failure>((record, bytes))
    });
    let end = image.recorded_bytes().max(image.primary_size());
    Ok(Appended {
        superblock,
        cfgs: *image.compr_cfgs(),
        end: end.next_multiple_of(sb.block_bytes().into()),
        packed: packed.transpose()?,
    })
}

impl Args {
    /// Opens the image that is to be appended to, if there is to be one.
    pub(super) fn base(&self) -> Result<Option<Arc<Image>>, Failure> {
        let open = || ImageArgs::alone(&self.image).open();
        self.append.then(open).transpose()
    }

    /// The lowest layer: an image that is appended to.
    pub(super) fn base_layer(
        &self,
        image: Arc<Image>,
        cancel: &AtomicBool,
    ) -> Result<Layer<'static>, Failure> {
        self.check_base(&image, cancel)?;
        let fs = Arc::new(ImageFs::new(image));
        let base = base_of(fs.clone());
        Ok(Layer::Base(fs, base, self.image.clone()))
    }

    /// Makes sure that all metadata of the image can be read: what is kept of it is copied.
    fn check_base(&self, image: &Image, cancel: &AtomicBool) -> Result<(), Failure> {
        let options = CheckOptions {
            data: false,
            workers: self.workers.count(),
            ..CheckOptions::default()
        };
        check_metadata(image, &options, "nothing is appended to", cancel).map(drop)
    }

    /// The options of a build that appends to an image, which has the form that it has.
    pub(super) fn options_over(image: &Image, options: Options) -> Result<Options, Failure> {
        let sb = image.superblock();
        Ok(Options {
            block_bits: sb.block_bits,
            wide: options.wide || sb.incompat.contains(Incompat::FORTY_EIGHT_BIT),
            xattr_filter: sb.xattr_filter,
            append: Some(appended(image)?),
            ..options
        })
    }
}
