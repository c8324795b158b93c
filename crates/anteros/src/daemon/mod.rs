//! The process behind a FUSE mount: it serves an image until it is unmounted, within its memory, or
//! a directory, or a log.
//!
//! - `arguments`: what all of them are told.
//! - `background`: how it leaves the terminal.
//! - `metrics`, `mirror`, `log`: what it tells of itself when it serves an image, a directory, or a log.
//! - `work`: what takes long and is ordered of a log; `compaction`: compression and estimates of it, whose numbers `tally` has.
//! - `controls`: by which attributes commands ask something of it.
//! - `workers`: the threads that answer.
//! - `exposition`: the form of that; `latencies`: the part that is the same.
//! - `recording`: the record of what is read and written; `launches`: that of what executables are read.
//! - `scrub`: reading all of a log once in a while; `idle`: compression in the background while nobody uses it,
//!   whose `usage` of the machine has bounds.
//! - `faults`: what it says of a broken image or a failing medium, and where.
//! - `neighbours`: what it hands the kernel unasked; `packed`: what of that it gets back.

pub mod arguments;
pub mod background;
#[cfg(feature = "whole")]
pub mod compaction;
pub mod controls;
pub mod exposition;
pub mod faults;
#[cfg(feature = "whole")]
pub mod idle;
pub mod latencies;
#[cfg(feature = "whole")]
pub mod launches;
#[cfg(feature = "whole")]
pub mod log;
pub mod metrics;
#[cfg(feature = "whole")]
pub mod mirror;
pub mod neighbours;
pub mod packed;
pub mod recording;
#[cfg(feature = "whole")]
pub mod scrub;
#[cfg(feature = "whole")]
pub mod tally;
#[cfg(feature = "whole")]
pub mod usage;
#[cfg(feature = "whole")]
pub mod work;
pub mod workers;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anteros_core::FileSystem;
use anteros_fuse::{MountError, MountOptions, Session};
use anteros_image::ImageFs;
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output};
use exposition::ATTRIBUTE;
use faults::Faults;
use metrics::Metrics;
use neighbours::Neighbours;
use recording::Recording;
use workers::Workers;

/// The time within which a mount that nobody else has ends after it was unmounted.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
const ELSEWHERE: &str = "unmounted here, but not elsewhere: another mount namespace, or another directory by a bind mount, \
                         has the mount still; the daemon serves it until it is unmounted there, too";

/// Holds what serves a mount.
pub struct Daemon {
    fs: Arc<ImageFs>,
    metrics: Arc<Metrics>,
    neighbours: Neighbours,
    recording: Option<Recording>,
}

impl Daemon {
    /// A daemon for a file system, with numbers to fill, that hands the kernel so much of what else is
    /// decoded, and records what is read if that is wanted.
    pub fn new(
        fs: Arc<ImageFs>,
        metrics: Metrics,
        neighbours: Neighbours,
        recording: Option<Recording>,
    ) -> Self {
        Self {
            fs,
            metrics: Arc::new(metrics),
            neighbours,
            recording,
        }
    }

    /// Mounts, calls `stands` when that is done, and serves until the mount goes away.
    pub fn serve(
        self,
        directory: &Path,
        options: &MountOptions,
        stands: impl FnOnce(&Metrics) -> Result<(), Failure>,
    ) -> Outcome {
        let Self {
            fs,
            metrics,
            neighbours,
            recording,
        } = self;
        let recording = Arc::new(recording);
        let (session, signals) = mount(fs.clone(), directory, options)?;
        if let Some(recording) = recording.as_ref() {
            recording.catch_up_by(session.catch_up());
        }
        let workers = Workers::of(&session);
        let root = session.mountpoint();
        neighbours::push(
            &fs,
            neighbours,
            recording.is_none(),
            root,
            session.notifier(),
            metrics.clone(),
        );
        let (watcher, teller, image) = (metrics.clone(), metrics.clone(), fs.clone());
        let (noted, told) = (recording.clone(), recording.clone());
        let path_of = faults::asked_once(move |ino| fs.path_of(ino).map(|path| path.to_string()));
        let session = session
            .on_fault(metrics.faults.clone().listen(path_of))
            .on_answer(move |answered| {
                watcher.latencies.note(answered);
                noted.iter().for_each(|recording| recording.note(answered));
            })
            .on_attribute(move |asked| {
                let is = |name: &str| asked.ino == image.root() && asked.name == name.as_bytes();
                let recording = (*told).as_ref();
                let text = || {
                    let text = teller.text(&image, workers, recording, asked.uid);
                    text.into_bytes()
                };
                let told = recording.filter(|_| is(recording::ATTRIBUTE));
                told.map(Recording::told)
                    .or_else(|| is(ATTRIBUTE).then(text))
            });
        let served = run(session, signals, metrics.faults.clone(), || {
            stands(&metrics)
        });
        recording.iter().for_each(Recording::finish);
        served
    }
}

/// Mounts. Signals that ask to stop are kept from before there is a mount, for [`run`]: they would end the daemon and leave
/// the mount.
pub fn mount(
    fs: Arc<dyn FileSystem>,
    directory: &Path,
    options: &MountOptions,
) -> Result<(Session, Signals), Failure> {
    let signals = Signals::new(interrupt::signals()).map_err(Failure::os)?;
    let session = Session::mount(fs, directory, options).map_err(mount_failure)?;
    Ok((session, signals))
}

/// Calls `stands`, and serves a mount until it goes away; a signal that asks to stop unmounts it.
pub fn run(
    session: Session,
    mut signals: Signals,
    faults: Arc<Faults>,
    stands: impl FnOnce() -> Result<(), Failure>,
) -> Outcome {
    if let Some(error) = session.unguarded() {
        let text =
            "should this daemon be killed, whoever reads may wait until the connection is aborted";
        output::complain("warning", format_args!("no guardian ({error}): {text}"));
    }
    let unmounter = session.unmounter();
    let handle = signals.handle();
    let (serves, is_over) = channel::<()>();
    let waiter = std::thread::spawn(move || {
        for _ in &mut signals {
            match unmounter.unmount() {
                Err(error) => faults.warn(&error.to_string()),
                Ok(()) if is_over.recv_timeout(ENDS_WITHIN) == Err(RecvTimeoutError::Timeout) => {
                    faults.warn(ELSEWHERE);
                }
                Ok(()) => {}
            }
        }
    });
    stands()?;
    let served = session.run();
    drop(serves);
    handle.close();
    let _ = waiter.join();
    served.map_err(Failure::os)?;
    Ok(Verdict::Good)
}

/// Looks on as the guardian of the daemon that started this process. What ends a daemon in order does not end its
/// guardian, which would go before there is anything to guard.
pub fn guard() -> Outcome {
    for signal in interrupt::ENDING {
        signal_hook::flag::register(signal, Arc::default()).map_err(Failure::os)?;
    }
    anteros_fuse::guard().map_err(Failure::os)?;
    Ok(Verdict::Good)
}

/// Returns why a mount did not come about, in words for people.
fn mount_failure(error: MountError) -> Failure {
    Failure::new(Kind::System, &error).hint_if(error.hint())
}
