//! A thread that reads and compresses: parts of files, and segments of the packed inode.

use std::sync::atomic::Ordering;

use super::job::Job;
use super::piece::{Form, Piece};
use super::work::{Done, PackedBatch, PackedPiece, Work};
use crate::Error;
use crate::compress::{Compressor, Stopped};
use crate::extent::{Extent, Share, Tail};
use crate::fragments::Key;
use crate::outbox::Segment;
use crate::tail::Inline;
use crate::tree::NodeId;

/// Extents and tail of a part of a file; `None` if it is stored as it is.
type Compressed = Option<(Vec<Extent>, Tail)>;

/// A part of a file, compressed.
struct Packed {
    extents: Vec<Extent>,
    tail: Tail,
    /// The bytes of a tail that lies behind the inode.
    inline: Option<Inline>,
}

impl Packed {
    /// A part whose end lies in blocks, or behind the inode.
    fn new(extents: Vec<Extent>, inline: Option<Inline>) -> Self {
        Self {
            tail: Tail::from(&inline),
            extents,
            inline,
        }
    }
}

/// Holds what a worker thread has.
pub(super) struct Worker<'a> {
    job: &'a Job<'a>,
    /// Compresses files and the packed inode.
    compressor: Option<Compressor>,
    /// Reused from piece to piece.
    input: Vec<u8>,
}

impl<'a> Worker<'a> {
    pub fn new(job: &'a Job<'a>) -> Self {
        let compressor = job.options.compression.map(|_| job.compressor());
        Self {
            job,
            compressor,
            input: Vec::new(),
        }
    }

    pub fn work(&mut self, work: Work) -> Done {
        match work {
            Work::Part(pieces) => self.pack(pieces).map(Done::Part),
            Work::Segment(content) => self.segment(&content).map(Done::Segment),
        }
        .into()
    }

    /// Compresses a segment of the packed inode.
    fn segment(&mut self, content: &[u8]) -> Result<Segment, Error> {
        let Some(compressor) = &mut self.compressor else {
            unreachable!("only compressed files are packed");
        };
        self.job.packed_segment(content, compressor)
    }

    fn pack(&mut self, pieces: Vec<Piece>) -> Result<PackedBatch, Error> {
        let (mut bytes, mut fragments) = (Vec::new(), Vec::new());
        let packed = pieces.into_iter().map(|mut piece| {
            let starts = (bytes.len(), fragments.len());
            let compressed = self.piece(&piece, &mut bytes, &mut fragments)?;
            let (extents, tail) = compressed.unzip();
            let fragment = &fragments[starts.1..];
            if piece.is_whole && fragment.len() as u64 == piece.len {
                piece.form = Form::Packed;
            }
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

    /// Reads a part of a file, and compresses it if that is worth it. One that is stored already is left alone.
    fn piece(
        &mut self,
        piece: &Piece,
        out: &mut Vec<u8>,
        fragments: &mut Vec<u8>,
    ) -> Result<Compressed, Error> {
        if self.job.cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        if piece.is_stored() {
            return Ok(None); // the writer takes over extents when it is its turn
        }
        match piece.form {
            Form::Raw => {
                let start = out.len();
                self.read(piece, out)?;
                self.job.pad(out, start);
            }
            Form::Packed => self.read(piece, fragments)?,
            Form::Compressed => return self.compressed(piece, out, fragments),
        }
        Ok(None)
    }

    /// Appends a part of a file that its source has compressed already; `None` if the source has not.
    fn known(&mut self, piece: &Piece, out: &mut Vec<u8>) -> Result<Option<Packed>, Error> {
        let job = self.job;
        if !job.source.has_segments() {
            return Ok(None);
        }
        let file = job.source.open_file(job.tree, piece.node)?;
        let Some(segment) = file.segment(piece.offset, piece.len) else {
            return Ok(None);
        };
        let mut extents = file.kept(segment.append(out))?;
        let mut inline = None;
        let room = job.tail_room(piece.node);
        if piece.is_last && room > 0 {
            let content = file.kept(segment.last(&extents, out))?;
            let moved = self.move_inline(piece.node, &content, room, out, &mut extents);
            inline = moved.map_err(|stopped| job.stopped(piece.node, stopped))?;
        }
        Ok(Some(Packed::new(extents, inline)))
    }

    /// Moves the end of a file behind its inode, if there is room.
    fn move_inline(
        &mut self,
        node: NodeId,
        content: &[u8],
        room: usize,
        out: &mut Vec<u8>,
        extents: &mut Vec<Extent>,
    ) -> Result<Option<Inline>, Stopped> {
        let compressor = self.compressor.as_mut();
        let compressor = compressor.expect("without compression no part is compressed");
        compressor.set(self.job.setting(node));
        compressor.move_inline(content, room, out, extents)
    }

    /// Appends a part of a file as it is.
    fn read(&self, piece: &Piece, out: &mut Vec<u8>) -> Result<(), Error> {
        let start = out.len();
        out.resize(start + piece.len as usize, 0);
        let file = self.job.source.open_file(self.job.tree, piece.node)?;
        file.read(piece.offset, &mut out[start..])?;
        file.finish()
    }

    /// Appends a part of a file compressed; as it is, if it is the whole file and not worth it.
    fn compressed(
        &mut self,
        piece: &Piece,
        out: &mut Vec<u8>,
        fragments: &mut Vec<u8>,
    ) -> Result<Compressed, Error> {
        let job = self.job;
        let starts = (out.len(), fragments.len());
        let mut input = std::mem::take(&mut self.input);
        input.clear();
        let has_own_way = piece.is_hot && job.has_way_of_hot(piece.node);
        let known = match has_own_way {
            true => None,
            false => self.known(piece, out)?,
        };
        let packed = match known {
            Some(packed) => packed,
            None => {
                self.read(piece, &mut input)?;
                let packed = self.extents(piece, &input, out, fragments);
                packed.map_err(|stopped| job.stopped(piece.node, stopped))?
            }
        };
        let Packed {
            extents,
            tail,
            inline,
        } = packed;
        let is_packed = (fragments.len() - starts.1) as u64 == piece.len;
        let is_kept = !piece.is_whole || is_packed || job.is_worth_it(piece.node, &extents, tail);
        if !is_kept {
            fragments.truncate(starts.1);
            out.truncate(starts.0);
            if input.is_empty() {
                self.read(piece, &mut input)?;
            }
            out.extend_from_slice(&input[..job.flat_end(piece.node) as usize]);
            job.pad(out, starts.0);
        } else if let Some(inline) = inline {
            job.ends.keep(piece.node, inline.bytes);
        }
        self.input = input;
        Ok(is_kept.then_some((extents, tail)))
    }

    /// Compresses a part of a file; the end of the file goes where its tail belongs.
    fn extents(
        &mut self,
        piece: &Piece,
        input: &[u8],
        out: &mut Vec<u8>,
        fragments: &mut Vec<u8>,
    ) -> Result<Packed, Stopped> {
        let job = self.job;
        let Some(compressor) = &mut self.compressor else {
            unreachable!("without compression no part is to be compressed");
        };
        match piece.is_hot {
            true => compressor.set_hot(job.options.of_hot(job.setting(piece.node))),
            false => compressor.set(job.setting(piece.node)),
        }
        let packs = job.options.fragments.is_some() && job.plan.ways.packs(piece.node);
        let leaves_end = packs && piece.is_last;
        let mut extents = Vec::new();
        let end = compressor.segment(input, leaves_end, out, &mut extents, job.cancel)?;
        let rest = &input[end..];
        if !piece.is_last {
            self.keep_apart(piece, input, out, &mut extents)?;
            return Ok(Packed::new(extents, None));
        }
        if rest.is_empty() {
            let room = job.tail_room(piece.node);
            let inline = compressor.move_inline(input, room, out, &mut extents)?;
            return Ok(Packed::new(extents, inline));
        }
        fragments.extend_from_slice(rest);
        extents.push(Extent {
            len: rest.len() as u32, // at most what a stream holds
            stored: 0,
            plain: false,
            quick: false,
            share: Share::None,
        });
        Ok(Packed {
            extents,
            tail: Tail::Fragment(0), // the writer will know where
            inline: None,
        })
    }

    /// Sees to it that no two extents of a file that is cut begin in the same logical cluster, here or where they are
    /// shared. An end that cannot be stored so is left out.
    fn keep_apart(
        &mut self,
        piece: &Piece,
        input: &[u8],
        out: &mut Vec<u8>,
        extents: &mut Vec<Extent>,
    ) -> Result<(), Stopped> {
        let Some(compressor) = self.compressor.as_mut() else {
            return Ok(());
        };
        if !self.job.plan.cuts.contains_key(&piece.node)
            || compressor.lengthen_last(input, out, extents)?
        {
            return Ok(());
        }
        let block_bytes = self.job.options.block_bytes();
        let ends_at_block = (piece.offset + piece.len) % u64::from(block_bytes) == 0;
        if ends_at_block {
            return Ok(());
        }
        if let Some(last) = extents.pop() {
            out.truncate(out.len() - last.stored as usize);
        }
        Ok(())
    }
}
