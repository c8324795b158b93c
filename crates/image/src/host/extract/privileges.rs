//! Privileges that an image hands out, and that are of use to others than it means when the owners of
//! its files are not set.
//!
//! A set-user-id bit says: run this as its owner. Where that owner is not set, the file belongs to
//! whoever extracts it, and the bit would lend *their* identity to everyone who may execute it.
//! Capabilities and devices are the same with root's powers. As tar does without `-p`, an extraction
//! without owners gives none of them away.

use std::io;

use anteros_core::FileKind;
use anteros_format::inode::Inode;

use super::options::ExtractOptions;

/// The bits of a mode that lend an identity.
const SET_ID: u16 = 0o6000;

/// The permissions that a file gets.
pub(super) const fn permitted(inode: &Inode, options: &ExtractOptions) -> u16 {
    let read = match (options.readable, inode.kind) {
        (false, _) => 0,
        (true, FileKind::Directory) => 0o500,
        (true, _) => 0o400,
    };
    match options.owners {
        true => inode.perm,
        false => inode.perm & !SET_ID | read,
    }
}

/// Returns whether an attribute of this name has a say in what is permitted: capabilities, labels.
pub(super) fn is_privileged_attribute(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

/// Returns whether this is a device that gives access to something. The character device 0:0, which
/// stands for a removed file in layers of overlayfs, is none: everybody may create it.
pub(super) fn is_device(inode: &Inode) -> bool {
    let whiteout =
        inode.kind == FileKind::CharDevice && (inode.rdev.major, inode.rdev.minor) == (0, 0);
    matches!(inode.kind, FileKind::CharDevice | FileKind::BlockDevice) && !whiteout
}

/// Returns why something was left out.
pub(super) fn withheld() -> io::Error {
    io::Error::other("owners are not set, so no privileges are")
}
