//! Files that are opened, as inotify tells them, and their pages that are in memory afterwards: for where the kernel does
//! not tell of pages as they come.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anteros_trace::profile::{Profile, Round};
use anteros_trace::resident;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::read_ahead::ReadAhead;
use super::source::Source;
use crate::command::profile::reads::tell_dropped;
use crate::command::profile::tree::{Found, Tree};
use crate::command::profile::walk;
use crate::failure::Failure;
use crate::output;

/// Bytes of the buffer for events.
const BUFFER_BYTES: usize = 64 << 10;
/// Time between two looks for events; the kernel keeps 16,384 of them.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Opened files of a mount, and what is in memory of them.
pub struct Opened {
    tree: Tree,
    events: Arc<OwnedFd>,
    /// Directories by the numbers of their watches.
    directories: HashMap<i32, Vec<u8>>,
    _read_ahead: Option<ReadAhead>,
    listener: Option<Listener>,
}

/// A thread that takes events as they come.
struct Listener {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Heard>>,
}

/// Files that were opened, in the order in which they were first: the watch of their directory, and their name.
#[derive(Default)]
struct Heard {
    files: Vec<(i32, Vec<u8>)>,
    known: HashSet<(i32, Vec<u8>)>,
    /// Events were lost.
    is_incomplete: bool,
}

impl Opened {
    /// Watches all directories of a mount; `Err` says why that cannot be.
    pub fn of(mount: &Path) -> Result<Self, String> {
        let failure = |error: io::Error| error.to_string();
        let tree = Tree::open(mount).map_err(|failure| failure.message().to_string())?;
        let Tree::Directory(root) = &tree else {
            return Err("no directory".into());
        };
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let events = events.map_err(|errno| failure(errno.into()))?;
        let mut directories = HashMap::new();
        for path in walk::directories(root) {
            let place = mount.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(&path)));
            let flags = WatchFlags::OPEN | WatchFlags::DONT_FOLLOW | WatchFlags::ONLYDIR;
            match inotify::add_watch(&events, &place, flags) {
                Ok(watch) => drop(directories.insert(watch, path)),
                Err(Errno::NOSPC) => {
                    return Err("it has more directories than fs.inotify.max_user_watches".into());
                }
                // Nobody else can look into it either, or it is gone.
                Err(Errno::ACCESS | Errno::NOENT) => {}
                Err(errno) => return Err(format!("{}: {errno}", place.display())),
            }
        }
        let device = rustix::fs::fstat(root).map_err(|errno| failure(errno.into()))?;
        Ok(Self {
            _read_ahead: ReadAhead::off(device.st_dev),
            tree,
            events: Arc::new(events),
            directories,
            listener: None,
        })
    }

    /// The paths of the files that were opened; of all, if some were missed.
    fn paths(&self, heard: Heard) -> Vec<Vec<u8>> {
        let mut paths: Vec<Vec<u8>> = Vec::new();
        for (watch, name) in heard.files {
            let directory = self.directories.get(&watch);
            paths.extend(directory.map(|path| [path, &b"/"[..], &name].concat()));
        }
        if heard.is_incomplete {
            let text =
                "more files were opened than the kernel told of: what is in memory of any counts";
            output::complain("warning", text);
            let mut others: Vec<_> = self.tree.paths().into_values().collect();
            others.sort_unstable();
            let known: HashSet<Vec<u8>> = paths.iter().cloned().collect();
            paths.extend(others.into_iter().filter(|path| !known.contains(path)));
        }
        paths
    }
}

impl Source for Opened {
    fn begin(&mut self) -> Result<(), Failure> {
        // Who has dropped the caches has opened all files.
        listen(&self.events, &AtomicBool::new(true)).map_err(Failure::os)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (events, until) = (self.events.clone(), stop.clone());
        let thread = std::thread::Builder::new().spawn(move || listen(&events, &until));
        self.listener = Some(Listener {
            stop,
            thread: thread.map_err(Failure::os)?,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<Profile, Failure> {
        let Some(listener) = self.listener.take() else {
            return Ok(Profile::default());
        };
        let paths = self.paths(listener.end().map_err(Failure::os)?);
        let mut round = Round::default();
        for (number, path) in paths.iter().enumerate() {
            let Ok(found) = self.tree.find(path) else {
                continue; // it was no regular file, or is gone
            };
            for (offset, len) in in_memory(&found) {
                round.note(number as u64, offset, len);
            }
        }
        tell_dropped(&round);
        Ok(round.profile(|number| paths.get(number as usize).map(Vec::as_slice)))
    }

    fn remark(&self) -> Option<&'static str> {
        Some("files are in the order in which they were opened; ranges of a file have none")
    }
}

impl Listener {
    fn end(self) -> io::Result<Heard> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the thread that listened has died")))
    }
}

/// The parts of a file that are in memory; all of it, if the kernel does not tell.
fn in_memory(found: &Found) -> Vec<(u64, u64)> {
    let pages = found.file().filter(|file| may_ask(file));
    let pages = pages.and_then(|file| resident(file, found.size).ok());
    match pages {
        Some(pages) => pages
            .into_iter()
            .map(|pages| (pages.start, pages.end.min(found.size) - pages.start))
            .collect(),
        None => vec![(0, found.size)],
    }
}

/// Returns whether the kernel tells the truth: it does to root, and to who owns the file.
fn may_ask(file: &File) -> bool {
    let user = geteuid();
    user.is_root()
        || file
            .metadata()
            .is_ok_and(|found| found.uid() == user.as_raw())
}

/// Takes events until there are no more and it is time to stop.
fn listen(events: &OwnedFd, stop: &AtomicBool) -> io::Result<Heard> {
    let mut heard = Heard::default();
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    let mut reader = Reader::new(events.as_fd(), &mut buffer);
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        loop {
            match reader.next() {
                Ok(event) => heard.take(&event),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if is_last {
            return Ok(heard);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Heard {
    fn take(&mut self, event: &inotify::Event<'_>) {
        self.is_incomplete |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
        let is_file =
            event.events().contains(ReadFlags::OPEN) && !event.events().contains(ReadFlags::ISDIR);
        if let Some(name) = event.file_name().filter(|_| is_file) {
            let file = (event.wd(), name.to_bytes().to_vec());
            if self.known.insert(file.clone()) {
                self.files.push(file);
            }
        }
    }
}
