//! `anteros log mount`

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anteros_core::{FileSystem, FsResult, parse_size};
use anteros_fuse::MountOptions;
use anteros_log::{Codec, Log, Mode, Options, Order, Policy, system_clock};
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::open;
use crate::args::{RequestArgs, seconds};
use crate::daemon::arguments::DaemonArgs;
use crate::daemon::faults::{Faults, asked_once};
use crate::daemon::idle::{Idle, Limits};
use crate::daemon::launches::{self, KEEP_EVERY, LaunchFile, SAVE_EVERY};
use crate::daemon::log::LogDaemon;
use crate::daemon::scrub::Scrubber;
use crate::daemon::workers::Workers;
use crate::daemon::{self, background, recording};
use crate::failure::{Failure, Kind, Outcome};
use crate::options::{self, CommonOption, CommonOptions};
use crate::output;

/// Interval at which a log is looked after.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// Most memory for what is read ahead, if nothing is said.
const PREFETCH_MOST: u64 = 4 << 20;

/// Mount a log
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or block device
    device: PathBuf,

    /// Mount point
    directory: PathBuf,

    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,

    /// Change nothing: for reading alone, also where the device or the file system that it lies on is full or fails
    #[arg(long)]
    read_only: bool,

    /// Let other users in (root always does)
    #[arg(long)]
    allow_other: bool,

    #[command(flatten)]
    requests: RequestArgs,

    /// Most memory for content that waits to be written, nodes and directories (K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_size)]
    memory: u64,

    /// Most memory for what is read of compressed executables before anyone asks for it; 0: nothing is; without, 4M, or a quarter
    /// of --memory if that is less (K, M, G)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    prefetch: Option<u64>,

    /// Most bytes that the kernel reads ahead of any file; without, it reads what it likes, but for a page of programs that were
    /// compressed after launches (K, M, G)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    readahead: Option<u64>,

    /// With an fsync: which goes first
    #[arg(long, value_enum, value_name = "WHICH", default_value = "together")]
    order: First,

    /// Allocation mode: adaptive (free segments, and holes of others where the device is nearly full), lfs (free segments
    /// alone) or threaded (holes first); also as -o mode=NAME
    #[arg(long, value_name = "NAME", default_value = "adaptive", value_parser = among(Mode::ALL))]
    mode: Mode,

    /// Compression policy for content as it is written; also as -o policy=NAME
    #[arg(long, value_name = "NAME", default_value = "record", value_parser = among(Policy::ALL))]
    policy: Policy,

    /// Compress what is written in small pieces and hardly read as if it were a database, whatever it is called
    #[arg(long)]
    learn: bool,

    /// By what it is compressed as it is written; also as -o codec=NAME
    #[arg(long, value_name = "NAME", default_value = "lz4", value_parser = among(Codec::ALL))]
    codec: Codec,

    /// By what executables are compressed in the background; where launches are recorded, what these read, and all else by zstd.
    /// Also as -o background-codec=NAME
    #[arg(long, value_name = "NAME", default_value = "lz4", value_parser = among(Codec::ALL))]
    background_codec: Codec,

    /// Have the kernel keep what is written and hand it over later, in large pieces: fast where programs write little at a
    /// time. A full log is then told when a file is closed or synced; also as -o writeback
    #[arg(long)]
    writeback: bool,

    /// Offer no atomic writes: databases that know how to use them keep journals
    #[arg(long)]
    no_atomic_writes: bool,

    /// As mount(8) takes it: ro, nosuid (the default) or suid, nodev (the default) or dev, noexec, noatime, allow_other, …; also
    /// writeback, mode=NAME, policy=NAME, codec=NAME and background-codec=NAME, which count for more than the options of these names
    #[arg(short, value_name = "OPTION,...", value_delimiter = ',', value_parser = choice)]
    options: Vec<Choice>,

    /// For how many seconds changes may wait for a checkpoint
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, allow_negative_numbers = true)]
    checkpoint: u32,

    /// Read everything once in so many days, while nobody uses the log, and tell of what is not as it was written; 0: do not
    #[arg(long, value_name = "DAYS", default_value = "30", value_parser = clap::value_parser!(u32).range(..=3650))]
    scrub: u32,

    /// When nobody has used the log for so long, compress in the background what nobody has changed for ten times as long; with 0,
    /// all and at once
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, allow_negative_numbers = true)]
    idle_after: u32,

    /// Processor time for that, in an hour at most; 0: do not
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds, allow_negative_numbers = true)]
    idle_cpu: u32,

    /// Content to read and write for that, in an hour at most; 0: do not (K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = parse_size)]
    idle_bytes: u64,

    /// Do that also while the machine runs on its battery
    #[arg(long)]
    idle_on_battery: bool,

    /// Record nothing of what programs read when they start, and forget what earlier mounts recorded
    #[arg(long, conflicts_with_all = ["launches", "rounds"])]
    unrecorded: bool,

    /// Record in this file what is read when programs start, for `anteros log launches`; nothing is read ahead
    #[arg(long, value_name = "FILE")]
    launches: Option<PathBuf>,

    /// With --launches: how many launches of a file have to read the same until no more are recorded; as many as so far, or 5
    #[arg(long, value_name = "COUNT", requires = "launches", value_parser = clap::value_parser!(u8).range(1..))]
    rounds: Option<u8>,

    /// Let go of all that is clean after each operation, for tests
    #[arg(long, hide = true)]
    evicts_always: bool,

    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Order of data and records.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum First {
    /// Neither: they leave together, with checksums, and are flushed once
    Together,
    /// The data, which is flushed before the records name it
    Data,
}

/// Choices of `-o`.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Mode(Mode),
    Policy(Policy),
    Codec(Codec),
    BackgroundCodec(Codec),
    Writeback,
    Common(CommonOption),
}

/// A parser of one of some names, which help and completions list.
fn among<T: Copy + Send + Sync + 'static, const COUNT: usize>(
    all: [(&'static str, T); COUNT],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(|(name, _)| name)).map(move |chosen| {
        let found = all.iter().find(|(name, _)| *name == chosen);
        found.expect("one of the possible values").1
    })
}

fn mode(name: &str) -> Result<Mode, String> {
    Mode::named(name).ok_or_else(|| unknown("mode", name, &Mode::ALL.map(|(name, _)| name)))
}

fn policy(name: &str) -> Result<Policy, String> {
    Policy::named(name).ok_or_else(|| unknown("policy", name, &Policy::ALL.map(|(name, _)| name)))
}

fn codec(name: &str) -> Result<Codec, String> {
    Codec::named(name).ok_or_else(|| unknown("codec", name, &Codec::ALL.map(|(name, _)| name)))
}

fn choice(word: &str) -> Result<Choice, String> {
    match word.split_once('=') {
        Some(("mode", name)) => mode(name).map(Choice::Mode),
        Some(("policy", name)) => policy(name).map(Choice::Policy),
        Some(("codec", name)) => codec(name).map(Choice::Codec),
        Some(("background-codec", name)) => codec(name).map(Choice::BackgroundCodec),
        _ if word == "writeback" => Ok(Choice::Writeback),
        _ => CommonOption::named(word)
            .map(Choice::Common)
            .ok_or_else(|| options::unknown(word, &OPTIONS)),
    }
}

/// Names that `-o` takes.
const OPTIONS: [&str; 5] = [
    "mode=NAME",
    "policy=NAME",
    "codec=NAME",
    "background-codec=NAME",
    "writeback",
];

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    format!("there is no {what} {name}; there are {}", known.join(", "))
}

impl Args {
    pub fn run(mut self) -> Outcome {
        self.choose();
        if self.device.is_dir() && !self.directory.is_dir() {
            let message = format!("{}: is a directory, not a log", self.device.display());
            let hint = "the log comes first: anteros log mount LOG DIRECTORY";
            return Err(Failure::new(Kind::Usage, message).hint(hint));
        }
        self.daemon.check_free(&self.directory)?;
        if self.foreground || self.daemon.detach {
            self.serve()
        } else {
            background::start(&self.device, None)
        }
    }

    /// Takes over what `-o` says.
    fn choose(&mut self) {
        for choice in &self.options {
            match *choice {
                Choice::Mode(mode) => self.mode = mode,
                Choice::Policy(policy) => self.policy = policy,
                Choice::Codec(codec) => self.codec = codec,
                Choice::BackgroundCodec(codec) => self.background_codec = codec,
                Choice::Writeback => self.writeback = true,
                Choice::Common(_) => {}
            }
        }
    }

    /// Returns what else `-o` asks for.
    fn common_options(&self) -> CommonOptions {
        let words = self.options.iter().filter_map(|choice| match choice {
            Choice::Common(word) => Some(*word),
            _ => None,
        });
        CommonOptions::of(words.chain(self.read_only.then_some(CommonOption::ReadOnly(true))))
    }

    fn prefetch(&self) -> u64 {
        self.prefetch.unwrap_or(PREFETCH_MOST.min(self.memory / 4))
    }

    fn log_options(&self, read_only: bool) -> Options {
        Options {
            memory_bytes: usize::try_from(self.memory).unwrap_or(usize::MAX),
            order: match self.order {
                First::Together => Order::Together,
                First::Data => Order::DataFirst,
            },
            checkpoint_interval: Duration::from_secs(self.checkpoint.into()),
            mode: self.mode,
            policy: self.policy,
            learns: self.learn,
            codec: self.codec,
            background_codec: self.background_codec,
            atomic_writes: !self.no_atomic_writes,
            prefetch_bytes: usize::try_from(self.prefetch()).unwrap_or(usize::MAX),
            writes_behind: true,
            evicts_always: self.evicts_always,
            read_only,
            ..Options::new(system_clock)
        }
    }

    fn limits(&self) -> Limits {
        let seconds = |count: u32| Duration::from_secs(count.into());
        Limits {
            after: seconds(self.idle_after),
            processor: seconds(self.idle_cpu),
            bytes: self.idle_bytes,
            on_battery: self.idle_on_battery,
        }
    }

    fn mount_options(&self) -> MountOptions {
        let defaults = self.requests.options();
        MountOptions {
            fs_name: self.device.display().to_string(),
            subtype: "anteros-log".into(),
            allow_other: self.allow_other || defaults.allow_other,
            default_permissions: true,
            readahead: match self.launches {
                Some(_) => Some(0),
                None => self
                    .readahead
                    .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            },
            passthrough: false,
            write_back: self.writeback,
            ..defaults
        }
    }

    /// Has a log record launches for itself, unless that is not wanted, or a file is to have them.
    fn remember(&self, log: &Log) -> FsResult<()> {
        match self.unrecorded {
            _ if log.is_read_only() || self.launches.is_some() => Ok(()),
            true => log.forget_launches(),
            false if log.compresses() => log.remember_launches(),
            false => Ok(()),
        }
    }

    fn serve(&self) -> Outcome {
        // Blocks come and go by the thousand; what the heap keeps of them would be more than they are.
        anteros_codec::keep_heap_small();
        if let Some(path) = &self.launches {
            check_place(path, &self.directory)?;
            launches::found(path)?;
        }
        let mut common_options = self.common_options();
        let device = match common_options.is_read_only() {
            true => open::unchanging(&self.device)?,
            false => open::to_write(&self.device)?,
        };
        let options = self.log_options(common_options.is_read_only());
        let log = Log::open_as_possible(device, options)
            .map_err(|error| open::failure(self.device.display(), &error))?;
        if log.is_read_only() {
            common_options.read_only = Some(true);
            let warnings = log.take_warnings();
            warnings
                .iter()
                .for_each(|text| output::complain("warning", text));
        }
        let log = Arc::new(log);
        let launches = self.launches.as_deref();
        let launches = launches.map(|path| LaunchFile::begin(path, &log, self.rounds));
        let launches = match launches.transpose() {
            Ok(launches) => Arc::new(launches),
            Err(failure) => {
                let _ = log.close();
                return Err(failure);
            }
        };
        let options = common_options.apply(self.mount_options());
        let fs: Arc<dyn FileSystem> = log.clone();
        let (session, signals) = daemon::mount(fs, &self.directory, &options)?;
        let writes_back = session.writes_back();
        let faults: Arc<Faults> = Arc::default();
        let named = Arc::downgrade(&log);
        let path_of = asked_once(move |ino| {
            let path = named.upgrade()?.path_of(ino)?;
            Some(format!("{:?}", String::from_utf8_lossy(&path)))
        });
        let session = session.on_fault(faults.clone().listen(path_of));
        let watch = LogDaemon::new(
            log.clone(),
            faults.clone(),
            self.memory,
            Workers::of(&session),
        );
        let session = watch.clone().listen(session);
        log.on_abort(daemon::log::forgetter(session.notifier()).map_err(Failure::os)?);
        // What is recorded is what programs ask for. And what is given must not take the place of what the kernel keeps.
        if self.prefetch() > 0 && self.launches.is_none() && !writes_back {
            let notifier = session.notifier();
            let store = move |ino, offset, data: &[u8]| notifier.store(ino, offset, data).is_ok();
            log.prefetch(store).map_err(Failure::os)?;
        }
        if let Err(error) = self.remember(&log) {
            faults.note(format!("the record of launches: {error}"));
        }
        let idle = Idle::begin(&log, &watch, &faults, self.limits()).map_err(Failure::os)?;
        let compressing = Compressing::begin(&log).map_err(Failure::os)?;
        let (stop, stopped) = channel::<()>();
        let keeper = std::thread::spawn({
            let (log, faults, launches) = (log.clone(), faults.clone(), launches.clone());
            let watch = watch.clone();
            let scrubber = Scrubber::new(&log, self.scrub);
            move || {
                keep(
                    &log,
                    &watch,
                    &faults,
                    (*launches).as_ref(),
                    scrubber,
                    &stopped,
                )
            }
        });
        let served = daemon::run(session, signals, faults.clone(), || {
            self.daemon.stands(&faults)
        });
        drop(stop);
        let _ = keeper.join();
        compressing.into_iter().for_each(Compressing::end);
        idle.into_iter().for_each(Idle::end);
        watch.finish();
        launches.iter().for_each(|file| file.save(&log, &faults));
        // A log that fails says so when it is closed; one that is full keeps the older record.
        let _ = log.keep_launches();
        log.close().map_err(|error| {
            let message = format!("{}: {error}", self.device.display());
            if self.daemon.detach {
                faults.tell(format!("not all was written: {message}"));
            }
            Failure::new(Kind::System, message)
        })?;
        served
    }
}

/// Thread that compresses what is written, before it leaves for the device.
struct Compressing {
    log: Arc<Log>,
    thread: JoinHandle<()>,
}

impl Compressing {
    fn begin(log: &Arc<Log>) -> io::Result<Option<Self>> {
        if log.is_read_only() || !log.compresses() {
            return Ok(None);
        }
        let thread = std::thread::Builder::new().name("compressor".into());
        let thread = thread.spawn({
            let log = log.clone();
            move || log.compress_behind()
        })?;
        let log = log.clone();
        Ok(Some(Self { log, thread }))
    }

    fn end(self) {
        self.log.end_compressing();
        let _ = self.thread.join();
    }
}

/// Refuses a record that the mount would hide.
fn check_place(path: &Path, directory: &Path) -> Result<(), Failure> {
    let directory = directory
        .canonicalize()
        .map_err(|error| Failure::system(directory, &error))?;
    recording::check_place(path, &directory)
}

/// Has a log do what is due, until it is told to stop; and tells, once, what went wrong, and why it cannot go on.
fn keep(
    log: &Log,
    watch: &LogDaemon,
    faults: &Faults,
    launches: Option<&LaunchFile>,
    mut scrubber: Scrubber,
    stopped: &Receiver<()>,
) {
    let mut saved = Instant::now();
    while stopped.recv_timeout(TEND_EVERY) == Err(RecvTimeoutError::Timeout) {
        let every = if launches.is_some() {
            SAVE_EVERY
        } else {
            KEEP_EVERY
        };
        if saved.elapsed() >= every {
            launches.iter().for_each(|file| file.save(log, faults));
            let _ = log.keep_launches();
            saved = Instant::now();
        }
        let tended = log.tend();
        scrubber.tend(log, faults, watch.answers(), TEND_EVERY.as_secs_f64());
        log.take_warnings()
            .into_iter()
            .for_each(|warning| faults.note(warning));
        if tended.is_err() && watch.note_failure().is_some() {
            return;
        }
    }
}
