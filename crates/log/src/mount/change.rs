//! Changes of the state: room is made for them before, and what they send to the device is on its way behind them.

#![deny(clippy::indexing_slicing)]

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use anteros_core::{FsError, FsResult};

use crate::layout::BLOCK_BYTES;
use crate::mount::log::Log;
use crate::mount::state::State;
use crate::store::need::MARGIN;

impl Log {
    /// Runs something that changes the file system, and what it leaves to be given back.
    pub(crate) fn change<T>(
        &self,
        mut change: impl FnMut(&mut State) -> FsResult<T>,
    ) -> FsResult<T> {
        let mut has_evicting = false;
        let changed = self.change_alone(|state| {
            let changed = change(state);
            has_evicting = state.files.has_evicting();
            changed
        });
        if has_evicting {
            // That fails by itself is no fault of what was asked.
            let _ = self.reclaim();
        }
        changed
    }

    /// Runs something that changes the file system, once more if it was refused for want of room and there is more now.
    pub(crate) fn change_alone<T>(
        &self,
        mut change: impl FnMut(&mut State) -> FsResult<T>,
    ) -> FsResult<T> {
        self.with_room(MARGIN as u64, || {
            let changed = self.change_first(&mut change)?;
            self.send(changed)
        })
    }

    /// Applies a change and queues its writes; returns the end of their job numbers. They wait to be begun.
    pub(super) fn change_first<T>(
        &self,
        change: impl FnOnce(&mut State) -> FsResult<T>,
    ) -> FsResult<(FsResult<T>, u64)> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.work_first(|state| Self::try_change(state, change))
    }

    /// As [`change_first`](Self::change_first), of what adds nothing to memory and is waited for. What memory has no room for
    /// is left to those who write.
    pub(super) fn commit_first<T>(
        &self,
        commit: impl FnOnce(&mut State) -> FsResult<T>,
    ) -> FsResult<(FsResult<T>, u64)> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        let commit = |state: &mut State| Self::try_change(state, commit);
        self.work_in(self.lock_first(), Self::make_ready, commit)
    }

    /// Does something that changes nothing that users see.
    pub(super) fn work<T>(&self, work: impl FnOnce(&mut State) -> FsResult<T>) -> FsResult<T> {
        let done = self.work_first(work)?;
        self.send(done)
    }

    fn work_first<T>(
        &self,
        work: impl FnOnce(&mut State) -> FsResult<T>,
    ) -> FsResult<(FsResult<T>, u64)> {
        self.work_in(self.lock(), Self::relieve, work)
    }

    /// Works with the state when that was made ready, and queues what is to be written.
    fn work_in<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        make_ready: impl FnOnce(&Self, &mut State) -> FsResult<()>,
        work: impl FnOnce(&mut State) -> FsResult<T>,
    ) -> FsResult<(FsResult<T>, u64)> {
        state.store.check_writable()?;
        let done = make_ready(self, &mut state).and_then(|()| work(&mut state));
        state.evict();
        Ok((done, state.store.hand_over()))
    }

    /// Has what was queued written, or waits until that is so where there is no thread for it.
    pub(super) fn send<T>(&self, (done, end): (FsResult<T>, u64)) -> FsResult<T> {
        match self.thread {
            None => self.writer.finish(end)?,
            Some(_) if self.writer.blocks() > 0 => {
                self.writer.wake();
                self.writer.relieve(self.leaving_max);
            }
            Some(_) => {}
        }
        done
    }

    pub(super) fn try_change<T>(
        state: &mut State,
        change: impl FnOnce(&mut State) -> FsResult<T>,
    ) -> FsResult<T> {
        let before = state.footprint();
        let changed = change(state);
        if let Err(error) = &changed {
            // Half of an operation must never become durable. Of content, a part may.
            let after = state.footprint();
            let is_fault = matches!(
                error,
                FsError::Io(_) | FsError::Corrupt(_) | FsError::Unsupported
            );
            if after.names != before.names || is_fault && after != before {
                state
                    .store
                    .fail("an operation could not be completed", error);
            }
        }
        changed
    }

    /// Writes what memory has no room for, and makes room on the device.
    pub(super) fn relieve(&self, state: &mut State) -> FsResult<()> {
        if state.store.dirty_pages() > state.store.dirty_max() {
            state.make_room(0)?;
            let kept = state.store.dirty_max() / 4 * 3;
            state.write_content_down_to(kept)?;
        }
        self.make_ready(state)
    }

    /// Makes room on the device, and for nodes and records in memory.
    fn make_ready(&self, state: &mut State) -> FsResult<()> {
        let records = state.files.unrecorded().bytes();
        let is_much = state.store.dirty_blocks() > 2 * state.store.dirty_max()
            || records > state.records_max();
        if is_much || state.nodes.nat().needs_checkpoint() {
            state.checkpoint(false)?;
        }
        let room = state.make_room(MARGIN + records / BLOCK_BYTES);
        state.shrink();
        room
    }
}
