//! The directories between the root of a walk and where it stands.
//!
//! Every directory is opened by its name in its parent, and no symbolic link is ever followed, so a
//! walk cannot leave its root. Paths of any length work. The root and the innermost directories are
//! kept open; those between are closed, and opened again by `..` on the way back. What `..` leads to
//! must then be the directory that was left, should somebody move directories about meanwhile.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, Stat, fstat, openat};

use crate::trail::Trail;

/// States how many of the innermost directories stay open.
const OPEN_MAX: usize = 64;

/// Holds what tells a file from every other on the machine: device and inode number.
pub(crate) type Identity = (u64, u64);

/// Returns who a file is.
pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

/// The directories between the root of a walk and where it stands, both included.
pub(crate) struct Descent {
    levels: Vec<Level>,
}

struct Level {
    trail: Arc<Trail>,
    dir: Handle,
}

enum Handle {
    Open(OwnedFd),
    Closed(Identity),
}

impl Descent {
    /// A walk that stands at its root.
    pub(crate) fn new(trail: Arc<Trail>, dir: OwnedFd) -> Self {
        Self {
            levels: vec![Level {
                trail,
                dir: Handle::Open(dir),
            }],
        }
    }

    /// The trail of the innermost directory.
    pub(crate) fn trail(&self) -> &Arc<Trail> {
        &self.innermost().trail
    }

    /// The innermost directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        match &self.innermost().dir {
            Handle::Open(dir) => dir.as_fd(),
            Handle::Closed(_) => unreachable!("the innermost directory is open"),
        }
    }

    fn innermost(&self) -> &Level {
        self.levels
            .last()
            .expect("a walk ends when it leaves its root")
    }

    /// Goes into a directory of the innermost one.
    pub(crate) fn enter(&mut self, trail: Arc<Trail>, dir: OwnedFd) -> io::Result<()> {
        let distant = (self.levels.len() + 1).saturating_sub(OPEN_MAX);
        if distant > 0 {
            self.levels[distant].dir.close()?;
        }
        self.levels.push(Level {
            trail,
            dir: Handle::Open(dir),
        });
        Ok(())
    }

    /// Goes back to the parent, and hands over the directory that was left.
    pub(crate) fn leave(&mut self) -> io::Result<OwnedFd> {
        let dir = match self.levels.pop().map(|level| level.dir) {
            Some(Handle::Open(dir)) => dir,
            _ => unreachable!("the innermost directory is open"),
        };
        if let Some(level) = self.levels.last_mut() {
            level.dir.open_above(&dir)?;
        }
        Ok(dir)
    }

    /// Opens the directory of a trail that begins at the root of this walk.
    pub(crate) fn open(&self, trail: &Arc<Trail>) -> io::Result<OwnedFd> {
        let mut names = Vec::new();
        let mut above = trail;
        let mut dir = loop {
            if let Some(dir) = self.is_open(above) {
                break dir.try_clone_to_owned()?;
            }
            names.push(&above.name);
            above = above.parent.as_ref().ok_or(io::ErrorKind::NotFound)?;
        };
        for name in names.into_iter().rev() {
            dir = open_dir(&dir, name)?;
        }
        Ok(dir)
    }

    /// The trail of these names from the root of this walk on, with as much as can be of where it stands.
    pub(crate) fn trail_to<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Arc<Trail> {
        let mut levels = self.levels.iter().map(|level| &level.trail);
        let mut at = levels.next().expect("the root is there").clone();
        let mut levels = levels.fuse();
        let mut is_on_the_way = true;
        for name in names {
            let here = levels.next().filter(|_| is_on_the_way);
            let here = here.filter(|here| &*here.name == name).cloned();
            is_on_the_way = here.is_some();
            at = here.unwrap_or_else(|| at.child(name));
        }
        at
    }

    fn is_open(&self, trail: &Arc<Trail>) -> Option<BorrowedFd<'_>> {
        let level = self.levels.get(trail.depth)?;
        match &level.dir {
            Handle::Open(dir) if Arc::ptr_eq(&level.trail, trail) => Some(dir.as_fd()),
            _ => None,
        }
    }
}

impl Handle {
    fn close(&mut self) -> io::Result<()> {
        if let Self::Open(dir) = self {
            *self = Self::Closed(identity(&fstat(dir)?));
        }
        Ok(())
    }

    fn open_above(&mut self, below: &OwnedFd) -> io::Result<()> {
        if let Self::Closed(closed) = *self {
            let dir = open_dir(below, b"..")?;
            if identity(&fstat(&dir)?) != closed {
                return Err(io::Error::other("it was moved meanwhile"));
            }
            *self = Self::Open(dir);
        }
        Ok(())
    }
}

/// Opens a directory by its name in another; a symbolic link is an error.
pub(crate) fn open_dir(parent: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Opens the directory of a trail, of which `root` is the root.
pub(crate) fn open_below(root: BorrowedFd<'_>, trail: &Arc<Trail>) -> io::Result<OwnedFd> {
    let trails = std::iter::successors(Some(trail), |trail| trail.parent.as_ref());
    let mut names: Vec<_> = trails.map(|trail| &*trail.name).collect();
    // The name of the root is a path in the image.
    names.pop();
    let mut names = names.into_iter().rev();
    let Some(first) = names.next() else {
        return root.try_clone_to_owned();
    };
    names.try_fold(open_dir(root, first)?, |dir, name| open_dir(&dir, name))
}
