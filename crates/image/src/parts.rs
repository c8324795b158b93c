//! Content in parts, for many threads.
//!
//! One thread walks a tree and feeds the others. It cuts large files into parts that several threads
//! may work on at once, and hands over small ones by the batch. The channel between them is bounded,
//! and a batch is small when there are many threads: so few files are open at a time.
//!
//! A part is a range of bytes. An encoded extent cannot be cut, and belongs to the part in which it
//! begins.

use std::ops::Range;
use std::sync::Arc;

use anteros_format::inode::Inode;
use crossbeam_channel::{Receiver, Sender};

use crate::{Error, Extent, Image, Map, Reader, Result, Source};

/// Bytes of a part of a large file. An extent has 12 MiB at the most, so parts of this size keep
/// threads busy, and there are few of them.
const PART_BYTES: u64 = 8 << 20;

/// A batch ends when it holds so many bytes.
const BATCH_BYTES: u64 = 1 << 20;

/// States how many parts, and so open files, may be under way.
const PARTS_MAX: usize = 256;

/// More workers than this would only wait for the thread that feeds them.
const WORKERS_MAX: usize = 64;

/// Bytes are handed over in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes of a file that one thread works on.
pub(crate) struct Part<F> {
    pub(crate) file: Arc<F>,
    pub(crate) range: Range<u64>,
}

/// Holds what one thread takes at a time.
pub(crate) type Batch<F> = Vec<Part<F>>;

/// Tells where the walking thread puts its parts; workers take them as jobs `J`.
pub(crate) struct Feeder<F, J = Batch<F>> {
    sender: Sender<J>,
    batch: Batch<F>,
    bytes: u64,
    batch_max: usize,
    part_bytes: u64,
}

/// As many workers as are wanted, within reason.
fn worker_count(wanted: usize) -> usize {
    wanted.clamp(1, WORKERS_MAX)
}

/// Lets `walk` feed as many workers as are wanted, within reason, and waits for them all.
pub(crate) fn with_workers<F, J: Send, R>(
    wanted: usize,
    work: impl Fn(Receiver<J>) + Sync,
    walk: impl FnOnce(Feeder<F, J>) -> R,
) -> R {
    let workers = worker_count(wanted);
    let (feeder, jobs) = channel(workers);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (work, jobs) = (&work, jobs.clone());
            scope.spawn(move || work(jobs));
        }
        drop(jobs);
        walk(feeder)
    })
}

/// A way from a walking thread to so many workers.
fn channel<F, J>(workers: usize) -> (Feeder<F, J>, Receiver<J>) {
    let (sender, receiver) = crossbeam_channel::bounded(2 * workers);
    // Batches in the channel, at the workers, and the one that is being filled.
    let batch_max = (PARTS_MAX / (3 * workers + 1)).min(32);
    let part_bytes = PART_BYTES;
    (
        Feeder {
            sender,
            batch: Vec::new(),
            bytes: 0,
            batch_max,
            part_bytes,
        },
        receiver,
    )
}

impl<F, J: From<Batch<F>>> Feeder<F, J> {
    /// Hands over a file. A large one is cut into parts. A hole at the beginning of a part becomes
    /// a part of its own, however long. A hostile file has any number of parts, so `go_on` is asked
    /// before each, and its error is the end.
    pub(crate) fn file<E: From<Error>>(
        &mut self,
        image: &Image,
        inode: &Inode,
        file: &Arc<F>,
        go_on: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        if inode.size <= self.part_bytes {
            self.push(file, 0..inode.size);
            return Ok(());
        }
        let map = image.map(inode)?;
        let mut start = 0;
        while start < inode.size {
            go_on()?;
            let mut end = hole_end(image, inode, &map, start)?;
            if end == start {
                end = start.saturating_add(self.part_bytes).min(inode.size);
            }
            self.push(file, start..end);
            start = end;
        }
        Ok(())
    }

    fn push(&mut self, file: &Arc<F>, range: Range<u64>) {
        self.bytes = self.bytes.saturating_add(range.end - range.start);
        self.batch.push(Part {
            file: file.clone(),
            range,
        });
        if self.bytes >= BATCH_BYTES || self.batch.len() >= self.batch_max {
            self.flush();
        }
    }

    /// Hands over what has gathered.
    pub(crate) fn flush(&mut self) {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.send(batch.into());
    }

    /// States how many parts, and so open files, a job may have.
    pub(crate) const fn batch_max(&self) -> usize {
        self.batch_max
    }

    /// Hands over a job of another kind.
    pub(crate) fn send(&self, job: J) {
        // Nobody receives only if every worker panicked, and then so will their scope.
        let _ = self.sender.send(job);
    }
}

/// Returns where the hole ends that begins at `start`; that is `start` itself if none does.
fn hole_end(image: &Image, inode: &Inode, map: &Map, start: u64) -> Result<u64> {
    let mut end = start;
    while end < inode.size {
        let extent = image.extent_at(inode, map, end)?;
        if extent.source != Source::Hole {
            break;
        }
        end = extent.end();
    }
    Ok(end)
}

/// A run of bytes of a file.
pub(crate) enum Piece<'a> {
    Data(&'a [u8]),
    /// So many zeros that are not stored.
    Hole(u64),
}

/// Reads parts. Holds as much memory as the largest extent takes, decoded and encoded.
pub(crate) struct PartReader<'a> {
    image: &'a Image,
    reader: Reader<'a>,
    /// Data that waits to be handed over: the first `filled` bytes, from `start` on.
    buf: Vec<u8>,
    filled: usize,
    start: u64,
}

impl<'a> PartReader<'a> {
    pub(crate) fn new(image: &'a Image) -> Self {
        let buf = vec![0; PIECE_BYTES];
        Self {
            image,
            reader: Reader::new(image),
            buf,
            filled: 0,
            start: 0,
        }
    }

    /// Gives `sink` the pieces of a part in order, each with its offset in the file.
    pub(crate) fn read<E: From<Error>>(
        &mut self,
        inode: &Inode,
        part: &Range<u64>,
        mut sink: impl FnMut(u64, Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.filled = 0;
        let map = self.image.map(inode)?;
        let mut next = part.start;
        while next < part.end {
            let extent = self.image.extent_at(inode, &map, next)?;
            next = extent.end();
            let share = share(&extent, part);
            if extent.source == Source::Hole {
                self.hand_over(&mut sink)?;
                sink(share.start, Piece::Hole(share.end - share.start))?;
                continue;
            }
            for piece in pieces(&extent, share) {
                if !self.has_room(&piece) {
                    self.hand_over(&mut sink)?;
                }
                self.gather(inode, &extent, piece)?;
            }
        }
        self.hand_over(&mut sink)
    }

    fn has_room(&self, piece: &Range<u64>) -> bool {
        let len = (piece.end - piece.start) as usize;
        piece.start == self.start + self.filled as u64 && self.filled + len <= PIECE_BYTES
    }

    fn gather(&mut self, inode: &Inode, extent: &Extent, piece: Range<u64>) -> Result<()> {
        if self.filled == 0 {
            self.start = piece.start;
        }
        let end = self.filled + (piece.end - piece.start) as usize;
        if self.buf.len() < end {
            self.buf.resize(end, 0);
        }
        let out = &mut self.buf[self.filled..end];
        self.reader
            .read_within(inode, extent, piece.start - extent.offset, out)?;
        self.filled = end;
        Ok(())
    }

    fn hand_over<E>(
        &mut self,
        sink: &mut impl FnMut(u64, Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match std::mem::take(&mut self.filled) {
            0 => Ok(()),
            filled => sink(self.start, Piece::Data(&self.buf[..filled])),
        }
    }
}

/// The bytes of an extent that belong to a part; may be none.
fn share(extent: &Extent, part: &Range<u64>) -> Range<u64> {
    match extent.source {
        Source::Pcluster(_) if part.contains(&extent.offset) => extent.offset..extent.end(),
        Source::Pcluster(_) => extent.end()..extent.end(),
        _ => extent.offset.max(part.start)..extent.end().min(part.end),
    }
}

/// Cuts what can be cut into pieces.
fn pieces(extent: &Extent, share: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let step = match extent.source {
        Source::Pcluster(_) => extent.len,
        _ => PIECE_BYTES as u64,
    };
    let count = (share.end - share.start).div_ceil(step);
    (0..count).map(move |piece| {
        let start = share.start + piece * step;
        start..share.end.min(start + step)
    })
}

#[cfg(test)]
mod tests {
    use anteros_core::{FileDevice, FileKind};

    use super::*;
    use crate::OpenOptions;

    fn open(name: &str) -> Image {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/");
        let device = FileDevice::open(format!("{dir}{name}.erofs")).unwrap();
        Image::open(Arc::new(device), vec![], OpenOptions::default()).unwrap()
    }

    /// The content of a file, put together from parts of a size.
    fn in_parts(image: &Image, inode: &Inode, part_bytes: u64) -> Vec<u8> {
        let (mut feeder, parts) = channel::<(), Batch<()>>(64);
        feeder.part_bytes = part_bytes;
        let mut content = vec![0; inode.size as usize];
        let mut reader = PartReader::new(image);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let go_on = || Ok::<_, Error>(());
                feeder.file(image, inode, &Arc::new(()), go_on).unwrap();
                feeder.flush();
            });
            for part in parts.into_iter().flatten() {
                let copy = |offset: u64, piece: Piece<'_>| {
                    if let Piece::Data(data) = piece {
                        content[offset as usize..][..data.len()].copy_from_slice(data);
                    }
                    Ok::<_, Error>(())
                };
                reader.read(inode, &part.range, copy).unwrap();
            }
        });
        content
    }

    #[test]
    fn parts_make_up_the_file() {
        for name in [
            "chunks",
            "plain",
            "lz4hc-64k",
            "fragments-dedupe",
            "48bit-fixed",
            "lzma",
        ] {
            let image = open(name);
            let data = image.find(b"data").unwrap();
            let files = image.read_dir(&data).unwrap().into_iter();
            let files = files.map(|entry| image.inode(entry.nid).unwrap());
            for inode in files.filter(|inode| inode.kind == FileKind::Regular) {
                let mut whole = vec![0; inode.size as usize];
                let map = image.map(&inode).unwrap();
                image.read_exact(&inode, &map, 0, &mut whole).unwrap();
                for part_bytes in [1000, 4096, 5000, 1 << 20] {
                    assert!(
                        in_parts(&image, &inode, part_bytes) == whole,
                        "{name} {part_bytes}"
                    );
                }
            }
        }
    }

    #[test]
    fn few_parts_are_under_way() {
        for workers in 1..=WORKERS_MAX {
            let (feeder, jobs) = channel::<(), Batch<()>>(workers);
            let batches = jobs.capacity().unwrap() + workers + 1;
            let parts = feeder.batch_max * batches;
            assert!((1..=PARTS_MAX).contains(&parts), "{workers}");
        }
    }
}
