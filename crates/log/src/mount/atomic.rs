//! Atomic batch writes: what is written to a file from a beginning to a commit takes effect as a whole or not at all. A
//! database that has them needs no journal.
//!
//! Content that is written meanwhile waits in memory, over what the file holds, where readers find it. A commit makes it
//! dirty content and writes a group with it, without giving the lock away in between: no checkpoint and no other group can take
//! a part of it.

use anteros_core::{AtomicStep, FsResult, Ino};

use crate::mount::log::Log;
use crate::mount::state::State;

impl State {
    /// Makes what waits the content of the file, and writes a group that has it. Returns its number.
    fn commit_atomic(&mut self, ino: u32, by: u64) -> FsResult<u64> {
        if self.is_atomic_by(ino, by) {
            let pages = self.atomic_pages();
            self.make_room(pages)?;
            self.secure_room(ino)?;
            self.take_atomic(ino)?;
        }
        self.commit(&[ino])
    }
}

impl Log {
    /// Sets who hears of files whose content is not any more what was read of it, since what waited was dropped.
    /// Whoever asked for that waits meanwhile. Once for each mount: later calls change nothing.
    pub fn on_abort(&self, forget: impl Fn(Ino) + Send + Sync + 'static) {
        let _ = self.on_abort.set(Box::new(forget));
    }

    pub(crate) fn step_atomically(&self, ino: u32, by: u64, step: AtomicStep) -> FsResult<()> {
        match step {
            AtomicStep::Begin => self.change(|state| state.begin_atomic(ino, by)),
            AtomicStep::Commit => {
                let pages = self.lock().atomic_pages() as u64;
                self.with_room(pages, || {
                    self.sync_with(|state| state.commit_atomic(ino, by))
                })
            }
            AtomicStep::Abort => {
                let is_dropped = self.lock().abort_atomic(ino, by);
                self.tell_aborted(ino, is_dropped);
                Ok(())
            }
        }
    }

    /// Tells who wants to hear of it that what waited of a file was dropped, if it was.
    pub(crate) fn tell_aborted(&self, ino: u32, is_dropped: bool) {
        if let Some(forget) = self.on_abort.get().filter(|_| is_dropped) {
            forget(Ino(ino.into()));
        }
    }
}
