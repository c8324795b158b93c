//! Lists of what an extraction without root cannot keep: owners, permissions and capabilities as Android's `fs_config` tells
//! them, and labels as a `file_contexts` of SELinux does.
//!
//! Each name of the tree has a line in each list, in the order of a walk: the same image gives the same lists.

mod escape;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::FileKind;
use anteros_format::inode::Inode;

use crate::walk::{Walk, path_below};
use crate::{Error, Image, ImagePath, WalkProblem};
use escape::{expression, word};

const CAPABILITY: &[u8] = b"security.capability";
const LABEL: &[u8] = b"security.selinux";

/// Revision 2 of the attribute; its capabilities are effective from the start.
const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;

/// Says that a file has no label.
const NO_LABEL: &[u8] = b"<<none>>";

/// The lists to write.
#[derive(Default)]
pub struct Lists<'a> {
    /// Owners, permissions and capabilities.
    pub fs_config: Option<&'a mut dyn Write>,
    /// Labels.
    pub file_contexts: Option<&'a mut dyn Write>,
    /// The directory on which the image will be mounted: lists know files by the paths below it.
    pub mount_point: Vec<u8>,
}

/// Tells why lists could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ListError {
    /// The file that the walk had come to.
    pub path: ImagePath,
    /// Tells why.
    pub problem: ListProblem,
}

/// Tells what can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ListProblem {
    /// The walk of the tree came to an end there.
    #[error(transparent)]
    Walk(#[from] WalkProblem),
    /// The path is that of no directory.
    #[error("it is a {}; lists are of directories", .0.name())]
    NoDirectory(FileKind),
    /// The list of owners could not be written.
    #[error("cannot write the fs_config: {0}")]
    FsConfig(io::Error),
    /// The list of labels could not be written.
    #[error("cannot write the file_contexts: {0}")]
    FileContexts(io::Error),
}

impl From<Error> for ListProblem {
    fn from(error: Error) -> Self {
        Self::Walk(error.into())
    }
}

/// Writes lists of what lies below the path `from` of an image. `left_out` hears what has no form in them: an attribute, by
/// the name of which the first text tells, and why.
///
/// # Errors
///
/// The first error. `cancel` is looked at before each name.
pub fn write_lists(
    image: &Image,
    from: &[u8],
    lists: &mut Lists<'_>,
    left_out: &dyn Fn(&ImagePath, &str),
    cancel: &AtomicBool,
) -> Result<(), ListError> {
    let root = image.find(from).map_err(ListProblem::from);
    let root = root.and_then(|root| match root.kind {
        FileKind::Directory => Ok(root),
        kind => Err(ListProblem::NoDirectory(kind)),
    });
    let at = |path: &[u8], problem| ListError {
        path: path_below(from, path),
        problem,
    };
    let mut walk = Walk::new(image, root.map_err(|problem| at(b"", problem))?);
    loop {
        let inode = match walk.next() {
            Ok(Some(inode)) => inode,
            Ok(None) => return Ok(()),
            Err(problem) => return Err(at(walk.path(), problem.into())),
        };
        let entry = Entry {
            image,
            inode: &inode,
            path: walk.path(),
            left_out: &|text| left_out(&path_below(from, walk.path()), text),
        };
        let written = match cancel.load(Ordering::Relaxed) {
            true => Err(WalkProblem::Cancelled.into()),
            false => entry.write(lists),
        };
        written.map_err(|problem| at(walk.path(), problem))?;
    }
}

/// A file to be listed.
struct Entry<'a> {
    image: &'a Image,
    inode: &'a Inode,
    /// Its path below the root of the lists.
    path: &'a [u8],
    left_out: &'a dyn Fn(&str),
}

impl Entry<'_> {
    fn write(&self, lists: &mut Lists<'_>) -> Result<(), ListProblem> {
        if let Some(out) = &mut lists.fs_config {
            let line = self.fs_config(&lists.mount_point)?;
            out.write_all(&line).map_err(ListProblem::FsConfig)?;
        }
        if let Some(out) = &mut lists.file_contexts {
            let line = self.file_contexts(&lists.mount_point)?;
            out.write_all(&line).map_err(ListProblem::FileContexts)?;
        }
        Ok(())
    }

    fn fs_config(&self, mount_point: &[u8]) -> Result<Vec<u8>, Error> {
        let inode = self.inode;
        let mut line = match self.path {
            b"" => b"/".to_vec(),
            path => word(&path_below(mount_point, path).into_bytes()),
        };
        let owner = format!(" {} {} {:o}", inode.uid, inode.gid, inode.perm);
        line.extend(owner.into_bytes());
        if let Some(value) = self.image.xattr(inode, CAPABILITY)? {
            match capabilities(&value) {
                Some(bits) => line.extend(format!(" capabilities={bits:#x}").into_bytes()),
                None => (self.left_out)("its capabilities have no form in an fs_config"),
            }
        }
        line.push(b'\n');
        Ok(line)
    }

    fn file_contexts(&self, mount_point: &[u8]) -> Result<Vec<u8>, Error> {
        let path = [b"/", &path_below(mount_point, self.path).into_bytes()[..]].concat();
        let value = self.image.xattr(self.inode, LABEL)?;
        let label = match value.as_deref().map(label) {
            None => NO_LABEL,
            Some(Some(label)) => label,
            Some(None) => {
                (self.left_out)("its label has no form in a file_contexts");
                NO_LABEL
            }
        };
        Ok([&expression(&path)[..], b" ", label, b"\n"].concat())
    }
}

/// The bits of capabilities, if the attribute has no more than an `fs_config` tells: permitted ones, which are effective.
fn capabilities(value: &[u8]) -> Option<u64> {
    let words: [u8; 20] = value.try_into().ok()?;
    let word = |n: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| words[4 * n + byte]));
    let bits = u64::from(word(3)) << 32 | u64::from(word(1));
    let is_plain = word(0) == REVISION_2_EFFECTIVE && word(2) == 0 && word(4) == 0;
    (is_plain && bits != 0).then_some(bits)
}

/// The text of a label, which has a zero byte behind it, if a list can hold it.
fn label(value: &[u8]) -> Option<&[u8]> {
    let label = value.strip_suffix(b"\0")?;
    let is_plain = |byte: &u8| byte.is_ascii_graphic();
    (!label.is_empty() && label != NO_LABEL && label.iter().all(is_plain)).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_list_can_hold_is_taken() {
        let value = |words: [u32; 5]| words.map(u32::to_le_bytes).concat();
        let effective = REVISION_2_EFFECTIVE;
        for (words, bits) in [
            ([effective, 0xc0, 0, 1, 0], Some(0x1_0000_00c0)),
            ([effective, 0, 0, 0, 0], None),
            ([effective, 1, 1, 0, 0], None),
            ([effective, 1, 0, 0, 1], None),
            ([0x0200_0000, 1, 0, 0, 0], None),
            ([0x0300_0001, 1, 0, 0, 0], None),
        ] {
            assert_eq!(capabilities(&value(words)), bits, "{words:x?}");
        }
        assert_eq!(capabilities(&value([effective, 1, 0, 0, 0])[..19]), None);
        assert_eq!(label(b"u:r:x:s0:c1,c2\0"), Some(&b"u:r:x:s0:c1,c2"[..]));
        for bad in [
            &b"u:r:x"[..],
            b"\0",
            b"a b\0",
            b"a\0b\0",
            b"<<none>>\0",
            b"\xff\0",
        ] {
            assert_eq!(label(bad), None, "{}", bad.escape_ascii());
        }
    }
}
