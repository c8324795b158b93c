//! Ctrl-C and its kin.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::failure::{Failure, Kind};

/// The signals by which terminals and service managers end a process.
pub const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// The signals that ask to stop, but for those that this process was started to ignore, as `nohup` does.
pub fn signals() -> Vec<i32> {
    let ignored = ignored();
    let asks = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(asks).collect()
}

/// The set of ignored signals, the first one in the lowest bit.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.unwrap_or(0)
}

/// A flag that rises when somebody asks to stop; asking twice stops at once.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// The failure to end with, if the flag has risen.
pub fn check(flag: &AtomicBool) -> Result<(), Failure> {
    match flag.load(Ordering::Relaxed) {
        true => Err(Failure::new(Kind::Interrupted, "interrupted")),
        false => Ok(()),
    }
}
