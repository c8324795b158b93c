//! Tests what is left when the power fails, or a daemon is killed, in the middle of things.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anteros_tests::disk::{Disk, Kind};
use anteros_tests::judge;
use anteros_tests::trees::{Random, noise};
use rustix::fs::OFlags;
use tempfile::TempDir;

use crate::mirror::{Mirror, WAYS, Way};
use crate::run;

/// Changes something through a mirror and syncs that, and sees the device told to make it lasting. The
/// file system may do so by itself between the two.
fn flushing<T>(disk: &Disk, what: &str, act: impl FnOnce() -> std::io::Result<T>) -> T {
    let before = disk.flushes();
    let result = act().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(disk.flushes() > before, "{what}: the device was not told");
    result
}

/// Writes and syncs in all manners.
fn write_and_sync(disk: &Disk, root: &Path, data: &[u8]) {
    fs::create_dir_all(root.join("dir/below")).unwrap();
    let in_dir = |name: &str, change: &dyn Fn() -> std::io::Result<()>| {
        let dir = File::open(root.join(name)).unwrap();
        flushing(disk, name, || change().and_then(|()| dir.sync_all()));
    };
    let file = File::create(root.join("file")).unwrap();
    flushing(disk, "fsync", || {
        file.write_all_at(data, 0)?;
        file.sync_all()
    });
    flushing(disk, "fdatasync", || {
        file.write_all_at(b"changed", 70_000)?;
        file.sync_data()
    });
    flushing(disk, "fdatasync of a longer file", || {
        file.write_all_at(data, data.len() as u64)?;
        file.sync_data()
    });

    let mut options = OpenOptions::new();
    options.write(true).create(true);
    options.custom_flags(OFlags::DSYNC.bits() as i32);
    let direct = options.open(root.join("dsync")).unwrap();
    flushing(disk, "O_DSYNC", || direct.write_all_at(data, 0));

    let new = File::create(root.join("dir/new")).unwrap();
    flushing(disk, "fsync of a new file", || {
        new.write_all_at(b"new", 0)?;
        new.sync_all()
    });
    let [made, renamed, linked] =
        ["dir/new", "dir/below/renamed", "dir/linked"].map(|name| root.join(name));
    in_dir("dir/below", &|| fs::rename(&made, &renamed));
    in_dir("dir", &|| fs::hard_link(&renamed, &linked));
    in_dir("dir", &|| fs::remove_file(&linked));
}

/// Cuts the power after all was synced, and before a file was that was only written. Says whether that is there.
fn unsynced_survives(kind: Kind, way: Way) -> Option<bool> {
    let disk = Disk::new(kind)?;
    let data = noise(1, 300_000);
    let mirror = Mirror::new(&disk.path(), way, "--interval 60000");
    write_and_sync(&disk, mirror.root(), &data);
    let loose = File::create(mirror.path("loose")).unwrap();
    loose.write_all_at(&data, 0).unwrap();
    let copy = disk.copy();
    drop(loose);
    mirror.unmount();

    let disk = copy.mount(disk).unwrap();
    let read = |name: &str| fs::read(disk.path().join(name)).unwrap();
    let mut wanted = [&data[..], &data].concat();
    wanted[70_000..70_007].copy_from_slice(b"changed");
    assert!(read("file") == wanted, "{kind:?}, {way}: file");
    assert!(read("dsync") == data, "{kind:?}, {way}: dsync");
    assert_eq!(read("dir/below/renamed"), b"new", "{kind:?}, {way}");
    let names = fs::read_dir(disk.path().join("dir")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["below"], "{kind:?}, {way}");
    let loose = fs::read(disk.path().join("loose"));
    let said = disk.check();
    assert!(said.is_ok(), "{kind:?}, {way}: {said:?}");
    Some(loose.is_ok_and(|found| found == data))
}

fn synced_data_outlives_the_power(kind: Kind) {
    if !judge::has_fuse() {
        return;
    }
    let survived: Vec<_> = WAYS
        .into_iter()
        .map_while(|way| unsynced_survives(kind, way))
        .collect();
    // Else the copy has what a machine would have lost, and all this shows nothing.
    let lost = survived.iter().any(|&survived| !survived);
    assert!(lost || survived.is_empty());
}

#[test]
fn synced_data_outlives_the_power_on_ext4() {
    synced_data_outlives_the_power(Kind::Ext4);
}

#[test]
fn synced_data_outlives_the_power_on_xfs() {
    synced_data_outlives_the_power(Kind::Xfs);
}

#[test]
fn synced_data_outlives_the_power_on_btrfs() {
    synced_data_outlives_the_power(Kind::Btrfs);
}

/// `sqlite3` at work on a database that it makes in a directory.
pub struct Transactions {
    program: Child,
    /// The last transaction that it said was done.
    done: u64,
}

impl Transactions {
    /// Enough that it will not come to an end by itself.
    const COUNT: u64 = 100_000;

    pub fn new(database: &Path, journal: &str) -> Self {
        Self::by(Path::new("sqlite3"), database, journal)
    }

    /// By another `sqlite3`.
    pub fn by(sqlite3: &Path, database: &Path, journal: &str) -> Self {
        let mut program = Command::new(sqlite3)
            .args(["-batch", "-bail"])
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = program.stdin.take().unwrap();
        let begin = format!(
            "pragma journal_mode = {journal}; pragma synchronous = extra;\n\
             create table numbers (n integer primary key, data blob); create table sum (total); insert into sum values (0);\n"
        );
        std::thread::spawn(move || {
            // Some versions do the rest of a line in which something has failed.
            let transactions = (1..=Self::COUNT).map(|n| {
                format!(
                    "begin; insert into numbers values ({n}, randomblob({n} % 3000)); \
                     update sum set total = total + {n}; commit;\nselect {n};\n"
                )
            });
            for line in std::iter::once(begin).chain(transactions) {
                // Until the program gives up.
                if input.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Self { program, done: 0 }
    }

    /// Lets it go on until it has done so many, then calls `stop`, and hears what else it did.
    pub fn until(&mut self, count: u64, stop: impl FnOnce()) {
        let mut stop = Some(stop);
        for line in BufReader::new(self.program.stdout.take().unwrap()).lines() {
            // The first line is the kind of journal.
            self.done = line.unwrap().parse().unwrap_or(self.done);
            if self.done >= count {
                stop.take().into_iter().for_each(|stop| stop());
            }
        }
        assert!(stop.is_none(), "{} transactions", self.done);
        assert!(!self.program.wait().unwrap().success());
    }
}

impl Transactions {
    /// Every transaction that was said to be done is there, and each of them whole.
    pub fn check(&self, database: &Path, journal: &str, place: &str) {
        assert_eq!(query(database, "pragma integrity_check"), "ok", "{place}");
        let numbers = query(database, "select count(*), max(n), sum(n) from numbers");
        let numbers: Vec<u64> = numbers.split('|').map(|n| n.parse().unwrap()).collect();
        let (count, max, sum) = (numbers[0], numbers[1], numbers[2]);
        assert_eq!(count, max, "{place}");
        assert!(max >= self.done, "{place}: {max} of {}", self.done);
        let total = query(database, "select total from sum");
        assert_eq!(total, sum.to_string(), "{place}");
        if matches!(journal, "delete" | "wal") {
            let name = query(database, "pragma journal_mode");
            assert_eq!(name, journal, "{place}");
        }
    }
}

/// Returns what a query says of a database.
fn query(database: &Path, text: &str) -> String {
    let found = run(Command::new("sqlite3").arg(database).arg(text));
    assert_eq!(found.status, Some(0), "{text}: {found:?}");
    found.out.trim().to_owned()
}

/// Transactions that were said to be done are there when the daemon is killed, each of them whole.
#[test]
fn a_database_outlives_a_daemon_that_is_killed() {
    const ROUNDS: u64 = 3;
    if !judge::has_fuse() || !judge::has_program("sqlite3") {
        return;
    }
    let mut random = Random(3);
    for way in WAYS {
        for (round, journal) in (0..ROUNDS).flat_map(|round| [(round, "delete"), (round, "wal")]) {
            let source = TempDir::new_in(anteros_tests::scratch()).unwrap();
            let mirror = Mirror::new(source.path(), way, "--interval 60000");
            let mut transactions = Transactions::new(&mirror.path("database"), journal);
            let mut mirror = Some(mirror);
            transactions.until(20 + random.below(200), || mirror.take().unwrap().kill());
            let place = format!("{way}, {journal}, round {round}");
            transactions.check(&source.path().join("database"), journal, &place);
        }
    }
}
