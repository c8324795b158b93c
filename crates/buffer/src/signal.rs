//! Signals that the management thread waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use anteros_core::unpoisoned;

use crate::lock::lock;
use crate::statistics::Reason;

#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    wake: Condvar,
    /// Tells whether a call is on its way, so that only the first of many writers takes the lock.
    raised: AtomicBool,
    /// Tells whether the thread sleeps without a time limit.
    asleep: AtomicBool,
}

#[derive(Default)]
struct State {
    reason: Option<Reason>,
    stop: bool,
}

/// Tells why the thread goes on.
pub(crate) enum Call {
    /// Someone wants a flush.
    Flush(Reason),
    /// The time is up, or there is something to keep the time for.
    Time,
    /// The layer is being shut down.
    Stop,
}

impl Signal {
    /// Asks for a flush of everything.
    pub(crate) fn raise(&self, reason: Reason) {
        if self.raised.swap(true, Ordering::SeqCst) {
            return;
        }
        lock(&self.state).reason = Some(reason);
        self.wake.notify_one();
    }

    /// Something is buffered, where nothing was: a sleeping thread has to keep the time again.
    pub(crate) fn rouse(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            drop(lock(&self.state));
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
        self.asleep.store(false, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Waits for a call, or for so long.
    pub(crate) fn wait(&self, timeout: Duration) -> Call {
        let state = lock(&self.state);
        let (state, _) = unpoisoned(self.wake.wait_timeout_while(state, timeout, |state| {
            !state.stop && state.reason.is_none()
        }));
        self.answer(state)
    }

    /// Waits for a call or for something to be buffered; `idle` says, after whoever buffers can see the
    /// sleeper, whether nothing is.
    pub(crate) fn sleep(&self, idle: impl FnOnce() -> bool) -> Call {
        let state = lock(&self.state);
        self.asleep.store(true, Ordering::SeqCst);
        if !idle() {
            self.asleep.store(false, Ordering::SeqCst);
        }
        let state = unpoisoned(self.wake.wait_while(state, |state| {
            !state.stop && state.reason.is_none() && self.asleep.load(Ordering::SeqCst)
        }));
        self.asleep.store(false, Ordering::SeqCst);
        self.answer(state)
    }

    fn answer(&self, mut state: MutexGuard<'_, State>) -> Call {
        if state.stop {
            return Call::Stop;
        }
        let reason = state.reason.take();
        if reason.is_some() {
            self.raised.store(false, Ordering::SeqCst);
        }
        reason.map_or(Call::Time, Call::Flush)
    }
}
