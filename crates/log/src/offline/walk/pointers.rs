//! The pointers of inodes and direct nodes: blocks of content, and chunks in packed blocks.

use anteros_core::{FileKind, FsResult, Record, Sorter};

use super::finding::Fault;
use super::records::{Chunk, DirBlock, Extent, PlainBlock, Wanted};
use super::{Sink, Walk};
use crate::layout::node::{self, DIRECT_POINTERS, INODE_POINTERS, NodeKind};
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::{BLOCK_BYTES, Block};

impl<S: Sink> Walk<'_, S> {
    /// Counts the blocks of directories that a mount would write, and has them looked at.
    pub(super) fn count_unplaced(&mut self, ino: u32) -> FsResult<()> {
        let Some(live) = self.state.loaded(ino) else {
            return Ok(());
        };
        if live.kind() == FileKind::Directory {
            for &lblk in live.pages.keys() {
                self.dir_blocks.push(DirBlock {
                    ino,
                    lblk,
                    ..DirBlock::default()
                })?;
            }
        }
        if live.dirty_pages == 0 {
            return Ok(());
        }
        match self.state.unplaced(ino) {
            Ok(unplaced) => {
                self.counts.data_blocks += unplaced;
                self.count_blocks(ino, unplaced)
            }
            Err(error) => self.note_torn(ino, Fault::Unplaced(error)),
        }
    }

    /// Looks at the pointers of a node.
    pub(super) fn visit_pointers(
        &mut self,
        of: &Wanted,
        block: &Block,
        kind: NodeKind,
    ) -> FsResult<()> {
        let count = match kind {
            NodeKind::Inode => INODE_POINTERS,
            _ => DIRECT_POINTERS,
        };
        let (mut extent, mut chunk) = (Extent::default(), Chunk::default());
        let mut counted = 0;
        for (index, lblk) in (0..count as u16).zip(of.first..) {
            let raw = node::pointer(block, kind, index);
            if raw == 0 {
                continue;
            }
            counted += 1;
            let pointer = match Pointer::decode(raw, self.state.store.superblock(), of.nid, index) {
                Ok(pointer) => pointer,
                Err(fault) => {
                    self.note_torn(of.ino, Fault::Pointer { lblk, fault })?;
                    continue;
                }
            };
            match pointer {
                Pointer::Plain(block, checksum) => {
                    self.counts.data_blocks += 1;
                    let next = Extent {
                        block,
                        blocks: 1,
                        ino: of.ino,
                        lblk,
                        is_node: 0,
                    };
                    if !extent.goes_on(&next) {
                        push_unless_empty(&mut self.extents, extent, extent.blocks)?;
                        extent = next;
                    }
                    if of.is_directory != 0 {
                        self.dir_blocks.push(DirBlock {
                            ino: of.ino,
                            lblk,
                            place: block,
                            checksum: checksum.bits(),
                        })?;
                    } else if let Some(content) = &mut self.content {
                        content.push(PlainBlock {
                            place: block,
                            ino: of.ino,
                            lblk,
                            checksum: checksum.bits(),
                        })?;
                    }
                }
                Pointer::Packed(at) => {
                    let next = Chunk::of(of.ino, lblk, at);
                    if !chunk.add(&next) {
                        push_unless_empty(&mut self.chunks, chunk, chunk.sequences)?;
                        chunk = next;
                    }
                }
                Pointer::Preallocated => self.counts.preallocated += 1,
                Pointer::Hole => {}
            }
            if let Some(block) = pointer.block() {
                let size = of.size;
                if u64::from(lblk) * BLOCK_BYTES as u64 >= size {
                    self.find_in(of.ino, Fault::Beyond { lblk, size, block });
                }
            }
        }
        push_unless_empty(&mut self.extents, extent, extent.blocks)?;
        push_unless_empty(&mut self.chunks, chunk, chunk.sequences)?;
        self.count_blocks(of.ino, counted)
    }
}

fn push_unless_empty<R: Record>(sorter: &mut Sorter<R>, record: R, size: u32) -> FsResult<()> {
    match size {
        0 => Ok(()),
        _ => Ok(sorter.push(record)?),
    }
}

impl Extent {
    /// Takes in what comes right behind.
    fn goes_on(&mut self, next: &Self) -> bool {
        let is_behind = self.blocks > 0
            && next.block == self.block + u64::from(self.blocks)
            && next.lblk == self.lblk + self.blocks;
        self.blocks += u32::from(is_behind);
        is_behind
    }
}

impl Chunk {
    fn of(ino: u32, lblk: u32, at: Slotted) -> Self {
        Self {
            block: at.block,
            slot: at.slot,
            behind: at.behind,
            ino,
            first: lblk.wrapping_sub(at.sequence.into()),
            sequences: 1 << at.sequence,
        }
    }
}
