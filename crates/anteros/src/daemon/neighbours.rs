//! Pages that were decoded on the way to others, pushed into the kernel's page cache.
//!
//! Storing pages waits for readers of them, who may wait for a worker: so a thread that serves no
//! requests does it, and what it cannot keep up with is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use anteros_core::Ino;
use anteros_fuse::Notifier;
use anteros_image::{ImageFs, Rest};

use super::metrics::Metrics;

/// The most bytes that are pushed at a time.
const PIECE_BYTES: usize = 64 << 10;

/// States how many pieces may wait.
const WAITING_MAX: usize = 15;

/// The most memory that pieces take, the one being pushed included.
pub const BYTES_MAX: usize = (WAITING_MAX + 1) * PIECE_BYTES;

/// Of what neighbours are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Neighbours {
    /// None
    Off,
    /// Pages that had to be decoded on the way to what was asked for
    Passed,
    /// Also the rest of short LZ4 extents, which are decoded whole for that
    All,
}

/// Tells what is to be pushed.
enum Job {
    /// Pages of a file, from an offset on.
    Pages(Ino, u64, Vec<u8>),
    /// The rest of a long extent.
    Rest(Rest),
}

/// Pushes what `fs` decodes beyond what it was asked for.
pub fn push(fs: &Arc<ImageFs>, which: Neighbours, notifier: Notifier, metrics: Arc<Metrics>) {
    if which == Neighbours::Off {
        return;
    }
    let (sender, receiver) = sync_channel::<Job>(WAITING_MAX - 1);
    let worker = Arc::downgrade(fs);
    // Without the thread, everything is dropped.
    let _ = std::thread::Builder::new()
        .name("neighbours".into())
        .spawn(move || {
            let store = |ino, offset, data: &[u8]| {
                let stored = data.is_empty() || notifier.store(ino, offset, data).is_ok();
                let pushed = if stored { data.len() as u64 } else { 0 };
                metrics.neighbour_bytes.fetch_add(pushed, Ordering::Relaxed);
                stored
            };
            let mut piece = Vec::new();
            for job in receiver {
                match job {
                    Job::Pages(ino, offset, data) => {
                        store(ino, offset, &data);
                    }
                    Job::Rest(rest) => {
                        let decode = |piece: &mut _| worker.upgrade()?.decode_rest(&rest, piece);
                        while decode(&mut piece)
                            .is_some_and(|(ino, offset)| store(ino, offset, &piece))
                        {
                        }
                    }
                }
            }
        });
    let rests = sender.clone();
    fs.on_rest(move |rest| {
        // When there is too much to do, readers go on by themselves.
        let _ = rests.try_send(Job::Rest(rest));
    });
    fs.on_neighbours(which == Neighbours::All, move |ino, offset, data| {
        let pieces = data.chunks(PIECE_BYTES).enumerate();
        let mut sent = pieces.map(|(index, piece)| {
            let at = offset + (index * PIECE_BYTES) as u64;
            sender.try_send(Job::Pages(ino, at, piece.to_vec())).is_ok()
        });
        sent.all(|sent| sent)
    });
}
