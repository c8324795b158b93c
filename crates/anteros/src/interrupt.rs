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
    let (flag, again) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    for signal in signals() {
        heed(signal, &flag, &again, &|| {})?;
    }
    Ok(flag)
}

/// Has a signal raise `flag`, and end the program once it has raised `again`. `between` is called after each step.
fn heed(
    signal: i32,
    flag: &Arc<AtomicBool>,
    again: &Arc<AtomicBool>,
    between: &dyn Fn(),
) -> io::Result<()> {
    // From the first step on, the signal ends nothing by itself: whenever it comes, it has to raise the flag. Should
    // it come before the last step, it takes one more to end the program.
    signal_hook::flag::register(signal, flag.clone())?;
    between();
    signal_hook::flag::register_conditional_shutdown(signal, 130, again.clone())?;
    between();
    signal_hook::flag::register(signal, again.clone())?;
    between();
    Ok(())
}

/// The failure to end with, if the flag has risen.
pub fn check(flag: &AtomicBool) -> Result<(), Failure> {
    match flag.load(Ordering::Relaxed) {
        true => Err(Failure::new(Kind::Interrupted, "interrupted")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use signal_hook::consts::{SIGURG, SIGUSR1, SIGUSR2};
    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn a_signal_that_comes_while_it_is_being_heeded_is_not_lost() {
        for (step, signal) in [SIGUSR1, SIGUSR2, SIGURG].into_iter().enumerate() {
            let (flag, again) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
            let steps = Cell::new(0);
            let between = || {
                if steps.replace(steps.get() + 1) == step {
                    raise(signal).unwrap();
                }
            };
            heed(signal, &flag, &again, &between).unwrap();
            assert!(flag.load(Ordering::Relaxed), "after step {step}");
            assert_eq!(steps.get(), 3);
        }
    }
}
