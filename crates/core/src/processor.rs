//! Threads and their processors.

use std::time::Duration;

use rustix::process::setpriority_process;
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

/// Niceness below which there is none.
const NICE_MAX: i32 = 19;

/// Time for which the calling thread has had a processor.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Has all other threads of the machine go before the calling one, for good. Where that fails, they do not. It must take no
/// lock from then on that others wait for: it might hold it for long.
pub fn go_last() {
    let _ = setpriority_process(Some(gettid()), NICE_MAX);
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn a_thread_goes_last_alone() {
        let niceness = || getpriority_process(Some(gettid())).unwrap();
        let before = niceness();
        let nice = thread::spawn(move || {
            go_last();
            niceness()
        });
        assert_eq!(nice.join().unwrap(), NICE_MAX);
        assert_eq!(niceness(), before);
    }

    #[test]
    fn work_takes_time() {
        let begun = processor_time();
        let mut sum = 0u64;
        while processor_time() == begun {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(processor_time() > begun);
    }
}
