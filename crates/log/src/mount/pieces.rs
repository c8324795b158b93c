//! Turns of others between the pieces of a long operation.

use std::ops::Range;
use std::sync::TryLockError;
use std::time::Duration;

use anteros_core::{FileKind, FsError, FsResult};

use crate::files::content::{PUNCH_HOLE, SIZE_MAX, blocks};
use crate::layout::node::FILE_BLOCKS;
use crate::mount::log::Log;
use crate::mount::state::State;
use crate::store::medium::BLOCK;

/// Divisor of the space that is reserved at once. Less costs more work a block.
const PROMISED: u32 = 4;

/// Duration of the turn of others. Whoever waits for a lock gets it when it is free for so long.
pub(super) const TURN: Duration = Duration::from_micros(100);

impl Log {
    /// Gives back most of what a file of another size does not need; what is left is no more than a piece.
    pub(crate) fn shorten(&self, ino: u32, size: u64) -> FsResult<()> {
        let (piece, is_worth_it) = {
            let mut state = self.lock();
            state.refuse_atomic(ino)?;
            let attributes = state.live(ino)?.inode().attributes;
            let kept = size.div_ceil(BLOCK).min(FILE_BLOCKS.into()) as u32;
            let is_shorter = size <= attributes.size && attributes.kind == FileKind::Regular;
            let is_worth_it =
                is_shorter && state.is_large(ino)? && state.next_leaf(ino, kept)?.is_some();
            (state.piece(), is_worth_it)
        };
        if !is_worth_it {
            return Ok(());
        }
        let kept = size.div_ceil(BLOCK) as u32;
        let mut from = FILE_BLOCKS;
        while from - kept > piece {
            from -= piece;
            self.take_turns(|state| state.cut_off(ino, from))?;
        }
        Ok(())
    }

    /// As `fallocate(2)`.
    pub(crate) fn allocate_in_pieces(
        &self,
        ino: u32,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> FsResult<()> {
        let end = offset.checked_add(len).filter(|&end| end <= SIZE_MAX);
        let (piece, is_large) = {
            let mut state = self.lock();
            state.refuse_atomic(ino)?;
            (state.piece(), state.is_large(ino)?)
        };
        // What cannot be is refused as a whole.
        let Some(end) = end else {
            return self.change(|state| state.allocate(ino, offset, len, mode));
        };
        let whole = blocks(&(offset..end));
        if mode & PUNCH_HOLE != 0 {
            let last = (end / BLOCK) as u32;
            let mut from = last;
            while is_large && from.saturating_sub(whole.start + 1) > piece {
                from -= piece;
                let (offset, len) = (u64::from(from) * BLOCK, u64::from(last - from) * BLOCK);
                self.take_turns(|state| state.allocate(ino, offset, len, mode))?;
            }
            return self.change(|state| state.allocate(ino, offset, len, mode));
        }
        let wanted = u64::from(whole.end - whole.start);
        self.with_room(wanted, || self.check_room(ino, whole.clone(), piece))?;
        let piece = u64::from(piece / PROMISED) * BLOCK;
        let mut at = offset;
        while end - at > piece {
            let next = (at + piece) / BLOCK * BLOCK;
            self.take_turns(|state| state.allocate(ino, at, next - at, mode))?;
            at = next;
        }
        self.change(|state| state.allocate(ino, at, end - at, mode))
    }

    /// Refuses to set blocks aside that there are not, before there are none for others either.
    fn check_room(&self, ino: u32, range: Range<u32>, piece: u32) -> FsResult<()> {
        let wanted = u64::from(range.end - range.start);
        let free = {
            let mut state = self.lock();
            state.store.back(wanted, 0);
            state.store.space().free()
        };
        if wanted <= free {
            return Ok(());
        }
        let (mut holes, mut at) = (0, range.start);
        while at < range.end {
            let end = range.end.min(at.saturating_add(piece));
            holes += self.lock().holes(ino, at..end)?;
            at = end;
        }
        match holes > free {
            true => Err(FsError::NoSpace),
            false => Ok(()),
        }
    }

    /// Gives back what large inodes held that are gone, unless someone does so already.
    pub(crate) fn reclaim(&self) -> FsResult<()> {
        let _alone = match self.reclaiming.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        loop {
            let next = self.lock().files.next_evicting();
            let Some((ino, end)) = next else {
                return Ok(());
            };
            // Without waiting for room: whoever waits for that may wait for this.
            let done = self.take_turn(|| {
                let reclaimed = self.change_first(|state| state.reclaim(ino, end))?;
                self.send(reclaimed)
            });
            if let Err(error) = done {
                // It stays an orphan: the next mount or a repair will see.
                self.lock().files.keep_orphan(ino);
                if !matches!(error, FsError::Corrupt(_)) {
                    return Err(error);
                }
            }
        }
    }

    /// Runs a piece of a change for which room is made, and lets others have their turn.
    fn take_turns(&self, change: impl FnMut(&mut State) -> FsResult<()>) -> FsResult<()> {
        self.take_turn(|| self.change_alone(change))
    }

    /// Runs a piece of a change, and lets others have their turn.
    fn take_turn(&self, change: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        let before = self.lock().store.space().used();
        change()?;
        if self.lock().store.space().used() != before {
            std::thread::sleep(TURN);
        }
        Ok(())
    }
}
