//! Owners, modes, attributes and times of what was created.

use std::os::fd::AsFd;
use std::sync::Arc;

use anteros_core::FileKind;
use anteros_format::inode::Inode;
use rustix::io::Errno;

use super::object::Object;
use super::privileges::{is_privileged_attribute, permitted, withheld};
use super::problem::{ExtractProblem, os};
use super::report::Omitted;
use super::run::{OpenFile, Run};
use crate::Xattr;
use crate::trail::Trail;

impl Run<'_> {
    /// Finishes a file if nobody else has it.
    pub(super) fn let_go(&self, file: Arc<OpenFile>) {
        let Some(file) = Arc::into_inner(file).filter(|_| !self.stopped()) else {
            return;
        };
        let OpenFile {
            fd,
            inode,
            trail,
            inherits_acl,
            parts_failed,
        } = file;
        if parts_failed.into_inner() > 0 {
            return;
        }
        let object = Object::Open(fd.as_fd());
        let dressed = self.dress(object, &trail, &inode, inherits_acl);
        dressed.unwrap_or_else(|problem| self.fail(&trail, problem));
    }

    /// Gives what was created its size, owner, attributes, mode and times.
    ///
    /// The size is missing if the end of the file is a hole.
    /// A change of the owner clears set-id bits and capabilities, so it comes first. Attributes of
    /// the namespace `user` need write permission, so they come before the mode.
    pub(super) fn dress(
        &self,
        object: Object<'_>,
        trail: &Trail,
        inode: &Inode,
        inherits_acl: bool,
    ) -> Result<(), ExtractProblem> {
        let stat = object.stat().map_err(os("ask for its state"))?;
        if inode.kind == FileKind::Regular && stat.st_size as u64 != inode.size {
            object.truncate(inode.size).map_err(os("set its size"))?;
        }
        if self.options.owners && (stat.st_uid, stat.st_gid) != (inode.uid, inode.gid) {
            object.chown(inode).map_err(os("set its owner"))?;
        }
        if inherits_acl {
            object
                .remove_acls()
                .map_err(os("remove its inherited access control list"))?;
        }
        for xattr in self.image.xattrs(inode)? {
            if self.options.xattrs.contains(&xattr.name) {
                self.set_xattr(object, trail, xattr)?;
            }
        }
        let perm = permitted(inode, self.options) & !self.options.umask;
        let differs = stat.st_mode & 0o7777 != u32::from(perm);
        if (differs || inherits_acl) && inode.kind != FileKind::Symlink {
            object.chmod(perm).map_err(os("set its mode"))?;
        }
        if self.options.times {
            object.set_times(inode.mtime).map_err(os("set its times"))?;
        }
        Ok(())
    }

    fn set_xattr(
        &self,
        object: Object<'_>,
        trail: &Trail,
        xattr: Xattr,
    ) -> Result<(), ExtractProblem> {
        if !self.options.owners && is_privileged_attribute(&xattr.name) {
            self.warn(trail, Omitted::Xattr(xattr.name), withheld());
            return Ok(());
        }
        match object.set_xattr(&xattr) {
            Err(error @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)) => {
                self.warn(trail, Omitted::Xattr(xattr.name), error.into());
                Ok(())
            }
            set => set.map_err(os("set an extended attribute")),
        }
    }
}
