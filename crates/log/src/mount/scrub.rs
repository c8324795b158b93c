//! Scrubbing: whatever is valid is read now and then, so that damage is found as long as there may be a copy elsewhere.
//!
//! The lock is held to note the valid blocks of a part of a segment, and not while they are read. Nothing is changed.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use anteros_core::{FsError, FsResult, Ino, unpoisoned};

use crate::layout::checkpoint::HeadKind;
use crate::layout::checksum::Checksum;
use crate::layout::node::NodeHeader;
use crate::layout::packed;
use crate::layout::pointer::Pointer;
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, SEGMENT_CONTENT};
use crate::mount::log::Log;
use crate::mount::state::State;
use crate::store::medium::{BLOCK, read_block};

/// Blocks of a segment that are read at once: 128 KiB.
const PART_BLOCKS: u16 = 32;
const PART_BYTES: usize = PART_BLOCKS as usize * BLOCK_BYTES;

/// The most parts that are looked at with the lock held.
const PARTS_MAX: u32 = 256;

/// Place that a scrub has come to.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScrubPosition {
    segment: u32,
    /// The first block of the segment that was not looked at.
    index: u16,
}

/// Result of a step of a scrub.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Scrubbed {
    /// Blocks that were read.
    pub blocks: u64,
    /// Faults, in words, with the path of the file where there is one.
    pub faults: Vec<String>,
    /// Tells whether the last segment was passed.
    pub is_round: bool,
}

/// Blocks beside each other, and what is valid among them.
#[derive(Default)]
struct Part {
    /// The first block.
    from: u64,
    due: Vec<Due>,
}

/// A block that is valid, and what it must be.
struct Due {
    place: u64,
    what: What,
}

enum What {
    /// The node with this number.
    Node(u32),
    Packed,
    Content(Owner, Checksum),
}

impl ScrubPosition {
    /// A position somewhere on the log, as a number says: for those who do not remember how far they came.
    pub fn anywhere(number: u64, segments: u32) -> Self {
        Self {
            segment: (number % u64::from(segments.max(1))) as u32,
            index: 0,
        }
    }

    /// Goes to the next part; says whether it is the first one of all.
    fn go_on(&mut self, segments: u32) -> bool {
        self.index += PART_BLOCKS;
        if u32::from(self.index) < SEGMENT_CONTENT {
            return false;
        }
        *self = Self {
            segment: self.segment + 1,
            index: 0,
        };
        let is_round = self.segment >= segments;
        if is_round {
            self.segment = 0;
        }
        is_round
    }
}

impl Log {
    /// Reads the next part of what is valid, up to 32 blocks, and compares it with its checksums. Where there is little, that
    /// may be none. A block that cannot be read is a fault as well.
    pub fn scrub(&self, at: &mut ScrubPosition) -> Scrubbed {
        let mut done = Scrubbed::default();
        let mut state = self.lock();
        let segments = state.store.segments().count();
        at.segment = at.segment.min(segments - 1);
        let mut part = Part::default();
        for _ in 0..PARTS_MAX {
            match state.part(*at) {
                Ok(found) => part = found,
                Err(error) => {
                    done.faults.push(format!("segment {}: {error}", at.segment));
                    at.index = SEGMENT_CONTENT as u16;
                }
            }
            if state.store.segments().segment(at.segment).valid == 0 {
                at.index = SEGMENT_CONTENT as u16;
            }
            done.is_round = at.go_on(segments);
            if done.is_round || !part.due.is_empty() || !done.faults.is_empty() {
                break;
            }
        }
        state.shrink();
        // No segment is given back meanwhile.
        let reading = unpoisoned(self.reading.read());
        drop(state);
        let faults = self.compare(&part);
        drop(reading);
        done.blocks = part.due.len() as u64;
        self.scrubbed.fetch_add(done.blocks, Ordering::Relaxed);
        for (due, error) in faults {
            done.faults.push(self.fault_text(due, &error));
        }
        done
    }

    /// Reads blocks, and returns those that are not what they should be.
    fn compare<'a>(&self, part: &'a Part) -> Vec<(&'a Due, FsError)> {
        if part.due.is_empty() {
            return Vec::new();
        }
        // As a whole, and to an aligned place: that passes by the page cache, and asks the medium.
        let mut buffer = vec![0; PART_BYTES + BLOCK_BYTES];
        let skip = buffer.as_ptr().align_offset(BLOCK_BYTES);
        let bytes = buffer.get_mut(skip..skip + PART_BYTES).unwrap_or_default();
        let read = self.device.read_alone_at(part.from * BLOCK, bytes);
        let blocks = bytes.chunks_exact(BLOCK_BYTES).map(<[u8]>::first_chunk);
        let blocks: Vec<Option<&Block>> = blocks.filter(|_| read.is_ok()).collect();
        let check = |due: &Due| match blocks.get((due.place - part.from) as usize) {
            Some(Some(block)) => due.check(block),
            // It may be one of the others that cannot be read.
            _ => due.check(&*read_block(&*self.device, due.place)?),
        };
        let wrong = part.due.iter().map(|due| (due, check(due)));
        wrong
            .filter_map(|(due, checked)| Some((due, checked.err()?)))
            .collect()
    }

    fn fault_text(&self, due: &Due, error: &FsError) -> String {
        let ino = match due.what {
            What::Content(owner, _) => Some(Ino(owner.ino.into())),
            What::Node(_) | What::Packed => None,
        };
        match ino.and_then(|ino| self.path_of(ino)) {
            Some(path) => format!("{:?}: {error}", String::from_utf8_lossy(&path)),
            None => format!("block {}: {error}", due.place),
        }
    }
}

impl Due {
    fn check(&self, block: &Block) -> FsResult<()> {
        match self.what {
            What::Node(nid) => NodeHeader::check(block, nid).map(drop)?,
            What::Packed => packed::parse(block).map(drop)?,
            What::Content(owner, checksum) => checksum.check(block, owner, self.place)?,
        }
        Ok(())
    }
}

impl State {
    /// The valid blocks of a part of a segment, and what they must be; not those that the device has not got yet.
    fn part(&mut self, at: ScrubPosition) -> FsResult<Part> {
        let entry = self.store.segments().segment(at.segment);
        let indexes = at.index..at.index + PART_BLOCKS;
        let valid = entry.valid_blocks().filter(|index| indexes.contains(index));
        let valid: Vec<u16> = valid.collect();
        let (kind, is_packed) = (HeadKind::from_raw(entry.kind), entry.is_packed());
        if valid.is_empty() {
            return Ok(Part::default());
        }
        let has_nodes = kind.is_some_and(HeadKind::has_nodes);
        let owners = match is_packed {
            true => Vec::new(),
            false => self.store.owners(at.segment)?,
        };
        let start = self.store.segments().start(at.segment);
        let places = start + u64::from(indexes.start)..start + u64::from(indexes.end);
        let from = places.start;
        let mut leaving = BTreeSet::new();
        let visit = |place, _: &_| {
            leaving.insert(place);
        };
        self.store.visit_writeback(places, visit)?;
        let mut due = Vec::new();
        for index in valid {
            let place = start + u64::from(index);
            let owner = owners.get(usize::from(index)).copied();
            let what = match owner {
                _ if is_packed => Some(What::Packed),
                Some(owner) if has_nodes => Some(What::Node(owner.lblk)),
                Some(owner) => self.content_due(owner, place),
                None => None,
            };
            let what = what.filter(|_| !leaving.contains(&place));
            due.extend(what.map(|what| Due { place, what }));
        }
        Ok(Part { from, due })
    }

    /// Returns the owner and the checksum of a block of content; `None` if the owner cannot be read, whose block is then the
    /// one that is at fault.
    fn content_due(&mut self, owner: Owner, place: u64) -> Option<What> {
        match self.pointer(owner.ino, owner.lblk).ok()? {
            Pointer::Plain(found, checksum) if found == place => {
                Some(What::Content(owner, checksum))
            }
            _ => None,
        }
    }
}
