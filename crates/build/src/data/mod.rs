//! File content: read and compressed by all workers, written in the order of the tree.
//!
//! Small files travel in batches, large ones in segments. The workers know no addresses: what they
//! give back can lie anywhere, and the one thread that writes decides where, in order. So the image
//! does not depend on how many workers there are.
//!
//! A file of one segment is judged where it is compressed. Of a larger one the writer sees only at
//! its end whether compression has saved enough; if it has not, the writer goes back to where the
//! file began and writes it as it is.
//!
//! A part that is stored as an earlier one takes no work. When it is its turn the writer knows where that lies, and takes
//! over its extents; what has none that could be taken over is compressed then, aside.

mod job;
mod sharing;
mod tails;
mod worker;
mod writer;

use crate::body::Body;
use crate::extent::{Extent, Tail};
use crate::fragments::Key;
use crate::ordered::{Ordered, with_workers};
use crate::output::Output;
use crate::parts::Shared;
use crate::special::Content;
use crate::tree::NodeId;
use crate::{Error, Observer, Progress, outbox};

pub(crate) use job::Job;
pub(crate) use tails::Tails;
use worker::Worker;
use writer::Writer;

/// Bytes of content and number of files at which a batch is large enough.
const BATCH_BYTES: u64 = 512 << 10;
const BATCH_PIECES: usize = 128;

/// Batches under way for each worker where nothing is compressed: writing is slower than reading then, and more would only
/// wait.
const PLAIN_BATCHES_PER_WORKER: usize = 32;

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
    /// In compressed extents.
    Compressed { body: Box<Body>, tail: Tail },
    /// In the packed inode, from this byte on.
    Packed { offset: u64 },
    /// In chunks, those with data one behind the other.
    Chunked { first_block: u32 },
    /// On the extra device, as the plan says.
    Elsewhere,
    /// Inode of the image before, as the plan says.
    Kept,
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
    /// The part is all of the file, and it is judged at once whether compression saves enough.
    is_whole: bool,
    /// It is stored as another part, as far as that can be.
    shared: Option<Shared>,
}

impl Piece {
    /// Bytes that are read.
    fn cost(&self) -> u64 {
        match self.shared {
            Some(_) => 0,
            None => self.len,
        }
    }
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
type Work = outbox::Work<Vec<Piece>>;
/// Results that they give back.
type Done = outbox::Done<PackedBatch>;
type Pool = Ordered<Work, Done>;

/// Holds what has been written.
pub(crate) struct Written {
    pub stored: Vec<Stored>,
    /// The packed inode, which is complete unless directories follow.
    pub packed: Content,
    pub progress: Progress,
}

/// Writes the content of all regular files, but for what lies behind inodes.
pub(crate) fn write(
    job: &Job<'_>,
    output: &mut Output,
    observer: &dyn Observer,
) -> Result<Written, Error> {
    let mut writer = Writer::new(job, output, observer);
    let new_worker = || {
        let mut worker = Worker::new(job);
        move |work| worker.work(work)
    };
    with_workers(
        job.options.compressing_workers(),
        job.options.content_bytes(),
        new_worker,
        |pool: &mut Pool| {
            for batch in job.batches() {
                writer.submit(pool, batch)?;
            }
            writer.rest(pool)
        },
    )?;
    writer.finish()
}
