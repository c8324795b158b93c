//! Pages that the kernel adds to the page cache, as its trace event `filemap:mm_filemap_add_to_page_cache` tells them.
//!
//! An instance of the tracing file system of our own has the event, for one device, in a buffer of its own, so that other
//! tracing goes on as before. A thread empties the buffer while the command runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anteros_trace::profile::{Profile, Round};
use rustix::fs::{Dev, OFlags, major, minor};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::read_ahead::ReadAhead;
use super::source::Source;
use crate::command::profile::reads::tell_dropped;
use crate::command::profile::tree::Tree;
use crate::failure::{Failure, Kind};
use crate::output;

/// Places where the tracing file system may be mounted.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const EVENT: &str = "events/filemap/mm_filemap_add_to_page_cache";
/// The event as a line of the text names it.
const NAME: &str = "mm_filemap_add_to_page_cache: dev ";
/// KiB of the buffer of each processor: some 40,000 events.
const BUFFER_KIB: &str = "2048";
/// Time between two looks at the buffer.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The largest folio of the page cache has 2^order pages, and fewer than 2^this.
const ORDERS: u32 = 20;

/// Events of the page cache for one device.
pub struct Events {
    instance: Instance,
    mount: PathBuf,
    device: Dev,
    _read_ahead: Option<ReadAhead>,
    listener: Option<Listener>,
}

/// An instance of the tracing file system, which is removed when this is dropped.
struct Instance {
    path: PathBuf,
    /// The tracing file system, if it was mounted for us.
    mounted: Option<&'static str>,
}

/// A thread that empties the buffer.
struct Listener {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Heard>>,
}

/// Events that were heard.
#[derive(Debug, Default)]
struct Heard {
    round: Round,
    /// Events that there was no room for in the kernel's buffer.
    lost: u64,
}

impl Events {
    /// Sets up the events of the device that a mount lies on; `Err` says why there are none.
    pub fn of(mount: &Path) -> Result<Self, String> {
        let found = fs::metadata(mount).map_err(|error| error.to_string())?;
        let device = found.dev();
        let instance = Instance::new()?;
        // The kernel keeps device numbers in 12 and 20 bits, and those in the event are its own.
        let filter = format!("s_dev == {}", major(device) << 20 | minor(device));
        let set = |name: &str, value: &str| {
            let path = instance.path.join(name);
            fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
        };
        set("buffer_size_kb", BUFFER_KIB)?;
        // Without a common clock, events of several processors have no order.
        set("trace_clock", "global")?;
        set(&format!("{EVENT}/filter"), &filter)?;
        let read_ahead = ReadAhead::off(device);
        if read_ahead.is_none() {
            let text = "the kernel reads ahead here, and what it does counts as read";
            output::complain("note", format_args!("{}: {text}", mount.display()));
        }
        Ok(Self {
            instance,
            mount: mount.into(),
            device,
            _read_ahead: read_ahead,
            listener: None,
        })
    }

    fn enable(&self, value: &str) -> Result<(), Failure> {
        let path = self.instance.path.join(EVENT).join("enable");
        fs::write(&path, value).map_err(|error| Failure::system(&path, &error))
    }
}

impl Source for Events {
    fn begin(&mut self) -> Result<(), Failure> {
        let path = self.instance.path.join("trace_pipe");
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&path)
            .map_err(|error| Failure::system(&path, &error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (device, until) = (self.device, stop.clone());
        let page_bytes = rustix::param::page_size() as u64;
        let listen = move || listen(pipe, device, page_bytes, &until);
        let thread = std::thread::Builder::new()
            .spawn(listen)
            .map_err(Failure::os)?;
        self.listener = Some(Listener { stop, thread });
        self.enable("1")
    }

    fn end(&mut self) -> Result<Profile, Failure> {
        self.enable("0")?;
        let Some(listener) = self.listener.take() else {
            return Ok(Profile::default());
        };
        let heard = listener.end().map_err(Failure::os)?;
        if heard.lost > 0 {
            let text = format!(
                "{} events were lost: pages were read faster than they could be noted",
                output::count(heard.lost)
            );
            output::complain("warning", text);
        }
        tell_dropped(&heard.round);
        let paths = match Tree::open(&self.mount)? {
            Tree::Directory(root) => {
                let wanted: std::collections::HashSet<u64> = heard.round.files().collect();
                super::super::walk::paths(&root, |ino| wanted.contains(&ino))
            }
            Tree::Answers(_) => {
                let message = format!("{}: no directory", self.mount.display());
                return Err(Failure::new(Kind::Usage, message));
            }
        };
        let path = |ino| paths.get(&ino).map(Vec::as_slice);
        Ok(heard.round.profile(path))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // The instance stays as long as somebody reads from it.
        let _ = self.enable("0");
        if let Some(listener) = self.listener.take() {
            let _ = listener.end();
        }
    }
}

impl Listener {
    fn end(self) -> io::Result<Heard> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the thread that listened has died")))
    }
}

impl Instance {
    fn new() -> Result<Self, String> {
        let is_there = |place: &&str| Path::new(place).join("instances").is_dir();
        let (place, mounted) = match PLACES.into_iter().find(is_there) {
            Some(place) => (place, None),
            None => {
                let [place, _] = PLACES;
                let made = mount("tracefs", place, "tracefs", MountFlags::empty(), None);
                made.map_err(|errno| {
                    format!("the kernel's tracing file system cannot be mounted: {errno}")
                })?;
                (place, Some(place))
            }
        };
        let name = format!("instances/anteros-{}", std::process::id());
        let instance = Self {
            path: Path::new(place).join(name),
            mounted,
        };
        match fs::create_dir(&instance.path) {
            Ok(()) if instance.path.join(EVENT).is_dir() => Ok(instance),
            Ok(()) => Err("this kernel has no event for pages of the page cache".into()),
            Err(error) => Err(format!("{}: {error}", instance.path.display())),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
        if let Some(place) = self.mounted {
            let _ = unmount(place, UnmountFlags::empty());
        }
    }
}

/// Notes events until there are no more and it is time to stop.
fn listen(mut pipe: File, device: Dev, page_bytes: u64, stop: &AtomicBool) -> io::Result<Heard> {
    let mut heard = Heard::default();
    let mut text = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        // What comes before a stop is in the buffer when that is looked at next.
        let is_last = stop.load(Ordering::Relaxed);
        match pipe.read(&mut piece) {
            Ok(0) if is_last => return Ok(heard),
            Ok(0) => std::thread::sleep(LOOK_EVERY),
            Ok(count) => {
                text.extend_from_slice(&piece[..count]);
                heard.take(&mut text, device, page_bytes);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && is_last => return Ok(heard),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(LOOK_EVERY);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Heard {
    /// Takes whole lines from the front of a text.
    fn take(&mut self, text: &mut Vec<u8>, device: Dev, page_bytes: u64) {
        let Some(end) = text.iter().rposition(|&byte| byte == b'\n') else {
            return;
        };
        let lines = String::from_utf8_lossy(&text[..end]);
        for line in lines.lines() {
            if let Some(page) = Page::parse(line) {
                let is_ours = (page.major, page.minor) == (major(device), minor(device));
                if is_ours {
                    let len = page_bytes << page.order;
                    self.round.note(page.ino, page.offset, len);
                }
            } else if let Some(lost) = lost(line) {
                self.lost = self.lost.saturating_add(lost);
            }
        }
        text.drain(..=end);
    }
}

/// A page, or several, that the kernel added to the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Page {
    major: u32,
    minor: u32,
    ino: u64,
    offset: u64,
    /// There are 2^order of them; older kernels, which do not tell, add single ones.
    order: u32,
}

impl Page {
    fn parse(line: &str) -> Option<Self> {
        // The name of a process, in front, may be anything, but not so long.
        let (_, rest) = line.split_once(NAME)?;
        let mut words = rest.split_ascii_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        let mut ino = None;
        let mut offset = None;
        let mut order = 0;
        while let Some(word) = words.next() {
            match word.split_once('=') {
                None if word == "ino" => ino = u64::from_str_radix(words.next()?, 16).ok(),
                Some(("ofs", number)) => offset = number.parse().ok(),
                Some(("order", number)) => order = number.parse().ok()?,
                _ => {}
            }
        }
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            ino: ino?,
            offset: offset?,
            order: Some(order).filter(|order| *order < ORDERS)?,
        })
    }
}

/// The number of events that a line says were lost: `CPU:1 [LOST 23 EVENTS]`.
fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("[LOST ")?;
    rest.split_once(" EVENTS]")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "            bash-5125    [001] ..... 78601.153058: mm_filemap_add_to_page_cache: \
        dev 7:0 ino 2a pfn=0x2b92fc ofs=8192 order=2";

    #[test]
    fn a_line_is_a_page() {
        let page = Page {
            major: 7,
            minor: 0,
            ino: 42,
            offset: 8192,
            order: 2,
        };
        assert_eq!(Page::parse(LINE), Some(page));
        // As Linux 5.10 has it.
        let older = "x: mm_filemap_add_to_page_cache: dev 7:0 ino 2a page=00000 pfn=11 ofs=8192";
        assert_eq!(Page::parse(older), Some(Page { order: 0, ..page }));
        for line in [
            "",
            "mm_filemap_add_to_page_cache: dev 7",
            "mm_filemap_add_to_page_cache: dev 7:0 ino",
            "mm_filemap_add_to_page_cache: dev 7:0 ino zz ofs=1",
            "mm_filemap_add_to_page_cache: dev 7:0 ino 1 ofs=-1",
            "mm_filemap_add_to_page_cache: dev 7:0 ino 1 ofs=0 order=64",
            "mm_filemap_delete_from_page_cache: dev 7:0 ino 1 ofs=0 order=0",
        ] {
            assert_eq!(Page::parse(line), None, "{line}");
        }
    }

    #[test]
    fn lines_may_come_in_pieces() {
        let text = format!(
            "{LINE}\nCPU:1 [LOST 23 EVENTS]\n{}\n",
            LINE.replace("7:0", "8:1")
        );
        let mut heard = Heard::default();
        let mut waiting = Vec::new();
        for piece in text.as_bytes().chunks(7) {
            waiting.extend_from_slice(piece);
            heard.take(&mut waiting, rustix::fs::makedev(7, 0), 4096);
        }
        assert_eq!((heard.lost, waiting.len()), (23, 0));
        let profile = heard.round.profile(|ino| (ino == 42).then_some(&b"/a"[..]));
        let [range] = &profile.ranges[..] else {
            panic!("{profile:?}");
        };
        assert_eq!((range.offset, range.len), (8192, 16_384));
    }
}
