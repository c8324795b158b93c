//! Files that the kernel reads without asking, because their whole content lies in a descriptor that
//! was lent to it.
//!
//! The kernel wants the same loan for every open of an inode, and will not mix opens with and
//! without one. So each memory file is decided upon once, and the decision is kept until the mount goes:
//! one small number for each that was ever opened. A file that can be written to is decided upon when
//! it is opened for the first time, and again when it was released as often as it was opened.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use anteros_core::{Ino, unpoisoned};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat};
use rustix::io::Errno;
use rustix::process::{Gid, getegid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_gid,
};

use crate::device::Device;
use crate::dispatch::{FileLender, Loan};
use crate::ioctl;
use crate::node::Nodes;
use crate::notify::Notifier;

/// The last number that a group can have.
const NOBODYS_GROUP: u32 = u32::MAX - 1;

/// Tells whether the kernel takes files of a mount, to read and write them without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passthrough {
    /// It takes them.
    Taken,
    /// It was not asked to.
    Unwanted,
    /// It does not know how to.
    NotOffered,
    /// It takes none from us.
    Refused(Errno),
}

/// The loans of one mount.
#[derive(Debug)]
pub struct Backing {
    device: Arc<Device>,
    notifier: Notifier,
    /// The backing id of each memory file opened so far, if the kernel took it.
    ids: Mutex<BTreeMap<Ino, Option<i32>>>,
    /// The files that are open, with what was decided.
    open: Mutex<HashMap<Ino, Decision>>,
}

/// Holds what was decided of an inode, and how many have it open.
#[derive(Debug)]
struct Decision {
    id: Result<i32, Loan>,
    opened: u64,
    /// Tells how many of them write.
    writers: u64,
}

impl Backing {
    /// The loans of a mount that agreed to passthrough. It fails if the kernel will not have them from
    /// us, for which it wants `CAP_SYS_ADMIN`. An empty file tells.
    pub fn new(device: Arc<Device>, nodes: Nodes) -> rustix::io::Result<Self> {
        let sample = memfd_create("anteros", MemfdFlags::CLOEXEC)?;
        let id = ioctl::lend(device.as_fd(), sample.as_fd())?;
        ioctl::take_back(device.as_fd(), id)?;
        Ok(Self {
            notifier: Notifier::new(&device, nodes),
            device,
            ids: Mutex::default(),
            open: Mutex::default(),
        })
    }

    /// The backing id of an inode whose content is in `file`; `None` if the kernel did not take it.
    pub fn id(&self, ino: Ino, file: BorrowedFd<'_>) -> Option<i32> {
        let mut ids = unpoisoned(self.ids.lock());
        *ids.entry(ino)
            .or_insert_with(|| ioctl::lend(self.device.as_fd(), file).ok())
    }
}

impl Backing {
    /// The kernel writes with the privileges that we have now. Without this one, set-id bits and file
    /// capabilities go when a file is written to, as they do where users write by themselves; in a group that nobody is in,
    /// the set-group-id bits of all files do.
    fn lend_for_writing(&self, file: BorrowedFd<'_>) -> rustix::io::Result<i32> {
        let ours = capabilities(None)?;
        let fewer = CapabilitySets {
            effective: ours.effective - CapabilitySet::FSETID,
            ..ours
        };
        let group = getegid();
        set_thread_res_gid(None, Gid::from_raw(NOBODYS_GROUP), None)?;
        set_capabilities(None, fewer)?;
        let id = self.lend_named(file);
        set_capabilities(None, ours)?;
        set_thread_res_gid(None, group, None)?;
        id
    }

    /// Older kernels take no descriptor that only names a file. One for writing would keep the file from being run for as
    /// long as it is lent.
    fn lend_named(&self, file: BorrowedFd<'_>) -> rustix::io::Result<i32> {
        let device = self.device.as_fd();
        match ioctl::lend(device, file) {
            Err(Errno::BADF) => ioctl::lend(device, opened(file)?.as_fd()),
            id => id,
        }
    }
}

/// Opens a file for reading that a descriptor names.
fn opened(file: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    openat(CWD, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

impl FileLender for Backing {
    fn lend(&self, ino: Ino, writes: bool, open: &dyn Fn() -> Option<OwnedFd>) -> Option<i32> {
        let mut loans = unpoisoned(self.open.lock());
        let decision = loans.entry(ino).or_insert_with(|| {
            let file = open().ok_or(Loan::NoFile);
            Decision {
                id: file.and_then(|file| {
                    let id = self.lend_for_writing(file.as_fd());
                    id.map_err(Loan::Refused)
                }),
                opened: 0,
                writers: 0,
            }
        });
        decision.opened += 1;
        decision.writers += u64::from(writes);
        let (id, is_first) = (decision.id.ok(), writes && decision.writers == 1);
        drop(loans);
        if id.is_some() && is_first {
            // What the kernel was told before it may believe for a while. If it does not know the inode, there is nothing.
            let _ = self.notifier.forget_attributes(ino);
        }
        id
    }

    fn is_written(&self, ino: Ino) -> bool {
        let loans = unpoisoned(self.open.lock());
        let decision = loans.get(&ino);
        decision.is_some_and(|decision| decision.writers > 0 && decision.id.is_ok())
    }

    fn loan(&self, ino: Ino) -> Loan {
        let loans = unpoisoned(self.open.lock());
        match loans.get(&ino).map(|decision| decision.id) {
            None => Loan::NotOpen,
            Some(Ok(_)) => Loan::Lent,
            Some(Err(why)) => why,
        }
    }

    fn take_back(&self, ino: Ino, writes: bool) {
        let mut loans = unpoisoned(self.open.lock());
        let Some(decision) = loans.get_mut(&ino) else {
            return;
        };
        decision.opened -= 1;
        decision.writers = decision.writers.saturating_sub(u64::from(writes));
        if decision.opened == 0 {
            let decision = loans.remove(&ino);
            if let Some(id) = decision.and_then(|decision| decision.id.ok()) {
                let _ = ioctl::take_back(self.device.as_fd(), id);
            }
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let ids = unpoisoned(self.ids.get_mut());
        let open = unpoisoned(self.open.get_mut());
        let open = open.values().filter_map(|decision| decision.id.ok());
        for id in ids.values().flatten().copied().chain(open) {
            // Where this fails the connection is gone, and the loans with it.
            let _ = ioctl::take_back(self.device.as_fd(), id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_only_named_is_opened_for_reading() {
        let path = std::env::current_exe().unwrap();
        let named = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let mut magic = [0; 4];
        assert_eq!(rustix::io::read(&named, &mut magic), Err(Errno::BADF));
        let file = opened(named.as_fd()).unwrap();
        assert_eq!(rustix::io::read(&file, &mut magic), Ok(4));
        assert_eq!(&magic, b"\x7fELF");
    }
}
