//! Survey of a log that may be damaged: what has to be changed, and what is left over.
//!
//! Nothing is changed here. What cannot be read is noted, and whatever may belong to it counts as used.

use anteros_core::FsResult;

use super::damage::{Damage, Fate, Owners};
use super::memory::Memory;
use super::names::Name;
use crate::durable::Durable;
use crate::durable::owners;
use crate::error::LogError;
use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::summary::Owner;
use crate::offline::walk::Walk;
use crate::offline::walk::claims::Claims;
use crate::store::medium::is_damage;

/// Everything that a repair goes by.
pub(super) struct Survey {
    pub(super) damage: Damage,
    /// Names that have to be changed, in this order.
    pub(super) names: Vec<(Fate, Name)>,
    /// Inodes, whether they can be read or not.
    pub(super) inodes: u32,
    /// Numbers of nodes in use.
    pub(super) nodes: u32,
    /// Blocks that belong to something.
    pub(super) blocks: u64,
    pub(super) preallocated: u64,
}

impl Survey {
    /// Looks at everything.
    ///
    /// # Errors
    ///
    /// When the temporary file cannot be written, and when notes of damage would take more memory than they may.
    pub(super) fn take(
        state: &mut Durable,
        checkpoint: &Checkpoint,
        memory: Memory,
    ) -> Result<Self, LogError> {
        let damage = Damage::new(memory, state.store.segments().count());
        let mut walk = Walk::new(state, damage, memory.of_records());
        walk.read_nodes()?;
        walk.read_directories()?;
        walk.salvage_names()?;
        let abouts = walk.sorted(|walk| &mut walk.abouts)?;
        let children = walk.sorted(|walk| &mut walk.children)?;
        let mut homes = walk.find_homes(&abouts, &children)?;
        drop(children);
        let edges = walk.sorted(|walk| &mut walk.edges)?;
        walk.compare_links(&abouts, &edges)?;
        walk.choose_names(&edges, &mut homes)?;
        walk.compare_homes(&abouts, &mut homes)?;
        drop((abouts, homes));
        walk.visit_segments(&mut |walk, claims| walk.note_segment(claims, checkpoint))?;
        walk.compare_numbers();
        memory.admit(walk.sink.bytes)?;
        let names = walk.judge_names(&edges)?;
        walk.sink.finish();
        memory.admit(walk.sink.bytes)?;

        let (mut nodes, mut inodes) = (
            walk.counts.numbers as u32,
            walk.counts.inodes as u32 - walk.sink.unwritten.len() as u32,
        );
        if walk.sink.tables > 0 {
            // Of those that cannot be read, nobody knows how many are in use.
            nodes = nodes.max(walk.state.nodes.nat().used());
            inodes = inodes.max(walk.state.nodes.inode_count());
        }
        let counts = walk.counts;
        Ok(Self {
            damage: walk.sink,
            names,
            inodes,
            nodes,
            blocks: counts.nodes - counts.disowned - counts.in_slots
                + counts.data_blocks
                + counts.preallocated,
            preallocated: counts.preallocated,
        })
    }
}

impl Walk<'_, Damage> {
    /// Notes which blocks and slots of a segment belong to something, and whether its summary says to whom.
    fn note_segment(&mut self, claims: &Claims, checkpoint: &Checkpoint) -> FsResult<()> {
        let segment = claims.segment;
        let owned = (0..SEGMENT_CONTENT as u16).filter(|&index| claims.is_owned(index));
        let owned: Vec<u16> = owned.collect();
        if owned.is_empty() {
            return Ok(());
        }
        for &index in &owned {
            self.sink.used.set(segment, index);
            let (block, slots) = (claims.start + u64::from(index), claims.slots(index));
            if slots != 0 {
                self.sink.slots.set(block, slots.to_le_bytes())?;
            }
        }
        let named = match owners::sealed(self.state, segment) {
            Err(error) if !is_damage(&error) => return Err(error),
            named => named.unwrap_or_default(),
        };
        let kind = self.state.store.segments().segment(segment).kind;
        let has_nodes = HeadKind::from_raw(kind).is_some_and(HeadKind::has_nodes);
        let is_named = |&index: &u16| {
            let owner = named.get(usize::from(index)).copied();
            owner.is_some_and(|owner| match claims.claim(index) {
                Some(_) => claims.agrees(index, owner, has_nodes),
                None => owner == Owner::default(),
            })
        };
        if !owned.iter().all(is_named) {
            let mut owners = Owners::named(self.state, checkpoint, segment);
            owners.has_slots = owned.iter().any(|&index| claims.slots(index) != 0);
            for index in owned {
                if let Some(claim) = claims.claim(index) {
                    owners.add(index, claim);
                }
            }
            // The summary of an open segment is not there yet: that is no damage.
            let mut heads = checkpoint.heads.iter();
            let is_open = heads.any(|head| head.segment == segment);
            self.sink.note_owners(segment, owners, is_open);
        }
        Ok(())
    }
}
