//! Memory that is lent to encoders in the background, instead of being used for what could be elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::store::blocks::Store;

/// Bytes that are lent.
#[derive(Default)]
pub(super) struct Lent(Arc<AtomicUsize>);

/// Memory that is given back when this is dropped.
pub(crate) struct Loan {
    lent: Arc<AtomicUsize>,
    bytes: usize,
}

impl Store {
    /// Lends memory.
    pub(crate) fn lend(&self, bytes: usize) -> Loan {
        let lent = self.lent.0.clone();
        lent.fetch_add(bytes, Ordering::Relaxed);
        Loan { lent, bytes }
    }

    /// Bytes of memory that are left: half of all at least, whatever is lent.
    pub(crate) fn memory_bytes(&self) -> usize {
        let all = self.options.memory_bytes;
        all - self.lent.0.load(Ordering::Relaxed).min(all / 2)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
