//! Names of a directory, in the image and in the source.

use std::cmp::Ordering;
use std::os::fd::BorrowedFd;

use anteros_format::Nid;
use anteros_format::inode::Inode;
use rustix::fs::Dir;

use super::report::VerifyProblem;
use super::run::Run;
use crate::trail::Trail;

/// A name of one side, or of both.
pub(super) struct Name {
    pub(super) name: Vec<u8>,
    pub(super) in_image: Option<Nid>,
    pub(super) in_source: bool,
}

impl Run<'_> {
    /// Returns the names of a directory on both sides. `source` is the one of the source.
    pub(super) fn names(
        &self,
        trail: &Trail,
        inode: &Inode,
        source: BorrowedFd<'_>,
    ) -> Result<Vec<Name>, VerifyProblem> {
        let mut in_image = self.image.read_dir(inode)?;
        in_image.retain(|entry| !matches!(&*entry.name, b"." | b".."));
        let in_source = self.source_names(trail, source)?;
        let mut names = Vec::with_capacity(in_image.len().max(in_source.len()));
        let mut in_source = in_source.into_iter().peekable();
        for entry in in_image {
            while let Some(name) = in_source.next_if(|name| name.cmp(&entry.name) == Ordering::Less)
            {
                names.push(Name {
                    name,
                    in_image: None,
                    in_source: true,
                });
            }
            let both = in_source.next_if_eq(&entry.name).is_some();
            names.push(Name {
                name: entry.name,
                in_image: Some(entry.nid),
                in_source: both,
            });
        }
        names.extend(in_source.map(|name| Name {
            name,
            in_image: None,
            in_source: true,
        }));
        Ok(names)
    }

    fn source_names(
        &self,
        trail: &Trail,
        source: BorrowedFd<'_>,
    ) -> Result<Vec<Vec<u8>>, VerifyProblem> {
        let mut names = Vec::new();
        let mut path = trail.path().as_bytes().to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        let above = path.len();
        for entry in Dir::read_from(source)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            path.truncate(above);
            path.extend_from_slice(name);
            if !matches!(name, b"." | b"..") && !(self.options.excluded)(&path) {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}
