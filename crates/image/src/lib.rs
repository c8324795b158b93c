//! Reads EROFS images: any that `mkfs.erofs` writes, and any hostile one without harm.
//!
//! ```
//! use std::sync::Arc;
//!
//! use anteros_core::FileSystem;
//! use anteros_image::{Image, ImageFs, OpenOptions};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/lz4.erofs");
//! let bytes = std::fs::read(path)?; // an image in memory
//! let image = Image::open(Arc::new(bytes), Vec::new(), OpenOptions::default())?;
//! let files = ImageFs::new(Arc::new(image));
//! let directory = files.lookup(files.root(), b"data")?;
//! let hello = files.lookup(directory.ino, b"hello")?;
//! let mut content = vec![0; hello.size as usize];
//! let len = files.read(hello.ino, 0, &mut content)?;
//! assert_eq!(len, 13);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Image::open`] checks the superblock and what hangs off it. From there, [`Image::inode`] reads
//! an inode by its node id, [`Image::map`] finds where its data lies, [`Image::read`] fills a
//! buffer with it. [`Image::read_dir`], [`Image::lookup`], [`Image::xattrs`] and
//! [`Image::read_link`] do what their names say. [`ImageFs`] offers all of that as a
//! [`FileSystem`](anteros_core::FileSystem).
//!
//! An image never changes and is never trusted. Every number is checked before it is used, memory
//! is bounded by [`OpenOptions::cache_bytes`] and, for each thread, by the largest extent (12 MiB),
//! and every error says which rule was broken, where, by which value.

mod aligned;
mod cache;
mod check;
mod content;
mod dir;
mod error;
mod find;
mod host;
mod image;
mod lists;
mod map;
mod nids;
mod parts;
mod patches;
mod pins;
mod read_ahead;
mod serve;
mod stats;
mod stored;
mod tar;
mod trail;
mod vfs;
mod walk;
mod xattr;
mod xattr_search;

pub use check::{
    CheckObserver, CheckOptions, CheckProgress, CheckReport, Finding, FindingKind, Severity, check,
};
pub use content::Reader;
pub use dir::{DirCursor, OwnedDirent};
pub use error::{Error, Place, Result};
pub use host::{
    Difference, ERRORS_KEPT, ExtractError, ExtractObserver, ExtractOptions, ExtractProblem,
    ExtractSummary, ImageText, Mismatch, Omitted, Side, VerifyError, VerifyObserver, VerifyOptions,
    VerifyProblem, VerifyReport, Warning, XattrScope, extract, verify,
};
pub use image::{DeviceInfo, Image, OpenOptions, lower_tag};
pub use lists::{ListError, ListProblem, Lists, write_lists};
pub use map::{Encoding, Extent, Location, Map, Pcluster, Source};
pub use nids::NidSet;
pub use patches::Patched;
pub use pins::PinReport;
pub use serve::Strategy;
pub use serve::counters::ReadStatistics;
pub use serve::suspended::Rest;
pub use stats::{
    ExtensionStatistics, ExtentStatistics, Statistics, statistics, statistics_and_names,
};
pub use tar::{TarError, TarObserver, TarOptions, TarProblem, TarSummary, tar, tar_diff};
pub use trail::ImagePath;
pub use vfs::{ImageFs, STAND_IN};
pub use walk::WalkProblem;
pub use xattr::Xattr;
