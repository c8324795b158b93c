//! The forms of the buffer, and its limits.

use std::time::Duration;

use anteros_core::{PAGE_BYTES, begin_on_page};

use crate::pool::{Pool, ROOM_BYTES_MIN};

/// The least memory for data.
pub const BUFFER_BYTES_MIN: usize = ROOM_BYTES_MIN + PAGE_BYTES;

/// Organisation of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Buffer of the paper: fixed entries of [`Options::region_bytes`], flushed all together at each
    /// [`Options::interval`], or when a writer finds none free.
    Entries,
    /// A queue of extents for each inode. Small requests are gathered up to [`Options::region_bytes`],
    /// larger ones stay as they are, and whoever answered such a request writes it then
    /// ([`hand_on`](anteros_core::Writable::hand_on)), or before the answer where there are as many writers as processors; what is gathered or copied begins on a page of memory. The thread is called when half of
    /// [`Options::bytes_max`] is taken, or someone else is already at it; the interval is for what is left.
    #[default]
    Queues,
}

impl Form {
    /// Bytes of a buffer beyond its room, so that content can begin on a page wherever the buffer lies.
    pub(crate) const fn front_bytes(self) -> usize {
        match self {
            Self::Entries => 0,
            Self::Queues => PAGE_BYTES,
        }
    }

    /// The size of a buffer with this room.
    pub(crate) const fn buffer_bytes(self, room: usize) -> usize {
        room + self.front_bytes()
    }

    /// Start of content in an empty buffer.
    pub(crate) fn begin(self, data: &mut Vec<u8>) -> usize {
        match self {
            Self::Entries => 0,
            Self::Queues => begin_on_page(data, 0),
        }
    }
}

/// Limits of a [`Buffered`](crate::Buffered), and the time at which it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Organisation of the buffer.
    pub form: Form,
    /// Memory for data in all; at least [`BUFFER_BYTES_MIN`].
    pub bytes_max: usize,
    /// Up to how much is gathered for one write; rounded down to what buffers have room for (a power of two up
    /// to 64 KiB, multiples of 64 KiB beyond).
    pub region_bytes: usize,
    /// The longest that data stays buffered while the management thread is there and can keep up.
    pub interval: Duration,
    /// Tells whether a thread flushes. Else writers flush when a region is full or memory runs short, and time has no
    /// effect but through [`Buffered::tick`](crate::Buffered::tick).
    pub threaded: bool,
    /// Tells whether the first write after an inode was opened, closed or synced is passed through. If it stays the only
    /// one, the next call would wait for it at once.
    pub passes_first: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            form: Form::default(),
            bytes_max: 8 << 20,
            region_bytes: 2 << 20,
            interval: Duration::from_millis(10),
            threaded: true,
            passes_first: true,
        }
    }
}

impl Options {
    pub(crate) fn normalized(mut self) -> Self {
        self.bytes_max = self.bytes_max.max(BUFFER_BYTES_MIN);
        let room = self.bytes_max - self.form.front_bytes();
        self.region_bytes = Pool::room_within(self.region_bytes.min(room));
        self
    }
}
