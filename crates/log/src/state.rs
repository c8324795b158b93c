//! State of a mounted log: what the floors own, in one place.
//!
//! All of it lies behind one lock. Every operation leaves it whole: what an operation cannot do it refuses
//! before it has changed anything.
//!
//! The fields of an owner are private to the folder of its floor, but for the owner of the floor below, which it holds.

use crate::cleaning::Cleaning;
use crate::durable::Groups;
use crate::files::Files;
use crate::nodes::Nodes;
use crate::packing::Packer;

/// A mounted log, an owner for each floor from the lowest on.
pub(crate) struct State {
    pub(crate) files: Files,
    pub(crate) groups: Groups,
    pub(crate) cleaning: Cleaning,
}

stands_on!(State { files: Files });

impl State {
    /// A log of which nothing is in memory yet, and nothing newer than the checkpoint.
    pub(crate) fn new(nodes: Nodes, groups: Groups) -> Self {
        Self {
            files: Files::new(Packer::new(nodes)),
            groups,
            cleaning: Cleaning::default(),
        }
    }
}
