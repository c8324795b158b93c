//! `bench build --only metadata`: the size of metadata, and what a cold `find` reads of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::MountFlags;

use super::caches::drop_caches;
use super::device::LoopDevice;
use super::images::{Bench, clear};
use super::measure::take_turns;
use super::mounted::{Mounted, mount};
use super::report::{Comparison, Unit};
use crate::outcome::Outcome;
use crate::run::run;

/// The options of the images.
const SETTINGS: [&[&str]; 4] = [
    &["-zlz4", "-C4096"],
    &["-zlz4hc,9", "-C65536"],
    &["-zlz4hc,9", "-C65536", "-Efragments", "--zD"],
    &["-zlz4hc,9", "-C65536", "-m4096"],
];

/// Compares images of a corpus, and of the same tree with nothing in its files.
///
/// # Errors
/// When a program or a corpus cannot be had, or a command fails.
pub(super) fn metadata(bench: &Bench, name: &str) -> Outcome<Vec<Comparison>> {
    let corpus = super::corpus(name)?;
    let (ours, peer) = (bench.path("ours.erofs"), bench.path("peer.erofs"));
    let empty = bench.path("empty");
    let mut copy = Command::new("cp");
    run(copy
        .args(["-a", "--attributes-only"])
        .arg(&corpus)
        .arg(&empty))?;
    let subject = format!("{name}, all files empty");
    eprintln!("bench build: {subject}");
    let mut comparisons = bench.build(&empty, &[], &subject, &ours, &peer)?;
    clear(&empty)?;
    for options in SETTINGS {
        let subject = format!("{name} {}", options.join(" "));
        eprintln!("bench build: cold find, {subject}");
        bench.build(&corpus, options, &subject, &ours, &peer)?;
        comparisons.extend(find(bench, &subject, &ours, &peer)?);
    }
    Ok(comparisons)
}

/// An image that the kernel mounts from a device of its own.
struct Image {
    // Dropped first.
    _mounted: Mounted,
    device: LoopDevice,
    directory: PathBuf,
}

impl Image {
    fn new(bench: &Bench, image: &Path, place: &str) -> Outcome<Self> {
        let directory = bench.path(place);
        std::fs::create_dir_all(&directory)?;
        let device = LoopDevice::attach(image, false, false)?;
        let mounted = mount(device.node(), &directory, "erofs", MountFlags::RDONLY, None)?;
        Ok(Self {
            _mounted: mounted,
            device,
            directory,
        })
    }

    /// A command that looks at all inodes: names alone would do without them.
    fn find(&self) -> Command {
        let mut find = Command::new("find");
        find.arg(&self.directory).args(["-size", "+1000000M"]);
        find
    }

    /// Bytes that a cold `find` reads.
    fn read(&self) -> Outcome<f64> {
        drop_caches()?;
        let before = self.device.traffic()?.bytes_read;
        run(&mut self.find())?;
        Ok((self.device.traffic()?.bytes_read - before) as f64)
    }
}

/// Has `find` look at all inodes of two images with cold caches.
fn find(bench: &Bench, subject: &str, ours: &Path, peer: &Path) -> Outcome<Vec<Comparison>> {
    let ours = Image::new(bench, ours, "ours")?;
    let peer = Image::new(bench, peer, "peer")?;
    let read = (ours.read()?, peer.read()?);
    let turns = take_turns(bench.runs(), ours.find(), peer.find(), drop_caches)?;
    Ok(vec![
        turns.figure(
            "cold find: bytes read",
            subject,
            Unit::Bytes,
            read.0,
            read.1,
        ),
        turns.wall("cold find: wall time", subject),
    ])
}
