//! Requests to replies: the only place that knows both the protocol and the file system, and the
//! only one where an [`FsError`] becomes an `errno`.
//!
//! Nothing here does I/O, so the tests drive it with plain bytes. A request is never trusted: one
//! that is shorter than its opcode demands, names without an end and sizes beyond the reply buffer
//! are answered with EINVAL. Should the file system panic, the request is answered with EIO and the
//! worker lives on; otherwise the caller would wait for ever.

mod args;
mod dispatcher;
mod hooks;
mod own_value;
mod writable;
mod write_back;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anteros_core::{Attr, FsError, FsResult, Ino, Writable};
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros};

use self::args::{Args, put, put_sized, statx_time};
pub use self::dispatcher::{Dispatcher, LATER};
pub use self::hooks::{AttributeOrder, AttributeRequest, FileLender, Loan};
use self::writable::Writing;
use self::write_back::Moment;
use crate::device::Request;
use crate::dirpage::DirPage;
use crate::proto::own::{self, OwnIn};
use crate::proto::{
    EntryOut, InHeader, IoctlIn, IoctlOut, OpenOut, ReadIn, StatfsOut, StatxOut, XattrSize, op,
    open_flag, statx,
};

/// The longest name of a directory entry, in bytes.
const NAME_LEN_MAX: usize = 255;

/// The longest symlink target the kernel takes: a page of the smallest kind, less a final NUL.
const TARGET_LEN_MAX: usize = 4095;

/// Reply to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The request it answers.
    pub unique: u64,
    /// Length of the payload in the reply buffer, or the error.
    pub payload: Result<usize, Errno>,
    /// The inode that was written to.
    pub written: Option<Ino>,
}

impl Dispatcher {
    /// Answers `request`, the payload in `out`; `None` for requests that want no answer. Where content is
    /// written, the buffer of the request may be kept: another one, as large, is there then.
    pub fn answer(&self, request: &mut Request, out: &mut [u8]) -> Option<Reply> {
        let (header, body) = InHeader::read_from_prefix(request.bytes()).ok()?;
        match header.opcode {
            op::INTERRUPT | op::NOTIFY_REPLY => return None,
            op::FORGET | op::BATCH_FORGET => {
                if let Some(fs) = self.fs.writable() {
                    let _ = catch_unwind(AssertUnwindSafe(|| self.forget(fs, &header, Args(body))));
                }
                return None;
            }
            _ => {}
        }
        let payload = if header.len as usize != request.bytes().len() {
            Err(Errno::INVAL)
        } else if header.opcode == op::WRITE {
            catch_unwind(AssertUnwindSafe(|| self.write(&header, request, out)))
                .unwrap_or(Err(Errno::IO))
        } else {
            catch_unwind(AssertUnwindSafe(|| self.serve(&header, Args(body), out)))
                .unwrap_or(Err(Errno::IO))
        };
        let is_write = header.opcode == op::WRITE && payload.is_ok();
        Some(Reply {
            unique: header.unique,
            payload,
            written: is_write.then(|| self.nodes.ino(header.nodeid)).flatten(),
        })
    }

    /// Returns whether work is left when the reply has been sent.
    pub fn goes_on_after(&self, reply: &Reply) -> bool {
        reply.written.is_some() && self.fs.writable().is_some()
    }

    /// Does what was left for when the reply had been sent.
    pub fn sent(&self, reply: &Reply) {
        if let Some((ino, fs)) = reply.written.zip(self.fs.writable()) {
            // Nobody waits for it, and the worker lives on.
            let _ = catch_unwind(AssertUnwindSafe(|| fs.hand_on(ino)));
        }
    }

    /// ENOSYS tells the kernel to do without the request from now on, which for opening, flushing
    /// and syncing a file that never changes is just right.
    fn serve(&self, header: &InHeader, mut args: Args<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        match header.opcode {
            op::STATFS => return self.statfs(out),
            op::DESTROY => return Ok(0),
            _ => {}
        }
        let ino = self.ino(header)?;
        if let Some(answer) = self
            .writing(header, ino, args.0)
            .and_then(|w| w.serve(Args(args.0), out))
        {
            return answer;
        }
        match header.opcode {
            op::RELEASE | op::RELEASEDIR => Ok(0),
            op::LOOKUP => self.lookup(ino, args, out),
            op::GETATTR => self.getattr(ino, out),
            op::STATX => self.statx(ino, out),
            op::READLINK => self.readlink(ino, out),
            op::OPEN => self.open(ino, out),
            op::READ => self.read(ino, args, out),
            op::READDIR => self.readdir(ino, args, out),
            op::READDIRPLUS => self.readdirplus(ino, args, out),
            op::GETXATTR => self.getxattr(header.uid, ino, args, out),
            op::LISTXATTR => self.listxattr(ino, args, out),
            op::IOCTL => self.ioctl(header.uid, ino, args, out),
            op::LSEEK => self.lseek(ino, &mut args, out, |wanted, what| {
                self.fs.seek(ino, wanted.offset, what)
            }),
            op::SETATTR
            | op::SYMLINK
            | op::MKNOD
            | op::MKDIR
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::LINK
            | op::SETXATTR
            | op::REMOVEXATTR
            | op::CREATE
            | op::FALLOCATE
            | op::RENAME2
            | op::COPY_FILE_RANGE
            | op::TMPFILE
            | op::COPY_FILE_RANGE_64 => Err(Errno::ROFS),
            _ => Err(Errno::NOSYS),
        }
    }

    /// The inode that a request is about.
    fn ino(&self, header: &InHeader) -> Result<Ino, Errno> {
        let ino = self.nodes.ino(header.nodeid).ok_or(Errno::INVAL)?;
        // A file handle of before is told to be one, rather than answered by another number.
        match header.opcode == op::LOOKUP && self.nodes.renewed().is_old(ino, header.nodeid) {
            true => Err(Errno::STALE),
            false => Ok(ino),
        }
    }

    fn writing<'a>(&'a self, header: &'a InHeader, ino: Ino, body: &[u8]) -> Option<Writing<'a>> {
        self.fs.writable().map(|fs| Writing {
            dispatcher: self,
            fs,
            header,
            ino,
            also_in: writable::named_group(header, body),
            since: self.now(),
        })
    }

    fn write(
        &self,
        header: &InHeader,
        request: &mut Request,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let ino = self.ino(header)?;
        let writing = self.writing(header, ino, &[]).ok_or(Errno::ROFS)?;
        writing.write(request, out)
    }

    fn lookup(&self, parent: Ino, mut args: Args<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        let name = args.name()?;
        if name.len() > NAME_LEN_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let since = self.now();
        let finds_forgotten = self.fs.writable().is_some_and(Writable::finds_forgotten);
        let found = match name {
            // It counts how often the kernel is told of an inode.
            _ if finds_forgotten => self.fs.lookup(parent, name),
            // Asked of any kind of inode, to find it again by its node number alone (file handles).
            b"." => self.fs.getattr(parent),
            b".." => self.parent(parent),
            _ => self.fs.lookup(parent, name),
        };
        match found {
            Ok(attr) => put(out, &self.entry(&attr, since).ok_or(Errno::IO)?),
            Err(FsError::NotFound) => put(out, &self.missing()),
            Err(error) => Err(self.errno(parent, &error)),
        }
    }

    /// The directory that the entry `..` of `ino` names.
    fn parent(&self, ino: Ino) -> FsResult<Attr> {
        let mut parent = None;
        self.fs.readdir(ino, 0, &mut |entry| {
            if entry.name == b".." {
                parent = Some(entry.ino);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        self.fs.getattr(parent.ok_or(FsError::NotFound)?)
    }

    fn getattr(&self, ino: Ino, out: &mut [u8]) -> Result<usize, Errno> {
        put(out, &self.attr_out(&self.ask(ino, self.fs.getattr(ino))?))
    }

    /// Answers STATX: attributes as GETATTR has them, and the birth time, which the kernel asks for only on request.
    fn statx(&self, ino: Ino, out: &mut [u8]) -> Result<usize, Errno> {
        let born = self.ask_of_all(ino, self.fs.born(ino))?;
        let attr = self.ask(ino, self.fs.getattr(ino))?;
        let trusted_for = self.attributes_trusted_for(ino);
        let known = StatxOut {
            attr_valid: trusted_for.as_secs(),
            attr_valid_nsec: trusted_for.subsec_nanos(),
            mask: statx::BASIC_STATS | born.map_or(0, |_| statx::BTIME),
            blksize: attr.block_size,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.kind.mode_bits() as u16 | attr.perm & 0o7777,
            ino: attr.ino.0,
            size: attr.size,
            blocks: attr.blocks,
            atime: statx_time(attr.atime),
            btime: statx_time(born.unwrap_or_default()),
            ctime: statx_time(attr.ctime),
            mtime: statx_time(attr.mtime),
            rdev_major: attr.rdev.major,
            rdev_minor: attr.rdev.minor,
            ..StatxOut::new_zeroed()
        };
        put(out, &known)
    }

    fn readlink(&self, ino: Ino, out: &mut [u8]) -> Result<usize, Errno> {
        let target = self.ask(ino, self.fs.readlink(ino))?;
        if target.len() > TARGET_LEN_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        put(out, target.as_slice())
    }

    /// Opens a memory file by its loan, and others so that what the kernel has cached stays. Neither
    /// kind wants to be told of a `close`.
    fn open(&self, ino: Ino, out: &mut [u8]) -> Result<usize, Errno> {
        let lender = self.lender.as_ref().ok_or(Errno::NOSYS)?;
        let file = self.fs.memory_file(ino);
        let loan = file.and_then(|file| lender(ino, file));
        let kind = match loan {
            Some(_) => open_flag::PASSTHROUGH,
            None => open_flag::KEEP_CACHE,
        };
        let reply = OpenOut {
            fh: 0,
            open_flags: kind | open_flag::NOFLUSH,
            backing_id: loan.unwrap_or(0),
        };
        put(out, &reply)
    }

    fn read(&self, ino: Ino, mut args: Args<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        let read: ReadIn = args.take()?;
        let buf = out.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        self.ask_content(ino, self.fs.read(ino, read.offset, buf))
    }

    fn readdir(&self, ino: Ino, mut args: Args<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        let read: ReadIn = args.take()?;
        let buf = out.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        let mut page = DirPage::new(buf);
        self.fill(ino, &mut page, |visit| {
            self.fs.readdir(ino, read.offset, visit)
        })?;
        Ok(page.len())
    }

    /// The attributes are asked for when the listing is complete, so a file system that holds a lock
    /// while it visits entries is not called from within. An inode that cannot be read, or not at
    /// once, is listed without attributes; whoever looks it up gets them, or the error.
    fn readdirplus(&self, ino: Ino, mut args: Args<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        let read: ReadIn = args.take()?;
        let buf = out.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        let mut page = DirPage::plus(buf);
        self.fill(ino, &mut page, |visit| {
            self.fs.readdir(ino, read.offset, visit)
        })?;
        page.fill_entries(|listed| {
            let attr = self.fs.getattr_listed(listed.ino, listed.kind);
            attr.and_then(|attr| self.entry(&attr, Moment::default()))
                .unwrap_or_else(EntryOut::new_zeroed)
        });
        Ok(page.len())
    }

    fn getxattr(
        &self,
        uid: u32,
        ino: Ino,
        mut args: Args<'_>,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let XattrSize { size, .. } = args.take()?;
        let name = args.name()?;
        let value = match self.own_attribute(uid, ino, name) {
            Some(value) => value,
            None if self.fs.has_no_xattrs() => return Err(Errno::NOSYS),
            None => self.ask_of_all(ino, self.fs.getxattr(ino, name))?,
        };
        put_sized(out, size, &value)
    }

    /// Attribute of the mount itself.
    fn own_attribute(&self, uid: u32, ino: Ino, name: &[u8]) -> Option<Vec<u8>> {
        let answer = self.on_attribute.as_ref()?;
        let lender = self.file_lender.as_ref();
        let loan = lender.map_or(Loan::Never, |lender| lender.loan(ino));
        answer(&AttributeRequest {
            ino,
            name,
            loan,
            uid,
        })
    }

    fn listxattr(&self, ino: Ino, mut args: Args<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        let XattrSize { size, .. } = args.take()?;
        if self.fs.has_no_xattrs() {
            return Err(Errno::NOSYS);
        }
        let mut list = Vec::new();
        for name in self.ask_of_all(ino, self.fs.listxattr(ino))? {
            list.extend(name);
            list.push(0);
        }
        put_sized(out, size, &list)
    }

    /// Tells a piece of an attribute of the mount itself, for [`own_attribute`](crate::own_attribute).
    fn ioctl(
        &self,
        uid: u32,
        ino: Ino,
        mut args: Args<'_>,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let asked: IoctlIn = args.take()?;
        if asked.cmd != own::COMMAND {
            return Err(Errno::NOTTY);
        }
        let piece: OwnIn = args.take()?;
        let len = put(out, &IoctlOut::new_zeroed())?;
        let value = || self.own_attribute(uid, ino, piece.name());
        Ok(len + self.own_value.tell(&piece, uid, &mut out[len..], value)?)
    }

    fn statfs(&self, out: &mut [u8]) -> Result<usize, Errno> {
        let stat = self.ask(self.fs.root(), self.fs.statfs())?;
        let reply = StatfsOut {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_available,
            files: stat.files,
            ffree: stat.files_free,
            bsize: stat.block_size,
            namelen: stat.name_max,
            frsize: stat.block_size,
            ..StatfsOut::new_zeroed()
        };
        put(out, &reply)
    }
}

#[cfg(test)]
mod tests;
