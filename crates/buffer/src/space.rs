//! Space for what is accepted before anyone knows whether it can be written: no more than is free.
//!
//! Invariant W8 of `docs/design/bfuse.md`: no more is accepted than there is space for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anteros_core::{FsResult, StatFs};

use crate::lock::lock;

/// For how long the answer of `statfs` is believed.
const TRUSTED_FOR: Duration = Duration::from_millis(50);

pub(crate) struct Space {
    /// Holds what is left alone, for what the file system itself needs to keep track of the data.
    margin: u64,
    /// Charged for data that was accepted and is not yet written or given up.
    outstanding: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    at: Option<Instant>,
    left: u64,
    block_size: u64,
}

impl Known {
    /// Takes what writing so many bytes anywhere may cost: blocks are allocated whole, and the data
    /// may begin and end inside one.
    fn charge(&mut self, len: u64) -> Option<u64> {
        let charge = len.next_multiple_of(self.block_size) + self.block_size;
        self.left = self.left.checked_sub(charge)?;
        Some(charge)
    }
}

impl Space {
    pub(crate) fn new(margin: u64) -> Self {
        Self {
            margin,
            outstanding: AtomicU64::new(0),
            known: Mutex::default(),
        }
    }

    /// Reserves space for so many bytes, if it is known to be there; returns what to give back with
    /// [`done`](Self::done). `statfs` is asked while others wait for this lock, so that none of them
    /// reserves what its answer counted.
    pub(crate) fn reserve(
        &self,
        len: usize,
        now: Instant,
        statfs: impl FnOnce() -> FsResult<StatFs>,
    ) -> Option<u64> {
        let mut known = lock(&self.known);
        let fresh = known
            .at
            .is_some_and(|at| now.saturating_duration_since(at) < TRUSTED_FOR);
        let mut charge = if fresh {
            known.charge(len as u64)
        } else {
            None
        };
        if charge.is_none() {
            // Read first: what is written meanwhile is then counted twice, not left out.
            let outstanding = self.outstanding.load(Ordering::SeqCst);
            known.at = None;
            let stat = statfs().ok()?;
            let block_size = u64::from(stat.block_size.max(1));
            *known = Known {
                at: Some(now),
                left: stat
                    .blocks_available
                    .saturating_mul(block_size)
                    .saturating_sub(outstanding)
                    .saturating_sub(self.margin),
                block_size,
            };
            charge = known.charge(len as u64);
        }
        let charge = charge?;
        self.outstanding.fetch_add(charge, Ordering::SeqCst);
        Some(charge)
    }

    /// The data was written or given up.
    pub(crate) fn done(&self, charge: u64) {
        self.outstanding.fetch_sub(charge, Ordering::SeqCst);
    }

    /// Space was used in another way: what was known is out of date.
    pub(crate) fn expire(&self) {
        lock(&self.known).at = None;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anteros_core::FsError;

    use super::*;

    fn stat(blocks_available: u64) -> FsResult<StatFs> {
        Ok(StatFs {
            block_size: 4096,
            blocks: 1000,
            blocks_free: blocks_available,
            blocks_available,
            files: 0,
            files_free: 0,
            name_max: 255,
        })
    }

    #[test]
    fn no_more_than_is_free_is_reserved() {
        let space = Space::new(4096);
        let now = Instant::now();
        let first = space.reserve(4096, now, || stat(5)).unwrap();
        assert_eq!(first, 8192);
        let asked = Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            stat(5)
        };
        assert!(space.reserve(1, now, ask).is_some());
        assert_eq!(asked.get(), 0, "believed for a while");
        assert!(space.reserve(1, now, ask).is_none());
        assert_eq!(asked.get(), 1, "asked again when short");
        space.done(first);
        assert!(space.reserve(1, now, ask).is_some(), "given back");
        let later = now + TRUSTED_FOR;
        assert!(space.reserve(1, later, || stat(0)).is_none());
        assert!(
            space
                .reserve(1, later, || Err(FsError::Unsupported))
                .is_none()
        );
    }
}
