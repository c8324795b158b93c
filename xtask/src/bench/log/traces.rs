//! Part `traces`: recorded writes of SQLite and Chromium done again: what reaches the device, and how long an fsync takes.
//!
//! Bytes are counted from an empty mount until all is replayed and synced, and until it is unmounted: a sync does not
//! reach a daemon, so only the second figure has all that ours has to write.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anteros_tests::recorded::{
    self, Action, Content, HostDirectory, Record, Replay, Target, Trace,
};

use super::harness::Bench;
use super::system::System;
use crate::bench::report::Unit;
use crate::bench::write::native::Memory;
use crate::outcome::Outcome;

/// Something recorded.
pub(in crate::bench) struct Recorded {
    pub(in crate::bench) name: &'static str,
    pub(in crate::bench) source: Source,
    /// Nothing but the databases, their journals, and the syncs of directories behind those.
    pub(in crate::bench) is_sqlite_alone: bool,
    /// Holds what F2FS wrote for it until it was replayed and synced, in MiB (`mode=lfs`, Linux 6.1 in a guest).
    pub(in crate::bench) f2fs_mib: Option<f64>,
}

/// Tells where a trace comes from.
pub(in crate::bench) enum Source {
    /// The repository.
    Kept(&'static str),
    /// An application that is recorded here.
    Made(&'static str),
}

/// The traces of the repository.
pub(in crate::bench) const RECORDED: [Recorded; 4] = [
    Recorded {
        name: "app_DELETE",
        source: Source::Kept("app_DELETE"),
        is_sqlite_alone: false,
        f2fs_mib: Some(165.0),
    },
    Recorded {
        name: "app_WAL",
        source: Source::Kept("app_WAL"),
        is_sqlite_alone: false,
        f2fs_mib: Some(55.0),
    },
    Recorded {
        name: "chromium, SQLite alone",
        source: Source::Kept("chromium"),
        is_sqlite_alone: true,
        f2fs_mib: Some(8.0),
    },
    Recorded {
        name: "chromium",
        source: Source::Kept("chromium"),
        is_sqlite_alone: false,
        f2fs_mib: None,
    },
];
/// The goals look for it.
pub(in crate::bench) const UNMOUNTED: &str = "traces: written to the device until unmounted";

/// The same.
pub(in crate::bench) const SYNCED: &str = "traces: writes and the fsync behind them, mean";

/// States what it took, and what a phone's storage would take for what the device was sent.
pub(in crate::bench) const ON_A_PHONE: &str = "traces: replay on a phone's storage";

/// Enough for all of them.
pub(in crate::bench) const DEVICE_BYTES: u64 = 1 << 30;

/// Runs the part.
///
/// # Errors
/// When there is no memory for the device.
pub(super) fn traces(bench: &mut Bench) -> Outcome {
    let memory = Memory::full(bench.place, DEVICE_BYTES)?;
    for recorded in &RECORDED {
        contest(bench, &memory, recorded);
    }
    Ok(())
}

/// Lets all systems do what was recorded.
pub(in crate::bench) fn contest(bench: &mut Bench, memory: &Memory, recorded: &Recorded) {
    let metrics = [
        ("traces: written to the device until synced", Unit::Bytes),
        (UNMOUNTED, Unit::Bytes),
        ("traces: fsync, median", Unit::Seconds),
        ("traces: fsync, 99 of 100 below", Unit::Seconds),
        (SYNCED, Unit::Seconds),
        ("traces: replay", Unit::Seconds),
        (ON_A_PHONE, Unit::Seconds),
    ];
    let metrics = metrics.map(|(name, unit)| (name.to_owned(), unit));
    let systems = bench.systems.clone();
    bench.contest(recorded.name, &metrics, &systems, |bench, system| {
        turn(bench, system, &memory.file, recorded)
    });
}

fn turn(bench: &Bench, system: &System, device: &Path, recorded: &Recorded) -> Outcome<Vec<f64>> {
    let mut turn = bench.turn(system, device)?;
    bench.count(&mut turn)?;
    let before = turn.device().traffic()?;
    let (times, expected) = replay(recorded, turn.directory()?)?;
    turn.stand()?.sync()?;
    let synced = turn.written()?;
    let of_storage = turn.device().traffic()?.phone_seconds_since(&before);
    turn.unmount()?;
    let unmounted = turn.written()?;
    turn.mount_again()?;
    let found = HostDirectory::new(turn.directory()?).content()?;
    if let Some(difference) = expected.difference(&found) {
        return Err(format!("when it is mounted again: {difference}").into());
    }
    turn.end()?;
    Ok(vec![
        synced as f64,
        unmounted as f64,
        percentile(&times.syncs, 50),
        percentile(&times.syncs, 99),
        times.calls / times.syncs.len() as f64,
        times.calls,
        times.calls + of_storage,
    ])
}

impl Recorded {
    /// Begins to read it; it is recorded if need be.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(in crate::bench) fn open(&self) -> Outcome<Trace> {
        let path: PathBuf = match self.source {
            Source::Kept(name) => recorded::path(name),
            Source::Made(name) => crate::traces::path(name)?,
        };
        Ok(Trace::open(path)?)
    }

    /// Returns what of the trace is done.
    fn filter(&self) -> Outcome<Filter> {
        match self.is_sqlite_alone {
            true => Filter::sqlite(self.open()?),
            false => Ok(Filter::All),
        }
    }
}

/// Tells what of a trace is done.
pub(in crate::bench) enum Filter {
    All,
    Sqlite {
        databases: HashSet<String>,
        /// Everything that was written to: what else is synced is a directory.
        files: HashSet<String>,
        /// Tells whether the call before was one of SQLite.
        is_behind: bool,
    },
}

impl Filter {
    /// A database is what has had a journal beside it.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub(in crate::bench) fn sqlite(trace: Trace) -> Outcome<Self> {
        let (mut databases, mut files) = (HashSet::new(), HashSet::new());
        for record in trace {
            let record = record?;
            databases.extend(database_of_journal(&record.path).map(str::to_owned));
            if matches!(record.action, Action::Write { .. }) {
                files.insert(record.path);
            }
        }
        Ok(Self::Sqlite {
            databases,
            files,
            is_behind: false,
        })
    }

    /// Returns whether a record is done, the ones before it having been asked about.
    pub(in crate::bench) fn passes(&mut self, record: &Record) -> bool {
        let Self::Sqlite {
            databases,
            files,
            is_behind,
        } = self
        else {
            return true;
        };
        let path = &record.path;
        let is_directory = match record.action {
            Action::SyncDirectory => true,
            Action::Fsync | Action::Fdatasync => !files.contains(path),
            _ => false,
        };
        if !is_directory {
            *is_behind = databases.contains(database_of_journal(path).unwrap_or(path));
        }
        *is_behind
    }
}

/// The database to which a journal belongs, if it is one.
fn database_of_journal(path: &str) -> Option<&str> {
    let endings = ["-journal", "-wal", "-shm"];
    endings.iter().find_map(|ending| path.strip_suffix(ending))
}

/// Describes how long calls took, in seconds.
struct Times {
    /// Each call that syncs, the shortest first.
    syncs: Vec<f64>,
    /// All calls together.
    calls: f64,
}

/// Does again what was recorded.
///
/// # Errors
/// When the trace cannot be read, or something of it not be done.
pub(in crate::bench) fn redo(recorded: &Recorded, directory: &Path) -> Outcome {
    replay(recorded, directory).map(drop)
}

/// Does again what was recorded, as far as its filter lets it through, and says what should be there then. Reading it takes no
/// part in the times.
fn replay(recorded: &Recorded, directory: &Path) -> Outcome<(Times, Content)> {
    let (mut filter, trace) = (recorded.filter()?, recorded.open()?);
    let mut replay = Replay::new(directory);
    let mut expected = Content::default();
    let (mut syncs, mut calls) = (Vec::new(), 0.0);
    for record in trace {
        let record = record?;
        if !filter.passes(&record) {
            continue;
        }
        let start = Instant::now();
        replay.step(&record)?;
        let seconds = start.elapsed().as_secs_f64();
        calls += seconds;
        if matches!(
            record.action,
            Action::Fsync | Action::Fdatasync | Action::SyncDirectory
        ) {
            syncs.push(seconds);
        }
        expected.apply(record)?;
    }
    syncs.sort_by(f64::total_cmp);
    Ok((Times { syncs, calls }, expected))
}

/// The smallest figure that so many of 100 do not exceed, of sorted ones.
pub(in crate::bench) fn percentile(sorted: &[f64], of_100: usize) -> f64 {
    let rank = (sorted.len() * of_100).div_ceil(100);
    let at = rank.saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_chromium_sqlite_wrote_a_part() {
        let recorded = RECORDED.iter().find(|one| one.is_sqlite_alone).unwrap();
        let mut filter = recorded.filter().unwrap();
        let records = recorded.open().unwrap().map(Result::unwrap);
        let passed: Vec<Record> = records.filter(|record| filter.passes(record)).collect();
        let writes = passed
            .iter()
            .filter(|record| matches!(record.action, Action::Write { .. }));
        assert_eq!(writes.count(), 3153);
        assert!(passed.iter().all(|record| !record.path.contains("LOG")));
    }

    #[test]
    fn a_percentile_is_one_of_the_figures() {
        let figures: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&figures, 50), 100.0);
        assert_eq!(percentile(&figures, 99), 198.0);
        assert_eq!(percentile(&[7.0], 99), 7.0);
    }
}
