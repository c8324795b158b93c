//! What a glance at a request tells before anyone works on it.

use zerocopy::FromBytes;

use crate::proto::{InHeader, ReadIn, op};

/// What a request asks for, as far as those who watch a mount tell requests apart.
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
    /// Anything else: opening, seeking, the size of the file system, and what is refused.
    Other,
}

impl Operation {
    /// What `request` asks for.
    pub(crate) fn of(request: &[u8]) -> Self {
        match opcode(request) {
            op::LOOKUP => Self::Lookup,
            op::GETATTR => Self::Getattr,
            op::READDIR | op::READDIRPLUS => Self::Readdir,
            op::READ => Self::Read,
            op::READLINK => Self::Readlink,
            op::GETXATTR | op::LISTXATTR => Self::Xattr,
            _ => Self::Other,
        }
    }
}

/// Bytes that `request` wants of a file or a directory; 0 if it is about something else.
pub fn wanted_len(request: &[u8]) -> usize {
    let (op::READ | op::READDIR | op::READDIRPLUS) = opcode(request) else {
        return 0;
    };
    let body = request.get(size_of::<InHeader>()..).unwrap_or_default();
    ReadIn::read_from_prefix(body).map_or(0, |(read, _)| read.size as usize)
}

/// The thread that asks; `None` if it is the kernel itself, or cannot be seen from here.
pub fn caller(request: &[u8]) -> Option<u32> {
    let (header, _) = InHeader::read_from_prefix(request).ok()?;
    (header.pid != 0).then_some(header.pid)
}

/// The opcode, or 0, which is none.
fn opcode(request: &[u8]) -> u32 {
    InHeader::read_from_prefix(request).map_or(0, |(header, _)| header.opcode)
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    fn request(opcode: u32, size: u32) -> Vec<u8> {
        let header = InHeader {
            opcode,
            ..InHeader::new_zeroed()
        };
        let read = ReadIn {
            size,
            ..ReadIn::new_zeroed()
        };
        [header.as_bytes(), read.as_bytes()].concat()
    }

    #[test]
    fn only_reads_of_content_want_bytes() {
        for opcode in [op::READ, op::READDIR, op::READDIRPLUS] {
            assert_eq!(wanted_len(&request(opcode, 70_000)), 70_000);
        }
        assert_eq!(wanted_len(&request(op::LOOKUP, 70_000)), 0);
    }

    #[test]
    fn a_request_cut_short_is_nothing_special() {
        let whole = request(op::READ, 70_000);
        for len in 0..whole.len() {
            assert_eq!(wanted_len(&whole[..len]), 0, "{len} bytes");
        }
        assert_eq!(Operation::of(&whole[..39]), Operation::Other);
        assert_eq!(Operation::of(&whole[..40]), Operation::Read);
    }
}
