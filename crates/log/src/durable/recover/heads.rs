//! Heads behind a replay: they go on behind all that the groups name.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use anteros_core::FsResult;

use crate::durable::Durable;
use crate::durable::owners;
use crate::durable::recover::roll_forward::RollForward;
use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::HeadKind;
use crate::layout::summary::Owner;
use crate::layout::table::SitEntry;
use crate::store::medium::is_damage;
use crate::store::segments::Use;

impl RollForward {
    /// Has the heads go on behind all that the groups name, and says in summaries whose the blocks of other segments are. `entries` are
    /// those of the checkpoint.
    pub(super) fn go_on(&self, state: &mut Durable, entries: &[SitEntry]) -> FsResult<()> {
        let reached = |segment| self.reached.get(&segment).copied().unwrap_or_default();
        let owner = |block| self.owners.get(&block).copied();
        // What the checkpoint has to be written over others is written now: that may be torn, as long as this checkpoint counts.
        let mut stated: BTreeMap<u32, Vec<Owner>> =
            state.store.take_rewritten().into_iter().collect();
        let summaries = state.store.segments_mut().go_on(reached, owner);
        match self.end {
            // What is written to that block may not be readable either, and no group behind it would be found.
            _ if self.is_cut => state.store.segments_mut().close_packed(),
            Some(end) => state.store.segments_mut().go_on_packed(&end),
            None => {}
        }
        let named = self
            .owners
            .keys()
            .map(|&block| state.store.segments().locate(block).0);
        let mut others: BTreeSet<u32> = named.collect();
        for (place, summary) in summaries {
            others.remove(&state.store.segments().locate(place).0);
            state.store.push(place, summary);
        }
        others.retain(|&segment| {
            state.store.segments().segment(segment).state != Use::Open
                && state.store.segments().rewritten(segment).is_none()
        });
        let (threaded, filled): (Vec<u32>, Vec<u32>) = others.into_iter().partition(|&segment| {
            let stated = entries.get(segment as usize);
            stated.is_some_and(|entry| entry.valid > 0)
        });
        for segment in threaded {
            let start = state.store.segments().start(segment);
            let known = match stated.remove(&segment) {
                Some(owners) => Ok(owners),
                None => owners::sealed(state, segment),
            };
            match known {
                Ok(mut owners) => {
                    for (block, known) in (start..).zip(&mut owners) {
                        *known = owner(block).unwrap_or(*known);
                    }
                    state.store.segments_mut().rewrite(segment, owners);
                }
                // It is damaged, as it was, and stays so for a repair.
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error),
            }
        }
        for (segment, owners) in stated {
            let (place, summary) = state.store.segments().summary(segment, &owners);
            state.store.push(place, summary);
        }
        let latest = filled
            .iter()
            .min_by_key(|&&segment| reached(segment))
            .copied();
        for segment in filled {
            let start = state.store.segments().start(segment);
            let places = start..start + u64::from(reached(segment));
            let owners: Vec<Owner> = places
                .map(|block| owner(block).unwrap_or_default())
                .collect();
            let kind = HeadKind::WarmData;
            if Some(segment) != latest
                || !state
                    .store
                    .segments_mut()
                    .go_on_in(segment, kind, &owners, None)
            {
                let summary = state.store.segments_mut().adopt(segment, kind, &owners);
                state
                    .store
                    .push(start + u64::from(SEGMENT_CONTENT), summary);
            }
        }
        Ok(())
    }
}
