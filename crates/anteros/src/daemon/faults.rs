//! Faults that a daemon met, of the image or of the medium behind a mirrored directory, for whoever wants to
//! know: standard error or the system's log, and `anteros stat`.

use std::collections::{HashMap, VecDeque};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anteros_core::{FsError, Ino, unpoisoned};

use crate::output;

/// States how many faults are kept in words.
const KEPT_MAX: usize = 16;

/// States how many may wait to be put into words; the rest is only counted.
const WAITING_MAX: usize = 64;

/// States how many files' names are remembered.
const NAMES_MAX: usize = 256;

/// States how many of the faults that users run into are told in a while, in words: they can be made to come without an
/// end.
const TOLD_MAX: u32 = 20;
const WHILE: Duration = Duration::from_secs(60);

/// States where daemons log: syslog's socket, which the journal serves as well.
const SYSLOG: &str = "/dev/log";

/// An error of a daemon (facility 3, severity 3), in syslog's numbers.
const PRIORITY: u8 = 3 << 3 | 3;

/// Describes how many were told of late.
#[derive(Debug, Default)]
struct Rate {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Rate {
    /// Counts a fault, and says whether to tell of it, and of how many nobody was told before.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_over = |since| now.saturating_duration_since(since) >= WHILE;
        if self.since.is_none_or(is_over) {
            (self.since, self.told) = (Some(now), 0);
        }
        if self.told == TOLD_MAX {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

/// The faults so far.
#[derive(Default)]
pub struct Faults {
    count: AtomicU64,
    latest: Mutex<VecDeque<String>>,
    in_background: AtomicBool,
    rate: Mutex<Rate>,
}

impl Faults {
    /// Returns how many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The last of them, the oldest first.
    pub fn latest(&self) -> Vec<String> {
        let latest = unpoisoned(self.latest.lock());
        latest.iter().cloned().collect()
    }

    /// From now on nobody sees standard error.
    pub fn go_to_background(&self) {
        self.in_background.store(true, Ordering::Relaxed);
    }

    /// Starts a thread that asks `path_of` for the file of each fault, which may take a while, and tells. The
    /// hook it returns never waits.
    pub fn listen(
        self: Arc<Self>,
        mut path_of: impl FnMut(Ino) -> Option<String> + Send + 'static,
    ) -> impl Fn(Ino, &FsError) + Send + Sync {
        let (sender, receiver): (SyncSender<(Ino, String)>, Receiver<_>) =
            sync_channel(WAITING_MAX);
        let faults = self.clone();
        // Without the thread, faults are still counted.
        let _ = std::thread::Builder::new()
            .name("faults".into())
            .spawn(move || {
                for (ino, error) in receiver {
                    let text = format!("{}: {error}", name(ino, path_of(ino)));
                    faults.tell_seldom(text, Instant::now());
                }
            });
        move |ino, error| {
            self.count.fetch_add(1, Ordering::Relaxed);
            let _ = sender.try_send((ino, error.to_string()));
        }
    }

    /// Counts a fault and tells of it.
    pub fn note(&self, text: String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.tell(text);
    }

    /// Counts a fault and tells of it, unless many were told of late.
    pub fn note_seldom(&self, text: String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.tell_seldom(text, Instant::now());
    }

    /// Tells of what is no fault.
    pub fn warn(&self, text: &str) {
        match self.in_background.load(Ordering::Relaxed) {
            true => log(text),
            false => output::complain("warning", text),
        }
    }

    /// Tells whoever listens.
    pub fn tell(&self, text: String) {
        self.say(&text);
        self.keep(text);
    }

    /// As [`tell`](Self::tell), unless many were told of late: then it is only kept.
    fn tell_seldom(&self, text: String, now: Instant) {
        let mut rate = unpoisoned(self.rate.lock());
        let admitted = rate.admit(now);
        drop(rate);
        if let Some(untold) = admitted {
            if untold > 0 {
                self.say(&format!("{untold} faults more were not told"));
            }
            self.say(&text);
        }
        self.keep(text);
    }

    fn say(&self, text: &str) {
        match self.in_background.load(Ordering::Relaxed) {
            true => log(text),
            false => output::complain("fault", text),
        }
    }

    fn keep(&self, text: String) {
        let mut latest = unpoisoned(self.latest.lock());
        if latest.len() == KEPT_MAX {
            latest.pop_front();
        }
        latest.push_back(text);
    }
}

/// Asks for the path of a file once, where that takes a walk of a tree and files keep their names.
pub fn asked_once(
    path_of: impl Fn(Ino) -> Option<String> + Send,
) -> impl FnMut(Ino) -> Option<String> + Send {
    let mut paths = HashMap::new();
    move |ino| {
        if paths.len() >= NAMES_MAX {
            paths.clear();
        }
        paths.entry(ino).or_insert_with(|| path_of(ino)).clone()
    }
}

/// The path of a file, or what is said of it when it has none.
pub fn name(ino: Ino, path: Option<String>) -> String {
    path.unwrap_or_else(|| format!("inode {}", ino.0))
}

/// Sends a line to the system's log, if there is one.
fn log(text: &str) {
    let line = format!("<{PRIORITY}>anteros[{}]: {text}", std::process::id());
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(line.as_bytes(), SYSLOG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_faults_are_kept() {
        let faults = Faults::default();
        for n in 0..40 {
            faults.tell(n.to_string());
        }
        let kept = faults.latest();
        assert_eq!(kept.first().map(String::as_str), Some("24"));
        assert_eq!(kept.last().map(String::as_str), Some("39"));
    }
    #[test]
    fn faults_without_an_end_are_told_seldom() {
        let mut rate = Rate::default();
        let start = Instant::now();
        let told = (0..1000).filter_map(|_| rate.admit(start)).count();
        assert_eq!(told, TOLD_MAX as usize);
        assert_eq!(rate.admit(start + WHILE / 2), None);
        assert_eq!(rate.admit(start + WHILE), Some(1001 - u64::from(TOLD_MAX)));
        assert_eq!(rate.admit(start + WHILE), Some(0));
    }
}
