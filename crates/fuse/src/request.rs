//! Description of a request, for those who watch a mount.

use std::time::Duration;

use anteros_core::Ino;
use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::node::Nodes;
use crate::proto::{FsyncIn, InHeader, ReadIn, WriteIn, op};

/// Tells what a request asks for, as far as those who watch a mount tell requests apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Finding a name in a directory.
    Lookup,
    /// The attributes of an inode.
    Getattr,
    /// Part of a directory, with or without the attributes of what it lists.
    Readdir,
    /// Part of a file.
    Read,
    /// The target of a symbolic link.
    Readlink,
    /// An extended attribute, or the list of them.
    Xattr,
    /// Content for a file.
    Write,
    /// A promise that content is on the device.
    Fsync,
    /// Anything else: opening, seeking, the size of the file system, and what is refused.
    Other,
}

impl Operation {
    fn of(opcode: u32) -> Self {
        match opcode {
            op::LOOKUP => Self::Lookup,
            op::GETATTR => Self::Getattr,
            op::READDIR | op::READDIRPLUS => Self::Readdir,
            op::READ => Self::Read,
            op::READLINK => Self::Readlink,
            op::GETXATTR | op::LISTXATTR => Self::Xattr,
            op::WRITE => Self::Write,
            op::FSYNC => Self::Fsync,
            _ => Self::Other,
        }
    }
}

/// A request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Holds what it asked for.
    pub operation: Operation,
    /// The inode it was about.
    pub ino: Ino,
    /// The process that asked; 0 for what the kernel does by itself.
    pub pid: u32,
    /// Of reading, writing and syncing: the open file; else 0.
    pub handle: u64,
    /// Of reading and writing: the first byte; else 0.
    pub offset: u64,
    /// Of reading and writing: how many bytes were asked for; else 0.
    pub len: u64,
    /// Of reading and writing: the flags that the file was opened with, as `open(2)` has them; else 0.
    pub open_flags: u32,
    /// The error it was answered with.
    pub error: Option<Errno>,
    /// From the moment a worker had the request until the kernel had the answer.
    pub took: Duration,
}

impl Answered {
    /// Returns what can be told of `request` by a glance at it, before it is answered.
    pub(crate) fn new(request: &[u8], nodes: &Nodes) -> Option<Self> {
        let (header, body) = InHeader::read_from_prefix(request).ok()?;
        let answered = Self {
            operation: Operation::of(header.opcode),
            ino: nodes.ino(header.nodeid).unwrap_or(Ino(0)),
            pid: header.pid,
            handle: 0,
            offset: 0,
            len: 0,
            open_flags: 0,
            error: None,
            took: Duration::ZERO,
        };
        Some(answered.with_arguments(body).unwrap_or(answered))
    }

    fn with_arguments(self, body: &[u8]) -> Option<Self> {
        let (handle, offset, size, open_flags) = match self.operation {
            Operation::Read => {
                let (read, _) = ReadIn::read_from_prefix(body).ok()?;
                (read.fh, read.offset, read.size, read.flags)
            }
            Operation::Write => {
                let (write, _) = WriteIn::read_from_prefix(body).ok()?;
                (write.fh, write.offset, write.size, write.flags)
            }
            Operation::Fsync => (FsyncIn::read_from_prefix(body).ok()?.0.fh, 0, 0, 0),
            _ => return None,
        };
        Some(Self {
            handle,
            offset,
            len: size.into(),
            open_flags,
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;
    use crate::proto::ROOT_ID;

    fn of(request: &[u8]) -> Option<Answered> {
        Answered::new(request, &Nodes::new(Ino(36)))
    }

    #[test]
    fn a_request_cut_short_tells_what_is_there() {
        let header = InHeader {
            opcode: op::WRITE,
            nodeid: ROOT_ID,
            ..InHeader::new_zeroed()
        };
        let write = WriteIn {
            fh: 3,
            offset: 1 << 40,
            size: 4096,
            flags: 2,
            ..WriteIn::new_zeroed()
        };
        let whole = [header.as_bytes(), write.as_bytes()].concat();
        assert_eq!(of(&whole[..39]), None);
        let short = of(&whole[..79]).unwrap();
        assert_eq!((short.operation, short.len), (Operation::Write, 0));
        let told = of(&whole).unwrap();
        assert_eq!((told.ino, told.handle), (Ino(36), 3));
        assert_eq!((told.offset, told.len, told.open_flags), (1 << 40, 4096, 2));
    }
}
