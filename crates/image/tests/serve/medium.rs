//! A device that can be made to wait, to fail and to shrink.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use anteros_core::Device;

/// States what [`Medium`] is called.
pub const NAME: &str = "the medium";

pub struct Medium {
    bytes: Vec<u8>,
    state: Mutex<State>,
    changed: Condvar,
}

pub struct State {
    /// Holds what was read.
    pub reads: Vec<Range<u64>>,
    /// Reads of these bytes wait.
    pub closed: Range<u64>,
    /// Reads of these bytes fail.
    pub bad: Range<u64>,
    /// Tells where the device ends now.
    pub len: u64,
}

impl Medium {
    pub fn new(bytes: &[u8]) -> Arc<Self> {
        let state = State {
            reads: Vec::new(),
            closed: 0..0,
            bad: 0..0,
            len: bytes.len() as u64,
        };
        Arc::new(Self {
            bytes: bytes.to_vec(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Returns how many reads touched these bytes.
    pub fn reads_of(&self, range: &Range<u64>) -> usize {
        let state = self.state();
        state.reads.iter().filter(|read| meet(read, range)).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Device for Medium {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + buf.len() as u64;
        let mut state = self.state();
        state.reads.push(range.clone());
        let minute = Duration::from_secs(60);
        let closed = |state: &mut State| meet(&state.closed, &range);
        let (state, waited) = self
            .changed
            .wait_timeout_while(state, minute, closed)
            .unwrap();
        assert!(!waited.timed_out(), "nobody opens {range:?}");
        if meet(&state.bad, &range) {
            return Err(io::Error::other("bad sector"));
        }
        if range.end > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        drop(state);
        self.bytes.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn name(&self) -> String {
        NAME.into()
    }
}
