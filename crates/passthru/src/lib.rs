//! A directory of the host as a file system: what is done to it is done to the host's files.
//!
//! [`HostFs`] keeps an `O_PATH` descriptor for each inode somebody knows, and does everything through
//! it, so neither a renaming nor the loss of the last name confuses anyone. Names are only ever looked
//! up in a directory that is held this way, one at a time and without following links: no name leads
//! out of the tree.
//!
//! ```text
//! Ino ──▶ table: O_PATH descriptor ──▶ *at(fd, name)          names
//!                                 └──▶ /proc/self/fd/N        opening, attributes, xattrs
//! handle ──▶ slab: open descriptor ──▶ pread, pwrite, fsync, fallocate, …
//! ```
//!
//! Whoever asks is trusted to be allowed to: permissions are checked by the kernel in front of the
//! mount (`default_permissions`), not here. What is made belongs to the caller all the same, see the
//! module `identity`.
//!
//! No call waits for what others do with a file as long as they like, where the host can be asked not to: see
//! [`FsError::Later`](anteros_core::FsError::Later). `docs/passthru.md` lists the calls that may.
//!
//! What it costs: a descriptor for each known inode. The limit of the process is raised as far as it
//! goes; when most of that is taken, a [`Shrinker`] says which names the kernel may drop. Beyond it, lookups
//! fail with EMFILE.

mod attr;
mod create;
mod dir;
mod file;
mod host;
mod identity;
mod mirror;
mod names;
mod open;
mod shrinker;
mod slab;
mod table;
mod vfs;
mod xattr;

pub use mirror::{Held, HostFs, Options};
pub use shrinker::{Name, Shrinker};
