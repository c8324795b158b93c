//! Locks of files and block devices: whoever writes has it alone, by whatever way others come.
//!
//! - A lock on the file (`flock`) keeps out whoever asks for it: exclusive for who writes, shared for who reads and relies on
//!   nobody writing meanwhile.
//! - A block device is claimed besides (`O_EXCL`): so it is not mounted, no swap, no member of an array or of a mapping, and no
//!   part of it is, nor the disk that it is a part of.
//! - Behind a loop device lies a file, which has a shared lock: whoever opens the file itself wants an exclusive one. Other loop
//!   devices that show the same bytes of it must not be claimed.
//! - A file must not be shown by a loop device that is claimed, nor be mounted by the kernel.
//!
//! What cannot be seen from here is not found: what lies behind a loop device in another mount namespace, for one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::io::Errno;

use crate::escape::unescaped;

/// States how often, and how long in between, the lock of a block device is tried: those who look what is on it, as
/// udev does, have it for a moment.
const TRIES: usize = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// States how deep devices lie on each other at most.
const DEPTH_MAX: usize = 16;

const SECTOR: u64 = 512;

/// Locks that hold as long as this lives, besides that on the file itself.
pub(crate) type Held = Vec<File>;

/// Opens a regular file or a block device for writing, and keeps all others from it.
pub(crate) fn open_alone(path: &Path) -> io::Result<(File, Held)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let found = path.metadata()?.file_type();
    if found.is_block_device() {
        // Without O_CREAT, Linux gives this a meaning for block devices.
        options.custom_flags(OFlags::EXCL.bits() as i32);
    } else if !found.is_file() && !found.is_dir() {
        return Err(no_device());
    }
    let file = options.open(path).map_err(told_in_use)?;
    let held = hold(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok((file, held))
}

/// Makes a regular file, of which there is none, and keeps all others from it.
pub(crate) fn create_alone(path: &Path) -> io::Result<(File, Held)> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path)?;
    let held = hold(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok((file, held))
}

/// Opens a regular file or a block device for reading, and keeps those from it who would write.
pub(crate) fn open_with_readers(path: &Path) -> io::Result<(File, Held)> {
    let found = path.metadata()?.file_type();
    if !found.is_file() && !found.is_dir() && !found.is_block_device() {
        return Err(no_device());
    }
    let file = File::open(path)?;
    let held = hold(&file, FlockOperation::NonBlockingLockShared)?;
    Ok((file, held))
}

fn no_device() -> io::Error {
    let text = "is neither a regular file nor a block device";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn hold(file: &File, how: FlockOperation) -> io::Result<Held> {
    let found = file.metadata()?;
    if !found.file_type().is_block_device() {
        lock(file, how, 1)?;
        check_shown(&found, None, &[])?;
        return Ok(Held::new());
    }
    lock(file, how, TRIES)?;
    let mut stack = Stack::default();
    stack.add(found.rdev(), None, 0);
    let mut held = Held::new();
    for region in &stack.regions {
        // What is gone, or is not shown here, cannot be locked; nor can what may not even be read.
        let Ok(behind) = File::open(&region.file) else {
            continue;
        };
        lock(&behind, FlockOperation::NonBlockingLockShared, 1)?;
        check_shown(&behind.metadata()?, Some(&region.bytes), &stack.loops)?;
        held.push(behind);
    }
    check_shown(&found, None, &stack.loops)?;
    Ok(held)
}

fn lock(file: &File, how: FlockOperation, tries: usize) -> io::Result<()> {
    for _ in 1..tries {
        match flock(file, how) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_TRIES),
            locked => return locked.map_err(|errno| told_in_use(errno.into())),
        }
    }
    match flock(file, how) {
        // Where there are no locks, whoever reads only goes without.
        Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::BADF)
            if how == FlockOperation::NonBlockingLockShared =>
        {
            Ok(())
        }
        locked => locked.map_err(|errno| told_in_use(errno.into())),
    }
}

/// Says what the kernel means by "busy" and "try again".
fn told_in_use(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::BUSY | Errno::WOULDBLOCK) => {
            busy("is in use by another process; unmount it or end that process first".into())
        }
        _ => error,
    }
}

fn busy(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// Fails if a loop device that somebody has claimed shows these bytes of a file, or of all; or if the kernel has mounted it.
/// Loop devices of these names do not count.
fn check_shown(
    file: &Metadata,
    bytes: Option<&Range<u64>>,
    besides: &[OsString],
) -> io::Result<()> {
    let mounts = Mounts::read();
    if file.is_file() && mounts.has_file(file) {
        return Err(busy("is mounted by the kernel; unmount it first".into()));
    }
    let is_same = |other: &Metadata| is_same(file, other);
    for shown in loops().filter(|shown| !besides.contains(&shown.name)) {
        let overlaps = bytes
            .is_none_or(|bytes| bytes.start < shown.bytes.end && shown.bytes.start < bytes.end);
        if !overlaps || !fs::metadata(&shown.file).is_ok_and(|other| is_same(&other)) {
            continue;
        }
        if is_claimed(&shown.name, &mounts) {
            let name = shown.name.to_string_lossy();
            let text = format!(
                "is in use: /dev/{name} shows the same bytes, and is mounted or else in use"
            );
            return Err(busy(text));
        }
    }
    Ok(())
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let is_block = |found: &Metadata| found.file_type().is_block_device();
    match (is_block(one), is_block(other)) {
        (true, true) => one.rdev() == other.rdev(),
        (false, false) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Some bytes of a file that a device shows.
struct Region {
    file: PathBuf,
    bytes: Range<u64>,
}

/// A loop device.
struct Loop {
    name: OsString,
    file: PathBuf,
    bytes: Range<u64>,
}

impl Loop {
    /// The loop device whose directory of sysfs this is, if it is one and shows something.
    fn at(dir: &Path) -> Option<Self> {
        let mut file = fs::read(dir.join("loop/backing_file")).ok()?;
        if file.last() == Some(&b'\n') {
            file.pop();
        }
        let start = number(&dir.join("loop/offset")).unwrap_or(0);
        let len = number(&dir.join("size"))?.saturating_mul(SECTOR);
        Some(Self {
            name: dir.file_name()?.to_owned(),
            file: OsString::from_vec(file).into(),
            bytes: start..start.saturating_add(len),
        })
    }
}

/// All loop devices that show something.
fn loops() -> impl Iterator<Item = Loop> {
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = disks.filter(|disk| disk.file_name().as_bytes().starts_with(b"loop"));
    loops.filter_map(|disk| Loop::at(&disk.path()))
}

/// Holds what a device shows of files, by way of loop devices.
#[derive(Default)]
struct Stack {
    regions: Vec<Region>,
    /// The loop devices on the way.
    loops: Vec<OsString>,
}

impl Stack {
    /// Adds what lies below a device, or below some bytes of it.
    fn add(&mut self, device: u64, bytes: Option<Range<u64>>, depth: usize) {
        let dir = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        if let Ok(dir) = fs::canonicalize(dir) {
            self.add_at(&dir, bytes, depth);
        }
    }

    fn add_at(&mut self, dir: &Path, bytes: Option<Range<u64>>, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        if dir.join("partition").exists() {
            let sectors = |name| number(&dir.join(name)).unwrap_or(0).saturating_mul(SECTOR);
            let (start, len) = (sectors("start"), sectors("size"));
            let part = within(start..start.saturating_add(len), bytes);
            if let Some(disk) = dir.parent() {
                self.add_at(disk, Some(part), depth + 1);
            }
        } else if let Some(shown) = Loop::at(dir) {
            let bytes = within(shown.bytes, bytes);
            self.loops.push(shown.name);
            if let Ok(behind) = fs::metadata(&shown.file) {
                if behind.file_type().is_block_device() {
                    self.add(behind.rdev(), Some(bytes.clone()), depth + 1);
                }
            }
            self.regions.push(Region {
                file: shown.file,
                bytes,
            });
        } else {
            let below = fs::read_dir(dir.join("slaves"));
            for below in below.into_iter().flatten().flatten() {
                if let Ok(dir) = fs::canonicalize(below.path()) {
                    self.add_at(&dir, None, depth + 1);
                }
            }
        }
    }
}

/// Some bytes of a part, or all of it, by where they lie in the whole.
fn within(part: Range<u64>, bytes: Option<Range<u64>>) -> Range<u64> {
    match bytes {
        None => part,
        Some(bytes) => {
            let place = |at: u64| part.start.saturating_add(at).min(part.end);
            place(bytes.start)..place(bytes.end)
        }
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns whether somebody has a disk, or a part of it, for himself.
fn is_claimed(name: &OsStr, mounts: &Mounts) -> bool {
    let exclusive = OFlags::EXCL.bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(exclusive);
    match options.open(Path::new("/dev").join(name)) {
        Ok(_) => false,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => true,
        // Who may not ask the kernel can look.
        Err(_) => {
            let disk = Path::new("/sys/block").join(name);
            let parts = fs::read_dir(&disk).into_iter().flatten().flatten();
            let parts = parts.map(|part| part.path());
            let mut parts = parts.filter(|part| part.join("partition").exists());
            is_seen_in_use(&disk, mounts) || parts.any(|part| is_seen_in_use(&part, mounts))
        }
    }
}

fn is_seen_in_use(dir: &Path, mounts: &Mounts) -> bool {
    let has_holders =
        fs::read_dir(dir.join("holders")).is_ok_and(|mut holders| holders.next().is_some());
    let number = fs::read_to_string(dir.join("dev")).unwrap_or_default();
    has_holders || mounts.has_device(number.trim())
}

/// Holds what is mounted here.
struct Mounts(Vec<u8>);

impl Mounts {
    fn read() -> Self {
        Self(fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    fn lines(&self) -> impl Iterator<Item = Vec<&[u8]>> {
        let lines = self.0.split(|&byte| byte == b'\n');
        lines.map(|line| line.split(|&byte| byte == b' ').collect())
    }

    /// Returns whether a device of this number is, as `MAJOR:MINOR`.
    fn has_device(&self, number: &str) -> bool {
        let mut lines = self.lines();
        lines.any(|words| words.get(2) == Some(&number.as_bytes()))
    }

    /// Returns whether the kernel has mounted a file without a device.
    fn has_file(&self, file: &Metadata) -> bool {
        let mut lines = self.lines();
        lines.any(|words| {
            let mut behind = words.into_iter().skip_while(|word| *word != b"-").skip(1);
            let kind = behind.next();
            let source = behind.next().filter(|source| source.starts_with(b"/"));
            let source = source.filter(|_| kind == Some(b"erofs")).map(unescaped);
            source
                .is_some_and(|source| fs::metadata(source).is_ok_and(|other| is_same(file, &other)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_part_lie_in_it() {
        assert_eq!(within(100..200, None), 100..200);
        assert_eq!(within(100..200, Some(10..20)), 110..120);
        assert_eq!(within(100..200, Some(50..1000)), 150..200);
        assert_eq!(
            within(u64::MAX - 1..u64::MAX, Some(5..9)),
            u64::MAX..u64::MAX
        );
    }

    #[test]
    fn readers_do_not_lock_each_other_out_and_do_lock_out_who_writes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let readers = [0; 2].map(|_| open_with_readers(file.path()).unwrap());
        let error = open_alone(file.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        drop(readers);
        let alone = open_alone(file.path()).unwrap();
        let error = open_with_readers(file.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        drop(alone);
        open_with_readers(file.path()).unwrap();
    }

    #[test]
    fn what_holds_no_bytes_is_not_opened() {
        for path in ["/dev/null", "/dev/full"] {
            let error = open_alone(Path::new(path)).unwrap_err();
            assert!(error.to_string().contains("neither"), "{error}");
        }
    }
}
