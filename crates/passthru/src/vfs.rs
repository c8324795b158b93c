//! A directory of the host as a file system.

use std::io::IoSlice;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anteros_core::{
    Attr, Caller, Changes, DirEntry, FileKind, FilePosition, FileSystem, FsResult, Ino, New,
    OpenFile, Payload, Rdev, Seek, StatFs, Timestamp, Writable,
};
use rustix::fs::{OFlags, RenameFlags};

use crate::file::HostFile;
use crate::host::refused;
use crate::mirror::HostFs;
use crate::{attr, create, names, open, xattr};

impl HostFs {
    /// The open file that is about to be written to, without its privileges if they are to go.
    fn file_to_write(&self, file: OpenFile, drops_privileges: bool) -> FsResult<Arc<HostFile>> {
        let file = self.files.get(file.handle)?;
        if drops_privileges {
            attr::drop_privileges(&self.identity, file.fd())?;
        }
        Ok(file)
    }
}

impl FileSystem for HostFs {
    fn root(&self) -> Ino {
        self.table.root().ino
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        names::lookup(self, parent, name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        attr::of(&*self.table.get(ino)?)
    }

    fn born(&self, ino: Ino) -> FsResult<Option<Timestamp>> {
        attr::born(&*self.table.get(ino)?)
    }

    /// Nothing: an inode met in a listing is not known, only one looked up is.
    fn getattr_listed(&self, _ino: Ino, _kind: FileKind) -> Option<Attr> {
        None
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        open::directory(self, ino)?.visit(&self.table, from, visit)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        names::readlink(self, ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        open::to_read(self, ino)?.read(offset, buf)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        open::to_read(self, ino)?.seek(offset, what)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        xattr::get(self, ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        xattr::list(self, ino)
    }

    fn statfs(&self) -> FsResult<StatFs> {
        attr::statfs(self)
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for HostFs {
    fn trusted_for(&self) -> Duration {
        self.options.trusted_for
    }

    fn forget(&self, ino: Ino, times: u64) {
        self.table.forget(ino, times);
    }

    fn open(&self, ino: Ino, flags: u32) -> FsResult<u64> {
        let file = open::open(self, ino, flags)?;
        Ok(self.files.insert(file))
    }

    fn create(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)> {
        let (attr, file) = create::create(self, new, flags)?;
        Ok((attr, self.files.insert(file)))
    }

    fn create_unnamed(&self, new: &New<'_>, flags: u32) -> FsResult<(Attr, u64)> {
        let (attr, file) = create::create_unnamed(self, new, flags)?;
        Ok((attr, self.files.insert(file)))
    }

    fn release(&self, file: OpenFile) {
        self.files.remove(file.handle);
    }

    fn read_open(&self, file: OpenFile, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.files.get(file.handle)?.read(offset, buf)
    }

    fn write(
        &self,
        file: OpenFile,
        offset: u64,
        data: &[u8],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let file = self.file_to_write(file, drops_privileges)?;
        file.write(offset, data)
    }

    /// A descriptor with `O_APPEND` writes to the end, whatever offset it is given: another one is opened. The host sets
    /// the time of modification.
    fn write_kept(
        &self,
        file: OpenFile,
        offset: u64,
        payload: Payload<'_>,
        drops_privileges: bool,
        _keeps_mtime: bool,
    ) -> FsResult<usize> {
        let opened = self.file_to_write(file, drops_privileges)?;
        if !opened.appends() {
            return opened.write(offset, payload.bytes());
        }
        let opened = open::open(self, file.ino, OFlags::WRONLY.bits())?;
        opened.write(offset, payload.bytes())
    }

    fn write_pieces(
        &self,
        file: OpenFile,
        offset: u64,
        pieces: &[IoSlice<'_>],
        drops_privileges: bool,
    ) -> FsResult<usize> {
        let file = self.file_to_write(file, drops_privileges)?;
        file.write_pieces(offset, pieces)
    }

    /// Nothing is kept back here, so there is nothing to tell either.
    fn flush(&self, _file: OpenFile) -> FsResult<()> {
        Ok(())
    }

    fn fsync(&self, file: OpenFile, data_only: bool) -> FsResult<()> {
        self.files.get(file.handle)?.sync(data_only)
    }

    fn sync_written(&self, file: OpenFile, data_only: bool) -> FsResult<()> {
        let file = self.files.get(file.handle)?;
        match file.syncs_writes(data_only) {
            true => Ok(()),
            false => file.sync(data_only),
        }
    }

    fn seek_open(&self, file: OpenFile, offset: u64, what: Seek) -> FsResult<u64> {
        self.files.get(file.handle)?.seek(offset, what)
    }

    fn allocate(&self, file: OpenFile, offset: u64, len: u64, mode: u32) -> FsResult<()> {
        self.files.get(file.handle)?.allocate(offset, len, mode)
    }

    fn copy_range(&self, from: FilePosition, to: FilePosition, len: u64) -> FsResult<u64> {
        let source = self.files.get(from.file.handle)?;
        let target = self.files.get(to.file.handle)?;
        source.copy_to(from.offset, &target, to.offset, len)
    }

    fn change(&self, ino: Ino, file: Option<OpenFile>, changes: &Changes) -> FsResult<Attr> {
        attr::change(self, ino, file, changes)
    }

    fn make(&self, new: &New<'_>, rdev: Rdev) -> FsResult<Attr> {
        create::make(self, new, rdev)
    }

    fn symlink(&self, new: &New<'_>, target: &[u8]) -> FsResult<Attr> {
        create::symlink(self, new, target)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        names::link(self, ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        names::unlink(self, parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        names::rmdir(self, parent, name)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> FsResult<()> {
        names::rename(self, from, to, flags)
    }

    fn unlink_as(&self, parent: Ino, name: &[u8], caller: Caller) -> FsResult<()> {
        names::acting_on(self, [parent], caller, false, || self.unlink(parent, name))
    }

    fn rmdir_as(&self, parent: Ino, name: &[u8], caller: Caller) -> FsResult<()> {
        names::acting_on(self, [parent], caller, false, || self.rmdir(parent, name))
    }

    fn rename_as(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
        caller: Caller,
    ) -> FsResult<()> {
        let makes = RenameFlags::from_bits_retain(flags).contains(RenameFlags::WHITEOUT);
        names::acting_on(self, [from.0, to.0], caller, makes, || {
            self.rename(from, to, flags)
        })
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: u32) -> FsResult<()> {
        xattr::set(self, ino, name, value, flags)
    }

    fn setxattr_by_outsider(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: u32,
        caller: Caller,
    ) -> FsResult<()> {
        let _assumed = self.identity.assume_wholly(caller).map_err(refused)?;
        xattr::set(self, ino, name, value, flags)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        xattr::remove(self, ino, name)
    }

    fn open_dir(&self, ino: Ino) -> FsResult<u64> {
        let dir = open::directory(self, ino)?;
        Ok(self.dirs.insert(dir))
    }

    fn release_dir(&self, dir: OpenFile) {
        self.dirs.remove(dir.handle);
    }

    fn read_dir(
        &self,
        dir: OpenFile,
        from: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.dirs.get(dir.handle)?.visit(&self.table, from, visit)
    }

    fn lookup_listed(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        names::lookup_listed(self, parent, name)
    }

    fn fsync_dir(&self, dir: OpenFile) -> FsResult<()> {
        self.dirs.get(dir.handle)?.sync()
    }

    fn backing(&self, file: OpenFile) -> Option<OwnedFd> {
        open::backing(self, file)
    }
}
