//! Packed blocks: compressed chunks of several files that share a block.
//!
//! This floor is asked to give chunks a slot in a packed block, to read a chunk out of its slot, and to give a slot up
//! ([`pack`]). It uses `compress` for the bytes, `nodes` for the pointers, and `store` for the blocks.

pub(crate) mod pack;
