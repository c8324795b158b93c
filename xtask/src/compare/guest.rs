//! The judge: this program as the first process of a virtual machine, where it mounts one mutant after the other by the
//! kernel and writes down what it finds. Should the kernel die of one, the machine goes off, and is started anew
//! behind that one.
//!
//! ```text
//! mutants, on the first disk   MAGIC | count: u64 | (offset: u64, bytes: u64)... | images at multiples of 4096
//! answers, on the second       (number: u64, bytes: u64 | text)...; BEGUN instead of the bytes when it begins
//! ```

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use anteros_tests::host::HostFs;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::system::RebootCommand;

use super::walk;

/// States how the disk of mutants begins.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"mutants\n");
/// The length of an answer that is yet to come.
pub(crate) const BEGUN: u64 = u64::MAX;
/// Number of the entry that follows the last mutant.
pub(crate) const END: u64 = u64::MAX;
/// States what is written of a mutant that the kernel does not mount begins so.
pub(crate) const REFUSED: &str = "refused";

/// The word of the kernel's command line that says with which mutant to begin.
pub(crate) const FIRST: &str = "anteros.first=";

/// The modules that the kernel needs, in this order.
pub(crate) const MODULES: [&str; 4] = ["virtio_blk", "loop", "libcrc32c", "erofs"];

const MUTANTS: &str = "/dev/vda";
const ANSWERS: &str = "/dev/vdb";
const PLACE: &str = "/mnt";

/// Judges all mutants, and turns the machine off.
pub(crate) fn main() -> ! {
    if let Err(error) = judge() {
        println!("guest: {error}");
    }
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

fn judge() -> Result<(), Box<dyn Error>> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        fs::create_dir_all(place)?;
        mount(kind, place, kind, MountFlags::empty(), None)?;
    }
    fs::create_dir_all(PLACE)?;
    load_modules()?;
    let words = fs::read_to_string("/proc/cmdline")?;
    let first = words
        .split_whitespace()
        .find_map(|word| word.strip_prefix(FIRST));
    let first = first.ok_or("it is not said where to begin")?.parse()?;
    let mutants = File::open(MUTANTS)?;
    let mut answers = Answers::open()?;
    let [magic, count] = numbers(&mutants, 0)?;
    if magic != MAGIC {
        return Err("no mutants on the first disk".into());
    }
    for number in first..count {
        let [offset, bytes] = numbers(&mutants, 16 * (1 + number))?;
        answers.begin(number)?;
        let text = look(offset, bytes).unwrap_or_else(|error| format!("{REFUSED} {error}\n"));
        answers.put(number, &text)?;
    }
    answers.begin(END)?;
    Ok(())
}

/// The modules lie in a directory of their own; what is not there is part of the kernel.
fn load_modules() -> Result<(), Box<dyn Error>> {
    /// `MODULE_INIT_COMPRESSED_FILE`
    const COMPRESSED: i32 = 4;
    for name in MODULES {
        for (end, flags) in [("", 0), (".xz", COMPRESSED)] {
            let Ok(module) = File::open(format!("/modules/{name}.ko{end}")) else {
                continue;
            };
            let loaded = rustix::system::finit_module(&module, c"", flags);
            loaded.map_err(|error| format!("module {name}: {error}"))?;
        }
    }
    Ok(())
}

fn numbers(file: &File, at: u64) -> io::Result<[u64; 2]> {
    let mut bytes = [[0; 8]; 2];
    file.read_exact_at(bytes.as_flattened_mut(), at)?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// Mounts a mutant and records what is there.
fn look(offset: u64, bytes: u64) -> Result<String, Box<dyn Error>> {
    let device = Loop::over(offset, bytes)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount(&*device.0, PLACE, "erofs", flags, None)?;
    let text = walk::record(&HostFs::new(Path::new(PLACE)));
    unmount(PLACE, UnmountFlags::empty())?;
    Ok(text)
}

/// A loop device over a part of the first disk.
struct Loop(String);

impl Loop {
    fn over(offset: u64, bytes: u64) -> Result<Self, Box<dyn Error>> {
        let (offset, bytes) = (offset.to_string(), bytes.to_string());
        let mut losetup = Command::new("/bin/losetup");
        losetup.args(["-r", "-o", &offset, "--sizelimit", &bytes]);
        let said = losetup.args(["-f", "--show", MUTANTS]).output()?;
        let name = String::from_utf8(said.stdout)?.trim().to_owned();
        match said.status.success() {
            true => Ok(Self(name)),
            false => Err(String::from_utf8_lossy(&said.stderr).into_owned().into()),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("/bin/losetup").args(["-d", &self.0]).status();
    }
}

/// The second disk, to which each word goes at once.
struct Answers {
    disk: File,
    at: u64,
}

impl Answers {
    fn open() -> io::Result<Self> {
        let dsync = rustix::fs::OFlags::DSYNC.bits() as i32;
        let disk = OpenOptions::new()
            .write(true)
            .custom_flags(dsync)
            .open(ANSWERS)?;
        Ok(Self { disk, at: 0 })
    }

    /// Says that a mutant is looked at now; its answer will take this place.
    fn begin(&self, number: u64) -> io::Result<()> {
        let head = [number.to_le_bytes(), BEGUN.to_le_bytes()];
        self.disk.write_all_at(head.as_flattened(), self.at)
    }

    fn put(&mut self, number: u64, text: &str) -> io::Result<()> {
        let mut bytes = Vec::new();
        bytes.write_all(&number.to_le_bytes())?;
        bytes.write_all(&(text.len() as u64).to_le_bytes())?;
        bytes.write_all(text.as_bytes())?;
        self.disk.write_all_at(&bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
