//! Names by which a layer tells what of the layers below it is gone.
//!
//! AUFS, and after it the layers of container images, mark a removed file by a file `.wh.NAME` beside
//! where it was, and a directory that hides all of what was in it by `.wh..wh..opq` in it. Overlayfs
//! has a device instead, 0:0 of that name, and an attribute of the directory.

use anteros_core::FileKind;

/// Attribute of directories that hide what was in them.
pub(crate) const OPAQUE: &[u8] = b"trusted.overlay.opaque";
/// Its value.
pub(crate) const IS_OPAQUE: &[u8] = b"y";

/// Attribute of directories that have been copied up.
pub(crate) const ORIGIN: &[u8] = b"trusted.overlay.origin";

/// Beginning of the attributes of overlayfs.
const OVERLAY: &[u8] = b"trusted.overlay.";
/// Beginning of those of overlayfs mounted with `userxattr`.
const USER_OVERLAY: &[u8] = b"user.overlay.";
/// Beginning of names that mark something.
const MARK: &[u8] = b".wh.";
/// Beginning of names of AUFS' own files.
const OWN: &[u8] = b".wh..wh.";

/// Meaning of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mark<'a> {
    /// The file of this name is gone.
    Gone(&'a [u8]),
    /// The directory hides what was in it.
    Opaque,
}

impl<'a> Mark<'a> {
    pub fn of(name: &'a [u8]) -> Option<Self> {
        match name.strip_prefix(MARK)? {
            b".wh..opq" => Some(Self::Opaque),
            b"" | b"." | b".." => None,
            _ if is_own(name) => None,
            gone => Some(Self::Gone(gone)),
        }
    }
}

/// Returns whether a file is one of AUFS' own, which is no part of the tree. Hard links may lead to it.
pub(super) fn is_own(name: &[u8]) -> bool {
    name.starts_with(OWN)
}

/// Returns whether a special file is a whiteout of overlayfs.
pub(crate) const fn is_whiteout(kind: FileKind, rdev: u32) -> bool {
    matches!(kind, FileKind::CharDevice) && rdev == 0
}

/// Returns whether an attribute is one of overlayfs.
pub(super) fn is_overlay(name: &[u8]) -> bool {
    name.starts_with(OVERLAY)
}

/// Returns the property of a layer that an attribute is, in either name space that overlayfs uses.
pub(crate) fn of_overlay(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(OVERLAY)
        .or_else(|| name.strip_prefix(USER_OVERLAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks() {
        for (name, expected) in [
            (&b".wh.file"[..], Some(Mark::Gone(b"file"))),
            (b".wh..file", Some(Mark::Gone(b".file"))),
            (b".wh..wh..opq", Some(Mark::Opaque)),
            (b".wh..wh.plnk", None),
            (b".wh.", None),
            (b".wh...", None),
            (b"wh.file", None),
        ] {
            assert_eq!(Mark::of(name), expected, "{}", name.escape_ascii());
        }
    }
}
