//! Reads: what is in memory is copied, and a plan says what is to be read from the device.

use std::io;
use std::ops::Range;

use anteros_core::{FsResult, WritableDevice};

use crate::files::Files;
use crate::files::content::blocks;
use crate::layout::checksum::Checksum;
use crate::layout::pointer::{Pointer, Slotted};
use crate::layout::summary::Owner;
use crate::layout::{BLOCK_BYTES, Block, Corrupt};
use crate::packing::unpack;
use crate::statistics::Class;
use crate::store::medium::{BLOCK, read_block, read_bytes};

/// A part of a buffer that has to be read from the device.
pub(crate) struct Run {
    /// Tells where, in bytes.
    offset: u64,
    /// Tells which part of the buffer.
    part: Range<usize>,
    /// The first of the logical blocks that it lies in.
    owner: Owner,
    /// Those of the blocks that it lies in.
    checksums: Vec<Checksum>,
}

impl Run {
    fn blocks(&self) -> Range<u64> {
        self.offset / BLOCK..(self.offset + self.part.len() as u64).div_ceil(BLOCK)
    }

    /// The part of it that fills this part of the buffer.
    fn piece(&self, part: Range<usize>) -> Self {
        let offset = self.offset + (part.start - self.part.start) as u64;
        let passed = offset / BLOCK - self.offset / BLOCK;
        let mut piece = Self {
            offset,
            part,
            owner: Owner {
                lblk: self.owner.lblk + passed as u32,
                ..self.owner
            },
            checksums: Vec::new(),
        };
        let blocks = piece.blocks();
        let checksums = self.checksums.iter().skip(passed as usize);
        piece.checksums = checksums
            .take((blocks.end - blocks.start) as usize)
            .copied()
            .collect();
        piece
    }

    /// Fills its part of a buffer by `read`, if all blocks hold what was written there.
    pub(crate) fn fill(
        &self,
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
        buf: &mut [u8],
    ) -> FsResult<()> {
        let part = &mut buf[self.part.clone()];
        let blocks = self.blocks();
        let len = (blocks.end - blocks.start) as usize * BLOCK_BYTES;
        if len == part.len() {
            read_bytes(read, self.offset, part)?;
            return self.check(part);
        }
        // The first block or the last one is wanted in part, and has to be checked as a whole.
        let mut whole = vec![0; len];
        read_bytes(read, blocks.start * BLOCK, &mut whole)?;
        self.check(&whole)?;
        let skip = (self.offset % BLOCK) as usize;
        part.copy_from_slice(&whole[skip..skip + part.len()]);
        Ok(())
    }

    fn check(&self, bytes: &[u8]) -> FsResult<()> {
        let blocks = bytes.chunks_exact(BLOCK_BYTES).flat_map(<&Block>::try_from);
        let places = self.blocks().zip(self.owner.lblk..);
        for ((block, checksum), (place, lblk)) in blocks.zip(&self.checksums).zip(places) {
            checksum.check(block, Owner { lblk, ..self.owner }, place)?;
        }
        Ok(())
    }
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

impl Plan {
    /// Reads all of it, each chunk by itself.
    pub(crate) fn read(&self, device: &dyn WritableDevice, buf: &mut [u8]) -> FsResult<()> {
        for run in &self.runs {
            run.fill(|offset, bytes| device.read_at(offset, bytes), buf)?;
        }
        for runs in self.packed.chunk_by(PackedRun::is_one_chunk_with) {
            let read = |block| read_block(device, block);
            let (chunk, _) = unpack::chunk(runs[0].owner, runs[0].at, read)?;
            runs.iter().for_each(|run| run.fill(&chunk, buf));
        }
        Ok(())
    }
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
    let run = runs.remove(at);
    let whole = run.part.clone();
    let pieces = [
        whole.start..part.start.max(whole.start),
        part.end.min(whole.end)..whole.end,
    ];
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()).rev() {
        runs.insert(at, run.piece(piece));
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
            self.store.visit_writeback(run.blocks(), |place, block| {
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
            let owner = Owner { ino, lblk };
            let (block, checksum) = match pointer {
                Pointer::Plain(block, checksum) => (block, checksum),
                Pointer::Packed(at) => {
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
                    run.part.end = part.end;
                    run.checksums.push(checksum);
                }
                _ => runs.push(Run {
                    offset: at,
                    part,
                    owner,
                    checksums: vec![checksum],
                }),
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
