//! Memory that is lent to encoders in the background, instead of being used for what could be elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are lent.
#[derive(Default)]
pub(super) struct Lent(Arc<AtomicUsize>);

impl Lent {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn lend(&self, bytes: usize) -> Loan {
        let lent = self.0.clone();
        lent.fetch_add(bytes, Ordering::Relaxed);
        Loan { lent, bytes }
    }
}

/// Memory that is given back when this is dropped.
pub(crate) struct Loan {
    lent: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
