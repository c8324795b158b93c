//! `bench write`: what writing through a mirrored directory costs: `anteros passthru` in each of its ways beside the
//! native file system below it.
//!
//! Each native file system lies on a loop device over a file in memory, so that it is the processors' work that is
//! compared. Every turn has a fresh mount and fresh files; what is written before is on the device by then. Figures
//! are told to the page cache, when the last file is closed, and to the device, when it is synced as well.
//!
//! It mounts and attaches loop devices: it must run as root.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::mount::MountFlags;

use super::read::device::LoopDevice;
use super::read::mounted::{Daemon, Mounted, clear, mount, sweep};
use super::report::{Comparison, Side, Unit};
use super::{Findings, Options};
use crate::Outcome;
use crate::run::{output, run};

/// The native file systems, with what makes them.
const NATIVE: [(&str, &[&str]); 3] = [
    ("ext4", &["mkfs.ext4", "-q", "-F"]),
    ("xfs", &["mkfs.xfs", "-q", "-f"]),
    ("btrfs", &["mkfs.btrfs", "-q", "-f"]),
];

/// The size of the device.
const DEVICE_BYTES: u64 = 3 << 30;

/// Ways to write: the name, and the arguments of `anteros passthru`, or none for the native file system.
const WAYS: [(&str, Option<&str>); 6] = [
    ("anteros", Some("")),
    ("anteros --data buffer", Some("--data buffer")),
    ("anteros --data entries", Some("--data entries")),
    ("anteros --data daemon", Some("--data daemon")),
    (
        "anteros --data daemon --unit 4K",
        Some("--data daemon --unit 4K"),
    ),
    ("native", None),
];

/// What is written.
struct Workload {
    name: &'static str,
    unit: Unit,
    /// Writes in a directory, and says how much: bytes, or nothing where time is what counts.
    write: fn(&Path) -> Outcome<u64>,
}

const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "one file of 512 MiB in records of 512 KiB",
        unit: Unit::BytesPerSecond,
        write: |directory| in_turns(directory, 1, 512 << 10, 512 << 20),
    },
    Workload {
        name: "one file of 64 MiB in records of 4 KiB",
        unit: Unit::BytesPerSecond,
        write: |directory| in_turns(directory, 1, 4 << 10, 64 << 20),
    },
    Workload {
        name: "16 files of 16 MiB in turns, records of 64 KiB",
        unit: Unit::BytesPerSecond,
        write: |directory| in_turns(directory, 16, 64 << 10, 256 << 20),
    },
    Workload {
        name: "4000 files of 16 KiB",
        unit: Unit::Seconds,
        write: |directory| many(directory, 4000, 16 << 10),
    },
    Workload {
        name: "2000 records of 4 KiB, fdatasync after each",
        unit: Unit::Seconds,
        write: |directory| synced(directory, 2000, 4 << 10),
    },
];

/// Runs the benchmark.
///
/// # Errors
/// When it is not run as root, or the machine refuses what every part needs.
pub(super) fn write(options: &Options) -> Outcome<Findings> {
    if !rustix::process::geteuid().is_root() {
        return Err("bench write mounts file systems: it must run as root".into());
    }
    let anteros = options.anteros()?;
    let scratch = std::path::absolute("target/bench/written")?;
    sweep(&scratch);
    fs::create_dir_all(&scratch)?;
    let mut findings = Findings {
        versions: vec![
            output(Command::new(&anteros).arg("--version"))?
                .trim()
                .to_owned(),
        ],
        notes: vec!["libfuse's passthrough_hp takes no part yet".into()],
        comparisons: Vec::new(),
    };
    for (name, mkfs) in NATIVE {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == name) {
            continue;
        }
        match Native::new(&scratch, name, mkfs) {
            Ok(native) => compare(options, &anteros, &native, &scratch, &mut findings),
            Err(error) => findings
                .notes
                .push(format!("{name} takes no part: {error}")),
        }
    }
    clear(&scratch)?;
    Ok(findings)
}

/// A file system on a loop device over memory, until dropped.
struct Native {
    name: &'static str,
    // Dropped in this order.
    _mounted: Mounted,
    _device: LoopDevice,
    _memory: Mounted,
    directory: PathBuf,
}

impl Native {
    fn new(scratch: &Path, name: &'static str, mkfs: &[&str]) -> Outcome<Self> {
        let (memory, directory) = (scratch.join("memory"), scratch.join("native"));
        fs::create_dir_all(&memory)?;
        fs::create_dir_all(&directory)?;
        let tmpfs = mount(
            Path::new("none"),
            &memory,
            "tmpfs",
            MountFlags::empty(),
            None,
        )?;
        let file = memory.join("device");
        File::create(&file)?.set_len(DEVICE_BYTES)?;
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&file))?;
        let device = LoopDevice::attach(&file, false, true)?;
        Ok(Self {
            name,
            _mounted: mount(device.node(), &directory, name, MountFlags::empty(), None)?,
            _device: device,
            _memory: tmpfs,
            directory,
        })
    }
}

/// Has all ways take turns at each workload.
fn compare(
    options: &Options,
    anteros: &Path,
    native: &Native,
    scratch: &Path,
    findings: &mut Findings,
) {
    for workload in &WORKLOADS {
        eprintln!("bench write: {}: {}", native.name, workload.name);
        let mut results: Vec<Result<Vec<[f64; 2]>, String>> = vec![Ok(Vec::new()); WAYS.len()];
        for _ in 0..options.runs {
            for ((_, arguments), result) in WAYS.iter().zip(&mut results) {
                let Ok(turns) = result else { continue };
                match turn(anteros, *arguments, native, scratch, workload) {
                    Ok(figures) => turns.push(figures),
                    Err(error) => *result = Err(error.to_string()),
                }
            }
        }
        for (index, state) in ["to the page cache", "to the device"]
            .into_iter()
            .enumerate()
        {
            let sides = WAYS
                .iter()
                .zip(&results)
                .map(|((name, arguments), result)| Side {
                    name: (*name).to_owned(),
                    command: match arguments {
                        Some(arguments) => format!("anteros passthru {arguments} SOURCE DIR"),
                        None => format!("mount -t {} DEVICE DIR", native.name),
                    },
                    figures: result
                        .clone()
                        .map(|turns| turns.iter().map(|figures| figures[index]).collect()),
                });
            findings.comparisons.push(Comparison {
                metric: format!("{}, {state}", workload.name),
                subject: native.name.to_owned(),
                at: None,
                unit: workload.unit,
                sides: sides.collect(),
            });
        }
    }
}

/// One turn: the figures to the page cache and to the device.
fn turn(
    anteros: &Path,
    arguments: Option<&str>,
    native: &Native,
    scratch: &Path,
    workload: &Workload,
) -> Outcome<[f64; 2]> {
    let source = native.directory.join("source");
    fs::create_dir_all(&source)?;
    rustix::fs::sync();
    let point = scratch.join("mount");
    fs::create_dir_all(&point)?;
    let daemon = match arguments {
        Some(arguments) => {
            let mut command = Command::new(anteros);
            command.arg("passthru").args([&source, &point]);
            command
                .arg("--foreground")
                .args(arguments.split_whitespace());
            Some(Daemon::start(&mut command, &point)?)
        }
        None => None,
    };
    let directory = if daemon.is_some() { &point } else { &source };
    let start = Instant::now();
    let bytes = (workload.write)(directory)?;
    let cached = start.elapsed().as_secs_f64();
    rustix::fs::syncfs(File::open(&source)?)?;
    let stored = start.elapsed().as_secs_f64();
    drop(daemon);
    fs::remove_dir_all(&source)?;
    Ok([cached, stored].map(|seconds| match workload.unit {
        Unit::BytesPerSecond => bytes as f64 / seconds,
        _ => seconds,
    }))
}

/// Writes files in turns, a record to each.
fn in_turns(directory: &Path, count: usize, record: usize, bytes: u64) -> Outcome<u64> {
    let record = content(record);
    let open = |index| File::create(directory.join(format!("file{index}")));
    let mut files = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
    let mut written = 0;
    while written < bytes {
        for file in &mut files {
            file.write_all(&record)?;
            written += record.len() as u64;
        }
    }
    Ok(written)
}

fn many(directory: &Path, count: usize, bytes: usize) -> Outcome<u64> {
    let content = content(bytes);
    for index in 0..count {
        fs::write(directory.join(format!("file{index}")), &content)?;
    }
    Ok((count * bytes) as u64)
}

fn synced(directory: &Path, count: usize, record: usize) -> Outcome<u64> {
    let record = content(record);
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .append(true)
        .open(directory.join("log"))?;
    for _ in 0..count {
        file.write_all(&record)?;
        file.sync_data()?;
    }
    Ok((count * record.len()) as u64)
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index * 31) >> 3) as u8).collect()
}
