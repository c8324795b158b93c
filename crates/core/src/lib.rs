//! The two seams of anteros, and the few words everything above them shares.
//!
//! - [`Device`] is what lies below: bytes at an offset. A file, a memory buffer and an image inside
//!   a larger file are the same thing to whoever reads. One that can be written to is a
//!   [`WritableDevice`] as well.
//! - [`FileSystem`] is what stands above: what a file system answers. The FUSE session, the tools
//!   and the tests drive it without knowing what it is made of. One that can be written to is
//!   [`Writable`] as well.
//!
//! ```
//! use anteros_core::{Device, Window};
//!
//! let firmware = b"bootloader......kernel..........".to_vec(); // bytes in memory are a device
//! let partition = Window::new(firmware, 16); // so is what begins inside of another one
//! let mut name = [0; 6];
//! partition.read_at(0, &mut name)?;
//! assert_eq!(&name, b"kernel");
//! assert!(partition.read_at(15, &mut name).is_err(), "no read is filled up with zeros");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! This crate knows no format and no codec, but for the marks by which [`Occupant`] tells what lies on a device, and never prints.

mod algorithm;
mod counted;
mod device;
mod escape;
mod files_ahead;
mod fs;
mod joined;
mod lock;
mod occupant;
mod overlaid;
mod page;
mod poison;
mod processor;
mod size;
mod sorted;
mod stored;
mod table;
mod writable;
mod writable_device;
mod zeros;

pub use algorithm::Algorithm;
pub use counted::{Counted, DeviceCounts};
pub use device::{Device, FileDevice, Window};
pub use escape::unescaped;
pub use files_ahead::FilesAhead;
pub use fs::{
    Attr, DirEntry, FileKind, FileSystem, FsError, FsResult, Ino, Rdev, Seek, StatFs, Timestamp,
};
pub use joined::Joined;
pub use occupant::{Occupant, marked};
pub use overlaid::Overlaid;
pub use page::{PAGE_BYTES, begin_on_page};
pub use poison::unpoisoned;
pub use processor::{go_last, processor_time};
pub use size::{ParseSizeError, parse_size};
pub use sorted::{Record, Sorted, Sorter};
pub use stored::{StoredPlace, StoredRun};
pub use table::Table;
pub use writable::{
    AtomicStep, Caller, Changes, FilePosition, New, OpenFile, Payload, SetTime, Writable,
};
pub use writable_device::{MemoryDevice, WritableDevice, writable_range};
pub use zeros::zeros;
