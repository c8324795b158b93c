//! Reading blocks in the order in which they lie on the device, those that are near each other at once.

use anteros_core::{FsResult, Record, Sorted};

use super::records::{Wanted, WantedDir};
use super::{Sink, Walk};
use crate::durable::Durable;
use crate::layout::{BLOCK_BYTES, Block};
use crate::store::medium::{self, zeroed};

/// The most blocks that are read at once.
const WINDOW_BLOCKS: u64 = 64;
/// Blocks that are read and not wanted, rather than to read twice.
const GAP_BLOCKS: u64 = 16;
/// The most records that wait for one window.
const WAITING_MAX: usize = 4096;

/// Something that lies in a block.
pub(super) trait Placed: Record + Clone {
    /// The block; 0: in none.
    fn place(&self) -> u64;
}

impl Placed for Wanted {
    fn place(&self) -> u64 {
        self.key
    }
}

impl Placed for WantedDir {
    fn place(&self) -> u64 {
        self.place
    }
}

/// Blocks of the device that follow each other.
struct Window {
    first: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn read(state: &Durable, first: u64, last: u64) -> FsResult<Self> {
        let mut bytes = vec![0; (last - first + 1) as usize * BLOCK_BYTES];
        state
            .store
            .device()
            .read_at(first * BLOCK_BYTES as u64, &mut bytes)?;
        // What the device has not got yet.
        state
            .store
            .visit_writeback(first..last + 1, |place, block| {
                let mut blocks = bytes.chunks_exact_mut(BLOCK_BYTES);
                if let Some(old) = blocks.nth((place - first) as usize) {
                    old.copy_from_slice(&block[..]);
                }
            })?;
        Ok(Self { first, bytes })
    }

    fn get(&self, place: u64) -> Option<&Block> {
        let at = usize::try_from(place.checked_sub(self.first)?).ok()?;
        self.bytes
            .chunks_exact(BLOCK_BYTES)
            .nth(at)?
            .try_into()
            .ok()
    }
}

/// Hears of what lies in a block, and of the block.
pub(super) type Visit<'a, 'w, S, R> =
    dyn FnMut(&mut Walk<'w, S>, &R, FsResult<&Block>) -> FsResult<()> + 'a;

impl<'w, S: Sink> Walk<'w, S> {
    /// Calls `visit` for each of what is sorted by its place, with the block there; what lies in none gets zeros.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file, and of `visit`.
    pub(super) fn sweep<R: Placed>(
        &mut self,
        sorted: &Sorted<R>,
        visit: &mut Visit<'_, 'w, S, R>,
    ) -> FsResult<()> {
        let mut records = sorted.iter().peekable();
        while let Some(first) = records.next().transpose()? {
            let (start, mut last) = (first.place(), first.place());
            let mut waiting = vec![first];
            while waiting.len() < WAITING_MAX {
                let is_near =
                    |place: u64| place <= last + 1 + GAP_BLOCKS && place < start + WINDOW_BLOCKS;
                let next = records.next_if(|next| match next {
                    Ok(next) => (start == 0) == (next.place() == 0) && is_near(next.place()),
                    Err(_) => true,
                });
                let Some(next) = next.transpose()? else { break };
                last = next.place();
                waiting.push(next);
            }
            self.visit_window(start, last, &waiting, visit)?;
        }
        Ok(())
    }

    fn visit_window<R: Placed>(
        &mut self,
        start: u64,
        last: u64,
        waiting: &[R],
        visit: &mut Visit<'_, 'w, S, R>,
    ) -> FsResult<()> {
        if start == 0 {
            let nothing = zeroed();
            return waiting
                .iter()
                .try_for_each(|record| visit(self, record, Ok(&nothing)));
        }
        let window = Window::read(self.state, start, last);
        for record in waiting {
            let place = record.place();
            match window.as_ref().ok().and_then(|window| window.get(place)) {
                Some(block) => visit(self, record, Ok(block))?,
                // It may be one of the others.
                None => match self.read_alone(place) {
                    Ok(block) => visit(self, record, Ok(&block))?,
                    Err(error) => visit(self, record, Err(error))?,
                },
            }
        }
        Ok(())
    }

    fn read_alone(&self, place: u64) -> FsResult<Box<Block>> {
        let window = Window::read(self.state, place, place);
        let block = window.as_ref().ok().and_then(|window| window.get(place));
        match block {
            Some(block) => Ok(Box::new(*block)),
            None => medium::read_block(self.state.store.device(), place),
        }
    }

    /// Blocks of packed content from one on, as many as are read at once.
    pub(super) fn read_ahead(&self, place: u64, end: u64) -> FsResult<Vec<u8>> {
        let last = (place + WINDOW_BLOCKS).min(end).max(place + 1) - 1;
        match Window::read(self.state, place, last) {
            Ok(window) => Ok(window.bytes),
            Err(_) => Ok(self.read_alone(place)?.to_vec()),
        }
    }
}
