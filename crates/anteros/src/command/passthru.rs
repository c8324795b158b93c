//! `anteros passthru`
//!
//! A directory is seen a second time, through FUSE. Where the kernel offers passthrough, it reads and
//! writes the files behind open ones by itself; everything else comes to the daemon. What is written may be
//! gathered before, by the kernel or by the daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anteros_buffer::{BUFFER_BYTES_MIN, Buffered, Form, ROOM_BYTES_MIN, Unreported};
use anteros_core::{Ino, parse_size};
use anteros_fuse::{MountOptions, Notifier, Passthrough, Session, request_len_limit};
use anteros_passthru::{HostFs, Options, Shrinker};
use rustix::io::Errno;

use crate::args::{RequestArgs, seconds};
use crate::daemon::arguments::DaemonArgs;
use crate::daemon::faults::{self, Faults};
use crate::daemon::mirror::{Mirror, MirrorDaemon, Serving, Terms};
use crate::daemon::recording::Recording;
use crate::daemon::workers::Workers;
use crate::daemon::{self, background};
use crate::failure::{Failure, Kind, Outcome};
use crate::options::OptionArgs;
use crate::output;

/// Mirror a directory through FUSE, for reading and writing
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory to mirror
    source: PathBuf,

    /// Mount point
    directory: PathBuf,

    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,

    /// Let other users in (root always does)
    #[arg(long)]
    allow_other: bool,

    #[command(flatten)]
    options: OptionArgs,

    #[command(flatten)]
    requests: RequestArgs,

    /// The largest read or write that the kernel asks for at once, from 4K to 1M; more if fs.fuse.max_pages_limit allows (K, M)
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = unit)]
    unit: usize,

    /// Data path of file content
    #[arg(long, value_enum, value_name = "WHO", default_value = "auto")]
    data: Data,

    /// With a buffer: most memory that it takes (K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = buffer)]
    buffer: u64,

    /// With a buffer: up to how much is gathered for one write (K, M)
    #[arg(long, value_name = "BYTES", default_value = "2M", value_parser = region)]
    region: u64,

    /// With a buffer: the longest that data stays there, in milliseconds
    #[arg(long, value_name = "MS", default_value = "10")]
    interval: u64,

    /// With a buffer: no thread flushes, writers do it themselves when there is enough
    #[arg(long)]
    flush_by_writers: bool,

    /// For how many seconds names and attributes are believed without looking again; 0: look each time
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, allow_negative_numbers = true)]
    timeout: u32,

    /// Record every read, write and fsync in this file, for `anteros trace`; the kernel's passthrough is not used then
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Data path of file content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Data {
    /// The kernel: by itself where it offers to (passthrough: Linux 6.9, root), else as with `cache`
    Auto,
    /// The daemon, from the kernel, which keeps what is written and hands it over later (write-back cache)
    Cache,
    /// The daemon, as it comes
    Daemon,
    /// The daemon, through a buffer with a queue for each file
    Buffer,
    /// The daemon, through a buffer of fixed entries, as in the bFUSE paper
    Entries,
}

impl Args {
    pub fn run(self) -> Outcome {
        let source = directory(&self.source)?;
        let target = directory(&self.directory)?;
        self.daemon.check_free(&self.directory)?;
        if target != source && target.starts_with(&source) {
            let message = format!(
                "{}: lies in {}, so the mount would be a part of what it shows",
                self.directory.display(),
                self.source.display()
            );
            return Err(Failure::new(Kind::Usage, message).hint("mount it elsewhere"));
        }
        let limit = request_len_limit();
        if self.unit > limit {
            let limit = output::bytes(limit as u64);
            let message = format!("--unit: the kernel is set to send {limit} at once");
            let hint = "root can raise the sysctl fs.fuse.max_pages_limit, which counts pages";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        if let Some(path) = &self.trace {
            daemon::recording::check_place(path, &target)?;
        }
        if self.foreground || self.daemon.detach {
            self.serve(&source)
        } else {
            background::start(&self.source, None)
        }
    }

    fn serve(&self, source: &Path) -> Outcome {
        // Buffers come and go in many sizes; what the heap keeps of them would be as much as the buffer.
        anteros_codec::keep_heap_small();
        let options = Options {
            trusted_for: Duration::from_secs(self.timeout.into()),
        };
        let host =
            HostFs::with_options(source, options).map_err(|e| Failure::system(source, &e))?;
        let shrinker = host.shrinker();
        let form = match self.data {
            Data::Auto | Data::Cache | Data::Daemon => {
                let mirror = Mirror::Plain(Arc::new(host));
                return self.mount(source, mirror, shrinker, &Arc::default());
            }
            Data::Buffer => Form::Queues,
            Data::Entries => Form::Entries,
        };
        let options = anteros_buffer::Options {
            form,
            bytes_max: usize::try_from(self.buffer).unwrap_or(usize::MAX),
            region_bytes: usize::try_from(self.region).unwrap_or(usize::MAX),
            interval: Duration::from_millis(self.interval),
            threaded: !self.flush_by_writers,
            // As in the paper: there, all goes through the entries.
            passes_first: form == Form::Queues,
        };
        let buffered = Arc::new(Buffered::new(host, options).map_err(Failure::os)?);
        buffered.name_by(HostFs::path_of_open);
        let faults = Arc::default();
        let mirror = Mirror::Buffered(buffered.clone());
        let served = self.mount(source, mirror.clone(), shrinker, &faults);
        for error in buffered.shutdown() {
            faults.note(lost(&mirror, source, &error));
        }
        served
    }

    fn mount(
        &self,
        source: &Path,
        mirror: Mirror,
        shrinker: Option<Shrinker>,
        faults: &Arc<Faults>,
    ) -> Outcome {
        let recording = self.record(mirror.clone(), faults.clone())?;
        let defaults = self.requests.options();
        let options = MountOptions {
            fs_name: source.display().to_string(),
            allow_other: self.allow_other || defaults.allow_other,
            default_permissions: true,
            read_len_max: self.unit,
            readahead: Some(self.unit),
            write_len_max: self.unit,
            passthrough: self.data == Data::Auto && self.trace.is_none(),
            write_back: match self.data {
                Data::Auto => self.trace.is_none(),
                data => data == Data::Cache,
            },
            ..defaults
        };
        let options = self.options.sum().apply(options);
        let (session, signals) = daemon::mount(mirror.fs(), &self.directory, &options)?;
        if let Some(shrinker) = shrinker {
            thin_out(shrinker, session.notifier());
        }
        if let Some(recording) = &recording {
            recording.catch_up_by(session.catch_up());
        }
        let serving = self.serving(&session);
        let terms = self.terms(Workers::of(&session));
        let (named, root) = (mirror.clone(), source.to_owned());
        let path_of = move |ino| path(&named, &root, ino);
        let (written, root) = (mirror.clone(), source.to_owned());
        let lost = move |error: &_| lost(&written, &root, error);
        let daemon = MirrorDaemon::new(mirror, serving, terms, faults.clone(), recording, lost);
        let daemon = Arc::new(daemon);
        let (watcher, teller, taker) = (daemon.clone(), daemon.clone(), daemon.clone());
        let session = session
            .on_fault(faults.clone().listen(path_of))
            .on_answer(move |answered| watcher.answered(answered))
            .on_attribute(move |asked| teller.attribute(asked))
            .on_order(move |order| taker.order(order));
        let served = daemon::run(session, signals, faults.clone(), || {
            self.daemon.stands(faults)
        });
        daemon.finish();
        served
    }

    /// Begins the record that was asked for.
    fn record(&self, mirror: Mirror, faults: Arc<Faults>) -> Result<Option<Recording>, Failure> {
        let Some(path) = &self.trace else {
            return Ok(None);
        };
        if self.data == Data::Auto {
            let text = "the daemon moves the content of files, for what the kernel reads and writes by itself \
                        cannot be recorded (--trace)";
            output::complain("note", text);
        }
        Recording::begin(path, mirror, faults).map(Some)
    }

    /// Data path, and the reason.
    fn serving(&self, session: &Session) -> Serving {
        // What there is where the kernel does not do it all.
        let other = match session.writes_back() {
            true => "cache",
            false => "daemon",
        };
        let (way, why) = match (self.data, session.passthrough()) {
            (Data::Cache, _) if session.writes_back() => return Serving::as_asked("cache"),
            (Data::Cache, _) => ("daemon", "the kernel offers no write-back cache".into()),
            (Data::Daemon, _) => return Serving::as_asked("daemon"),
            (Data::Buffer, _) => return Serving::as_asked("buffer"),
            (Data::Entries, _) => return Serving::as_asked("entries"),
            (Data::Auto, Passthrough::Taken) => {
                let why =
                    "it takes the files behind those that are opened; --data auto prefers that";
                ("kernel", why.into())
            }
            (Data::Auto, Passthrough::Unwanted) => {
                let why = "--trace records what the kernel would not tell of";
                ("daemon", why.into())
            }
            (Data::Auto, Passthrough::NotOffered) => {
                let why = "the kernel offers no passthrough (Linux 6.9 with CONFIG_FUSE_PASSTHROUGH does)";
                (other, why.into())
            }
            (Data::Auto, Passthrough::Refused(Errno::PERM)) => {
                let why = "the kernel refuses passthrough to who lacks CAP_SYS_ADMIN";
                (other, why.into())
            }
            (Data::Auto, Passthrough::Refused(errno)) => {
                (other, format!("the kernel refuses passthrough: {errno}"))
            }
        };
        Serving { way, why }
    }

    /// Options as `anteros stat` shows them.
    fn terms(&self, workers: Workers) -> Terms {
        let mut options = vec![
            ("unit_bytes", self.unit as f64),
            ("timeout_seconds", self.timeout.into()),
        ];
        if matches!(self.data, Data::Buffer | Data::Entries) {
            options.extend([
                ("buffer_max_bytes", self.buffer as f64),
                ("buffer_region_bytes", self.region as f64),
                ("buffer_interval_seconds", self.interval as f64 / 1e3),
            ]);
        }
        Terms { workers, options }
    }
}

/// Has the kernel forget files when too many are known, from a thread that serves nobody.
fn thin_out(shrinker: Shrinker, notifier: Notifier) {
    // Without the thread, there is a limit.
    let _ = std::thread::Builder::new()
        .name("shrinker".into())
        .spawn(move || {
            while shrinker.wait() {
                shrinker.thin(
                    |inodes| notifier.prune(inodes).is_ok(),
                    |name| {
                        // What the kernel knows by another name, or no more, it keeps or has forgotten.
                        let _ = notifier.drop_name(name.parent, &name.name);
                    },
                );
            }
        });
}

/// Path of a mirrored file, in words.
fn path(mirror: &Mirror, source: &Path, ino: Ino) -> Option<String> {
    Some(path_below(source, &mirror.host().path_of(ino)?))
}

fn path_below(source: &Path, path: &[u8]) -> String {
    output::name(&[source.as_os_str().as_encoded_bytes(), path].concat())
}

/// The message about data that could not be written.
fn lost(mirror: &Mirror, source: &Path, error: &Unreported) -> String {
    let named = error.path.as_ref().map(|path| path_below(source, path));
    let named = named.or_else(|| path(mirror, source, error.ino));
    let name = faults::name(error.ino, named);
    format!("{name}: not all was written: {}", error.error)
}

/// The absolute path of a directory.
fn directory(path: &Path) -> Result<PathBuf, Failure> {
    let absolute = path.canonicalize().map_err(|e| Failure::system(path, &e))?;
    match absolute.is_dir() {
        true => Ok(absolute),
        false => {
            let message = format!("{}: not a directory", path.display());
            Err(Failure::new(Kind::System, message))
        }
    }
}

fn buffer(text: &str) -> Result<u64, String> {
    at_least(BUFFER_BYTES_MIN, text)
}

fn region(text: &str) -> Result<u64, String> {
    at_least(ROOM_BYTES_MIN, text)
}

fn at_least(least: usize, text: &str) -> Result<u64, String> {
    match parse_size(text).map_err(|e| e.to_string())? {
        bytes if bytes < least as u64 => Err(format!("at least {}K is wanted", least >> 10)),
        bytes => Ok(bytes),
    }
}

fn unit(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    match usize::try_from(bytes) {
        Ok(bytes @ 0x1000..=0x100_0000) if bytes.is_power_of_two() => Ok(bytes),
        _ => Err(
            "a power of two from 4K to 1M is wanted, or up to 16M where the kernel is set to it"
                .into(),
        ),
    }
}
