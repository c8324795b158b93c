//! Content that the kernel is asked to give back from its cache.
//!
//! It comes as a request of its own, to whichever worker is free. So not all workers may wait for some at the same time:
//! one at least goes on receiving.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use anteros_core::unpoisoned;
use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::proto::notify::NotifyRetrieveIn;
use crate::proto::{InHeader, op};

/// The most bytes that come back at once. The kernel takes no more for this than for a WRITE.
pub const LEN_MAX: usize = 32 << 10;

/// Whoever has waited so long goes on without.
const PATIENCE: Duration = Duration::from_secs(10);

/// The content that is on its way. By default, nobody may wait for any.
#[derive(Debug, Default)]
pub struct Retrieved {
    state: Mutex<State>,
    /// Some of it came, or the mount is gone.
    changed: Condvar,
    /// So many may wait at the same time.
    waiting_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The mount is gone.
    is_closed: bool,
    last: u64,
    /// By number: the content, once it is there.
    waiting: HashMap<u64, Option<Vec<u8>>>,
}

impl Retrieved {
    /// Nothing yet. So many may wait at the same time.
    pub fn new(waiting_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            waiting_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    /// Has `ask` ask for some content by a number, and waits for it.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if too many wait already, or it did not come in time; `ENODEV` when the mount is gone; or that of `ask`.
    pub fn wait(&self, ask: impl FnOnce(u64) -> Result<(), Errno>) -> Result<Vec<u8>, Errno> {
        let number = self.begin()?;
        let asked = ask(number);
        let mut state = self.lock();
        if asked.is_ok() {
            let is_coming = |state: &mut State| {
                !state.is_closed && matches!(state.waiting.get(&number), Some(None))
            };
            let woken = self.changed.wait_timeout_while(state, PATIENCE, is_coming);
            (state, _) = unpoisoned(woken);
        }
        let content = state.waiting.remove(&number).flatten();
        asked?;
        content.ok_or(if state.is_closed {
            Errno::NODEV
        } else {
            Errno::AGAIN
        })
    }

    fn begin(&self) -> Result<u64, Errno> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Errno::NODEV);
        }
        if state.waiting.len() >= self.waiting_max {
            return Err(Errno::AGAIN);
        }
        state.last += 1;
        let number = state.last;
        state.waiting.insert(number, None);
        Ok(number)
    }

    /// Takes a request that brings content; others are passed over.
    pub fn take(&self, request: &[u8]) {
        let Ok((header, body)) = InHeader::read_from_prefix(request) else {
            return;
        };
        let Ok((NotifyRetrieveIn { size, .. }, content)) = NotifyRetrieveIn::read_from_prefix(body)
        else {
            return;
        };
        if header.opcode != op::NOTIFY_REPLY {
            return;
        }
        if let Some(place) = self.lock().waiting.get_mut(&header.unique) {
            let content = content.get(..size as usize).unwrap_or_default();
            *place = Some(content.to_vec());
            self.changed.notify_all();
        }
    }

    /// Ends all waiting: the mount is gone.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    fn request(unique: u64, size: u32, content: &[u8]) -> Vec<u8> {
        let header = InHeader {
            opcode: op::NOTIFY_REPLY,
            unique,
            ..InHeader::new_zeroed()
        };
        let body = NotifyRetrieveIn {
            size,
            ..NotifyRetrieveIn::new_zeroed()
        };
        [header.as_bytes(), body.as_bytes(), content].concat()
    }

    #[test]
    fn content_goes_to_the_one_who_asked_for_it() {
        let retrieved = Arc::new(Retrieved::new(2));
        let asking = |answer: &'static [u8]| {
            let all = retrieved.clone();
            move || {
                let other = all.clone();
                all.wait(|number| {
                    other.take(&request(number, answer.len() as u32, answer));
                    Ok(())
                })
            }
        };
        let threads = [b"one".as_slice(), b"two"].map(|answer| thread::spawn(asking(answer)));
        let got = threads.map(|thread| thread.join().unwrap().unwrap());
        assert_eq!(got, [b"one".to_vec(), b"two".to_vec()]);
    }

    #[test]
    fn no_more_wait_than_may() {
        let retrieved = Retrieved::new(1);
        let inner = retrieved.wait(|number| {
            assert_eq!(retrieved.wait(|_| Ok(())), Err(Errno::AGAIN));
            retrieved.take(&request(number, 1, b"x"));
            Ok(())
        });
        assert_eq!(inner, Ok(b"x".to_vec()));
        assert_eq!(retrieved.wait(|_| Err(Errno::NOENT)), Err(Errno::NOENT));
        assert_eq!(retrieved.lock().waiting.len(), 0);
    }

    #[test]
    fn a_lie_about_the_length_brings_nothing() {
        let retrieved = Retrieved::new(1);
        let got = retrieved.wait(|number| {
            retrieved.take(&request(number + 7, 1, b"x"));
            retrieved.take(&request(number, 9, b"x"));
            Ok(())
        });
        assert_eq!(got, Ok(Vec::new()));
    }

    #[test]
    fn nobody_waits_for_a_mount_that_is_gone() {
        let retrieved = Retrieved::new(1);
        let got = retrieved.wait(|_| {
            retrieved.close();
            Ok(())
        });
        assert_eq!(got, Err(Errno::NODEV));
        assert_eq!(retrieved.wait(|_| Ok(())), Err(Errno::NODEV));
    }
}
