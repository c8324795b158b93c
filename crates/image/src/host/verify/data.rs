//! Comparing the data of files, by many threads.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anteros_core::unpoisoned;
use anteros_format::inode::Inode;
use crossbeam_channel::Receiver;
use rustix::io::Errno;

use super::difference::Mismatch;
use super::report::VerifyProblem;
use super::run::Run;
use crate::Error;
use crate::parts::{Batch, Feeder, Part, PartReader, Piece};
use crate::trail::Trail;

/// Names the data of a file in messages about what cannot be read.
pub(super) const DATA: &str = "data";

/// A file is given up after so many parts that could not be read: an image of a few KiB can have
/// files of 2^60 bytes, and so can a source that stores none of them.
const PARTS_FAILED_MAX: u32 = 256;

/// A file that both have, with the same size.
pub(super) struct FilePair {
    source: OwnedFd,
    inode: Inode,
    trail: Arc<Trail>,
    /// The lowest offset at which a difference was found.
    differs_at: AtomicU64,
    /// Counts the parts that could not be read.
    parts_failed: AtomicU32,
    /// The first of them, and why.
    unread: Mutex<Option<(u64, VerifyProblem)>>,
}

/// Tells why the walking thread hands over no more of a file.
enum End {
    Problem(VerifyProblem),
    /// Too many of its parts cannot be read.
    GivenUp,
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Problem(error.into())
    }
}

impl FilePair {
    /// Notes that a part could not be read.
    fn leave_out(&self, offset: u64, problem: VerifyProblem) {
        self.parts_failed.fetch_add(1, Ordering::Relaxed);
        let mut unread = unpoisoned(self.unread.lock());
        if unread.as_ref().is_none_or(|(first, _)| offset < *first) {
            *unread = Some((offset, problem));
        }
    }

    fn is_given_up(&self) -> bool {
        self.parts_failed.load(Ordering::Relaxed) >= PARTS_FAILED_MAX
    }
}

impl Run<'_> {
    /// Has the workers compare a file.
    pub(super) fn hand_over(
        &self,
        feeder: &mut Feeder<FilePair>,
        trail: &Arc<Trail>,
        source: OwnedFd,
        inode: Inode,
    ) {
        let file = Arc::new(FilePair {
            source,
            inode,
            trail: trail.clone(),
            differs_at: AtomicU64::new(u64::MAX),
            parts_failed: AtomicU32::new(0),
            unread: Mutex::default(),
        });
        let go_on = || match () {
            () if self.stopped() => Err(End::Problem(VerifyProblem::Cancelled)),
            () if file.is_given_up() => Err(End::GivenUp),
            () => self.check_cancel().map_err(End::Problem),
        };
        let image = self.image;
        match feeder.file(image, &file.inode, &file, go_on) {
            Ok(()) | Err(End::GivenUp) => {}
            Err(End::Problem(VerifyProblem::Cancelled)) => {
                self.fail(trail, VerifyProblem::Cancelled);
            }
            // What a part says of itself comes first.
            Err(End::Problem(problem)) => file.leave_out(u64::MAX, problem),
        }
        self.let_go(file);
    }

    /// Takes parts until there are no more. Once the comparison has failed they are only let go of.
    pub(super) fn work(&self, jobs: Receiver<Batch<FilePair>>) {
        let mut reader = PartReader::new(self.image);
        let mut buf = Vec::new();
        for Part { file, range } in jobs.into_iter().flatten() {
            if !self.stopped() && !file.is_given_up() {
                match self.compare_part(&mut reader, &mut buf, &file, &range) {
                    Ok(()) => {}
                    Err(VerifyProblem::Cancelled) => {
                        self.fail(&file.trail, VerifyProblem::Cancelled);
                    }
                    Err(problem) => file.leave_out(range.start, problem),
                }
            }
            self.let_go(file);
        }
    }

    /// Reports what was found in a file, if nobody else has it.
    fn let_go(&self, file: Arc<FilePair>) {
        let Some(file) = Arc::into_inner(file) else {
            return;
        };
        match file.differs_at.into_inner() {
            u64::MAX => {}
            offset => self.differ(&file.trail, Mismatch::Data { offset }),
        }
        let unread = file.unread.into_inner();
        if let Some((_, problem)) = unpoisoned(unread) {
            self.leave_out(&file.trail, DATA, problem);
        }
    }

    fn compare_part(
        &self,
        reader: &mut PartReader<'_>,
        buf: &mut Vec<u8>,
        file: &FilePair,
        part: &Range<u64>,
    ) -> Result<(), VerifyProblem> {
        reader.read(&file.inode, part, |offset, piece| {
            self.check_cancel()?;
            let (len, differs_at) = match piece {
                Piece::Data(data) => {
                    buf.resize(data.len(), 0);
                    let count = read_at(&file.source, offset, buf)?;
                    (data.len() as u64, first_difference(data, &buf[..count]))
                }
                Piece::Hole(len) => (len, first_data(&file.source, offset, len, buf)?),
            };
            if let Some(skip) = differs_at {
                file.differs_at.fetch_min(offset + skip, Ordering::Relaxed);
            }
            self.count(|report| report.bytes += len);
            self.observer.compared_bytes(len);
            Ok(())
        })
    }
}

/// Returns where the first byte differs; the end of the shorter one is a difference.
fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    let equal = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    Some(equal as u64)
}

/// Fills `buf`, unless the file ends before.
fn read_at(file: &OwnedFd, offset: u64, buf: &mut [u8]) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(file, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Returns where the first byte other than zero lies, counted from `offset`. What the source does
/// not store is not read.
fn first_data(
    file: &OwnedFd,
    offset: u64,
    len: u64,
    buf: &mut Vec<u8>,
) -> rustix::io::Result<Option<u64>> {
    const STEP: u64 = 1 << 20;
    let end = offset + len;
    let mut at = offset;
    while at < end {
        at = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(None),
            found => found?.max(at),
        };
        let step = STEP.min(end.saturating_sub(at));
        buf.resize(step as usize, 0);
        let count = read_at(file, at, buf)?;
        if let Some(skip) = buf[..count].iter().position(|&b| b != 0) {
            return Ok(Some(at + skip as u64 - offset));
        }
        at += step.max(1);
    }
    Ok(None)
}
