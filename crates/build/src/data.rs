//! File content: read and compressed by all workers, written in the order of the tree.
//!
//! Small files travel in batches, large ones in segments. The workers know no addresses: what they
//! give back can lie anywhere, and the one thread that writes decides where, in order. So the image
//! does not depend on how many workers there are.
//!
//! A file of one segment is judged where it is compressed. Of a larger one the writer sees only at
//! its end whether compression has saved enough; if it has not, the writer goes back to where the
//! file began and writes it as it is.

use std::sync::atomic::AtomicBool;

use anteros_core::FileKind;
use anteros_format::SLOT_BYTES;

use crate::compress::{Compressor, Extent, Stopped};
use crate::fragments::{Fragments, Key, PackedInode};
use crate::ordered::{Ordered, with_workers};
use crate::outbox::{Outbox, Segment};
use crate::output::{Checkpoint, Output};
use crate::plan::{Intent, Plan};
use crate::source::Source;
use crate::tail::Tail;
use crate::tree::{NodeId, Tree};
use crate::{Error, Observer, Options, Progress};

/// Bytes of content and number of files at which a batch is large enough.
const BATCH_BYTES: u64 = 512 << 10;
const BATCH_PIECES: usize = 128;

/// Bytes of a segment that is not compressed.
pub(crate) const RAW_SEGMENT_BYTES: u64 = 1 << 20;

/// Tells where the content of an inode has come to lie.
#[derive(Debug, Clone, Default)]
pub(crate) enum Stored {
    /// Nowhere.
    #[default]
    Nothing,
    /// In blocks as it is, the last bytes behind the inode.
    Flat { first_block: u32, inline: u64 },
    /// In compressed extents, one behind the other.
    Compressed {
        first_block: u32,
        extents: Vec<Extent>,
        tail: Tail,
    },
    /// In the packed inode, from this byte on.
    Packed { offset: u64 },
    /// In chunks, those with data one behind the other.
    Chunked { first_block: u32 },
}

/// All that reading and compressing needs to know.
pub(crate) struct Job<'a> {
    pub source: &'a Source,
    pub tree: &'a Tree,
    pub plan: &'a Plan,
    pub options: &'a Options,
    pub cancel: &'a AtomicBool,
}

/// Tells how a file is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// In blocks as it is.
    Raw,
    /// Compressed, if that saves enough.
    Compressed,
    /// In the packed inode.
    Packed,
}

/// A part of a file.
#[derive(Debug, Clone, Copy)]
struct Piece {
    node: NodeId,
    offset: u64,
    len: u64,
    form: Form,
    /// The file has no further part.
    is_last: bool,
}

/// A part of a file as it will be written: the next `blocks` bytes of those of its batch, and the next `fragment` ones of what goes
/// into the packed inode.
struct PackedPiece {
    piece: Piece,
    blocks: usize,
    fragment: usize,
    key: Option<Key>,
    /// `None` if it is not compressed after all.
    extents: Option<Vec<Extent>>,
    tail: Tail,
}

struct PackedBatch {
    bytes: Vec<u8>,
    fragments: Vec<u8>,
    pieces: Vec<PackedPiece>,
}

/// Work that workers are given: parts of files, or a segment of the packed inode.
enum Work {
    Pieces(Vec<Piece>),
    Segment(Vec<u8>),
}

/// Results that workers give back.
enum Done {
    Pieces(PackedBatch),
    Segment(Segment),
    Failed(Error),
}

impl From<Done> for Result<Segment, Error> {
    fn from(done: Done) -> Self {
        match done {
            Done::Segment(segment) => Ok(segment),
            Done::Failed(error) => Err(error),
            Done::Pieces(_) => unreachable!("only segments are submitted aside"),
        }
    }
}

impl From<Done> for Result<PackedBatch, Error> {
    fn from(done: Done) -> Self {
        match done {
            Done::Pieces(batch) => Ok(batch),
            Done::Failed(error) => Err(error),
            Done::Segment(_) => unreachable!("segments are submitted aside"),
        }
    }
}

type Pool = Ordered<Work, Done>;

/// Holds what has been written.
pub(crate) struct Written {
    pub stored: Vec<Stored>,
    pub packed: Option<PackedInode>,
    pub progress: Progress,
}

/// Writes the content of all regular files, but for what lies behind inodes.
pub(crate) fn write(
    job: &Job<'_>,
    output: &mut Output,
    observer: &dyn Observer,
) -> Result<Written, Error> {
    let stored = job
        .tree
        .ids()
        .map(|id| job.stored_without_blocks(id))
        .collect();
    let mut writer = Writer {
        job,
        outbox: Outbox::new(output),
        fragments: Fragments::new(job.options),
        observer,
        stored,
        growing: None,
        progress: job.total(),
        counted: 0,
    };
    observer.scanned(&writer.progress);
    let new_worker = || {
        let mut worker = Worker::new(job);
        move |work| worker.work(work)
    };
    with_workers(
        job.options.compressing_workers(),
        job.options.content_bytes(),
        new_worker,
        |pool: &mut Pool| {
            let mut batch = Vec::new();
            let mut bytes = 0;
            for piece in job.pieces() {
                batch.push(piece);
                bytes += piece.len;
                if bytes >= BATCH_BYTES || batch.len() >= BATCH_PIECES {
                    writer.submit(pool, std::mem::take(&mut batch), bytes)?;
                    bytes = 0;
                }
            }
            writer.submit(pool, batch, bytes)?;
            while let Some(packed) = pool.take() {
                writer.batch(pool, packed)?;
            }
            writer.segments(pool, true)?;
            writer.outbox.drain()
        },
    )?;
    writer.finish()
}

impl Job<'_> {
    fn total(&self) -> Progress {
        self.tree
            .files()
            .fold(Progress::default(), |total, node| Progress {
                files: total.files + 1,
                bytes: total.bytes + node.size,
                ..total
            })
    }

    /// Returns where an inode's content lies before any block has been written: behind the inode, if it fits
    /// there, or nowhere, if it is one hole.
    fn stored_without_blocks(&self, id: NodeId) -> Stored {
        let node = self.tree.node(id);
        match &self.plan.node(id).intent {
            Intent::Chunks(chunked) if chunked.runs.is_empty() => {
                Stored::Chunked { first_block: 0 }
            }
            Intent::Flat if node.kind == FileKind::Regular && self.flat_end(id) == 0 => {
                Stored::Flat {
                    first_block: 0,
                    inline: node.size,
                }
            }
            _ => Stored::Nothing,
        }
    }

    fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.tree.ids().flat_map(move |id| {
            let node = self.tree.node(id);
            let (form, runs) = match &self.plan.node(id).intent {
                Intent::Flat if node.kind == FileKind::Regular => {
                    (Form::Raw, vec![(0, self.flat_end(id))])
                }
                Intent::Compress => (Form::Compressed, vec![(0, node.size)]),
                Intent::Pack => (Form::Packed, vec![(0, node.size)]),
                Intent::Chunks(chunked) => (Form::Raw, chunked.runs.clone()),
                _ => (Form::Raw, Vec::new()),
            };
            let segment = self.segment_bytes(form, node.size);
            let file_end = runs.last().map_or(0, |(_, end)| *end);
            runs.into_iter().flat_map(move |(start, end)| {
                (start..end).step_by(segment as usize).map(move |offset| {
                    let len = segment.min(end - offset);
                    Piece {
                        node: id,
                        offset,
                        len,
                        form,
                        is_last: offset + len == file_end,
                    }
                })
            })
        })
    }

    /// Returns where the part of a flat file ends that lies in blocks of its own.
    fn flat_end(&self, id: NodeId) -> u64 {
        let node = self.tree.node(id);
        node.size - self.plan.inline_bytes(id, node)
    }

    fn segment_bytes(&self, form: Form, size: u64) -> u64 {
        match self.options.compression {
            Some(compression) if form == Form::Compressed => compression.segment_bytes_of(size),
            _ => RAW_SEGMENT_BYTES,
        }
    }

    /// Returns whether a file lies behind its inode as it is, and nowhere else.
    pub fn is_inline(&self, id: NodeId, stored: &Stored) -> bool {
        matches!(stored, Stored::Flat { inline, .. } if *inline == self.tree.node(id).size)
    }

    /// A compressor, where there is compression.
    pub fn compressor(&self) -> Compressor {
        let compression = self.options.compression.as_ref();
        let compression = compression.expect("only compressed files have a use for one");
        Compressor::new(compression, self.options.block_bytes())
    }

    /// Returns whether the compressed form of a file saves enough.
    fn is_worth_it(&self, id: NodeId, extents: &[Extent], tail: Tail) -> bool {
        let node = self.tree.node(id);
        let block_bytes = u64::from(self.options.block_bytes());
        let blocks: u64 = extents.iter().map(|e| u64::from(e.blocks)).sum();
        let mut compressed = blocks * block_bytes + self.plan.index_bytes(id, node);
        if let (Tail::Fragment(_), Some((last, others))) = (tail, extents.split_last()) {
            // It will shrink as the rest did, or not at all.
            let taken: u64 = others.iter().map(|e| u64::from(e.len)).sum();
            let shrinks = others.iter().any(|e| !e.plain);
            compressed += match shrinks {
                true => u64::from(last.len) * blocks * block_bytes / taken,
                false => last.len.into(),
            };
        }
        let mut flat = self.plan.flat_bytes(id, node);
        if tail != Tail::Blocks {
            // Inodes begin at slots, and what is behind one in its last slot costs nothing.
            let head = self.plan.head_bytes(id);
            compressed = (head + compressed + tail.inline_bytes()).next_multiple_of(SLOT_BYTES);
            flat = (head + flat).next_multiple_of(SLOT_BYTES);
        }
        let gain = self.options.compression.map_or(0, |c| c.min_gain_percent);
        let enough = u128::from(flat) * u128::from(100 - gain) / 100;
        compressed < flat && u128::from(compressed) <= enough
    }
}

/// Holds what a worker thread has.
struct Worker<'a> {
    job: &'a Job<'a>,
    /// Compresses files and the packed inode.
    compressor: Option<Compressor>,
    /// Reused from piece to piece.
    input: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(job: &'a Job<'a>) -> Self {
        let compressor = job.options.compression.map(|_| job.compressor());
        Self {
            job,
            compressor,
            input: Vec::new(),
        }
    }

    fn work(&mut self, work: Work) -> Done {
        let done = match work {
            Work::Pieces(pieces) => self.pack(pieces).map(Done::Pieces),
            Work::Segment(content) => self.segment(&content).map(Done::Segment),
        };
        done.unwrap_or_else(Done::Failed)
    }

    /// Compresses a segment of the packed inode.
    fn segment(&mut self, content: &[u8]) -> Result<Segment, Error> {
        let job = self.job;
        let packed = job.options.packed_pcluster_bytes();
        let (Some(compressor), Some(bytes)) = (&mut self.compressor, packed) else {
            unreachable!("only compressed files are packed");
        };
        compressor.set_pcluster_bytes(bytes);
        let mut segment = Segment::default();
        let Segment { bytes, extents } = &mut segment;
        compressor
            .segment(content, 0, bytes, extents, job.cancel)
            .map_err(|stopped| job.stopped(0, stopped))?;
        Ok(segment)
    }

    fn pack(&mut self, pieces: Vec<Piece>) -> Result<PackedBatch, Error> {
        let (mut bytes, mut fragments) = (Vec::new(), Vec::new());
        let packed = pieces.into_iter().map(|piece| {
            let starts = (bytes.len(), fragments.len());
            let compressed = self.piece(&piece, &mut bytes, &mut fragments)?;
            let (extents, tail) = compressed.unzip();
            let fragment = &fragments[starts.1..];
            Ok(PackedPiece {
                piece,
                blocks: bytes.len() - starts.0,
                fragment: fragment.len(),
                key: (!fragment.is_empty()).then(|| Key::of(fragment)),
                extents,
                tail: tail.unwrap_or_default(),
            })
        });
        let pieces = packed.collect::<Result<_, Error>>()?;
        Ok(PackedBatch {
            bytes,
            fragments,
            pieces,
        })
    }

    fn piece(
        &mut self,
        piece: &Piece,
        out: &mut Vec<u8>,
        fragments: &mut Vec<u8>,
    ) -> Result<Option<(Vec<Extent>, Tail)>, Error> {
        let job = self.job;
        if job.cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let file = job.source.open_file(job.tree, piece.node)?;
        let is_compressed = piece.form == Form::Compressed;
        let compressor = self.compressor.as_mut().filter(|_| is_compressed);
        let compression = job.options.compression;
        let (Some(compressor), Some(compression)) = (compressor, compression) else {
            let is_raw = piece.form == Form::Raw;
            let out = if is_raw { out } else { fragments };
            let start = out.len();
            out.resize(start + piece.len as usize, 0);
            file.read(piece.offset, &mut out[start..])?;
            file.finish()?;
            if is_raw {
                job.pad(out);
            }
            return Ok(None);
        };
        self.input.resize(piece.len as usize, 0);
        file.read(piece.offset, &mut self.input)?;
        file.finish()?;
        let start = out.len();
        let mut extents = Vec::new();
        compressor.set_pcluster_bytes(compression.pcluster_bytes);
        let leave = match job.options.packed_pcluster_bytes() {
            Some(_) if piece.is_last => compression.pcluster_bytes as usize,
            _ => 0,
        };
        let end = compressor
            .segment(&self.input, leave, out, &mut extents, job.cancel)
            .map_err(|stopped| job.stopped(piece.node, stopped))?;
        let node = job.tree.node(piece.node);
        let rest = &self.input[end..];
        let tail = match piece.is_last {
            true if !rest.is_empty() => {
                fragments.extend_from_slice(rest);
                extents.push(Extent {
                    len: rest.len() as u32, // at most a pcluster
                    blocks: 0,
                    plain: false,
                });
                Tail::Fragment(0) // the writer will know where
            }
            true => {
                let room = job.plan.tail_room(piece.node, node) as usize;
                let moved = compressor.move_inline(&self.input, room, out, &mut extents);
                moved.map_err(|stopped| job.stopped(piece.node, stopped))?
            }
            false => Tail::Blocks,
        };
        if piece.len == node.size && !job.is_worth_it(piece.node, &extents, tail) {
            fragments.truncate(fragments.len() - rest.len());
            out.truncate(start);
            out.extend_from_slice(&self.input[..job.flat_end(piece.node) as usize]);
            job.pad(out);
            return Ok(None);
        }
        Ok(Some((extents, tail)))
    }
}

impl Job<'_> {
    /// The error of a compressor that stopped in a file; in the root, if it was in the packed inode.
    pub(crate) fn stopped(&self, node: NodeId, stopped: Stopped) -> Error {
        match stopped {
            Stopped::Cancelled => Error::Cancelled,
            Stopped::Failed(cause) => Error::Compress {
                path: self.tree.full_path(self.source.path(), node),
                cause,
            },
        }
    }

    fn pad(&self, out: &mut Vec<u8>) {
        out.resize(
            out.len()
                .next_multiple_of(self.options.block_bytes() as usize),
            0,
        );
    }
}

/// A compressed file of several segments that is being written.
struct Growing {
    node: NodeId,
    start: Checkpoint,
    first_block: u32,
    extents: Vec<Extent>,
    tail: Tail,
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
struct Writer<'a> {
    job: &'a Job<'a>,
    outbox: Outbox<'a, Done>,
    fragments: Fragments,
    observer: &'a dyn Observer,
    stored: Vec<Stored>,
    growing: Option<Growing>,
    progress: Progress,
    /// Bytes of the current file that are in `progress`.
    counted: u64,
}

impl Writer<'_> {
    /// Hands a batch to the workers, and writes what is ready until there is room for it.
    fn submit(&mut self, pool: &mut Pool, batch: Vec<Piece>, bytes: u64) -> Result<(), Error> {
        let cost = bytes
            * if self.job.options.compression.is_some() {
                2
            } else {
                1
            };
        while let Some(packed) = pool.try_take() {
            self.batch(pool, packed)?;
        }
        self.outbox.settle()?;
        while !pool.has_room(cost + self.outbox.cost()) || pool.is_empty() && !self.has_room() {
            // What waits in the outbox comes before what the pool has.
            if !self.outbox.is_empty() {
                self.outbox.settle_first()?;
            } else if let Some(packed) = pool.take() {
                self.batch(pool, packed)?;
            }
        }
        if !batch.is_empty() {
            pool.submit(Work::Pieces(batch), cost);
        }
        Ok(())
    }

    /// Returns whether what waits in the outbox is no more than may be in flight.
    fn has_room(&self) -> bool {
        self.outbox.is_empty() || self.outbox.cost() <= self.job.options.content_bytes()
    }

    fn batch(&mut self, pool: &mut Pool, done: Done) -> Result<(), Error> {
        let packed = Result::<PackedBatch, Error>::from(done)?;
        let (mut bytes, mut fragments) = (&packed.bytes[..], &packed.fragments[..]);
        for piece in packed.pieces {
            let (blocks, fragment);
            (blocks, bytes) = bytes.split_at(piece.blocks);
            (fragment, fragments) = fragments.split_at(piece.fragment);
            self.piece(piece, blocks, fragment)?;
            self.segments(pool, false)?;
        }
        self.observer.progressed(&self.progress);
        Ok(())
    }

    /// Has full segments of the packed inode compressed, at the end the last one as well.
    fn segments(&mut self, pool: &mut Pool, is_end: bool) -> Result<(), Error> {
        while let Some(content) = self.fragments.take_segment(is_end) {
            let cost = 2 * content.len() as u64;
            while !self.outbox.is_empty()
                && self.outbox.cost() + cost > self.job.options.content_bytes()
            {
                self.outbox.settle_first()?;
            }
            let segment = pool.submit_aside(Work::Segment(content));
            self.outbox.push(segment, cost);
        }
        Ok(())
    }

    fn piece(&mut self, packed: PackedPiece, blocks: &[u8], fragment: &[u8]) -> Result<(), Error> {
        let Piece {
            node,
            offset,
            len,
            form,
            is_last,
        } = packed.piece;
        let size = self.job.tree.node(node).size;
        let in_segments = form == Form::Compressed && len < size;
        if in_segments && offset == 0 {
            let start = self.outbox.checkpoint()?;
            self.growing = Some(Growing {
                node,
                start,
                first_block: self.outbox.block()?,
                extents: Vec::new(),
                tail: Tail::Blocks,
            });
        }
        let first_block = self.outbox.block()?;
        self.outbox.write(blocks)?;
        let end = End {
            node,
            at: offset + len - fragment.len() as u64,
            key: packed.key,
            content: fragment,
        };
        match (packed.extents, &mut self.growing) {
            _ if form == Form::Packed => self.packed(&packed.piece, &end)?,
            (Some(extents), Some(growing)) if in_segments => {
                growing.extents.extend(extents);
                growing.tail = packed.tail;
            }
            (Some(extents), _) => {
                let tail = self.tail(packed.tail, &end)?;
                self.stored[node as usize] = Stored::Compressed {
                    first_block,
                    extents,
                    tail,
                }
            }
            (None, _) => self.raw(node, first_block),
        }
        if in_segments && is_last {
            let growing = self.growing.take().expect("begun with the first segment");
            self.grown(growing, &end)?;
        }
        // What lies behind the inode as a whole counts when that is written.
        if !self.job.is_inline(node, &self.stored[node as usize]) {
            self.count(node, len, is_last);
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

    /// Settles a file of several segments.
    fn grown(&mut self, growing: Growing, end: &End<'_>) -> Result<(), Error> {
        let Growing {
            node,
            start,
            first_block,
            extents,
            tail,
        } = growing;
        let all_plain = extents.iter().all(|extent| extent.plain);
        self.stored[node as usize] = if self.job.is_worth_it(node, &extents, tail) {
            Stored::Compressed {
                first_block,
                extents,
                tail: self.tail(tail, end)?,
            }
        } else if all_plain && tail == Tail::Blocks {
            // Block by block, as it is: what has been written is its flat form already.
            Stored::Flat {
                first_block,
                inline: 0,
            }
        } else {
            self.outbox.rewind(start)?;
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
            self.job.pad(&mut bytes);
            self.outbox.write(&bytes)?;
        }
        file.finish()
    }

    /// Tells where everything has come to lie.
    fn finish(self) -> Result<Written, Error> {
        let mut stored = self.stored;
        let places = self.outbox.finish()?;
        for stored in &mut stored {
            match stored {
                Stored::Flat { first_block, .. }
                | Stored::Compressed { first_block, .. }
                | Stored::Chunked { first_block } => *first_block = places.block(*first_block),
                Stored::Nothing | Stored::Packed { .. } => {}
            }
        }
        let mut progress = self.progress;
        for id in self.job.tree.ids() {
            let Intent::Same(first) = self.job.plan.node(id).intent else {
                continue;
            };
            stored[id as usize] = stored[first as usize].clone();
            progress.files_done += 1;
            progress.bytes_done += self.job.tree.node(id).size;
        }
        self.observer.progressed(&progress);
        let packed = (!places.runs.is_empty()).then(|| PackedInode {
            size: self.fragments.size(),
            runs: places.runs,
        });
        Ok(Written {
            stored,
            packed,
            progress,
        })
    }
}
