//! Cleaning: valid blocks move out of segments, which become free.
//!
//! This floor is asked for free segments before anything is written ([`clean`]), and to compress executables again in
//! the background ([`compact`]). What it moves becomes durable with the next checkpoint. It uses `durable` and what
//! lies below.

pub(crate) mod clean;
pub(crate) mod compact;
