//! Reading cold from an image that has a block device of its own, which counts what is read of it.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::contender::{Contender, How};
use super::harness::{Bench, State};
use crate::bench::device::Store;
use crate::outcome::Outcome;

/// States how long we wait for what the kernel reads ahead after the last read.
const SETTLED: Duration = Duration::from_millis(100);

/// An image with such a device.
pub(super) struct Counted {
    image: PathBuf,
    /// Tells where the mount itself has no loop device.
    store: Option<Store>,
}

impl Bench<'_> {
    /// A contender's image with a device of its own: that of its mount, or that of a file system around the image.
    ///
    /// # Errors
    /// When the image or the file system cannot be made.
    pub(super) fn counted(&self, contender: &Contender, corpus: &Path) -> Outcome<Counted> {
        let image = self.image(contender, corpus)?;
        match contender.how {
            How::Loop => Ok(Counted { image, store: None }),
            How::File | How::Fuse(_) => {
                let store = Store::of(&image, &self.scratch)?;
                Ok(Counted {
                    image: store.image().to_owned(),
                    store: Some(store),
                })
            }
        }
    }

    /// Does something with a fresh, cold mount; also tells how many bytes the device read for it.
    /// What `after` does with the mount then is not counted.
    ///
    /// # Errors
    /// When it cannot be mounted, or what is done fails.
    pub(super) fn count<T, U>(
        &self,
        contender: &Contender,
        counted: &Counted,
        first: impl FnOnce(&Path) -> Outcome<T>,
        after: impl FnOnce(&Path) -> Outcome<U>,
    ) -> Outcome<(T, u64, U)> {
        self.fresh_image(contender, &counted.image, State::Cold, |served| {
            let store = counted.store.as_ref().map(Store::device);
            let device = store.or(served.device()).ok_or("no device counts")?;
            let before = device.traffic()?.bytes_read;
            let done = first(served.directory())?;
            thread::sleep(SETTLED);
            let bytes = device.traffic()?.bytes_read.saturating_sub(before);
            Ok((done, bytes, after(served.directory())?))
        })
    }
}
