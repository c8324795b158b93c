//! Workloads of reading and writing.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::bench::random::Random;
use crate::bench::report::Unit;
use crate::bench::write::workload::{content, in_turns};
use crate::outcome::Outcome;

/// Something to do in a directory.
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// Holds what must be there before, if anything.
    pub(super) prepare: Option<fn(&Path) -> Outcome>,
    /// Does it, and says how much: bytes, or pieces.
    pub(super) work: fn(&Path) -> Outcome<f64>,
    /// Files and their bytes afterwards.
    pub(super) leaves: (u64, u64),
}

const MIB: u64 = 1 << 20;
const LARGE_BYTES: u64 = 512 * MIB;
const OVERWRITTEN_BYTES: u64 = 128 * MIB;
const SYNCED: u64 = 2000;
const FILES: u64 = 4000;
const BLOCK: u64 = 4096;

/// Sequential writing and reading of large records.
const fn large(name: &'static str, work: fn(&Path) -> Outcome<f64>) -> Workload {
    Workload {
        name,
        unit: Unit::BytesPerSecond,
        prepare: None,
        work,
        leaves: (1, LARGE_BYTES),
    }
}

/// Something that is done so often in a second.
const fn pieces(
    name: &'static str,
    work: fn(&Path) -> Outcome<f64>,
    leaves: (u64, u64),
) -> Workload {
    Workload {
        name,
        unit: Unit::PerSecond,
        prepare: None,
        work,
        leaves,
    }
}

pub(super) const WORKLOADS: [Workload; 10] = [
    large("write 512 MiB in records of 1 MiB, fsync", |directory| {
        write(directory, 1 << 20)
    }),
    large("write 512 MiB in records of 128 KiB, fsync", |directory| {
        write(directory, 128 << 10)
    }),
    Workload {
        prepare: Some(|directory| write(directory, 1 << 20).map(drop)),
        ..large("read 512 MiB in records of 1 MiB, cold", |directory| {
            read(directory, 1 << 20)
        })
    },
    Workload {
        prepare: Some(|directory| write(directory, 1 << 20).map(drop)),
        ..large("read 512 MiB in records of 128 KiB, cold", |directory| {
            read(directory, 128 << 10)
        })
    },
    Workload {
        prepare: Some(|directory| in_turns(directory, 1, 1 << 20, OVERWRITTEN_BYTES).map(drop)),
        ..pieces(
            "2000 records of 4 KiB anywhere in 128 MiB, fsync after each",
            overwrite,
            (1, OVERWRITTEN_BYTES),
        )
    },
    pieces(
        "2000 records of 4 KiB appended, fsync after each",
        append,
        (1, SYNCED * BLOCK),
    ),
    pieces(
        "4000 new files of 16 KiB",
        |directory| create(directory, 16 << 10),
        (FILES, FILES * (16 << 10)),
    ),
    Workload {
        prepare: Some(|directory| create(directory, 16 << 10).map(drop)),
        ..pieces("4000 files of 16 KiB unlinked", unlink, (0, 0))
    },
    pieces(
        "4000 new files of 1 KiB",
        |directory| create(directory, 1 << 10),
        (FILES, FILES * (1 << 10)),
    ),
    Workload {
        prepare: Some(|directory| create(directory, 1 << 10).map(drop)),
        ..pieces("4000 files of 1 KiB unlinked", unlink, (0, 0))
    },
];

/// Makes sure that a directory has so many files with so many bytes in all.
///
/// # Errors
/// When it has not.
pub(super) fn check(directory: &Path, (files, bytes): (u64, u64)) -> Outcome {
    let (mut found, mut len) = (0, 0);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // What mkfs makes.
        if entry.file_type()?.is_file() {
            found += 1;
            len += entry.metadata()?.len();
        }
    }
    match (found, len) == (files, bytes) {
        true => Ok(()),
        false => {
            let told = format!("{found} files of {len} bytes are there, not {files} of {bytes}");
            Err(told.into())
        }
    }
}

fn write(directory: &Path, record: usize) -> Outcome<f64> {
    let bytes = in_turns(directory, 1, record, LARGE_BYTES)?;
    File::open(directory.join("file0"))?.sync_all()?;
    Ok(bytes)
}

/// Reads what was written in records of 1 MiB.
fn read(directory: &Path, record: usize) -> Outcome<f64> {
    let mut file = File::open(directory.join("file0"))?;
    let (mut buffer, content) = (vec![0; record], content(1 << 20));
    for index in 0..LARGE_BYTES / record as u64 {
        file.read_exact(&mut buffer)?;
        let at = index as usize * record % content.len();
        if buffer != content[at..at + record] {
            let at = index * record as u64;
            return Err(format!("something else was read at {at} than was written").into());
        }
    }
    Ok(LARGE_BYTES as f64)
}

fn overwrite(directory: &Path) -> Outcome<f64> {
    let file = OpenOptions::new()
        .write(true)
        .open(directory.join("file0"))?;
    let (record, mut random) = (content(BLOCK as usize), Random::new(0));
    for _ in 0..SYNCED {
        file.write_all_at(record, random.below(OVERWRITTEN_BYTES / BLOCK) * BLOCK)?;
        file.sync_all()?;
    }
    Ok(SYNCED as f64)
}

fn append(directory: &Path) -> Outcome<f64> {
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .append(true)
        .open(directory.join("log"))?;
    for _ in 0..SYNCED {
        file.write_all(content(BLOCK as usize))?;
        file.sync_all()?;
    }
    Ok(SYNCED as f64)
}

fn create(directory: &Path, bytes: usize) -> Outcome<f64> {
    for index in 0..FILES {
        fs::write(directory.join(format!("file{index}")), content(bytes))?;
    }
    Ok(FILES as f64)
}

fn unlink(directory: &Path) -> Outcome<f64> {
    for index in 0..FILES {
        fs::remove_file(directory.join(format!("file{index}")))?;
    }
    Ok(FILES as f64)
}
