//! Access profiles: which parts of which files are read, in which order, and how often.
//!
//! ```text
//!    text ──▶ parse: lines, checked ──▶ Profile ──▶ write: text
//!   reads of one round of a program ──▶ Round ──▶ Profile
//!                            several profiles ──▶ merge ──▶ Profile
//! ```
//!
//! A profile is text that people read, compare and edit; `docs/profile.md` describes it. Whoever reads one trusts
//! nothing in it: its size, its number of ranges, paths and numbers are limited and checked, and a [`ProfileError`]
//! names the line.
//!
//! - `range`: a profile in memory.
//! - `digest`: the digest of the content of a range.
//! - `text`: lines to ranges and back.
//! - `round`: reads of one round, as they come.
//! - `merge`: several profiles to one; `turn`: the order of what many launches read and what few did.

mod digest;
mod merge;
mod range;
mod round;
mod text;
mod turn;

pub use digest::{Digest, Hasher};
pub use merge::merge;
pub use range::{Profile, Range};
pub use round::Round;
pub use text::{PATH_BYTES_MAX, ProfileError, ProfileFault, RANGES_MAX, TEXT_BYTES_MAX};
pub use turn::Turn;
