//! Nodes: inodes, the pointers of files, and the table that says where each node lies.
//!
//! This floor owns the node address table ([`nat`]) and the nodes in memory ([`cache`]) with their marks ([`loaded`]).
//! It is asked for an inode by its number, for the pointer of a logical block, and to change either ([`tree`]); dirty
//! nodes are written at a checkpoint ([`write`]). A block of the table that cannot be read is made again from the
//! nodes ([`rebuild`]). It uses `store` and what lies below.

mod cache;
pub(crate) mod loaded;
pub(crate) mod nat;
mod ranges;
pub(crate) mod rebuild;
pub(crate) mod tree;
mod write;
