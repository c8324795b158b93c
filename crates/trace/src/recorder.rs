//! The thread that writes a record.
//!
//! Whoever answers requests puts accesses into a queue of fixed length and never waits: what finds no room is
//! counted as dropped. The thread finds out what files and processes are called, gathers items into blocks, and
//! writes a block when it is long enough, a second old, or asked for.
//!
//! A block that cannot be written (a full disk) is given up, with all that it names, and counted; the record is put
//! back to where it ended, and the next block is tried again. So what is there can always be read.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime};

use crate::Access;
use crate::record::{Block, NAME_LEN_MAX, header};

/// States how many accesses may wait: less than a megabyte, and some tenths of a second of small requests.
const WAITING_MAX: usize = 8192;
/// From how many bytes on a block is written.
const BLOCK_BYTES: usize = 64 << 10;
/// States how long items stay in memory, and for how long a file is believed to have its name.
const AGE_MAX: Duration = Duration::from_secs(1);
/// For how long accesses may gather in the queue. Names of processes that end sooner are not found out.
const GATHERING: Duration = Duration::from_millis(1);
/// States how many files and processes are remembered; beyond that, all are forgotten and named anew.
const REMEMBERED_MAX: usize = 1 << 16;
/// States how often, and for how long each time, whoever asks for a flush tries to get into a full queue.
const FLUSH_TRIES: u32 = 50;
const FLUSH_PAUSE: Duration = Duration::from_millis(10);

/// Describes who knows what files and processes are called. It is asked by the thread alone.
pub trait Names: Send + 'static {
    /// A number that no other file has, as long as the recording lasts; an inode's number may be given out
    /// again. `None` if nobody knows the inode any more.
    fn serial(&mut self, ino: u64) -> Option<u64>;

    /// The path of an inode from the root of the mount, if it has one.
    fn path(&mut self, ino: u64) -> Option<Vec<u8>>;

    /// The name of a process.
    fn process(&mut self, pid: u32) -> Option<Vec<u8>>;
}

/// Holds what became of a recording so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Accesses in the record.
    pub recorded: u64,
    /// Accesses that are not, because there was no time or no space for them.
    pub dropped: u64,
    /// Length of the record.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Shared {
    recorded: AtomicU64,
    dropped: AtomicU64,
    bytes: AtomicU64,
}

enum Message {
    Access(Access),
    /// Write what there is, and say so.
    Flush(SyncSender<()>),
    /// Close the record, so long after its beginning.
    Finish(Duration),
}

/// Writes a record until it is told to [`finish`](Self::finish).
#[derive(Debug)]
pub struct Recorder {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Begins a record in `file`, which becomes empty first. `on_error` is told when the record cannot be written
    /// to, once for each time that it could before; it is called by the thread.
    ///
    /// # Errors
    ///
    /// When the header cannot be written, or no thread can be started.
    pub fn start(
        file: File,
        started: SystemTime,
        names: impl Names,
        on_error: impl Fn(io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let header = header(started);
        file.set_len(0)?;
        file.write_all_at(&header, 0)?;
        let shared = Arc::new(Shared::default());
        shared.bytes.store(header.len() as u64, Ordering::Relaxed);
        let writer = Writer {
            file,
            names,
            on_error: Box::new(on_error),
            shared: shared.clone(),
            block: Block::new(),
            begun: Duration::ZERO,
            dropped_told: 0,
            dropped_written: 0,
            files: HashMap::new(),
            processes: HashSet::new(),
            next_number: 0,
            next_number_written: 0,
            is_failing: false,
        };
        let (queue, receiver) = sync_channel(WAITING_MAX);
        let thread = Builder::new()
            .name("recorder".into())
            .spawn(move || writer.run(&receiver))?;
        Ok(Self {
            queue,
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Has an access recorded, or dropped if too many wait.
    pub fn note(&self, access: Access) {
        if self.queue.try_send(Message::Access(access)).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has all that was noted written. Says whether that came about soon.
    pub fn flush(&self) -> bool {
        let (done, is_done) = sync_channel(1);
        for _ in 0..FLUSH_TRIES {
            match self.queue.try_send(Message::Flush(done.clone())) {
                Ok(()) => return is_done.recv_timeout(FLUSH_PAUSE * FLUSH_TRIES).is_ok(),
                Err(TrySendError::Full(_)) => std::thread::sleep(FLUSH_PAUSE),
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        false
    }

    /// Returns what became of the recording so far.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            recorded: of(&self.shared.recorded),
            dropped: of(&self.shared.dropped),
            bytes: of(&self.shared.bytes),
        }
    }

    /// Writes all that was noted and closes the record, so long after its beginning. What is noted later is dropped.
    pub fn finish(&self, at: Duration) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = self.queue.send(Message::Finish(at));
            // A panic was told by the thread; the record ends before it.
            let _ = thread.join();
        }
    }
}

/// A file that was named.
struct Known {
    number: u64,
    serial: Option<u64>,
    path: Vec<u8>,
    /// Tells when it was asked for.
    asked: Duration,
}

struct Writer<N> {
    file: File,
    names: N,
    on_error: Box<dyn Fn(io::Error) + Send>,
    shared: Arc<Shared>,
    block: Block,
    /// Tells when the first access of the block came.
    begun: Duration,
    /// Tells how many were dropped that the record tells of, with the block and without.
    dropped_told: u64,
    dropped_written: u64,
    files: HashMap<u64, Known>,
    processes: HashSet<u32>,
    next_number: u64,
    /// Next number, as who reads the record will see it.
    next_number_written: u64,
    is_failing: bool,
}

impl<N: Names> Writer<N> {
    fn run(mut self, queue: &Receiver<Message>) {
        loop {
            let mut message = match queue.recv_timeout(AGE_MAX) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => {
                    self.flush();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            };
            while let Some(next) = message {
                if self.handle(next).is_break() {
                    return;
                }
                message = queue.try_recv().ok();
            }
            // Those who would have to wake this thread for each access are held up by that.
            std::thread::sleep(GATHERING);
        }
    }

    fn handle(&mut self, message: Message) -> ControlFlow<()> {
        match message {
            Message::Access(access) => self.access(access),
            Message::Flush(done) => {
                self.name_again();
                self.flush();
                // Whoever waited may have left.
                let _ = done.try_send(());
            }
            Message::Finish(at) => {
                self.name_again();
                self.tell_dropped();
                self.block.end(at);
                self.write();
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn access(&mut self, access: Access) {
        if self.block.accesses == 0 {
            self.begun = access.at;
        }
        let file = self.number(access.file, access.at);
        self.name_process(access.pid);
        self.block.access(&Access { file, ..access });
        let is_old = access.at.saturating_sub(self.begun) >= AGE_MAX;
        if is_old || self.block.len() >= BLOCK_BYTES {
            self.flush();
        }
    }

    /// The number of a file, which is named if that is new.
    fn number(&mut self, ino: u64, at: Duration) -> u64 {
        let serial = self.names.serial(ino);
        if let Some(known) = self.files.get_mut(&ino) {
            let is_the_same = serial.is_none() || serial == known.serial;
            let is_fresh = at.saturating_sub(known.asked) < AGE_MAX;
            if is_the_same && (is_fresh || serial.is_none()) {
                return known.number;
            }
            known.asked = at;
            let path = self.names.path(ino).unwrap_or_default();
            // A name at the same place is as good as the same file: nobody can tell.
            if is_the_same || path == known.path {
                known.serial = serial;
                if !path.is_empty() && path != known.path {
                    self.block.file(known.number, ino, &path);
                    known.path = path;
                }
                return known.number;
            }
            return self.add(ino, serial, path, at);
        }
        let path = self.names.path(ino).unwrap_or_default();
        self.add(ino, serial, path, at)
    }

    fn add(&mut self, ino: u64, serial: Option<u64>, path: Vec<u8>, at: Duration) -> u64 {
        if self.files.len() >= REMEMBERED_MAX {
            self.files.clear();
        }
        let number = self.next_number;
        self.next_number += 1;
        self.block.file(number, ino, &path);
        let known = Known {
            number,
            serial,
            path,
            asked: at,
        };
        self.files.insert(ino, known);
        number
    }

    fn name_process(&mut self, pid: u32) {
        if pid == 0 || self.processes.contains(&pid) {
            return;
        }
        if self.processes.len() >= REMEMBERED_MAX {
            self.processes.clear();
        }
        self.processes.insert(pid);
        if let Some(name) = self.names.process(pid) {
            self.block.process(pid, &name);
        }
    }

    /// Tells the names of all files that have another one by now.
    fn name_again(&mut self) {
        let mut changed = Vec::new();
        for (&ino, known) in &mut self.files {
            let serial = self.names.serial(ino);
            if serial.is_none() || serial != known.serial {
                continue;
            }
            let path = self.names.path(ino).filter(|path| *path != known.path);
            if let Some(path) = path {
                known.path.clone_from(&path);
                changed.push((known.number, ino, path));
            }
        }
        for (number, ino, path) in changed {
            // A lost block takes the numbers along.
            if number < self.next_number {
                self.block.file(number, ino, &path);
            }
            if self.block.len() >= BLOCK_BYTES {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        self.tell_dropped();
        if !self.block.is_empty() {
            self.write();
        }
    }

    fn tell_dropped(&mut self) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if dropped > self.dropped_told {
            self.block.dropped(dropped - self.dropped_told);
            self.dropped_told = dropped;
        }
    }

    fn write(&mut self) {
        let block = self.block.finish();
        let end = self.shared.bytes.load(Ordering::Relaxed);
        match self.file.write_all_at(block.as_bytes(), end) {
            Ok(()) => {
                self.shared
                    .bytes
                    .fetch_add(block.len() as u64, Ordering::Relaxed);
                self.shared
                    .recorded
                    .fetch_add(block.accesses, Ordering::Relaxed);
                self.dropped_written = self.dropped_told;
                self.next_number_written = self.next_number;
                self.is_failing = false;
            }
            Err(error) => self.give_up(&block, end, error),
        }
    }

    /// Forgets a block that could not be written, and what was named in it.
    fn give_up(&mut self, block: &Block, end: u64, error: io::Error) {
        // If even that fails, the next block that can be written covers what is there too much.
        let _ = self.file.set_len(end);
        self.shared
            .dropped
            .fetch_add(block.accesses, Ordering::Relaxed);
        self.files.clear();
        self.processes.clear();
        self.dropped_told = self.dropped_written;
        self.next_number = self.next_number_written;
        if !std::mem::replace(&mut self.is_failing, true) {
            (self.on_error)(error);
        }
    }
}

// What a block takes at the most stays far below what one may hold.
const _: () = assert!(BLOCK_BYTES + 2 * NAME_LEN_MAX < 1 << 20);

#[cfg(test)]
mod tests;
