//! Ctrl-C and its kin.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Failure, Kind};

/// The signals that ask to stop.
pub const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A flag that rises when somebody asks to stop; asking twice stops at once.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
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
