//! Files that the kernel reads without asking, because their whole content lies in a descriptor that
//! was lent to it.
//!
//! The kernel wants the same loan for every open of an inode, and will not mix opens with and
//! without one. So each inode is decided upon once, and the decision is kept until the mount goes:
//! one small number for each memory file that was ever opened.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use anteros_core::Ino;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::device::Device;
use crate::ioctl;

/// The loans of one mount.
#[derive(Debug)]
pub struct Backing {
    device: Arc<Device>,
    /// The backing id of each memory file opened so far, if the kernel took it.
    ids: Mutex<BTreeMap<Ino, Option<i32>>>,
}

impl Backing {
    /// The loans of a mount that agreed to passthrough; `None` if the kernel will not have them from
    /// us, for which it wants `CAP_SYS_ADMIN`. An empty file tells.
    pub fn new(device: Arc<Device>) -> Option<Self> {
        let sample = memfd_create("anteros", MemfdFlags::CLOEXEC).ok()?;
        let id = ioctl::lend(device.as_fd(), sample.as_fd()).ok()?;
        ioctl::take_back(device.as_fd(), id).ok()?;
        Some(Self {
            device,
            ids: Mutex::default(),
        })
    }

    /// The backing id of an inode whose content is in `file`; `None` if the kernel did not take it.
    pub fn id(&self, ino: Ino, file: BorrowedFd<'_>) -> Option<i32> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        *ids.entry(ino)
            .or_insert_with(|| ioctl::lend(self.device.as_fd(), file).ok())
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let ids = self.ids.get_mut().unwrap_or_else(PoisonError::into_inner);
        for id in ids.values().flatten() {
            // Where this fails the connection is gone, and the loans with it.
            let _ = ioctl::take_back(self.device.as_fd(), *id);
        }
    }
}
