//! Requests that there is no room for: before one is refused, room is made of what takes more than it has to.
//!
//! A large file that was removed gives its blocks back piece by piece: whoever needs them waits for the pieces.
//!
//! Dirty pages and inodes count as blocks until they leave, and compressed they take less: so they leave, compressed. A packed
//! block counts as long as one of its slots is valid: so segments of which many slots have been given up are cleaned. What a
//! request causes is bounded: by what is dirty, and by segments that together win as much as it needs if each of them wins as
//! little as is worth it. Where nothing has been written or given up since, there is nothing to do.

#![deny(clippy::indexing_slicing)]

use std::sync::atomic::Ordering;
use std::thread;

use anteros_core::{FsError, FsResult};

use crate::compress::kind::ContentKind;
use crate::compress::policy::Policy;
use crate::mount::log::Log;
use crate::mount::pieces::TURN;
use crate::mount::state::State;
use crate::store::victim::WON_MIN;

/// With fewer dirty inodes than these, which one block may hold, a checkpoint wins nothing.
const INODES_MIN: usize = 16;

/// Tries of a request for which room was made: others may have taken that.
const TRIES_MAX: u32 = 3;

/// Segments that are cleaned for one request beyond what it needs by the count.
const MORE_MAX: u64 = 2;

impl Log {
    /// Asks again what was refused for want of room for so many blocks, if there is more room now.
    pub(super) fn with_room<T>(
        &self,
        blocks: u64,
        mut ask: impl FnMut() -> FsResult<T>,
    ) -> FsResult<T> {
        for _ in 1..TRIES_MAX {
            match ask() {
                Err(FsError::NoSpace) if self.await_room(blocks) || self.win_room(blocks) => {}
                answer => return answer,
            }
        }
        ask()
    }

    /// Waits until there is room for so many blocks, or all of what was removed is given back. Says whether it had to wait.
    fn await_room(&self, blocks: u64) -> bool {
        let mut has_waited = false;
        while self.lock().lacks_room_that_comes(blocks) && self.reclaim().is_ok() {
            // Another one may be about it, piece by piece.
            thread::sleep(TURN);
            has_waited = true;
        }
        has_waited
    }

    /// Makes room for so many blocks, or as much as can be, and says whether there is more by now. That it fails, whoever comes
    /// next is told.
    fn win_room(&self, blocks: u64) -> bool {
        if self.lock().store.space().check(blocks).is_ok() {
            // Others have made it meanwhile.
            return true;
        }
        let has_written = self.write_compressed();
        let segments = blocks / u64::from(WON_MIN) + MORE_MAX;
        let cleans = |_: &u64| self.work(|state| state.win_blocks(blocks)).unwrap_or(false);
        let cleaned = (0..segments).take_while(cleans).count();
        has_written || cleaned > 0
    }

    /// Writes what is dirty and may take less room than is counted for it; says whether there was any.
    fn write_compressed(&self) -> bool {
        let (pages, inodes) = self.lock().shrinkable();
        if inodes >= INODES_MIN {
            return self.checkpoint().is_ok();
        }
        if pages > 0 {
            self.prepare_all();
            return self.work(|state| state.write_content()).is_ok();
        }
        false
    }
}

impl State {
    /// Tells whether there is no room for so many blocks, and large files that were removed still take some.
    fn lacks_room_that_comes(&self, blocks: u64) -> bool {
        self.files.has_evicting() && self.store.space().check(blocks).is_err()
    }

    /// Dirty pages and inodes that may be compressed.
    fn shrinkable(&self) -> (usize, usize) {
        let pages = match self.store.options().policy {
            Policy::None => 0,
            _ => self.store.dirty_pages(),
        };
        let inodes = match self.packs_inodes(ContentKind::Other) {
            true => self.store.dirty_inodes().load(Ordering::Relaxed),
            false => 0,
        };
        (pages, inodes)
    }
}
