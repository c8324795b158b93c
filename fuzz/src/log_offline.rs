//! The target `log_offline`.

use std::sync::Arc;

use anteros_core::WritableDevice;
use anteros_log::{Inspector, Log, Options, check, describe, repair, repair_going_back, resize};

use super::log_open::{MEMORY_BYTES, Overlay, bases, clock};

/// Inodes and blocks that are looked at.
const LOOKS: u64 = 80;
/// The size that a log gets: one group of segments more, or less.
const SIZES: [u64; 2] = [40 << 20, 26 << 20];

/// Changes a log of one of everything, makes all checksums right, and does to it what is done to logs that are not mounted.
///
/// The input is that of `log_open`; the checksum of each block that is changed is made right.
pub fn log_offline(input: &[u8]) {
    let [clean, crashed] = bases();
    let first = input.first().copied().unwrap_or_default();
    let base = if first & 2 != 0 { crashed } else { clean };
    let blocks = base.patched(input, true);
    let device = || Arc::new(Overlay::new(blocks.clone()));
    let options = Options {
        memory_bytes: MEMORY_BYTES,
        ..Options::new(clock)
    };
    let ended = |device: &Overlay, what: &str| {
        assert!(!device.is_exhausted(), "{what} reads without end");
    };

    let looked = device();
    look(&looked, &options);
    ended(&looked, "a look");

    let repaired = device();
    let writable: Arc<dyn WritableDevice> = repaired.clone();
    let done = match first & 4 {
        0 => repair(writable.clone(), options.clone()),
        _ => repair_going_back(writable.clone(), options.clone()),
    };
    ended(&repaired, "a repair");
    if done.is_ok() {
        look(&repaired, &options);
        let _ = check(writable, options.clone());
        ended(&repaired, "a look behind a repair");
    }

    let resized = device();
    let writable: Arc<dyn WritableDevice> = resized.clone();
    let _ = resize(&writable, SIZES[usize::from(first & 8 != 0)], &options);
    ended(&resized, "a change of size");

    let cleaned = device();
    if let Ok(log) = Log::open(cleaned.clone(), options) {
        let _ = log.clean_all(|count| count < 50);
        let _ = log.close();
    }
    ended(&cleaned, "cleaning");
}

/// Looks at a log as `check`, `stat` and `dump` do.
fn look(device: &Arc<Overlay>, options: &Options) {
    let _ = check(device.clone(), options.clone());
    let _ = describe(device.clone(), options.clone());
    let Ok(mut inspector) = Inspector::open(device.clone(), options) else {
        return;
    };
    let _ = inspector.recovery();
    let _ = inspector.groups();
    for ino in 0..LOOKS as u32 {
        let _ = inspector.inode(ino);
    }
    for path in [&b"large"[..], b"d/moved", b"../small", b"link"] {
        let _ = inspector.find(path);
    }
    let main = inspector.superblock().main_start;
    for block in (0..LOOKS).chain((main..).take(2 * LOOKS as usize)) {
        let _ = inspector.block(block);
    }
}
