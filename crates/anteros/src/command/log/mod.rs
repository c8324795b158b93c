//! `anteros log`: the read-write file system.

mod check;
mod compact;
mod dump;
mod figure;
mod gc;
mod launches;
mod mkfs;
mod mount;
mod resize;
mod stat;

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteros_core::{FileDevice, WritableDevice};
use anteros_log::{Log, LogError, Options, system_clock};

use crate::failure::{Failure, Kind, Outcome};
use crate::output;

/// The time to wait for a log that is in use, and the time between two tries.
const PATIENCE: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Make and mount logs: file systems in a file or on a device, for reading and writing
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Mkfs(mkfs::Args),
    Mount(mount::Args),
    Check(check::Args),
    Stat(stat::Args),
    Dump(dump::Args),
    Gc(gc::Args),
    Compact(compact::Args),
    Launches(launches::Args),
    Resize(resize::Args),
}

impl Args {
    pub fn run(self) -> Outcome {
        match self.command {
            Command::Mkfs(args) => args.run(),
            Command::Mount(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Stat(args) => args.run(),
            Command::Dump(args) => args.run(),
            Command::Gc(args) => args.run(),
            Command::Compact(args) => args.run(),
            Command::Launches(args) => args.run(),
            Command::Resize(args) => args.run(),
        }
    }
}

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
fn open_to_read(path: &Path) -> Result<Arc<dyn WritableDevice>, Failure> {
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
fn open_unchanging(path: &Path) -> Result<Arc<dyn WritableDevice>, Failure> {
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
    Log::open(open_unchanging(path)?, options).map_err(|e| failure(path.display(), &e))
}

/// Opens a device for writing, and keeps others from doing the same.
fn open(path: &Path) -> Result<Arc<dyn WritableDevice>, Failure> {
    refuse_others(path)?;
    Ok(open_file(path)?)
}

/// Opens a device likewise, whose length can be changed.
fn open_file(path: &Path) -> Result<Arc<FileDevice>, Failure> {
    let device = FileDevice::open_writable(path).map_err(Failure::os)?;
    // What a mount is asked for, the kernel keeps for those who asked.
    Ok(Arc::new(device.with_direct_reads().with_reads_alone()))
}

/// An error of a log, which is called `name`.
fn failure(name: impl Display, error: &LogError) -> Failure {
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
