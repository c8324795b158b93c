//! What a glance at a request tells before anyone works on it.

use zerocopy::FromBytes;

use crate::proto::{InHeader, op};

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

/// The opcode, or 0, which is none.
fn opcode(request: &[u8]) -> u32 {
    InHeader::read_from_prefix(request).map_or(0, |(header, _)| header.opcode)
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    #[test]
    fn a_request_cut_short_is_nothing_special() {
        let header = InHeader {
            opcode: op::READ,
            ..InHeader::new_zeroed()
        };
        let whole = header.as_bytes();
        assert_eq!(Operation::of(&whole[..39]), Operation::Other);
        assert_eq!(Operation::of(whole), Operation::Read);
    }
}
