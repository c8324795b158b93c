//! A FUSE session over the kernel protocol: any [`FileSystem`](anteros_core::FileSystem) becomes a
//! mounted directory tree, which can be written to if it is [`Writable`](anteros_core::Writable).
//!
//! ```text
//!   a process ──► VFS ──► /dev/fuse ──► device ──► dispatch ──► FileSystem
//!                              ▲                       │
//!                              └── header + payload ◄──┘
//! ```
//!
//! [`Session::mount`] attaches a mount to a descriptor of `/dev/fuse` and shakes hands with the
//! kernel; [`Session::run`] starts the workers. A worker owns a descriptor, a request buffer and a
//! reply buffer: it takes a request, answers it itself and takes the next, so nothing is shared but
//! the file system. When the mount goes away, by whomever, every worker is told so and `run` returns.
//!
//! What the session promises the kernel of a file system that is not writable rests on one property: **it
//! never changes**. So names (also the missing ones), attributes, symlink targets, directory listings and file pages
//! are cached by the kernel for as long as it likes, files are opened and closed without a request,
//! and inodes need no book-keeping here: the kernel's node number *is* the inode number (see
//! `node`), and forgetting one is no event.
//!
//! One that can be written to says for how long it may be believed
//! ([`trusted_for`](anteros_core::Writable::trusted_for)). Its files are opened and released, its inodes
//! looked up and forgotten, its listings come without attributes, and privileges are dropped by whoever
//! writes, so that the kernel need not ask for them before each write.
//!
//! Besides answering, a session can lend the kernel files that it reads without asking
//! ([`memory_file`](anteros_core::FileSystem::memory_file)), or writes as well
//! ([`backing`](anteros_core::Writable::backing)), and put content into its cache unasked
//! ([`Notifier`]).
//!
//! The kernel may also keep what is written and write it back later ([`MountOptions::write_back`]), which
//! suits those who write little at a time; what it costs in promises is said in `dispatch::write_back`.
//!
//! A killed server may leave a thread behind that sleeps in the kernel, waiting for what nobody answers any more; then
//! a guardian ends the connection, if the program has one ([`MountOptions::guardian`]).
//!
//! Where root has enabled it, requests come over io_uring instead: each on the processor of who asks, to workers
//! that wait there ([`MountOptions::io_uring`]).
//!
//! - `proto`: the structs and numbers of the protocol.
//! - `dispatch`: bytes of a request to bytes of a reply; errors become `errno` here and nowhere else.
//! - `request`: what watchers are told of a request.
//! - `channel`: how a worker gets requests and sends replies, by `device` or `ring`, which know nothing of their
//!   meaning.
//! - `device`: by reading and writing `/dev/fuse`.
//! - `ring`: over io_uring; needs `unsafe`.
//! - `place`: on which processor a worker of a ring runs.
//! - `backing`: the files lent to the kernel.
//! - `notify`: what is told unasked.
//! - `init`: the handshake.
//! - `readahead`: a number of the mount that the handshake cannot raise, and that an open file keeps.
//! - `mount`: getting a mount and getting rid of it, as root or through `fusermount3`.
//! - `guardian`: another process, that ends the connection when this one is killed.
//! - `own_attribute`: asking a mount for what it tells of itself.
//! - `ioctl`: the calls that need `unsafe`.

mod backing;
mod blocked;
mod channel;
mod device;
mod dirpage;
mod dispatch;
mod error;
mod guardian;
mod init;
mod ioctl;
mod mount;
mod node;
mod notify;
mod own_attribute;
mod place;
mod proto;
mod readahead;
mod renewed;
mod request;
mod retrieve;
mod ring;
mod session;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod memory;

pub use backing::Passthrough;
pub use dispatch::{AttributeOrder, AttributeRequest, Loan};
pub use error::{MountError, UnmountError};
pub use guardian::{guard, is_guardian};
pub use init::request_len_limit;
pub use mount::{Attributes, MountOptions, unmount};
pub use notify::Notifier;
pub use own_attribute::own_attribute;
pub use request::{Answered, Operation};
pub use ring::{IO_URING_SETTING, NoIoUring, is_io_uring_on};
pub use session::{Session, Unmounter};
