//! Who listens for requests, and who rests.
//!
//! ```text
//!                call                take
//!     parked ───────────► listening ──────► working
//!        ▲                    ▲                │
//!        │ spare              └────────────────┤
//!        └─────────────────────────────────────┘
//! ```
//!
//! A second listener is no gift: the kernel wakes whichever waits longest, on whatever processor
//! that one slept, and a lone reader of small pieces then finds its answers computed far from home.
//! So one worker listens as long as it keeps up. Whoever takes a request and leaves nobody
//! listening asks itself whether the request may take long, and if so calls a colleague before it
//! starts. A worker that finds others listening whenever it takes a request is spare and rests.
//! Where callers take turns, two listeners are better than one however quick they are, for a caller
//! on another processor need not wait for this one: then a colleague is called, and nobody rests.
//!
//! Sometimes work that looked short is long. While requests come in, one of the parked workers keeps
//! watch: it wakes from time to time, and when nothing was taken since and nobody listens, it takes
//! over. When the requests cease, it sleeps like the others.
//!
//! Parked workers rest on a stack, so that the same few work, and only those need buffers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// Requests in a row for which a worker was not needed, after which it rests. Resting and being
/// called cost about as much as two requests, so they should be rare beside requests.
const SPARE: u32 = 32;

/// How often the watch looks up: a request waits no longer than two of these while workers rest.
const WATCH: Duration = Duration::from_millis(5);

/// Requests that lately took longer than this on average are worth a second listener: it is several
/// times what waking one costs.
const SLOW: Duration = Duration::from_micros(50);

/// The most that one request counts for in the average. A worker that the system put aside for a
/// while does not make a slow medium; three slow requests in a row do.
const SLOW_MAX: Duration = Duration::from_micros(200);

/// Weight of the past in the average.
const PAST: u32 = 7;

/// The workers of a session.
#[derive(Debug, Default)]
pub struct Rota {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Workers that listen, are about to, or were called to.
    listening: usize,
    parked: Vec<Thread>,
    /// Whether the worker on top of the stack keeps watch.
    watched: bool,
    /// Requests taken so far.
    taken: u64,
    /// Time that requests took lately, on average.
    average: Duration,
    ended: bool,
}

/// A worker on the rota. Dropping it takes the worker off, and calls another if it was the last to
/// listen.
pub struct Shift<'a> {
    rota: &'a Rota,
    /// Requests in a row that others could have taken.
    spare: u32,
    listening: bool,
}

impl Rota {
    /// Puts the calling thread on the rota, and returns when it is to listen; `None` when that will
    /// not happen any more.
    pub fn join(&self) -> Option<Shift<'_>> {
        let mut shift = Shift {
            rota: self,
            spare: 0,
            listening: false,
        };
        let mut state = self.lock();
        if state.listening == 0 && !state.ended {
            state.listening = 1;
            shift.listening = true;
            return Some(shift);
        }
        shift.park(state).then_some(shift)
    }

    /// Sends everyone home who rests; those who work or listen find out from the device.
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.parked.drain(..).for_each(|thread| thread.unpark());
    }

    /// Nothing panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Calls the worker on top of the stack.
    fn call(&mut self) {
        if let Some(thread) = self.parked.pop() {
            self.watched = false;
            self.listening += 1;
            thread.unpark();
        }
    }

    /// Has the worker on top of the stack keep watch.
    fn call_the_watch(&mut self) {
        if let Some(thread) = self.parked.last().filter(|_| !self.watched) {
            thread.unpark();
            self.watched = true;
        }
    }

    /// Puts a worker on top of the stack, where it keeps watch, and returns what it saw: the number
    /// of requests taken.
    fn rest(&mut self, me: &Thread) -> Option<u64> {
        if self.ended {
            return None;
        }
        self.parked.push(me.clone());
        self.watched = true;
        Some(self.taken)
    }

    /// What a worker does that wakes in the stack and saw this when it last looked. Returns what it
    /// sees if it is to keep watch.
    fn look(&mut self, me: &Thread, seen: Option<u64>) -> Option<u64> {
        let on_top = self.parked.last().is_some_and(|top| top.id() == me.id());
        if !on_top || !self.watched {
            return None;
        }
        if seen != Some(self.taken) {
            return Some(self.taken);
        }
        self.watched = false;
        if self.listening == 0 {
            self.call();
        }
        None
    }

    fn is_parked(&self, me: &Thread) -> bool {
        self.parked.iter().any(|thread| thread.id() == me.id())
    }
}

impl<'a> Shift<'a> {
    /// To be called with each request, before working on it. `crowd` says that several callers take
    /// turns; if not, and nobody else listens, `may_take_long` is asked whether other requests should
    /// not wait for this one. Says whether this worker serves one caller alone: nobody else listens,
    /// and there is no reason to call anyone.
    pub fn take(&mut self, crowd: bool, may_take_long: impl FnOnce() -> bool) -> bool {
        let mut state = self.rota.lock();
        state.taken += 1;
        state.listening -= 1;
        self.listening = false;
        let needed = crowd || state.listening == 0;
        self.spare = if needed { 0 } else { self.spare + 1 };
        if state.listening > 0 {
            return false;
        }
        let alone = !crowd && state.average <= SLOW && !may_take_long();
        if alone {
            state.call_the_watch();
        } else {
            state.call();
        }
        alone
    }

    /// To be called when the request is answered, `took` after it was taken. Returns when the worker
    /// is to listen again, at once or after a rest, and whether it is.
    pub fn resume(&mut self, took: Duration) -> bool {
        let mut state = self.rota.lock();
        state.average = (state.average * PAST + took.min(SLOW_MAX)) / (PAST + 1);
        if self.spare >= SPARE && state.listening > 0 {
            self.spare = 0;
            return self.park(state);
        }
        state.listening += 1;
        self.listening = true;
        true
    }

    /// Rests until called; false if that will not happen any more.
    fn park(&mut self, mut state: MutexGuard<'a, State>) -> bool {
        let me = thread::current();
        let mut seen = state.rest(&me);
        while state.is_parked(&me) {
            drop(state);
            match seen {
                Some(_) => thread::park_timeout(WATCH),
                None => thread::park(),
            }
            state = self.rota.lock();
            seen = state.look(&me, seen);
        }
        self.listening = !state.ended;
        self.listening
    }
}

impl Drop for Shift<'_> {
    fn drop(&mut self) {
        let mut state = self.rota.lock();
        state.listening -= usize::from(self.listening);
        if state.listening == 0 {
            state.call();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const QUICK: Duration = Duration::from_micros(5);

    /// Waits until so many workers rest.
    fn await_parked(rota: &Rota, count: usize) {
        while rota.lock().parked.len() != count {
            thread::yield_now();
        }
    }

    fn listening(rota: &Rota) -> usize {
        rota.lock().listening
    }

    #[test]
    fn one_listens_and_the_others_rest_until_the_end() {
        let rota = Rota::default();
        thread::scope(|scope| {
            let mut first = rota.join().unwrap();
            let others: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| rota.join().is_some()))
                .collect();
            await_parked(&rota, 3);
            for _ in 0..100 {
                assert!(first.take(false, || false));
                assert!(first.resume(QUICK));
            }
            assert_eq!(listening(&rota), 1);
            rota.end();
            assert!(others.into_iter().all(|other| !other.join().unwrap()));
            assert!(first.resume(QUICK), "it finds out from the device");
        });
        assert!(rota.lock().parked.is_empty());
    }

    #[test]
    fn long_work_crowds_and_a_slow_past_call_one_other() {
        type Reason = fn(&mut Shift<'_>) -> bool;
        let reasons: [Reason; 3] = [
            |shift| shift.take(false, || true),
            |shift| shift.take(true, || false),
            |shift| {
                for _ in 0..3 {
                    shift.take(false, || false);
                    shift.resume(Duration::from_secs(1));
                }
                shift.take(false, || false)
            },
        ];
        for reason in reasons {
            let rota = Rota::default();
            thread::scope(|scope| {
                let mut first = rota.join().unwrap();
                let others = [(); 2].map(|()| scope.spawn(|| rota.join().map(|_| ())));
                await_parked(&rota, 2);
                assert!(!reason(&mut first));
                // The one that was called leaves, and so calls the next, since the first works.
                await_parked(&rota, 0);
                assert!(
                    others
                        .map(|other| other.join().unwrap())
                        .iter()
                        .all(Option::is_some)
                );
            });
        }
    }

    #[test]
    fn a_worker_set_aside_once_makes_no_slow_past() {
        let rota = Rota::default();
        thread::scope(|scope| {
            let mut first = rota.join().unwrap();
            let other = scope.spawn(|| rota.join().is_some());
            await_parked(&rota, 1);
            assert!(first.take(false, || false));
            first.resume(Duration::from_secs(1));
            assert!(first.take(false, || false));
            rota.end();
            assert!(!other.join().unwrap());
        });
    }

    #[test]
    fn the_spare_one_rests_and_never_the_last() {
        let rota = Rota::default();
        thread::scope(|scope| {
            let mut first = rota.join().unwrap();
            let (go, gone) = channel();
            let rota = &rota;
            scope.spawn(move || {
                let mut second = rota.join().unwrap();
                gone.recv().unwrap();
                for _ in 0..SPARE {
                    assert!(!second.take(false, || false), "the first listens");
                    second.resume(QUICK);
                }
            });
            await_parked(rota, 1);
            assert!(!first.take(false, || true));
            first.resume(QUICK);
            go.send(()).unwrap();
            await_parked(rota, 1);
            assert_eq!(listening(rota), 1);
            assert!(first.take(false, || false));
            rota.end();
        });
    }

    #[test]
    fn crowds_keep_spare_workers_listening() {
        let rota = Rota::default();
        thread::scope(|scope| {
            let mut first = rota.join().unwrap();
            scope.spawn(|| {
                let mut second = rota.join().unwrap();
                for _ in 0..10 * SPARE {
                    second.take(true, || false);
                    second.resume(QUICK);
                }
            });
            await_parked(&rota, 1);
            first.take(false, || true);
            first.resume(QUICK);
        });
        assert!(rota.lock().parked.is_empty());
    }

    #[test]
    fn the_watch_takes_over_when_short_work_is_long() {
        let rota = Rota::default();
        let (listens, heard) = channel();
        thread::scope(|scope| {
            let mut first = rota.join().unwrap();
            for _ in 0..3 {
                let listens = listens.clone();
                let rota = &rota;
                scope.spawn(move || {
                    let shift = rota.join();
                    if shift.is_some() {
                        listens.send(()).unwrap();
                    }
                    rota.end();
                });
            }
            await_parked(&rota, 3);
            assert!(first.take(false, || false), "nobody is called");
            heard.recv().unwrap();
        });
    }

    #[test]
    fn who_leaves_calls_another() {
        let rota = Rota::default();
        thread::scope(|scope| {
            let first = rota.join().unwrap();
            let other = scope.spawn(|| rota.join().is_some());
            await_parked(&rota, 1);
            drop(first);
            assert!(other.join().unwrap());
        });
        assert_eq!(listening(&rota), 0);
    }
}
