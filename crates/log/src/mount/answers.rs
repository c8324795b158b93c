//! Answers of the mounted log to requests about one inode: attributes, times of access, changes of attributes, listings.

use std::ops::ControlFlow;

use anteros_core::{Attr, Changes, FileKind, FsError, FsResult, Ino, New, Rdev, SetTime};

use crate::files::acl;
use crate::files::dir::kind_of;
use crate::files::names::{Birth, SETGID};
use crate::layout::{BLOCK_BYTES, Corrupt};
use crate::mount::state::State;

/// Reads note the time only if that is older than the last change, or than this.
const ATIME_SECS: i64 = 24 * 3600;

const SETUID: u16 = 0o4000;

const CAPABILITY: &[u8] = b"security.capability";

/// Entries of a directory that are fetched at once.
const LISTED_AT_ONCE: usize = 256;

/// An entry of a directory, and the position behind it.
pub(crate) type Listed = (Vec<u8>, Ino, FileKind, u64);

impl State {
    pub(crate) fn attr(&mut self, ino: u32) -> FsResult<Attr> {
        let attributes = self.live(ino)?.inode().attributes;
        let size = self.size(ino)?;
        Ok(Attr {
            ino: Ino(ino.into()),
            kind: attributes.kind,
            perm: attributes.perm,
            nlink: attributes.nlink,
            uid: attributes.uid,
            gid: attributes.gid,
            rdev: attributes.rdev,
            size: match attributes.kind {
                // Programs take a directory without size for something else.
                FileKind::Directory => size.max(BLOCK_BYTES as u64),
                _ => size,
            },
            blocks: attributes.blocks * (BLOCK_BYTES as u64 / 512),
            block_size: BLOCK_BYTES as u32,
            atime: attributes.atime,
            mtime: attributes.mtime,
            ctime: attributes.ctime,
        })
    }

    /// Looks up a name, `.` and `..` included; the inode becomes known.
    pub(crate) fn look_up(&mut self, parent: u32, name: &[u8]) -> FsResult<(u32, Attr)> {
        self.shrink();
        let ino = match name {
            b"." => self.found_again(parent)?,
            b".." => self.live(parent)?.inode().attributes.parent,
            _ => {
                let ino = self.named(parent, name)?.ino;
                self.called(ino, name)?;
                ino
            }
        };
        Ok((ino, self.introduce(ino)?))
    }

    /// An inode that was looked for by its number alone. What has no name any more only those have who hold it already.
    pub(crate) fn found_again(&mut self, ino: u32) -> FsResult<u32> {
        let is_gone = self.live(ino)?.inode().attributes.nlink == 0;
        match is_gone && !self.files.is_looked_up(ino) {
            true => Err(FsError::NotFound),
            false => Ok(ino),
        }
    }

    /// The attributes of an inode that becomes known.
    pub(crate) fn introduce(&mut self, ino: u32) -> FsResult<Attr> {
        if self.live(ino)?.inode().attributes.is_own {
            return Err(Corrupt::Node {
                nid: ino,
                rule: "it belongs to the log itself, and no name leads to it",
                found: ino.into(),
            }
            .into());
        }
        let attr = self.attr(ino)?;
        self.add_lookup(ino);
        Ok(attr)
    }

    /// Notes that content was read, if that is worth a write.
    pub(crate) fn note_read(&mut self, ino: u32) -> FsResult<()> {
        // Reads alone must not fill the memory with inodes that have to be written.
        if self.store.check_writable().is_err()
            || self.store.dirty_blocks() > self.store.dirty_max()
        {
            return Ok(());
        }
        let now = self.store.now();
        let attributes = self.live(ino)?.inode().attributes;
        let newest = attributes.mtime.max(attributes.ctime);
        if attributes.atime <= newest || now.secs.saturating_sub(attributes.atime.secs) > ATIME_SECS
        {
            self.live(ino)?.attributes().atime = now;
        }
        Ok(())
    }

    /// Set-id bits and file capabilities go. Where the group may not execute, the set-group-id bit means something else, and
    /// goes all the same: the group may come to execute later.
    pub(crate) fn drop_privileges(&mut self, ino: u32) -> FsResult<()> {
        let perm = self.live(ino)?.inode().attributes.perm;
        let kept = perm & !SETUID & !SETGID;
        if kept != perm {
            self.live(ino)?.attributes().perm = kept;
            self.files.note_attributes(ino);
        }
        if self.xattrs(ino)?.get(CAPABILITY).is_some() {
            self.remove_xattr(ino, CAPABILITY)?;
        }
        Ok(())
    }

    pub(crate) fn apply(&mut self, ino: u32, changes: &Changes) -> FsResult<()> {
        if let Some(size) = changes.size {
            match self.live(ino)?.kind() {
                FileKind::Regular => self.truncate(ino, size)?,
                FileKind::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::Invalid),
            }
        }
        if changes.drops_privileges && self.live(ino)?.kind() != FileKind::Directory {
            self.drop_privileges(ino)?;
        }
        if let Some(perm) = changes.perm {
            self.live(ino)?.attributes().perm = perm;
            acl::follow_mode(self, ino, perm)?;
        }
        let now = self.store.now();
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let attributes = self.live(ino)?.attributes();
        attributes.uid = changes.uid.unwrap_or(attributes.uid);
        attributes.gid = changes.gid.unwrap_or(attributes.gid);
        attributes.atime = changes.atime.map_or(attributes.atime, time);
        attributes.mtime = changes.mtime.map_or(attributes.mtime, time);
        attributes.ctime = now;
        self.files.note_attributes(ino);
        Ok(())
    }

    /// Properties of the new inode `new`, with those that it inherits from the directory.
    pub(crate) fn birth<'a>(
        &mut self,
        parent: u32,
        new: &New<'_>,
        rdev: Rdev,
        target: &'a [u8],
    ) -> FsResult<Birth<'a>> {
        let kind = FileKind::from_mode(new.mode).ok_or(FsError::Invalid)?;
        let inherited = acl::inherit(self, parent, new, kind)?;
        Ok(Birth {
            kind,
            perm: inherited.perm,
            caller: new.caller,
            rdev,
            target,
            xattrs: inherited.xattrs,
        })
    }

    pub(crate) fn portion(&mut self, ino: u32, from: u64) -> FsResult<Vec<Listed>> {
        let mut entries = Vec::new();
        if from < 2 {
            let parent = self.live(ino)?.inode().attributes.parent;
            let dots = [(&b"."[..], ino, 1), (b"..", parent, 2)];
            let dots = dots.into_iter().filter(|(.., next)| *next > from);
            entries.extend(dots.map(|(name, ino, next)| {
                (name.to_vec(), Ino(ino.into()), FileKind::Directory, next)
            }));
        }
        self.list(ino, from, &mut |entry, next| {
            entries.push((
                entry.name.to_vec(),
                Ino(entry.ino.into()),
                kind_of(entry.kind),
                next,
            ));
            if entries.len() < LISTED_AT_ONCE {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(entries)
    }
}
