//! Requests that make, link and list names.

use anteros_core::Rdev;
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::super::args::{Args, put};
use super::{Answer, Writing};
use crate::dirpage::DirPage;
use crate::proto::{EntryOut, MkdirIn, MknodIn, OpenOut, ReadIn, ReleaseIn, unpack_rdev};

impl Writing<'_> {
    pub(super) fn mknod(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let mknod: MknodIn = args.take()?;
        let (major, minor) = unpack_rdev(mknod.rdev);
        let new = self.new_name(args.name()?, mknod.mode, mknod.umask);
        let attr = self.ask(self.fs.make(&new, Rdev { major, minor }))?;
        self.entry(&attr, out)
    }

    pub(super) fn mkdir(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        const DIRECTORY: u32 = 0o040_000;
        let mkdir: MkdirIn = args.take()?;
        let mode = DIRECTORY | mkdir.mode & 0o7777;
        let new = self.new_name(args.name()?, mode, mkdir.umask);
        let attr = self.ask(self.fs.make(&new, Rdev::default()))?;
        self.entry(&attr, out)
    }

    pub(super) fn symlink(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let (name, target) = (args.name()?, args.name()?);
        let new = self.new_name(name, 0o120_777, 0);
        let attr = self.ask(self.fs.symlink(&new, target))?;
        self.entry(&attr, out)
    }

    pub(super) fn link(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let old: u64 = args.take()?;
        let old = self.dispatcher.nodes.ino(old).ok_or(Errno::INVAL)?;
        let attr = self.ask(self.fs.link(old, self.ino, args.name()?))?;
        self.entry(&attr, out)
    }

    pub(super) fn rename(&self, newdir: u64, flags: u32, args: &mut Args<'_>) -> Answer {
        let newdir = self.dispatcher.nodes.ino(newdir).ok_or(Errno::INVAL)?;
        let (old, new) = (args.name()?, args.name()?);
        let caller = self.caller(None);
        let renamed = self
            .fs
            .rename_as((self.ino, old), (newdir, new), flags, caller);
        self.done(renamed)
    }

    pub(super) fn opendir(&self, out: &mut [u8]) -> Answer {
        let reply = OpenOut {
            fh: self.ask(self.fs.open_dir(self.ino))?,
            open_flags: 0,
            backing_id: 0,
        };
        put(out, &reply)
    }

    pub(super) fn readdir(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let read: ReadIn = args.take()?;
        let buf = out.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        let page = self.list(&read, DirPage::new(buf))?;
        Ok(page.len())
    }

    /// Each entry that the kernel is told the inode of counts as looked up. That is done when the page is
    /// complete, so there is none that has to be forgotten for want of room. An entry that is not there any
    /// more, or cannot be looked up at once, is listed without attributes.
    ///
    /// So is the beginning of a directory, of which the kernel always asks for them, unless the file system
    /// gives them there as well: who lists names alone would pay for it. Once something in the directory was
    /// looked up, the kernel asks for more of them.
    pub(super) fn readdirplus(&self, args: &mut Args<'_>, out: &mut [u8]) -> Answer {
        let read: ReadIn = args.take()?;
        let buf = out.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        let mut page = self.list(&read, DirPage::plus(buf))?;
        if read.offset == 0 && !self.fs.lists_first_attributes() {
            return Ok(page.len());
        }
        page.fill_entries(|listed| {
            let attr = self.fs.lookup_listed(self.ino, listed.name);
            attr.and_then(|attr| self.known(&attr))
                .unwrap_or_else(EntryOut::new_zeroed)
        });
        Ok(page.len())
    }

    fn list<'p>(&self, read: &ReadIn, mut page: DirPage<'p>) -> Result<DirPage<'p>, Errno> {
        let dir = self.file(read.fh);
        self.dispatcher.fill(self.ino, &mut page, |visit| {
            self.fs.read_dir(dir, read.offset, visit)
        })?;
        Ok(page)
    }

    pub(super) fn releasedir(&self, args: &mut Args<'_>) -> Answer {
        let release: ReleaseIn = args.take()?;
        self.fs.release_dir(self.file(release.fh));
        Ok(0)
    }
}
