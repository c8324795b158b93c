//! Packed blocks: compressed chunks of several files that share a block.
//!
//! This floor is asked how the content of a file is compressed ([`kinds`]) and what it counts as ([`class`]), to give
//! chunks a slot in a packed block ([`pack`]; those that are made before writeback, [`prepared`]), and inodes ([`inodes`]), to read a logical block wherever it lies
//! ([`unpack`]), and to move what is valid out of a packed block ([`relocate`]). It uses `compress` for the bytes,
//! `nodes` for the pointers, and `store` for the blocks.

mod class;
mod inodes;
mod kinds;
pub(crate) mod pack;
pub(crate) mod prepared;
mod relocate;
pub(crate) mod unpack;
pub(crate) mod windows;

use crate::compress::chunks::Compressor;
use crate::nodes::Nodes;
use crate::packing::windows::Prepared;

/// Compression of what is written to packed blocks, and the nodes of the files whose content it is.
pub(crate) struct Packer {
    pub(crate) nodes: Nodes,
    compressor: Compressor,
    prepared: Prepared,
}

stands_on!(Packer { nodes: Nodes });

impl Packer {
    pub(crate) fn new(nodes: Nodes) -> Self {
        Self {
            nodes,
            compressor: Compressor::default(),
            prepared: Prepared::default(),
        }
    }
}
