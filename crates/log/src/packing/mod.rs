//! Packed blocks: compressed chunks of several files that share a block.
//!
//! This floor is asked how the content of a file is compressed ([`kinds`]) and what it counts as ([`class`]), to give
//! chunks a slot in a packed block ([`pack`]), and inodes ([`inodes`]), to read a logical block wherever it lies
//! ([`unpack`]), and to move what is valid out of a packed block ([`relocate`]). It uses `compress` for the bytes,
//! `nodes` for the pointers, and `store` for the blocks.

mod class;
mod inodes;
mod kinds;
pub(crate) mod pack;
mod relocate;
pub(crate) mod unpack;

use crate::compress::chunks::Compressor;
use crate::nodes::Nodes;

/// Compression of what is written to packed blocks, and the nodes of the files whose content it is.
pub(crate) struct Packer {
    pub(crate) nodes: Nodes,
    compressor: Compressor,
}

stands_on!(Packer { nodes: Nodes });

impl Packer {
    pub(crate) fn new(nodes: Nodes) -> Self {
        Self {
            nodes,
            compressor: Compressor::default(),
        }
    }
}
