//! A daemon in the foreground, which may end before it serves anything.

use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};

use crate::{Signal, Workshop, is_mounted, kill, wait_until};

pub struct Foreground {
    daemon: Child,
    pub is_served: bool,
}

impl Foreground {
    /// Runs a command that mounts on `mnt`, until it serves that or has ended.
    pub fn start(shop: &Workshop, command: &str) -> Self {
        let daemon = shop.command(command).stderr(Stdio::piped()).spawn();
        let daemon = RefCell::new(daemon.unwrap());
        let mnt = shop.path("mnt");
        wait_until(|| is_mounted(&mnt) || daemon.borrow_mut().try_wait().unwrap().is_some());
        let is_served = is_mounted(&mnt);
        if is_served {
            // It heeds signals when it answers, whatever that is.
            let _ = fs::metadata(&mnt);
        }
        Self {
            daemon: daemon.into_inner(),
            is_served,
        }
    }

    /// Ends it, if it has not ended; its exit status, and all that it said.
    pub fn end(mut self) -> (Option<i32>, String) {
        if self.is_served {
            kill(&self.daemon, Signal::TERM);
        }
        let mut said = String::new();
        let mut stderr = self.daemon.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (self.daemon.wait().unwrap().code(), said)
    }
}
