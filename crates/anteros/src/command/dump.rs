//! `anteros dump`

mod statistics;
mod text;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use anteros_core::Timestamp;
use anteros_format::Nid;
use anteros_format::features::{Compat, Incompat};
use anteros_format::inode::Inode;
use anteros_image::{Encoding, Extent, Image, Location, Source};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};

use self::text::row;
use crate::args::ImageArgs;
use crate::failure::{Failure, Outcome, Verdict};
use crate::{linux, output};

/// Show what an image says about itself: its superblock, an inode, where its data lies, statistics
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The superblock, which is shown if nothing else is asked for
    #[arg(short, long)]
    superblock: bool,

    /// The inode of this path
    #[arg(long, value_name = "PATH")]
    path: Option<OsString>,

    /// The inode with this number
    #[arg(long, value_name = "NUMBER", conflicts_with = "path")]
    nid: Option<u64>,

    /// The extents of that inode
    #[arg(short, long)]
    extents: bool,

    /// What the files of the image take
    #[arg(short = 'S', long)]
    statistics: bool,

    /// One object for everything that was asked for
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Dump<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    superblock: Option<SuperblockView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<InodeView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents: Option<Extents<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<statistics::View>,
}

#[derive(Serialize)]
struct SuperblockView {
    magic: String,
    checksum: Option<String>,
    block_bytes: u32,
    blocks: u64,
    image_bytes: u64,
    inodes: u64,
    root_nid: u64,
    packed_nid: Option<u64>,
    metabox_nid: Option<u64>,
    meta_block: u32,
    xattr_block: u32,
    epoch: i64,
    epoch_nsec: u32,
    built: i64,
    /// Else the epoch is the time that it was built.
    #[serde(skip)]
    is_48bit: bool,
    uuid: String,
    label: String,
    compat: Vec<&'static str>,
    incompat: Vec<&'static str>,
    algorithms: Vec<&'static str>,
    largest_lz4_pcluster: u64,
    xattr_prefixes: Vec<String>,
    devices: Vec<DeviceView>,
    linux: linux::View,
}

#[derive(Serialize)]
struct DeviceView {
    name: String,
    bytes: u64,
    tag: Option<String>,
    blocks: Option<u64>,
    unified_block: Option<u64>,
}

#[derive(Serialize)]
struct InodeView {
    nid: u64,
    kind: &'static str,
    layout: &'static str,
    form: &'static str,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    stored_bytes: u64,
    mtime: i64,
    mtime_nsec: u32,
    xattrs: Vec<XattrView>,
}

#[derive(Serialize)]
struct XattrView {
    name: String,
    value_bytes: usize,
}

#[derive(Serialize)]
struct ExtentView {
    offset: u64,
    bytes: u64,
    storage: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
    stored_bytes: u64,
    partial: bool,
}

impl Args {
    pub fn run(self) -> Outcome {
        let image = self.image.open()?;
        let failure = |error| Failure::image(image.name(), &error);
        let inode = self.inode(&image)?;
        let only_superblock = inode.is_none() && !self.statistics;
        let superblock = (self.superblock || only_superblock).then(|| SuperblockView::new(&image));
        let extents = match inode.as_ref().filter(|_| self.extents) {
            Some(inode) => Some(Extents::of(&image, inode).map_err(failure)?),
            None => None,
        };
        let statistics = match self.statistics {
            true => Some(statistics::View::new(&image).map_err(failure)?),
            false => None,
        };
        let inode = inode
            .map(|inode| InodeView::new(&image, &inode))
            .transpose()
            .map_err(failure)?;
        let dump = Dump {
            superblock,
            inode,
            extents,
            statistics,
        };
        if self.json {
            output::json(&dump)?;
        } else {
            print(&dump)?;
        }
        Ok(Verdict::Good)
    }

    fn inode(&self, image: &Image) -> Result<Option<Inode>, Failure> {
        let failure = |error| Failure::image(image.name(), &error);
        match (&self.path, self.nid) {
            (Some(path), _) => {
                let found = image.find(path.as_bytes());
                let name = || format!("{}: {}", image.name(), output::name(path.as_bytes()));
                Ok(Some(found.map_err(|e| Failure::image(name(), &e))?))
            }
            (None, Some(nid)) => Ok(Some(image.inode(Nid(nid)).map_err(failure)?)),
            (None, None) if self.extents => Ok(Some(image.root().map_err(failure)?)),
            (None, None) => Ok(None),
        }
    }
}

impl SuperblockView {
    fn new(image: &Image) -> Self {
        let sb = image.superblock();
        let devices = image.devices();
        let checksum = sb
            .compat
            .contains(Compat::SB_CHKSUM)
            .then(|| format!("{:#010x}", sb.checksum));
        let prefixes = image.xattr_prefixes().iter();
        Self {
            magic: format!("{:#010x}", anteros_format::superblock::MAGIC),
            checksum,
            block_bytes: sb.block_bytes(),
            blocks: sb.blocks,
            image_bytes: devices[0].size,
            inodes: sb.inodes,
            root_nid: sb.root.0,
            packed_nid: sb.packed.map(|nid| nid.0),
            metabox_nid: sb.metabox.map(|nid| nid.0),
            meta_block: sb.meta_block,
            xattr_block: sb.xattr_block,
            epoch: sb.epoch,
            epoch_nsec: sb.fixed_nsec,
            built: sb.built(),
            is_48bit: sb.has_48bit(),
            uuid: output::uuid(&sb.uuid),
            label: output::name(sb.label()),
            compat: sb.compat.names(),
            incompat: sb.incompat.names(),
            algorithms: algorithms(image),
            largest_lz4_pcluster: match algorithms(image).contains(&"lz4") {
                true => u64::from(image.compr_cfgs().lz4_max_pcluster_blocks) << sb.block_bits,
                false => 0,
            },
            xattr_prefixes: prefixes
                .map(|p| format!("{}+{}", p.base, output::name(&p.infix)))
                .collect(),
            devices: devices.into_iter().skip(1).map(DeviceView::new).collect(),
            linux: linux::View::new(&linux::needs(image)),
        }
    }
}

/// The algorithms that the image may use. One that announces none may use LZ4, but says so by the place of its streams.
fn algorithms(image: &Image) -> Vec<&'static str> {
    let sb = image.superblock();
    let announced = Incompat::COMPR_CFGS | Incompat::ZERO_PADDING;
    match sb.incompat.intersects(announced) {
        true => sb.algorithms.iter().map(|a| a.name()).collect(),
        false => Vec::new(),
    }
}

impl DeviceView {
    fn new(device: anteros_image::DeviceInfo) -> Self {
        let tag = |slot: &anteros_format::superblock::DeviceSlot| {
            output::name(slot.tag.split(|&b| b == 0).next().unwrap_or_default())
        };
        Self {
            name: device.name,
            bytes: device.size,
            tag: device.slot.as_ref().map(tag),
            blocks: device.slot.as_ref().map(|slot| slot.blocks),
            unified_block: device.slot.and_then(|slot| slot.unified_block),
        }
    }
}

impl InodeView {
    fn new(image: &Image, inode: &Inode) -> Result<Self, anteros_image::Error> {
        let mut stored = 0u64;
        let extents = Extents {
            image,
            inode: inode.clone(),
        };
        extents.visit(&mut |extent: Viewed| {
            stored = stored.saturating_add(extent?.stored_bytes);
            Ok::<_, anteros_image::Error>(())
        })?;
        let xattrs = image.xattrs(inode)?.into_iter();
        let view = |x: anteros_image::Xattr| XattrView {
            name: output::name(&x.name),
            value_bytes: x.value.len(),
        };
        Ok(Self {
            nid: inode.nid.0,
            kind: inode.kind.name(),
            layout: inode.layout.name(),
            form: if inode.extended {
                "extended"
            } else {
                "compact"
            },
            mode: format!("{:04o}", inode.perm),
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            stored_bytes: stored,
            mtime: inode.mtime.secs,
            mtime_nsec: inode.mtime.nanos,
            xattrs: xattrs.map(view).collect(),
        })
    }
}

/// The extents of an inode, read whenever they are shown: a file may have millions.
struct Extents<'a> {
    image: &'a Image,
    inode: Inode,
}

type Viewed = Result<ExtentView, anteros_image::Error>;

impl<'a> Extents<'a> {
    /// Looks at all of them, so that nothing is shown if one cannot be read.
    fn of(image: &'a Image, inode: &Inode) -> Result<Self, anteros_image::Error> {
        let inode = inode.clone();
        let extents = Self { image, inode };
        extents.visit(&mut |extent| extent.map(drop))?;
        Ok(extents)
    }

    fn visit<E: From<anteros_image::Error>>(
        &self,
        visit: &mut dyn FnMut(Viewed) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.inode.size == 0 || !self.inode.kind.may_have_data() {
            return Ok(());
        }
        let map = self.image.map(&self.inode)?;
        let mut extents = self.image.extents(&self.inode, &map);
        extents.try_for_each(|extent| visit(extent.map(|extent| ExtentView::new(&extent))))
    }
}

impl Serialize for Extents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_seq(None)?;
        let shown = self.visit(&mut |extent| {
            let shown = array.serialize_element(&extent?);
            shown.map_err(Unshown::Serializer)
        });
        match shown {
            Ok(()) => array.end(),
            Err(Unshown::Serializer(error)) => Err(error),
            Err(Unshown::Image(error)) => Err(S::Error::custom(error)),
        }
    }
}

/// An extent is not shown.
enum Unshown<E> {
    /// It cannot be read any more.
    Image(anteros_image::Error),
    /// Nobody takes it.
    Serializer(E),
}

impl<E> From<anteros_image::Error> for Unshown<E> {
    fn from(error: anteros_image::Error) -> Self {
        Self::Image(error)
    }
}

impl ExtentView {
    fn new(extent: &Extent) -> Self {
        let (storage, location, stored, partial) = match extent.source {
            Source::Hole => ("hole".into(), None, 0, false),
            Source::Raw(location) => ("plain".into(), Some(location), extent.len, false),
            Source::Fragment { offset } => (format!("fragment at {offset}"), None, 0, false),
            Source::Pcluster(p) => {
                let storage = match p.encoding {
                    Encoding::Plain => "plain".into(),
                    Encoding::Interlaced => "interlaced".into(),
                    Encoding::Compressed(algorithm) => algorithm.to_string(),
                };
                (storage, Some(p.location), p.bytes.into(), p.partial)
            }
        };
        let space = location.map(|location| match location {
            Location::Device { device, .. } => format!("device {device}"),
            Location::Metabox { .. } => "metabox".into(),
        });
        let address = location.map(Location::address);
        Self {
            offset: extent.offset,
            bytes: extent.len,
            storage,
            space,
            address,
            stored_bytes: stored,
            partial,
        }
    }
}

fn print(dump: &Dump) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if let Some(sb) = &dump.superblock {
        print_superblock(&mut out, sb)?;
    }
    if let Some(inode) = &dump.inode {
        print_inode(&mut out, inode)?;
    }
    if let Some(extents) = &dump.extents {
        writeln!(
            out,
            "{:>16} {:>12} {:>12}  storage",
            "offset", "bytes", "stored"
        )?;
        let shown = extents.visit(&mut |extent| {
            let extent = extent?;
            let ExtentView {
                offset,
                bytes,
                storage,
                stored_bytes,
                ..
            } = &extent;
            write!(
                out,
                "{offset:>16} {bytes:>12} {stored_bytes:>12}  {storage}"
            )
            .map_err(Unshown::Serializer)?;
            if let (Some(space), Some(address)) = (&extent.space, extent.address) {
                write!(out, " in {space} at {address:#x}").map_err(Unshown::Serializer)?;
            }
            writeln!(out, "{}", if extent.partial { ", in part" } else { "" })
                .map_err(Unshown::Serializer)
        });
        shown.map_err(|unshown| match unshown {
            Unshown::Serializer(error) => error,
            Unshown::Image(error) => io::Error::other(error),
        })?;
    }
    if let Some(statistics) = &dump.statistics {
        statistics.print(&mut out)?;
    }
    out.flush()
}

fn print_superblock(out: &mut impl Write, sb: &SuperblockView) -> io::Result<()> {
    let list = |names: &[&str]| {
        if names.is_empty() {
            "none".into()
        } else {
            names.join(" ")
        }
    };
    let nid = |nid: Option<u64>| nid.map_or("none".into(), |nid| nid.to_string());
    row(out, "magic", &sb.magic)?;
    row(out, "checksum", sb.checksum.as_deref().unwrap_or("none"))?;
    row(out, "block size", sb.block_bytes)?;
    row(out, "blocks", sb.blocks)?;
    row(
        out,
        "image size",
        format_args!("{} ({})", sb.image_bytes, output::bytes(sb.image_bytes)),
    )?;
    row(out, "inodes", sb.inodes)?;
    row(out, "root inode", sb.root_nid)?;
    row(out, "packed inode", nid(sb.packed_nid))?;
    row(out, "metabox inode", nid(sb.metabox_nid))?;
    row(out, "metadata from block", sb.meta_block)?;
    row(out, "xattrs from block", sb.xattr_block)?;
    row(
        out,
        "epoch",
        output::time(Timestamp {
            secs: sb.epoch,
            nanos: sb.epoch_nsec,
        }),
    )?;
    if sb.is_48bit {
        row(
            out,
            "built",
            output::time(Timestamp {
                secs: sb.built,
                nanos: sb.epoch_nsec,
            }),
        )?;
    }
    row(out, "UUID", &sb.uuid)?;
    row(
        out,
        "label",
        if sb.label.is_empty() {
            "none"
        } else {
            &sb.label
        },
    )?;
    row(out, "compatible features", list(&sb.compat))?;
    row(out, "incompatible features", list(&sb.incompat))?;
    row(out, "algorithms", list(&sb.algorithms))?;
    match sb.largest_lz4_pcluster {
        0 => row(out, "largest LZ4 pcluster", "none"),
        bytes => row(out, "largest LZ4 pcluster", bytes),
    }?;
    for prefix in &sb.xattr_prefixes {
        row(out, "xattr prefix", prefix)?;
    }
    for (index, device) in (1..).zip(&sb.devices) {
        let tag = device.tag.as_deref().unwrap_or_default();
        row(
            out,
            &format!("device {index}"),
            format_args!("{} ({} bytes), tag `{tag}`", device.name, device.bytes),
        )?;
    }
    print_linux(out, &sb.linux)
}

fn print_linux(out: &mut impl Write, linux: &linux::View) -> io::Result<()> {
    row(out, "oldest Linux", linux.version())?;
    row(out, "built with", linux.options())?;
    row(out, "pages of at least", linux.page_bytes())?;
    row(out, "its decoders take", linux.memory())
}

fn print_inode(out: &mut impl Write, inode: &InodeView) -> io::Result<()> {
    row(out, "inode", inode.nid)?;
    row(out, "kind", inode.kind)?;
    row(
        out,
        "form and layout",
        format_args!("{}, {}", inode.form, inode.layout),
    )?;
    row(out, "mode", &inode.mode)?;
    row(out, "links", inode.nlink)?;
    row(
        out,
        "owner and group",
        format_args!("{}:{}", inode.uid, inode.gid),
    )?;
    row(out, "size", inode.size)?;
    row(out, "stored", inode.stored_bytes)?;
    row(
        out,
        "modified",
        output::time(Timestamp {
            secs: inode.mtime,
            nanos: inode.mtime_nsec,
        }),
    )?;
    for xattr in &inode.xattrs {
        row(
            out,
            "xattr",
            format_args!("{} ({} bytes)", xattr.name, xattr.value_bytes),
        )?;
    }
    Ok(())
}
