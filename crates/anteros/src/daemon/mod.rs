//! The process behind a FUSE mount: it serves an image until it is unmounted, within its memory, or
//! a directory.
//!
//! - `background`: how it leaves the terminal.
//! - `metrics`: what it tells of itself.
//! - `faults`: what it says of a broken image or a failing medium.
//! - `neighbours`: what it hands the kernel unasked.

pub mod background;
pub mod faults;
pub mod metrics;
pub mod neighbours;

use std::path::Path;
use std::sync::Arc;

use anteros_core::FileSystem;
use anteros_fuse::{MountError, MountOptions, Session};
use anteros_image::ImageFs;
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{interrupt, output};
use metrics::{ATTRIBUTE, Metrics};
use neighbours::Neighbours;

/// What serves a mount.
pub struct Daemon {
    fs: Arc<ImageFs>,
    metrics: Arc<Metrics>,
    neighbours: Neighbours,
}

impl Daemon {
    /// A daemon for a file system, with numbers to fill, that hands the kernel so much of what else is
    /// decoded.
    pub fn new(fs: ImageFs, metrics: Metrics, neighbours: Neighbours) -> Self {
        Self {
            neighbours,
            fs: Arc::new(fs),
            metrics: Arc::new(metrics),
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
        } = self;
        let session = Session::mount(fs.clone(), directory, options).map_err(mount_failure)?;
        neighbours::push(&fs, neighbours, session.notifier(), metrics.clone());
        let (watcher, teller, image) = (metrics.clone(), metrics.clone(), fs.clone());
        let session = session
            .on_fault(metrics.faults.clone().listen(fs))
            .on_answer(move |answered| watcher.answered(answered.operation, answered.took))
            .on_attribute(move |asked| {
                let is_ours = asked.ino == image.root() && asked.name == ATTRIBUTE.as_bytes();
                is_ours.then(|| teller.text(&image).into_bytes())
            });
        run(session, || stands(&metrics))
    }
}

/// Calls `stands`, and serves a mount until it goes away; a signal that asks to stop unmounts it.
pub fn run(session: Session, stands: impl FnOnce() -> Result<(), Failure>) -> Outcome {
    let unmounter = session.unmounter();
    let mut signals = Signals::new(interrupt::signals()).map_err(Failure::os)?;
    let handle = signals.handle();
    let waiter = std::thread::spawn(move || {
        for _ in &mut signals {
            if let Err(error) = unmounter.unmount() {
                output::complain("error", error);
            }
        }
    });
    stands()?;
    let served = session.run();
    handle.close();
    let _ = waiter.join();
    served.map_err(Failure::os)?;
    Ok(Verdict::Good)
}

/// Why a mount did not come about, in words for people.
pub fn mount_failure(error: MountError) -> Failure {
    Failure::new(Kind::System, &error).hint_if(error.hint())
}
