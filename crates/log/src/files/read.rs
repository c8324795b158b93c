//! Reads: what is in memory is copied, and a plan says what is to be read from the device.

use std::ops::Range;

use anteros_core::FsResult;

use crate::files::Files;
use crate::files::content::blocks;
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::layout::{Block, Corrupt};
use crate::packing::unpack;
use crate::statistics::Class;
use crate::store::medium::BLOCK;

/// A part of a buffer that has to be read from the device.
pub(crate) struct Run {
    /// Tells where, in bytes.
    pub(crate) offset: u64,
    /// Tells which part of the buffer.
    pub(crate) part: Range<usize>,
}

/// A part of a buffer that has to be read from a packed block.
pub(crate) struct PackedRun {
    /// The logical block that it belongs to.
    pub(crate) owner: Owner,
    pub(crate) at: Slotted,
    /// From where in the logical block.
    pub(crate) skip: usize,
    /// Tells which part of the buffer.
    pub(crate) part: Range<usize>,
    /// The blocks that may be read with it, if it was compressed in the background; else none.
    pub(crate) near: Range<u64>,
}

impl PackedRun {
    /// Returns whether both lie in the same chunk.
    pub(crate) fn is_one_chunk_with(&self, other: &Self) -> bool {
        (self.at.block, self.at.slot) == (other.at.block, other.at.slot)
    }

    /// Fills its part of a buffer.
    pub(crate) fn fill(&self, chunk: &[u8], buf: &mut [u8]) {
        let page = unpack::page(chunk, self.at.sequence);
        let len = self.part.len();
        buf[self.part.clone()].copy_from_slice(&page[self.skip..self.skip + len]);
    }
}

/// Holds what has to be read for a buffer.
#[derive(Default)]
pub(crate) struct Plan {
    /// Tells how many bytes there are.
    pub(crate) len: usize,
    pub(crate) runs: Vec<Run>,
    pub(crate) packed: Vec<PackedRun>,
    /// Holds what the file counts as, if anything is packed.
    pub(crate) class: Class,
    /// Tells whether what lies around that is not to be read with it.
    pub(crate) alone: bool,
}

/// The part of a buffer that a block fills, which has this range of bytes, and from where in the block.
fn part_of(range: &Range<u64>, lblk: u32) -> (Range<usize>, usize) {
    let start = u64::from(lblk) * BLOCK;
    let from = start.max(range.start);
    let until = (start + BLOCK).min(range.end);
    (
        (from - range.start) as usize..(until - range.start) as usize,
        (from - start) as usize,
    )
}

/// Takes a part out of what is to be read.
fn cut(runs: &mut Vec<Run>, part: &Range<usize>) {
    let Some(at) = runs
        .iter()
        .position(|run| run.part.start < part.end && part.start < run.part.end)
    else {
        return;
    };
    let Run {
        offset,
        part: whole,
    } = runs.remove(at);
    let pieces = [
        whole.start..part.start.max(whole.start),
        part.end.min(whole.end)..whole.end,
    ];
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()).rev() {
        let offset = offset + (piece.start - whole.start) as u64;
        runs.insert(
            at,
            Run {
                offset,
                part: piece,
            },
        );
    }
}

impl Files {
    /// Fills `buf` with what is in memory or nowhere, and says how many bytes there are and what is to be
    /// read from the device.
    pub(crate) fn plan_read(&mut self, ino: u32, offset: u64, buf: &mut [u8]) -> FsResult<Plan> {
        let size = self.size(ino)?;
        let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        if len == 0 {
            return Ok(Plan::default());
        }
        let live = self.live(ino)?;
        if live.inode().attributes.is_inline {
            let start = offset as usize;
            let inline = live.inode().inline.get(start..start + len);
            let rule = "the size is not that of the inline content";
            buf.copy_from_slice(inline.ok_or(Corrupt::Node {
                nid: ino,
                rule,
                found: size,
            })?);
            return Ok(Plan {
                len,
                ..Plan::default()
            });
        }
        let range = offset..offset + len as u64;
        let (mut runs, mut packed) = self.places_of(ino, &range, buf)?;
        self.take_leaving(&mut runs, buf)?;
        self.take_leaving_packed(&mut packed, buf)?;
        let mut lay_over = |lblk: u32, data: &Block| {
            let (part, skip) = part_of(&range, lblk);
            cut(&mut runs, &part);
            packed.retain(|run| run.owner.lblk != lblk);
            let len = part.len();
            buf[part].copy_from_slice(&data[skip..skip + len]);
        };
        for (&lblk, page) in self.live(ino)?.pages.range(blocks(&range)) {
            lay_over(lblk, &page.data);
        }
        if let Some(write) = self.atomic_writes.get(&ino) {
            let pages = write.pages.range(blocks(&range));
            pages.for_each(|(&lblk, data)| lay_over(lblk, data));
        }
        let class = match packed.is_empty() {
            true => Class::default(),
            false => self.class(ino)?,
        };
        Ok(Plan {
            len,
            runs,
            packed,
            class,
            alone: self.live(ino)?.inode().attributes.is_launched,
        })
    }

    /// Fills the parts of `buf` whose blocks the device has not yet got.
    fn take_leaving(&self, runs: &mut Vec<Run>, buf: &mut [u8]) -> FsResult<()> {
        let mut taken = Vec::new();
        for run in &*runs {
            let places = run.offset / BLOCK..(run.offset + run.part.len() as u64).div_ceil(BLOCK);
            self.store.visit_writeback(places, |place, block| {
                let start = run.offset.max(place * BLOCK);
                let end = (run.offset + run.part.len() as u64).min((place + 1) * BLOCK);
                let at = run.part.start + (start - run.offset) as usize;
                let part = at..at + (end - start) as usize;
                let skip = (start - place * BLOCK) as usize;
                buf[part.clone()].copy_from_slice(&block[skip..skip + part.len()]);
                taken.push(part);
            })?;
        }
        taken.iter().for_each(|part| cut(runs, part));
        Ok(())
    }

    /// Takes the parts of packed runs whose chunks are not on the device yet, or not wholly.
    fn take_leaving_packed(&mut self, runs: &mut Vec<PackedRun>, buf: &mut [u8]) -> FsResult<()> {
        let mut rest = Vec::new();
        for run in runs.drain(..) {
            let mut is_under_writeback = false;
            let places = run.at.blocks();
            self.store
                .visit_writeback(*places.start()..places.end() + 1, |_, _| {
                    is_under_writeback = true
                })?;
            if is_under_writeback {
                let chunk = self.read_chunk(run.owner.ino, run.owner.lblk, run.at)?;
                run.fill(&chunk, buf);
            } else {
                rest.push(run);
            }
        }
        *runs = rest;
        Ok(())
    }

    /// Fills the holes of a range of bytes in `buf`, and finds the places of all else.
    fn places_of(
        &mut self,
        ino: u32,
        range: &Range<u64>,
        buf: &mut [u8],
    ) -> FsResult<(Vec<Run>, Vec<PackedRun>)> {
        let mut runs: Vec<Run> = Vec::new();
        let mut filled = 0;
        let mut packed = Vec::new();
        self.for_pointers(ino, blocks(range), |lblk, pointer| {
            if pointer == Pointer::Preallocated {
                return;
            }
            let (part, skip) = part_of(range, lblk);
            buf[filled..part.start].fill(0);
            filled = part.end;
            let block = match pointer {
                Pointer::Plain(block) => block,
                Pointer::Packed(at) => {
                    let owner = Owner { ino, lblk };
                    return packed.push(PackedRun {
                        owner,
                        at,
                        skip,
                        part,
                        near: 0..0,
                    });
                }
                Pointer::Hole | Pointer::Preallocated => return,
            };
            let at = block * BLOCK + skip as u64;
            match runs.last_mut() {
                Some(run)
                    if run.part.end == part.start && run.offset + run.part.len() as u64 == at =>
                {
                    run.part.end = part.end
                }
                _ => runs.push(Run { offset: at, part }),
            }
        })?;
        let mut near = 0..0;
        for run in &mut packed {
            if !near.contains(&run.at.block) {
                near = self.store.packed_near(run.at.block)?;
            }
            run.near = near.clone();
        }
        buf[filled..].fill(0);
        Ok((runs, packed))
    }
}
