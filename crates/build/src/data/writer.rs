//! The one thread that writes: it decides where everything lies, in the order of the tree.

use std::collections::HashMap;
use std::ops::Range;

use super::job::Job;
use super::piece::{Form, Piece, Turn};
use super::sharing::Target;
use super::stored::Stored;
use super::work::{Done, PackedBatch, PackedPiece, Pool, Work};
use crate::body::{Body, Mark};
use crate::extent::Tail;
use crate::fragments::{Fragments, Key};
use crate::options::RAW_SEGMENT_BYTES;
use crate::outbox::Outbox;
use crate::output::{Checkpoint, Output};
use crate::parts::Shared;
use crate::plan::Intent;
use crate::special::Content;
use crate::tree::NodeId;
use crate::{Error, Observer, Progress};

/// Batches under way for each worker where nothing is compressed: writing is slower than reading then, and more would only
/// wait.
const PLAIN_BATCHES_PER_WORKER: usize = 32;

/// Holds what has been written.
pub(crate) struct Written {
    pub stored: Vec<Stored>,
    /// The packed inode, which is complete unless directories follow.
    pub packed: Content,
    pub progress: Progress,
}

/// A compressed file of several parts that is being written.
struct Growing {
    node: NodeId,
    start: Checkpoint,
    body: Body,
    /// Bytes of the file that the extents hold.
    at: u64,
    tail: Tail,
}

impl Growing {
    fn append(&mut self, part: &Body) {
        self.at += part.bytes();
        self.body.append(part);
    }

    fn append_apart(&mut self, part: &Body) {
        self.at += part.bytes();
        self.body.append_apart(part);
    }
}

/// The bytes of a file that belong into the packed inode, from a byte of it on.
struct End<'a> {
    node: NodeId,
    at: u64,
    /// `None` if there are none.
    key: Option<Key>,
    content: &'a [u8],
}

/// The one thread that writes.
pub(super) struct Writer<'a> {
    job: &'a Job<'a>,
    outbox: Outbox<'a, PackedBatch>,
    fragments: Fragments,
    /// Most batches under way.
    batches_max: usize,
    observer: &'a dyn Observer,
    stored: Vec<Stored>,
    growing: Option<Growing>,
    /// Parts of files that have been stored ahead of the rest, by the byte at which they begin.
    ahead: HashMap<(NodeId, u64), (Body, Tail)>,
    /// The extents at which parts begin that others may share.
    marks: HashMap<(NodeId, u64), Mark>,
    progress: Progress,
    /// Bytes of the current file that are in `progress`.
    counted: u64,
}

impl<'a> Writer<'a> {
    pub fn new(job: &'a Job<'a>, output: &'a mut Output, observer: &'a dyn Observer) -> Self {
        let stored = job.tree.ids().map(|id| job.stored_without_blocks(id));
        let progress = job.total();
        observer.scanned(&progress);
        Self {
            job,
            outbox: Outbox::aligned(output, job.options.data_align_bytes()),
            fragments: Fragments::new(job),
            batches_max: match job.options.compression {
                Some(_) => usize::MAX,
                None => job.options.compressing_workers() * PLAIN_BATCHES_PER_WORKER,
            },
            observer,
            stored: stored.collect(),
            growing: None,
            ahead: HashMap::new(),
            marks: HashMap::new(),
            progress,
            counted: 0,
        }
    }

    /// Hands a batch to the workers, and writes what is ready until there is room for it.
    pub fn submit(&mut self, pool: &mut Pool, batch: Vec<Piece>) -> Result<(), Error> {
        let bytes: u64 = batch.iter().map(Piece::cost).sum();
        let copies = if self.job.options.compression.is_some() {
            2
        } else {
            1
        };
        let cost = bytes * copies;
        while let Some(packed) = pool.try_take() {
            self.batch(pool, packed)?;
        }
        self.outbox.settle()?;
        while !pool.has_room(cost + self.outbox.cost())
            || pool.is_empty() && !self.has_room()
            || pool.len() >= self.batches_max
        {
            // What the pool has takes less in the outbox, and a segment may begin with it.
            match pool.take() {
                Some(packed) => self.batch(pool, packed)?,
                None => self.outbox.wait()?,
            }
        }
        pool.submit(Work::Part(batch), cost);
        Ok(())
    }

    /// Writes what the workers have not given back yet, and has what comes next lie in another segment of the packed inode.
    pub fn cut_packed(&mut self, pool: &mut Pool) -> Result<(), Error> {
        while let Some(packed) = pool.take() {
            self.batch(pool, packed)?;
        }
        match self.fragments.cut() {
            Some(content) => self.segment(pool, content),
            None => Ok(()),
        }
    }

    /// Writes what the workers have not given back yet, and what is left for the packed inode unless directories follow.
    pub fn rest(&mut self, pool: &mut Pool) -> Result<(), Error> {
        while let Some(packed) = pool.take() {
            self.batch(pool, packed)?;
        }
        self.segments(pool, !self.job.options.compress_directories)?;
        self.outbox.align()?;
        self.outbox.drain()
    }

    /// Returns whether what waits in the outbox is no more than may be in flight.
    fn has_room(&self) -> bool {
        self.outbox.is_empty() || self.outbox.cost() <= self.job.options.content_bytes()
    }

    fn batch(&mut self, pool: &mut Pool, done: Done) -> Result<(), Error> {
        let packed = done.part()?;
        let (mut bytes, mut fragments) = (&packed.bytes[..], &packed.fragments[..]);
        for piece in packed.pieces {
            let (blocks, fragment);
            (blocks, bytes) = bytes.split_at(piece.blocks);
            (fragment, fragments) = fragments.split_at(piece.fragment);
            self.piece(pool, piece, blocks, fragment)?;
            self.segments(pool, false)?;
        }
        self.observer.progressed(&self.progress);
        Ok(())
    }

    /// Has full segments of the packed inode compressed, at the end the last one as well.
    fn segments(&mut self, pool: &mut Pool, is_end: bool) -> Result<(), Error> {
        while let Some(content) = self.fragments.take_segment(is_end) {
            self.segment(pool, content)?;
        }
        Ok(())
    }

    /// Has a segment of the packed inode compressed.
    fn segment(&mut self, pool: &mut Pool, content: Vec<u8>) -> Result<(), Error> {
        let cost = 2 * content.len() as u64;
        // Two may be under way in any case, or all but one worker would be idle.
        let room = self.job.options.content_bytes().saturating_sub(cost);
        self.outbox.make_room(room.max(cost))?;
        self.outbox.align()?;
        let segment = pool.submit_aside(Work::Segment(content));
        self.outbox.push(segment, cost);
        Ok(())
    }

    fn piece(
        &mut self,
        pool: &mut Pool,
        packed: PackedPiece,
        blocks: &[u8],
        fragment: &[u8],
    ) -> Result<(), Error> {
        let piece = packed.piece;
        let Piece {
            node,
            offset,
            len,
            form,
            is_last,
            ..
        } = piece;
        if piece.turn == Turn::Ahead {
            return self.ahead(packed, blocks, fragment);
        }
        let in_parts = form == Form::Compressed && !piece.is_whole;
        if in_parts && self.growing.is_none() {
            self.grow(node)?;
        }
        if let Some(shared) = &piece.shared {
            return self.shared(pool, &piece, shared);
        }
        if piece.turn == Turn::Before {
            return self.before(&piece);
        }
        let is_raw = form == Form::Raw || form == Form::Compressed && packed.extents.is_none();
        if is_raw {
            self.outbox.align()?;
        }
        let is_whole = packed.extents.is_some() && !in_parts;
        let is_first = self.counted == 0 && self.growing.is_none();
        if (is_raw || is_whole) && is_first && !blocks.is_empty() && self.job.aligns_content() {
            self.outbox.align_content()?;
        }
        let place = self.outbox.place()?;
        self.outbox.write(blocks)?;
        let end = End {
            node,
            at: offset + len - fragment.len() as u64,
            key: packed.key,
            content: fragment,
        };
        match (packed.extents, &mut self.growing) {
            _ if form == Form::Packed => self.packed(&piece, &end)?,
            (Some(extents), Some(growing)) if in_parts => {
                if self.job.plan.cuts.contains_key(&node) {
                    let mark = growing.body.next(place);
                    self.marks.insert((node, offset), mark);
                }
                growing.append(&Body::new(place, extents));
                growing.tail = packed.tail;
            }
            (Some(extents), _) => {
                let body = Box::new(Body::new(place, extents));
                let tail = self.tail(packed.tail, &end)?;
                self.stored[node as usize] = Stored::Compressed { body, tail };
            }
            (None, _) => self.raw(node, self.outbox.block_of(place)?),
        }
        let len = match &self.growing {
            Some(growing) => growing.at - offset,
            None => len,
        };
        if in_parts && is_last {
            self.grown(&end)?;
        }
        // What lies behind the inode as a whole counts when that is written.
        if !self.job.is_inline(node, &self.stored[node as usize]) {
            self.count(node, len, is_last);
        }
        Ok(())
    }

    /// Begins a file of several parts.
    fn grow(&mut self, node: NodeId) -> Result<(), Error> {
        self.outbox.align()?;
        self.outbox.align_content()?;
        self.growing = Some(Growing {
            node,
            start: self.outbox.checkpoint()?,
            body: Body::default(),
            at: 0,
            tail: Tail::Blocks,
        });
        Ok(())
    }

    /// Stores a part of a file ahead of the rest.
    fn ahead(&mut self, packed: PackedPiece, blocks: &[u8], fragment: &[u8]) -> Result<(), Error> {
        let Piece {
            node, offset, len, ..
        } = packed.piece;
        let place = self.outbox.place()?;
        self.outbox.write(blocks)?;
        let end = End {
            node,
            at: offset + len - fragment.len() as u64,
            key: packed.key,
            content: fragment,
        };
        let tail = self.tail(packed.tail, &end)?;
        let extents = packed.extents.expect("a part alone is stored compressed");
        let body = Body::new(place, extents);
        self.ahead.insert((node, offset), (body, tail));
        Ok(())
    }

    /// Gives a file the extents of a part that has been stored ahead of it.
    fn before(&mut self, piece: &Piece) -> Result<(), Error> {
        let Piece {
            node,
            offset,
            is_last,
            ..
        } = *piece;
        let ahead = self.ahead.remove(&(node, offset));
        let (body, tail) = ahead.expect("the sweep comes first");
        let growing = self.growing.as_mut().expect("it has begun");
        if self.job.plan.cuts.contains_key(&node) {
            let mark = growing.body.next(body.first().at);
            self.marks.insert((node, offset), mark);
        }
        growing.append_apart(&body);
        growing.tail = tail;
        // Its end may have been left out.
        let done = growing.at - offset;
        if is_last {
            let nothing = End {
                node,
                at: offset + done,
                key: None,
                content: &[],
            };
            self.grown(&nothing)?;
        }
        self.count(node, done, is_last);
        Ok(())
    }

    /// Gives a file the extents of an earlier part, and compresses what has none that it can share.
    fn shared(&mut self, pool: &mut Pool, piece: &Piece, shared: &Shared) -> Result<(), Error> {
        let Piece { node, is_last, .. } = *piece;
        let end = piece.offset + piece.len;
        let part = self.part(node, shared);
        let growing = self.growing.as_mut().expect("it has begun");
        let before = growing.at;
        // What is in front may have been left out.
        if before == shared.start {
            growing.append(&part);
        }
        let at = growing.at;
        let is_done = at == end && is_last;
        if is_done {
            let nothing = End {
                node,
                at: end,
                key: None,
                content: &[],
            };
            self.grown(&nothing)?;
        }
        self.count(node, at - before, is_done);
        self.aside(pool, node, at..end, is_last)
    }

    /// The extents of an earlier part that another can share.
    fn part(&self, node: NodeId, shared: &Shared) -> Body {
        let size = self.job.tree.node(node).size;
        let target = Target::new(shared, size, self.job.options);
        let Shared { source, from, .. } = *shared;
        let growing = self
            .growing
            .as_ref()
            .filter(|growing| growing.node == source);
        let body = match (growing, &self.stored[source as usize]) {
            (Some(growing), _) => &growing.body,
            (None, Stored::Compressed { body, .. }) => body,
            (None, Stored::Flat { first_block, .. }) => {
                return target.flat(*first_block, from, self.job.flat_end(source));
            }
            _ => return Body::default(),
        };
        let first = (from == 0).then(|| body.first());
        let mark = self.marks.get(&(source, from)).copied().or(first);
        mark.map_or_else(Body::default, |mark| target.compressed(body.from(mark)))
    }

    /// Has a part of a file compressed for which there is nothing to share, and waits for it.
    fn aside(
        &mut self,
        pool: &mut Pool,
        node: NodeId,
        range: Range<u64>,
        is_last: bool,
    ) -> Result<(), Error> {
        let form = Form::Compressed;
        let segment = self.job.segment_bytes(form, self.job.tree.node(node).size);
        let block_bytes = u64::from(self.job.options.block_bytes());
        let mut offset = range.start;
        while offset < range.end {
            let end = (offset + segment) / block_bytes * block_bytes;
            let end = end.min(range.end);
            let piece = Piece {
                node,
                offset,
                len: end - offset,
                form,
                is_last: is_last && end == range.end,
                is_whole: false,
                shared: None,
                turn: Turn::Usual,
            };
            let done = pool.submit_aside(Work::Part(vec![piece])).take();
            self.batch(pool, done)?;
            offset = end;
        }
        Ok(())
    }

    /// Puts a part of a file into the packed inode.
    fn packed(&mut self, piece: &Piece, end: &End<'_>) -> Result<(), Error> {
        let is_whole = piece.offset == 0 && piece.is_last;
        let offset = match end.key {
            Some(key) if is_whole => self.fragment(key, end)?,
            _ => self.fragments.append(end.content),
        };
        if piece.offset == 0 {
            self.stored[piece.node as usize] = Stored::Packed { offset };
        }
        Ok(())
    }

    /// Puts the tail of a file into the packed inode, if it belongs there.
    fn tail(&mut self, tail: Tail, end: &End<'_>) -> Result<Tail, Error> {
        match (tail, end.key) {
            (Tail::Fragment(_), Some(key)) => Ok(Tail::Fragment(self.fragment(key, end)?)),
            _ => Ok(tail),
        }
    }

    fn fragment(&mut self, key: Key, end: &End<'_>) -> Result<u64, Error> {
        let at = (end.node, end.at);
        self.fragments.add(self.job, at, key, end.content)
    }

    /// Notes where a file that is not compressed begins.
    fn raw(&mut self, id: NodeId, first_block: u32) {
        let is_later_part = self.counted > 0;
        if is_later_part {
            return;
        }
        self.stored[id as usize] = match &self.job.plan.node(id).intent {
            Intent::Chunks(_) => Stored::Chunked { first_block },
            _ => Stored::Flat {
                first_block,
                inline: self.job.plan.inline_bytes(id, self.job.tree.node(id)),
            },
        };
    }

    /// Counts what has been done; holes and what lies behind the inode count with the last part.
    fn count(&mut self, node: NodeId, len: u64, is_last: bool) {
        self.counted += len;
        self.progress.bytes_done += len;
        if is_last {
            self.progress.bytes_done += self.job.tree.node(node).size - self.counted;
            self.progress.files_done += 1;
            self.counted = 0;
        }
    }

    /// Settles a file of several parts.
    fn grown(&mut self, end: &End<'_>) -> Result<(), Error> {
        let growing = self.growing.take().expect("it has begun");
        let Growing {
            node,
            start,
            body,
            tail,
            ..
        } = growing;
        let extents = body.extents();
        // Some of a file that is cut lies elsewhere already, and would lie there for nothing.
        let is_kept = self.job.plan.sweep.cuts(node);
        self.stored[node as usize] = if is_kept || self.job.is_worth_it(node, extents, tail) {
            let tail = self.tail(tail, end)?;
            let body = Box::new(body);
            Stored::Compressed { body, tail }
        } else if extents.iter().all(|extent| extent.plain)
            && body.shared_bytes() == 0
            && tail == Tail::Blocks
        {
            // Block by block, as it is: what has been written is its flat form already.
            self.outbox.align()?;
            Stored::Flat {
                first_block: self.outbox.block_of(body.first().at)?,
                inline: 0,
            }
        } else {
            self.outbox.rewind(start)?;
            let first_block = self.outbox.block_of(self.outbox.place()?)?;
            self.write_flat(node)?;
            let inline = self.job.plan.inline_bytes(node, self.job.tree.node(node));
            Stored::Flat {
                first_block,
                inline,
            }
        };
        Ok(())
    }

    fn write_flat(&mut self, id: NodeId) -> Result<(), Error> {
        let end = self.job.flat_end(id);
        let file = self.job.source.open_file(self.job.tree, id)?;
        for offset in (0..end).step_by(RAW_SEGMENT_BYTES as usize) {
            let mut bytes = vec![0; RAW_SEGMENT_BYTES.min(end - offset) as usize];
            file.read(offset, &mut bytes)?;
            self.job.pad(&mut bytes, 0);
            self.outbox.write(&bytes)?;
        }
        file.finish()
    }

    /// Tells where everything has come to lie.
    pub fn finish(self) -> Result<Written, Error> {
        let mut stored = self.stored;
        let places = self.outbox.finish()?;
        for stored in &mut stored {
            match stored {
                Stored::Flat { first_block, .. } | Stored::Chunked { first_block } => {
                    *first_block = places.block(*first_block, self.job.options.block_bits);
                }
                Stored::Compressed { body, .. } => body.relocate(|at| places.byte(at)),
                Stored::Nothing | Stored::Packed { .. } | Stored::Elsewhere | Stored::Kept => {}
            }
        }
        let mut progress = self.progress;
        for id in self.job.tree.ids() {
            match self.job.plan.node(id).intent {
                Intent::Same(first) => stored[id as usize] = stored[first as usize].clone(),
                _ if self.job.source.stored_block(id).is_some() => {}
                _ => continue,
            }
            progress.files_done += 1;
            progress.bytes_done += self.job.tree.node(id).size;
        }
        self.observer.progressed(&progress);
        let packed = Content {
            segments: self.fragments.into_content(),
            runs: places.runs,
        };
        Ok(Written {
            stored,
            packed,
            progress,
        })
    }
}
