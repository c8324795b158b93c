//! Reads ranges of files into the page cache, in large requests, ahead of the program that will need them.
//!
//! ```text
//! ranges ──▶ pieces ──▶ asked for, up to a window ahead ──▶ read, digests compared ──▶ Warmed
//! ```
//!
//! `anteros profile warm` does so, and the program `anteros-warm` of this package, which knows nothing else: it is small
//! enough for an initramfs.

mod directory;
mod warm;

pub use directory::Directory;
pub use warm::{Warmed, core_of, cut, free_memory, warm, within_limit};
