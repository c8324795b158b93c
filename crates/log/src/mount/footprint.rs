//! Changes of the state, recognised by a summary of it.

use crate::mount::state::State;

/// See [`State::footprint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) names: usize,
    touched: usize,
    dirty: usize,
    blocks: [u64; 4],
}

impl State {
    /// Summary of the state by which changes are recognised.
    pub(crate) fn footprint(&self) -> Footprint {
        let blocks = [
            self.store.space().used(),
            self.store.space().preallocated(),
            self.store.segments().valid(),
            self.nodes.nat().used().into(),
        ];
        Footprint {
            names: self.files.unrecorded().names().len(),
            touched: self.files.unrecorded().touched().len(),
            dirty: self.store.dirty_blocks(),
            blocks,
        }
    }

    /// Bytes of changes of names that wait for a group, above which a checkpoint takes them.
    pub(crate) fn records_max(&self) -> usize {
        self.store.options().memory_bytes / 16
    }
}
