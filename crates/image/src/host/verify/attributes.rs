//! Comparing what files of all kinds have: kind, mode, owner, time, extended attributes.

use std::collections::HashMap;

use anteros_core::{FileKind, Timestamp};
use anteros_format::inode::Inode;
use rustix::fs::Stat;

use super::difference::{ImageText, Mismatch};
use super::run::Run;
use crate::Xattr;
use crate::host::xattrs::XattrScope;
use crate::trail::Trail;

/// Names the extended attributes in messages about what cannot be read.
const ATTRIBUTES: &str = "attributes";

impl Run<'_> {
    /// Compares what all kinds have, and says whether there is reason to compare the content.
    pub(super) fn compare_attributes(
        &self,
        trail: &Trail,
        inode: &Inode,
        stat: &Stat,
        xattrs: &dyn Fn() -> rustix::io::Result<Vec<Xattr>>,
    ) -> bool {
        self.count(|report| report.names += 1);
        self.observer.compared_name();
        let differ = |what| self.differ(trail, what);
        let kind = FileKind::from_mode(stat.st_mode);
        if kind != Some(inode.kind) {
            let source = kind.map_or("file of unknown kind", FileKind::name);
            differ(Mismatch::Kind {
                image: inode.kind.name(),
                source,
            });
            return false;
        }
        let mode = (stat.st_mode & 0o7777) as u16;
        if self.options.permissions && mode != inode.perm && inode.kind != FileKind::Symlink {
            differ(Mismatch::Mode {
                image: inode.perm,
                source: mode,
            });
        }
        let image = (inode.uid, inode.gid);
        let expected = (self.options.owner)((stat.st_uid, stat.st_gid)).unwrap_or(image);
        if expected != image {
            differ(Mismatch::Owner { image, expected });
        }
        let source = Timestamp {
            secs: stat.st_mtime,
            nanos: stat.st_mtime_nsec as u32,
        };
        let expected = (self.options.time)(source).unwrap_or(inode.mtime);
        if expected != inode.mtime {
            let pair = |time: Timestamp| (time.secs, time.nanos);
            differ(Mismatch::Time {
                image: pair(inode.mtime),
                expected: pair(expected),
            });
        }
        self.compare_xattrs(trail, inode, xattrs);
        true
    }

    fn compare_xattrs(
        &self,
        trail: &Trail,
        inode: &Inode,
        in_source: &dyn Fn() -> rustix::io::Result<Vec<Xattr>>,
    ) {
        let scope = self.options.xattrs;
        if scope == XattrScope::None {
            return;
        }
        let sorted = |xattrs: Vec<Xattr>| -> HashMap<Vec<u8>, Vec<u8>> {
            let all = xattrs
                .into_iter()
                .filter(|xattr| scope.contains(&xattr.name));
            all.map(|Xattr { name, value }| (name, value)).collect()
        };
        let image = self.told(trail, ATTRIBUTES, self.image.xattrs(inode));
        let source = self.told(trail, ATTRIBUTES, in_source());
        let (Some(image), Some(mut source)) = (image.map(sorted), source.map(sorted)) else {
            return;
        };
        for (name, value) in image {
            let other = source.remove(&name);
            let name = ImageText(name);
            match other {
                None => self.differ(trail, Mismatch::XattrOnlyInImage { name }),
                Some(other) if other != value => {
                    self.differ(trail, Mismatch::XattrValue { name });
                }
                Some(_) => {}
            }
        }
        for name in source.into_keys().map(ImageText) {
            self.differ(trail, Mismatch::XattrOnlyInSource { name });
        }
    }
}
