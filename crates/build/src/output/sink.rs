//! A thread that writes to a sink.

use std::io::{self, Seek, SeekFrom, Write};
use std::sync::mpsc::{Receiver, sync_channel};

use anteros_core::zeros;

use super::{Sender, Store};
use crate::Error;

/// Pieces that wait for the thread, of a MiB each or little more.
const WAITING_MAX: usize = 4;

/// Has an image written into a sink, from where that stands; `build` gets a store, and tells where the image ends. The sink
/// stands behind the image then. What was written behind that and is no part of it is zeros.
pub(crate) fn write_into<W: Write + Seek + Send, T>(
    sink: &mut W,
    build: impl FnOnce(Store) -> Result<(u64, T), Error>,
) -> Result<T, Error> {
    let fail = |cause| Error::Image {
        path: "the sink".into(),
        action: "write",
        cause,
    };
    let start = sink.stream_position().map_err(fail)?;
    let (sender, receiver): (Sender, _) = sync_channel(WAITING_MAX);
    let (built, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(sink, start, receiver));
        let built = build(Store::Sink(sender));
        (built, writer.join())
    });
    let written = written.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let highest = written.map_err(fail)?;
    let (end, result) = built?;
    end_at(sink, start + end, highest).map_err(fail)?;
    Ok(result)
}

/// Writes what comes, until nobody sends any more; tells where the last byte lies that was ever written.
fn write_all(
    sink: &mut (impl Write + Seek),
    start: u64,
    receiver: Receiver<(u64, Vec<u8>)>,
) -> io::Result<u64> {
    let (mut at, mut highest) = (start, start);
    for (place, bytes) in receiver {
        if at != start + place {
            at = sink.seek(SeekFrom::Start(start + place))?;
        }
        sink.write_all(&bytes)?;
        at += bytes.len() as u64;
        highest = highest.max(at);
    }
    Ok(highest)
}

fn end_at(sink: &mut (impl Write + Seek), end: u64, highest: u64) -> io::Result<()> {
    sink.seek(SeekFrom::Start(end))?;
    zeros(highest.saturating_sub(end)).try_for_each(|piece| sink.write_all(piece))?;
    sink.seek(SeekFrom::Start(end))?;
    sink.flush()
}
