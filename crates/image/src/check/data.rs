//! Decoding: the second pass, over the map of the image.

use std::io;
use std::iter::Peekable;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use anteros_core::unpoisoned;

use crate::aligned::Aligned;
use crate::map::{Location, Pcluster};
use crate::read_ahead::ReadAhead;
use crate::{Image, Place, Result};

use super::part::{Encoded, Part, Parts, What};
use super::run::Run;

/// Bytes of the image that a worker takes at a time, about.
const BATCH_BYTES: u64 = 1 << 20;
/// And no more extents.
const BATCH_PARTS: usize = 1024;
/// Bytes that are read at a time where more cannot be read.
const PIECE_BYTES: u64 = 4 << 10;

/// Decodes and reads all parts that are data, each byte once.
pub(super) fn check(run: &Run<'_>, parts: &Parts) {
    let total = Tasks::new(run, parts.iter()).map(|task| task.bytes()).sum();
    run.data_bytes_total.store(total, Ordering::Relaxed);
    let tasks = Mutex::new(Tasks::new(run, parts.iter()));
    let next = || unpoisoned(tasks.lock()).next();
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

/// Tells what a worker takes at a time.
enum Task {
    /// Decodes these.
    Decode(Vec<(Part, Encoded)>),
    /// Reads bytes as they are.
    Read {
        place: Place,
        from: Location,
        bytes: u64,
    },
}

impl Task {
    fn bytes(&self) -> u64 {
        match self {
            Self::Decode(parts) => parts
                .iter()
                .map(|(_, encoded)| u64::from(encoded.len))
                .sum(),
            Self::Read { bytes, .. } => *bytes,
        }
    }

    fn run(&self, run: &Run<'_>, buffers: &mut Buffers) {
        match self {
            Self::Decode(parts) => {
                for (part, encoded) in parts {
                    run.ok(decode(run.image, buffers, part, *encoded));
                }
            }
            Self::Read { place, from, bytes } => {
                read(run, *place, *from, buffers.decoded.resized(*bytes as usize));
            }
        }
    }
}

/// Reads bytes as they are; where that fails, block by block, so that each is told that cannot be read.
fn read(run: &Run<'_>, place: Place, from: Location, buf: &mut [u8]) {
    if run.image.read_raw(place, from, buf).is_ok() {
        return;
    }
    let mut at = from.address();
    let end = at + buf.len() as u64;
    while at < end && !run.is_ended() {
        let next = (at / PIECE_BYTES + 1).saturating_mul(PIECE_BYTES).min(end);
        let piece = &mut buf[..(next - at) as usize];
        run.ok(run.image.read_raw(place, from.with_address(at), piece));
        at = next;
    }
}

/// Returns whether decoding one extent has shown that another decodes.
fn is_shown_by(part: &Part, encoded: Encoded, (other, shown): &(Part, Encoded)) -> bool {
    part.is_on_same_bytes(other)
        && encoded.encoding == shown.encoding
        && (encoded.partial || encoded.len == shown.len)
}

/// The memory of a worker.
#[derive(Default)]
struct Buffers {
    encoded: ReadAhead,
    decoded: Aligned,
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
    let decoded = buffers.decoded.resized(len as usize);
    let encoded = &mut buffers.encoded;
    image.decode(part.place, offset, &pcluster, encoded, decoded)
}

/// The tasks in the order of their addresses.
struct Tasks<'r, 'i, P: Iterator<Item = io::Result<Part>>> {
    run: &'r Run<'i>,
    parts: Peekable<P>,
    /// The plain part that is being handed out.
    plain: Option<Part>,
    /// Everything plain in front of this has been handed out.
    covered: Location,
    /// The extent that was handed out last.
    decoded: Option<(Part, Encoded)>,
}

impl<'r, 'i, P: Iterator<Item = io::Result<Part>>> Tasks<'r, 'i, P> {
    fn new(run: &'r Run<'i>, parts: P) -> Self {
        let covered = Location::Device {
            device: 0,
            address: 0,
        };
        Self {
            run,
            parts: parts.peekable(),
            plain: None,
            covered,
            decoded: None,
        }
    }

    /// The next piece of a plain part that was not handed out yet.
    fn piece(&mut self, part: Part) -> Option<Task> {
        let from = part.location.max(self.covered);
        let left = part.end().saturating_sub(from.address());
        let bytes = left.min(BATCH_BYTES);
        self.plain = (bytes < left).then_some(part);
        self.covered = from.with_address(from.address() + bytes);
        (bytes > 0).then_some(Task::Read {
            place: part.place,
            from,
            bytes,
        })
    }

    /// Extents to decode, `first` in front; `None` if those before have shown that they decode.
    fn batch(&mut self, first: (Part, Encoded)) -> Option<Task> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some((part, encoded)) = next {
            let shown = self.decoded.as_ref();
            if !shown.is_some_and(|shown| is_shown_by(&part, encoded, shown)) {
                batch.push((part, encoded));
                self.decoded = Some((part, encoded));
            }
            bytes += part.bytes;
            let has_room = bytes < BATCH_BYTES && batch.len() < BATCH_PARTS;
            let goes_on = |next: &io::Result<Part>| {
                has_room
                    && matches!(
                        next,
                        Ok(Part {
                            what: What::Encoded(_),
                            ..
                        })
                    )
            };
            let more = self.parts.next_if(goes_on);
            next = more.and_then(Result::ok).and_then(extent);
        }
        (!batch.is_empty()).then_some(Task::Decode(batch))
    }
}

fn extent(part: Part) -> Option<(Part, Encoded)> {
    match part.what {
        What::Encoded(encoded) => Some((part, encoded)),
        _ => None,
    }
}

impl<P: Iterator<Item = io::Result<Part>>> Iterator for Tasks<'_, '_, P> {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        loop {
            let part = match self.plain.take() {
                Some(part) => part,
                None => {
                    let part = self.parts.next()?;
                    self.run.scratch(part)?
                }
            };
            let task = match part.what {
                What::Metadata | What::SharedXattr => None,
                What::Flat | What::Chunk => self.piece(part),
                What::Encoded(encoded) => self.batch((part, encoded)),
            };
            if task.is_some() {
                return task;
            }
        }
    }
}
