//! A FUSE session over the kernel protocol: any [`FileSystem`](anteros_core::FileSystem) becomes a
//! mounted, read-only directory tree.
//!
//! ```text
//!   a process ──► VFS ──► /dev/fuse ──► device ──► dispatch ──► FileSystem
//!                              ▲                       │
//!                              └── header + payload ◄──┘
//! ```
//!
//! [`Session::mount`] attaches a mount to a descriptor of `/dev/fuse` and shakes hands with the
//! kernel; [`Session::run`] starts the workers. Each worker owns a descriptor, a request buffer and
//! a reply buffer: it takes a request, answers it itself and takes the next, so no request waits
//! behind another worker's and nothing is shared but the file system. When the mount goes away, by
//! whomever, every worker is told so and `run` returns.
//!
//! What the session promises the kernel rests on one property: **the file system never changes**.
//! So names (also the missing ones), attributes, symlink targets, directory listings and file pages
//! are cached by the kernel for as long as it likes, files are opened and closed without a request,
//! and inodes need no book-keeping here: the kernel's node number *is* the inode number (see
//! `node`), and forgetting one is no event.
//!
//! What is deliberately absent: writing, notifications, and transports other than `/dev/fuse`.
//!
//! - `proto`: the structs and numbers of the protocol.
//! - `dispatch`: bytes of a request to bytes of a reply; errors become `errno` here and nowhere else.
//! - `device`: moves requests and replies; knows nothing of their meaning.
//! - `init`: the handshake.
//! - `mount`: getting a mount and getting rid of it, as root or through `fusermount3`.

mod clone;
mod device;
mod dirpage;
mod dispatch;
mod error;
mod init;
mod mount;
mod node;
mod proto;
mod session;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod memory;

pub use error::{MountError, UnmountError};
pub use mount::{MountOptions, unmount};
pub use session::{Session, Unmounter};
