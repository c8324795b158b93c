//! Launches of programs, recorded while they read: because somebody asks for it, or by the log for itself.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anteros_core::{FsError, FsResult, Ino, Timestamp, unpoisoned};

use crate::cleaning::launches::{FileReads, Launches, ROUNDS, Version};
use crate::compress::kind::ContentKind;
use crate::layout::BLOCK_BYTES;
use crate::mount::log::{Log, ReadDone};
use crate::mount::recording::Recording;
use crate::mount::state::State;
use crate::store::medium::is_damage;

impl Log {
    /// From here on, records which blocks of files are read, and which inodes are looked up, behind what `launches` has; of
    /// that, what is gone or has changed is forgotten. Once for each mount: later calls change nothing.
    pub fn record_launches(&self, launches: Launches) {
        let _ = self.launches.set(Recording::new(launches, true));
        self.prune_launches();
    }

    /// From here on, records for itself which blocks of executables are read, behind what earlier mounts have. Once for each
    /// mount, and instead of [`record_launches`](Self::record_launches).
    ///
    /// # Errors
    ///
    /// When the device fails. A record that is damaged is begun anew.
    pub fn remember_launches(&self) -> FsResult<()> {
        let kept = match self.kept_record() {
            Err(error) if is_damage(&error) => None,
            kept => kept?,
        };
        let kept = kept.unwrap_or_default();
        let kept = Launches::parse(&kept).ok();
        let kept = kept.filter(|launches| launches.uuid() == self.uuid());
        let launches = kept.unwrap_or_else(|| Launches::new(self.uuid(), ROUNDS));
        let recording = Recording::new(launches.unasked(), false);
        let _ = self.launches.set(recording);
        Ok(())
    }

    /// Keeps what the log has recorded for itself, if that is news; it is durable with the next checkpoint.
    ///
    /// # Errors
    ///
    /// When the device fails, or there is no room.
    pub fn keep_launches(&self) -> FsResult<()> {
        let Some(recording) = self.launches.get().filter(|recording| !recording.is_asked) else {
            return Ok(());
        };
        let (changes, bytes) = {
            let launches = unpoisoned(recording.launches.lock());
            let changes = launches.changes();
            if changes == recording.kept.load(Ordering::Relaxed) {
                return Ok(());
            }
            (changes, launches.encode())
        };
        self.keep_record(&bytes)?;
        recording.kept.store(changes, Ordering::Relaxed);
        Ok(())
    }

    /// Forgets what earlier mounts have recorded.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn forget_launches(&self) -> FsResult<()> {
        match self.kept_record() {
            Ok(None) => Ok(()),
            Err(error) if !is_damage(&error) => Err(error),
            _ => self.drop_record(),
        }
    }

    /// Forgets what was recorded before this mount of files that are gone or have changed; later calls change nothing.
    fn prune_launches(&self) {
        let Some(recording) = self.launches.get() else {
            return;
        };
        if recording.is_pruned.swap(true, Ordering::Relaxed) {
            return;
        }
        let files: Vec<_> = unpoisoned(recording.launches.lock()).files().collect();
        let is_gone = |&(ino, version): &(u32, Version)| {
            let mut state = self.lock();
            state.shrink();
            !state.content_version(ino).is_ok_and(|now| now == version)
        };
        let gone: HashSet<_> = files.into_iter().filter(is_gone).collect();
        let mut launches = unpoisoned(recording.launches.lock());
        launches.retain(|ino, version| !gone.contains(&(ino, version)));
    }

    /// Returns whether launches are recorded because somebody asks for it.
    pub(crate) fn records_launches(&self) -> bool {
        let recording = self.launches.get();
        recording.is_some_and(|recording| recording.is_asked)
    }

    /// Returns whether reads of such files are recorded.
    pub(super) fn is_recorded(&self, kind: ContentKind) -> bool {
        let recording = self.launches.get();
        recording.is_some_and(|recording| recording.wants(kind))
    }

    /// Shows what was recorded of launches, if that is recorded. Reads wait meanwhile.
    pub fn with_launches<T>(&self, see: impl FnOnce(&Launches) -> T) -> Option<T> {
        self.change_launches(|launches| see(launches))
    }

    pub(super) fn change_launches<T>(&self, change: impl FnOnce(&mut Launches) -> T) -> Option<T> {
        let mut launches = unpoisoned(self.launches.get()?.launches.lock());
        Some(change(&mut launches))
    }

    /// Blocks that launches read of a file, if any launch was recorded since its content changed. What nobody has asked for
    /// counts from the second launch on. Errors are not reported.
    pub fn launch_reads(&self, ino: Ino) -> Option<FileReads> {
        let ino = u32::try_from(ino.0).ok()?;
        let version = self.lock().content_version(ino).ok()?;
        let reads = self.with_launches(|launches| launches.reads(ino, version))??;
        match self.records_launches() {
            true => Some(reads),
            false => (reads.rounds > 1).then_some(FileReads {
                is_unasked: true,
                ..reads
            }),
        }
    }

    /// Tells whether several launches of a file were recorded since its content changed.
    pub(super) fn is_launched_again(&self, ino: u32) -> bool {
        let version = self.lock().content_version(ino);
        let is_again = |version| self.with_launches(|launches| launches.has_again(ino, version));
        version.ok().and_then(is_again).unwrap_or(false)
    }

    /// Files of which several launches have read a good deal that does not lie together, and that nobody has changed for so long.
    pub(super) fn scattered(&self, cold: Duration) -> FsResult<Vec<(u32, FileReads)>> {
        self.prune_launches();
        let scattered = self.with_launches(Launches::scattered).unwrap_or_default();
        let mut found = Vec::new();
        for ino in scattered {
            let mut state = self.lock();
            let is_cold = state.is_cold(ino, cold);
            state.shrink();
            drop(state);
            match is_cold {
                Ok(true) => {
                    found.extend(self.launch_reads(Ino(ino.into())).map(|reads| (ino, reads)))
                }
                Ok(false) | Err(FsError::NotFound | FsError::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Notes that all that several launches have read of these files lies together now.
    pub(super) fn note_gathered(&self, files: impl Iterator<Item = u32>) {
        self.change_launches(|launches| files.for_each(|ino| launches.note_gathered(ino)));
    }

    /// Notes that content of a file was read.
    pub(super) fn note_content_read(&self, ino: u32, offset: u64, read: &ReadDone) -> FsResult<()> {
        let mut state = self.lock();
        state.note_read(ino)?;
        state.note_decoded(ino, read.wanted, read.decoded)?;
        let len = read.len;
        let Some(recording) = self.launches.get().filter(|_| len > 0) else {
            return Ok(());
        };
        if !recording.wants(state.content_kind(ino)?) {
            return Ok(());
        }
        let (version, now) = (state.content_version(ino)?, state.store.now());
        drop(state);
        let end = offset + len as u64;
        let read = lblk(offset)..lblk(end.next_multiple_of(BLOCK_BYTES as u64));
        let mut launches = unpoisoned(recording.launches.lock());
        launches.note(ino, version, read, millis(now));
        Ok(())
    }

    /// Notes that an inode was looked up, if somebody asks for that.
    pub(crate) fn note_lookup(&self, ino: u32) -> FsResult<()> {
        let Some(recording) = self.launches.get().filter(|recording| recording.is_asked) else {
            return Ok(());
        };
        let (version, now) = {
            let mut state = self.lock();
            (state.content_version(ino)?, state.store.now())
        };
        let mut launches = unpoisoned(recording.launches.lock());
        launches.note_lookup(ino, version.generation, millis(now));
        Ok(())
    }
}

impl State {
    /// Version of the content of an inode, which no earlier or later content has.
    pub(super) fn content_version(&mut self, ino: u32) -> FsResult<Version> {
        Ok(Version::from(&self.live(ino)?.inode().attributes))
    }
}

/// The logical block of a byte. Files have fewer than 2^32.
fn lblk(offset: u64) -> u32 {
    u32::try_from(offset / BLOCK_BYTES as u64).unwrap_or(u32::MAX)
}

fn millis(time: Timestamp) -> u64 {
    let secs = u64::try_from(time.secs).unwrap_or(0);
    secs.saturating_mul(1000)
        .saturating_add(u64::from(time.nanos / 1_000_000))
}
