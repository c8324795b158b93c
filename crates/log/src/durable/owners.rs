//! Owners of the blocks of a segment, as its summary says, and whether those whom it names agree.

#![deny(clippy::indexing_slicing)]

use anteros_core::FsResult;

use crate::durable::Durable;
use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::pointer::Pointer;
use crate::layout::summary::{self, Owner};
use crate::nodes::place::NodePlace;
use crate::store::medium::read_block;

/// The owners that the summary of a segment names.
pub(crate) fn sealed(state: &Durable, segment: u32) -> FsResult<Vec<Owner>> {
    let at = state.store.segments().start(segment) + u64::from(SEGMENT_CONTENT);
    let block = read_block(state.store.device(), at)?;
    Ok(summary::parse(
        &block,
        state.store.segments().segment(segment).serial,
    )?)
}

/// Owners of the blocks of any segment. The checkpoint has the summary of a segment that was open, which may have fewer
/// owners, and of one whose holes were filled.
pub(crate) fn named(
    state: &Durable,
    checkpoint: Option<&Checkpoint>,
    segment: u32,
) -> FsResult<Vec<Owner>> {
    let rewritten = checkpoint.and_then(|found| {
        let mut rewritten = found.rewritten.iter();
        rewritten.find(|(other, _)| *other == segment)
    });
    if let Some((_, owners)) = rewritten {
        return Ok(owners.clone());
    }
    let head = checkpoint.and_then(|found| {
        let which = found
            .heads
            .iter()
            .position(|head| head.segment == segment)?;
        found.summaries.get(which)
    });
    let sealed = sealed(state, segment);
    let Some(head) = head else { return sealed };
    // What lies there may be of a log that was here before, and had the same serial.
    let mut owners = head.clone();
    let behind = sealed.unwrap_or_default().into_iter().skip(owners.len());
    owners.extend(behind);
    Ok(owners)
}

/// Returns whose a block is, as the summary of its segment says.
pub(crate) fn of(state: &Durable, checkpoint: Option<&Checkpoint>, block: u64) -> Option<Owner> {
    let (segment, index) = state.store.segments().locate(block);
    let owners = named(state, checkpoint, segment).ok()?;
    let owner = owners.get(usize::from(index)).copied();
    owner.filter(|owner| *owner != Owner::default())
}

/// Returns whether the one that a summary names says that the block is its own. Cleaning asks the same.
pub(crate) fn is_owned(state: &mut Durable, owner: Owner, block: u64) -> FsResult<bool> {
    let (segment, _) = state.store.segments().locate(block);
    let kind = HeadKind::from_raw(state.store.segments().segment(segment).kind);
    if kind.is_some_and(HeadKind::has_nodes) {
        let entry = state.nodes.entry(owner.lblk)?;
        let is_here = entry.pointer == NodePlace::Block(block).encode();
        return Ok(entry.ino == owner.ino && is_here);
    }
    let pointer = state.pointer(owner.ino, owner.lblk)?;
    Ok(matches!(pointer, Pointer::Plain(found, _) if found == block))
}
