//! Decoding: the second pass, over the map of the image.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use crate::ahead::ReadAhead;
use crate::map::{Location, Pcluster};
use crate::{Image, Place, Result};

use super::Run;
use super::space::{Encoded, Part, What};

/// Bytes of the image that a worker takes at a time, about.
const BATCH_BYTES: u64 = 1 << 20;

/// Decodes and reads all parts that are data, each byte once. `parts` are sorted.
pub(super) fn check(run: &Run<'_>, parts: &[Part]) {
    run.data_bytes_total.store(
        Tasks::new(parts).map(|task| task.bytes()).sum(),
        Ordering::Relaxed,
    );
    let tasks = Mutex::new(Tasks::new(parts));
    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut buffers = Buffers::default();
        while let Some(task) = next().filter(|task| run.spend(task.bytes())) {
            task.run(run, &mut buffers);
            run.data_bytes.fetch_add(task.bytes(), Ordering::Relaxed);
            run.report_progress();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..run.workers() {
            scope.spawn(work);
        }
    });
}

/// What a worker takes at a time.
enum Task<'p> {
    /// Decodes these, see [`distinct`].
    Decode(&'p [Part]),
    /// Reads bytes as they are.
    Read {
        place: Place,
        from: Location,
        bytes: u64,
    },
}

impl Task<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Decode(parts) => distinct(parts)
                .map(|(_, encoded)| u64::from(encoded.len))
                .sum(),
            Self::Read { bytes, .. } => *bytes,
        }
    }

    fn run(&self, run: &Run<'_>, buffers: &mut Buffers) {
        match *self {
            Self::Decode(parts) => {
                for (part, encoded) in distinct(parts) {
                    run.ok(decode(run.image, buffers, part, encoded));
                }
            }
            Self::Read { place, from, bytes } => {
                buffers.decoded.resize(bytes as usize, 0);
                run.ok(run.image.read_raw(place, from, &mut buffers.decoded));
            }
        }
    }
}

/// The extents to decode: not those of which decoding the one before has shown that they decode.
fn distinct(parts: &[Part]) -> impl Iterator<Item = (&Part, Encoded)> {
    let mut before: Option<(&Part, Encoded)> = None;
    parts.iter().filter_map(move |part| {
        let What::Encoded(encoded) = part.what else {
            return None;
        };
        let is_shown = before.is_some_and(|(other, shown)| {
            part.is_on_same_bytes(other)
                && encoded.encoding == shown.encoding
                && (encoded.partial || encoded.len == shown.len)
        });
        before = before.filter(|_| is_shown).or(Some((part, encoded)));
        (!is_shown).then_some((part, encoded))
    })
}

/// The memory of a worker.
#[derive(Default)]
struct Buffers {
    encoded: ReadAhead,
    decoded: Vec<u8>,
}

fn decode(image: &Image, buffers: &mut Buffers, part: &Part, encoded: Encoded) -> Result<()> {
    let Place::Data { offset, .. } = part.place else {
        return Ok(());
    };
    let Encoded {
        len,
        encoding,
        partial,
        inline,
    } = encoded;
    let bytes = part.bytes as u32; // at most 1 MiB
    let pcluster = Pcluster {
        location: part.location,
        bytes,
        encoding,
        partial,
        inline,
    };
    buffers.decoded.resize(len as usize, 0);
    let Buffers { encoded, decoded } = buffers;
    image.decode(part.place, offset, &pcluster, encoded, decoded)
}

/// The tasks in the order of their addresses.
struct Tasks<'p> {
    parts: &'p [Part],
    /// Everything plain in front of this has been handed out.
    covered: Location,
}

impl<'p> Tasks<'p> {
    const fn new(parts: &'p [Part]) -> Self {
        Self {
            parts,
            covered: Location::Device {
                device: 0,
                address: 0,
            },
        }
    }

    fn take(&mut self, count: usize) -> &'p [Part] {
        let (taken, rest) = self.parts.split_at(count);
        self.parts = rest;
        taken
    }

    /// The next piece of a plain part that was not handed out yet.
    fn piece(&mut self, part: &Part) -> Option<Task<'p>> {
        let from = part.location.max(self.covered);
        let left = part.end().saturating_sub(from.address());
        let bytes = left.min(BATCH_BYTES);
        if bytes == left {
            self.take(1);
        }
        self.covered = from.with_address(from.address() + bytes);
        (bytes > 0).then_some(Task::Read {
            place: part.place,
            from,
            bytes,
        })
    }
}

impl<'p> Iterator for Tasks<'p> {
    type Item = Task<'p>;

    fn next(&mut self) -> Option<Task<'p>> {
        loop {
            let part = self.parts.first()?;
            match part.what {
                What::Metadata | What::SharedXattr => {
                    self.take(1);
                }
                What::Flat | What::Chunk => {
                    if let Some(task) = self.piece(part) {
                        return Some(task);
                    }
                }
                What::Encoded(_) => {
                    let is_encoded = |p: &&Part| matches!(p.what, What::Encoded(_));
                    let mut bytes = 0;
                    let is_taken = |p: &&Part| {
                        let has_room = bytes < BATCH_BYTES;
                        bytes += p.bytes;
                        has_room && is_encoded(p)
                    };
                    let count = self.parts.iter().take_while(is_taken).count();
                    // What shares a pcluster stays together, or it would be decoded again.
                    let last = &self.parts[count - 1];
                    let more = self.parts[count..].iter();
                    let more = more
                        .take_while(|p| is_encoded(p) && p.is_on_same_bytes(last))
                        .count();
                    return Some(Task::Decode(self.take(count + more)));
                }
            }
        }
    }
}
