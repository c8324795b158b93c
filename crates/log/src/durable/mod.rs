//! Durability: what survives a crash, and how a mount finds it again.
//!
//! This floor is asked to make changes durable: an fsync writes a group of records ([`commit`]), a checkpoint writes
//! everything and says which places count ([`checkpoint`]). A mount reads the newest checkpoint and replays the groups
//! behind it ([`recover`]); the summaries of segments say whose a block is ([`owners`]). It uses `files` and what lies
//! below.

pub(crate) mod checkpoint;
pub(crate) mod commit;
pub(crate) mod owners;
pub(crate) mod recover;
