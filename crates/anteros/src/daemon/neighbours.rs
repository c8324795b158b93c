//! Pages that were decoded on the way to others, or ahead of readers of a tree, pushed into the kernel's page cache.
//!
//! Storing pages waits for readers of them, who may wait for a worker: so a thread that serves no
//! requests does it. Whoever decodes faster than that waits a moment; then it drops pages.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anteros_core::{FilesAhead, Ino};
use anteros_fuse::Notifier;
use anteros_image::{ImageFs, Rest, STAND_IN};
use crossbeam_channel::{Sender, bounded};

use super::metrics::Metrics;
use super::packed::{self, Packed};

/// The most bytes that are pushed at a time.
const PIECE_BYTES: usize = 64 << 10;

/// States how many pieces may wait.
const WAITING_MAX: usize = 15;

/// States how long whoever decodes waits for room for a piece. A page that is dropped is decoded again when it is read, and
/// with it all of the extent that lies before.
///
/// Nobody may wait for ever: the kernel takes no page that another request has locked, and that may wait for this decoder.
const PATIENCE: Duration = Duration::from_millis(1);

/// The most extents whose rest may wait.
const RESTS_MAX: usize = 15;

/// The most readers of trees whose next files may wait.
const WALKS_MAX: usize = 4;

/// Returns the most memory that this takes with so many workers: for pieces, those being pushed included, for the
/// packed inode, and for files ahead.
pub const fn bytes_max(workers: usize) -> usize {
    (WAITING_MAX + 2) * PIECE_BYTES + packed::bytes_max(workers) + FilesAhead::MEMORY_BYTES
}

/// Of what neighbours are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Neighbours {
    /// None
    Off,
    /// Pages that had to be decoded on the way to what was asked for, and small files that a reader of a tree comes to next
    Passed,
    /// Also the rest of short LZ4 extents, which are decoded whole for that
    All,
}

/// Pages of a file, from an offset on.
struct Pages {
    ino: Ino,
    offset: u64,
    data: Vec<u8>,
}

/// Pushes what `fs` decodes beyond what it was asked for. It is mounted on `root`. Files are read ahead if nobody wants to
/// see them asked for.
///
/// Rests and files ahead have threads of their own: to decode one takes longer than pages can wait.
pub fn push(
    fs: &Arc<ImageFs>,
    which: Neighbours,
    reads_ahead: bool,
    root: &Path,
    notifier: Notifier,
    metrics: Arc<Metrics>,
) {
    if which == Neighbours::Off {
        return;
    }
    let packed = keep_packed(fs, root, &notifier);
    let pusher = Arc::new(Pusher {
        notifier,
        packed,
        metrics,
    });
    push_passed(fs, which == Neighbours::All, pusher.clone());
    push_rests(fs, pusher.clone());
    // Long extents of many files are decoded ahead already.
    if reads_ahead && pusher.packed.is_none() {
        push_ahead(fs, pusher);
    }
}

/// Pushes pages that are decoded on the way to others.
fn push_passed(fs: &Arc<ImageFs>, all: bool, pusher: Arc<Pusher>) {
    let sender = in_thread("neighbours", WAITING_MAX - 1, move |of: Pages| {
        pusher.push(of.ino, of.offset, &of.data);
    });
    fs.on_neighbours(all, move |ino, offset, data| {
        let send = |(offset, piece): (u64, &[u8])| {
            let data = piece.to_vec();
            let pages = Pages { ino, offset, data };
            sender.send_timeout(pages, PATIENCE).is_ok()
        };
        pieces(offset, data).all(send)
    });
}

/// Pushes the rest of extents that are not read in order.
fn push_rests(fs: &Arc<ImageFs>, pusher: Arc<Pusher>) {
    let decoder = Arc::downgrade(fs);
    let mut piece = Vec::new();
    let sender = in_thread("rests", RESTS_MAX, move |rest: Rest| {
        let next = |piece: &mut _| decoder.upgrade()?.decode_rest(&rest, piece);
        while next(&mut piece).is_some_and(|(ino, offset)| pusher.push(ino, offset, &piece)) {}
    });
    // When there is too much to do, readers go on by themselves.
    fs.on_rest(move |rest| drop(sender.try_send(rest)));
}

/// Pushes small files that a reader of a tree will ask for next.
fn push_ahead(fs: &Arc<ImageFs>, pusher: Arc<Pusher>) {
    let reader = Arc::downgrade(fs);
    let mut data = Vec::new();
    let sender = in_thread("files-ahead", WALKS_MAX, move |files: Vec<Ino>| {
        let Some(fs) = reader.upgrade() else {
            return;
        };
        for ino in files {
            if fs.read_ahead(ino, &mut data) {
                let is_taken = pieces(0, &data).all(|(at, piece)| pusher.push(ino, at, piece));
                fs.taken_ahead(ino, is_taken);
            }
        }
    });
    fs.on_ahead(move |files| drop(sender.try_send(files)));
}

/// Does what comes by the channel, one after the other. Without a thread, everything is dropped.
fn in_thread<T: Send + 'static>(
    name: &str,
    waiting_max: usize,
    work: impl FnMut(T) + Send + 'static,
) -> Sender<T> {
    let (sender, receiver) = bounded(waiting_max);
    let thread = std::thread::Builder::new().name(name.into());
    let _ = thread.spawn(move || receiver.into_iter().for_each(work));
    sender
}

/// Way into the kernel's page cache.
struct Pusher {
    notifier: Notifier,
    packed: Option<Arc<Packed>>,
    metrics: Arc<Metrics>,
}

impl Pusher {
    /// Pushes pages of a file; returns whether the kernel took them.
    fn push(&self, ino: Ino, offset: u64, pages: &[u8]) -> bool {
        let is_stored = match &self.packed {
            _ if pages.is_empty() => true,
            Some(packed) if ino == STAND_IN => packed.store(offset, pages),
            _ => self.notifier.store(ino, offset, pages).is_ok(),
        };
        let pushed = if is_stored { pages.len() as u64 } else { 0 };
        let total = &self.metrics.neighbour_bytes;
        total.fetch_add(pushed, Ordering::Relaxed);
        is_stored
    }
}

/// Pieces of a file that has `data` at `offset`, with their offsets: each ends at a multiple of their length, or is the last.
fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let front = PIECE_BYTES - (offset % PIECE_BYTES as u64) as usize;
    let (front, rest) = data.split_at(front.min(data.len()));
    let pieces = std::iter::once(front).chain(rest.chunks(PIECE_BYTES));
    pieces.scan(offset, |at, piece| {
        let this = *at;
        *at += piece.len() as u64;
        Some((this, piece))
    })
}

/// Has the kernel keep what is decoded of the packed inode, if there is one.
fn keep_packed(fs: &Arc<ImageFs>, root: &Path, notifier: &Notifier) -> Option<Arc<Packed>> {
    let bytes = fs.image().packed_bytes();
    if bytes == 0 {
        return None;
    }
    let name = Packed::name();
    let packed = Arc::new(Packed::new(notifier.clone(), root.join(&name), bytes));
    let keeper = packed.clone();
    fs.on_packed(name, move |offset, out| keeper.take(offset, out));
    Some(packed)
}
