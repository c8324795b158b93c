//! Record of what was asked of a device, and the states that may come of it.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};

use anteros_core::{Device, WritableDevice, writable_range};

use super::image::{Change, Image, Overlay, StateDevice};
use super::{SECTOR_BYTES, StateId};

/// Tells what was asked of a device.
#[derive(Clone)]
pub enum Operation {
    /// A write.
    Write {
        /// Tells where.
        offset: u64,
        /// Holds what.
        data: Arc<[u8]>,
    },
    /// A discard.
    Discard {
        /// Tells where.
        offset: u64,
        /// Tells how much.
        len: u64,
    },
    /// A flush that has returned.
    Flush,
}

impl Operation {
    fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Write { offset, data } => Some((*offset, data.len() as u64)),
            Self::Discard { offset, len } => Some((*offset, *len)),
            Self::Flush => None,
        }
    }

    pub(super) fn is_flush(&self) -> bool {
        matches!(self, Self::Flush)
    }

    /// Returns how many sectors it changes, in whole or in part.
    pub(super) fn sectors(&self) -> usize {
        let (offset, len) = self.range().unwrap_or((0, 0));
        let end = (offset + len).div_ceil(SECTOR_BYTES);
        (end - (offset / SECTOR_BYTES).min(end)) as usize
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { offset, data } => write!(f, "write {offset}+{}", data.len()),
            Self::Discard { offset, len } => write!(f, "discard {offset}+{len}"),
            Self::Flush => f.write_str("flush"),
        }
    }
}

/// A note of the test among the operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Tells how many operations were there before it.
    pub at: usize,
    /// Holds what it says.
    pub label: String,
}

/// A device in memory that records what is asked of it.
///
/// The order of the record is that in which calls take effect; a flush covers all that is before it there.
pub struct Recorder {
    base: Arc<Image>,
    content: StateDevice,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    operations: Vec<Operation>,
    marks: Vec<Mark>,
}

impl Recorder {
    /// Begins with a device that holds `base`, all of it lasting.
    pub fn new(base: &[u8]) -> Self {
        Self::over(Arc::new(Image::new(base)))
    }

    fn over(base: Arc<Image>) -> Self {
        Self {
            content: StateDevice::new(Arc::clone(&base), &Overlay::new()),
            base,
            log: Mutex::default(),
        }
    }

    /// Makes a note: what is promised, or what is about to happen.
    ///
    /// # Panics
    ///
    /// If a thread has panicked while it used the device.
    pub fn mark(&self, label: impl Into<String>) {
        let mut log = self.log.lock().unwrap();
        let at = log.operations.len();
        let label = label.into();
        log.marks.push(Mark { at, label });
    }

    /// All that was recorded up to now.
    ///
    /// # Panics
    ///
    /// If a thread has panicked while it used the device.
    pub fn recording(&self) -> Recording {
        let log = self.log.lock().unwrap();
        let changes = log.operations.iter().map(|operation| match operation {
            Operation::Write { offset, data } => Some(Change::new(*offset, data)),
            Operation::Discard { offset, len } => Some(Change::discard(*offset, *len)),
            Operation::Flush => None,
        });
        Recording {
            base: Arc::clone(&self.base),
            changes: changes.collect(),
            operations: log.operations.clone(),
            marks: log.marks.clone().into(),
        }
    }

    /// Does a call to the content and notes it, as one step: the order of the notes is the order of the effects.
    fn record(
        &self,
        call: impl FnOnce(&StateDevice) -> io::Result<()>,
        operation: impl FnOnce() -> Operation,
    ) -> io::Result<()> {
        let mut log = self.log.lock().unwrap();
        call(&self.content)?;
        log.operations.push(operation());
        Ok(())
    }
}

impl Device for Recorder {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.content.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.base.size()
    }

    fn name(&self) -> String {
        "a recorder".into()
    }
}

impl WritableDevice for Recorder {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return writable_range(offset, 0, self.size()).map(drop);
        }
        self.record(
            |content| content.write_at(offset, data),
            || Operation::Write {
                offset,
                data: data.into(),
            },
        )
    }

    /// One operation, as a disk would see it; so it is torn as one.
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let data: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.write_at(offset, &data)
    }

    fn flush(&self) -> io::Result<()> {
        self.record(|content| content.flush(), || Operation::Flush)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return writable_range(offset, 0, self.size()).map(drop);
        }
        self.record(
            |content| content.discard(offset, len),
            || Operation::Discard { offset, len },
        )
    }
}

/// Holds what a [`Recorder`] has recorded.
pub struct Recording {
    base: Arc<Image>,
    operations: Vec<Operation>,
    /// Holds what each operation does; nothing for a flush.
    changes: Vec<Option<Change>>,
    marks: Arc<[Mark]>,
}

impl Recording {
    /// All that was asked for, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// All notes, in order.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// A state by its id.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when this recording has no such state, saying why.
    pub fn state(&self, id: &StateId) -> io::Result<State> {
        let start = self.check(id).map_err(|why| {
            let message = format!("{id}: {why}");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let mut base = Epoch::new(self);
        while base.start < start {
            base.advance(self);
        }
        Ok(base.state(self, id.clone()))
    }

    /// Returns where the open epoch of an id begins, if the id fits the recording.
    fn check(&self, id: &StateId) -> Result<usize, String> {
        let issued = self
            .operations
            .get(..id.prefix)
            .ok_or_else(|| format!("only {} operations were recorded", self.operations.len()))?;
        let start = issued.iter().rposition(Operation::is_flush);
        let start = start.map_or(0, |flush| flush + 1);
        let is_in_order = id.lost.is_sorted() && id.torn.is_sorted_by_key(|(torn, _)| torn);
        if !is_in_order {
            return Err("operations must be in order".into());
        }
        let torn = id.torn.iter().map(|(operation, _)| operation);
        for &operation in id.lost.iter().chain(torn) {
            if !(start..id.prefix).contains(&operation) {
                return Err(format!(
                    "only operations from {start} up to the prefix can be lost or torn, not {operation}"
                ));
            }
        }
        for (operation, arrived) in &id.torn {
            let sectors = self.operations[*operation].sectors();
            if arrived.iter().any(|&sector| sector >= sectors) || id.lost.contains(operation) {
                return Err(format!(
                    "operation {operation} of {sectors} sectors cannot be torn so"
                ));
            }
        }
        Ok(start)
    }

    /// Returns how many notes were made before the next operation after `prefix` of them.
    pub(super) fn marks_before(&self, prefix: usize) -> usize {
        self.marks.partition_point(|mark| mark.at <= prefix)
    }
}

/// Holds what the disk holds for certain, between two flushes.
pub(super) struct Epoch {
    base: Arc<Image>,
    /// The first operation after the flush.
    pub(super) start: usize,
    flushes: usize,
}

impl Epoch {
    pub(super) fn new(recording: &Recording) -> Self {
        Self {
            base: Arc::clone(&recording.base),
            start: 0,
            flushes: 0,
        }
    }

    /// Goes on past the next flush, which there must be.
    pub(super) fn advance(&mut self, recording: &Recording) {
        let rest = &recording.operations[self.start..];
        let len = rest.iter().position(Operation::is_flush).unwrap();
        let id = StateId::prefix(self.start + len);
        let overlay = self.overlay(recording, &id);
        Arc::make_mut(&mut self.base).merge(overlay);
        self.start += len + 1;
        self.flushes += 1;
    }

    fn overlay(&self, recording: &Recording, id: &StateId) -> Overlay {
        let mut overlay = Overlay::new();
        let mut lost = id.lost.iter().peekable();
        let mut torn = id.torn.iter().peekable();
        for number in self.start..id.prefix {
            let Some(change) = &recording.changes[number] else {
                continue;
            };
            if lost.next_if_eq(&&number).is_some() {
                continue;
            }
            match torn.next_if(|(torn, _)| *torn == number) {
                None => change.apply(&self.base, &mut overlay),
                Some((_, arrived)) => {
                    let (offset, _) = recording.operations[number].range().unwrap();
                    let first = offset / SECTOR_BYTES;
                    for &sector in arrived {
                        let start = (first + sector as u64) * SECTOR_BYTES;
                        let range = start..start + SECTOR_BYTES;
                        change.apply_within(&range, &self.base, &mut overlay);
                    }
                }
            }
        }
        overlay
    }

    /// A state of this epoch.
    pub(super) fn state(&self, recording: &Recording, id: StateId) -> State {
        State {
            base: Arc::clone(&self.base),
            overlay: self.overlay(recording, &id),
            flushes: self.flushes,
            mark_count: recording.marks_before(id.prefix),
            marks: Arc::clone(&recording.marks),
            id,
        }
    }
}

/// Holds what a disk may hold after the power has failed.
pub struct State {
    base: Arc<Image>,
    overlay: Overlay,
    flushes: usize,
    marks: Arc<[Mark]>,
    mark_count: usize,
    id: StateId,
}

impl State {
    /// Its name, by which [`Recording::state`] makes it again.
    pub fn id(&self) -> &StateId {
        &self.id
    }

    /// Returns how many flushes had returned.
    pub fn flushes(&self) -> usize {
        self.flushes
    }

    /// The notes that had been made.
    pub fn marks(&self) -> &[Mark] {
        &self.marks[..self.mark_count]
    }

    /// Returns whether a note had been made.
    pub fn has_mark(&self, label: &str) -> bool {
        self.marks().iter().any(|mark| mark.label == label)
    }

    /// A device that holds it. What is written there, the state does not see.
    pub fn device(&self) -> StateDevice {
        StateDevice::new(Arc::clone(&self.base), &self.overlay)
    }

    /// A device that holds it and records: the power may fail again, while what was done before is repaired.
    pub fn recorder(&self) -> Recorder {
        let mut image = Image::clone(&self.base);
        image.merge(self.overlay.clone());
        Recorder::over(Arc::new(image))
    }

    /// All of its bytes.
    pub fn image(&self) -> Vec<u8> {
        self.base.bytes_with(&self.overlay)
    }

    /// Equal for states of a recording that no oracle can tell from each other: after the same number of flushes, they
    /// lie over the same image.
    pub(super) fn key(&self) -> (u64, usize, usize) {
        let hash = self.base.hash_with(&self.overlay);
        (hash, self.flushes, self.mark_count)
    }
}
