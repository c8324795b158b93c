//! The session against the kernel: a file system in memory, really mounted.
//!
//! These tests need root and `/dev/fuse`. Where they are missing the tests say so and pass, unless
//! `ANTEROS_REQUIRE_JUDGES` is set: then they fail.

#[path = "support/direct_io.rs"]
mod direct_io;
#[path = "support/mod.rs"]
mod memory;
#[path = "support/sink.rs"]
mod sink;

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anteros_core::Ino;
use anteros_fuse::{
    MountError, MountOptions, NoIoUring, Operation, Session, UnmountError, Unmounter, unmount,
};
use rustix::fs::{Dir, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use memory::{ACL, MemoryFs, crowd_name, pattern};
use sink::Sink;

/// Returns whether the kernel can judge; says loudly if not.
fn judge() -> bool {
    let missing = if !rustix::process::geteuid().is_root() {
        "root"
    } else if OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        "/dev/fuse"
    } else {
        return true;
    };
    missing_judge(missing)
}

fn missing_judge(what: &str) -> bool {
    assert!(
        std::env::var_os("ANTEROS_REQUIRE_JUDGES").is_none(),
        "missing judge: {what}"
    );
    eprintln!("MISSING JUDGE: {what}; the FUSE session was not tested against the kernel");
    false
}

/// A mounted `MemoryFs` with its server on a thread; both go when it is dropped.
struct Mounted {
    fs: Arc<MemoryFs>,
    dir: TempDir,
    unmounter: Unmounter,
    server: Option<JoinHandle<std::io::Result<()>>>,
}

impl Mounted {
    fn new(crowd: u64) -> Self {
        Self::with(crowd, &MountOptions::default())
    }

    fn with(crowd: u64, options: &MountOptions) -> Self {
        Self::serving(MemoryFs::sample(crowd), options, |session| session)
    }

    fn serving(
        fs: MemoryFs,
        options: &MountOptions,
        prepare: impl FnOnce(Session) -> Session,
    ) -> Self {
        let fs = Arc::new(fs);
        let dir = TempDir::new().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let session = prepare(Session::mount(fs.clone(), dir.path(), options).unwrap());
        let unmounter = session.unmounter();
        Self {
            fs,
            dir,
            unmounter,
            server: Some(thread::spawn(move || session.run())),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens a file so that each read of it is a request.
    fn direct(&self, name: &str) -> File {
        OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(self.path(name))
            .unwrap()
    }

    fn reads(&self) -> usize {
        self.fs.reads.load(Ordering::Relaxed)
    }

    fn stat(&self, name: &str) -> Metadata {
        fs::symlink_metadata(self.path(name)).unwrap()
    }

    /// Unmounts and waits for the server to say how it went.
    fn end(&mut self) -> std::io::Result<()> {
        self.unmounter.unmount().unwrap();
        self.server
            .take()
            .map_or(Ok(()), |server| server.join().unwrap())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let ended = self.end();
        assert!(thread::panicking() || ended.is_ok(), "{ended:?}");
    }
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&result.unwrap_err())
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .any(|line| line.split(' ').nth(4) == path.to_str())
}

#[test]
fn stat_shows_the_file_systems_own_numbers() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    let names = [
        ("", 36),
        ("hello", 1),
        ("zero", 0),
        ("high", 1 << 63 | 5),
        ("crowd", 50),
    ];
    for (name, ino) in names {
        assert_eq!(mount.stat(name).ino(), ino, "{name:?}");
    }
    assert_eq!(mount.stat("crowd/..").ino(), 36);
    let big = mount.stat("big");
    assert_eq!(
        (big.mode(), big.len(), big.blocks()),
        (0o104_755, 5_000_001, 9766)
    );
    assert_eq!((big.mtime(), big.mtime_nsec()), (-1, 250_000_000));
    let null = mount.stat("null");
    assert!(null.file_type().is_char_device());
    assert_eq!(null.rdev(), rustix::fs::makedev(1, 3));
}

#[test]
fn whole_files_and_pieces_arrive_as_they_are() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    let content = pattern(5_000_001);
    assert!(fs::read(mount.path("big")).unwrap() == content);
    let direct = mount.direct("big");
    let mut buf = vec![0; 3 << 20];
    direct.read_exact_at(&mut buf, 4096).unwrap();
    assert!(
        buf == content[4096..][..3 << 20],
        "requests of the largest size"
    );
    assert_eq!(fs::read(mount.path("zero")).unwrap(), b"ino 0\n");
    assert_eq!(fs::read(mount.path("high")).unwrap(), b"bit 63\n");
    assert_eq!(
        fs::read_link(mount.path("link")).unwrap(),
        Path::new("crowd/../hello")
    );
    assert_eq!(fs::read(mount.path("link")).unwrap(), b"hello, world\n");
}

#[test]
fn what_was_seen_once_is_not_asked_again() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    for name in ["absent", "hello"] {
        fs::metadata(mount.path(name)).ok();
        let lookups = mount.fs.lookups.load(Ordering::Relaxed);
        fs::metadata(mount.path(name)).ok();
        assert_eq!(mount.fs.lookups.load(Ordering::Relaxed), lookups, "{name}");
    }
    fs::read(mount.path("big")).unwrap();
    let reads = mount.fs.reads.load(Ordering::Relaxed);
    fs::read(mount.path("big")).unwrap();
    assert_eq!(
        mount.fs.reads.load(Ordering::Relaxed),
        reads,
        "pages outlive the open file"
    );
}

#[test]
fn a_large_directory_lists_once_and_seeks_anywhere() {
    if !judge() {
        return;
    }
    const CROWD: u64 = 70_000;
    let positions = {
        let mount = Mounted::new(CROWD);
        let listing = list(&mount.path("crowd"), 0);
        let names: BTreeSet<_> = listing.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(
            (listing.len(), names.len()),
            (CROWD as usize + 2, CROWD as usize + 2)
        );
        assert!((0..CROWD).all(|i| names.contains(&crowd_name(i))));
        seek_everywhere(&mount, &listing);
        listing
    };
    // Once more where the kernel has nothing cached.
    seek_everywhere(&Mounted::new(CROWD), &positions);
}

fn seek_everywhere(mount: &Mounted, listing: &[(Vec<u8>, i64)]) {
    for i in [1, 69_999, 35_000, 2, 50_001] {
        let rest = list(&mount.path("crowd"), listing[i].1);
        assert!(rest == listing[i + 1..], "after entry {i}");
    }
}

/// Names with the position after each, from the position `from` on.
fn list(path: &Path, from: i64) -> Vec<(Vec<u8>, i64)> {
    let mut dir = Dir::new(File::open(path).unwrap()).unwrap();
    dir.seek(from).unwrap();
    dir.map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().to_bytes().to_vec(), entry.offset())
    })
    .collect()
}

#[test]
fn listings_name_numbers_and_kinds() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    for entry in fs::read_dir(mount.dir.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if ["lost", "nowhere"].contains(&name.as_str()) {
            let expected = if name == "lost" {
                Errno::NOENT
            } else {
                Errno::IO
            };
            assert_eq!(errno(entry.metadata()), Some(expected), "{name}");
            continue;
        }
        let stat = mount.stat(&name);
        assert_eq!(
            std::os::unix::fs::DirEntryExt::ino(&entry),
            stat.ino(),
            "{name}"
        );
        assert_eq!(entry.file_type().unwrap(), stat.file_type(), "{name}");
    }
}

#[test]
fn extended_attributes_and_acls() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    let hello = mount.path("hello");
    let mut buf = [0; 256];
    let len = rustix::fs::getxattr(&hello, "user.colour", &mut buf).unwrap();
    assert_eq!(&buf[..len], b"blue");
    assert_eq!(rustix::fs::getxattr(&hello, "user.empty", &mut buf), Ok(0));
    assert_eq!(
        rustix::fs::getxattr(&hello, "user.none", &mut buf),
        Err(Errno::NODATA)
    );
    assert_eq!(
        rustix::fs::getxattr(&hello, "user.colour", &mut buf[..3]),
        Err(Errno::RANGE)
    );
    let len = rustix::fs::listxattr(&hello, &mut buf).unwrap();
    assert_eq!(
        &buf[..len],
        b"user.colour\0user.empty\0system.posix_acl_access\0"
    );
    let len = rustix::fs::getxattr(&hello, "system.posix_acl_access", &mut buf).unwrap();
    assert_eq!(&buf[..len], ACL);
    assert!(may_read(65534, &hello), "the ACL lets this user in");
    assert!(!may_read(65533, &hello), "and no other");
}

#[test]
fn acls_can_be_read_where_permissions_are_not_checked() {
    if !judge() {
        return;
    }
    let options = MountOptions {
        default_permissions: false,
        ..MountOptions::default()
    };
    let mount = Mounted::with(10, &options);
    let mut buf = [0; 256];
    let hello = mount.path("hello");
    let len = rustix::fs::getxattr(&hello, "system.posix_acl_access", &mut buf).unwrap();
    assert_eq!(&buf[..len], ACL);
    assert!(
        may_read(65533, &mount.path("secret")),
        "mode 0600, but nobody looks"
    );
}

#[test]
fn others_may_enter_only_if_asked_and_permissions_hold() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    assert!(may_read(65534, &mount.path("big")));
    assert!(!may_read(65534, &mount.path("secret")));
    let private = MountOptions {
        allow_other: false,
        ..MountOptions::default()
    };
    let mount = Mounted::with(10, &private);
    assert!(fs::read(mount.path("big")).is_ok());
    assert!(!may_read(65534, &mount.path("big")));
}

/// Returns whether another user can read a file.
fn may_read(uid: u32, path: &Path) -> bool {
    let ids = [
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--clear-groups".into(),
    ];
    let output = Command::new("setpriv")
        .args(ids)
        .arg("cat")
        .arg(path)
        .output()
        .unwrap();
    let refused = String::from_utf8_lossy(&output.stderr).contains("Permission denied");
    assert!(output.status.success() != refused, "{output:?}");
    output.status.success()
}

#[test]
fn holes_and_data_are_found() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    let sparse = File::open(mount.path("sparse")).unwrap();
    let seek = |to| rustix::fs::seek(&sparse, to);
    assert_eq!(seek(SeekFrom::Hole(0)), Ok(64 << 10));
    assert_eq!(seek(SeekFrom::Data(64 << 10)), Ok(1 << 20));
    assert_eq!(seek(SeekFrom::Hole(1 << 20)), Ok(3 << 19));
    assert_eq!(seek(SeekFrom::Data(3 << 19)), Err(Errno::NXIO));
    assert_eq!(seek(SeekFrom::End(0)), Ok(3 << 19));
    let tail = File::open(mount.path("tail")).unwrap();
    assert_eq!(
        rustix::fs::seek(&tail, SeekFrom::Data(5000)),
        Err(Errno::NXIO)
    );
}

#[test]
fn the_mount_table_and_statfs_tell_what_it_is() {
    if !judge() {
        return;
    }
    let options = MountOptions {
        fs_name: "a, b\\c.img".into(),
        subtype: "sample".into(),
        ..MountOptions::default()
    };
    let mount = Mounted::with(10, &options);
    let stat = rustix::fs::statvfs(mount.dir.path()).unwrap();
    assert_eq!(
        (stat.f_blocks, stat.f_frsize, stat.f_namemax),
        (1234, 4096, 255)
    );
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table
        .lines()
        .find(|line| line.contains(mount.dir.path().to_str().unwrap()));
    let fields: Vec<_> = line.unwrap().split(' ').collect();
    assert_eq!(
        (fields[0], fields[2]),
        ("a,\\040b\\134c.img", "fuse.sample")
    );
    assert!(fields[3].starts_with("ro,"), "{}", fields[3]);
    assert!(
        !fields[3].contains("nosuid") && !fields[3].contains("nodev"),
        "{}",
        fields[3]
    );
}

#[test]
fn nothing_can_be_changed() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    let hello = mount.path("hello");
    let rofs = Some(Errno::ROFS);
    assert_eq!(errno(File::create(mount.path("new"))), rofs);
    assert_eq!(errno(OpenOptions::new().write(true).open(&hello)), rofs);
    assert_eq!(errno(fs::create_dir(mount.path("new"))), rofs);
    assert_eq!(errno(fs::remove_file(&hello)), rofs);
    assert_eq!(errno(fs::rename(&hello, mount.path("new"))), rofs);
    assert_eq!(
        errno(fs::set_permissions(
            &hello,
            fs::Permissions::from_mode(0o777)
        )),
        rofs
    );
    let flags = rustix::fs::XattrFlags::empty();
    assert_eq!(
        rustix::fs::setxattr(&hello, "user.a", b"b", flags),
        Err(Errno::ROFS)
    );
}

#[test]
fn missing_and_impossible_names() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    for (name, expected) in [
        ("absent".to_owned(), Errno::NOENT),
        ("lost".to_owned(), Errno::NOENT),
        ("hello/x".to_owned(), Errno::NOTDIR),
        ("x".repeat(255), Errno::NOENT),
        ("x".repeat(256), Errno::NAMETOOLONG),
    ] {
        assert_eq!(
            errno(fs::symlink_metadata(mount.path(&name))),
            Some(expected),
            "{name}"
        );
    }
}

#[test]
fn faults_end_reads_and_not_the_server() {
    if !judge() {
        return;
    }
    let mount = Mounted::new(10);
    for name in ["corrupt", "unreadable", "bug"] {
        let error = errno(fs::read(mount.path(name)));
        assert_eq!(error, Some(Errno::IO), "{name}");
    }
    assert_eq!(fs::read(mount.path("hello")).unwrap(), b"hello, world\n");
}

#[test]
fn many_readers_at_once() {
    if !judge() {
        return;
    }
    for workers in [1, 2, 8] {
        let mount = Mounted::with(
            500,
            &MountOptions {
                workers,
                ..MountOptions::default()
            },
        );
        let content = pattern(5_000_001);
        thread::scope(|scope| {
            for reader in 0..8u64 {
                let (mount, content) = (&mount, &content);
                scope.spawn(move || {
                    let big = File::open(mount.path("big")).unwrap();
                    let mut buf = [0; 5000];
                    for i in 0..500 {
                        let at = (i * 7919 + reader * 611_953) % 4_990_000;
                        big.read_exact_at(&mut buf, at).unwrap();
                        assert!(buf == content[at as usize..][..5000], "at {at}");
                        let name = String::from_utf8(crowd_name((i * 13 + reader) % 500)).unwrap();
                        let text = fs::read_to_string(mount.path("crowd").join(name)).unwrap();
                        assert_eq!(text, (1_000_000 + (i * 13 + reader) % 500).to_string());
                    }
                });
            }
        });
    }
}

fn workers(workers: usize) -> MountOptions {
    MountOptions {
        workers,
        ..MountOptions::default()
    }
}

/// Tests that one who asks behind a read finds it told, however long the observer takes.
#[test]
fn whoever_catches_up_knows_of_all_that_was_answered() {
    if !judge() {
        return;
    }
    let reads = Arc::new(AtomicUsize::new(0));
    let (counter, counted) = (reads.clone(), reads);
    let mount = Mounted::serving(MemoryFs::sample(10), &workers(4), move |session| {
        let catch_up = session.catch_up();
        let session = session.on_answer(move |answered| {
            if answered.operation == Operation::Read {
                thread::sleep(Duration::from_millis(100));
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        session.on_attribute(move |asked| {
            catch_up();
            let reads = || vec![counted.load(Ordering::Relaxed) as u8];
            (asked.name == b"user.reads").then(reads)
        })
    });
    let file = mount.direct("big");
    for reads in 1..=3 {
        file.read_exact_at(&mut [0; 4096], 0).unwrap();
        let mut found = [0];
        let len = rustix::fs::getxattr(mount.path("hello"), "user.reads", &mut found);
        assert_eq!((len, found), (Ok(1), [reads]));
    }
}

#[test]
fn however_many_ask_each_request_is_answered_once() {
    if !judge() {
        return;
    }
    let answers = Arc::new(AtomicUsize::new(0));
    let count = answers.clone();
    let mut mount = Mounted::serving(MemoryFs::sample(10), &workers(4), move |session| {
        session.on_answer(move |answered| {
            let is_read = answered.operation == Operation::Read;
            count.fetch_add(usize::from(is_read), Ordering::Relaxed);
        })
    });
    let content = pattern(5_000_001);
    thread::scope(|scope| {
        for reader in 0..16 {
            let (file, content) = (mount.direct("big"), &content);
            scope.spawn(move || {
                let mut buf = vec![0; 64 << 10];
                for i in 0..300 {
                    // Small and large, alone and in crowds.
                    let buf = &mut buf[..[4096, 64 << 10][i % 2]];
                    let at = ((i * 7919 + reader * 104_729) % 1000) * 4096;
                    file.read_exact_at(buf, at as u64).unwrap();
                    assert!(*buf == content[at..][..buf.len()], "at {at}");
                }
            });
        }
    });
    mount.end().unwrap();
    assert_eq!(mount.reads(), 16 * 300);
    assert_eq!(answers.load(Ordering::Relaxed), 16 * 300);
}

#[test]
fn unmounting_under_load_ends_the_session_whoever_rests() {
    if !judge() {
        return;
    }
    for count in [1, 2, 8] {
        let mut mount = Mounted::with(10, &workers(count));
        let path = mount.path("hello");
        thread::scope(|scope| {
            let readers: Vec<_> =
                (0..3)
                    .map(|_| {
                        let file = mount.direct("big");
                        let path = &path;
                        scope.spawn(move || {
                            while file.read_at(&mut [0; 4096], 0).is_ok() && path.exists() {}
                        })
                    })
                    .collect();
            while mount.reads() < 100 {
                thread::yield_now();
            }
            let server = mount.server.take().unwrap();
            mount.unmounter.unmount().unwrap();
            for reader in readers {
                reader.join().unwrap();
            }
            server.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_slow_answer_holds_up_nobody_else() {
    if !judge() {
        return;
    }
    let mount = Mounted::with(10, &workers(2));
    let big = mount.direct("big");
    let read = |_| big.read_exact_at(&mut [0; 4096], 0).unwrap();
    // So quick that nobody would expect what comes next to take long.
    (0..500).for_each(read);
    mount.fs.gate.close(true);
    thread::scope(|scope| {
        let gated = mount.direct("gated");
        scope.spawn(move || gated.read_at(&mut [0; 4096], 0).unwrap());
        mount.fs.gate.await_waiting(1);
        (0..500).for_each(read);
        mount.fs.gate.close(false);
    });
}

#[test]
fn unmounting_while_every_worker_waits_ends_the_session_when_they_are_back() {
    if !judge() {
        return;
    }
    for abort in [false, true] {
        let mut mount = Mounted::with(10, &workers(3));
        mount.fs.gate.close(true);
        thread::scope(|scope| {
            let readers = [(); 3].map(|()| {
                let gated = mount.direct("gated");
                scope.spawn(move || gated.read_at(&mut [0; 4096], 0))
            });
            mount.fs.gate.await_waiting(3);
            if abort {
                use rustix::mount::{UnmountFlags, unmount};
                let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
                unmount(mount.dir.path(), flags).unwrap();
            } else {
                mount.unmounter.unmount().unwrap();
            }
            assert!(!is_mounted(mount.dir.path()));
            assert!(!mount.server.as_ref().unwrap().is_finished());
            mount.fs.gate.close(false);
            for reader in readers {
                // Given up at once, or answered in the end.
                assert_eq!(reader.join().unwrap().is_err(), abort);
            }
        });
        mount.server.take().unwrap().join().unwrap().unwrap();
    }
}

#[test]
fn answers_are_told_by_kind_and_to_whom_it_may_harm() {
    if !judge() {
        return;
    }
    use Operation::{Lookup, Other, Read, Readdir, Readlink, Xattr};
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let log = seen.clone();
    let mut mount = Mounted::serving(MemoryFs::sample(10), &workers(2), move |session| {
        session.on_answer(move |answered| {
            log.lock().unwrap().insert(answered.operation);
            assert!(answered.operation != Readlink, "an observer with a fault");
        })
    });
    fs::read(mount.path("hello")).unwrap();
    fs::read_link(mount.path("link")).unwrap();
    fs::read_dir(mount.path("crowd")).unwrap().for_each(drop);
    rustix::fs::getxattr(mount.path("hello"), "user.colour", &mut [0; 9]).unwrap();
    rustix::fs::statvfs(mount.dir.path()).unwrap();
    mount.end().unwrap();
    let mut seen = seen.lock().unwrap_or_else(|e| e.into_inner()).clone();
    seen.remove(&Operation::Getattr);
    assert_eq!(seen, [Lookup, Readdir, Read, Readlink, Xattr, Other].into());
}

#[test]
fn reads_are_no_larger_than_agreed() {
    if !judge() {
        return;
    }
    for len in [128 << 10, 512 << 10] {
        let options = MountOptions {
            read_len_max: len,
            ..MountOptions::default()
        };
        let mount = Mounted::with(10, &options);
        let mut buf = vec![0; 3 << 20];
        mount.direct("big").read_exact_at(&mut buf, 4096).unwrap();
        assert!(buf == pattern(5_000_001)[4096..][..3 << 20]);
        assert_eq!(mount.fs.read_len_max.load(Ordering::Relaxed), len);
    }
}

#[test]
fn readahead_is_lowered_and_raised() {
    if !judge() {
        return;
    }
    for (wanted, expected) in [
        (None, 128 << 10),
        (Some(0), 0),
        (Some(16 << 10), 16 << 10),
        (Some(1 << 20), 1 << 20),
    ] {
        let options = MountOptions {
            readahead: wanted,
            ..MountOptions::default()
        };
        let mut effective = None;
        let mount = Mounted::serving(MemoryFs::sample(10), &options, |session| {
            effective = session.readahead();
            session
        });
        assert_eq!(effective, Some(expected), "{wanted:?}");
        let mut file = File::open(mount.path("big")).unwrap();
        while file.read(&mut [0; 4096]).unwrap() > 0 {}
        let largest = mount.fs.read_len_max.load(Ordering::Relaxed) as u64;
        assert!(largest <= expected.max(4096), "{wanted:?}: {largest} bytes");
        let raised = wanted.is_some_and(|len| len > 128 << 10);
        assert!(
            !raised || largest > 128 << 10,
            "{wanted:?}: {largest} bytes"
        );
    }
}

#[test]
fn memory_files_are_read_without_a_request() {
    if !judge() || !passthrough() {
        return;
    }
    let mount = Mounted::serving(MemoryFs::lending(10), &workers(2), |session| session);
    let content = pattern(5_000_001);
    let held = File::open(mount.path("big")).unwrap();
    for _ in 0..2 {
        assert!(fs::read(mount.path("big")).unwrap() == content);
    }
    let mut buf = vec![0; 1 << 20];
    held.read_exact_at(&mut buf, 12_345).unwrap();
    assert!(buf == content[12_345..][..1 << 20]);
    assert_eq!(mount.reads(), 0);
    for _ in 0..2 {
        assert_eq!(fs::read(mount.path("hello")).unwrap(), b"hello, world\n");
        assert_eq!(mount.reads(), 1, "others are cached as ever");
    }
    assert_eq!(list(&mount.path("crowd"), 0).len(), 12);
}

/// Returns whether the kernel knows passthrough, which it does from 6.9 on; says loudly if not.
fn passthrough() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 9) || missing_judge("a kernel with FUSE passthrough")
}

#[test]
fn what_was_stored_is_read_without_a_request() {
    if !judge() {
        return;
    }
    let mut notifier = None;
    let mut mount = Mounted::serving(MemoryFs::sample(10), &workers(1), |session| {
        notifier = Some(session.notifier());
        session
    });
    let notifier = notifier.unwrap();
    let error = notifier.store(Ino(40), 0, &[0; 4096]).unwrap_err();
    assert_eq!(
        Errno::from_io_error(&error),
        Some(Errno::NOENT),
        "not yet known"
    );
    let big = File::open(mount.path("big")).unwrap();
    // Not what the file contains, so it can come from here only.
    notifier.store(Ino(40), 8192, &[0xab; 16384]).unwrap();
    let mut buf = [0; 16384];
    big.read_exact_at(&mut buf, 8192).unwrap();
    assert!(buf == [0xab; 16384]);
    assert_eq!(mount.reads(), 0);
    // The end of the file, which is within a page.
    notifier
        .clone()
        .store(Ino(40), 4_997_120, &[0xcd; 2881])
        .unwrap();
    assert_eq!(big.read_at(&mut buf, 4_997_120).unwrap(), 2881);
    assert!(buf[..2881] == [0xcd; 2881]);
    assert_eq!(mount.reads(), 0);
    drop(big);
    mount.end().unwrap();
    let error = notifier.store(Ino(40), 0, &[0; 4096]).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NODEV));
}

/// Unmounts. A child of another thread may hold files of ours open until it has started.
fn unmount_at_last(path: &Path) {
    while let Err(error) = unmount(path) {
        assert!(matches!(error, UnmountError::Busy(_)), "{error}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn unmounting_from_outside_ends_the_session_well() {
    if !judge() {
        return;
    }
    let mut mount = Mounted::new(10);
    fs::read(mount.path("hello")).unwrap();
    unmount_at_last(mount.dir.path());
    mount.server.take().unwrap().join().unwrap().unwrap();
    // The handle knows that it is over, and leaves alone what is mounted there now.
    let next =
        Session::mount(mount.fs.clone(), mount.dir.path(), &MountOptions::default()).unwrap();
    mount.unmounter.unmount().unwrap();
    assert!(is_mounted(next.mountpoint()));
}

#[test]
fn a_mount_in_use_is_detached_and_served_to_the_end() {
    if !judge() {
        return;
    }
    let mut mount = Mounted::new(10);
    let mut file = File::open(mount.path("big")).unwrap();
    assert!(matches!(
        unmount(mount.dir.path()),
        Err(UnmountError::Busy(_))
    ));
    mount.unmounter.unmount().unwrap();
    assert!(!is_mounted(mount.dir.path()));
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    assert!(content == pattern(5_000_001));
    assert!(!mount.server.as_ref().unwrap().is_finished());
    drop(file);
    mount.end().unwrap();
}

#[test]
fn a_session_that_never_ran_leaves_no_mount() {
    if !judge() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let fs = Arc::new(MemoryFs::sample(1));
    let session = Session::mount(fs, dir.path(), &MountOptions::default()).unwrap();
    let path = session.mountpoint().to_owned();
    assert!(is_mounted(&path));
    drop(session);
    assert!(!is_mounted(&path));
    assert!(matches!(unmount(&path), Err(UnmountError::NotMounted(_))));
}

#[test]
fn what_cannot_be_mounted_on_is_named() {
    if !judge() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = |path: &Path| {
        let fs = Arc::new(MemoryFs::sample(1));
        Session::mount(fs, path, &MountOptions::default())
            .map(drop)
            .unwrap_err()
    };
    let error = mount(&dir.path().join("absent"));
    assert!(matches!(error, MountError::Mountpoint { .. }), "{error}");
    assert_eq!(error.hint(), Some("create the directory first"));
    fs::write(dir.path().join("file"), "").unwrap();
    let error = mount(&dir.path().join("file"));
    assert!(
        matches!(error, MountError::MountpointNotDirectory(_)),
        "{error}"
    );
}

#[test]
fn a_killed_server_leaves_a_mount_that_can_be_removed() {
    if !judge() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mut server = Server(
        Command::new(example())
            .arg(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let path = server.mountpoint();
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    // At once, or when the kernel has come to take what the server had.
    let begun = Instant::now();
    while errno(fs::read(path.join("big"))) != Some(Errno::NOTCONN) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(10));
    }
    let fs = Arc::new(MemoryFs::sample(1));
    let error = Session::mount(fs, &path, &MountOptions::default())
        .map(drop)
        .unwrap_err();
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("lost its server")),
        "{error}"
    );
    unmount_at_last(&path);
    assert!(!is_mounted(&path));
}

/// A user without privileges mounts through `fusermount3`. The device belongs to root alone on some
/// machines, so the user gets a copy of it, in a mount namespace of its own that ends with the test;
/// `/etc/fuse.conf` is empty there.
#[test]
fn a_user_mounts_and_unmounts_without_root() {
    if !judge() || !helper() {
        return;
    }
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // By another process: a copy of our own may stay open for writing, and so busy, for a moment.
    let mut copy = Command::new("cp");
    let copied = copy.arg(example()).arg(dir.path().join("serve")).status();
    assert!(copied.unwrap().success());
    let output = Command::new("unshare")
        .args(["--mount", "--propagation=private", "sh", "-euc", AS_USER])
        .arg("sh")
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<_> = text.lines().collect();
    let Some(options) = lines[0].split(' ').nth(3) else {
        panic!("{text}")
    };
    for option in ["ro", "nosuid", "nodev", "user_id=65534"] {
        assert!(
            options.split(',').any(|o| o == option),
            "{option} in {options}"
        );
    }
    assert!(!options.contains("allow_other"), "{options}");
    assert_eq!(
        lines[1..],
        [
            "for root",
            "root refused",
            "ended well",
            "user_allow_other named"
        ]
    );
}

/// Mounts, reads a file of mode 0600, tries as root, unmounts; then asks for what is not allowed.
const AS_USER: &str = r#"
cd "$1"
mkdir dev
mount -t tmpfs tmpfs dev
mknod dev/fuse c 10 229
chmod 666 dev/fuse
mount --bind dev/fuse /dev/fuse
if [ -e /etc/fuse.conf ]; then mount --bind /dev/null /etc/fuse.conf; fi
user="setpriv --reuid=65534 --regid=65534 --clear-groups"
mkdir point
chown 65534:65534 point
mkfifo ready
$user ./serve point > ready &
trap "kill $! || true" EXIT
read -r _ < ready
grep "$1/point" /proc/self/mounts
$user cat point/secret
cat point/hello 2> refused || { grep -q "Permission denied" refused && echo "root refused"; }
$user fusermount3 -u point
wait $! && echo "ended well"
trap - EXIT
$user ./serve point allow_other 2> refused ||
    { grep -q "hint: .*user_allow_other" refused && echo "user_allow_other named"; }
"#;

/// Returns whether `fusermount3` can act for users; says loudly if not.
fn helper() -> bool {
    let set_uid = fs::metadata("/usr/bin/fusermount3").is_ok_and(|m| m.mode() & 0o4000 != 0);
    set_uid || missing_judge("a set-user-id /usr/bin/fusermount3")
}

/// The example, which `cargo test` builds beside the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors()
        .nth(2)
        .unwrap()
        .join("examples/serve_memory")
}

/// A server in a process of its own, killed when it is dropped.
struct Server(Child);

impl Server {
    /// Waits until it has mounted, and returns where.
    fn mountpoint(&mut self) -> PathBuf {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim_end().into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn what_is_written_arrives_on_a_page_of_memory() {
    if !judge() {
        return;
    }
    let sink = Arc::new(Sink::default());
    let dir = TempDir::new().unwrap();
    let session = Session::mount(sink.clone(), dir.path(), &MountOptions::default()).unwrap();
    let unmounter = session.unmounter();
    let server = thread::spawn(move || session.run());
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(dir.path().join("sink"))
        .unwrap();
    let content = pattern(1 << 20);
    let mut expected = Vec::new();
    for round in 0..40 {
        let len = [1, 100, 4096, 5000, 300_000, 1 << 20][round % 6];
        file.write_all_at(&content[..len], (round as u64) << 20)
            .unwrap();
        expected.extend_from_slice(&content[..len]);
    }
    drop(file);
    unmounter.unmount().unwrap();
    server.join().unwrap().unwrap();
    let mut arrivals = sink.arrivals.lock().unwrap().clone();
    assert_eq!(sink.handed_on.load(Ordering::SeqCst), arrivals.len());
    arrivals.sort_by_key(|arrival| arrival.offset);
    for arrival in &arrivals {
        assert_eq!(arrival.addr % 4096, 0, "offset {}", arrival.offset);
    }
    let arrived: Vec<u8> = arrivals.into_iter().flat_map(|a| a.content).collect();
    assert!(arrived == expected);
}

/// Content that is written through a mapping comes from the kernel's cache in either way.
#[test]
fn a_kernel_that_writes_back_tells_the_time_of_modification_itself() {
    if !judge() {
        return;
    }
    for write_back in [false, true] {
        let mut sink = Sink::default();
        sink.size = 4096;
        let sink = Arc::new(sink);
        let dir = TempDir::new().unwrap();
        let options = MountOptions {
            write_back,
            passthrough: false,
            ..MountOptions::default()
        };
        let session = Session::mount(sink.clone(), dir.path(), &options).unwrap();
        assert_eq!(session.writes_back(), write_back);
        let unmounter = session.unmounter();
        let server = thread::spawn(move || session.run());
        let mut writer = Command::new("xfs_io");
        for command in ["mmap -rw 0 4096", "mwrite 0 100", "msync -s", "fsync"] {
            writer.args(["-c", command]);
        }
        let wrote = writer.arg(dir.path().join("sink")).output();
        let wrote = wrote.expect("xfs_io, of xfsprogs");
        assert!(wrote.status.success(), "{wrote:?}");
        unmounter.unmount().unwrap();
        server.join().unwrap().unwrap();
        let told = sink.keeps_mtime.lock().unwrap().clone();
        assert!(
            !told.is_empty() && told.iter().all(|&keeps| keeps == write_back),
            "{told:?}"
        );
    }
}

/// The setting is root's; `scripts/over_io_uring.sh` runs these tests with it.
#[test]
fn io_uring_is_taken_where_it_is_on_and_every_processor_has_two_workers() {
    let by_default = match fs::read_to_string("/sys/module/fuse/parameters/enable_uring") {
        Ok(setting) if setting.trim() == "Y" => Ok(()),
        Ok(_) => Err(NoIoUring::Off),
        Err(_) => Err(NoIoUring::NotOffered),
    };
    let cores = thread::available_parallelism().unwrap().get();
    for (io_uring, workers, taken) in [
        (true, 64 * cores, by_default),
        (true, 1, by_default.and(Err(NoIoUring::FewWorkers))),
        (false, 64 * cores, Err(NoIoUring::Unwanted)),
    ] {
        let options = MountOptions {
            io_uring,
            workers,
            ..MountOptions::default()
        };
        assert_eq!(options.over_io_uring(), taken, "{workers} workers");
    }
}

/// Reads by four threads at once, wherever they run; then one that hurries from processor to processor.
#[test]
fn readers_on_all_processors_get_what_they_asked_for() {
    if !judge() {
        return;
    }
    let content = pattern(5_000_001);
    for io_uring in [false, true] {
        let options = MountOptions {
            io_uring,
            ..MountOptions::default()
        };
        let mount = Mounted::with(10, &options);
        let read = |seed: usize| {
            let file = mount.direct("big");
            for round in 0..200 {
                let len = [4096, 65_536, 1 << 20][(round + seed) % 3];
                let at = (round * 7919 + seed * 104_729) % 900 * 4096;
                let mut buf = vec![0; len];
                file.read_exact_at(&mut buf, at as u64).unwrap();
                assert!(buf == content[at..at + len], "{len} bytes at {at}");
                let name = format!("{}{seed}-{round}", "n".repeat(240));
                assert_eq!(errno(fs::metadata(mount.path(&name))), Some(Errno::NOENT));
            }
        };
        thread::scope(|scope| {
            for seed in 0..4 {
                let read = &read;
                scope.spawn(move || read(seed));
            }
        });
        let before = sched_getaffinity(None).unwrap();
        for processor in (0..before.count()).cycle().take(100) {
            let mut there = CpuSet::new();
            there.set(processor as usize);
            // Where there is none of that number, it stays.
            let _ = sched_setaffinity(None, &there);
            let mut buf = vec![0; 4096];
            let at = u64::from(processor) * 4096;
            mount.direct("big").read_exact_at(&mut buf, at).unwrap();
            assert!(buf == content[at as usize..][..4096]);
        }
        sched_setaffinity(None, &before).unwrap();
    }
}
