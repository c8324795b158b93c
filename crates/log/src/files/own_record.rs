//! The log's own record: bytes that the log keeps for itself, in an inode that no name leads to.
//!
//! The checkpoint names the inode, and a flag of the inode says that it belongs to the log itself. New bytes go to a new inode,
//! which takes the place of the old one in memory: the next checkpoint has all of the new bytes, and the one before keeps the
//! old ones. No group says anything of either inode, so what a mount replays leaves them alone.
//!
//! Invariant L13 of `docs/design/log.md`: after a crash the record is one that was kept, as a whole.

use anteros_core::{Caller, FileKind, FsError, FsResult, Rdev};

use crate::files::Files;
use crate::files::names::{BLOCKS_OF_AN_OPERATION, Birth};
use crate::layout::superblock::RO_COMPAT_OWN_RECORD;
use crate::layout::{BLOCK_BYTES, Corrupt, ROOT};
use crate::store::medium::is_damage;

/// The most bytes of the record.
pub(crate) const OWN_RECORD_BYTES_MAX: usize = 16 << 20;

/// Blocks that the making of a record of so many bytes may need.
pub(crate) fn own_record_blocks(bytes: usize) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) as u64 + BLOCKS_OF_AN_OPERATION
}

impl Files {
    /// The inode that the checkpoint names for the record, whatever that is; 0: none.
    pub(crate) fn record_ino(&self) -> u32 {
        self.record_ino
    }

    /// Has the next checkpoint name an inode for the record; 0: none.
    pub(crate) fn set_record_ino(&mut self, ino: u32) {
        self.record_ino = ino;
    }

    /// The inode with the record, if there is one. An inode that the checkpoint names and that cannot be the record is an error.
    pub(crate) fn own_record(&mut self) -> FsResult<Option<u32>> {
        match self.record_ino {
            0 => Ok(None),
            ino => self.check_own_record(ino).map(|()| Some(ino)),
        }
    }

    fn check_own_record(&mut self, ino: u32) -> FsResult<()> {
        let attributes = match self.live(ino) {
            Ok(live) => Some(live.inode().attributes),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error),
        };
        let rule = match attributes {
            None => "there is no such inode",
            Some(_) if !self.store.superblock().has_own_record() => {
                "the superblock says that there is none"
            }
            Some(of) if !of.is_own => "the inode does not belong to the log itself",
            Some(of) if of.nlink != 1 => "the inode has other links than the one of the log",
            Some(of) if of.size > OWN_RECORD_BYTES_MAX as u64 => "it has more than 16 MiB",
            Some(_) => return Ok(()),
        };
        Err(Corrupt::OwnRecord { ino, rule }.into())
    }

    /// Warns of a record that cannot be used. A mount goes on without it.
    pub(crate) fn warn_of_own_record(&mut self) {
        if let Err(error) = self.own_record() {
            self.store.warn(format!(
                "{error}; the mount goes on without it, and `anteros log check --repair` sets that right"
            ));
        }
    }

    /// Makes these bytes the record. Refuses before anything is changed.
    pub(crate) fn keep_own_record(&mut self, bytes: &[u8]) -> FsResult<()> {
        self.store.space().check(own_record_blocks(bytes.len()))?;
        self.check_numbers()?;
        self.admit_own_record()?;
        let new = self.make_own(bytes)?;
        self.replace_own_record(new)
    }

    /// Has another inode be the record, or none for 0; the old one goes.
    pub(crate) fn replace_own_record(&mut self, new: u32) -> FsResult<()> {
        let old = std::mem::replace(&mut self.record_ino, new);
        match old != 0 && self.is_own(old) {
            true => self.drop_own(old),
            false => Ok(()),
        }
    }

    /// Says in the superblock that there may be a record, before there is one.
    fn admit_own_record(&mut self) -> FsResult<()> {
        match self.store.superblock().has_own_record() {
            true => Ok(()),
            false => self
                .store
                .admit_in_use(|superblock| superblock.ro_compat |= RO_COMPAT_OWN_RECORD),
        }
    }

    /// Makes an inode that belongs to the log itself, with these bytes.
    fn make_own(&mut self, bytes: &[u8]) -> FsResult<u32> {
        let birth = Birth {
            kind: FileKind::Regular,
            perm: 0o600,
            caller: Caller::default(),
            rdev: Rdev::default(),
            target: b"",
            xattrs: Vec::new(),
        };
        let ino = self.give_birth(ROOT, &birth)?;
        let filled = self.fill_own(ino, bytes);
        self.unless_stillborn(ino, filled)?;
        Ok(ino)
    }

    fn fill_own(&mut self, ino: u32, bytes: &[u8]) -> FsResult<()> {
        let attributes = self.live(ino)?.attributes();
        attributes.is_own = true;
        attributes.nlink = 1;
        match self.write(ino, 0, bytes)? == bytes.len() {
            true => Ok(()),
            false => Err(FsError::NoSpace),
        }
    }

    /// Returns whether an inode is there and belongs to the log itself.
    pub(crate) fn is_own(&mut self, ino: u32) -> bool {
        self.live(ino)
            .is_ok_and(|live| live.inode().attributes.is_own)
    }

    /// Removes an inode that belongs to the log itself; what is damaged stays an orphan, for a repair to find.
    pub(crate) fn drop_own(&mut self, ino: u32) -> FsResult<()> {
        self.live(ino)?.attributes().nlink = 0;
        self.add_orphan(ino);
        match self.evict_orphan_now(ino) {
            Err(error) if is_damage(&error) => Ok(()),
            evicted => evicted,
        }
    }
}
