//! Nodes and directories that launches look up, written again so that they lie together.

use std::collections::HashSet;

use anteros_core::{FileKind as Type, FsError, FsResult};

use crate::cleaning::Cleaning;
use crate::cleaning::order::Stop;
use crate::layout::ROOT;
use crate::layout::checkpoint::HeadKind;
use crate::layout::summary::Owner;
use crate::nodes::place::NodePlace;
use crate::packing::pack::Packing;
use crate::statistics::Cause;

/// The deepest path whose directories are written again.
const DEPTH_MAX: usize = 64;

/// The most blocks of a directory that is.
const DIRECTORY_MAX: u32 = 64;

impl Cleaning {
    pub(crate) fn gather_step(
        &mut self,
        marks: &[Stop],
        gathered: &mut HashSet<u32>,
    ) -> FsResult<()> {
        self.make_room(4 * marks.len())?;
        let before = *self.store.statistics();
        let mut packing = Packing::apart(HeadKind::Moved);
        let done = marks.iter().try_for_each(|&(_, ino, lblk)| {
            match self.gather(ino, lblk, gathered, &mut packing) {
                // Whatever it is, it is told when it is asked for.
                Err(FsError::NotFound | FsError::Corrupt(_)) => Ok(()),
                done => done,
            }
        });
        self.seal(&mut packing, true);
        self.store
            .statistics_mut()
            .count_as(Cause::Background, &before);
        done
    }

    /// Has an inode written again, and what leads to it, and to a logical block of it, but for what was.
    fn gather(
        &mut self,
        ino: u32,
        lblk: Option<u32>,
        gathered: &mut HashSet<u32>,
        packing: &mut Packing,
    ) -> FsResult<()> {
        let mut path = vec![ino];
        let leaf = match lblk {
            Some(lblk) => self.leaf_nid(ino, lblk)?,
            None => None,
        };
        let mut ino = ino;
        while ino != ROOT && path.len() < DEPTH_MAX {
            ino = self.live(ino)?.inode().attributes.parent;
            path.push(ino);
        }
        for ino in path.into_iter().rev().filter(|&ino| gathered.insert(ino)) {
            self.gather_directory(ino)?;
            self.write_again(ino, packing)?;
        }
        match leaf {
            Some(nid) if gathered.insert(nid) => self.write_again(nid, packing),
            _ => Ok(()),
        }
    }

    /// Has the blocks of a directory that is not large written again.
    fn gather_directory(&mut self, ino: u32) -> FsResult<()> {
        let blocks = self.blocks_of(ino)?;
        let is_small = self.live(ino)?.kind() == Type::Directory && blocks <= DIRECTORY_MAX;
        let mut places = Vec::new();
        if is_small {
            self.for_pointers(ino, 0..blocks, |lblk, pointer| {
                places.extend(pointer.block().map(|block| (lblk, block)));
            })?;
        }
        let moment = self.store.moment();
        places.into_iter().try_for_each(|(lblk, block)| {
            let owner = Owner { ino, lblk };
            self.relocate_data(owner, block, HeadKind::HotData, moment)
        })
    }

    /// Has a node written at another place, if it has one.
    fn write_again(&mut self, nid: u32, packing: &mut Packing) -> FsResult<()> {
        let place = self.place_of(nid)?;
        let is_inode = self.nodes.entry(nid)?.ino == nid && place != NodePlace::None;
        if is_inode && self.pack_inode(nid, packing)? {
            return Ok(());
        }
        match place {
            // All beside each other, whatever they are of.
            NodePlace::Block(place) => {
                let moment = self.store.moment();
                self.relocate_node(nid, place, Some(HeadKind::ColdNode), moment)
            }
            NodePlace::Slot(..) => {
                self.live(nid)?;
                self.write_inode(nid, Some(HeadKind::ColdNode))
            }
            // The next checkpoint gives it one.
            NodePlace::None => Ok(()),
        }
    }
}
