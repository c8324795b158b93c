//! The tree, the plan and the options, as reading and compressing need them.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use anteros_core::FileKind;
use anteros_format::SLOT_BYTES;

use super::piece::{Form, Piece, Turn};
use super::stored::Stored;
use crate::compress::{Compressor, Stopped};
use crate::extent::{Extent, Share, Tail};
use crate::look::Look;
use crate::options::{RAW_SEGMENT_BYTES, Setting};
use crate::outbox::Segment;
use crate::parts::Part;
use crate::patch::kept::Kept;
use crate::plan::{Intent, Plan};
use crate::source::{Scanned, Source};
use crate::sweep::Step;
use crate::tail::KeptEnds;
use crate::tree::{NodeId, Tree};
use crate::{Error, Options, Progress};

/// Bytes of content and number of files at which a batch is large enough.
const BATCH_BYTES: u64 = 512 << 10;
const BATCH_PIECES: usize = 128;

/// All that reading and compressing needs to know.
pub(crate) struct Job<'a> {
    pub source: &'a Source,
    pub tree: &'a Tree,
    pub plan: &'a Plan,
    pub options: &'a Options,
    pub cancel: &'a AtomicBool,
    /// The tree of the image that is patched.
    pub former: Option<&'a Scanned>,
    /// Ends of files that are kept until they are written.
    pub ends: KeptEnds,
}

impl Job<'_> {
    /// Means to look at the source.
    pub fn look(&self) -> Look<'_> {
        Look {
            source: self.source,
            tree: self.tree,
            options: self.options,
            cancel: self.cancel,
        }
    }

    pub(super) fn total(&self) -> Progress {
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
    pub(super) fn stored_without_blocks(&self, id: NodeId) -> Stored {
        if let Some(first_block) = self.source.stored_block(id) {
            let inline = 0;
            return Stored::Flat {
                first_block,
                inline,
            };
        }
        let node = self.tree.node(id);
        match self.plan.kept.get(&id) {
            Some(Kept::Flat(first_block)) => {
                return Stored::Flat {
                    first_block: *first_block,
                    inline: self.plan.inline_bytes(id, node),
                };
            }
            Some(&Kept::Packed(offset)) => return Stored::Packed { offset },
            _ => {}
        }
        match &self.plan.node(id).intent {
            Intent::Chunks(chunked) if chunked.runs.is_empty() => {
                Stored::Chunked { first_block: 0 }
            }
            Intent::Elsewhere(_) => Stored::Elsewhere,
            Intent::Kept(_) | Intent::Stays(_) | Intent::Copied(_) => Stored::Kept,
            Intent::Flat if node.kind == FileKind::Regular && self.flat_end(id) == 0 => {
                Stored::Flat {
                    first_block: 0,
                    inline: node.size,
                }
            }
            _ => Stored::Nothing,
        }
    }

    /// Returns the parts of the sweep, as many together as workers are given at once.
    pub(super) fn swept(&self) -> impl Iterator<Item = Vec<Piece>> {
        let steps = self.plan.sweep.steps().iter();
        batches(steps.flat_map(|step| self.pieces_of_step(step)))
    }

    /// Returns the parts of all other files in the order that was asked for, likewise.
    pub(super) fn batches(&self) -> impl Iterator<Item = Vec<Piece>> {
        let files = self.plan.order.iter();
        let files = files.skip(self.plan.sweep.files().count());
        batches(files.flat_map(|&id| self.pieces_of_file(id)))
    }

    /// The pieces of a file, or of a part of it that is stored ahead of the rest.
    fn pieces_of_step(&self, step: &Step) -> impl Iterator<Item = Piece> {
        let range = match step {
            Step::File(_) => None,
            Step::Part(_, range) => Some(range.clone()),
        };
        let pieces = self.pieces_of_file(step.node());
        pieces.filter_map(move |piece| match &range {
            None => Some(Piece {
                is_hot: true,
                ..piece
            }),
            Some(range) if piece.turn == Turn::Before && range.contains(&piece.offset) => {
                Some(Piece {
                    turn: Turn::Ahead,
                    is_hot: self.plan.sweep.is_hot(piece.node, piece.offset),
                    ..piece
                })
            }
            Some(_) => None,
        })
    }

    fn pieces_of_file(&self, id: NodeId) -> impl Iterator<Item = Piece> {
        let size = self.tree.node(id).size;
        let (form, parts) = self.parts(id);
        let segment = self.segment_bytes(form, size);
        let file_end = parts.last().map_or(0, |part| part.end);
        let sweep = &self.plan.sweep;
        let parts = parts
            .into_iter()
            .flat_map(move |part| sweep.split(id, part));
        parts.flat_map(move |(part, is_swept)| {
            let Part { start, end, shared } = part;
            let segment = match shared {
                Some(_) => u64::MAX,
                None => segment,
            };
            self.pieces_of(start..end, segment)
                .map(move |(offset, len)| Piece {
                    node: id,
                    offset,
                    len,
                    form,
                    is_last: offset + len == file_end,
                    // What is stored ahead is a part, even if that is all of the file.
                    is_whole: len == size && shared.is_none() && !is_swept,
                    shared,
                    is_hot: false,
                    turn: match is_swept {
                        true => Turn::Before,
                        false => Turn::Usual,
                    },
                })
        })
    }

    /// Returns where pieces of a part of a file begin, and their lengths. All but the last one end where a block of the file does.
    pub(super) fn pieces_of(
        &self,
        part: Range<u64>,
        segment: u64,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let block_bytes = u64::from(self.options.block_bytes());
        let mut start = part.start;
        std::iter::from_fn(move || {
            let end = start.saturating_add(segment) / block_bytes * block_bytes;
            let piece = (start, end.min(part.end) - start);
            start += piece.1;
            (piece.1 > 0).then_some(piece)
        })
    }

    /// Returns how a file is to be stored, and its parts that have blocks of their own.
    fn parts(&self, id: NodeId) -> (Form, Vec<Part>) {
        let node = self.tree.node(id);
        let own = |(start, end)| Part {
            start,
            end,
            shared: None,
        };
        if self.plan.kept.get(&id).is_some_and(Kept::is_all) {
            return (Form::Raw, Vec::new());
        }
        match &self.plan.node(id).intent {
            _ if self.source.stored_block(id).is_some() => (Form::Raw, Vec::new()),
            Intent::Flat if node.kind == FileKind::Regular => {
                (Form::Raw, vec![own((0, self.flat_end(id)))])
            }
            Intent::Compress => match self.plan.cuts.get(&id) {
                Some(cuts) => (Form::Compressed, cuts.parts(node.size)),
                None => (Form::Compressed, vec![own((0, node.size))]),
            },
            Intent::Pack if node.kind == FileKind::Regular => {
                (Form::Packed, vec![own((0, node.size))])
            }
            Intent::Chunks(chunked) => (Form::Raw, chunked.runs.iter().copied().map(own).collect()),
            _ => (Form::Raw, Vec::new()),
        }
    }

    /// Returns where the part of a flat file ends that lies in blocks of its own.
    pub(super) fn flat_end(&self, id: NodeId) -> u64 {
        let node = self.tree.node(id);
        node.size - self.plan.inline_bytes(id, node)
    }

    pub(super) fn segment_bytes(&self, form: Form, size: u64) -> u64 {
        match self.options.compression {
            Some(compression) if form == Form::Compressed => compression.segment_bytes_of(size),
            _ => RAW_SEGMENT_BYTES,
        }
    }

    /// Returns whether a file lies behind its inode as it is, and nowhere else.
    pub fn is_inline(&self, id: NodeId, stored: &Stored) -> bool {
        matches!(stored, Stored::Flat { inline, .. } if *inline == self.tree.node(id).size)
    }

    /// Returns whether the content of files is aligned to more than blocks.
    pub const fn aligns_content(&self) -> bool {
        self.options.data_align_blocks > 1
    }

    /// Returns how a compressed file is compressed.
    pub fn setting(&self, id: NodeId) -> Setting {
        let setting = self.plan.ways.setting(id);
        setting.expect("only files that are to be compressed are asked for")
    }

    /// Returns whether what is known to be read of a file is compressed in a way of its own.
    pub(super) fn has_way_of_hot(&self, id: NodeId) -> bool {
        let setting = self.setting(id);
        let has_quick = setting.quick.is_some_and(|quick| quick.of_hot);
        has_quick || self.options.of_hot(setting) != setting
    }

    /// The file whose content a file has.
    pub fn first_of(&self, id: NodeId) -> NodeId {
        match self.plan.node(id).intent {
            Intent::Same(first) => first,
            _ => id,
        }
    }

    /// Bytes that the last extent of a compressed file may take behind its index.
    pub(super) fn tail_room(&self, id: NodeId) -> usize {
        self.plan.tail_room(id, self.tree.node(id)) as usize // less than a block
    }

    /// A compressor, where there is compression.
    pub fn compressor(&self) -> Compressor {
        Compressor::of(self.options)
    }

    /// Returns whether the compressed form of a file saves enough.
    pub(super) fn is_worth_it(&self, id: NodeId, extents: &[Extent], tail: Tail) -> bool {
        let node = self.tree.node(id);
        let own = |extents: &[Extent]| {
            let own = extents.iter().filter(|e| e.share == Share::None);
            own.fold((0, 0), |(bytes, stored), e| {
                (bytes + u64::from(e.len), stored + u64::from(e.stored))
            })
        };
        let (_, stored) = own(extents);
        let mut compressed = stored;
        if let (Tail::Fragment(_), Some((last, others))) = (tail, extents.split_last()) {
            // It will shrink as the rest did, or not at all.
            let (taken, _) = own(others);
            let shrinks = others.iter().any(|e| !e.plain && e.share == Share::None);
            compressed += match shrinks {
                true => u64::from(last.len) * stored / taken,
                false => last.len.into(),
            };
        }
        let index = self.plan.index_bytes(id, node, extents, tail);
        let mut behind = [
            index + tail.inline_bytes(),
            self.plan.inline_bytes(id, node),
        ];
        let mut all = [compressed + behind[0], self.plan.flat_bytes(id, node)];
        if tail != Tail::Blocks || self.options.has_encoded_extents() {
            // Inodes begin at slots, and what is behind one in its last slot costs nothing.
            let head = self.plan.head_bytes(id);
            let with_head = |bytes: u64| (head + bytes).next_multiple_of(SLOT_BYTES);
            (behind, all) = (behind.map(with_head), all.map(with_head));
        }
        // Each copy of the file has an inode of its own.
        let copies = u64::from(self.plan.node(id).copies);
        let [compressed, flat] = [0, 1].map(|form| all[form] + copies * behind[form]);
        let gain = self.options.compression.map_or(0, |c| c.min_gain_percent);
        let enough = u128::from(flat) * u128::from(100 - gain) / 100;
        compressed < flat && u128::from(compressed) <= enough
    }

    /// The error of a compressor that stopped in a file; in the root, if it was in the packed inode.
    pub fn stopped(&self, node: NodeId, stopped: Stopped) -> Error {
        match stopped {
            Stopped::Cancelled => Error::Cancelled,
            Stopped::Failed(cause) => Error::Compress {
                path: self.source.full_path(self.tree, node),
                cause,
            },
        }
    }

    /// Compresses a segment of the packed inode.
    pub fn packed_segment(
        &self,
        content: &[u8],
        compressor: &mut Compressor,
    ) -> Result<Segment, Error> {
        let setting = self.options.packed_setting();
        let setting = setting.expect("nothing is packed without compression");
        self.segment(content, setting, compressor)
    }

    /// Compresses a segment of an inode that no directory names.
    pub fn segment(
        &self,
        content: &[u8],
        setting: Setting,
        compressor: &mut Compressor,
    ) -> Result<Segment, Error> {
        compressor.set(setting);
        let mut segment = Segment::default();
        let Segment { bytes, extents } = &mut segment;
        compressor
            .segment(content, false, bytes, extents, self.cancel)
            .map_err(|stopped| self.stopped(0, stopped))?;
        // What comes behind it has its place already, to the block.
        self.pad(bytes, 0);
        bytes.shrink_to_fit();
        Ok(segment)
    }

    /// Appends zeros, so that what lies from `start` on are whole blocks.
    pub(super) fn pad(&self, out: &mut Vec<u8>, start: usize) {
        let block_bytes = self.options.block_bytes() as usize;
        let bytes = (out.len() - start).next_multiple_of(block_bytes);
        out.resize(start + bytes, 0);
    }
}

/// Pieces, as many together as workers are given at once.
fn batches(mut pieces: impl Iterator<Item = Piece>) -> impl Iterator<Item = Vec<Piece>> {
    std::iter::from_fn(move || {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES && batch.len() < BATCH_PIECES {
            let Some(piece) = pieces.next() else {
                break;
            };
            bytes += piece.cost();
            batch.push(piece);
        }
        (!batch.is_empty()).then_some(batch)
    })
}
