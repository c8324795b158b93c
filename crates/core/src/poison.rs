//! Locks that a thread held when it panicked.

use std::sync::{LockResult, PoisonError};

/// Returns what a lock guards, even if a thread panicked while it held the lock.
///
/// The panic is told where that thread ends. Those that come after it go on with the state that it left.
pub fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_lock_outlives_a_panic() {
        let mutex = Mutex::new(1);
        let panics = AssertUnwindSafe(|| {
            let mut number = mutex.lock().unwrap();
            *number = 2;
            resume_unwind(Box::new("while the lock is held"));
        });
        assert!(catch_unwind(panics).is_err());
        assert!(mutex.is_poisoned());
        assert_eq!(*unpoisoned(mutex.lock()), 2);
    }
}
