//! Files that the kernel reads without asking, because their whole content lies in a descriptor that
//! was lent to it.
//!
//! The kernel wants the same loan for every open of an inode, and will not mix opens with and
//! without one. So each memory file is decided upon once, and the decision is kept until the mount goes:
//! one small number for each that was ever opened. A file that can be written to is decided upon when
//! it is opened for the first time, and again when it was released as often as it was opened.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use anteros_core::Ino;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::device::Device;
use crate::dispatch::FileLender;
use crate::ioctl;

/// The loans of one mount.
#[derive(Debug)]
pub struct Backing {
    device: Arc<Device>,
    /// The backing id of each memory file opened so far, if the kernel took it.
    ids: Mutex<BTreeMap<Ino, Option<i32>>>,
    /// The files that are open, with what was decided.
    open: Mutex<HashMap<Ino, Loan>>,
}

#[derive(Debug)]
struct Loan {
    id: Option<i32>,
    opened: u64,
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
            open: Mutex::default(),
        })
    }

    /// The backing id of an inode whose content is in `file`; `None` if the kernel did not take it.
    pub fn id(&self, ino: Ino, file: BorrowedFd<'_>) -> Option<i32> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        *ids.entry(ino)
            .or_insert_with(|| ioctl::lend(self.device.as_fd(), file).ok())
    }
}

impl Backing {
    /// The kernel writes with the privileges that we have now. Without this one, set-id bits and file
    /// capabilities go when a file is written to, as they do where users write by themselves.
    fn lend_for_writing(&self, file: BorrowedFd<'_>) -> Option<i32> {
        let ours = capabilities(None).ok()?;
        let fewer = CapabilitySets {
            effective: ours.effective - CapabilitySet::FSETID,
            ..ours
        };
        set_capabilities(None, fewer).ok()?;
        let id = ioctl::lend(self.device.as_fd(), file);
        set_capabilities(None, ours).ok()?;
        id.ok()
    }
}

impl FileLender for Backing {
    fn lend(&self, ino: Ino, open: &dyn Fn() -> Option<OwnedFd>) -> Option<i32> {
        let mut loans = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let loan = loans.entry(ino).or_insert_with(|| Loan {
            id: open().and_then(|file| self.lend_for_writing(file.as_fd())),
            opened: 0,
        });
        loan.opened += 1;
        loan.id
    }

    fn take_back(&self, ino: Ino) {
        let mut loans = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(loan) = loans.get_mut(&ino) else {
            return;
        };
        loan.opened -= 1;
        if loan.opened == 0 {
            let loan = loans.remove(&ino);
            if let Some(id) = loan.and_then(|loan| loan.id) {
                let _ = ioctl::take_back(self.device.as_fd(), id);
            }
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let ids = self.ids.get_mut().unwrap_or_else(PoisonError::into_inner);
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        let open = open.values().map(|loan| &loan.id);
        for id in ids.values().chain(open).flatten() {
            // Where this fails the connection is gone, and the loans with it.
            let _ = ioctl::take_back(self.device.as_fd(), *id);
        }
    }
}
