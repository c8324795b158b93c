//! The one thread that writes: it decides where everything lies, in the order of the tree.

use std::collections::HashMap;
use std::ops::Range;

use super::job::Job;
use super::piece::{Form, Piece, Turn};
use super::sharing::{self, Target};
use super::stored::Stored;
use super::work::{Done, PackedBatch, PackedPiece, Pool, Work};
use crate::body::{Body, Mark};
use crate::extent::{Extent, Share, Tail};
use crate::fragments::{Fragments, Key};
use crate::options::RAW_SEGMENT_BYTES;
use crate::outbox::Outbox;
use crate::output::{Checkpoint, Output};
use crate::parts::Shared;
use crate::patch::kept::Kept;
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

impl End<'_> {
    /// No bytes, behind byte `at` of a file.
    const fn none(node: NodeId, at: u64) -> Self {
        Self {
            node,
            at,
            key: None,
            content: &[],
        }
    }
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
        mut packed: PackedPiece,
        blocks: &[u8],
        fragment: &[u8],
    ) -> Result<(), Error> {
        if packed.piece.turn == Turn::Ahead {
            return self.ahead(packed, blocks, fragment);
        }
        let Piece { node, form, .. } = packed.piece;
        let in_parts = form == Form::Compressed && !packed.piece.is_whole;
        if in_parts && self.growing.is_none() {
            self.grow(node)?;
        }
        if let Some(shared) = &packed.piece.shared {
            return self.shared(pool, &packed.piece, shared);
        }
        if packed.piece.turn == Turn::Before {
            return self.before(&packed.piece);
        }
        let mut blocks = blocks;
        if let Some(extents) = packed.extents.as_mut().filter(|_| in_parts) {
            let Some(count) = self.follow(pool, &packed.piece, extents)? else {
                return Ok(());
            };
            for extent in extents.drain(..count) {
                packed.piece.offset += u64::from(extent.len);
                packed.piece.len -= u64::from(extent.len);
                blocks = &blocks[extent.stored as usize..];
            }
        }
        let piece = packed.piece;
        let Piece {
            offset,
            len,
            is_last,
            ..
        } = piece;
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

    /// Gives a file the extents of a part that has been stored ahead of it. Such a file has no other cuts, so its parts begin
    /// and end where blocks do.
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
        growing.append_apart(&body);
        growing.tail = tail;
        let at = growing.at;
        if is_last {
            self.grown(&End::none(node, at))?;
        }
        self.count(node, at - offset, is_last);
        Ok(())
    }

    /// Gives a file the extents of an earlier part, and compresses what can have none of them.
    fn shared(&mut self, pool: &mut Pool, piece: &Piece, shared: &Shared) -> Result<(), Error> {
        let Piece { node, is_last, .. } = *piece;
        let kept = self.job.plan.kept.get(&node);
        if let Some(offset) = kept.and_then(|kept| kept.fragment_at(shared.start)) {
            return self.kept_fragment(pool, piece, shared, offset);
        }
        let target = Target::new(shared, self.job.tree.node(node).size, self.job.options);
        let extents = self.extents_of(shared);
        let (mut rest, mut at) = (&extents[..], shared.start);
        while at < shared.end {
            if self.grown_to(at) == at {
                let part = target.compressed(at, rest);
                rest = &rest[part.extents().len()..];
                self.extend(node, &part);
                at = self.grown_to(at);
            }
            // There is no room for the next one, or the end of what lies in front of it was left out.
            let Some(((extent, _), behind)) = rest.split_first() else {
                break;
            };
            (rest, at) = (behind, at + u64::from(extent.len));
            if at < shared.end {
                self.aside(pool, node, self.grown_to(at)..at, false)?;
            }
        }
        let at = self.grown_to(shared.end);
        if at < shared.end || !is_last {
            return self.aside(pool, node, at..shared.end, is_last);
        }
        self.grown(&End::none(node, at))?;
        self.count(node, 0, true);
        Ok(())
    }

    /// Gives a file the end that it has in the packed inode already. What was left out in front of it is compressed with some of
    /// that, up to a block.
    fn kept_fragment(
        &mut self,
        pool: &mut Pool,
        piece: &Piece,
        &Shared { start, end, .. }: &Shared,
        offset: u64,
    ) -> Result<(), Error> {
        let block_bytes = u64::from(self.job.options.block_bytes());
        let mut at = start;
        if self.grown_to(start) < start {
            at = (start + block_bytes).next_multiple_of(block_bytes).min(end);
            let is_last = at == end;
            self.aside(pool, piece.node, self.grown_to(at)..at, is_last)?;
        }
        if let Some(growing) = self.growing.as_mut().filter(|_| at < end) {
            let fragment = Extent {
                len: (end - at) as u32, // no more than an extent has
                stored: 0,
                plain: false,
                quick: false,
                share: Share::None,
            };
            // Packs add up blocks, also of what has none.
            let next = growing.body.end();
            growing.append(&Body::new(next, vec![fragment]));
            growing.tail = Tail::Fragment(offset + (at - start));
            self.grown(&End::none(piece.node, end))?;
            self.count(piece.node, end - at, true);
        }
        Ok(())
    }

    /// The byte up to which the growing file has extents; `all` if it is complete.
    fn grown_to(&self, all: u64) -> u64 {
        self.growing.as_ref().map_or(all, |growing| growing.at)
    }

    /// Appends extents that are shared to the growing file.
    fn extend(&mut self, node: NodeId, part: &Body) {
        if let Some(growing) = &mut self.growing {
            let before = growing.at;
            growing.append(part);
            let len = growing.at - before;
            self.count(node, len, false);
        }
    }

    /// The extents of an earlier part that another can share, each with the byte of the image at which it lies.
    fn extents_of(&self, shared: &Shared) -> Vec<(Extent, u64)> {
        let Shared { source, from, .. } = *shared;
        let len = shared.end - shared.start;
        if let Some(kept) = self.job.plan.kept.get(&source) {
            return sharing::front(kept.from(shared.start), len);
        }
        let growing = self
            .growing
            .as_ref()
            .filter(|growing| growing.node == source);
        let body = match (growing, &self.stored[source as usize]) {
            (Some(growing), _) => &growing.body,
            (None, Stored::Compressed { body, .. }) => body,
            (None, Stored::Flat { first_block, .. }) => {
                let bytes = from..self.job.flat_end(source);
                let extents = sharing::flat(*first_block, bytes, self.job.options);
                return sharing::front(extents, len);
            }
            _ => return Vec::new(),
        };
        let first = (from == 0).then(|| body.first());
        let Some(mark) = self.marks.get(&(source, from)).copied().or(first) else {
            return Vec::new();
        };
        sharing::front(body.from(mark), len)
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
        for (offset, len) in self.job.pieces_of(range.clone(), segment) {
            let piece = Piece {
                node,
                offset,
                len,
                form,
                is_last: is_last && offset + len == range.end,
                is_whole: false,
                shared: None,
                turn: Turn::Usual,
                is_hot: false,
            };
            let done = pool.submit_aside(Work::Part(vec![piece])).take();
            self.batch(pool, done)?;
        }
        Ok(())
    }

    /// Has a part of a file follow what lies in front of it, where the end of that was left out: compresses that together with
    /// as many extents of the part as are needed. Returns how many; `None` if all of the part was.
    fn follow(
        &mut self,
        pool: &mut Pool,
        piece: &Piece,
        extents: &[Extent],
    ) -> Result<Option<usize>, Error> {
        let end = piece.offset + piece.len;
        let (mut at, mut count) = (piece.offset, 0);
        while self.grown_to(at) < at {
            // The end of a file may be a fragment, which is made with all in front of it.
            if count + 1 >= extents.len() {
                self.aside(pool, piece.node, self.grown_to(end)..end, piece.is_last)?;
                return Ok(None);
            }
            at += u64::from(extents[count].len);
            count += 1;
            self.aside(pool, piece.node, self.grown_to(at)..at, false)?;
        }
        Ok(Some(count))
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
        let is_kept = self.job.plan.sweep.cuts(node) || self.job.plan.kept.contains_key(&node);
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
                _ if self.job.plan.kept.get(&id).is_some_and(Kept::is_all) => {}
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
