//! `cargo xtask record`: what a program writes, with every byte, in the format of `tests/data/traces`.
//!
//! The program runs in a mirrored directory that is empty at first. The kernel hands each of its writes on at once; one
//! that begins or ends within a page may arrive in two pieces. What was recorded is compared with what the
//! directory holds in the end, so a trace is whole or an error.

mod layer;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anteros_fuse::{MountOptions, Session, Unmounter};
use anteros_tests::recorded::{Content, Trace};
use tempfile::TempDir;

use crate::outcome::Outcome;
use crate::run::run;
pub(crate) use layer::Count;
use layer::Recording;

/// Records a command that is run in the directory.
///
/// # Errors
/// When the command fails, or the trace is not what it wrote.
pub(crate) fn record(trace: &str, command: &[&str]) -> Outcome {
    let recorder = Recorder::start(Path::new(trace))?;
    if let Err(error) = run(&mut recorder.command(command)) {
        recorder.give_up();
        return Err(error);
    }
    let count = recorder.end()?;
    println!("{trace}: {} records", count.records);
    if count.nameless > 0 {
        println!(
            "left out: {} calls for files that had no name any more",
            count.nameless
        );
    }
    Ok(())
}

/// A directory of which everything is recorded that is done to it.
pub(crate) struct Recorder {
    trace: PathBuf,
    scratch: TempDir,
    recording: Arc<Recording>,
    unmounter: Unmounter,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl Recorder {
    /// Begins to record.
    ///
    /// # Errors
    /// When nothing can be mounted, or the trace not be written.
    pub(crate) fn start(trace: &Path) -> Outcome<Self> {
        let scratch = TempDir::with_prefix("anteros-record-")?;
        let [source, mount] = ["source", "mount"].map(|name| scratch.path().join(name));
        fs::create_dir(&source)?;
        fs::create_dir(&mount)?;
        let recording = Arc::new(Recording::new(&source, File::create(partial(trace))?)?);
        let options = MountOptions {
            passthrough: false,
            ..MountOptions::default()
        };
        let session = Session::mount(recording.clone(), &mount, &options)?;
        Ok(Self {
            trace: trace.to_owned(),
            scratch,
            recording,
            unmounter: session.unmounter(),
            server: Some(thread::spawn(move || session.run())),
        })
    }

    /// Returns where one writes.
    pub(crate) fn directory(&self) -> PathBuf {
        self.scratch.path().join("mount")
    }

    /// A command that runs there.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        // Mirroring has taken the mask of this process away.
        let mut command = Command::new("sh");
        command.args(["-c", "umask 022 && exec \"$@\"", "sh"]);
        command.args(words).current_dir(self.directory());
        command
    }

    /// Ends the trace, and sees whether all is in it.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn end(mut self) -> Outcome<Count> {
        self.unmount()?;
        let count = self.recording.finish()?;
        let partial = partial(&self.trace);
        let recorded = Content::of(Trace::open(&partial)?)?;
        let written = self
            .recording
            .content(&self.scratch.path().join("source"))?;
        if let Some(difference) = written.difference(&recorded) {
            return Err(
                format!("{}: not what was written: {difference}", partial.display()).into(),
            );
        }
        fs::rename(partial, &self.trace)?;
        Ok(count)
    }

    /// Ends without a trace.
    pub(crate) fn give_up(mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("record: {error}");
        }
        let _ = fs::remove_file(partial(&self.trace));
    }

    fn unmount(&mut self) -> Outcome {
        self.unmounter.unmount()?;
        match self.server.take().map(JoinHandle::join) {
            Some(Ok(served)) => Ok(served?),
            Some(Err(_)) => Err("the thread that served the mount ended in a panic".into()),
            None => Ok(()),
        }
    }
}

/// Returns where a trace is written until it is whole.
fn partial(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anteros_tests::judge::{has_fuse, has_program};
    use anteros_tests::recorded::{Action, HostDirectory, Replay, Target};

    fn recorded(words: &[&str]) -> (TempDir, PathBuf) {
        let scratch = TempDir::new().unwrap();
        let trace = scratch.path().join("trace");
        let recorder = Recorder::start(&trace).unwrap();
        run(&mut recorder.command(words)).unwrap();
        recorder.end().unwrap();
        (scratch, trace)
    }

    #[test]
    fn files_are_made_moved_cut_and_removed() {
        if !has_fuse() {
            return;
        }
        let script = "
            echo one >a && echo two >>a && mkdir d && mv a d/b && echo three >c && mv c d/b
            truncate -s 3 d/b && mkdir d/e && echo deep >d/e/f && mv d g && echo deeper >>g/e/f
            : >empty && echo gone >gone && rm gone && fallocate -l 5000 long
            mkdir again && echo x >again/x && rm again/x && rmdir again && mkdir again
            echo y >again/y && ln -s again/y link && ! ln again/y hard 2>/dev/null
            (sleep 0.1; echo late; rm open; echo later) >open";
        let (scratch, trace) = recorded(&["sh", "-ec", script]);
        let content = Content::of(Trace::open(&trace).unwrap()).unwrap();
        let mut files: Vec<_> = content.0.values().map(|file| file.len()).collect();
        files.sort_unstable();
        assert_eq!(files, [0, 2, 3, 12, 5000], "{:?}", content.0.keys());
        let replayed = scratch.path().join("replayed");
        fs::create_dir(&replayed).unwrap();
        anteros_tests::recorded::replay(Trace::open(&trace).unwrap(), &replayed).unwrap();
        let found = HostDirectory::new(&replayed).content().unwrap();
        assert_eq!(content.difference(&found), None);
    }

    #[test]
    fn sqlite_is_recorded_in_both_kinds_of_journals() {
        if !has_fuse() || !has_program("sqlite3") {
            return;
        }
        for (journal, is_synced) in [("delete", true), ("wal", false)] {
            let script = format!(
                "pragma journal_mode={journal}; create table t(x);
                 insert into t values('one'); insert into t values('two');"
            );
            let (scratch, trace) = recorded(&["sqlite3", "db", &script]);
            let records = Trace::open(&trace).unwrap().map(Result::unwrap);
            let directory_syncs = records.filter(|one| one.action == Action::SyncDirectory);
            assert_eq!(directory_syncs.count() > 2, is_synced, "{journal}");
            let mut replay = Replay::new(scratch.path());
            for record in Trace::open(&trace).unwrap() {
                replay.step(&record.unwrap()).unwrap();
            }
            let database = scratch.path().join("d0/db");
            let mut query = Command::new("sqlite3");
            query.arg(database).arg("select group_concat(x) from t");
            assert_eq!(crate::run::output(&mut query).unwrap(), "one,two\n");
        }
    }
}
