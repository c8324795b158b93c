//! A pool of threads that takes jobs and gives back their results in the order of the jobs.
//!
//! The caller submits and takes on one thread. Each job has its own channel for its result, and
//! the queue of these channels is the order; a worker that panics drops its channel, and the caller
//! does not wait for ever. How many bytes may be under way is the caller's budget: each job
//! has a cost, from its submission until its result is taken.
//!
//! Invariant B1 of `docs/design/building.md`: the same source and options give the same bytes, whatever the workers,
//! the memory and the order in which directories are listed.
//!
//! Invariant B7 of `docs/design/building.md`: content under way keeps to its budget.

use std::collections::VecDeque;
use std::thread;

use crossbeam_channel::{Receiver, Select, Sender, TryRecvError, bounded, unbounded};

/// Jobs under way.
pub(crate) struct Ordered<J, R> {
    jobs: Sender<(J, Sender<R>)>,
    results: VecDeque<(Receiver<R>, u64)>,
    under_way: u64,
    budget: u64,
}

/// A job aside.
pub(crate) struct Aside<R>(Receiver<R>);

/// Waits until the result of one of some jobs aside is there. There is one at the least.
pub(crate) fn wait_for_any<'a, R: 'a>(jobs: impl Iterator<Item = &'a Aside<R>>) {
    let mut select = Select::new();
    for Aside(receiver) in jobs {
        select.recv(receiver);
    }
    select.ready();
}

impl<R> Aside<R> {
    /// The result, if it is there already.
    pub fn try_take(&self) -> Option<R> {
        match self.0.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("a worker has panicked"),
        }
    }

    /// Waits for the result.
    pub fn take(self) -> R {
        self.0.recv().expect("a worker has panicked")
    }
}

/// Runs `body` with `workers` threads, each of which does jobs with a function of its own.
pub(crate) fn with_workers<J, R, W, T>(
    workers: usize,
    budget: u64,
    new_worker: impl Fn() -> W,
    body: impl FnOnce(&mut Ordered<J, R>) -> T,
) -> T
where
    J: Send,
    R: Send,
    W: FnMut(J) -> R + Send,
{
    let (jobs, queue) = unbounded::<(J, Sender<R>)>();
    thread::scope(|scope| {
        for _ in 0..workers {
            let queue = queue.clone();
            let mut work = new_worker();
            scope.spawn(move || {
                for (job, result) in queue {
                    // Nobody waits for it if the caller has failed meanwhile.
                    let _ = result.send(work(job));
                }
            });
        }
        let done = body(&mut Ordered {
            jobs,
            results: VecDeque::new(),
            under_way: 0,
            budget,
        });
        // After a failure nobody waits for the rest.
        queue.try_iter().for_each(drop);
        done
    })
}

impl<J, R> Ordered<J, R> {
    /// Returns whether no job is under way, but for those aside.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Jobs under way, but for those aside.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns whether a job of this cost may be submitted; one always may.
    pub fn has_room(&self, cost: u64) -> bool {
        self.results.is_empty() || self.under_way + cost <= self.budget
    }

    /// Submits a job.
    pub fn submit(&mut self, job: J, cost: u64) {
        let (result, receiver) = bounded(1);
        self.under_way += cost;
        self.results.push_back((receiver, cost));
        self.jobs
            .send((job, result))
            .expect("workers live as long as the jobs' channel");
    }

    /// Submits a job whose result comes by a way of its own, and is no part of the order or the budget.
    pub fn submit_aside(&mut self, job: J) -> Aside<R> {
        let (result, receiver) = bounded(1);
        self.jobs
            .send((job, result))
            .expect("workers live as long as the jobs' channel");
        Aside(receiver)
    }

    /// Waits for the result of the oldest job; `None` if there is none.
    pub fn take(&mut self) -> Option<R> {
        let (receiver, cost) = self.results.pop_front()?;
        self.under_way -= cost;
        Some(receiver.recv().expect("a worker has panicked"))
    }

    /// The result of the oldest job, if it is there already.
    pub fn try_take(&mut self) -> Option<R> {
        let (receiver, cost) = self.results.front()?;
        let result = receiver.try_recv().ok()?;
        self.under_way -= cost;
        self.results.pop_front();
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant B7 of `docs/design/building.md`.
    #[test]
    fn results_come_in_order_within_the_budget() {
        for workers in 1..=4 {
            let slow_if_even = |n: u64| {
                if n % 2 == 0 {
                    thread::yield_now();
                }
                n
            };
            let results = with_workers(
                workers,
                5,
                || slow_if_even,
                |pool| {
                    let mut results = Vec::new();
                    for n in 0..100 {
                        while !pool.has_room(2) {
                            results.extend(pool.take());
                        }
                        pool.submit(n, 2);
                        assert!(pool.under_way <= 5);
                    }
                    results.extend(std::iter::from_fn(|| pool.take()));
                    results
                },
            );
            assert!(results.into_iter().eq(0..100));
        }
    }

    #[test]
    fn of_jobs_aside_whichever_is_done_first_is_waited_for() {
        let (release, released) = bounded::<()>(1);
        let work = |is_slow: bool| {
            if is_slow {
                released.recv().unwrap();
            }
        };
        with_workers(
            2,
            0,
            || work,
            |pool| {
                let jobs = [true, false].map(|is_slow| pool.submit_aside(is_slow));
                wait_for_any(jobs.iter());
                assert_eq!((jobs[0].try_take(), jobs[1].try_take()), (None, Some(())));
                release.send(()).unwrap();
                let [slow, _] = jobs;
                assert_eq!(slow.take(), ());
            },
        );
    }

    /// A job that tells when it is dropped.
    struct Told(Sender<()>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn jobs_that_nobody_waits_for_are_not_done() {
        let (begun, begins) = bounded::<()>(1);
        let (dropped, drops) = unbounded();
        let work = |job: Told| {
            begun.send(()).unwrap();
            (0..9).for_each(|_| drops.recv().unwrap());
            drop(job);
        };
        with_workers(
            1,
            100,
            || work,
            |pool| {
                (0..10).for_each(|_| pool.submit(Told(dropped.clone()), 1));
                begins.recv().unwrap();
            },
        );
        assert_eq!(drops.len(), 1, "the first job alone was done");
    }

    /// Invariant B7 of `docs/design/building.md`.
    #[test]
    fn a_job_beyond_the_budget_runs_alone() {
        with_workers(
            2,
            5,
            || |n: u64| n,
            |pool| {
                assert!(pool.has_room(1000));
                pool.submit(7, 1000);
                assert!(!pool.has_room(1));
                assert_eq!(pool.take(), Some(7));
                assert_eq!(pool.take(), None);
            },
        );
    }

    #[test]
    #[should_panic(expected = "panicked")]
    fn a_worker_that_panics_aside_is_not_asked_again_and_again() {
        with_workers(
            1,
            5,
            || |()| -> () { panic!("on purpose") },
            |pool| {
                let job = pool.submit_aside(());
                wait_for_any([&job].into_iter());
                job.try_take()
            },
        );
    }

    #[test]
    #[should_panic(expected = "panicked")]
    fn a_worker_that_panics_is_not_waited_for() {
        with_workers(
            1,
            5,
            || |()| -> () { panic!("on purpose") },
            |pool| {
                pool.submit((), 1);
                pool.take();
            },
        );
    }
}
