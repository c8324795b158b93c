//! Acting as the caller while something is made.
//!
//! Making it as root and giving it away afterwards would be simpler, and wrong in many small ways: the
//! group of a set-gid directory, quotas, the reserve for root and the moment in which root owns it.
//! So the thread takes the caller's effective user and group for the length of one call, and the host
//! does what it does for them. Real and saved ids stay, so no caller can signal or trace the thread.
//!
//! The kernel in front of the mount has checked permissions already, by the caller's supplementary
//! groups too, of which at most one is known here. Hence the capabilities that override the host's own checks are
//! raised again: they went with the effective user, but are still permitted. `CAP_FSETID` and
//! `CAP_SYS_RESOURCE` are not among them, so that set-gid bits and quotas are treated as the caller's.
//!
//! Content is written by the process itself, through files that are open, and that is where quotas would not
//! count: whoever has `CAP_SYS_RESOURCE` is above them. So the process lays it down for good.
//!
//! The host takes such a change for a reason to protect the process: it is not dumped any more when it
//! crashes, and a thread that acted for others is not told of its parent's death.

use std::io;
use std::marker::PhantomData;

use anteros_core::Caller;
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// States what a thread keeps that acts as somebody else.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD);

/// As [`KEPT`], where the owner of what has a name now is to be looked at: the kernel may have looked at another.
const KEPT_ON_NAMES: CapabilitySet = KEPT.difference(CapabilitySet::FOWNER);

/// Describes who the process is.
#[derive(Debug)]
pub(crate) struct Identity {
    uid: Uid,
    gid: Gid,
    capabilities: CapabilitySets,
}

impl Identity {
    /// Identity of this thread and those it will start; from now on they respect quotas, and are in no group but one: who acts as
    /// somebody else must not be in groups that they are not in.
    pub fn of_process() -> io::Result<Self> {
        let mut capabilities = capabilities(None)?;
        if geteuid().is_root() {
            // Without the right to, what belongs to other groups is out of reach as well.
            let _ = set_thread_groups(&[]);
        }
        if capabilities.effective.contains(CapabilitySet::SYS_RESOURCE) {
            capabilities.effective -= CapabilitySet::SYS_RESOURCE;
            set_capabilities(None, capabilities)?;
        }
        Ok(Self {
            uid: geteuid(),
            gid: getegid(),
            capabilities,
        })
    }

    /// Returns whether it is root: if not, everything made belongs to the process, whoever asked.
    pub fn is_root(&self) -> bool {
        self.uid.is_root()
    }

    /// Makes the thread act as `caller` until what is returned is dropped.
    pub fn assume(&self, caller: Caller) -> rustix::io::Result<Assumed<'_>> {
        let is_same = caller.uid == self.uid.as_raw() && caller.gid == self.gid.as_raw();
        match is_same {
            true => Ok(self.assumed()),
            false => self.assume_wholly(caller),
        }
    }

    /// As [`assume`](Self::assume), where a caller who is the same as the process has fewer rights all the same.
    pub fn assume_wholly(&self, caller: Caller) -> rustix::io::Result<Assumed<'_>> {
        self.assume_with(caller, KEPT)
    }

    /// As [`assume_wholly`](Self::assume_wholly), without the right to remove what belongs to others from sticky directories.
    pub fn assume_on_names(&self, caller: Caller) -> rustix::io::Result<Assumed<'_>> {
        self.assume_with(caller, KEPT_ON_NAMES)
    }

    fn assume_with(&self, caller: Caller, kept: CapabilitySet) -> rustix::io::Result<Assumed<'_>> {
        let mut assumed = self.assumed();
        if !self.is_root() {
            return Ok(assumed);
        }
        // That number means "no change" to the host, and nobody to anyone else.
        if caller.uid == u32::MAX || caller.gid == u32::MAX {
            return Err(Errno::OVERFLOW);
        }
        assumed.changed = true;
        assumed.also_in = caller.also_in.filter(|&group| group != u32::MAX);
        let caller = Caller {
            also_in: assumed.also_in,
            ..caller
        };
        self.become_caller(caller, kept)?;
        Ok(assumed)
    }

    const fn assumed(&self) -> Assumed<'_> {
        Assumed {
            process: self,
            changed: false,
            also_in: None,
            of_this_thread: PhantomData,
        }
    }

    fn become_caller(&self, caller: Caller, kept: CapabilitySet) -> rustix::io::Result<()> {
        if let Some(group) = caller.also_in {
            set_thread_groups(&[Gid::from_raw(group)])?;
        }
        set_thread_res_gid(None, Gid::from_raw(caller.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(caller.uid), None)?;
        let sets = CapabilitySets {
            effective: self.capabilities.effective & kept,
            ..self.capabilities
        };
        set_capabilities(None, sets)
    }

    fn become_process(&self, was_also_in: Option<u32>) -> rustix::io::Result<()> {
        set_thread_res_uid(None, self.uid, None)?;
        set_capabilities(None, self.capabilities)?;
        set_thread_res_gid(None, self.gid, None)?;
        match was_also_in {
            Some(_) => set_thread_groups(&[]),
            None => Ok(()),
        }
    }
}

/// The thread acts as somebody else while this is there.
pub(crate) struct Assumed<'a> {
    process: &'a Identity,
    changed: bool,
    also_in: Option<u32>,
    /// Another thread would restore itself instead.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Assumed<'_> {
    fn drop(&mut self) {
        if self.changed && self.process.become_process(self.also_in).is_err() {
            // A thread that stays somebody else would go on to answer for others.
            std::process::abort();
        }
    }
}
