//! Ways to read and write files in a log that bypass or share the kernel's cache, and what processes agree on by locks.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anteros_tests::judge;
use anteros_tests::trees::Random;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::Errno;

use crate::log::{kill_daemon, mount, mounted, shop, unmount};
use crate::{Workshop, run};

/// Bytes that direct access is aligned to, in the file and in memory.
const ALIGNMENT: usize = 4096;

/// Mounts without and with the kernel's write-back cache.
const WAYS: [&str; 2] = ["", "--writeback"];

/// Bytes of a file.
const FILE_BYTES: usize = 1 << 20;

fn open(path: &Path, flags: OFlags) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.custom_flags(flags.bits() as i32);
    options.open(path).unwrap()
}

/// A part of a buffer that lies aligned, or `skew` bytes behind that.
fn aligned(buffer: &mut [u8], skew: usize, len: usize) -> &mut [u8] {
    let at = buffer.as_ptr().align_offset(ALIGNMENT) + skew;
    &mut buffer[at..at + len]
}

/// A file as it should be, and in how many ways it is written and read.
struct Pair {
    direct: File,
    buffered: File,
    wanted: Vec<u8>,
    buffer: Vec<u8>,
}

impl Pair {
    fn new(path: &Path) -> Self {
        Self {
            direct: open(path, OFlags::DIRECT),
            buffered: open(path, OFlags::empty()),
            wanted: Vec::new(),
            buffer: vec![0; FILE_BYTES + 2 * ALIGNMENT],
        }
    }

    fn step(&mut self, random: &mut Random) {
        let (is_direct, is_aligned) = (random.below(2) == 0, random.below(2) == 0);
        let unit = if is_aligned { ALIGNMENT } else { 1 };
        let at = random.below((FILE_BYTES / 2 / unit) as u64) as usize * unit;
        let len = (1 + random.below((FILE_BYTES / 16 / unit) as u64) as usize) * unit;
        let skew = if is_aligned { 0 } else { 24 };
        let file = if is_direct {
            &self.direct
        } else {
            &self.buffered
        };
        let bytes = aligned(&mut self.buffer, skew, len);
        match random.below(8) {
            0 => {
                file.set_len(at as u64).unwrap();
                self.wanted.resize(at, 0);
            }
            1..4 => {
                let found = file.read_at(bytes, at as u64).unwrap();
                let here = &self.wanted[at.min(self.wanted.len())..];
                let here = &here[..len.min(here.len())];
                assert!(bytes[..found] == *here, "{len} bytes at {at}: {found}");
            }
            _ => {
                bytes.fill(1 + random.below(255) as u8);
                assert_eq!(file.write_at(bytes, at as u64).unwrap(), len);
                let end = self.wanted.len().max(at + len);
                self.wanted.resize(end, 0);
                self.wanted[at..at + len].copy_from_slice(bytes);
            }
        }
    }
}

/// Aligned and not, of large and small pieces, and of the same file as it is longer and shorter.
#[test]
fn direct_access_and_the_cache_agree() {
    if !judge::has_fuse() {
        return;
    }
    for (seed, way) in [(0, ""), (1, "--writeback"), (2, ""), (2, "--writeback")] {
        let shop = shop("64M");
        let daemon = mount(&shop, way);
        let path = shop.path("mnt/file");
        let mut pair = Pair::new(&path);
        let mut random = Random(seed);
        for _ in 0..1000 {
            pair.step(&mut random);
        }
        assert!(fs::read(&path).unwrap() == pair.wanted, "seed {seed}");
        let wanted = std::mem::take(&mut pair.wanted);
        drop(pair);
        unmount(&shop, daemon);
        let daemon = mount(&shop, "");
        assert!(
            fs::read(&path).unwrap() == wanted,
            "seed {seed}, after a mount"
        );
        unmount(&shop, daemon);
    }
}

/// Runs commands of `xfs_io` on a file.
fn xfs_io(path: &Path, commands: &[&str]) -> String {
    let mut xfs_io = Command::new("xfs_io");
    xfs_io.arg("-f");
    for command in commands {
        xfs_io.args(["-c", command]);
    }
    let done = run(xfs_io.arg(path));
    assert_eq!((done.status, &done.err[..]), (Some(0), ""), "{commands:?}");
    done.out
}

/// Tests that what is written to a shared mapping is seen by those who read, what they write in the mapping; and after
/// `msync` or `fsync` it outlives the daemon.
#[test]
fn a_mapping_is_the_file() {
    if !judge::has_fuse() || !judge::has_program("xfs_io") {
        return;
    }
    for way in WAYS {
        a_mapping_is_the_file_by(way);
    }
}

fn a_mapping_is_the_file_by(way: &str) {
    let shop = shop("64M");
    let daemon = mount(&shop, way);
    let path = shop.path("mnt/file");
    fs::write(&path, vec![1; 300_000]).unwrap();
    let reader = File::open(&path).unwrap();
    let mut writer = Command::new("xfs_io");
    writer.args([
        "-c",
        "mmap 0 300000",
        "-c",
        "mwrite -S 2 5000 100000",
        "-c",
        "pwrite -q -S 3 50000 10",
        "-c",
        "mread -v 50000 10",
        "-c",
        "msync -s",
    ]);
    let said = run(writer.arg(&path));
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.out.contains("03 03 03 03 03"), "{}", said.out);
    let mut wanted = vec![1; 300_000];
    wanted[5000..105_000].fill(2);
    wanted[50_000..50_010].fill(3);
    let mut found = vec![0; 300_000];
    reader.read_exact_at(&mut found, 0).unwrap();
    assert!(found == wanted, "through a file that was open before");
    xfs_io(
        &shop.path("mnt/synced"),
        &[
            "truncate 200000",
            "mmap 0 200000",
            "mwrite -S 4 100 150000",
            "fsync",
        ],
    );
    drop(reader);
    kill_daemon(&shop, daemon);
    let daemon = mount(&shop, "");
    assert!(fs::read(&path).unwrap() == wanted, "after msync");
    let mut wanted = vec![0; 200_000];
    wanted[100..150_100].fill(4);
    assert!(
        fs::read(shop.path("mnt/synced")).unwrap() == wanted,
        "after fsync"
    );
    unmount(&shop, daemon);
}

/// A shell that tries to lock a file as `flock` does; says whether it could.
fn can_lock(shop: &Workshop, how: &str) -> bool {
    let mut locker = Command::new("flock");
    locker.args(["--nonblock", how]).arg(shop.path("mnt/file"));
    run(locker.arg("true")).status == Some(0)
}

#[test]
fn locks_hold_between_processes() {
    if !judge::has_fuse() || !judge::has_program("flock") || !judge::has_program("sqlite3") {
        return;
    }
    let (shop, daemon) = mounted("64M");
    let file = File::create(shop.path("mnt/file")).unwrap();
    flock(&file, FlockOperation::LockShared).unwrap();
    assert!(can_lock(&shop, "--shared") && !can_lock(&shop, "--exclusive"));
    flock(&file, FlockOperation::LockExclusive).unwrap();
    assert!(!can_lock(&shop, "--shared"));
    drop(file);
    assert!(can_lock(&shop, "--exclusive"));

    // SQLite's are those of `fcntl`, on ranges. `.shell` runs another process while the first one holds them.
    let database = shop.path("mnt/database");
    let sqlite3 = |text: &str| run(Command::new("sqlite3").arg(&database).arg(text));
    assert_eq!(sqlite3("create table t(n)").status, Some(0));
    let held = |begin: &str, other: &str| {
        let other = format!(".shell sqlite3 {} '{other}'", database.display());
        let mut holder = Command::new("sqlite3");
        let said = run(holder.arg(&database).args([begin, &other, "rollback"]));
        [said.out, said.err].concat()
    };
    let write = "insert into t values(1)";
    assert!(held("begin exclusive", write).contains("locked"));
    assert!(held("begin exclusive", "select count(*) from t").contains("locked"));
    assert!(held("begin immediate", write).contains("locked"));
    assert_eq!(held("begin immediate", "select count(*) from t"), "0\n");
    assert_eq!(held("begin", write), "");
    assert_eq!(sqlite3("select count(*) from t").out, "1\n");
    unmount(&shop, daemon);
}

/// Access times are those of `relatime`: noted when something was changed since, or after a day.
#[test]
fn a_read_is_noted_if_nothing_was_since_the_last_change() {
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("64M");
    let path = shop.path("mnt/file");
    fs::write(&path, "text").unwrap();
    let times = |accessed: Duration, modified: Duration| {
        let now = SystemTime::now();
        let times = fs::FileTimes::new().set_accessed(now - accessed);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_times(times.set_modified(now - modified)).unwrap();
    };
    // What lies in the kernel's cache is not asked for again.
    let remounted = |daemon| {
        unmount(&shop, daemon);
        mount(&shop, "")
    };
    let read = || {
        let before = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        let after = fs::metadata(&path).unwrap();
        assert_eq!(before.mtime(), after.mtime());
        after.atime() > before.atime()
    };
    let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
    times(2 * hour, hour);
    let daemon = remounted(daemon);
    assert!(read(), "older than the change");
    let daemon = remounted(daemon);
    sleep(Duration::from_millis(1100));
    assert!(!read(), "newer than the change");
    times(2 * day, 3 * day);
    let daemon = remounted(daemon);
    assert!(read(), "older than a day");
    let daemon = remounted(daemon);
    assert!(
        fs::metadata(&path).unwrap().accessed().unwrap() > SystemTime::now() - hour,
        "it is kept"
    );
    unmount(&shop, daemon);
}

/// The kernel takes what it has kept for written unless it is told otherwise.
#[test]
fn a_mapping_that_finds_room_for_a_part_is_told() {
    if !judge::has_fuse() || !judge::has_program("xfs_io") {
        return;
    }
    for way in WAYS {
        a_mapping_finds_room_for_a_part_by(way);
    }
}

fn a_mapping_finds_room_for_a_part_by(way: &str) {
    let shop = shop("64M");
    // What is compressed later makes room.
    let daemon = mount(&shop, &format!("{way} --policy none"));
    let path = shop.path("mnt/file");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let free = || {
        let found = rustix::fs::statvfs(shop.path("mnt")).unwrap();
        found.f_bavail * found.f_frsize
    };
    let filler = File::create(shop.path("mnt/filler")).unwrap();
    let chunk = vec![7; 64 << 10];
    let mut at = 0;
    while free() > 600 << 10 {
        filler.write_all_at(&chunk, at).unwrap();
        at += chunk.len() as u64;
    }
    let mut writer = Command::new("xfs_io");
    writer.args([
        "-c",
        "mmap 0 1m",
        "-c",
        "mwrite -S 2 0 1m",
        "-c",
        "msync -s",
    ]);
    let said = run(writer.arg(&path));
    assert!(said.err.contains("No space left"), "{said:?}");
    drop(filler);
    unmount(&shop, daemon);
}

/// Content that is written back through a file that was opened to append does not go to the end.
#[test]
fn a_mapping_of_who_appends_is_written_where_it_lies() {
    if !judge::has_fuse() || !judge::has_program("xfs_io") {
        return;
    }
    for way in WAYS {
        a_mapping_of_who_appends_by(way);
    }
}

fn a_mapping_of_who_appends_by(way: &str) {
    let shop = shop("64M");
    let daemon = mount(&shop, way);
    let path = shop.path("mnt/file");
    fs::write(&path, vec![1; 12_288]).unwrap();
    let mut writer = Command::new("xfs_io");
    writer.args([
        "-a",
        "-c",
        "mmap 0 12288",
        "-c",
        "mwrite -S 2 0 8192",
        "-c",
        "msync -s",
    ]);
    let said = run(writer.arg(&path));
    assert_eq!((said.status, &said.err[..]), (Some(0), ""));
    let mut wanted = vec![2; 8192];
    wanted.extend([1; 4096]);
    assert_eq!(fs::metadata(&path).unwrap().len(), wanted.len() as u64);
    assert!(fs::read(&path).unwrap() == wanted);
    unmount(&shop, daemon);
}

/// Nor can ranges be inserted or collapsed: the kernel refuses that before a daemon is asked.
#[test]
fn extents_are_not_told_and_files_have_a_largest_size() {
    const LARGEST: u64 = 2_152_119_418_880;
    if !judge::has_fuse() {
        return;
    }
    let (shop, daemon) = mounted("64M");
    let path = shop.path("mnt/file");
    fs::write(&path, vec![1; 12_288]).unwrap();
    let file = open(&path, OFlags::empty());
    for mode in [FallocateFlags::INSERT_RANGE, FallocateFlags::COLLAPSE_RANGE] {
        assert_eq!(fallocate(&file, mode, 4096, 4096), Err(Errno::OPNOTSUPP));
    }
    if judge::has_program("xfs_io") {
        let said = run(Command::new("xfs_io").args(["-c", "fiemap"]).arg(&path));
        assert!(said.err.contains("not supported"), "{said:?}");
    }
    let too_large = |done: std::io::Result<()>| {
        let errno = done.unwrap_err().raw_os_error();
        assert_eq!(errno, Some(Errno::FBIG.raw_os_error()));
    };
    too_large(file.set_len(LARGEST + 1));
    too_large(file.write_all_at(b"x", LARGEST));
    too_large(fallocate(&file, FallocateFlags::empty(), LARGEST, 1).map_err(Into::into));
    assert_eq!(file.metadata().unwrap().len(), 12_288);
    assert_eq!(file.write_at(b"end!", LARGEST - 3).unwrap(), 3);
    file.set_len(LARGEST).unwrap();
    let mut end = [0; 8];
    assert_eq!(file.read_at(&mut end, LARGEST - 3).unwrap(), 3);
    assert_eq!(&end[..3], b"end");
    drop(file);
    unmount(&shop, daemon);
}
