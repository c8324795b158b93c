//! Workloads of writing.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::LazyLock;
use std::thread;

use crate::bench::random::Random;
use crate::bench::report::Unit;
use crate::outcome::Outcome;

/// Something to write.
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Tells how it is told.
    pub(super) unit: Unit,
    /// Holds what must be there before, made in the native file system.
    pub(super) prepare: fn(&Path) -> Outcome,
    /// Writes in a directory, and says how much: bytes, or pieces.
    pub(super) work: fn(&Path) -> Outcome<f64>,
    /// The bytes of all files afterwards.
    pub(super) leaves: u64,
}

const MIB: u64 = 1 << 20;
const SMALL_FILES: u64 = 4000;
const SMALL_FILE_BYTES: u64 = 16 << 10;
const SYNCED_RECORDS: u64 = 2000;
const OVERWRITTEN_BYTES: u64 = 128 * MIB;
const MIXED_BYTES: u64 = 128 * MIB;

/// Workloads of which the goals speak.
pub(super) const APPEND_4K: &str = "one file of 64 MiB in records of 4 KiB";
pub(super) const PAPER: &str = "one file of 512 MiB in records of 512 KiB";
pub(super) const LARGE: [&str; 3] = [
    "one file of 256 MiB in records of 128 KiB",
    PAPER,
    "one file of 512 MiB in records of 1 MiB",
];
pub(super) const CREATION: &str = "4000 new files of 16 KiB";

/// The paper's.
pub(super) const SEQUENTIAL: Workload = one_file(PAPER, SEQUENTIAL_BYTES, |directory| {
    in_turns(directory, 1, 512 << 10, SEQUENTIAL_BYTES)
});
pub(super) const SEQUENTIAL_BYTES: u64 = 512 * MIB;

pub(super) const WORKLOADS: [Workload; 12] = [
    one_file(APPEND_4K, 64 * MIB, |directory| {
        in_turns(directory, 1, 4 << 10, 64 * MIB)
    }),
    one_file(
        "one file of 256 MiB in records of 64 KiB",
        256 * MIB,
        |directory| in_turns(directory, 1, 64 << 10, 256 * MIB),
    ),
    one_file(LARGE[0], 256 * MIB, |directory| {
        in_turns(directory, 1, 128 << 10, 256 * MIB)
    }),
    SEQUENTIAL,
    one_file(LARGE[2], 512 * MIB, |directory| {
        in_turns(directory, 1, 1 << 20, 512 * MIB)
    }),
    one_file(
        "16 files of 16 MiB in turns, records of 64 KiB",
        256 * MIB,
        |directory| in_turns(directory, 16, 64 << 10, 256 * MIB),
    ),
    one_file(
        "64 files of 4 MiB in turns, records of 64 KiB",
        256 * MIB,
        |directory| in_turns(directory, 64, 64 << 10, 256 * MIB),
    ),
    one_file(
        "2 writers at once, 256 MiB each in records of 512 KiB",
        512 * MIB,
        at_once,
    ),
    one_file(
        "one file of 128 MiB in records of 64 KiB, 64 KiB anywhere read after each",
        MIXED_BYTES,
        mixed,
    ),
    Workload {
        prepare: |directory| in_turns(directory, 1, 1 << 20, OVERWRITTEN_BYTES).map(drop),
        ..one_file(
            "16384 records of 4 KiB anywhere in a file of 128 MiB",
            OVERWRITTEN_BYTES,
            overwrite,
        )
    },
    Workload {
        unit: Unit::PerSecond,
        ..one_file(CREATION, SMALL_FILES * SMALL_FILE_BYTES, many)
    },
    Workload {
        unit: Unit::PerSecond,
        ..one_file(
            "2000 records of 4 KiB, fdatasync after each",
            SYNCED_RECORDS * 4096,
            synced,
        )
    },
];

/// A workload told in bytes per second that needs nothing before.
pub(super) const fn one_file(
    name: &'static str,
    leaves: u64,
    work: fn(&Path) -> Outcome<f64>,
) -> Workload {
    Workload {
        name,
        unit: Unit::BytesPerSecond,
        prepare: |_| Ok(()),
        work,
        leaves,
    }
}

/// Writes files in turns, a record to each.
pub(in crate::bench) fn in_turns(
    directory: &Path,
    count: usize,
    record: usize,
    bytes: u64,
) -> Outcome<f64> {
    let record = content(record);
    let open = |index| File::create(directory.join(format!("file{index}")));
    let mut files = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
    let mut written = 0;
    while written < bytes {
        for file in &mut files {
            file.write_all(record)?;
            written += record.len() as u64;
        }
    }
    Ok(written as f64)
}

/// Two writers, a file each.
fn at_once(directory: &Path) -> Outcome<f64> {
    let write = |index: u64| -> std::io::Result<()> {
        let record = content(512 << 10);
        let mut file = File::create(directory.join(index.to_string()))?;
        (0..512).try_for_each(|_| file.write_all(record))
    };
    thread::scope(|scope| {
        let writers = [0, 1].map(|index| scope.spawn(move || write(index)));
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().expect("a writer does not panic"))
    })?;
    Ok((512 * MIB) as f64)
}

/// Writes a file and reads here and there what is there of it, as much.
fn mixed(directory: &Path) -> Outcome<f64> {
    let record = content(64 << 10);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    let file = options.open(directory.join("file"))?;
    let (mut random, mut read) = (Random::new(0), vec![0; record.len()]);
    let len = record.len() as u64;
    for index in 0..MIXED_BYTES / len {
        file.write_all_at(record, index * len)?;
        file.read_exact_at(&mut read, random.below(index + 1) * len)?;
        if read != record {
            return Err("something else was read than was written".into());
        }
    }
    Ok((2 * MIXED_BYTES) as f64)
}

/// Writes blocks anywhere in the file that is there.
fn overwrite(directory: &Path) -> Outcome<f64> {
    let block = content(4096);
    let file = OpenOptions::new()
        .write(true)
        .open(directory.join("file0"))?;
    let mut random = Random::new(0);
    for _ in 0..16384 {
        file.write_all_at(block, random.below(OVERWRITTEN_BYTES / 4096) * 4096)?;
    }
    Ok(16384.0 * 4096.0)
}

fn many(directory: &Path) -> Outcome<f64> {
    let content = content(SMALL_FILE_BYTES as usize);
    for index in 0..SMALL_FILES {
        fs::write(directory.join(format!("file{index}")), content)?;
    }
    Ok(SMALL_FILES as f64)
}

fn synced(directory: &Path) -> Outcome<f64> {
    let record = content(4096);
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true);
    let mut file = options.open(directory.join("log"))?;
    for _ in 0..SYNCED_RECORDS {
        file.write_all(record)?;
        file.sync_data()?;
    }
    Ok(SYNCED_RECORDS as f64)
}

/// States what records are made of, as long as the longest.
static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..1 << 20)
        .map(|index| ((index * 31) >> 3) as u8)
        .collect()
});

/// Sees to it that no turn pays for making what it writes.
pub(in crate::bench) fn get_ready() {
    LazyLock::force(&CONTENT);
}

/// The content of a record.
pub(in crate::bench) fn content(len: usize) -> &'static [u8] {
    &CONTENT[..len]
}
