//! `anteros profile record`
//!
//! ```text
//! for each round:  drop caches ──▶ listen ──▶ command ──▶ stop ──▶ Round
//! then:            rounds ──▶ merge ──▶ digests of what is there ──▶ profile
//! ```
//!
//! There are four sources of what is read, the best first. `own` mounts an image by itself, or has the record of a mount
//! that is recorded: there, each read is known to the byte. `events` has the kernel tell of each page that it adds to the
//! page cache; `opened`, where it does not, of files that are opened, and looks at what is in memory of them afterwards.
//! `read_ahead` keeps the kernel from adding more than was asked for.

mod events;
mod opened;
mod own;
mod read_ahead;
mod source;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anteros_trace::profile::{Profile, merge};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};

use super::arguments::OutputArgs;
use super::tree::Tree;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output};
use events::Events;
use opened::Opened;
use own::{Mounts, Recorded};
use source::Source;

/// Time between two looks at a command.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Record which parts of the files of a mount a command reads
///
/// The command runs once for each round, and what the rounds read is merged. Without --output, the profile is written to
/// standard output, and what the command prints goes to standard error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The mount whose files count; the one that the command lies on, if not told
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,

    /// Mount this image on the directory for each round, through FUSE, which needs no root and knows each read to the byte
    #[arg(long, value_name = "IMAGE", requires = "mount")]
    image: Option<PathBuf>,

    /// Rounds that are merged
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    /// Drop the caches of the whole machine before each round, as root; those of the files of the mount are dropped anyway
    #[arg(long)]
    cold: bool,

    #[command(flatten)]
    output: OutputArgs,

    /// The command, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> Outcome {
        let stop = interrupt::flag().map_err(Failure::os)?;
        let (mut source, mount): (Box<dyn Source>, PathBuf) = match (&self.image, &self.mount) {
            (Some(image), Some(mount)) => {
                let source = Mounts::new(image, mount)?;
                (Box::new(source), mount.clone())
            }
            _ => {
                let mount = self.mount_point()?;
                (source_of(&mount)?, mount)
            }
        };
        let mut verdict = Verdict::Good;
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            if self.image.is_none() {
                drop_caches(&Tree::open(&mount)?);
            }
            if self.cold {
                let path = Path::new("/proc/sys/vm/drop_caches");
                std::fs::write(path, "3").map_err(|error| Failure::system(path, &error))?;
            }
            source.begin()?;
            let ran = self.run_command(&stop);
            rounds.push(source.end()?);
            interrupt::check(&stop)?;
            if let Verdict::Partial = ran? {
                verdict = Verdict::Partial;
            }
        }
        let remark = source.remark();
        drop(source);
        let files = self.image.as_ref().unwrap_or(&mount);
        let profile = merge(&rounds);
        tell(&profile, &mount);
        let written = self
            .output
            .write_with(remark, profile, Some(&Tree::open(files)?))?;
        Ok(match written {
            Verdict::Good => verdict,
            written => written,
        })
    }

    fn program(&self) -> &OsString {
        // There is one: the arguments say so.
        &self.command[0]
    }

    /// Runs the command once.
    fn run_command(&self, stop: &AtomicBool) -> Outcome {
        let mut command = Command::new(self.program());
        command.args(&self.command[1..]);
        if !self.output.has_file() {
            command.stdout(Stdio::from(io::stderr()));
        }
        let name = Path::new(self.program()).display();
        let status = command.spawn().and_then(|child| wait(child, stop));
        let status = status.map_err(|error| {
            Failure::new(
                Kind::System,
                format_args!("{name}: cannot be started: {error}"),
            )
        })?;
        let was_stopped = stop.load(Ordering::Relaxed);
        if status.success() || was_stopped {
            return Ok(Verdict::Good);
        }
        output::complain("warning", format_args!("{name}: {status}"));
        Ok(Verdict::Partial)
    }

    /// The root of the mount whose files count.
    fn mount_point(&self) -> Result<PathBuf, Failure> {
        if let Some(mount) = &self.mount {
            let found = std::fs::metadata(mount).map_err(|e| Failure::system(mount, &e))?;
            if !found.is_dir() {
                let message = format!("{}: no directory", mount.display());
                return Err(Failure::new(Kind::Usage, message));
            }
            return Ok(mount.clone());
        }
        let program = self.find_program()?;
        let failure = |error| Failure::system(&program, &error);
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev());
        let wanted = device(&program).map_err(failure)?;
        let above = program.ancestors().skip(1);
        let mount = above.take_while(|path| device(path).is_ok_and(|found| found == wanted));
        match mount.last() {
            Some(mount) if mount != Path::new("/") => Ok(mount.into()),
            _ => {
                let message = format!(
                    "{}: lies on no mount but that of the root directory",
                    program.display()
                );
                let hint = "`--mount DIR` tells the mount whose files count";
                Err(Failure::new(Kind::Usage, message).hint(hint))
            }
        }
    }

    fn find_program(&self) -> Result<PathBuf, Failure> {
        let given = Path::new(self.program());
        let found = match given.components().count() {
            1 if !given.is_absolute() => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let places = std::env::split_paths(&path);
                places
                    .map(|place| place.join(given))
                    .find(|path| path.is_file())
            }
            _ => Some(given.into()),
        };
        let found = found.and_then(|path| path.canonicalize().ok());
        found.ok_or_else(|| {
            let message = format!("{}: no such program", given.display());
            Failure::new(Kind::System, message)
        })
    }
}

/// Waits for a command. If somebody asks us to stop, we ask the command to.
fn wait(mut child: Child, stop: &AtomicBool) -> io::Result<ExitStatus> {
    let mut is_asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) && !is_asked {
            is_asked = true;
            // It may have ended by now.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The best source for a mount that is there. It is told, with what is wrong with the better ones.
fn source_of(mount: &Path) -> Result<Box<dyn Source>, Failure> {
    let note = |text: &str| output::complain("note", format_args!("{}: {text}", mount.display()));
    let own = match Recorded::of(mount) {
        Ok(own) => {
            note("the source is the record of this mount, which knows each read to the byte");
            return Ok(Box::new(own));
        }
        Err(reason) => reason,
    };
    let events = match Events::of(mount) {
        Ok(events) => {
            let text = "the source are pages that the kernel adds to the page cache; a record of reads would be better, but";
            note(&format!("{text} {own}"));
            return Ok(Box::new(events));
        }
        Err(reason) => reason,
    };
    match Opened::of(mount) {
        Ok(opened) => {
            let text = "the source are files that are opened, and what is in memory of them; events of the page cache would be better, but";
            note(&format!("{text} {events}"));
            Ok(Box::new(opened))
        }
        Err(opened) => {
            let message = format!(
                "{}: nothing tells what is read here: {own}; {events}; {opened}",
                mount.display()
            );
            let hint = "`--image IMAGE` mounts an image for each round, without root";
            Err(Failure::new(Kind::Unsupported, message).hint(hint))
        }
    }
}

/// Has the kernel forget the content of all files of a mount that nobody has mapped, so that it has to be read again.
fn drop_caches(tree: &Tree) {
    for path in tree.paths().values() {
        let found = tree.find(path).ok();
        if let Some(file) = found.as_ref().and_then(|found| found.file()) {
            drop_cache(file);
        }
    }
}

fn drop_cache(file: &File) {
    // What is cached still is read faster, and no harm is done.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// Tells what was recorded.
fn tell(profile: &Profile, mount: &Path) {
    let bytes = |ranges: &mut dyn Iterator<Item = u64>| output::bytes(ranges.sum());
    let mut files: Vec<&[u8]> = profile.ranges.iter().map(|range| &range.path[..]).collect();
    files.sort_unstable();
    files.dedup();
    let text = format!(
        "{}: {} read in {} ranges of {} files, {} of it in each of {} rounds",
        mount.display(),
        bytes(&mut profile.ranges.iter().map(|range| range.len)),
        output::count(profile.ranges.len() as u64),
        output::count(files.len() as u64),
        bytes(&mut profile.core().map(|range| range.len)),
        output::count(profile.rounds),
    );
    output::complain("note", text);
    if profile.ranges.is_empty() {
        let text = "nothing was read: is the command's data on this mount, and not in the memory of another process?";
        output::complain("warning", text);
    }
}
