//! Locks that outlive a panic.

use std::sync::{Mutex, MutexGuard};

use anteros_core::unpoisoned;

/// Locks, whoever panicked before: no state here is left half changed by calls that can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}
