//! Metrics and controls of a daemon that mirrors a directory.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use anteros_buffer::{Buffered, Flushes, Statistics, Unreported};
use anteros_core::{FileSystem, FsError, Ino, unpoisoned};
use anteros_fuse::{Answered, AttributeOrder, AttributeRequest, Loan};
use anteros_passthru::HostFs;
use anteros_trace::Names;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::controls::{FILE_ATTRIBUTE, MIRROR_WRITING as WRITING, WRITE_ALL};
use super::exposition::{ATTRIBUTE, Exposition};
use super::faults::Faults;
use super::latencies::Latencies;
use super::recording::{self, Recording};
use super::workers::Workers;

/// A mirrored directory, through a buffer or not.
#[derive(Clone)]
pub enum Mirror {
    Plain(Arc<HostFs>),
    Buffered(Arc<Buffered<HostFs>>),
}

/// Data path of files, and the reason.
pub struct Serving {
    pub way: &'static str,
    pub why: String,
}

/// Terms of the mount.
pub struct Terms {
    pub workers: Workers,
    /// Names of gauges, and values.
    pub options: Vec<(&'static str, f64)>,
}

/// Observer of a mirrored directory.
pub struct MirrorDaemon {
    started: Instant,
    mirror: Mirror,
    serving: Serving,
    terms: Terms,
    latencies: Latencies,
    faults: Arc<Faults>,
    recording: Option<Recording>,
    /// Says of an error that nobody was told of what it means.
    lost: Box<dyn Fn(&Unreported) -> String + Send + Sync>,
    /// Its last answer when all was to be written.
    unwritten: Mutex<String>,
}

impl Mirror {
    /// File system to mount.
    pub fn fs(&self) -> Arc<dyn FileSystem> {
        match self {
            Self::Plain(host) => host.clone(),
            Self::Buffered(buffered) => buffered.clone(),
        }
    }

    /// The directory of the host.
    pub fn host(&self) -> &HostFs {
        match self {
            Self::Plain(host) => host,
            Self::Buffered(buffered) => buffered.inner(),
        }
    }

    /// Writes all that is buffered, and says what could not be written without anybody's being told.
    fn write_all(&self) -> Vec<Unreported> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Buffered(buffered) => buffered.write_all(),
        }
    }

    fn buffer(&self) -> Option<Statistics> {
        match self {
            Self::Plain(_) => None,
            Self::Buffered(buffered) => Some(buffered.statistics()),
        }
    }
}

impl Names for Mirror {
    fn serial(&mut self, ino: u64) -> Option<u64> {
        self.host().serial_of(Ino(ino))
    }

    fn path(&mut self, ino: u64) -> Option<Vec<u8>> {
        self.host().path_of(Ino(ino))
    }

    fn process(&mut self, pid: u32) -> Option<Vec<u8>> {
        recording::process(pid)
    }
}

impl Serving {
    /// A way that was asked for.
    pub fn as_asked(way: &'static str) -> Self {
        Self {
            way,
            why: format!("asked for by --data {way}"),
        }
    }

    /// Data path of a single file, and the reason.
    fn of_file(&self, loan: Loan) -> (&str, String) {
        let daemon = |why: &str| ("daemon", why.to_owned());
        match loan {
            Loan::Never => (self.way, self.why.clone()),
            Loan::Lent => ("kernel", "the kernel has the file behind it".into()),
            Loan::NotOpen => (
                "undecided",
                "nobody has it open; it is decided when it is opened".into(),
            ),
            Loan::NoFile => daemon("there is no file behind it that can be given to the kernel"),
            Loan::Refused(Errno::LOOP) => daemon(
                "the kernel refuses the file behind it, which lies on a file system that lies on another itself \
                 (overlay, or another mirror)",
            ),
            Loan::Refused(errno) => {
                daemon(&format!("the kernel refuses the file behind it: {errno}"))
            }
        }
    }
}

impl MirrorDaemon {
    /// Creates the observer of a mirror that is mounted now.
    pub fn new(
        mirror: Mirror,
        serving: Serving,
        terms: Terms,
        faults: Arc<Faults>,
        recording: Option<Recording>,
        lost: impl Fn(&Unreported) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            lost: Box::new(lost),
            unwritten: Mutex::default(),
            started: Instant::now(),
            mirror,
            serving,
            terms,
            latencies: Latencies::default(),
            faults,
            recording,
        }
    }

    /// Notes an answer.
    pub fn answered(&self, answered: &Answered) {
        self.latencies.note(answered);
        if let Some(recording) = &self.recording {
            recording.note(answered);
        }
    }

    /// Attributes of the mount, and of a file.
    pub fn attribute(&self, asked: &AttributeRequest<'_>) -> Option<Vec<u8>> {
        let is_root = asked.ino == self.mirror.host().root();
        let is = |name: &str| asked.name == name.as_bytes();
        if is_root && is(ATTRIBUTE) {
            return Some(self.text(asked.uid).into_bytes());
        }
        if is_root && is(WRITING) {
            return Some(self.unwritten().clone().into_bytes());
        }
        if is_root && is(recording::ATTRIBUTE) {
            return self.recording.as_ref().map(Recording::told);
        }
        let (way, why) = is(FILE_ATTRIBUTE).then(|| self.serving.of_file(asked.loan))?;
        Some(format!("{way}\n{why}").into_bytes())
    }

    /// Takes an order, if it is one.
    pub fn order(&self, order: &AttributeOrder<'_>) -> Option<Result<(), Errno>> {
        if order.ino != self.mirror.host().root() || order.name != WRITING.as_bytes() {
            return None;
        }
        let may = order.uid == 0 || order.uid == geteuid().as_raw();
        Some(match may {
            true if order.value == WRITE_ALL => self.write_all(),
            true => Err(Errno::INVAL),
            false => Err(Errno::PERM),
        })
    }

    fn write_all(&self) -> Result<(), Errno> {
        let lost = self.mirror.write_all();
        let said: Vec<String> = lost.iter().map(&self.lost).collect();
        self.unwritten().clear();
        let (Some(text), Some(first)) = (said.first(), lost.first()) else {
            return Ok(());
        };
        *self.unwritten() = match said.len() {
            1 => text.clone(),
            count => format!("{text}, and {} files more", count - 1),
        };
        said.into_iter().for_each(|text| self.faults.note(text));
        Err(match &first.error {
            FsError::Host(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
            _ => Errno::IO,
        })
    }

    fn unwritten(&self) -> MutexGuard<'_, String> {
        unpoisoned(self.unwritten.lock())
    }

    /// Nothing more is answered.
    pub fn finish(&self) {
        self.recording.iter().for_each(Recording::finish);
    }

    fn text(&self, uid: u32) -> String {
        let mut text = Exposition::default();
        let Serving { way, why } = &self.serving;
        text.info("mirror_info", &[("way", way), ("why", why)]);
        text.gauge("up_seconds", self.started.elapsed().as_secs_f64());
        self.terms.workers.tell(&mut text);
        for (name, value) in &self.terms.options {
            text.gauge(name, *value);
        }
        text.process();
        let held = self.mirror.host().held();
        text.gauge("known_inodes", held.inodes as f64);
        text.gauge("open_files", held.files as f64);
        text.gauge("open_directories", held.directories as f64);
        text.counter("faults", self.faults.count());
        if let Some(statistics) = self.mirror.buffer() {
            count_buffer(&mut text, &statistics);
        }
        if let Some(recording) = &self.recording {
            recording.count(&mut text);
        }
        text.latencies(&self.latencies);
        text.finish(&self.faults, uid)
    }
}

fn count_buffer(text: &mut Exposition, statistics: &Statistics) {
    let Statistics {
        writes_in,
        bytes_in,
        writes_out,
        bytes_out,
        writes_through,
        flushes,
        waits,
        buffered_bytes,
        buffered_bytes_peak,
        memory_bytes,
        memory_bytes_peak,
        errors,
        bytes_lost,
        errors_unreported,
    } = *statistics;
    for (name, value) in [
        ("buffered_bytes", buffered_bytes),
        ("buffered_peak_bytes", buffered_bytes_peak),
        ("buffer_bytes", memory_bytes),
        ("buffer_peak_bytes", memory_bytes_peak),
    ] {
        text.gauge(name, value as f64);
    }
    for (name, value) in [
        ("buffer_writes_in", writes_in),
        ("buffer_bytes_in", bytes_in),
        ("buffer_writes_out", writes_out),
        ("buffer_bytes_out", bytes_out),
        ("buffer_writes_through", writes_through),
        ("buffer_waits", waits),
        ("buffer_errors", errors),
        ("buffer_lost_bytes", bytes_lost),
        ("buffer_unreported_errors", errors_unreported),
    ] {
        text.counter(name, value);
    }
    let reasons = reasons(&flushes).map(|(reason, count)| ([("reason", reason)], count));
    let reasons = reasons
        .each_ref()
        .map(|(labels, count)| (labels.as_slice(), *count as f64));
    text.counters("buffer_flushes", &reasons);
}

fn reasons(flushes: &Flushes) -> [(&'static str, u64); 11] {
    let Flushes {
        interval,
        depth,
        full,
        room,
        sync,
        close,
        read,
        attributes,
        change,
        through,
        shutdown,
    } = *flushes;
    [
        ("interval", interval),
        ("depth", depth),
        ("full", full),
        ("room", room),
        ("sync", sync),
        ("close", close),
        ("read", read),
        ("attributes", attributes),
        ("change", change),
        ("through", through),
        ("shutdown", shutdown),
    ]
}
