//! Work on many blocks, shared among threads.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anteros_core::unpoisoned;

/// Has `workers` threads do something with each of `count` blocks, in ranges of `unit`, the last of which may be shorter. Ends
/// with the first error, or soon when `cancel` becomes true.
pub fn each<E: Send>(
    count: u64,
    unit: u64,
    workers: usize,
    cancel: &AtomicBool,
    work: impl Fn(Range<u64>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None));
    let run = || {
        while !cancel.load(Ordering::Relaxed) {
            let start = next.fetch_add(1, Ordering::Relaxed).saturating_mul(unit);
            if start >= count {
                return;
            }
            if let Err(error) = work(start..count.min(start + unit)) {
                next.store(count, Ordering::Relaxed); // nobody begins anything
                let mut failed = unpoisoned(failed.lock());
                failed.get_or_insert(error);
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(run);
        }
        run();
    });
    let failed = unpoisoned(failed.into_inner());
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_in_one_range() {
        let seen = Mutex::new(vec![0; 1001]);
        let cancel = AtomicBool::new(false);
        each(1001, 10, 3, &cancel, |range| {
            let mut seen = seen.lock().unwrap();
            range.for_each(|n| seen[n as usize] += 1);
            Ok::<_, ()>(())
        })
        .unwrap();
        assert!(seen.into_inner().unwrap().iter().all(|count| *count == 1));
    }

    #[test]
    fn an_error_ends_it() {
        let cancel = AtomicBool::new(false);
        let failed = each(u64::MAX, 7, 2, &cancel, |range| match range.start {
            700 => Err("no more"),
            _ => Ok(()),
        });
        assert_eq!(failed, Err("no more"));
    }
}
