//! Compression in the background while nobody uses a log, within a budget.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anteros_core::{FsError, processor_time};
use anteros_log::{Compacted, Log, Sweep};

use super::faults::Faults;
use super::log::LogDaemon;

const HOUR: Duration = Duration::from_secs(3600);

/// Intervals at which it is looked whether somebody uses the log: as a rule, and where that does not matter.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
const LOOKS_OFTEN: Duration = Duration::from_millis(100);

/// Interval at which it is looked what the machine gets its power from.
const POWER_EVERY: Duration = Duration::from_secs(30);

/// A file is compressed when nobody has changed it for so many times as long as nobody must have used the log.
const COLD: u32 = 10;
/// Rounds are apart by so many times as long.
const ROUNDS: u32 = 2;

/// Where Linux says of each supply of power what it does.
const SUPPLIES: &str = "/sys/class/power_supply";

const BLOCK: u64 = 4096;

/// Bounds of what is done while nobody uses a log.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time without a request, after which it begins; zero: it goes on beside requests.
    pub after: Duration,
    /// Processor time in an hour, at most.
    pub processor: Duration,
    /// Bytes of content that are read and written in an hour, at most.
    pub bytes: u64,
    /// Tells whether it is done on battery power as well.
    pub on_battery: bool,
}

/// Counts of what was done while nobody used a log.
#[derive(Debug, Default)]
pub struct Done {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    processor_nanos: AtomicU64,
    interruptions: AtomicU64,
}

impl Done {
    /// The counts, with their names.
    pub fn counters(&self) -> [(&'static str, f64); 4] {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        [
            ("log_idle_read_bytes", value(&self.read_bytes)),
            ("log_idle_written_bytes", value(&self.written_bytes)),
            (
                "log_idle_processor_seconds",
                value(&self.processor_nanos) / 1e9,
            ),
            ("log_idle_interruptions", value(&self.interruptions)),
        ]
    }

    fn add(&self, used: Used) {
        self.read_bytes.fetch_add(used.read, Ordering::Relaxed);
        self.written_bytes
            .fetch_add(used.written, Ordering::Relaxed);
        let nanos = u64::try_from(used.processor.as_nanos()).unwrap_or(u64::MAX);
        self.processor_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// What work has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    read: u64,
    written: u64,
    processor: Duration,
}

impl Used {
    /// What a sweep has used that began when its thread had had a processor for so long.
    fn of(done: &Compacted, begun: Duration) -> Self {
        Self {
            read: done.seen * BLOCK,
            written: done.bytes,
            processor: done.processor + processor_time().saturating_sub(begun),
        }
    }

    fn with(self, more: Self) -> Self {
        Self {
            read: self.read + more.read,
            written: self.written + more.written,
            processor: self.processor + more.processor,
        }
    }

    fn is_within(&self, limits: &Limits) -> bool {
        self.processor < limits.processor && self.read + self.written < limits.bytes
    }
}

/// Budget of an hour.
struct Hour {
    begun: Instant,
    used: Used,
    /// Tells whether nothing more is to be tried in it.
    is_over: bool,
}

impl Hour {
    fn new(begun: Instant) -> Self {
        Self {
            begun,
            used: Used::default(),
            is_over: false,
        }
    }

    /// Begins another one when it is time.
    fn renew(&mut self, now: Instant) {
        if now.duration_since(self.begun) >= HOUR {
            *self = Self::new(now);
        }
    }

    fn has_left(&self, limits: &Limits) -> bool {
        !self.is_over && self.used.is_within(limits)
    }
}

/// Tells when nobody has used a log for a while.
struct Rest {
    uses: u64,
    since: Instant,
}

impl Rest {
    /// Tells whether there was no use for so long, by how many there were up to now.
    fn is_long(&mut self, uses: u64, now: Instant, after: Duration) -> bool {
        if self.uses != uses {
            *self = Self { uses, since: now };
        }
        now.duration_since(self.since) >= after
    }
}

/// What the machine gets its power from, as it was looked up some seconds ago.
struct Power {
    looked: Option<Instant>,
    is_battery: bool,
}

impl Power {
    fn is_battery(&mut self) -> bool {
        if self.looked.is_none_or(|at| at.elapsed() >= POWER_EVERY) {
            self.is_battery = is_on_battery(Path::new(SUPPLIES));
            self.looked = Some(Instant::now());
        }
        self.is_battery
    }
}

/// Tells whether a battery of the machine is being discharged; not so where that is not known.
fn is_on_battery(supplies: &Path) -> bool {
    let supplies = fs::read_dir(supplies).into_iter().flatten().flatten();
    supplies.into_iter().any(|supply| {
        let says = |name: &str, value: &str| {
            let said = fs::read_to_string(supply.path().join(name));
            said.is_ok_and(|said| said.trim_end() == value)
        };
        // That of a mouse says that it is a device's.
        says("type", "Battery") && says("status", "Discharging") && !says("scope", "Device")
    })
}

/// The thread that does it.
pub struct Idle {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Idle {
    /// Begins the thread, unless the limits say that it has nothing to do, or nothing may be compressed.
    ///
    /// # Errors
    ///
    /// When no thread can be begun.
    pub fn begin(
        log: &Arc<Log>,
        watch: &Arc<LogDaemon>,
        faults: &Arc<Faults>,
        limits: Limits,
    ) -> io::Result<Option<Self>> {
        if !Used::default().is_within(&limits) || log.is_read_only() || !log.compresses() {
            return Ok(None);
        }
        let stops: Arc<AtomicBool> = Arc::default();
        let worker = Worker {
            log: log.clone(),
            watch: watch.clone(),
            faults: faults.clone(),
            limits,
            stops: stops.clone(),
        };
        let thread = thread::Builder::new().name("log-idle".into());
        let thread = thread.spawn(move || worker.run())?;
        Ok(Some(Self { stops, thread }))
    }

    /// Ends it, as soon as a window is compressed.
    pub fn end(self) {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

struct Worker {
    log: Arc<Log>,
    watch: Arc<LogDaemon>,
    faults: Arc<Faults>,
    limits: Limits,
    stops: Arc<AtomicBool>,
}

impl Worker {
    fn run(&self) {
        let now = Instant::now();
        let mut hour = Hour::new(now);
        let mut rest = Rest {
            uses: self.watch.uses(),
            since: now,
        };
        let mut power = Power {
            looked: None,
            is_battery: false,
        };
        let mut sweep = Sweep::default();
        let mut round_ended: Option<Instant> = None;
        while self.wait() {
            let now = Instant::now();
            hour.renew(now);
            let uses = self.watch.uses();
            let pause = self.limits.after * ROUNDS;
            if !rest.is_long(uses, now, self.limits.after)
                || round_ended.is_some_and(|ended| now.duration_since(ended) < pause)
            {
                continue;
            }
            round_ended = None;
            while hour.has_left(&self.limits)
                && !self.is_wanted(uses)
                && (self.limits.on_battery || !power.is_battery())
            {
                match self.sweep(&mut sweep, &mut hour, &mut power, uses) {
                    Ok(true) => {}
                    Ok(false) => {
                        round_ended = Some(Instant::now());
                        break;
                    }
                    Err(FsError::ReadOnly | FsError::Unsupported) => return,
                    Err(error) => {
                        let text = format!("compression in the background: {error}");
                        self.faults.note_seldom(text);
                        hour.is_over = true;
                    }
                }
            }
            let is_interrupted = round_ended.is_none() && self.is_wanted(uses);
            let interruptions = &self.watch.idle.interruptions;
            interruptions.fetch_add(is_interrupted.into(), Ordering::Relaxed);
        }
    }

    /// Waits a little; says whether it is to go on.
    fn wait(&self) -> bool {
        let is_used = self.limits.after.is_zero();
        thread::park_timeout(if is_used { LOOKS_OFTEN } else { LOOKS_EVERY });
        !self.stops.load(Ordering::Relaxed)
    }

    /// Tells whether somebody has used the log since it had been used so many times, or wants to have it.
    fn is_wanted(&self, uses: u64) -> bool {
        let is_used = !self.limits.after.is_zero() && self.watch.uses() != uses;
        is_used || self.stops.load(Ordering::Relaxed) || self.watch.is_ordered()
    }

    /// Compresses some files. Says whether the round goes on.
    fn sweep(
        &self,
        sweep: &mut Sweep,
        hour: &mut Hour,
        power: &mut Power,
        uses: u64,
    ) -> Result<bool, FsError> {
        let begun = processor_time();
        let used = hour.used;
        let goes_on = |done: &Compacted| {
            used.with(Used::of(done, begun)).is_within(&self.limits)
                && (self.limits.on_battery || !power.is_battery())
        };
        let cold = self.limits.after * COLD;
        let done = self
            .log
            .sweep(sweep, cold, goes_on, &|| self.is_wanted(uses))?;
        let is_round = done.is_none();
        let done = done.unwrap_or_default();
        let used = Used::of(&done, begun);
        hour.used = hour.used.with(used);
        self.watch.idle.add(used);
        for warning in done.warnings {
            self.faults.note_seldom(warning);
        }
        Ok(!is_round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        after: Duration::from_secs(30),
        processor: Duration::from_secs(60),
        bytes: 1000,
        on_battery: false,
    };

    #[test]
    fn a_battery_that_is_discharged_is_seen() {
        let place = tempfile::tempdir().unwrap();
        let supplies = place.path();
        assert!(!is_on_battery(&supplies.join("none")));
        let put = |supply: &str, files: &[(&str, &str)]| {
            fs::create_dir_all(supplies.join(supply)).unwrap();
            for (name, value) in files {
                fs::write(supplies.join(supply).join(name), format!("{value}\n")).unwrap();
            }
        };
        put("AC", &[("type", "Mains"), ("online", "0")]);
        let mouse = [
            ("type", "Battery"),
            ("status", "Discharging"),
            ("scope", "Device"),
        ];
        put("hid-mouse", &mouse);
        put("BAT0", &[("type", "Battery"), ("status", "Not charging")]);
        assert!(!is_on_battery(supplies));
        put("BAT1", &[("type", "Battery"), ("status", "Discharging")]);
        assert!(is_on_battery(supplies));
        put("BAT1", &[("status", "Charging")]);
        assert!(!is_on_battery(supplies));
    }

    #[test]
    fn an_hour_has_its_budget() {
        let begun = Instant::now();
        let mut hour = Hour::new(begun);
        assert!(hour.has_left(&LIMITS));
        let half = Used {
            read: 300,
            written: 200,
            processor: Duration::from_secs(1),
        };
        hour.used = hour.used.with(half);
        assert!(hour.has_left(&LIMITS));
        hour.used = hour.used.with(half);
        assert!(!hour.has_left(&LIMITS));
        hour.renew(begun + Duration::from_secs(3599));
        assert!(!hour.has_left(&LIMITS));
        hour.renew(begun + HOUR);
        assert!(hour.has_left(&LIMITS));
        hour.used.processor = LIMITS.processor;
        assert!(!hour.has_left(&LIMITS));
    }

    #[test]
    fn a_rest_begins_anew_with_each_use() {
        let begun = Instant::now();
        let at = |secs| begun + Duration::from_secs(secs);
        let mut rest = Rest {
            uses: 0,
            since: begun,
        };
        assert!(!rest.is_long(0, at(29), LIMITS.after));
        assert!(rest.is_long(0, at(30), LIMITS.after));
        assert!(!rest.is_long(1, at(31), LIMITS.after));
        assert!(!rest.is_long(1, at(60), LIMITS.after));
        assert!(rest.is_long(1, at(61), LIMITS.after));
    }
}
