//! Content of the packed inode that was decoded, in the kernel's page cache.
//!
//! The files of a directory may lie in a few large extents of the packed inode. The kernel's own EROFS decodes each once
//! and keeps the pages as long as there is memory. So does the daemon: it has the kernel keep them for an inode that no
//! directory lists, and asks for them when another file wants some.
//!
//! The kernel gives back what a page has, complete or not. So each piece has a digest here.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::unpoisoned;
use anteros_fuse::Notifier;
use anteros_image::STAND_IN;
use xxhash_rust::xxh3::xxh3_64;

/// Returns the most memory that this takes with so many workers: for digests, and for what each worker gets back, which
/// comes in a buffer of its own.
pub const fn bytes_max(workers: usize) -> usize {
    PIECES_MAX * size_of::<u32>() + workers * (PIECE_BYTES_MAX + AT_ONCE_BYTES)
}

/// The most pieces that are kept. Of a larger inode they are longer.
const PIECES_MAX: usize = 16 << 10;

/// Bytes of the shortest piece, a page, and of the longest.
const PIECE_BYTES_MIN: usize = 4 << 10;
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Bytes that are asked for at once.
const AT_ONCE_BYTES: usize = 32 << 10;

/// Content of the packed inode that the kernel keeps.
pub struct Packed {
    notifier: Notifier,
    /// The path at which the inode can be looked up.
    path: PathBuf,
    piece_bytes: usize,
    /// By piece; 0 of one that is not kept.
    digests: Mutex<Vec<u32>>,
    is_known: AtomicBool,
}

impl Packed {
    /// Keeps nothing yet of an inode of so many bytes, which can be looked up at `path`.
    pub fn new(notifier: Notifier, path: PathBuf, bytes: u64) -> Self {
        let mut piece_bytes = PIECE_BYTES_MIN;
        while piece_bytes < PIECE_BYTES_MAX && bytes > (piece_bytes * PIECES_MAX) as u64 {
            piece_bytes *= 2;
        }
        let pieces = bytes.div_ceil(piece_bytes as u64).min(PIECES_MAX as u64);
        Self {
            notifier,
            path,
            piece_bytes,
            digests: Mutex::new(vec![0; pieces as usize]),
            is_known: AtomicBool::new(true),
        }
    }

    /// Returns a name that nobody guesses.
    pub fn name() -> String {
        let number = || RandomState::new().build_hasher().finish();
        format!(".packed-{:016x}{:016x}", number(), number())
    }

    /// Has the kernel keep the pieces among pages; returns whether it took them.
    ///
    /// It may wait for requests to be answered: not to be called by who answers them.
    pub fn store(&self, offset: u64, pages: &[u8]) -> bool {
        let kept = self.notifier.store(STAND_IN, offset, pages);
        let kept = match kept {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.make_known() => {
                self.notifier.store(STAND_IN, offset, pages)
            }
            kept => kept,
        };
        if kept.is_ok() {
            self.note(offset, pages);
        }
        kept.is_ok()
    }

    /// Has the kernel look up the inode; returns whether it did. Once it did not, it is not asked again.
    fn make_known(&self) -> bool {
        let is_known =
            self.is_known.load(Ordering::Relaxed) && std::fs::symlink_metadata(&self.path).is_ok();
        self.is_known.store(is_known, Ordering::Relaxed);
        is_known
    }

    /// Notes the pieces among pages.
    fn note(&self, offset: u64, pages: &[u8]) {
        let front = (offset.next_multiple_of(self.piece_bytes as u64) - offset) as usize;
        let first = (offset + front as u64) / self.piece_bytes as u64;
        let pages = pages.get(front..).unwrap_or_default();
        let mut digests = unpoisoned(self.digests.lock());
        let places = digests.iter_mut().skip(first as usize);
        for (place, piece) in places.zip(pages.chunks_exact(self.piece_bytes)) {
            *place = digest(piece);
        }
    }

    /// Fills `out` with bytes from `offset` on, if the kernel has kept them all.
    pub fn take(&self, offset: u64, out: &mut [u8]) -> bool {
        let size = self.piece_bytes as u64;
        let first = offset / size;
        let end = (offset + out.len() as u64).div_ceil(size);
        let pieces = (first as usize)..(end as usize);
        let known = unpoisoned(self.digests.lock())
            .get(pieces)
            .map(<[u32]>::to_vec);
        let Some(known) = known.filter(|known| !known.contains(&0)) else {
            return false;
        };
        let mut at = first * size;
        let at_once = (AT_ONCE_BYTES / self.piece_bytes).max(1);
        let mut room = vec![0; self.piece_bytes * at_once.min(known.len())];
        for known in known.chunks(at_once) {
            let bytes = &mut room[..known.len() * self.piece_bytes];
            if !self.retrieve(at, bytes, known) {
                return false;
            }
            copy_overlap(at, bytes, offset, out);
            at += bytes.len() as u64;
        }
        true
    }

    /// Gets pieces back, and forgets them if they are no longer there.
    fn retrieve(&self, offset: u64, bytes: &mut [u8], known: &[u32]) -> bool {
        let got = self.notifier.retrieve(STAND_IN, offset, bytes);
        let is_busy = matches!(&got, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        let digests = bytes.chunks_exact(self.piece_bytes).map(digest);
        let is_whole = matches!(got, Ok(true)) && digests.eq(known.iter().copied());
        if !is_whole && !is_busy {
            let first = (offset / self.piece_bytes as u64) as usize;
            unpoisoned(self.digests.lock())[first..first + known.len()].fill(0);
        }
        is_whole
    }
}

/// Returns a digest of a piece, which is not 0.
fn digest(piece: &[u8]) -> u32 {
    xxh3_64(piece) as u32 | 1
}

/// Copies those bytes of a file that both have: `from`, which begins at `at`, and `to`, which begins at `offset`.
fn copy_overlap(at: u64, from: &[u8], offset: u64, to: &mut [u8]) {
    let start = at.max(offset);
    let end = (at + from.len() as u64).min(offset + to.len() as u64);
    let of_to = (start - offset) as usize..(end - offset) as usize;
    to[of_to].copy_from_slice(&from[(start - at) as usize..(end - at) as usize]);
}
