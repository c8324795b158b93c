//! Content of the packed inode that was decoded and is kept elsewhere: by a kernel, for one.
//!
//! An extent of the packed inode belongs to many files. What is decoded of it on the way to one of them is handed on as
//! that of the packed inode itself, and whoever keeps it is asked before it is decoded again.
//!
//! Invariant S10 of `docs/design/serving.md`: whoever waits for content to come back holds nothing that another reader
//! waits for.

use anteros_core::Algorithm;
use anteros_format::Nid;

use super::counters::add;
use super::memory::Buffer;
use super::part::Part;
use super::pclusters::Held;
use super::serving::PackedHook;
use super::sizes::RECENT_BYTES;
use super::suspended::REST_PIECE_BYTES;
use crate::{Image, Place};

/// Bytes that are decoded ahead of readers of one file of the packed inode after the other.
const AHEAD_BYTES: usize = RECENT_BYTES / 2;

impl Image {
    /// Fills `out` with bytes of the packed inode that were handed on, unless they are quicker to be had; returns whether
    /// they were there.
    pub(super) fn retrieve(&self, part: &Part, out: &mut [u8]) -> bool {
        let Some(hook) = self.packed_keeper(part) else {
            return false;
        };
        let is_at_hand = match self.serve.pclusters.peek(part.key()) {
            Some(Held::Decoded(_)) => true,
            Some(Held::Suspended(suspended)) => {
                let decoder = suspended.try_lock();
                let has = decoder.is_ok_and(|decoder| decoder.has(part.skip as usize, out.len()));
                has || self.has_room_for(part)
            }
            _ => false,
        };
        let is_retrieved = !is_at_hand && hook(part.extent_offset() + part.skip, out);
        add(&self.serve.counters.retrieved, is_retrieved.into());
        is_retrieved
    }

    /// Returns who keeps what is decoded of the packed inode, if the part is of that and takes long to decode.
    pub(super) fn packed_keeper(&self, part: &Part) -> Option<&PackedHook> {
        let is_packed = matches!(part.place, Place::Data { nid, .. } if self.is_packed(nid));
        let hook = self.serve.on_packed.get();
        hook.filter(|_| is_packed && part.algorithm != Algorithm::Lz4)
    }

    /// Returns whether there is a page cache for what else is decoded of the extent, and the inode that it is of.
    pub(super) fn cached_inode(&self, part: &Part) -> Option<Nid> {
        let Place::Data { nid, .. } = part.place else {
            return None;
        };
        let is_cached = !self.is_special(nid) || self.packed_keeper(part).is_some();
        is_cached.then_some(nid)
    }

    /// Returns whether the whole extent could be kept now, and nothing given up for it. LZMA takes longer to decode anew than
    /// it takes to ask for all of it.
    fn has_room_for(&self, part: &Part) -> bool {
        let bytes = Buffer::room(part.len as usize) + self.working_bytes(part);
        part.algorithm != Algorithm::Lzma && self.serve.memory.has(bytes)
    }

    /// Returns up to where an extent, of which so much is decoded, is wanted beyond what its readers ask for: nothing of it
    /// when they read in order, for then readahead asks. Those who read one file of the packed inode after the other find
    /// the decoder where the last one left it; it may go on while they do something else, as far as it keeps what it decodes.
    pub(super) fn rest_wanted(&self, part: &Part, position: usize, out: &[u8]) -> usize {
        let is_near = part.skip as usize <= position + REST_PIECE_BYTES;
        match self.packed_keeper(part) {
            None if part.is_read_ahead(position) => 0,
            Some(_) if is_near => part.front(out) + AHEAD_BYTES,
            _ => part.len as usize,
        }
    }
}
