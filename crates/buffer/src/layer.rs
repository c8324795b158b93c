//! The layer as a file system: what each call has to wait for.
//!
//! Invariant W1 of `docs/design/bfuse.md`: whoever reads, looks at attributes or changes a file through the layer
//! finds what was written.
//!
//! Invariant W6 of `docs/design/bfuse.md`: fsync and `close` answer when all is below.
//!
//! Invariant W9 of `docs/design/bfuse.md`: a write that drops privileges takes them along with its content.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anteros_core::{
    AtomicStep, Attr, Caller, Changes, DirEntry, FileKind, FilePosition, FileSystem, FsError,
    FsResult, Ino, New, OpenFile, Payload, Rdev, Seek, StatFs, Timestamp, Writable,
};
use rustix::fs::OFlags;

use crate::Buffered;
use crate::inode::{Content, Open};
use crate::shared::Shared;
use crate::statistics::Reason;

impl<F: Writable> Shared<F> {
    /// Returns what `find` finds under a name and makes known, with the attributes after all that was buffered.
    /// Which inode that is turns out too late to drain it first, and by then others may have: if anything
    /// was written since, the attributes are asked for again.
    fn settled<T>(
        &self,
        find: impl FnOnce() -> FsResult<T>,
        attr: impl FnOnce(&mut T) -> &mut Attr,
    ) -> FsResult<T> {
        let landed = self.landed.load(Ordering::SeqCst);
        let mut found = find()?;
        let attr = attr(&mut found);
        self.drain_ino(attr.ino, Reason::Attributes);
        if self.landed.load(Ordering::SeqCst) != landed {
            // If that fails, what was found stands: the inode is known by now, and may be open.
            if let Ok(now) = self.inner.getattr(attr.ino) {
                *attr = now;
            }
        }
        Ok(found)
    }

    /// Returns which inode has this name, without making it known for longer than this. Asked only
    /// when something is buffered: only then can it make a difference.
    fn peek(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        if self.counters.buffered() == 0 {
            return None;
        }
        let ino = self.inner.lookup(parent, name).ok()?.ino;
        self.inner.forget(ino, 1);
        Some(ino)
    }

    /// Calls `change` while no write to the inode is buffered, or waits to be.
    fn changing<T>(&self, ino: Ino, change: impl FnOnce() -> T) -> T {
        let inode = self.table.get(ino);
        let hold = inode.as_ref().map(|inode| self.hold(inode, Reason::Change));
        let result = change();
        drop(hold);
        self.space.expire();
        result
    }

    /// Privileges that a buffered write drops are dropped before anyone asks for them.
    fn drop_privileges(&self, ino: Ino) {
        let Some(inode) = self.table.get(ino) else {
            return;
        };
        // Not always: the kernel may ask for file capabilities before every write.
        let drops = inode.lock().drops_privileges();
        if drops {
            self.drain(&inode, Reason::Attributes);
        }
    }

    fn add_open(&self, ino: Ino, handle: u64, flags: u32) -> u64 {
        let flags = OFlags::from_bits_retain(flags);
        let for_writing = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let synchronous = flags.intersects(OFlags::SYNC | OFlags::DSYNC | OFlags::DIRECT);
        self.table.open(Open {
            below: OpenFile { ino, handle },
            append: flags.contains(OFlags::APPEND),
            buffers: for_writing && !synchronous,
            seen: 0,
        })
    }

    /// Tells an open file of an error, if there is one it does not know of.
    fn tell(&self, file: OpenFile) -> FsResult<()> {
        self.inode(file.ino)?.open(file.handle).map(drop)
    }

    /// As [`tell`](Self::tell), when one of the descriptors of an open file is closed.
    fn tell_closing(&self, file: OpenFile) -> FsResult<()> {
        self.inode(file.ino)?.tell_closing(file.handle)
    }
}

fn truncates(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).contains(OFlags::TRUNC)
}

impl<F: Writable + 'static> Buffered<F> {
    /// Drains what replaces another file: whoever does that relies on the content being there when the name is.
    fn drain_renamed(&self, from: (Ino, &[u8]), to: (Ino, &[u8])) {
        for (parent, name) in [from, to] {
            if let Some(ino) = self.shared.peek(parent, name) {
                self.shared.drain_ino(ino, Reason::Change);
            }
        }
    }
}

impl<F: Writable + 'static> FileSystem for Buffered<F> {
    fn root(&self) -> Ino {
        self.shared.inner.root()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.shared
            .settled(|| self.shared.inner.lookup(parent, name), |attr| attr)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.shared.drain_ino(ino, Reason::Attributes);
        self.shared.inner.getattr(ino)
    }

    fn born(&self, ino: Ino) -> FsResult<Option<Timestamp>> {
        self.shared.inner.born(ino)
    }

    fn getattr_listed(&self, ino: Ino, kind: FileKind) -> Option<Attr> {
        self.shared.drain_ino(ino, Reason::Attributes);
        self.shared.inner.getattr_listed(ino, kind)
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.shared.inner.readdir(ino, from, visit)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.shared.inner.readlink(ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.shared.drain_ino(ino, Reason::Read);
        self.shared.inner.read(ino, offset, buf)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        self.shared.drain_ino(ino, Reason::Read);
        self.shared.inner.seek(ino, offset, what)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.shared.drop_privileges(ino);
        self.shared.inner.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.shared.drop_privileges(ino);
        self.shared.inner.listxattr(ino)
    }

    fn statfs(&self) -> FsResult<StatFs> {
        self.shared.inner.statfs()
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl<F: Writable + 'static> Writable for Buffered<F> {
    fn trusted_for(&self) -> Duration {
        self.shared.inner.trusted_for()
    }

    fn keeps_listings(&self) -> bool {
        self.shared.inner.keeps_listings()
    }

    fn keeps_cached(&self) -> bool {
        self.shared.inner.keeps_cached()
    }

    fn is_read_in_jumps(&self, ino: Ino) -> bool {
        self.shared.inner.is_read_in_jumps(ino)
    }

    fn forget(&self, ino: Ino, times: u64) {
        self.shared.inner.forget(ino, times);
    }

    fn open(&self, ino: Ino, flags: u32) -> FsResult<u64> {
        let open = || self.shared.inner.open(ino, flags);
        let handle = if truncates(flags) {
            self.shared.changing(ino, open)?
        } else {
            open()?
        };
        Ok(self.shared.add_open(ino, handle, flags))
    }

    fn create(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)> {
        let create = || self.shared.inner.create(new, flags);
        let there = if truncates(flags) {
            self.shared.peek(new.parent, new.name)
        } else {
            None
        };
        let create = || match there {
            Some(ino) => self.shared.changing(ino, create),
            None => create(),
        };
        let (attr, handle) = self.shared.settled(create, |(attr, _)| attr)?;
        Ok((attr, self.shared.add_open(attr.ino, handle, flags)))
    }

    fn create_unnamed(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)> {
        let (attr, handle) = self.shared.inner.create_unnamed(new, flags)?;
        Ok((attr, self.shared.add_open(attr.ino, handle, flags)))
    }

    /// Comes some time after the file was closed, perhaps between writes through another one.
    fn release(&self, file: OpenFile) {
        self.shared.drain_ino(file.ino, Reason::Close);
        let below = self.shared.below(file);
        self.shared.close(file, below);
        self.shared.inner.release(below);
    }

    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.shared.drain_ino(file.ino, Reason::Read);
        let below = self.shared.below(file);
        self.shared.inner.read_open(below, offset, buf)
    }

    fn write(
        &self,
        file: OpenFile,
        offset: u64,
        data: &[u8],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let content = Content::Plain(data);
        self.shared.write(file, offset, content, drops_privileges)
    }

    fn write_payload(
        &self,
        file: OpenFile,
        offset: u64,
        payload: Payload<'_>,
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let content = Content::Lent(payload);
        self.shared.write(file, offset, content, drops_privileges)
    }

    /// Buffered content of a file that was opened with `O_APPEND` goes to its end; this content does not.
    fn write_kept(
        &self,
        file: OpenFile,
        offset: u64,
        payload: Payload<'_>,
        drops_privileges: bool,
        keeps_mtime: bool,
    ) -> FsResult<usize> {
        let open = self.shared.inode(file.ino)?.open(file.handle)?;
        if !open.append {
            return self.write_payload(file, offset, payload, drops_privileges);
        }
        self.shared.changing(file.ino, || {
            let inner = &self.shared.inner;
            inner.write_kept(open.below, offset, payload, drops_privileges, keeps_mtime)
        })
    }

    fn hand_on(&self, ino: Ino) {
        self.shared.hand_on(ino);
    }

    fn flush(&self, file: OpenFile) -> FsResult<()> {
        self.shared.finish(file.ino, Reason::Close);
        self.shared.inner.flush(self.shared.below(file))?;
        self.shared.tell_closing(file)
    }

    fn fsync(&self, file: OpenFile, data_only: bool) -> FsResult<()> {
        self.shared.finish(file.ino, Reason::Sync);
        self.shared
            .inner
            .fsync(self.shared.below(file), data_only)?;
        self.shared.tell(file)
    }

    fn sync_written(&self, file: OpenFile, data_only: bool) -> FsResult<()> {
        self.shared.finish(file.ino, Reason::Sync);
        self.shared
            .inner
            .sync_written(self.shared.below(file), data_only)?;
        self.shared.tell(file)
    }

    fn has_atomic_writes(&self) -> bool {
        self.shared.inner.has_atomic_writes()
    }

    /// Drains what was written before, as it belongs to what was before.
    fn write_atomically(&self, file: OpenFile, step: AtomicStep) -> FsResult<()> {
        self.shared.finish(file.ino, Reason::Sync);
        match self.shared.tell(file) {
            // With what could not be written, the rest goes.
            Err(_) if step == AtomicStep::Abort => {}
            told => told?,
        }
        let below = self.shared.below(file);
        self.shared.inner.write_atomically(below, step)
    }

    fn seek_open(&self, file: OpenFile, offset: u64, what: Seek) -> FsResult<u64> {
        self.shared.drain_ino(file.ino, Reason::Read);
        let below = self.shared.below(file);
        self.shared.inner.seek_open(below, offset, what)
    }

    fn allocate(&self, file: OpenFile, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        let below = self.shared.below(file);
        self.shared.changing(file.ino, || {
            self.shared.inner.allocate(below, offset, len, mode)
        })
    }

    fn copy_range(&self, from: FilePosition, to: FilePosition, len: u64) -> FsResult<u64> {
        let below = |position: FilePosition| FilePosition {
            file: self.shared.below(position.file),
            ..position
        };
        let (from_below, to_below) = (below(from), below(to));
        // The source is drained and not held: two copies across would wait for each other.
        self.shared.drain_ino(from.file.ino, Reason::Read);
        self.shared.changing(to.file.ino, || {
            self.shared.inner.copy_range(from_below, to_below, len)
        })
    }

    fn change(&self, ino: Ino, file: Option<OpenFile>, changes: &Changes) -> FsResult<Attr> {
        let below = file.map(|file| self.shared.below(file));
        self.shared
            .changing(ino, || self.shared.inner.change(ino, below, changes))
    }

    fn make(&self, new: &New<'_>, rdev: Rdev) -> FsResult<Attr> {
        self.shared.inner.make(new, rdev)
    }

    fn symlink(&self, new: &New<'_>, target: &[u8]) -> FsResult<Attr> {
        self.shared.inner.symlink(new, target)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.shared.drain_ino(ino, Reason::Attributes);
        self.shared.inner.link(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.shared.inner.unlink(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.shared.inner.rmdir(parent, name)
    }

    fn unlink_as(&self, parent: Ino, name: &[u8], caller: Caller) -> FsResult<()> {
        self.shared.inner.unlink_as(parent, name, caller)
    }

    fn rmdir_as(&self, parent: Ino, name: &[u8], caller: Caller) -> FsResult<()> {
        self.shared.inner.rmdir_as(parent, name, caller)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> FsResult<()> {
        self.drain_renamed(from, to);
        self.shared.inner.rename(from, to, flags)
    }

    fn rename_as(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
        caller: Caller,
    ) -> FsResult<()> {
        self.drain_renamed(from, to);
        self.shared.inner.rename_as(from, to, flags, caller)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: u32) -> FsResult<()> {
        self.shared.drain_ino(ino, Reason::Change);
        self.shared.inner.setxattr(ino, name, value, flags)
    }

    fn setxattr_by_outsider(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: u32,
        caller: Caller,
    ) -> FsResult<()> {
        self.shared.drain_ino(ino, Reason::Change);
        self.shared
            .inner
            .setxattr_by_outsider(ino, name, value, flags, caller)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.shared.drain_ino(ino, Reason::Change);
        self.shared.inner.removexattr(ino, name)
    }

    fn open_dir(&self, ino: Ino) -> FsResult<u64> {
        self.shared.inner.open_dir(ino)
    }

    fn release_dir(&self, dir: OpenFile) {
        self.shared.inner.release_dir(dir);
    }

    fn read_dir(
        &self,
        dir: OpenFile,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.shared.inner.read_dir(dir, from, visit)
    }

    fn lookup_listed(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        let listed = || self.shared.inner.lookup_listed(parent, name);
        let found = self
            .shared
            .settled(|| listed().ok_or(FsError::NotFound), |attr| attr);
        found.ok()
    }

    fn lists_first_attributes(&self) -> bool {
        self.shared.inner.lists_first_attributes()
    }

    fn fsync_dir(&self, dir: OpenFile) -> FsResult<()> {
        self.shared.inner.fsync_dir(dir)
    }

    fn backing(&self, _file: OpenFile) -> Option<OwnedFd> {
        None
    }
}
