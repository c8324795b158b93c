//! Compression in the background while nobody uses a log, within a budget.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anteros_core::{FsError, processor_time};
use anteros_log::{Compacted, Log, Sweep};

use super::faults::Faults;
use super::log::LogDaemon;
use super::usage::Usage;

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

/// Directory in which Linux has one for each supply of power.
const SUPPLIES: &str = "/sys/class/power_supply";

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

impl Limits {
    /// Tells whether there is some left of the budget of an hour, of which so much is used.
    fn allow(&self, used: &Usage) -> bool {
        used.processor < self.processor && used.read + used.written < self.bytes
    }
}

/// Budget of an hour.
struct Hour {
    begun: Instant,
    used: Usage,
    /// Tells whether nothing more is to be tried in it.
    is_over: bool,
}

impl Hour {
    fn new(begun: Instant) -> Self {
        Self {
            begun,
            used: Usage::default(),
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
        !self.is_over && limits.allow(&self.used)
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

/// Source of the power of the machine, as it was looked up some seconds ago.
#[derive(Default)]
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
        if !limits.allow(&Usage::default()) || log.is_read_only() || !log.compresses() {
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

/// Progress of the thread.
struct Course {
    hour: Hour,
    rest: Rest,
    power: Power,
    sweep: Sweep,
    /// Tells whether in this round what launches read lies together.
    is_gathered: bool,
    round_ended: Option<Instant>,
}

impl Course {
    fn new(uses: u64) -> Self {
        let now = Instant::now();
        Self {
            hour: Hour::new(now),
            rest: Rest { uses, since: now },
            power: Power::default(),
            sweep: Sweep::default(),
            is_gathered: false,
            round_ended: None,
        }
    }

    /// Tells whether there is time for more: nobody uses the log, and the last round is not just over.
    fn is_due(&mut self, uses: u64, after: Duration) -> bool {
        let now = Instant::now();
        self.hour.renew(now);
        let ended = self.round_ended.map(|ended| now.duration_since(ended));
        self.rest.is_long(uses, now, after) && ended.is_none_or(|ended| ended >= after * ROUNDS)
    }
}

impl Worker {
    fn run(&self) {
        let mut course = Course::new(self.watch.uses());
        while self.wait() {
            let uses = self.watch.uses();
            if course.is_due(uses, self.limits.after) && !self.go_on(&mut course, uses) {
                return;
            }
        }
    }

    /// Waits a little; says whether it is to go on.
    fn wait(&self) -> bool {
        let is_used = self.limits.after.is_zero();
        thread::park_timeout(if is_used { LOOKS_OFTEN } else { LOOKS_EVERY });
        !self.stops.load(Ordering::Relaxed)
    }

    /// Compresses until somebody comes, the round ends or the budget is used up. Says whether there is any use in trying later.
    fn go_on(&self, course: &mut Course, uses: u64) -> bool {
        course.round_ended = None;
        while course.hour.has_left(&self.limits) && self.has_power(&mut course.power) {
            if self.is_wanted(uses) {
                self.watch.idle.interrupted();
                break;
            }
            match self.sweep(course, uses) {
                Ok(true) => {}
                Ok(false) => {
                    course.round_ended = Some(Instant::now());
                    break;
                }
                Err(FsError::ReadOnly | FsError::Unsupported) => return false,
                Err(error) => {
                    let text = format!("compression in the background: {error}");
                    self.faults.note_seldom(text);
                    course.hour.is_over = true;
                }
            }
        }
        true
    }

    /// Tells whether somebody has used the log since it had been used so many times, or wants to have it.
    fn is_wanted(&self, uses: u64) -> bool {
        let is_used = !self.limits.after.is_zero() && self.watch.uses() != uses;
        is_used || self.stops.load(Ordering::Relaxed) || self.watch.is_ordered()
    }

    fn has_power(&self, power: &mut Power) -> bool {
        self.limits.on_battery || !power.is_battery()
    }

    /// Compresses some files. Says whether the round goes on.
    fn sweep(&self, course: &mut Course, uses: u64) -> Result<bool, FsError> {
        let Course {
            hour,
            power,
            sweep,
            is_gathered,
            ..
        } = course;
        let begun = processor_time();
        let goes_on = |done: &Compacted| {
            let used = hour.used.with(Usage::of(done, begun));
            self.limits.allow(&used) && self.has_power(power)
        };
        let cold = self.limits.after * COLD;
        let is_wanted = || self.is_wanted(uses);
        let done = match *is_gathered {
            false => self.log.sweep_launched(cold, goes_on, &is_wanted)?,
            true => self.log.sweep(sweep, cold, goes_on, &is_wanted)?,
        };
        // Where nothing is left of the one, the other begins; the round ends with the second.
        let goes_on = done.is_some() || !*is_gathered;
        *is_gathered ^= done.is_none();
        let done = done.unwrap_or_default();
        let used = Usage::of(&done, begun);
        hour.used = hour.used.with(used);
        self.watch.idle.add(used);
        let warnings = done.warnings.into_iter();
        warnings.for_each(|warning| self.faults.note_seldom(warning));
        Ok(goes_on)
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
        let half = Usage {
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
