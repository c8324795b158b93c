//! Extended attributes: which of them matter, and those of a file of the host.

use rustix::io::Errno;

use crate::Xattr;

/// Tells which extended attributes matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrScope {
    /// None.
    None,
    /// Those in the namespace `user`.
    User,
    /// All, access control lists included.
    All,
}

impl XattrScope {
    /// Returns whether an attribute of this name matters.
    pub fn contains(self, name: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::User => name.starts_with(b"user."),
            Self::All => true,
        }
    }
}

/// The extended attributes of a path, none if its file system knows none. Only a magic link, as
/// [`descriptor_path`](super::descriptor::descriptor_path) makes, is followed.
pub(super) fn host_xattrs(path: &[u8], follow: bool) -> rustix::io::Result<Vec<Xattr>> {
    // The system's own limits for a list, and for a value.
    let mut buf = vec![0; 1 << 16];
    let listed = match follow {
        true => rustix::fs::listxattr(path, &mut buf[..]),
        false => rustix::fs::llistxattr(path, &mut buf[..]),
    };
    let len = match listed {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    if len == 0 {
        return Ok(Vec::new());
    }
    let list = buf[..len].to_vec();
    let mut xattrs = Vec::new();
    for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let len = match follow {
            true => rustix::fs::getxattr(path, name, &mut buf[..])?,
            false => rustix::fs::lgetxattr(path, name, &mut buf[..])?,
        };
        xattrs.push(Xattr {
            name: name.to_vec(),
            value: buf[..len].to_vec(),
        });
    }
    Ok(xattrs)
}
