//! The requests that only a file system that can be written to answers, or answers otherwise: through
//! open files.

mod names;

use std::io;

use anteros_core::{
    AtomicStep, Attr, Caller, Changes, FilePosition, FsError, Ino, New, OpenFile, SetTime,
    Timestamp, Writable,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros};

use super::args::{Args, put};
use super::dispatcher::{Dispatcher, LATER};
use super::hooks::AttributeOrder;
use super::write_back::{self, Moment, Opening, Size, Using, WriteBack};
use crate::device::Request;
use crate::proto::{
    CopyFileRangeIn, CreateIn, EXTENSION_GROUPS, EntryOut, Extension, FSYNC_DATA_ONLY, FallocateIn,
    FlushIn, ForgetOne, FsyncIn, InHeader, IoctlIn, IoctlOut, OPEN_KILL_SUIDGID, OpenIn, OpenOut,
    ReadIn, ReleaseIn, Rename2In, SETXATTR_ACL_KILL_SGID, SetattrIn, SetxattrIn, WRITE_CACHE,
    WRITE_HEAD_LEN, WRITE_KILL_SUIDGID, WriteIn, WriteOut, XattrSize, f2fs, op, open_flag, setattr,
};

/// `S_IFREG`.
const REGULAR: u32 = 0o100_000;
/// `O_TRUNC`.
const TRUNCATE: u32 = 0o1000;
/// `FALLOC_FL_KEEP_SIZE`.
const KEEP_SIZE: u32 = 1;

/// A request to a file system that can be written to.
pub(super) struct Writing<'a> {
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) fs: &'a dyn Writable,
    pub(super) header: &'a InHeader,
    pub(super) ino: Ino,
    /// A further group of the caller, that of the directory in which something is made.
    pub(super) also_in: Option<u32>,
    /// Before anything was asked for.
    pub(super) since: Moment,
}

/// The group that the extensions of a request name, which lie at the end of its `body`.
pub(super) fn named_group(header: &InHeader, body: &[u8]) -> Option<u32> {
    let len = usize::from(header.total_extlen) * 8;
    let mut rest = body.get(body.len().checked_sub(len)?..)?;
    while let Ok((extension, after)) = Extension::read_from_prefix(rest) {
        if extension.kind == EXTENSION_GROUPS {
            let ([count, group], _) = <[u32; 2]>::read_from_prefix(after).ok()?;
            return (count > 0).then_some(group);
        }
        let size = (extension.size as usize).max(size_of::<Extension>());
        rest = rest.get(size..)?;
    }
    None
}

type Answer = Result<usize, Errno>;

impl Writing<'_> {
    /// Answers the request; `None` if it is one that every file system answers alike.
    pub(super) fn serve(&self, mut args: Args<'_>, out: &mut [u8]) -> Option<Answer> {
        let args = &mut args;
        Some(match self.header.opcode {
            op::OPEN => self.open(args, out),
            op::CREATE | op::TMPFILE => self.create(args, out),
            op::READ => self.read(args, out),
            op::FLUSH => self.flush(args),
            op::FSYNC => self.fsync(args),
            op::RELEASE => self.release(args),
            // The kernel asks without writing back first: what it keeps would be taken for a hole.
            op::LSEEK if self.write_back().is_some() => Err(Errno::NOSYS),
            op::LSEEK => self.dispatcher.lseek(self.ino, args, out, |wanted, what| {
                self.fs.seek_open(self.file(wanted.fh), wanted.offset, what)
            }),
            op::FALLOCATE => self.fallocate(args),
            op::IOCTL => self.ioctl(args, out),
            op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => self.copy_file_range(args, out),
            op::SETATTR => self.setattr(args, out),
            op::MKNOD => self.mknod(args, out),
            op::MKDIR => self.mkdir(args, out),
            op::SYMLINK => self.symlink(args, out),
            op::LINK => self.link(args, out),
            op::UNLINK => args
                .name()
                .and_then(|name| self.done(self.fs.unlink_as(self.ino, name, self.caller(None)))),
            op::RMDIR => args
                .name()
                .and_then(|name| self.done(self.fs.rmdir_as(self.ino, name, self.caller(None)))),
            op::RENAME => args
                .take::<u64>()
                .and_then(|newdir| self.rename(newdir, 0, args)),
            op::RENAME2 => args
                .take::<Rename2In>()
                .and_then(|rename| self.rename(rename.newdir, rename.flags, args)),
            op::SETXATTR => self.setxattr(args),
            op::REMOVEXATTR => args
                .name()
                .and_then(|name| self.done_for_all(self.fs.removexattr(self.ino, name))),
            // The kernel asks no more, and opens and releases nothing.
            op::OPENDIR if self.dispatcher.keeps_listings => Err(Errno::NOSYS),
            op::RELEASEDIR if self.dispatcher.keeps_listings => Ok(0),
            op::OPENDIR => self.opendir(out),
            op::READDIR => self.readdir(args, out),
            op::READDIRPLUS => self.readdirplus(args, out),
            op::RELEASEDIR => self.releasedir(args),
            op::FSYNCDIR => args
                .take::<FsyncIn>()
                .and_then(|fsync| self.done_for_all(self.fs.fsync_dir(self.file(fsync.fh)))),
            _ => return None,
        })
    }

    const fn file(&self, handle: u64) -> OpenFile {
        OpenFile {
            ino: self.ino,
            handle,
        }
    }

    fn ask<T>(&self, result: Result<T, FsError>) -> Result<T, Errno> {
        self.dispatcher.ask(self.ino, result)
    }

    fn done(&self, result: Result<(), FsError>) -> Answer {
        self.ask(result).map(|()| 0)
    }

    /// For requests that the kernel stops sending when they are supported for no inode at all.
    fn done_for_all(&self, result: Result<(), FsError>) -> Answer {
        self.dispatcher.ask_of_all(self.ino, result).map(|()| 0)
    }

    fn open(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let open: OpenIn = args.take()?;
        let using = self.refuse_stale(open.flags)?;
        let (handle, cached) = self.opened_by(open.flags, |flags| self.fs.open(self.ino, flags))?;
        using.into_iter().for_each(Using::stays);
        put(out, &self.opened(self.file(handle), cached, open.flags))
    }

    /// Has the kernel look up a name once more, and open what it finds, if others have changed the file. If not, it counts as
    /// open.
    fn refuse_stale(&self, flags: u32) -> Result<Option<Using<'_>>, Errno> {
        let Some(files) = self.write_back() else {
            return Ok(None);
        };
        let attr = self.ask(self.fs.getattr(self.ino))?;
        let opening = Opening {
            node: self.header.nodeid,
            pid: self.header.pid,
            reads_only: !writes(flags) && flags & TRUNCATE == 0,
        };
        let using = files.opening(&opening, &attr, self.since);
        using.map(Some).ok_or(Errno::STALE)
    }

    fn write_back(&self) -> Option<&WriteBack> {
        self.dispatcher.write_back.as_ref()
    }

    /// Opens a file in the way that the kernel can write back through, and says whether that could be. Where
    /// it may not be opened so (for reading as well, or without `O_APPEND`), it is opened as it was asked
    /// for, and the kernel is not to cache it.
    fn opened_by<T>(
        &self,
        flags: u32,
        open: impl Fn(u32) -> Result<T, FsError>,
    ) -> Result<(T, bool), Errno> {
        if self.write_back().is_none() {
            return Ok((self.ask(open(flags))?, true));
        }
        let wanted = write_back::open_flags(flags);
        match open(wanted) {
            Err(FsError::Host(error))
                if wanted != flags && error.kind() == io::ErrorKind::PermissionDenied =>
            {
                Ok((self.ask(open(flags))?, false))
            }
            opened => Ok((self.ask(opened)?, true)),
        }
    }

    /// Takes set-id bits and capabilities from a file whose content someone without privileges changed.
    fn drop_privileges(&self, file: OpenFile) -> Result<(), Errno> {
        let changes = Changes {
            drops_privileges: true,
            ..Changes::default()
        };
        self.ask(self.fs.change(file.ino, Some(file), &changes))
            .map(drop)
    }

    /// As [`drop_privileges`](Self::drop_privileges), where the kernel does not say whether the caller
    /// has the privilege to leave them: root has.
    fn drop_privileges_of_users(&self, file: OpenFile) -> Result<(), Errno> {
        match self.header.uid {
            0 => Ok(()),
            _ => self.drop_privileges(file),
        }
    }

    /// Returns what the kernel is told of a file just opened: to read and write by itself where it
    /// may, and whether it may cache.
    fn opened(&self, file: OpenFile, cached: bool, flags: u32) -> OpenOut {
        if let Some(readahead) = &self.dispatcher.readahead {
            readahead.suit(self.fs.is_read_in_jumps(file.ino));
        }
        let lender = self.dispatcher.file_lender.as_ref();
        let loan = lender
            .and_then(|lender| lender.lend(file.ino, writes(flags), &|| self.fs.backing(file)));
        OpenOut {
            fh: file.handle,
            open_flags: match loan {
                Some(_) => open_flag::PASSTHROUGH | open_flag::NOFLUSH,
                None if !cached => open_flag::DIRECT_IO,
                None if self.write_back().is_some() || self.fs.keeps_cached() => {
                    open_flag::KEEP_CACHE
                }
                None => 0,
            },
            backing_id: loan.unwrap_or(0),
        }
    }

    fn create(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let CreateIn {
            flags,
            mode,
            umask,
            open_flags,
        } = args.take()?;
        let new = self.new_name(args.name()?, REGULAR | mode & 0o7777, umask);
        let created = self.opened_by(flags, |flags| match self.header.opcode {
            op::TMPFILE => self.fs.create_unnamed(&new, flags),
            _ => self.fs.create(&new, flags),
        });
        // The kernel has the directory locked meanwhile, so whoever looks there would wait as well. It looks up the name once
        // more, and opens what is there.
        let ((attr, handle), cached) = created.map_err(|errno| match errno {
            LATER => Errno::STALE,
            errno => errno,
        })?;
        let file = OpenFile {
            ino: attr.ino,
            handle,
        };
        let Some(mut entry) = self.dispatcher.entry_open(&attr, self.since) else {
            self.let_go(file);
            return Err(Errno::IO);
        };
        if self.dispatcher.file_lender.is_some() && writes(flags) {
            // It is lent in a moment.
            (entry.attr_valid, entry.attr_valid_nsec) = (0, 0);
        }
        let len = put(out, &entry)?;
        // What the kernel believed missing may have been there.
        if flags & TRUNCATE != 0 && open_flags & OPEN_KILL_SUIDGID != 0 {
            self.drop_privileges(file).inspect_err(|_| {
                if let Some(files) = self.write_back() {
                    files.released(file.ino);
                    files.forget(file.ino, entry.nodeid, 1);
                }
                self.let_go(file);
            })?;
        }
        Ok(len + put(&mut out[len..], &self.opened(file, cached, flags))?)
    }

    /// Closes a file of which the kernel is not told, and forgets it once.
    fn let_go(&self, file: OpenFile) {
        self.fs.release(file);
        self.fs.forget(file.ino, 1);
    }

    fn new_name<'n>(&self, name: &'n [u8], mode: u32, umask: u32) -> New<'n> {
        New {
            parent: self.ino,
            name,
            mode,
            umask,
            caller: self.caller(self.also_in),
        }
    }

    const fn caller(&self, also_in: Option<u32>) -> Caller {
        Caller {
            uid: self.header.uid,
            gid: self.header.gid,
            pid: self.header.pid,
            also_in,
        }
    }

    /// Tells the kernel of an inode that became known; if that cannot be, it is forgotten again.
    fn entry(&self, attr: &Attr, out: &mut [u8]) -> Answer {
        put(out, &self.known(attr).ok_or(Errno::IO)?)
    }

    /// Returns what the kernel is told of an inode that became known; if there is nothing, it is forgotten again.
    fn known(&self, attr: &Attr) -> Option<EntryOut> {
        let entry = self.dispatcher.entry(attr, self.since);
        if entry.is_none() {
            self.fs.forget(attr.ino, 1);
        }
        entry
    }

    fn read(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let read: ReadIn = args.take()?;
        let buf = out.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        let read = self.fs.read_open(self.file(read.fh), read.offset, buf);
        self.dispatcher.ask_content(self.ino, read)
    }

    /// The only request whose buffer may be kept.
    pub(super) fn write(&self, request: &mut Request, out: &mut [u8]) -> Answer {
        let write: WriteIn = Args(&request.bytes()[size_of::<InHeader>()..]).take()?;
        let mut written = self.write_from(request, &write, 0)?;
        // The kernel takes what it kept for written as a whole, unless it is told of an error.
        while write.write_flags & WRITE_CACHE != 0 && written < write.size as usize {
            match self.write_from(request, &write, written)? {
                0 => return Err(Errno::NOSPC),
                more => written += more,
            }
        }
        self.sync_written(&write)?;
        let end = write.offset.saturating_add(written as u64);
        self.changed(self.ino, Size::AtLeast(end))?;
        put(out, &counted(written as u64))
    }

    /// Writes what a request brings from this byte on, and says how many bytes.
    fn write_from(&self, request: &mut Request, write: &WriteIn, at: usize) -> Answer {
        let content = WRITE_HEAD_LEN + at..WRITE_HEAD_LEN + write.size as usize;
        if content.end > request.bytes().len() {
            return Err(Errno::INVAL);
        }
        let payload = request.payload(content).by(self.header.pid);
        let drops = write.write_flags & WRITE_KILL_SUIDGID != 0;
        let (file, offset) = (self.file(write.fh), write.offset.saturating_add(at as u64));
        self.ask(if write.write_flags & WRITE_CACHE == 0 {
            self.fs.write_payload(file, offset, payload, drops)
        } else {
            let keeps_mtime = self.write_back().is_some();
            self.fs
                .write_kept(file, offset, payload, drops, keeps_mtime)
        })
    }

    /// Syncs what the kernel might not: content that does not go through its cache.
    fn sync_written(&self, write: &WriteIn) -> Result<(), Errno> {
        let flags = OFlags::from_bits_retain(write.flags);
        let is_cached = write.write_flags & WRITE_CACHE != 0
            || self.write_back().is_none() && !flags.contains(OFlags::DIRECT);
        if is_cached || !flags.intersects(OFlags::DSYNC | OFlags::SYNC) {
            return Ok(());
        }
        let data_only = !flags.contains(OFlags::SYNC);
        self.ask(self.fs.sync_written(self.file(write.fh), data_only))
    }

    /// Takes note of a change of content.
    fn changed(&self, ino: Ino, size: Size) -> Result<(), Errno> {
        let Some(files) = self.write_back() else {
            return Ok(());
        };
        loop {
            let since = files.now();
            let mtime = self.ask(self.fs.getattr(ino))?.mtime;
            if files.changed(ino, size, mtime, since) {
                return Ok(());
            }
        }
    }

    fn flush(&self, args: &mut Args<'_>) -> Answer {
        let flush: FlushIn = args.take()?;
        self.done_for_all(self.fs.flush(self.file(flush.fh)))
    }

    fn fsync(&self, args: &mut Args<'_>) -> Answer {
        let fsync: FsyncIn = args.take()?;
        let data_only = fsync.flags & FSYNC_DATA_ONLY != 0;
        self.done_for_all(self.fs.fsync(self.file(fsync.fh), data_only))
    }

    fn release(&self, args: &mut Args<'_>) -> Answer {
        let release: ReleaseIn = args.take()?;
        // The file system comes last: once it lets go of a removed file, another may get its number.
        if let Some(lender) = &self.dispatcher.file_lender {
            lender.take_back(self.ino, writes(release.flags));
        }
        if let Some(files) = self.write_back() {
            files.released(self.ino);
        }
        self.fs.release(self.file(release.fh));
        Ok(0)
    }

    fn fallocate(&self, args: &mut Args<'_>) -> Answer {
        let FallocateIn {
            fh,
            offset,
            length,
            mode,
            ..
        } = args.take()?;
        let allocated = self.fs.allocate(self.file(fh), offset, length, mode);
        self.done_for_all(allocated)?;
        let size = match mode & KEEP_SIZE {
            0 => Size::AtLeast(offset.saturating_add(length)),
            _ => Size::Kept,
        };
        self.changed(self.ino, size)?;
        self.drop_privileges_of_users(self.file(fh)).map(|()| 0)
    }

    /// The commands by which F2FS is told to write atomically, since SQLite knows them.
    fn ioctl(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let asked: IoctlIn = args.take()?;
        // What the kernel keeps would come when it is too late.
        if self.write_back().is_some() || !self.fs.has_atomic_writes() {
            return Err(Errno::NOTTY);
        }
        let step = match asked.cmd {
            f2fs::GET_FEATURES => None,
            f2fs::START_ATOMIC_WRITE => Some(AtomicStep::Begin),
            f2fs::COMMIT_ATOMIC_WRITE => Some(AtomicStep::Commit),
            f2fs::ABORT_ATOMIC_WRITE => Some(AtomicStep::Abort),
            _ => return Err(Errno::NOTTY),
        };
        let len = put(out, &IoctlOut::new_zeroed())?;
        match step {
            Some(step) => self
                .done(self.fs.write_atomically(self.file(asked.fh), step))
                .map(|_| len),
            None => Ok(len + put(&mut out[len..], &f2fs::FEATURE_ATOMIC_WRITE)?),
        }
    }

    fn copy_file_range(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let copy: CopyFileRangeIn = args.take()?;
        let nodes = &self.dispatcher.nodes;
        let from = FilePosition {
            file: self.file(copy.fh_in),
            offset: copy.off_in,
        };
        let to = FilePosition {
            file: OpenFile {
                ino: nodes.ino(copy.nodeid_out).ok_or(Errno::INVAL)?,
                handle: copy.fh_out,
            },
            offset: copy.off_out,
        };
        let wide = self.header.opcode == op::COPY_FILE_RANGE_64;
        // The narrow reply has 32 bits for the count.
        let len = if wide {
            copy.len
        } else {
            copy.len.min(1 << 30)
        };
        let copied = self.fs.copy_range(from, to, len);
        let copied = self.dispatcher.ask_of_all(self.ino, copied)?;
        let end = to.offset.saturating_add(copied);
        self.changed(to.file.ino, Size::AtLeast(end))?;
        self.drop_privileges_of_users(to.file)?;
        match wide {
            true => put(out, &copied),
            false => put(out, &counted(copied)),
        }
    }

    fn setattr(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let set: SetattrIn = args.take()?;
        let has = |bit: u32| set.valid & bit != 0;
        let time = |bit, now, secs: u64, nanos| {
            has(bit).then(|| match has(now) {
                true => SetTime::Now,
                false => SetTime::At(Timestamp {
                    secs: secs as i64,
                    nanos,
                }),
            })
        };
        let changes = Changes {
            perm: has(setattr::MODE).then_some((set.mode & 0o7777) as u16),
            uid: has(setattr::UID).then_some(set.uid),
            gid: has(setattr::GID).then_some(set.gid),
            size: has(setattr::SIZE).then_some(set.size),
            atime: time(setattr::ATIME, setattr::ATIME_NOW, set.atime, set.atimensec),
            mtime: time(setattr::MTIME, setattr::MTIME_NOW, set.mtime, set.mtimensec),
            drops_privileges: Self::drops_privileges(set.valid),
        };
        let file = has(setattr::FH).then(|| self.file(set.fh));
        let using = self.write_back().map(|files| {
            files
                .changing(self.header.nodeid, self.ino)
                .ok_or(Errno::STALE)
        });
        let _using = using.transpose()?;
        let changed = match self.fs.change(self.ino, file, &changes) {
            // Who may write to a file of someone else may not set its times; the host's own time of the write stands.
            Err(FsError::Host(error))
                if Self::invents_times(set.valid)
                    && error.kind() == io::ErrorKind::PermissionDenied =>
            {
                self.change_without_times(file, &changes)
            }
            changed => changed,
        };
        let attr = self.ask(changed)?;
        let size = changes.size.map_or(Size::Kept, Size::Is);
        let is_noted = |files: &WriteBack| files.changed(self.ino, size, attr.mtime, self.since);
        if !self.write_back().is_none_or(is_noted) {
            self.changed(self.ino, size)?;
        }
        put(out, &self.dispatcher.attr_out(&attr))
    }

    /// Returns whether a SETATTR of what is `valid` tells the time of what the kernel keeps or cuts off, which nobody
    /// has asked for: where it writes back, and names the open file by which it does, or with a new size.
    const fn invents_times(valid: u32) -> bool {
        const TIMES: u32 = setattr::MTIME | setattr::CTIME;
        const OF_WRITING: u32 = TIMES | setattr::FH | setattr::LOCK_OWNER;
        let is_of_writing = valid & setattr::FH != 0 && valid & !OF_WRITING == 0;
        let is_of_cutting = valid & setattr::SIZE != 0;
        valid & TIMES == TIMES && (is_of_writing || is_of_cutting)
    }

    fn change_without_times(
        &self,
        file: Option<OpenFile>,
        changes: &Changes,
    ) -> Result<Attr, FsError> {
        let changes = Changes {
            atime: None,
            mtime: None,
            ..*changes
        };
        match changes == Changes::default() {
            true => self.fs.getattr(self.ino),
            false => self.fs.change(self.ino, file, &changes),
        }
    }

    /// Returns whether a SETATTR of what is `valid` is to take set-id bits and file capabilities away.
    ///
    /// Where nothing is to be set, that is all that the kernel wants: it says so before someone without the privilege to leave
    /// them changes content, and where `chown` names no owner.
    const fn drops_privileges(valid: u32) -> bool {
        const NOTHING: u32 = setattr::FH | setattr::LOCK_OWNER | setattr::CTIME;
        valid & setattr::KILL_SUIDGID != 0 || valid & !NOTHING == 0
    }

    fn setxattr(&self, args: &mut Args<'_>) -> Answer {
        let SetxattrIn {
            size,
            flags,
            setxattr_flags,
            ..
        } = self.setxattr_in(args)?;
        let name = args.name()?;
        let value = args.0.get(..size as usize).ok_or(Errno::INVAL)?;
        let order = AttributeOrder {
            ino: self.ino,
            name,
            value,
            uid: self.header.uid,
        };
        if let Some(taken) = self
            .dispatcher
            .on_order
            .as_ref()
            .and_then(|hook| hook(&order))
        {
            return taken.map(|()| 0);
        }
        let set = match setxattr_flags & SETXATTR_ACL_KILL_SGID {
            0 => self.fs.setxattr(self.ino, name, value, flags),
            _ => self
                .fs
                .setxattr_by_outsider(self.ino, name, value, flags, self.caller(None)),
        };
        self.done_for_all(set)
    }

    fn setxattr_in(&self, args: &mut Args<'_>) -> Result<SetxattrIn, Errno> {
        if self.dispatcher.extended_xattrs {
            return args.take();
        }
        // As XattrSize; what is padding there are flags here.
        let XattrSize { size, padding } = args.take()?;
        Ok(SetxattrIn {
            size,
            flags: padding,
            ..SetxattrIn::new_zeroed()
        })
    }
}

impl Dispatcher {
    /// Takes note of inodes that the kernel has forgotten; there is no answer.
    pub(super) fn forget(&self, fs: &dyn Writable, header: &InHeader, mut args: Args<'_>) {
        let one = |node, times| {
            if let Some(ino) = self.nodes.ino(node) {
                if let Some(files) = &self.write_back {
                    files.forget(ino, node, times);
                }
                fs.forget(ino, times);
            }
        };
        if header.opcode == op::FORGET {
            if let Ok(times) = args.take() {
                one(header.nodeid, times);
            }
            return;
        }
        // The number of records comes first; so does their end.
        let _ = args.take::<u64>();
        while let Ok(ForgetOne { nodeid, nlookup }) = args.take() {
            one(nodeid, nlookup);
        }
    }
}

/// Returns whether a file opened with these flags can be written to.
const fn writes(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).intersects(OFlags::WRONLY.union(OFlags::RDWR))
}

/// A count of bytes as WRITE replies with it.
const fn counted(bytes: u64) -> WriteOut {
    WriteOut {
        size: bytes as u32,
        padding: 0,
    }
}
