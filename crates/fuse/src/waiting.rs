//! Requests that wait for what others do with a file: to open it where somebody has a lease, for one.
//!
//! That may take as long as they like. No call is made that would wait with them, as whoever makes it could serve nobody else:
//! such a request is answered once more after a pause, until nobody is in the way, or the caller has lost patience. There is a
//! limit to how many a user may have wait, and to all of them; beyond it they are told that it cannot be now.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::proto::{InHeader, op};

/// Bytes of an answer to what may have to wait: to be opened, or to have attributes changed.
pub const PAYLOAD_LEN: usize = 4096;

/// The first pause, and the longest: each is twice as long as the last.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Describes how many may wait.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of one user.
    pub of_user: usize,
    /// Of all.
    pub of_all: usize,
}

/// States how many may wait where each has a thread of its own.
pub const ASIDE: Limits = Limits {
    of_user: 64,
    of_all: 1024,
};

/// Those who wait.
#[derive(Debug, Default)]
pub struct WaitingRoom {
    state: Mutex<State>,
    /// Somebody is to wait no longer.
    called: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The mount is gone.
    is_closed: bool,
    /// By the numbers of the requests.
    waiting: HashMap<u64, Guest>,
}

#[derive(Debug)]
struct Guest {
    uid: u32,
    is_interrupted: bool,
}

/// One who waits, as long as this is there.
#[derive(Debug)]
pub struct Waiting<'a> {
    room: &'a WaitingRoom,
    unique: u64,
    pause: std::cell::Cell<Duration>,
}

impl WaitingRoom {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request wait, unless too many do already: that is EAGAIN.
    pub fn enter(&self, request: &[u8], limits: Limits) -> Result<Waiting<'_>, Errno> {
        let (header, _) = InHeader::read_from_prefix(request).map_err(|_| Errno::INVAL)?;
        let (unique, uid) = (header.unique, header.uid);
        let mut state = self.lock();
        let of_user = state.waiting.values().filter(|guest| guest.uid == uid);
        if of_user.count() >= limits.of_user || state.waiting.len() >= limits.of_all {
            return Err(Errno::AGAIN);
        }
        let is_interrupted = false;
        let guest = Guest {
            uid,
            is_interrupted,
        };
        state.waiting.insert(unique, guest);
        Ok(Waiting {
            room: self,
            unique,
            pause: PAUSE_MIN.into(),
        })
    }

    /// Takes note of an INTERRUPT, if the request is one: who waits gets EINTR.
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
        if let Some(guest) = self.lock().waiting.get_mut(&unique) {
            guest.is_interrupted = true;
            self.called.notify_all();
        }
    }

    /// Nobody waits any longer.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.called.notify_all();
    }
}

impl State {
    fn is_over(&self, unique: u64) -> bool {
        let guest = self.waiting.get(&unique);
        self.is_closed || guest.is_none_or(|guest| guest.is_interrupted)
    }
}

impl Waiting<'_> {
    /// The number of the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Waits for a while, longer each time; EINTR if it is over.
    pub fn pause(&self) -> Result<(), Errno> {
        let pause = self.pause.get();
        self.pause.set(PAUSE_MAX.min(pause * 2));
        let goes_on = |state: &mut State| !state.is_over(self.unique);
        let waited = self
            .room
            .called
            .wait_timeout_while(self.room.lock(), pause, goes_on);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.is_over(self.unique) {
            true => Err(Errno::INTR),
            false => Ok(()),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.room.lock().waiting.remove(&self.unique);
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
    fn a_user_takes_only_some_of_the_places() {
        let room = WaitingRoom::default();
        let limits = Limits {
            of_user: 2,
            of_all: 3,
        };
        let enter = |unique, uid| room.enter(&request(unique, uid, op::OPEN, 0), limits);
        let first = enter(1, 7).unwrap();
        let _second = enter(2, 7).unwrap();
        assert_eq!(enter(3, 7).unwrap_err(), Errno::AGAIN);
        let _other = enter(4, 8).unwrap();
        assert_eq!(enter(5, 9).unwrap_err(), Errno::AGAIN, "all are taken");
        drop(first);
        assert!(enter(6, 7).is_ok());
    }

    #[test]
    fn who_loses_patience_waits_no_longer() {
        let room = WaitingRoom::default();
        let enter = |unique| room.enter(&request(unique, 7, op::OPEN, 0), ASIDE);
        let (one, other) = (enter(2).unwrap(), enter(4).unwrap());
        room.interrupt(&request(3, 7, op::FORGET, 2));
        room.interrupt(&request(3, 7, op::INTERRUPT, 99));
        assert_eq!((one.pause(), other.pause()), (Ok(()), Ok(())));
        room.interrupt(&request(3, 7, op::INTERRUPT, 2));
        assert_eq!((one.pause(), other.pause()), (Err(Errno::INTR), Ok(())));
        room.close();
        assert_eq!(other.pause(), Err(Errno::INTR));
    }
}
