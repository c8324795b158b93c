//! Scrubbing of a mounted log while nobody uses it: all of it once in so many days, a little at a time.

use std::time::{SystemTime, UNIX_EPOCH};

use anteros_log::{Log, ScrubPosition};

use super::faults::Faults;

const SECONDS_PER_DAY: f64 = 24.0 * 3600.0;

/// Steps, of 128 KiB each or less, before it is looked whether somebody uses the log.
const STEPS_AT_ONCE: u32 = 4;

/// Progress of a scrub.
pub struct Scrubber {
    days: u32,
    at: ScrubPosition,
    /// Blocks that should have been read by now.
    owed: f64,
    /// Answers of the daemon when it was last looked.
    answers: u64,
}

impl Scrubber {
    /// A scrub of a log that takes so many days; none with 0. A mount does not know how far the last one came: it begins
    /// anywhere.
    pub fn new(log: &Log, days: u32) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = now.map_or(0, |since| since.as_nanos() as u64);
        Self {
            days,
            at: ScrubPosition::anywhere(number, log.condition().segments),
            owed: 0.0,
            answers: 0,
        }
    }

    /// Reads what is due after `seconds`, if the daemon has answered nothing since this was called last.
    pub fn tend(&mut self, log: &Log, faults: &Faults, answers: u64, seconds: f64) {
        if self.days == 0 {
            return;
        }
        let is_idle = std::mem::replace(&mut self.answers, answers) == answers;
        let all = log.condition().used_blocks as f64;
        let due = all * seconds / (f64::from(self.days) * SECONDS_PER_DAY);
        self.owed = (self.owed + due).min(all);
        if is_idle && self.owed >= 1.0 {
            self.read(log, faults);
        }
    }

    fn read(&mut self, log: &Log, faults: &Faults) {
        for _ in 0..STEPS_AT_ONCE {
            if self.owed < 1.0 {
                break;
            }
            let done = log.scrub(&mut self.at);
            self.owed -= done.blocks as f64;
            for fault in done.faults {
                faults.note_seldom(fault);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anteros_core::{Caller, MemoryDevice, WritableDevice};
    use anteros_log::{Options, Shape, mkfs, system_clock};

    use super::*;

    const DAY: f64 = SECONDS_PER_DAY;

    fn log() -> Log {
        let device: Arc<dyn WritableDevice> = Arc::new(MemoryDevice::new(vec![0; 32 << 20]));
        let options = Options::new(system_clock);
        mkfs(&device, &Shape::default(), Caller::default(), &options).unwrap();
        Log::open(device, options).unwrap()
    }

    #[test]
    fn all_is_read_in_time_by_a_log_that_nobody_uses() {
        let (log, faults) = (log(), Faults::default());
        let mut scrubber = Scrubber::new(&log, 10);
        for _ in 0..20 {
            scrubber.tend(&log, &faults, 0, DAY);
        }
        assert!(log.condition().scrubbed_blocks >= 1);
        assert!(scrubber.owed < 1.0, "{}", scrubber.owed);
        assert_eq!(faults.count(), 0);
    }

    #[test]
    fn nothing_is_read_while_somebody_uses_the_log_or_when_it_is_off() {
        let (log, faults) = (log(), Faults::default());
        let mut busy = Scrubber::new(&log, 1);
        let mut off = Scrubber::new(&log, 0);
        for answers in 1..20 {
            busy.tend(&log, &faults, answers, DAY);
            off.tend(&log, &faults, 0, DAY);
        }
        assert_eq!(log.condition().scrubbed_blocks, 0);
        busy.tend(&log, &faults, 19, DAY);
        assert!(log.condition().scrubbed_blocks > 0);
    }
}
