//! `bench read`: what reading from a mount costs: our FUSE daemon beside the kernel's own EROFS, `erofsfuse`,
//! `squashfuse_ll`, the kernel's squashfs and ext4, and DwarFS where it is installed.
//!
//! Every turn has a fresh mount with a fresh daemon, in one of two states. Cold: nothing of the image is in the page
//! cache, and a loop device passes the cache by. Warm image: the image is in the page cache, loop devices use it, and
//! nothing has been read through the mount. Images lie on the disk that holds `target`, and are kept in
//! `target/bench/images` for the next run. What is read is compared with the corpus. A contender that cannot take
//! part is reported with the reason.
//!
//! It mounts, attaches loop devices and drops the page cache: it must run as root. All that it mounts lies below one
//! directory and ends with the run; what a killed run left there the next one ends.

mod amplification;
mod background;
mod contender;
mod counted;
mod format;
mod launch;
mod lineup;
mod memory;
mod memory_limit;
mod pattern;
mod patterns;
mod presets;
mod savings;
mod strategies;
mod walk;

use std::fs::{self, File};
use std::io;
use std::path::{self, Path, PathBuf};

use super::contest::Contest;
use super::place::Place;
use super::report::{Comparison, Unit};
use super::{Findings, Options, part};
use crate::Outcome;
use crate::peers;
use contender::{Contender, Served};

/// A part of the benchmark: its name and what runs it.
type Part = (&'static str, fn(&mut Bench) -> Outcome);

const PARTS: [Part; 8] = [
    ("patterns", patterns::patterns),
    ("presets", presets::presets),
    ("table1", amplification::table1),
    ("memory", memory::memory),
    ("strategies", strategies::strategies),
    ("savings", savings::savings),
    ("launch", launch::launch),
    ("walk", walk::walk),
];

/// Tells what of the image is in the page cache when reading begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Cold,
    Warm,
}

/// A benchmark that runs.
struct Bench<'a> {
    options: &'a Options,
    anteros: PathBuf,
    images: PathBuf,
    scratch: PathBuf,
    notes: Vec<String>,
    comparisons: Vec<Comparison>,
}

/// Runs the benchmark.
///
/// # Errors
/// When it is not run as root, a corpus or the peers cannot be had, or the machine refuses what every part needs.
pub(super) fn read(options: &Options) -> Outcome<Findings> {
    let parts = part::chosen(&PARTS, &options.only)?;
    let place = Place::take()?;
    peers::make()?;
    let mut bench = Bench::new(options, &place)?;
    for (name, part) in parts {
        eprintln!("bench read: {name}");
        if let Err(error) = part(&mut bench) {
            bench.note(format!("{name} ended early: {error}"));
        }
    }
    place.leave()?;
    Ok(Findings {
        versions: super::versions(&bench.anteros)?,
        notes: bench.notes,
        comparisons: bench.comparisons,
        goals: Vec::new(),
    })
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, place: &Place) -> Outcome<Self> {
        let bench = Self {
            options,
            anteros: options.anteros()?,
            images: path::absolute("target/bench/images")?,
            scratch: place.scratch().to_owned(),
            notes: Vec::new(),
            comparisons: Vec::new(),
        };
        fs::create_dir_all(&bench.images)?;
        Ok(bench)
    }

    /// Says something that one must know to read the figures, once.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("bench read: {note}");
            self.notes.push(note);
        }
    }

    /// The directory that everything is mounted on.
    fn mount_point(&self) -> PathBuf {
        self.scratch.join("mount")
    }

    /// The image of a contender, made now if need be.
    fn image(&self, contender: &Contender, corpus: &Path) -> Outcome<PathBuf> {
        contender.format.image(&self.images, corpus)
    }

    /// Makes the images of contenders before their turns. What cannot be made is told in the turn that wants it.
    fn prepare(&self, contenders: &[Contender], corpus: &Path) {
        for contender in contenders {
            let _ = self.image(contender, corpus);
        }
    }

    /// Measures something of a contender's fresh mount.
    fn fresh<T>(
        &self,
        contender: &Contender,
        corpus: &Path,
        state: State,
        measure: impl FnOnce(&Served) -> Outcome<T>,
    ) -> Outcome<T> {
        self.fresh_image(contender, &self.image(contender, corpus)?, state, measure)
    }

    /// The same, of an image that lies anywhere.
    fn fresh_image<T>(
        &self,
        contender: &Contender,
        image: &Path,
        state: State,
        measure: impl FnOnce(&Served) -> Outcome<T>,
    ) -> Outcome<T> {
        drop_caches()?;
        if state == State::Warm {
            File::open(image)
                .and_then(|mut file| io::copy(&mut file, &mut io::sink()))
                .map_err(|error| format!("{}: {error}", image.display()))?;
        }
        let served = contender.mount(image, &self.mount_point(), state == State::Cold)?;
        if state == State::Cold {
            drop_caches()?;
        }
        measure(&served)
    }

    /// Lets contenders take turns, each as often as asked for. A turn yields one figure per metric.
    fn contest(
        &mut self,
        metrics: &[(String, Unit)],
        subject: &str,
        contenders: &[Contender],
        mut turn: impl FnMut(&Self, &Contender) -> Outcome<Vec<f64>>,
    ) {
        let contest = Contest {
            metrics,
            subject,
            at: None,
            yardsticks: &[],
            runs: self.options.runs,
        };
        let comparisons = contest.hold(contenders, |contender| turn(self, contender));
        self.comparisons.extend(comparisons);
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm image",
        }
    }
}

/// Writes what is to be written, and empties the page cache and what else the kernel remembers of files.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn drop_caches() -> Outcome {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("drop_caches: {error}"))?;
    Ok(())
}
