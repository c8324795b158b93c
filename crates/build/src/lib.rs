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
//! | `stages` | all of this, one after the other |
//! | `stream` | bytes of sources that are read once |
//! | `source` | content of files, read by any worker at any place |
//! | `scan`, `xattr`, `prefixes` | what there is in a directory, however deep |
//! | `tar` | what there is in an archive |
//! | `manifest` | what a list of files tells |
//! | `seam` | what there is in anything that answers as a file system, such as an image |
//! | `base`, `kept` | inodes of an image that is appended to, which stay as they are |
//! | `input`, `layers` | layers one over another, merged into one tree |
//! | `patch` | inodes of an image that is patched: those that stay, those that are copied, the record |
//! | `ranges` | sets of bytes |
//! | `settle` | new content in the room of an older image |
//! | `tree` | sorted by name, hard links resolved |
//! | `attributes` | owners and labels that lists give to files |
//! | `devices`, `places` | content on extra devices: a blob of chunks, or an archive or images that stay where they are |
//! | `digests` | digests of content as attributes |
//! | `plan`, `sparse`, `times` | how each inode is stored, as far as that is known before reading |
//! | `hints` | files that are compressed in another way than the rest |
//! | `order`, `kinds` | files in the order in which they are read and stored |
//! | `sweep` | content that is known to be read, in front of all other |
//! | `look`, `same` | files with the same content, of which only the first is stored |
//! | `parts`, `body` | parts of files with the same content, of which only the first is stored |
//! | `data`, `compress`, `ordered` | file content, by all cores, in that order |
//! | `early` | files of a stream, compressed while more of it comes |
//! | `fragments`, `packed` | files and directories in the packed inode |
//! | `segments`, `outbox`, `special` | inodes that no directory names, and the order of blocks around them |
//! | `extent` | extents of compressed files, as all that follows knows them |
//! | `tail` | the ends of compressed files that lie behind their inodes |
//! | `layout` | every address of the metadata |
//! | `packer` | places for inodes, among blocks that have room |
//! | `emit`, `index`, `directory`, `superblock` | the bytes of the metadata |
//! | `block_list` | which files lie in which blocks |
//! | `output` | the image file, complete or not there; other places of an image |
//! | `android` | the form of images that Android's tools write to devices |
//! | `hash_tree` | the tree behind it by which each block is verified |
//! | `linux` | which kernels mount the image |
//!
//! Files import others on their floor and on those below it, never on one above:
//!
//! ```text
//! stages      stages, android
//! metadata    layout, packer, packed, emit, superblock, block_list
//! data        data, fragments, settle
//! decisions   attributes, digests, kept, sweep, order, devices, same, parts, patch
//! plan        plan, with the cuts of parts, the steps of the sweep, the chunks of devices and the places of a patch
//! scan        scan, tar, manifest, seam, layers, input
//! source      source, look
//! output      output, outbox, special, hash_tree, observer
//! coding      compress, early, index, records, tail, body
//! tree        tree, xattr, directory, times, hints
//! options     options, prefixes, linux
//! words       extent, sparse, segments, kinds, ordered, stream, places, ranges, base, error; the lists of attributes
//! ```
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
mod packer;
mod parts;
mod patch;
mod places;
mod plan;
mod prefixes;
mod ranges;
mod records;
mod same;
mod scan;
mod seam;
mod segments;
mod settle;
mod source;
mod sparse;
mod special;
mod stages;
mod stream;
mod superblock;
mod sweep;
mod tail;
mod tar;
mod times;
mod tree;
mod xattr;

use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_core::WritableDevice;

pub use anteros_codec::{Codec, Effort};
pub use anteros_verity::{Algorithm as HashAlgorithm, Digest};
pub use attributes::{FileContexts, FsConfig};
pub use base::{Appended, Base, Patch, PatchLayer, Record, Renew, Taken};
pub use error::Error;
pub use hash_tree::Verity;
pub use input::{Input, Layer};
pub use manifest::{Manifest, ManifestFormat};
pub use observer::{Changed, Observer, PatchSummary, Progress, Summary};
pub use options::{
    Compression, Content, Exclude, Fragments, HashTree, Hint, Holes, IdRange, InodeForm,
    LABEL_BYTES_MAX, Options, Order, PCLUSTER_BLOCKS_MAX, Quick, ReadRange, Setting, UuidChoice,
};
pub use patch::{Difference, Rollback, apply, apply_to_device, roll_back, roll_back_device};
pub use places::{Placed, PlacedPart, Places, SourceDevice};
pub use tar::{Archive, ArchivedFile, Entry, EntryKind};

use output::Store;
use stages::{Build, spool};

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
    output.map_or(Ok(()), |output| output.finish(options.sync))?;
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
/// Errors of [`build`].
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
        let output = output.expect("patches were refused");
        let end = options.offset + output.position();
        output.finish(false)?;
        Ok((end, summary))
    })
}

/// Patches the image at the beginning of a device ([`Options::patch`]), behind which there is room. Without
/// [`Options::sync`], the device may still lose it with the power, and has the old image then.
///
/// # Errors
///
/// Errors of [`build`]; nothing that the image refers to was changed.
pub fn patch_device<'a>(
    device: Arc<dyn WritableDevice>,
    source: impl Into<Input<'a>>,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
) -> Result<Summary, Error> {
    let job = Build::new(source, options, observer, cancel)?;
    let append = patch::appended(options)?;
    let (summary, output) = job.run(NO_FILE.as_ref(), || Store::on(device, append))?;
    output.map_or(Ok(()), |output| output.finish(options.sync))?;
    Ok(summary)
}

/// Builds an image for what takes bytes one after the other, such as a pipe. As the superblock comes first, and is known
/// last, the image is kept in a file without a name until it is complete: in [`Options::spool`], or else in `/var/tmp`.
///
/// # Errors
///
/// Errors of [`build`]; [`Error::SpoolImage`] if there is no room.
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
    let output = output.expect("patches were refused");
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
