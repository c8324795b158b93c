//! Accounting of used and reserved blocks.
//!
//! Every logical block counts from the moment that it is written, preallocated or made as a node, long before it has a
//! place: who is refused is refused then, and a write that was accepted finds its room. When it has been compressed it
//! counts no more, but the packed block does that it lies in with others.
//!
//! Invariant L10 of `docs/design/log.md`: a write that was accepted finds room.

use anteros_core::{FsError, FsResult};

/// The blocks of the main area that users may fill.
#[derive(Debug)]
pub(crate) struct Space {
    capacity: u64,
    /// Up to where it may be filled now.
    limit: u64,
    /// Up to where the device has room for it, for sure.
    backed: u64,
    /// Tells whether the device has no more.
    is_store_full: bool,
    used: u64,
    /// Of the used ones: those that are preallocated and hold nothing yet.
    preallocated: u64,
}

impl Space {
    pub(crate) fn new(capacity: u64, used: u64, preallocated: u64) -> Self {
        Self {
            capacity,
            limit: capacity,
            backed: u64::MAX,
            is_store_full: false,
            used,
            preallocated,
        }
    }

    /// Allows more than users may fill while what was done once is done again, in another order.
    pub(crate) fn stretch(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Ends that.
    pub(crate) fn relax(&mut self) {
        self.limit = self.capacity;
    }

    /// Notes up to where the device has room for it, and whether it has no more.
    pub(super) fn set_backed(&mut self, backed: u64, is_store_full: bool) {
        self.backed = backed;
        self.is_store_full = is_store_full;
    }

    /// Checks that so many blocks can be taken. More may be used than users may fill, by packed blocks with few valid slots:
    /// who takes none is not refused for that.
    pub(crate) fn check(&self, blocks: u64) -> FsResult<()> {
        let limit = self.limit.min(self.backed);
        match blocks > limit.saturating_sub(self.used) {
            true => Err(FsError::NoSpace),
            false => Ok(()),
        }
    }

    /// Tells whether no more is used than may be.
    pub(crate) fn is_kept(&self) -> bool {
        self.used <= self.limit.min(self.backed)
    }

    pub(crate) fn take(&mut self, blocks: u64) -> FsResult<()> {
        self.check(blocks)?;
        self.used += blocks;
        Ok(())
    }

    /// Counts blocks that are there already: they take the place of others that were counted.
    pub(crate) fn charge(&mut self, blocks: u64) {
        self.used += blocks;
    }

    pub(crate) fn give(&mut self, blocks: u64) {
        self.used = self.used.saturating_sub(blocks);
    }

    pub(crate) fn preallocate(&mut self, blocks: u64) {
        self.preallocated += blocks;
    }

    pub(crate) fn fill_preallocated(&mut self, blocks: u64) {
        self.preallocated = self.preallocated.saturating_sub(blocks);
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn preallocated(&self) -> u64 {
        self.preallocated
    }

    pub(crate) fn free(&self) -> u64 {
        let limit = match self.is_store_full {
            true => self.capacity.min(self.backed),
            false => self.capacity,
        };
        limit.saturating_sub(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_no_block_is_never_refused() {
        let mut space = Space::new(10, 0, 0);
        space.take(10).unwrap();
        assert!(space.take(1).is_err());
        space.charge(3);
        space.take(0).unwrap();
        assert!(space.take(1).is_err());
        space.give(4);
        space.take(1).unwrap();
        assert!(space.take(u64::MAX).is_err());
    }
}
