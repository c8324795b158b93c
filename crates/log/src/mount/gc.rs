//! Cleaning because someone asks for it.

#![deny(clippy::indexing_slicing)]

use anteros_core::FsResult;

use crate::mount::log::Log;
use crate::store::victim::VictimPolicy;

impl Log {
    /// Cleans until no segment is worth it, and writes a checkpoint: what was emptied is free then. Whoever else uses
    /// the log has a turn after each segment. `goes_on` is asked before each, with the number of those cleaned
    /// so far, which is returned in the end.
    ///
    /// # Errors
    ///
    /// When the device fails, or the log is damaged.
    pub fn clean_all(&self, mut goes_on: impl FnMut(u64) -> bool) -> FsResult<u64> {
        // Others may make new work all the time.
        let most = 2 * u64::from(self.condition().segments);
        let mut cleaned = 0;
        loop {
            let before = cleaned;
            while cleaned < most && goes_on(cleaned) {
                match self.clean_next()? {
                    0 => break,
                    count => cleaned += count,
                }
            }
            self.checkpoint()?;
            // The nodes that the checkpoint wrote left holes where they lay.
            if cleaned == before || cleaned >= most || !goes_on(cleaned) {
                return Ok(cleaned);
            }
        }
    }

    /// Cleans a segment, or those that stand in its way, and says how many.
    fn clean_next(&self) -> FsResult<u64> {
        let mut state = self.lock();
        state.store.check_writable()?;
        let before = state.store.statistics().cleaned;
        let cleaned = state.clean_safely(VictimPolicy::CostBenefit);
        state.store.submit()?;
        cleaned?;
        state.shrink();
        Ok(state.store.statistics().cleaned - before)
    }

    /// Cleans a segment, if that is worth it and there is room for it; says whether it did.
    ///
    /// # Errors
    ///
    /// When the device fails, or the log is damaged.
    pub fn clean(&self) -> FsResult<bool> {
        Ok(self.clean_next()? > 0)
    }
}
