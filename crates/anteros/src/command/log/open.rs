//! Ways to open a log, and the failures of one.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteros_core::{FileDevice, WritableDevice};
use anteros_log::{Log, LogError, Options, system_clock};

use crate::failure::{Failure, Kind};
use crate::output;

/// The time to wait for a log that is in use, and the time between two tries.
const PATIENCE: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Refuses what is no log for a reason that is seen at once, in words that say so.
fn refuse_others(path: &Path) -> Result<(), Failure> {
    // What cannot be looked at is told by opening it.
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    let is = |kind, what: &str| Failure::new(kind, format_args!("{}: {what}", path.display()));
    if found.is_dir() {
        return Err(is(Kind::System, "is a directory, not a log"));
    }
    match found.is_file() && found.len() == 0 {
        true => Err(is(Kind::Corrupt, "an empty file is no log")
            .hint("`anteros log mkfs FILE --size SIZE` makes one of it")),
        false => Ok(()),
    }
}

/// Opens a device to look at it, of which nobody changes anything meanwhile; or, if somebody has it, says so.
pub fn to_read(path: &Path) -> Result<Arc<dyn WritableDevice>, Failure> {
    refuse_others(path)?;
    let device = match FileDevice::open_unchanging(path) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            let name = path.display();
            let text = format!("{name}: is in use: what is told may be of different moments");
            output::complain("warning", text);
            FileDevice::open(path)
        }
        opened => opened,
    };
    Ok(Arc::new(device.map_err(Failure::os)?))
}

/// Opens a device of which nobody changes anything meanwhile. After a plain `umount`, its daemon may still write for a moment.
pub fn unchanging(path: &Path) -> Result<Arc<dyn WritableDevice>, Failure> {
    refuse_others(path)?;
    let start = Instant::now();
    loop {
        match FileDevice::open_unchanging(path) {
            Ok(device) => return Ok(Arc::new(device)),
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                if start.elapsed() > PATIENCE {
                    let hint = "a daemon lets go of its log when all is written: `anteros umount` waits for that";
                    return Err(Failure::os(error).hint(hint));
                }
                std::thread::sleep(ASK_EVERY);
            }
            Err(error) => return Err(Failure::os(error)),
        }
    }
}

/// Opens a log to read it; nothing is written to it, and nobody else does.
pub fn as_source(path: &Path) -> Result<Log, Failure> {
    let options = Options {
        read_only: true,
        ..Options::new(system_clock)
    };
    Log::open(unchanging(path)?, options).map_err(|e| failure(path.display(), &e))
}

/// Opens a device for writing, and keeps others from doing the same.
pub fn to_write(path: &Path) -> Result<Arc<dyn WritableDevice>, Failure> {
    refuse_others(path)?;
    Ok(file(path)?)
}

/// Opens a device likewise, whose length can be changed.
pub fn file(path: &Path) -> Result<Arc<FileDevice>, Failure> {
    let device = FileDevice::open_writable(path).map_err(Failure::os)?;
    // What a mount is asked for, the kernel keeps for those who asked.
    Ok(Arc::new(device.with_direct_reads().with_reads_alone()))
}

/// An error of a log, which is called `name`.
pub fn failure(name: impl Display, error: &LogError) -> Failure {
    let kind = match error {
        LogError::Corrupt(_)
        | LogError::NoCheckpoint(..)
        | LogError::OutOfDate { .. }
        | LogError::Truncated { .. } => Kind::Corrupt,
        LogError::Unsupported(_) => Kind::Unsupported,
        _ => Kind::System,
    };
    Failure::new(kind, format_args!("{name}: {error}")).hint_if(error.hint())
}
