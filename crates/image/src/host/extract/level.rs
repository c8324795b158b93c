//! A directory of the image, page by page.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use anteros_format::inode::Inode;

use crate::{DirCursor, Image, OwnedDirent, Result};

/// Entries of a directory that are read at a time.
const PAGE_ENTRIES: usize = 4096;

/// A directory on the way.
pub(super) struct Level {
    pub(super) inode: Inode,
    page: std::vec::IntoIter<OwnedDirent>,
    /// Tells where the next page begins.
    next_page: Option<DirCursor>,
    /// Tells whether what is created here gets an access control list from the directory.
    pub(super) hands_down_acl: bool,
}

impl Level {
    pub(super) fn new(inode: Inode, hands_down_acl: bool) -> Self {
        let page = Vec::new().into_iter();
        Self {
            inode,
            page,
            next_page: Some(DirCursor::default()),
            hands_down_acl,
        }
    }

    /// The next entry other than `.` and `..`.
    pub(super) fn next(&mut self, image: &Image) -> Option<Result<OwnedDirent>> {
        loop {
            match self.page.next() {
                Some(entry) if matches!(&*entry.name, b"." | b"..") => {}
                Some(entry) => return Some(Ok(entry)),
                None => {
                    let page = self.next_page.take()?;
                    if let Err(error) = self.turn_to(image, page) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// Reads a page; in front of an error, what there is of it.
    fn turn_to(&mut self, image: &Image, from: DirCursor) -> Result<()> {
        let mut page = Vec::new();
        let read = image.visit_dir(&self.inode, from, |entry, next| {
            page.push(OwnedDirent {
                nid: entry.nid,
                kind: entry.kind,
                name: entry.name.to_vec(),
            });
            if page.len() < PAGE_ENTRIES {
                return ControlFlow::Continue(());
            }
            self.next_page = Some(next);
            ControlFlow::Break(())
        });
        self.page = page.into_iter();
        read
    }
}

pub(super) fn hands_down_acl(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fgetxattr_query(dir, "system.posix_acl_default").is_ok_and(|len| len > 0)
}
