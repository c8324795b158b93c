//! From a directory, an archive, a manifest, another image, or several of them one over another, to an EROFS image.
//!
//! ```
//! use std::io::Cursor;
//! use std::sync::atomic::AtomicBool;
//!
//! use anteros_build::{Archive, Entry, EntryKind, Options, build_into};
//! use anteros_core::Timestamp;
//!
//! let hello = Entry {
//!     path: b"hello".to_vec(),
//!     kind: EntryKind::Regular { bytes: 5, content: Box::new(&b"world"[..]) },
//!     perm: 0o644,
//!     uid: 0,
//!     gid: 0,
//!     mtime: Timestamp::default(),
//!     xattrs: Vec::new(),
//! };
//! let files = Archive::from_entries("files", [Ok(hello)]);
//! let mut image = Cursor::new(Vec::new()); // in memory; `build` makes a file
//! let built = build_into(&mut image, files, &Options::default(), &(), &AtomicBool::new(false))?;
//! assert_eq!((built.files, built.image_bytes), (1, 4096));
//! # Ok::<(), anteros_build::Error>(())
//! ```
//!
//! ```text
//! source ─ scan ─► tree ─► plan ─► data: read ─► compress ─► write ─► layout ─► emit
//!                                  └── all cores, in order ──┘
//! ```
//!
//! | module | job |
//! |---|---|
//! | `stream` | bytes of sources that are read once |
//! | `source` | content of files, read by any worker at any place |
//! | `scan`, `xattr`, `prefixes` | what there is in a directory, however deep |
//! | `tar` | what there is in an archive |
//! | `manifest` | what a list of files tells |
//! | `seam` | what there is in anything that answers as a file system, such as an image |
//! | `base`, `kept` | inodes of an image that is appended to, which stay as they are |
//! | `input`, `layers` | layers one over another, merged into one tree |
//! | `tree` | sorted by name, hard links resolved |
//! | `attributes` | owners and labels that lists give to files |
//! | `devices`, `places` | content on extra devices: a blob of chunks, or an archive or images that stay where they are |
//! | `digests` | digests of content as attributes |
//! | `plan`, `sparse`, `times` | how each inode is stored, as far as that is known before reading |
//! | `hints` | files that are compressed in another way than the rest |
//! | `order`, `kinds` | files in the order in which they are read and stored |
//! | `look`, `same` | files with the same content, of which only the first is stored |
//! | `parts`, `body` | parts of files with the same content, of which only the first is stored |
//! | `data`, `compress`, `ordered` | file content, by all cores, in that order |
//! | `early` | files of a stream, compressed while more of it comes |
//! | `fragments`, `packed` | files and directories in the packed inode |
//! | `segments`, `outbox`, `special` | inodes that no directory names, and the order of blocks around them |
//! | `extent` | extents of compressed files, as all that follows knows them |
//! | `tail` | the ends of compressed files that lie behind their inodes |
//! | `layout` | every address of the metadata |
//! | `emit`, `index`, `directory`, `superblock` | the bytes of the metadata |
//! | `block_list` | which files lie in which blocks |
//! | `output` | the image file, complete or not there; other places of an image |
//! | `android` | the form of images that Android's tools write to devices |
//! | `hash_tree` | the tree behind it by which each block is verified |
//! | `linux` | which kernels mount the image |
//!
//! File content comes first and metadata last, so one pass over the source suffices, without
//! temporary files, but for the content of an archive that can be read but once; with [`Options::dedupe`] there is one
//! more before, which looks for what is equal. What can be relied on:
//!
//! - The same source and options give the same bytes, whatever the number of workers, the order in
//!   which directories are listed, and the time of day.
//! - The tree, encoders and content in flight are bounded by [`Options::memory_bytes`], as far as the tree takes no more
//!   than half of it.
//! - An image under its final name is complete. A file that changes while it is read is an error.
//! - Feature bits are set only for what the image uses.

mod android;
mod attributes;
mod base;
mod block_list;
mod body;
mod compress;
mod data;
mod devices;
mod digests;
mod directory;
mod early;
mod emit;
mod error;
mod extent;
mod fragments;
mod hash_tree;
mod hints;
mod index;
mod input;
mod kept;
mod kinds;
mod layers;
mod layout;
mod linux;
mod look;
mod manifest;
mod observer;
mod options;
mod order;
mod ordered;
mod outbox;
mod output;
mod packed;
mod parts;
mod places;
mod plan;
mod prefixes;
mod records;
mod same;
mod scan;
mod seam;
mod segments;
mod source;
mod sparse;
mod special;
mod stream;
mod superblock;
mod tail;
mod tar;
mod times;
mod tree;
mod xattr;

use std::io::{Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub use anteros_codec::{Codec, Effort};
pub use anteros_verity::{Algorithm as HashAlgorithm, Digest};
pub use attributes::{FileContexts, FsConfig};
pub use base::{Appended, Base, Record};
pub use error::Error;
pub use hash_tree::Verity;
pub use input::{Input, Layer};
pub use manifest::{Manifest, ManifestFormat};
pub use observer::{Observer, Progress, Summary};
pub use options::{
    Compression, Content, Exclude, Fragments, HashTree, Hint, Holes, IdRange, InodeForm,
    LABEL_BYTES_MAX, Options, Order, PCLUSTER_BLOCKS_MAX, Quick, Setting, UuidChoice,
};
pub use places::{Placed, PlacedPart, Places, SourceDevice};
pub use tar::{Archive, ArchivedFile, Entry, EntryKind};

use anteros_core::FileKind;

use block_list::Known;
use data::{Job, Stored, Written};
use devices::Devices;
use emit::Emitter;
use hints::Ways;
use layout::Layout;
use look::Look;
use output::{Output, Store};
use plan::Plan;
use source::Scanned;
use tar::direct::Direct;
use tree::Tree;

/// Builds an image of a directory, given as its path, of an [`Archive`], or of [layers](Layer), the lowest first.
///
/// A regular file, also one that a symbolic link leads to, is replaced when the new one is complete;
/// a block device, and a file in which the image begins at an [`Options::offset`], are written in
/// place. What holds anything but an image is left alone, unless [`Options::overwrite`] says otherwise, and so is whatever is in use,
/// or neither file nor block device. When `cancel` becomes true the build ends soon.
///
/// Images of a tree are equal, whether it comes as a directory or as an archive, if the archive tells all of it: times to
/// the nanosecond, attributes and holes.
///
/// ```
/// use std::process::{Command, Stdio};
/// use std::sync::atomic::AtomicBool;
///
/// use anteros_build::{Archive, Options, build};
///
/// # let dir = tempfile::TempDir::new()?;
/// # let image = dir.path().join("src.erofs");
/// let mut tar = Command::new("tar");
/// let mut tar = tar.args(["-c", "--gzip", "src"]).stdout(Stdio::piped()).spawn()?;
/// let archive = Archive::from_reader("src.tar.gz", tar.stdout.take().unwrap());
/// let built = build(&image, archive, &Options::default(), &(), &AtomicBool::new(false))?;
/// assert!(tar.wait()?.success() && built.files > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Impossible options; anything in the source that cannot be read, changes meanwhile, or has a
/// property that EROFS cannot keep; failure to write the image. Each names the path.
pub fn build<'a>(
    image: &Path,
    source: impl Into<Input<'a>>,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
) -> Result<Summary, Error> {
    let job = Build::new(source, options, observer, cancel)?;
    let image = &output::target(image);
    output::check(image, options)?;
    devices::check(image, options)?;
    if options.android_sparse {
        return android::build_file(image, job);
    }
    let (summary, output) = job.run(image, || Store::open(image, options))?;
    output.finish(options.sync)?;
    Ok(summary)
}

/// Builds an image into what can be written to at any place, from where that stands, and leaves it standing behind the image,
/// which has [`Summary::image_bytes`]. A thread writes while others read and compress; no more than some MiB wait for it. Should
/// the sink be longer than the image then, zeros follow: files that turn out not to be worth compressing are written once
/// more. After an error, what is in the sink is no image.
///
/// Neither hash trees nor sparse images can be built so. [`Options::offset`] counts from where the sink stands.
///
/// ```
/// use std::io::Cursor;
/// use std::process::{Command, Stdio};
/// use std::sync::atomic::AtomicBool;
///
/// use anteros_build::{Archive, Options, build_into};
///
/// let mut tar = Command::new("tar");
/// let mut tar = tar.args(["-c", "src"]).stdout(Stdio::piped()).spawn()?;
/// let archive = Archive::from_reader("src.tar", tar.stdout.take().unwrap());
/// let options = Options {
///     memory_bytes: 32 << 20,
///     ..Options::default()
/// };
/// let mut image = Cursor::new(Vec::new());
/// let built = build_into(&mut image, archive, &options, &(), &AtomicBool::new(false))?;
/// assert!(tar.wait()?.success());
/// assert_eq!(image.position(), built.image_bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Those of [`build`].
pub fn build_into<'a, W: Write + Seek + Send>(
    sink: &mut W,
    source: impl Into<Input<'a>>,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
) -> Result<Summary, Error> {
    let job = Build::new(source, options, observer, cancel)?;
    options.check_stream(false)?;
    output::write_into(sink, |store| {
        let (summary, output) = job.run(NO_FILE.as_ref(), || Ok(store))?;
        let end = options.offset + output.position();
        output.finish(false)?;
        Ok((end, summary))
    })
}

/// Builds an image for what takes bytes one after the other, such as a pipe. As the superblock comes first, and is known
/// last, the image is kept in a file without a name until it is complete: in [`Options::spool`], or else in `/var/tmp`.
///
/// # Errors
///
/// Those of [`build`]; [`Error::SpoolImage`] if there is no room.
pub fn build_stream<'a>(
    out: &mut dyn Write,
    source: impl Into<Input<'a>>,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
) -> Result<Summary, Error> {
    let job = Build::new(source, options, observer, cancel)?;
    options.check_stream(true)?;
    let (summary, output) = job.run(NO_FILE.as_ref(), || spool(options, tar::SPOOL_OF_DEVICES))?;
    let stream = android::Stream {
        output: &output,
        options,
        cancel,
    };
    stream
        .write(out)
        .map_err(|fault| fault.at(NO_NAME.as_ref(), &output))?;
    Ok(summary)
}

/// Stands for an image that is in no directory.
const NO_FILE: &str = "/dev/null";
/// The name of what takes bytes in order, in messages.
const NO_NAME: &str = "the stream";

/// A file without a name for an image that is not complete.
fn spool(options: &Options, usual: impl AsRef<Path>) -> Result<Store, Error> {
    Store::spool(options.spool.as_deref().unwrap_or(usual.as_ref()))
}

/// Everything that an image is built from.
struct Build<'a, 'b> {
    source: Input<'a>,
    options: &'b Options,
    observer: &'b dyn Observer,
    cancel: &'b AtomicBool,
}

impl<'a, 'b> Build<'a, 'b> {
    /// Checks the options.
    fn new(
        source: impl Into<Input<'a>>,
        options: &'b Options,
        observer: &'b dyn Observer,
        cancel: &'b AtomicBool,
    ) -> Result<Self, Error> {
        options.check()?;
        Ok(Self {
            source: source.into(),
            options,
            observer,
            cancel,
        })
    }

    /// Builds an image, which is to have this name, in a store that is opened when the source is known.
    fn run(
        self,
        image: &Path,
        store: impl FnOnce() -> Result<Store, Error>,
    ) -> Result<(Summary, Output), Error> {
        let Self {
            source,
            options,
            observer,
            cancel,
        } = self;
        let options = &options.of_content();
        let mut store = Some(store);
        let mut open = || store.take().expect("an image is opened once")();
        let is_direct = source.is_archive() && Direct::is_allowed(options);
        let mut begun = match is_direct && !output::is_written_in_place(image, options) {
            true => Some(begin(open()?, options, &Devices::default())?),
            false => None,
        };
        let Scanned {
            source,
            mut tree,
            mut warnings,
            ..
        } = scan(source, image, options, observer, cancel, begun.as_mut())?;
        warnings += attributes::assign(&mut tree, &source, options, observer)?;
        digests::assign(&mut tree, &source, options, cancel)?;
        if let Some(text) = order::missing(&tree, &options.first) {
            observer.warn(source.path(), &text);
            warnings += 1;
        }
        let (ways, hints) = Ways::new(&tree, options);
        let options = &Options {
            hints,
            ..options.clone()
        };
        let mut plan = Plan::new(&source, &mut tree, options, ways)?;
        let look = Look {
            source: &source,
            tree: &tree,
            options,
            cancel,
        };
        kept::find(&look, &mut plan)?;
        plan.order = order::of(&look)?;
        let devices = devices::store(&look, &mut plan)?;
        same::find(&look, &mut plan)?;
        parts::find(&look, &mut plan)?;
        plan.agree(&tree);
        let options = &options.beside(tree_bytes(&tree, &plan));
        let mut output = match (begun, &options.append) {
            (Some(output), _) => output,
            (None, Some(append)) => Output::append(open()?, options, append.end),
            (None, None) => begin(open()?, options, &devices)?,
        };
        let job = Job {
            source: &source,
            tree: &tree,
            plan: &plan,
            options,
            cancel,
            ends: tail::KeptEnds::new(options),
        };
        let summary = write(&job, devices, &mut output, observer)?;
        Ok((
            Summary {
                warnings,
                ..summary
            },
            output,
        ))
    }
}

/// Writes an image of what is planned: content, metadata and, last, the superblock.
fn write(
    job: &Job<'_>,
    devices: Devices,
    output: &mut Output,
    observer: &dyn Observer,
) -> Result<Summary, Error> {
    let Job { plan, options, .. } = *job;
    let Written {
        mut stored,
        packed,
        progress,
    } = data::write(job, output, observer)?;
    let data_end = output.position();
    let room = superblock::room(options, plan.shared.prefixes.table().len(), &devices);
    let layout = Layout::new(job, &mut stored, packed.size(), &room);
    let packed = packed::directories(job, &stored, &layout, packed, output)?.into_inode();
    layout::place_blocks(job, &mut stored, output)?;
    let emitter = Emitter {
        job,
        stored: &stored,
        packed: packed.as_ref(),
        layout: &layout,
        devices: &devices,
    };
    let places = emitter.metadata(output, observer, progress)?;
    let known = Known {
        job,
        stored: &stored,
        layout: &layout,
        places: &places,
    };
    known.write_list()?;
    let (superblock, uuid) = emitter.superblock(&places, output);
    output.complete(anteros_format::superblock::SUPERBLOCK_OFFSET, &superblock)?;
    let verity = hash_tree::append(options, uuid, output, job.cancel)?;
    let devices = devices.place(options)?;
    Ok(Summary {
        image_bytes: places.end,
        device_bytes: devices.iter().map(|device| device.bytes).sum(),
        devices,
        verity,
        metadata_bytes: places.end - data_end,
        shared_xattrs: plan.shared.count,
        uuid,
        linux: options.linux_of(&superblock),
        ..count(job.tree, &stored)
    })
}

/// Begins an image, with room for its superblock and what follows that.
fn begin(store: Store, options: &Options, devices: &Devices) -> Result<Output, Error> {
    let reserved = superblock::area_bytes(options, devices)?;
    Output::create(store, options, reserved)
}

/// Scans a source. Whatever goes wrong once the build is cancelled is no fault of the source.
fn scan(
    source: Input<'_>,
    image: &Path,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
    output: Option<&mut Output>,
) -> Result<Scanned, Error> {
    let scanned = source.scan(image, options, observer, cancel, output);
    let scanned = scanned.map_err(|error| match cancel.load(Ordering::Relaxed) {
        true => Error::Cancelled,
        false => error,
    })?;
    Ok(match options.content {
        Content::Copy | Content::Refer => scanned,
        Content::Reserve | Content::Zero => scanned.unread(),
    })
}

/// Bytes of memory that the tree takes, with all that will be known of it when it is stored.
fn tree_bytes(tree: &Tree, plan: &Plan) -> u64 {
    let stored = tree.nodes.len() * size_of::<Stored>();
    tree.memory_bytes() + plan.memory_bytes() + stored as u64
}

/// Counts inodes by kind, and regular files by the way they are stored.
fn count(tree: &Tree, stored: &[Stored]) -> Summary {
    let mut summary = Summary::default();
    for (node, stored) in tree.nodes.iter().zip(stored) {
        match node.kind {
            FileKind::Directory => summary.directories += 1,
            FileKind::Symlink => summary.symlinks += 1,
            FileKind::Regular => {
                summary.files += 1;
                summary.input_bytes += node.size;
                match stored {
                    Stored::Compressed { body, .. } => {
                        summary.compressed_files += 1;
                        summary.shared_bytes += body.shared_bytes();
                    }
                    Stored::Packed { .. } => summary.packed_files += 1,
                    Stored::Chunked { .. } | Stored::Elsewhere => summary.chunked_files += 1,
                    Stored::Flat { inline: 1.., .. } => summary.inline_files += 1,
                    Stored::Flat { .. } => summary.flat_files += 1,
                    Stored::Nothing | Stored::Kept => {}
                }
            }
            _ => summary.specials += 1,
        }
        if node.kind != FileKind::Directory {
            summary.hard_links += u64::from(node.nlink) - 1;
        }
    }
    summary
}
