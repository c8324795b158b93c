//! A log-structured file system: read and write, crash-safe, in one file or block device.
//!
//! What changes is written to new places. Content and nodes wait in memory until someone asks for durability, memory is
//! short, or a checkpoint comes; then they are given places by `segments` and leave for the device. An fsync writes
//! its data and a *group* of records that say what changed (`commit`), and flushes once. A *checkpoint* writes
//! everything and says which places count; only then are the segments that it emptied used again. A mount reads the
//! newest checkpoint and replays the groups behind it (`recover`).
//!
//! What holds, whatever happens: the newest whole checkpoint and the groups behind it are a state that the file
//! system was in; everything that an fsync was answered for is part of it.
//!
//! `docs/design/log.md` has the reasons, `docs/format/log.md` every bit.

mod acl;
mod ahead;
mod asked;
mod atomic;
mod by_kind;
mod check;
mod checkpoint;
mod clean;
mod codec;
mod commit;
mod compact;
mod describe;
mod dir;
mod error;
mod file;
mod gc;
mod habits;
mod holes;
mod inspect;
mod kind;
mod launches;
mod layers;
pub mod layout;
mod loaded;
mod log;
mod medium;
mod mkfs;
mod namespace;
mod nat;
mod options;
mod owners;
mod pack;
mod pieces;
mod policy;
mod prefetch;
mod ranges;
mod rebuild;
mod recover;
mod repair;
mod resize;
mod room;
mod segments;
mod slots;
mod space;
mod squeeze;
mod state;
mod statistics;
mod survey;
mod tree;
mod vfs;
mod writer;
mod xattr;

pub use check::{Report, check};
pub use codec::Codec;
pub use compact::Compacted;
pub use describe::{Layout, SegmentState, TENTHS, describe};
pub use error::LogError;
pub use inspect::{Area, Content, Group, InodeView, Inspector, NodeView, Place, Run};
pub use launches::{
    BlockReads, FileReads, Launches, Mark, RECORD_BYTES_MAX, ROUNDS, RecordFault, Version,
};
pub use layout::superblock::Shape;
pub use log::{Condition, Log};
pub use mkfs::mkfs;
pub use options::{Mode, Options, Order};
pub use policy::Policy;
pub use recover::Recovery;
pub use repair::{Repaired, repair, repair_going_back};
pub use resize::{Resized, plan_resize, resize};
pub use segments::Use;
pub use statistics::{Cause, Class, ClassStatistics, Statistics};
pub use vfs::system_clock;
