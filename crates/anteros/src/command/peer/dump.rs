//! `dump.erofs`: what an image says of itself, in the words and columns that scripts look for.

mod histograms;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anteros_core::{FileKind, Timestamp};
use anteros_format::Nid;
use anteros_format::features::Incompat;
use anteros_format::inode::{DataLayout, Inode};
use anteros_image::{DirCursor, Error, Extent, Image, Location, Source, statistics_and_names};
use clap::CommandFactory;

use super::arguments::{number, parsed, with_status_1};
use crate::args::ImageArgs;
use crate::command::cat;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{linux, output};
use histograms::Histograms;

pub const DUMP: &str = "dump.erofs";

/// States what the program prints under this name for `-V`.
const VERSION: &str = concat!("dump.erofs (anteros) ", env!("CARGO_PKG_VERSION"), "\n");

/// Show what an image says of itself: its superblock, an inode, the extents of a file, a directory, statistics
///
/// Exits with 0, or with 1 if something is wrong.
#[derive(Debug, clap::Parser)]
#[command(name = DUMP, disable_version_flag = true, args_override_self = true, max_term_width = 100)]
struct Args {
    /// The image: a file or a block device
    #[arg(required_unless_present = "version")]
    image: Option<PathBuf>,

    /// Print the version
    #[arg(short = 'V', long, exclusive = true)]
    version: bool,

    /// The superblock, which is shown if nothing else is asked for
    #[arg(short = 's')]
    superblock: bool,

    /// Counts of files by kind, what they take, and histograms of sizes and extensions
    #[arg(short = 'S')]
    statistics: bool,

    /// The extents of the inode
    #[arg(short = 'e')]
    extents: bool,

    /// The inode of this path
    #[arg(long, value_name = "PATH", conflicts_with = "nid")]
    path: Option<OsString>,

    /// The inode with this number
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    nid: Option<u64>,

    /// The entries of the inode, a directory
    #[arg(long)]
    ls: bool,

    /// The content of the inode, a file, and nothing else
    #[arg(long)]
    cat: bool,

    /// Properties of the device, for udev
    #[arg(long)]
    blkid_udev: bool,

    /// An extra device of a multi-device image; repeat it for each, in order
    #[arg(long = "device", value_name = "FILE")]
    devices: Vec<PathBuf>,

    /// Byte of the file at which the image begins
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = number)]
    offset: u64,
}

/// Does what dump.erofs is asked for. Whatever is wrong gives the exit status 1.
pub fn run(args: &[OsString]) -> Outcome {
    with_status_1(Args::command(), args, |matches| {
        parsed::<Args>(matches).run()
    })
}

/// Errors of reading an image, and of writing what it says.
enum Trouble {
    Image(Error),
    Output(io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Image(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Args {
    fn run(self) -> Outcome {
        if self.version {
            output::text(VERSION)?;
            return Ok(Verdict::Good);
        }
        if self.cat {
            return self.cat();
        }
        if self.extents && self.path.is_none() && self.nid.is_none() {
            let message = format!("{DUMP}: -e needs an inode");
            return Err(Failure::new(Kind::Usage, message).hint("tell it by --path or --nid"));
        }
        let image = self.image().open()?;
        let mut out = BufWriter::new(io::stdout().lock());
        let shown = self.show(&image, &mut out);
        let shown = shown.and_then(|()| Ok(out.flush()?));
        match shown {
            Ok(()) => Ok(Verdict::Good),
            Err(Trouble::Output(error)) => Err(error.into()),
            Err(Trouble::Image(error)) => Err(Failure::image(self.place(&image), &error)),
        }
    }

    fn image(&self) -> ImageArgs {
        ImageArgs {
            devices: self.devices.clone(),
            offset: self.offset,
            ..ImageArgs::usual(self.image.as_deref().unwrap_or(Path::new("")))
        }
    }

    /// The image, and the path in it if there is one.
    fn place(&self, image: &Image) -> String {
        match &self.path {
            Some(path) => format!("{}: {}", image.name(), output::name(path.as_bytes())),
            None => image.name(),
        }
    }

    fn cat(self) -> Outcome {
        let Some(path) = self.path.clone() else {
            let message = format!("{DUMP}: --cat needs a path");
            return Err(Failure::new(Kind::Usage, message).hint("tell it by --path"));
        };
        cat::Args::of(self.image(), path).run()
    }

    fn show(&self, image: &Image, out: &mut impl Write) -> Result<(), Trouble> {
        if self.blkid_udev {
            return Ok(udev(image, out)?);
        }
        let inode = match (&self.path, self.nid) {
            (Some(path), _) => Some(image.find(path.as_bytes())?),
            (None, Some(nid)) => Some(image.inode(Nid(nid))?),
            (None, None) => None,
        };
        if self.superblock || inode.is_none() && !self.statistics {
            superblock(image, out)?;
        }
        if self.statistics {
            counts(image, out)?;
        }
        let Some(inode) = inode else {
            return Ok(());
        };
        let path = self.path.as_ref().map(|path| output::name(path.as_bytes()));
        let path = path.unwrap_or_else(|| "(not found)".into());
        describe(image, &inode, &path, out)?;
        if self.ls {
            list(image, &inode, out)?;
        }
        if self.extents {
            table(image, &inode, &path, out)?;
        }
        Ok(())
    }
}

fn udev(image: &Image, out: &mut impl Write) -> io::Result<()> {
    let uuid = output::uuid(&image.superblock().uuid);
    writeln!(out, "ID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}")?;
    writeln!(out, "ID_FS_TYPE=erofs\nID_FS_USAGE=filesystem")
}

/// A line of the superblock.
fn row(out: &mut impl Write, name: &str, value: impl std::fmt::Display) -> io::Result<()> {
    let name = format!("{name}:");
    writeln!(out, "{name:<46}{value}")
}

fn superblock(image: &Image, out: &mut impl Write) -> io::Result<()> {
    let sb = image.superblock();
    let list = |names: Vec<&str>| {
        names
            .iter()
            .map(|name| format!("{name} "))
            .collect::<String>()
    };
    let incompat = |name| match name {
        "0padding" => "lz4_0padding",
        name => name,
    };
    let built = Timestamp {
        secs: sb.built(),
        nanos: 0,
    };
    let magic = format!("0x{:X}", anteros_format::superblock::MAGIC);
    row(out, "Filesystem magic number", magic)?;
    row(out, "Filesystem blocksize", sb.block_bytes())?;
    row(out, "Filesystem blocks", sb.blocks)?;
    row(out, "Filesystem inode metadata start block", sb.meta_block)?;
    row(
        out,
        "Filesystem shared xattr metadata start block",
        sb.xattr_block,
    )?;
    row(out, "Filesystem root nid", sb.root.0)?;
    if let Some(packed) = sb.packed {
        row(out, "Filesystem packed nid", packed.0)?;
    }
    if let Some(metabox) = sb.metabox {
        row(out, "Filesystem metabox nid", metabox.0)?;
    }
    if sb.incompat.contains(Incompat::COMPR_CFGS) {
        let algorithms: Vec<_> = sb.algorithms.iter().map(|a| a.name()).collect();
        row(out, "Filesystem compr_algs", algorithms.join(" "))?;
    } else {
        row(out, "Filesystem lz4_max_distance", sb.lz4_max_distance)?;
    }
    row(out, "Filesystem sb_size", sb.superblock_bytes)?;
    row(out, "Filesystem inode count", sb.inodes)?;
    row(
        out,
        "Filesystem created",
        calendar(built, "%a %b %e %H:%M:%S %Y"),
    )?;
    row(
        out,
        "Filesystem compatible features",
        list(sb.compat.names()),
    )?;
    let incompat = sb.incompat.names().into_iter().map(incompat);
    row(
        out,
        "Filesystem incompatible features",
        list(incompat.collect()),
    )?;
    row(out, "Filesystem UUID", output::uuid(&sb.uuid))?;
    if sb.incompat.is_empty() {
        return Ok(());
    }
    let version = linux::needs(image).oldest();
    row(out, "Required upstream Linux kernel version", version)
}

/// A time in a form, UTC; in seconds where the calendar ends.
fn calendar(at: Timestamp, form: &str) -> String {
    let time = jiff::Timestamp::new(at.secs, at.nanos as i32);
    let shown = time.map(|time| {
        time.to_zoned(jiff::tz::TimeZone::UTC)
            .strftime(form)
            .to_string()
    });
    shown.unwrap_or_else(|_| output::time(at))
}

fn counts(image: &Image, out: &mut impl Write) -> Result<(), Trouble> {
    let mut histograms = Histograms::default();
    let statistics = statistics_and_names(image, &mut |name, inode| {
        histograms.add(image, name, inode);
    })?;
    let packed = image.superblock().packed;
    if let Some(packed) = packed {
        histograms.add_stored(image, &image.inode(packed)?);
    }
    let of = |kind| statistics.kinds.get(&kind).copied().unwrap_or(0);
    // Names are counted, not inodes.
    let links = statistics.hard_links;
    let total = statistics.inodes() + links;
    for (what, count) in [
        ("total", total),
        ("unknown type", 0),
        ("regular file", of(FileKind::Regular) + links),
        ("directory", of(FileKind::Directory)),
        ("char dev", of(FileKind::CharDevice)),
        ("block dev", of(FileKind::BlockDevice)),
        ("FIFO file", of(FileKind::Fifo)),
        ("SOCK file", of(FileKind::Socket)),
        ("symlink file", of(FileKind::Symlink)),
    ] {
        let what = if what == "total" { "total file" } else { what };
        writeln!(out, "Filesystem {what} count:\t\t{count}")?;
    }
    let Histograms {
        compressed,
        bytes,
        stored_bytes,
        ..
    } = histograms;
    let uncompressed = (total + u64::from(packed.is_some())).saturating_sub(compressed);
    let percent = 100.0 * stored_bytes as f64 / bytes.max(1) as f64;
    writeln!(out, "Filesystem compressed files:            {compressed}")?;
    writeln!(
        out,
        "Filesystem uncompressed files:          {uncompressed}"
    )?;
    writeln!(out, "Filesystem total original file size:    {bytes} Bytes")?;
    writeln!(
        out,
        "Filesystem total file size:             {stored_bytes} Bytes"
    )?;
    writeln!(out, "Filesystem compress rate:               {percent:.2}%")?;
    Ok(histograms.print(out)?)
}

/// Looks at the extents of an inode, one after the other: a file may have millions.
fn each_extent(
    image: &Image,
    inode: &Inode,
    mut look: impl FnMut(&Extent) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    if inode.size == 0 || !inode.kind.may_have_data() {
        return Ok(());
    }
    let map = image.map(inode)?;
    image
        .extents(inode, &map)
        .try_for_each(|extent| look(&extent?))
}

/// Bytes of the image that the data of an inode takes.
fn stored_bytes(image: &Image, inode: &Inode) -> Result<u64, Trouble> {
    if let DataLayout::CompressedFull | DataLayout::CompressedCompact = inode.layout {
        return Ok(inode.compressed_blocks << image.superblock().block_bits);
    }
    let mut stored = 0;
    each_extent(image, inode, |extent| {
        stored += physical(extent).1;
        Ok(())
    })?;
    Ok(stored)
}

/// The bytes of the image that an extent takes, and where they lie.
fn physical(extent: &Extent) -> (u64, u64) {
    match extent.source {
        Source::Hole | Source::Fragment { .. } => (0, 0),
        Source::Raw(location) => (location.address(), extent.len),
        Source::Pcluster(pcluster) => (pcluster.location.address(), pcluster.bytes.into()),
    }
}

fn describe(image: &Image, inode: &Inode, path: &str, out: &mut impl Write) -> Result<(), Trouble> {
    let stored = stored_bytes(image, inode)?;
    let percent = 100.0 * stored as f64 / inode.size.max(1) as f64;
    let modified = calendar(inode.mtime, "%Y-%m-%d %H:%M:%S");
    let nanos = inode.mtime.nanos;
    let inode_bytes = if inode.extended { 64 } else { 32 };
    writeln!(out, "Path : {path}")?;
    writeln!(
        out,
        "Size: {}  On-disk size: {stored}  {}",
        inode.size,
        kind(inode.kind).0
    )?;
    writeln!(
        out,
        "NID: {}   Links: {}   Layout: {}   Compression ratio: {percent:.2}%",
        inode.nid.0, inode.nlink, inode.layout as u8
    )?;
    writeln!(
        out,
        "Inode size: {inode_bytes}   Xattr size: {}",
        inode.xattr_bytes
    )?;
    let (perm, letters) = (inode.perm, letters(inode.perm));
    writeln!(
        out,
        "Uid: {}   Gid: {}  Access: {perm:04o}/{letters}",
        inode.uid, inode.gid
    )?;
    writeln!(out, "Timestamp: {modified}.{nanos:09}")?;
    Ok(())
}

/// The name of a kind of file, and its number in directory entries.
const fn kind(kind: FileKind) -> (&'static str, u8) {
    match kind {
        FileKind::Regular => ("regular file", 1),
        FileKind::Directory => ("directory", 2),
        FileKind::CharDevice => ("char dev", 3),
        FileKind::BlockDevice => ("block dev", 4),
        FileKind::Fifo => ("FIFO file", 5),
        FileKind::Socket => ("SOCK file", 6),
        FileKind::Symlink => ("symlink file", 7),
    }
}

/// Permissions as nine letters.
fn letters(perm: u16) -> String {
    let letters = "rwxrwxrwx".chars().zip((0..9).rev());
    letters
        .map(|(letter, bit)| if perm >> bit & 1 == 1 { letter } else { '-' })
        .collect()
}

fn list(image: &Image, inode: &Inode, out: &mut impl Write) -> Result<(), Trouble> {
    writeln!(out, "\n       NID TYPE  FILENAME")?;
    let mut written = Ok(());
    image.visit_dir(inode, DirCursor::default(), |entry, _| {
        let name = output::name(entry.name);
        written = writeln!(out, "{:>10} {:>4}  {name}", entry.nid.0, kind(entry.kind).1);
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    Ok(written?)
}

fn table(image: &Image, inode: &Inode, path: &str, out: &mut impl Write) -> Result<(), Trouble> {
    writeln!(
        out,
        "\n Ext:   logical offset   |  length :     physical offset    |  length"
    )?;
    let mut number = 0u64;
    each_extent(image, inode, |extent| {
        let (at, stored) = physical(extent);
        let (start, end, len) = (extent.offset, extent.end(), extent.len);
        let behind = at + stored;
        write!(
            out,
            "{number:>4}: {start:>8}..{end:>8} | {len:>7} : {at:>10}..{behind:>10} | {stored:>7}"
        )?;
        match device(extent) {
            0 => writeln!(out)?,
            device => writeln!(out, "  # device {device}")?,
        }
        number += 1;
        Ok(())
    })?;
    writeln!(out, "{path}: {number} extents found")?;
    Ok(())
}

/// The extra device that an extent lies on, or 0.
fn device(extent: &Extent) -> u16 {
    let location = match extent.source {
        Source::Raw(location) => location,
        Source::Pcluster(pcluster) => pcluster.location,
        Source::Hole | Source::Fragment { .. } => return 0,
    };
    match location {
        Location::Device { device, .. } => device,
        Location::Metabox { .. } => 0,
    }
}
