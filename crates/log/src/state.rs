//! State of a mounted log: what the floors own, in one place.
//!
//! All of it lies behind one lock. Every operation leaves it whole: what an operation cannot do it refuses
//! before it has changed anything.
//!
//! The fields of an owner are private to the folder of its floor. What needs several owners is a method of the state, in
//! the folder of the highest of them.

use crate::cleaning::Cleaning;
use crate::durable::Groups;
use crate::files::Files;
use crate::nodes::Nodes;
use crate::packing::Packer;
use crate::store::Store;

/// A mounted log, an owner for each floor from the lowest on.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) nodes: Nodes,
    pub(crate) packer: Packer,
    pub(crate) files: Files,
    pub(crate) groups: Groups,
    pub(crate) cleaning: Cleaning,
}

impl State {
    /// A log of which nothing is in memory yet, and nothing newer than the checkpoint.
    pub(crate) fn new(store: Store, nodes: Nodes, groups: Groups) -> Self {
        Self {
            store,
            nodes,
            packer: Packer::default(),
            files: Files::default(),
            groups,
            cleaning: Cleaning::default(),
        }
    }

    /// Takes the faults that were found since this was called last, and what there was to note.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = self.store.take_warnings();
        warnings.append(&mut self.nodes.nat_mut().take_warnings());
        warnings
    }
}
