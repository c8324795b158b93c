//! A log-structured file system: read and write, crash-safe, in one file or block device.
//!
//! ```
//! use std::sync::Arc;
//!
//! use anteros_core::{Caller, FileSystem, MemoryDevice, New, OpenFile, Writable, WritableDevice};
//! use anteros_log::{Log, Options, Shape, mkfs, system_clock};
//!
//! const O_RDWR: u32 = 2;
//!
//! let device: Arc<dyn WritableDevice> = Arc::new(MemoryDevice::new(vec![0; 64 << 20]));
//! let caller = Caller::default(); // root
//! mkfs(&device, &Shape::default(), caller, &Options::new(system_clock))?;
//! let log = Log::open(device, Options::new(system_clock))?;
//! let new = New {
//!     parent: log.root(),
//!     name: b"greeting",
//!     mode: 0o100_644,
//!     umask: 0o022,
//!     caller,
//! };
//! let (attr, handle) = log.create(&new, O_RDWR)?;
//! let file = OpenFile { ino: attr.ino, handle };
//! log.write(file, 0, b"hello", false)?;
//! log.fsync(file, false)?; // from here on, no crash takes it away
//! let mut content = [0; 5];
//! assert_eq!(log.read_open(file, 0, &mut content)?, 5);
//! assert_eq!(&content, b"hello");
//! log.release(file);
//! log.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What changes is written to new places. Content and nodes wait in memory until someone asks for durability, memory is
//! short, or a checkpoint comes; then they are given places by `store` and leave for the device. An fsync writes
//! its data and a *group* of records that say what changed (`commit`), and flushes once. A *checkpoint* writes
//! everything and says which places count; only then are the segments that it emptied used again. A mount reads the
//! newest checkpoint and replays the groups behind it (`recover`).
//!
//! What holds, whatever happens: the newest whole checkpoint and the groups behind it are a state that the file
//! system was in; everything that an fsync was answered for is part of it.
//!
//! Floors, from the top to the bottom; each uses only those that are drawn below it:
//!
//! ```text
//! offline     tools for a log that nobody has mounted: mkfs, check, repair, resize, inspect
//! mount       requests of a mounted log, and the locks
//! cleaning    valid blocks move out of segments, which become free
//! durable     commit (an fsync), checkpoint, recover (a mount)
//! files       content, directories, names, attributes
//! packing     compressed chunks of several files that share a block
//! nodes       inodes, pointers of files, the table of where each node lies
//! store       segments, free space, blocks on their way to the device and from it
//! compress    what is compressed, and how; no I/O
//! layout      bytes of each structure on disk; no I/O
//! ```
//!
//! Each floor keeps its memory in one *owner*, which holds the owner of the floor below, and has its methods on its own
//! floor. So a floor has nothing to call up with, and the compiler refuses it (`floors.rs`):
//!
//! ```text
//! mount           cleaning        durable         files           packing         nodes           store
//! State        { Cleaning      { Durable       { Files         { Packer        { Nodes         { Store }}}}}}
//! ```
//!
//! A mount has all of it behind one lock. Tools that clean nothing begin with the `Durable` of a log.
//!
//! An fsync takes the stairs once: `mount/vfs` and `mount/log` take the lock, `cleaning/clean` makes room,
//! `durable/commit` writes the group, `files/write_back` takes what is dirty of a file, `packing/pack` compresses it,
//! `nodes/tree` notes where it lies, `store/place` gives it a place and `store/writeback` sends it there. Then
//! `mount/log` gives the lock away, and waits for `store/writer` and the flush.
//!
//! `docs/design/log.md` has the reasons, `docs/format/log.md` every bit.

#[macro_use]
mod floors;

mod cleaning;
mod compress;
mod durable;
mod error;
mod files;
pub mod layout;
mod mount;
mod nodes;
mod offline;
mod options;
mod packing;
mod statistics;
mod store;

pub use cleaning::compact::Compacted;
pub use cleaning::estimate::{Estimate, Gain};
pub use cleaning::launches::{
    BlockReads, FileReads, Launches, Mark, RECORD_BYTES_MAX, ROUNDS, RecordFault, Version,
};
pub use compress::codec::Codec;
pub use compress::policy::Policy;
pub use durable::recover::Recovery;
pub use error::LogError;
pub use files::usage::{ClassUse, Plain, Usage};
pub use layout::superblock::Shape;
pub use mount::log::{Condition, Log};
pub use mount::scrub::{ScrubPosition, Scrubbed};
pub use mount::sweep::Sweep;
pub use mount::vfs::system_clock;
pub use offline::check::{Report, check, check_data};
pub use offline::describe::{Layout, SegmentState, TENTHS, describe};
pub use offline::inspect::{Area, Content, Group, InodeView, Inspector, NodeView, Place, Run};
pub use offline::mkfs::mkfs;
pub use offline::repair::{Repaired, repair, repair_going_back};
pub use offline::resize::{Resized, plan_resize, resize};
pub use options::{Mode, Options, Order};
pub use statistics::{Cause, Class, ClassStatistics, Statistics};
pub use store::segments::Use;
