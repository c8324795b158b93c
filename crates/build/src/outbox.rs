//! Blocks on their way to the image, in an order that does not depend on who is ready first.
//!
//! A segment of the packed inode belongs where its last fragment was found, but is compressed only then. What comes behind
//! it waits here, and meanwhile has *provisional* places: those it would have if the segments took no room. When all
//! is written, [`Places`] knows the final ones.
//!
//! Invariant B10 of `docs/design/building.md`: provisional places become the right ones.

use std::collections::VecDeque;

use crate::Error;
use crate::extent::Extent;
use crate::ordered::{Aside, wait_for_any};
use crate::output::{Checkpoint, Output};

/// A segment of the packed inode, compressed.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    pub bytes: Vec<u8>,
    pub extents: Vec<Extent>,
}

impl Segment {
    /// Bytes of memory.
    fn cost(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Work of threads that make parts of the image, and beside that compress segments.
pub(crate) enum Work<T> {
    Part(T),
    Segment(Vec<u8>),
}

/// Results that they give back.
pub(crate) enum Done<T> {
    Part(T),
    Segment(Segment),
    Failed(Error),
}

impl<T> From<Result<Self, Error>> for Done<T> {
    fn from(done: Result<Self, Error>) -> Self {
        done.unwrap_or_else(Self::Failed)
    }
}

impl<T> Done<T> {
    /// The part, where one was asked for.
    pub fn part(self) -> Result<T, Error> {
        match self {
            Self::Part(part) => Ok(part),
            Self::Failed(error) => Err(error),
            Self::Segment(_) => unreachable!("the outbox waits for segments"),
        }
    }

    /// The segment, where one was asked for.
    fn segment(self) -> Result<Segment, Error> {
        match self {
            Self::Segment(segment) => Ok(segment),
            Self::Failed(error) => Err(error),
            Self::Part(_) => unreachable!("the outbox waits for segments alone"),
        }
    }
}

enum Item<T> {
    Bytes(Vec<u8>),
    /// So many zeros.
    Zeros(u64),
    /// A segment that is being compressed, and the memory it takes.
    Pending(Aside<Done<T>>, u64),
    Segment(Segment),
}

/// Blocks and segments that are to be written, in order.
pub(crate) struct Outbox<'a, T> {
    output: &'a mut Output,
    queue: VecDeque<Item<T>>,
    /// Bytes in the queue, those of segments left out.
    queued: u64,
    /// Bytes in memory.
    cost: u64,
    /// Bytes of segments that have been written.
    inserted: u64,
    /// Bytes of which segments take a multiple, so that what is aligned stays so.
    unit: u64,
    places: Places,
}

/// Tells where bytes with provisional places lie, and the segments among them.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The provisional place of the byte in front of which a segment lies, and the bytes of all segments up to it.
    shifts: Vec<(u64, u64)>,
    /// The provisional end. What lies behind it was never here.
    end: u64,
    /// The segments, where they lie, in their order.
    pub runs: Vec<(u64, Vec<Extent>)>,
}

impl Places {
    /// The final number of a block.
    pub fn block(&self, provisional: u32, block_bits: u8) -> u32 {
        (self.byte(u64::from(provisional) << block_bits) >> block_bits) as u32 // it was written
    }

    /// The final place of a byte.
    pub fn byte(&self, provisional: u64) -> u64 {
        if provisional > self.end {
            return provisional;
        }
        let before = self.shifts.partition_point(|(at, _)| *at <= provisional);
        let shift = before.checked_sub(1).map_or(0, |last| self.shifts[last].1);
        provisional + shift
    }
}

impl<'a, T> Outbox<'a, T> {
    pub fn new(output: &'a mut Output) -> Self {
        let unit = output.block_bytes();
        Self::aligned(output, unit)
    }

    /// An outbox in which content can be aligned to so many bytes, whole blocks.
    pub fn aligned(output: &'a mut Output, unit: u64) -> Self {
        Self {
            output,
            unit,
            queue: VecDeque::new(),
            queued: 0,
            cost: 0,
            inserted: 0,
            places: Places::default(),
        }
    }

    /// The provisional place of the byte that comes next.
    pub fn place(&self) -> Result<u64, Error> {
        let place = self.output.position() - self.inserted + self.queued;
        self.output.check(place)?;
        Ok(place)
    }

    /// The number of the block at a place.
    pub fn block_of(&self, place: u64) -> Result<u32, Error> {
        self.output.block_of(place)
    }

    /// Bytes that wait.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Appends zeros up to the next block.
    pub fn align(&mut self) -> Result<(), Error> {
        self.align_to(self.output.block_bytes())
    }

    /// Appends zeros up to where content may begin that is to be aligned.
    pub fn align_content(&mut self) -> Result<(), Error> {
        self.align_to(self.unit)
    }

    fn align_to(&mut self, unit: u64) -> Result<(), Error> {
        let place = self.place()?;
        match place.next_multiple_of(unit) - place {
            0 => {}
            zeros if self.queue.is_empty() => {
                self.output.pad_to(self.output.position() + zeros)?;
            }
            zeros => {
                self.queue.push_back(Item::Zeros(zeros));
                self.queued += zeros;
            }
        }
        Ok(())
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.queue.is_empty() {
            return self.output.write(bytes);
        }
        if !bytes.is_empty() {
            self.queue.push_back(Item::Bytes(bytes.to_vec()));
            self.queued += bytes.len() as u64;
            self.cost += bytes.len() as u64;
        }
        Ok(())
    }

    /// Appends a segment that is being compressed, and takes so many bytes of memory.
    pub fn push(&mut self, segment: Aside<Done<T>>, cost: u64) {
        self.queue.push_back(Item::Pending(segment, cost));
        self.cost += cost;
    }

    /// Writes what need not be waited for.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.collect()?;
        while !matches!(self.queue.front(), None | Some(Item::Pending(..))) {
            self.settle_first()?;
        }
        Ok(())
    }

    /// Waits until what is in memory takes no more than so many bytes, or nothing is left.
    pub fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        self.settle()?;
        while !self.is_empty() && self.cost > bytes {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits for a segment, whichever is compressed first, and writes what need not be waited for.
    pub fn wait(&mut self) -> Result<(), Error> {
        let pending = || {
            self.queue.iter().filter_map(|item| match item {
                Item::Pending(segment, _) => Some(segment),
                _ => None,
            })
        };
        if pending().next().is_some() {
            wait_for_any(pending());
        }
        self.settle()
    }

    /// Takes the segments that are compressed. They take no more memory than they did before.
    fn collect(&mut self) -> Result<(), Error> {
        for item in &mut self.queue {
            let Item::Pending(segment, cost) = item else {
                continue;
            };
            if let Some(done) = segment.try_take() {
                let segment = done.segment()?;
                self.cost = self.cost - *cost + segment.cost();
                *item = Item::Segment(segment);
            }
        }
        Ok(())
    }

    /// Writes all.
    pub fn drain(&mut self) -> Result<(), Error> {
        while !self.queue.is_empty() {
            self.settle_first()?;
        }
        Ok(())
    }

    /// Writes what comes first, if anything does.
    fn settle_first(&mut self) -> Result<(), Error> {
        match self.queue.pop_front() {
            None => Ok(()),
            Some(Item::Bytes(bytes)) => {
                self.queued -= bytes.len() as u64;
                self.cost -= bytes.len() as u64;
                self.output.write(&bytes)
            }
            Some(Item::Zeros(zeros)) => {
                self.queued -= zeros;
                self.output.pad_to(self.output.position() + zeros)
            }
            Some(Item::Pending(segment, cost)) => {
                self.cost -= cost;
                self.segment(segment.take().segment()?)
            }
            Some(Item::Segment(segment)) => {
                self.cost -= segment.cost();
                self.segment(segment)
            }
        }
    }

    fn segment(&mut self, Segment { bytes, extents }: Segment) -> Result<(), Error> {
        let at = self.output.position();
        self.output.check(at)?;
        let provisional = at - self.inserted;
        self.output.write(&bytes)?;
        let taken = match self.unit > self.output.block_bytes() {
            true => (bytes.len() as u64).next_multiple_of(self.unit),
            false => bytes.len() as u64,
        };
        self.output.pad_to(at + taken)?;
        self.inserted += taken;
        self.places.shifts.push((provisional, self.inserted));
        self.places.runs.push((at, extents));
        Ok(())
    }

    /// Remembers the position; nothing waits.
    pub fn checkpoint(&mut self) -> Result<Checkpoint, Error> {
        self.drain()?;
        Ok(self.output.checkpoint())
    }

    /// Takes back what was written since, no segment among it.
    pub fn rewind(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        debug_assert!(self.queue.is_empty());
        self.output.rewind(checkpoint)
    }

    /// Writes all, and tells where it lies.
    pub fn finish(mut self) -> Result<Places, Error> {
        self.drain()?;
        Ok(Places {
            end: self.output.position() - self.inserted,
            ..self.places
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant B10 of `docs/design/building.md`.
    #[test]
    fn blocks_move_by_the_segments_in_front_of_them() {
        let places = Places {
            shifts: vec![(3, 10), (3, 15), (7, 16)],
            end: 100,
            runs: Vec::new(),
        };
        let found: Vec<_> = [0, 2, 3, 6, 7, 100, 101].map(|n| places.byte(n)).to_vec();
        assert_eq!(found, [0, 2, 18, 21, 23, 116, 101]);
    }
}
