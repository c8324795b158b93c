//! Access profiles: which parts of which files are read, in which order, and how often.
//!
//! ```text
//! text ──▶ parse: lines, checked ──▶ Profile ──▶ write: text
//!                        rounds of a program ──▶ merge ──▶ Profile
//! ```
//!
//! A profile is text that people read, compare and edit; `docs/profile.md` describes it. Whoever reads one trusts
//! nothing in it: its size, its number of ranges, paths and numbers are limited and checked, and a [`ProfileError`]
//! names the line.
//!
//! - `range`: a profile in memory.
//! - `digest`: the digest of the content of a range.
//! - `text`: lines to ranges and back.
//! - `merge`: several profiles to one.

mod digest;
mod merge;
mod range;
mod text;

pub use digest::{Digest, Hasher};
pub use merge::merge;
pub use range::{Profile, Range};
pub use text::{PATH_BYTES_MAX, ProfileError, ProfileFault, RANGES_MAX, TEXT_BYTES_MAX};
