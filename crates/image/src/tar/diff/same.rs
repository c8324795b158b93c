//! Comparing a file of one image with one of another.

use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::FileKind;
use anteros_format::inode::Inode;

use super::TarProblem;
use crate::map::{Map, Source};
use crate::{Image, Result, WalkProblem};

/// Bytes that are compared at a time.
const STEP_BYTES: u64 = 1 << 20;

/// Two images.
pub(super) struct Comparison<'a> {
    pub old: &'a Image,
    pub new: &'a Image,
    pub cancel: &'a AtomicBool,
}

/// A regular file of an image.
struct File<'a> {
    image: &'a Image,
    inode: &'a Inode,
    map: Map,
}

impl<'a> File<'a> {
    fn open(image: &'a Image, inode: &'a Inode) -> Result<Self> {
        let map = image.map(inode)?;
        Ok(Self { image, inode, map })
    }

    /// The end of the hole at a byte, if there is one.
    fn hole(&self, at: u64) -> Result<Option<u64>> {
        let extent = self.image.extent_at(self.inode, &self.map, at)?;
        Ok((extent.source == Source::Hole).then(|| extent.end()))
    }

    fn read(&self, at: u64, buf: &mut Vec<u8>) -> Result<()> {
        buf.resize(STEP_BYTES.min(self.inode.size - at) as usize, 0);
        self.image.read(self.inode, &self.map, at, buf).map(|_| ())
    }
}

/// Says that the older image is at fault.
fn of_old(error: crate::Error) -> TarProblem {
    TarProblem::Old(Box::new(error.into()))
}

impl Comparison<'_> {
    /// Returns whether two files are the same in all that a layer tells of them.
    pub fn are_same(&self, old: &Inode, new: &Inode) -> Result<bool, TarProblem> {
        let properties = |inode: &Inode| {
            let owner = (inode.uid, inode.gid);
            (inode.kind, inode.perm, owner, inode.mtime)
        };
        if properties(old) != properties(new) || !self.have_same_xattrs(old, new)? {
            return Ok(false);
        }
        match new.kind {
            FileKind::Directory => Ok(true),
            FileKind::Symlink => {
                let target = self.old.read_link(old).map_err(of_old)?;
                Ok(target == self.new.read_link(new)?)
            }
            FileKind::Regular if old.size != new.size => Ok(false),
            FileKind::Regular => self.have_same_content(old, new),
            _ => Ok(old.rdev == new.rdev),
        }
    }

    fn have_same_xattrs(&self, old: &Inode, new: &Inode) -> Result<bool, TarProblem> {
        let mut old = self.old.xattrs(old).map_err(of_old)?;
        let mut new = self.new.xattrs(new)?;
        old.sort();
        new.sort();
        Ok(old == new)
    }

    fn have_same_content(&self, old: &Inode, new: &Inode) -> Result<bool, TarProblem> {
        let old = File::open(self.old, old).map_err(of_old)?;
        let new = File::open(self.new, new)?;
        let (mut before, mut now) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < new.inode.size {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(WalkProblem::Cancelled.into());
            }
            let holes = (old.hole(at).map_err(of_old)?, new.hole(at)?);
            if let (Some(one), Some(other)) = holes {
                at = one.min(other);
                continue;
            }
            old.read(at, &mut before).map_err(of_old)?;
            new.read(at, &mut now)?;
            if before != now {
                return Ok(false);
            }
            at += now.len() as u64;
        }
        Ok(true)
    }
}
