//! Writing what changed from an older image to a newer one as a layer: a tar archive with the marks of OCI for what is gone.
//!
//! | in the newer image | in the archive |
//! |---|---|
//! | a name that is new, or whose file differs in anything but its links | its entry |
//! | a directory whose properties differ | its entry; what is below it is compared by itself |
//! | a name that is missing | `.wh.NAME`, an empty file |
//! | a directory without any of several names that it had | `.wh..wh..opq` in it, and all that it has |
//! | names that share a file in another way than before | all of them: the first one as a file, the others as links to it |
//!
//! Both trees are walked twice, side by side: how names share files shows only at the end of the first walk. The order is that
//! of one image's archive; the same images give the same bytes each time.
//!
//! - `pairs`: the walk.
//! - `links`: names that share a file.
//! - `same`: whether two files are the same.

mod links;
mod pairs;
mod same;

use anteros_core::{FileKind, Rdev, Timestamp};
use anteros_format::inode::Inode;

use super::record::{Entry, Type};
use super::{Archive, TarProblem};
use crate::{Image, ImagePath};
use links::Links;
use pairs::{Pair, Pairs};
use same::Comparison;

/// Begins the names of marks.
const MARK: &[u8] = b".wh.";
/// The mark that nothing of a directory in lower layers is left.
const OPAQUE: &[u8] = b".wh..wh..opq";

impl Archive<'_> {
    /// Writes what changed since an older image.
    pub(super) fn changes(&mut self, old: &Image) -> Result<(), TarProblem> {
        let mut links = Links::new();
        self.each_pair(old, |_, pair| links.note(pair))?;
        self.each_pair(old, |archive, pair| archive.change(old, pair, &mut links))?;
        self.path.clear();
        self.end()
    }

    /// Walks both trees; errors are about the path that the walk has come to.
    fn each_pair(
        &mut self,
        old: &Image,
        mut take: impl FnMut(&mut Self, &Pair) -> Result<(), TarProblem>,
    ) -> Result<(), TarProblem> {
        let mut pairs = Pairs::new(old, self.image)?;
        loop {
            let met = pairs.next();
            self.path.clear();
            self.path.extend_from_slice(pairs.path());
            let Some(pair) = met? else {
                return Ok(());
            };
            self.check_cancel()?;
            take(self, &pair)?;
        }
    }

    fn change(&mut self, old: &Image, pair: &Pair, links: &mut Links) -> Result<(), TarProblem> {
        let Some(new) = &pair.new else {
            return self.whiteout();
        };
        if last_name(&self.path).starts_with(MARK) {
            return Err(TarProblem::MarkName);
        }
        let comparison = Comparison {
            old,
            new: self.image,
            cancel: self.cancel,
        };
        let before = pair.old.as_ref();
        let is_same = match before {
            Some(before) => comparison.are_same(before, new)?,
            None => false,
        };
        match new.kind {
            FileKind::Directory => self.changed_directory(new, is_same, pair.is_opaque),
            _ if is_same && !links.has_changed(new)? => Ok(()),
            FileKind::Socket => {
                self.observer.left_out(&ImagePath::from(self.path.clone()));
                self.summary.left_out += 1;
                before.map_or(Ok(()), |_| self.whiteout())
            }
            _ => self.file(new),
        }
    }

    fn changed_directory(
        &mut self,
        new: &Inode,
        is_same: bool,
        is_opaque: bool,
    ) -> Result<(), TarProblem> {
        let directory = self.path.clone();
        if !is_same {
            self.directory(new)?;
        }
        match is_opaque {
            true => self.mark(&joined(&directory, OPAQUE)),
            false => Ok(()),
        }
    }

    /// Marks what the walk has come to as gone.
    fn whiteout(&mut self) -> Result<(), TarProblem> {
        let name = last_name(&self.path);
        let directory = &self.path[..self.path.len() - name.len()];
        let path = [directory, MARK, name].concat();
        self.mark(&path)
    }

    /// Writes an empty file.
    fn mark(&mut self, path: &[u8]) -> Result<(), TarProblem> {
        let entry = Entry {
            kind: Type::Regular,
            path,
            link: &[],
            perm: 0,
            uid: 0,
            gid: 0,
            size: 0,
            sparse_size: None,
            mtime: Timestamp::default(),
            rdev: Rdev::default(),
            xattrs: &[],
        };
        self.summary.entries += 1;
        self.append(entry.blocks())
    }
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        directory => [directory, b"/", name].concat(),
    }
}
