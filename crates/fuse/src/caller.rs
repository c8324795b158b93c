//! Who asks: one thread or several at once, and on which processor.
//!
//! A small request is answered in a few microseconds, but waking a worker on a processor that sleeps
//! takes tens of them. So a worker that serves alone follows its caller: it stays on the processor
//! where the caller runs, which is free for it, since the caller waits. As soon as others listen
//! too, every worker may run anywhere again.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often a worker looks where its caller is, in requests: a look costs about as much as one.
const LOOK: u32 = 32;

/// What a change of the caller counts for, against one request of the same. Processes that run one
/// after the other and ask a few things each are no crowd.
const CHANGE: u32 = 2;
/// From here on callers are taken to ask at the same time.
const CROWD: u32 = 16;
/// As high as it counts.
const CROWD_MAX: u32 = 64;

/// Tells one caller from a crowd.
#[derive(Debug, Default)]
pub struct Callers {
    last: u32,
    changes: u32,
}

impl Callers {
    /// Counts a request of the thread `tid`.
    pub fn count(&mut self, tid: u32) {
        self.changes = if tid == self.last {
            self.changes.saturating_sub(1)
        } else {
            (self.changes + CHANGE).min(CROWD_MAX)
        };
        self.last = tid;
    }

    /// Whether several threads take turns.
    pub fn are_many(&self) -> bool {
        self.changes > CROWD
    }
}

/// The processors on which the calling thread may run. They are given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    /// Where it might run in the beginning.
    anywhere: Option<CpuSet>,
    /// The one processor to which it keeps.
    kept: Option<usize>,
    /// Where the caller was when last looked for.
    seen: Option<usize>,
    requests: u32,
}

impl Place {
    /// The calling thread's, wherever it may run.
    pub fn new() -> Self {
        Self {
            anywhere: sched_getaffinity(None).ok(),
            kept: None,
            seen: None,
            requests: 0,
        }
    }

    /// Keeps to the processor of the thread `tid`, if it was found on the same one twice.
    pub fn follow(&mut self, tid: u32) {
        self.requests = self.requests.wrapping_add(1);
        if self.requests % LOOK != 0 {
            return;
        }
        let here = processor(tid);
        if here == self.seen && here != self.kept {
            here.into_iter()
                .for_each(|processor| self.keep_to(processor));
        }
        self.seen = here;
    }

    fn keep_to(&mut self, processor: usize) {
        let allowed = |all: &CpuSet| processor < CpuSet::MAX_CPU && all.is_set(processor);
        if !self.anywhere.as_ref().is_some_and(allowed) {
            return;
        }
        let mut one = CpuSet::new();
        one.set(processor);
        if sched_setaffinity(None, &one).is_ok() {
            self.kept = Some(processor);
        }
    }

    /// Runs anywhere again.
    pub fn roam(&mut self) {
        if let (Some(_), Some(all)) = (self.kept.take(), &self.anywhere) {
            // It was allowed before; if not any more, the kernel knows better.
            let _ = sched_setaffinity(None, all);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.roam();
    }
}

/// The processor on which a thread last ran: the 39th field of its `stat`, the 37th after the name,
/// which is in parentheses and may contain anything. Threads of other containers are not seen.
fn processor(tid: u32) -> Option<usize> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use rustix::thread::gettid;

    use super::*;

    #[test]
    fn taking_turns_makes_a_crowd_and_following_each_other_does_not() {
        let mut callers = Callers::default();
        for i in 0..1000 {
            callers.count(i / 4);
            assert!(!callers.are_many(), "four requests each");
        }
        (0..20).for_each(|i| callers.count(i % 2));
        assert!(callers.are_many(), "two threads, twenty requests");
        (0..CROWD_MAX).for_each(|_| callers.count(7));
        assert!(!callers.are_many(), "one is left");
    }

    #[test]
    fn keeps_to_the_processor_of_the_caller_and_gives_the_others_back() {
        let before = sched_getaffinity(None).unwrap();
        let mut place = Place::new();
        let tid = gettid().as_raw_nonzero().get() as u32;
        // A thread is where it is: pinned by the first success, it stays to be found there again.
        while place.kept.is_none() {
            place.follow(tid);
        }
        let now = sched_getaffinity(None).unwrap();
        assert_eq!(now.count(), 1);
        assert!(now.is_set(place.kept.unwrap()));
        drop(place);
        assert!(sched_getaffinity(None).unwrap() == before);
    }

    #[test]
    fn threads_that_cannot_be_seen_are_not_followed() {
        assert_eq!(processor(u32::MAX), None);
        let mut place = Place::new();
        (0..4 * LOOK).for_each(|_| place.follow(u32::MAX));
        assert_eq!(place.kept, None);
    }
}
