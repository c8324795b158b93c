//! Turns of a benchmark of reading: a fresh mount, with the image in the page cache or not.

use std::fs::{self, File};
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::contender::{Contender, Served};
use crate::bench::caches::drop_caches;
use crate::bench::contest::Contest;
use crate::bench::options::Options;
use crate::bench::place::Place;
use crate::bench::report::{Comparison, Unit};
use crate::outcome::Outcome;
use crate::run::output;

/// Tells what of the image is in the page cache when reading begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Cold,
    Warm,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm image",
        }
    }
}

/// A benchmark that runs.
pub(super) struct Bench<'a> {
    pub(super) options: &'a Options,
    pub(super) anteros: PathBuf,
    pub(super) images: PathBuf,
    pub(super) scratch: PathBuf,
    pub(super) notes: Vec<String>,
    pub(super) comparisons: Vec<Comparison>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(options: &'a Options, place: &Place) -> Outcome<Self> {
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
    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("bench read: {note}");
            self.notes.push(note);
        }
    }

    /// The directory that everything is mounted on.
    pub(super) fn mount_point(&self) -> PathBuf {
        self.scratch.join("mount")
    }

    /// The image of a contender, made now if need be.
    pub(super) fn image(&self, contender: &Contender, corpus: &Path) -> Outcome<PathBuf> {
        contender.format.image(&self.images, corpus)
    }

    /// Makes the images of contenders before their turns. What cannot be made is told in the turn that wants it.
    pub(super) fn prepare(&self, contenders: &[Contender], corpus: &Path) {
        for contender in contenders {
            let _ = self.image(contender, corpus);
        }
    }

    /// Measures something of a contender's fresh mount.
    pub(super) fn fresh<T>(
        &self,
        contender: &Contender,
        corpus: &Path,
        state: State,
        measure: impl FnOnce(&Served) -> Outcome<T>,
    ) -> Outcome<T> {
        self.fresh_image(contender, &self.image(contender, corpus)?, state, measure)
    }

    /// Measures something of a fresh mount of an image that lies anywhere.
    pub(super) fn fresh_image<T>(
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

    /// Returns what our daemon has counted, as JSON.
    ///
    /// # Errors
    /// When none serves the mount.
    pub(super) fn statistics(&self, mount: &Path) -> Outcome<Value> {
        let told = output(
            Command::new(&self.anteros)
                .args(["stat", "--json"])
                .arg(mount),
        )?;
        Ok(serde_json::from_str(&told)?)
    }

    /// Lets contenders take turns, each as often as asked for. A turn yields one figure per metric.
    pub(super) fn contest(
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
