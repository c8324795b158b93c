//! Requests that are tried again until nothing blocks them: to open a file that somebody has a lease on, for one.
//!
//! Another process may hold a lease for as long as it likes. A thread that blocks in open() can serve nobody else,
//! so a blocked request is answered without blocking, again and again with a pause in between. It ends when the lease
//! is gone or the caller is interrupted. The number of blocked requests is limited, for each user and in all; one that
//! exceeds the limit fails with EAGAIN.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use anteros_core::unpoisoned;
use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::proto::{InHeader, op};

/// Bytes of the answer to a request that can be blocked: an OPEN or a SETATTR.
pub const PAYLOAD_LEN: usize = 4096;

/// The first pause, and the longest: each is twice as long as the last.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// The largest numbers of blocked requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of one user.
    pub of_user: usize,
    /// Of all users.
    pub of_all: usize,
}

/// The limits where each blocked request has a thread of its own.
pub const WITH_THREADS: Limits = Limits {
    of_user: 64,
    of_all: 1024,
};

/// The requests that are blocked now.
#[derive(Debug, Default)]
pub struct BlockedRequests {
    state: Mutex<State>,
    /// A request was interrupted, or the mount is gone.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The mount is gone.
    is_closed: bool,
    /// By the requests' `unique` numbers.
    requests: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    uid: u32,
    is_interrupted: bool,
}

/// One blocked request. It counts until this is dropped.
#[derive(Debug)]
pub struct BlockedRequest<'a> {
    all: &'a BlockedRequests,
    unique: u64,
    pause: std::cell::Cell<Duration>,
}

impl BlockedRequests {
    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    /// Adds a request; EAGAIN if there are too many already.
    pub fn add(&self, request: &[u8], limits: Limits) -> Result<BlockedRequest<'_>, Errno> {
        let (header, _) = InHeader::read_from_prefix(request).map_err(|_| Errno::INVAL)?;
        let (unique, uid) = (header.unique, header.uid);
        let mut state = self.lock();
        let of_user = state.requests.values().filter(|entry| entry.uid == uid);
        if of_user.count() >= limits.of_user || state.requests.len() >= limits.of_all {
            return Err(Errno::AGAIN);
        }
        let entry = Entry {
            uid,
            is_interrupted: false,
        };
        state.requests.insert(unique, entry);
        Ok(BlockedRequest {
            all: self,
            unique,
            pause: PAUSE_MIN.into(),
        })
    }

    /// Marks the request that an INTERRUPT names, if this is one: it ends with EINTR.
    pub fn interrupt(&self, request: &[u8]) {
        let Ok((header, body)) = InHeader::read_from_prefix(request) else {
            return;
        };
        if header.opcode != op::INTERRUPT {
            return;
        }
        let Ok((unique, _)) = u64::read_from_prefix(body) else {
            return;
        };
        if let Some(entry) = self.lock().requests.get_mut(&unique) {
            entry.is_interrupted = true;
            self.changed.notify_all();
        }
    }

    /// Ends all requests with EINTR.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl State {
    fn is_over(&self, unique: u64) -> bool {
        let entry = self.requests.get(&unique);
        self.is_closed || entry.is_none_or(|entry| entry.is_interrupted)
    }
}

impl BlockedRequest<'_> {
    /// The `unique` number of the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Pauses, longer each time; EINTR if the request was interrupted or the mount is gone.
    pub fn pause(&self) -> Result<(), Errno> {
        let pause = self.pause.get();
        self.pause.set(PAUSE_MAX.min(pause * 2));
        let goes_on = |state: &mut State| !state.is_over(self.unique);
        let paused = self
            .all
            .changed
            .wait_timeout_while(self.all.lock(), pause, goes_on);
        let (state, _) = unpoisoned(paused);
        match state.is_over(self.unique) {
            true => Err(Errno::INTR),
            false => Ok(()),
        }
    }
}

impl Drop for BlockedRequest<'_> {
    fn drop(&mut self) {
        self.all.lock().requests.remove(&self.unique);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    fn request(unique: u64, uid: u32, opcode: u32, body: u64) -> Vec<u8> {
        let header = InHeader {
            opcode,
            unique,
            uid,
            ..InHeader::new_zeroed()
        };
        [header.as_bytes(), body.as_bytes()].concat()
    }

    #[test]
    fn no_user_has_more_requests_blocked_than_the_limit() {
        let all = BlockedRequests::default();
        let limits = Limits {
            of_user: 2,
            of_all: 3,
        };
        let add = |unique, uid| all.add(&request(unique, uid, op::OPEN, 0), limits);
        let first = add(1, 7).unwrap();
        let _second = add(2, 7).unwrap();
        assert_eq!(add(3, 7).unwrap_err(), Errno::AGAIN);
        let _other = add(4, 8).unwrap();
        assert_eq!(add(5, 9).unwrap_err(), Errno::AGAIN, "of all users");
        drop(first);
        assert!(add(6, 7).is_ok());
    }

    #[test]
    fn an_interrupted_request_ends() {
        let all = BlockedRequests::default();
        let add = |unique| all.add(&request(unique, 7, op::OPEN, 0), WITH_THREADS);
        let (one, other) = (add(2).unwrap(), add(4).unwrap());
        all.interrupt(&request(3, 7, op::FORGET, 2));
        all.interrupt(&request(3, 7, op::INTERRUPT, 99));
        assert_eq!((one.pause(), other.pause()), (Ok(()), Ok(())));
        all.interrupt(&request(3, 7, op::INTERRUPT, 2));
        assert_eq!((one.pause(), other.pause()), (Err(Errno::INTR), Ok(())));
        all.close();
        assert_eq!(other.pause(), Err(Errno::INTR));
    }
}
