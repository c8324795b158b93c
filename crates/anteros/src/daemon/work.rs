//! Work that is ordered through an attribute, and done by a thread of its own.
//!
//! Cleaning and compression take long, and the kernel locks a directory while an attribute of it is set: so an order is taken at
//! once, and whoever gave it asks for the end.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use anteros_core::{FsError, unpoisoned};
use rustix::io::Errno;

/// Progress of ordered work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of orders.
    pub orders: u64,
    /// Orders up to this one are done.
    pub done: u64,
    /// Results of the last order, or those so far.
    pub counts: Vec<u64>,
    /// Why it failed the last time.
    pub failure: Option<String>,
}

/// Work that is ordered, and done by a thread of its own.
#[derive(Default)]
pub struct Work<T> {
    pub progress: Progress,
    pub what: T,
    pub worker: Option<JoinHandle<()>>,
}

impl Progress {
    /// Value of the attribute.
    pub fn text(&self) -> String {
        let Self {
            orders,
            done,
            counts,
            failure,
        } = self;
        let mut text = format!("{orders} {done}");
        for count in counts {
            let _ = write!(text, " {count}");
        }
        let _ = write!(text, "\n{}", failure.as_deref().unwrap_or_default());
        text
    }

    /// Parses the value of such an attribute.
    pub fn parse(text: &str) -> Option<Self> {
        let (numbers, failure) = text.split_once('\n')?;
        let numbers: Result<Vec<u64>, _> = numbers.split(' ').map(str::parse).collect();
        let (&[orders, done], counts) = numbers.as_ref().ok()?.split_first_chunk()?;
        Some(Self {
            orders,
            done,
            counts: counts.to_vec(),
            failure: Some(failure.to_owned()).filter(|failure| !failure.is_empty()),
        })
    }

    /// Tells whether an order is not done.
    pub fn goes_on(&self) -> bool {
        self.done < self.orders
    }

    /// One of the counts; zero as long as there is none.
    pub fn count(&self, which: usize) -> u64 {
        self.counts.get(which).copied().unwrap_or(0)
    }
}

impl<T> Work<T> {
    /// Takes an order, and begins the thread that does it if there is none.
    pub fn begin(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
        // Who works already sees the order before it ends, for it asks under the same lock.
        if self.progress.orders == self.progress.done {
            let begun = thread::Builder::new().name(name.into()).spawn(work);
            let begun = begun.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
            self.worker = Some(begun);
        }
        self.progress.orders += 1;
        Ok(())
    }

    /// An order is done, and those before. The next one, if there is any.
    pub fn end(&mut self, order: u64, counts: Vec<u64>, failure: Option<FsError>) -> Option<u64> {
        let progress = &mut self.progress;
        progress.done = order;
        progress.counts = counts;
        progress.failure = failure.map(|error| error.to_string());
        (progress.orders > order).then_some(progress.orders)
    }
}

/// Takes a lock, whatever became of who had it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_as_it_is() {
        let failed = Progress {
            orders: 3,
            done: 2,
            counts: vec![7, 0],
            failure: Some("a b".into()),
        };
        for progress in [failed, Progress::default()] {
            assert_eq!(Progress::parse(&progress.text()), Some(progress));
        }
        assert_eq!(Progress::parse("1\n"), None);
        assert_eq!(Progress::parse("1 x\n"), None);
    }
}
