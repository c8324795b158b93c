//! A setting and what is to be expected of it, and which of several is the best.

use serde::Serialize;

use super::sample::Sample;
use super::trial::Trial;
use crate::linux;

/// The best setting is the smallest of those that are read at least so fast, beside the fastest that compresses.
const READ_RATE_LEAST: f64 = 0.25;

/// A setting and what is to be expected of it.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The letter that stands for it in a drawing.
    pub letter: char,
    pub settings: &'static str,
    /// The size of an image of the whole directory.
    pub bytes: u64,
    pub build_seconds: f64,
    /// In bytes per second.
    pub read_rate: f64,
    pub linux: linux::View,
    /// Tells whether none is both smaller and quicker to read.
    pub is_front: bool,
    pub is_best: bool,
}

impl Row {
    pub fn of(trial: Trial, sample: &Sample, index: usize) -> Self {
        Self {
            letter: char::from(b'a' + index as u8),
            settings: trial.settings,
            bytes: sample.scaled(trial.image_bytes),
            build_seconds: trial.build_time.as_secs_f64() * sample.times,
            read_rate: trial.read_rate,
            linux: linux::View::new(&trial.linux),
            is_front: false,
            is_best: false,
        }
    }

    fn is_compressed(&self) -> bool {
        self.settings != "-znone"
    }

    /// Returns whether another one is as small and as quick to read, and one of the two more so.
    fn is_beaten_by(&self, other: &Self) -> bool {
        let is_as_good = other.bytes <= self.bytes && other.read_rate >= self.read_rate;
        is_as_good && (other.bytes < self.bytes || other.read_rate > self.read_rate)
    }
}

/// Marks the rows that none beats, and the best one.
pub fn mark(rows: &mut [Row]) {
    let beaten: Vec<_> = rows
        .iter()
        .map(|row| rows.iter().any(|other| row.is_beaten_by(other)))
        .collect();
    for (row, is_beaten) in rows.iter_mut().zip(beaten) {
        row.is_front = !is_beaten;
    }
    let compressed = rows.iter().filter(|row| row.is_compressed());
    let fastest = compressed.map(|row| row.read_rate).fold(0.0, f64::max);
    let is_quick = |row: &&mut Row| row.is_front && row.read_rate >= fastest * READ_RATE_LEAST;
    let best = rows.iter_mut().filter(is_quick).min_by_key(|row| row.bytes);
    if let Some(best) = best {
        best.is_best = true;
    }
}
