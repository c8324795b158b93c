//! Images made of chunks that are shared until they are changed, and devices over them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::ops::Range;
use std::sync::{Arc, RwLock};

use anteros_core::{Device, WritableDevice, writable_range};

/// States how much is copied when a byte of it changes.
const CHUNK_BYTES: usize = 4096;

pub(super) type Chunk = [u8; CHUNK_BYTES];

/// Chunks that differ from those of an image, by their number.
pub(super) type Overlay = HashMap<usize, Hashed>;

/// A chunk, and a hash of it and its place.
#[derive(Clone)]
pub(super) struct Hashed {
    bytes: Arc<Chunk>,
    hash: u64,
}

impl Hashed {
    fn new(number: usize, bytes: Arc<Chunk>) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(number);
        hasher.write(&*bytes);
        let hash = hasher.finish();
        Self { bytes, hash }
    }
}

/// The part of a write or discard that falls into one chunk.
#[derive(Clone)]
enum Piece {
    /// All of the chunk: then it is shared, and its hash is known.
    Whole(Hashed),
    Part {
        start: usize,
        bytes: Arc<[u8]>,
    },
}

/// A change to an image, cut along the chunks once, to be done to many images.
#[derive(Clone)]
pub(super) struct Change(Vec<(usize, Piece)>);

impl Change {
    pub(super) fn new(offset: u64, data: &[u8]) -> Self {
        let pieces = cut(offset..offset + data.len() as u64).map(|(number, within, from)| {
            let bytes = &data[from..from + within.len()];
            let piece = match <&Chunk>::try_from(bytes) {
                Ok(chunk) => Piece::Whole(Hashed::new(number, Arc::new(*chunk))),
                Err(_) => Piece::Part {
                    start: within.start,
                    bytes: bytes.into(),
                },
            };
            (number, piece)
        });
        Self(pieces.collect())
    }

    /// A write of zeros.
    pub(super) fn discard(offset: u64, len: u64) -> Self {
        let zeros = Arc::new([0; CHUNK_BYTES]);
        let pieces = cut(offset..offset + len).map(|(number, within, _)| {
            let piece = match within.len() {
                CHUNK_BYTES => Piece::Whole(Hashed::new(number, Arc::clone(&zeros))),
                len => Piece::Part {
                    start: within.start,
                    bytes: zeros[..len].into(),
                },
            };
            (number, piece)
        });
        Self(pieces.collect())
    }

    /// Does it to what lies over `base`.
    pub(super) fn apply(&self, base: &Image, overlay: &mut Overlay) {
        for (number, piece) in &self.0 {
            piece.apply(*number, None, base, overlay);
        }
    }

    /// Does the part of it that falls into a range of the device.
    pub(super) fn apply_within(&self, range: &Range<u64>, base: &Image, overlay: &mut Overlay) {
        for (number, within, _) in cut(range.clone()) {
            let found = self.0.binary_search_by_key(&number, |(number, _)| *number);
            if let Ok(index) = found {
                self.0[index].1.apply(number, Some(within), base, overlay);
            }
        }
    }
}

impl Piece {
    fn apply(
        &self,
        number: usize,
        within: Option<Range<usize>>,
        base: &Image,
        overlay: &mut Overlay,
    ) {
        let (start, bytes) = match self {
            Self::Whole(chunk) if within.is_none() => {
                overlay.insert(number, chunk.clone());
                return;
            }
            Self::Whole(chunk) => (0, &chunk.bytes[..]),
            Self::Part { start, bytes } => (*start, &bytes[..]),
        };
        let within = within.unwrap_or(0..CHUNK_BYTES);
        let from = within.start.max(start);
        let to = within.end.min(start + bytes.len());
        if from < to {
            let old = overlay.get(&number).unwrap_or(&base.chunks[number]);
            let mut new = *old.bytes;
            new[from..to].copy_from_slice(&bytes[from - start..to - start]);
            overlay.insert(number, Hashed::new(number, Arc::new(new)));
        }
    }
}

/// The chunks that a range touches: number, range within the chunk, and how far into the range that begins.
fn cut(range: Range<u64>) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let (chunk, start) = (at / CHUNK_BYTES as u64, at % CHUNK_BYTES as u64);
        let len = (CHUNK_BYTES as u64 - start).min(range.end - at);
        let piece = (
            chunk as usize,
            start as usize..(start + len) as usize,
            (at - range.start) as usize,
        );
        at += len;
        (len > 0).then_some(piece)
    })
}

/// Holds what a device holds.
#[derive(Clone)]
pub(super) struct Image {
    chunks: Vec<Hashed>,
    size: u64,
}

impl Image {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let zeros = Arc::new([0; CHUNK_BYTES]);
        let chunks = bytes.chunks(CHUNK_BYTES).enumerate();
        let chunks: Vec<_> = chunks
            .map(|(number, bytes)| {
                let is_zero = bytes.iter().all(|&byte| byte == 0);
                let chunk = if is_zero {
                    Arc::clone(&zeros)
                } else {
                    let mut chunk = [0; CHUNK_BYTES];
                    chunk[..bytes.len()].copy_from_slice(bytes);
                    Arc::new(chunk)
                };
                Hashed::new(number, chunk)
            })
            .collect();
        Self {
            chunks,
            size: bytes.len() as u64,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Equal for overlays that make the same of this image.
    pub(super) fn hash_with(&self, overlay: &Overlay) -> u64 {
        let chunks = overlay.iter();
        // What is as it was cancels out.
        chunks.fold(0, |hash, (&number, chunk)| {
            hash ^ self.chunks[number].hash ^ chunk.hash
        })
    }

    /// Puts other chunks in.
    pub(super) fn merge(&mut self, overlay: Overlay) {
        for (number, chunk) in overlay {
            self.chunks[number] = chunk;
        }
    }

    pub(super) fn bytes_with(&self, overlay: &Overlay) -> Vec<u8> {
        let chunks = self.chunks.iter().enumerate();
        let mut bytes: Vec<u8> = chunks
            .flat_map(|(number, chunk)| *overlay.get(&number).unwrap_or(chunk).bytes)
            .collect();
        bytes.truncate(self.size as usize);
        bytes
    }
}

/// A device that begins as a state and keeps for itself what is written to it.
pub struct StateDevice {
    base: Arc<Image>,
    written: RwLock<HashMap<usize, Arc<Chunk>>>,
}

impl StateDevice {
    pub(super) fn new(base: Arc<Image>, overlay: &Overlay) -> Self {
        let written = overlay.iter();
        let written = written.map(|(&number, chunk)| (number, Arc::clone(&chunk.bytes)));
        Self {
            base,
            written: RwLock::new(written.collect()),
        }
    }

    /// Returns what it holds at this moment.
    ///
    /// # Panics
    ///
    /// If a thread has panicked while it used the device.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.base.size as usize];
        self.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn change(&self, range: Range<u64>, change: impl Fn(&mut [u8], usize)) {
        let mut written = self.written.write().unwrap();
        for (number, within, from) in cut(range) {
            let chunk = written
                .entry(number)
                .or_insert_with(|| Arc::clone(&self.base.chunks[number].bytes));
            change(&mut Arc::make_mut(chunk)[within], from);
        }
    }
}

impl Device for StateDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = writable_range(offset, buf.len() as u64, self.base.size)
            .map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let written = self.written.read().unwrap();
        for (number, within, from) in cut(range) {
            let base = &self.base.chunks[number].bytes;
            let chunk = written.get(&number).unwrap_or(base);
            buf[from..from + within.len()].copy_from_slice(&chunk[within]);
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.base.size
    }

    fn name(&self) -> String {
        "a state after a crash".into()
    }
}

impl WritableDevice for StateDevice {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = writable_range(offset, data.len() as u64, self.base.size)?;
        self.change(range, |bytes, from| {
            bytes.copy_from_slice(&data[from..from + bytes.len()]);
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let range = writable_range(offset, len, self.base.size)?;
        self.change(range, |bytes, _| bytes.fill(0));
        Ok(())
    }
}
