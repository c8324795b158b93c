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

use crate::compress::{Compressor, Extent};
use crate::ordered::{Ordered, with_workers};
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
const RAW_SEGMENT_BYTES: u64 = 1 << 20;

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

/// A part of a file.
#[derive(Debug, Clone, Copy)]
struct Piece {
    node: NodeId,
    offset: u64,
    len: u64,
    compress: bool,
    /// The file has no further part.
    is_last: bool,
}

/// A part of a file as it will be written: the next `len` bytes of its batch.
struct PackedPiece {
    piece: Piece,
    len: usize,
    /// `None` if it is not compressed after all.
    extents: Option<Vec<Extent>>,
    tail: Tail,
}

struct PackedBatch {
    bytes: Vec<u8>,
    pieces: Vec<PackedPiece>,
}

type Pool = Ordered<Vec<Piece>, Result<PackedBatch, Error>>;

/// Writes the content of all regular files, but for what lies behind inodes.
pub(crate) fn write(
    job: &Job<'_>,
    output: &mut Output,
    observer: &dyn Observer,
) -> Result<(Vec<Stored>, Progress), Error> {
    let stored = job
        .tree
        .ids()
        .map(|id| job.stored_without_blocks(id))
        .collect();
    let mut writer = Writer {
        job,
        output,
        observer,
        stored,
        growing: None,
        progress: job.total(),
        counted: 0,
    };
    observer.scanned(&writer.progress);
    let new_worker = || {
        let mut worker = Worker::new(job);
        move |pieces| worker.pack(pieces)
    };
    with_workers(
        job.options.workers,
        job.options.memory_bytes,
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
                writer.batch(packed?)?;
            }
            Ok(())
        },
    )?;
    Ok((writer.stored, writer.progress))
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
            let (compress, runs) = match &self.plan.node(id).intent {
                Intent::Flat if node.kind == FileKind::Regular => {
                    (false, vec![(0, self.flat_end(id))])
                }
                Intent::Compress => (true, vec![(0, node.size)]),
                Intent::Chunks(chunked) => (false, chunked.runs.clone()),
                _ => (false, Vec::new()),
            };
            let segment = self.segment_bytes(compress);
            let file_end = runs.last().map_or(0, |(_, end)| *end);
            runs.into_iter().flat_map(move |(start, end)| {
                (start..end).step_by(segment as usize).map(move |offset| {
                    let len = segment.min(end - offset);
                    Piece {
                        node: id,
                        offset,
                        len,
                        compress,
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

    fn segment_bytes(&self, compress: bool) -> u64 {
        match self.options.compression {
            Some(compression) if compress => compression.segment_bytes.into(),
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

    fn pack(&mut self, pieces: Vec<Piece>) -> Result<PackedBatch, Error> {
        let mut bytes = Vec::new();
        let packed = pieces.into_iter().map(|piece| {
            let start = bytes.len();
            let compressed = self.piece(&piece, &mut bytes)?;
            let (extents, tail) = compressed.unzip();
            Ok(PackedPiece {
                piece,
                len: bytes.len() - start,
                extents,
                tail: tail.unwrap_or_default(),
            })
        });
        let pieces = packed.collect::<Result<_, Error>>()?;
        Ok(PackedBatch { bytes, pieces })
    }

    fn piece(
        &mut self,
        piece: &Piece,
        out: &mut Vec<u8>,
    ) -> Result<Option<(Vec<Extent>, Tail)>, Error> {
        let job = self.job;
        if job.cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let file = job.source.open_file(job.tree, piece.node)?;
        let compressor = self.compressor.as_mut().filter(|_| piece.compress);
        let Some(compressor) = compressor else {
            let start = out.len();
            out.resize(start + piece.len as usize, 0);
            file.read(piece.offset, &mut out[start..])?;
            file.finish()?;
            job.pad(out);
            return Ok(None);
        };
        self.input.resize(piece.len as usize, 0);
        file.read(piece.offset, &mut self.input)?;
        file.finish()?;
        let start = out.len();
        let mut extents = Vec::new();
        compressor
            .segment(&self.input, out, &mut extents, job.cancel)
            .map_err(|_| Error::Cancelled)?;
        let node = job.tree.node(piece.node);
        let tail = match piece.is_last {
            true => {
                let room = job.plan.tail_room(piece.node, node) as usize;
                compressor.move_inline(&self.input, room, out, &mut extents)
            }
            false => Tail::Blocks,
        };
        if piece.len == node.size && !job.is_worth_it(piece.node, &extents, tail) {
            out.truncate(start);
            out.extend_from_slice(&self.input[..job.flat_end(piece.node) as usize]);
            job.pad(out);
            return Ok(None);
        }
        Ok(Some((extents, tail)))
    }
}

impl Job<'_> {
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
    extents: Vec<Extent>,
    tail: Tail,
}

/// The one thread that writes.
struct Writer<'a> {
    job: &'a Job<'a>,
    output: &'a mut Output,
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
            self.batch(packed?)?;
        }
        while !pool.has_room(cost) {
            if let Some(packed) = pool.take() {
                self.batch(packed?)?;
            }
        }
        if !batch.is_empty() {
            pool.submit(batch, cost);
        }
        Ok(())
    }

    fn batch(&mut self, packed: PackedBatch) -> Result<(), Error> {
        let mut bytes = &packed.bytes[..];
        for piece in packed.pieces {
            let (own, rest) = bytes.split_at(piece.len);
            bytes = rest;
            self.piece(piece, own)?;
        }
        self.observer.progressed(&self.progress);
        Ok(())
    }

    fn piece(&mut self, packed: PackedPiece, bytes: &[u8]) -> Result<(), Error> {
        let Piece {
            node,
            offset,
            len,
            compress,
            is_last,
        } = packed.piece;
        let size = self.job.tree.node(node).size;
        let in_segments = compress && len < size;
        if in_segments && offset == 0 {
            let start = self.output.checkpoint();
            self.growing = Some(Growing {
                node,
                start,
                extents: Vec::new(),
                tail: Tail::Blocks,
            });
        }
        let first_block = self.output.block()?;
        self.output.write(bytes)?;
        match (packed.extents, &mut self.growing) {
            (Some(extents), Some(growing)) if in_segments => {
                growing.extents.extend(extents);
                growing.tail = packed.tail;
            }
            (Some(extents), _) => {
                self.stored[node as usize] = Stored::Compressed {
                    first_block,
                    extents,
                    tail: packed.tail,
                }
            }
            (None, _) => self.raw(node, first_block),
        }
        if in_segments && is_last {
            let growing = self.growing.take().expect("begun with the first segment");
            self.grown(growing)?;
        }
        // What lies behind the inode as a whole counts when that is written.
        if !self.job.is_inline(node, &self.stored[node as usize]) {
            self.count(node, len, is_last);
        }
        Ok(())
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
    fn grown(&mut self, growing: Growing) -> Result<(), Error> {
        let Growing {
            node,
            start,
            extents,
            tail,
        } = growing;
        let first_block = self.output.block_at(&start)?;
        let all_plain = extents.iter().all(|extent| extent.plain);
        self.stored[node as usize] = if self.job.is_worth_it(node, &extents, tail) {
            Stored::Compressed {
                first_block,
                extents,
                tail,
            }
        } else if all_plain && tail == Tail::Blocks {
            // Block by block, as it is: what has been written is its flat form already.
            Stored::Flat {
                first_block,
                inline: 0,
            }
        } else {
            self.output.rewind(start)?;
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
            self.output.write(&bytes)?;
        }
        file.finish()
    }
}
