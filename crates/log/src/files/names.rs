//! Names and inodes: making, linking, renaming, removing.
//!
//! Every function refuses before it changes anything, so that each operation is there whole or not at all, in
//! memory as in the records of the next group.

use anteros_core::{Caller, FileKind, FsError, FsResult, Rdev};

use crate::compress::kind;
use crate::files::Files;
use crate::files::dir::{Named, type_of};
use crate::layout::ROOT;
use crate::layout::node::{Attributes, INLINE_BYTES, Inode, NodeKind};
use crate::nodes::loaded::CachedInode;

/// Set-group-id: what is made in such a directory belongs to its group.
pub(crate) const SETGID: u16 = 0o2000;
/// The most names of a file, and the most directories in one.
const LINKS_MAX: u32 = 1 << 20;
/// Blocks that an operation on names may need at most: of two directories that split, and their nodes.
pub(super) const BLOCKS_OF_AN_OPERATION: u64 = 16;
/// Numbers of nodes that the making of an inode may need at most: its own, its attributes', the directory's.
const NODES_OF_A_BIRTH: u32 = 8;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

/// Holds what is to be made.
pub(crate) struct Birth<'a> {
    pub(crate) kind: FileKind,
    pub(crate) perm: u16,
    pub(crate) caller: Caller,
    pub(crate) rdev: Rdev,
    /// Of a symbolic link.
    pub(crate) target: &'a [u8],
    /// Extended attributes that it inherits.
    pub(crate) xattrs: Vec<(&'static [u8], Vec<u8>)>,
}

impl Files {
    /// A directory that names can be added to.
    fn parent(&mut self, parent: u32) -> FsResult<&mut CachedInode> {
        let live = self.live(parent)?;
        if live.kind() != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if live.inode().attributes.nlink == 0 {
            return Err(FsError::NotFound);
        }
        Ok(live)
    }

    /// Returns what a name refers to.
    pub(crate) fn named(&mut self, parent: u32, name: &[u8]) -> FsResult<Named> {
        if name.len() > crate::files::dir::NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        self.find(parent, name)?.ok_or(FsError::NotFound)
    }

    fn check_free(&mut self, parent: u32, name: &[u8]) -> FsResult<()> {
        Self::check_name(name)?;
        self.parent(parent)?;
        if self.find(parent, name)?.is_some() {
            return Err(FsError::Exists);
        }
        self.check_space()
    }

    fn check_space(&self) -> FsResult<()> {
        self.store.space().check(BLOCKS_OF_AN_OPERATION)
    }

    pub(super) fn check_numbers(&self) -> FsResult<()> {
        match self.nodes.nat().available() < NODES_OF_A_BIRTH {
            true => Err(FsError::NoSpace),
            false => Ok(()),
        }
    }

    /// Someone has come to an inode by this name, which says something of its content.
    pub(crate) fn called(&mut self, ino: u32, name: &[u8]) -> FsResult<()> {
        self.live(ino)?.named = kind::ContentKind::of(name, b"");
        Ok(())
    }

    /// A directory was changed.
    fn touch(&mut self, ino: u32) -> FsResult<()> {
        let now = self.store.now();
        let attributes = self.live(ino)?.attributes();
        attributes.mtime = now;
        attributes.ctime = now;
        self.unrecorded.touch(ino);
        Ok(())
    }

    fn touch_inode(&mut self, ino: u32) -> FsResult<()> {
        let now = self.store.now();
        self.live(ino)?.attributes().ctime = now;
        self.unrecorded.touch(ino);
        Ok(())
    }

    /// Counts links. That makes another time of change: whoever counts [touches](Self::touch_inode) the inode as well.
    fn add_links(&mut self, ino: u32, change: i32) -> FsResult<()> {
        let nlink = &mut self.live(ino)?.attributes().nlink;
        *nlink = nlink.saturating_add_signed(change);
        Ok(())
    }

    /// Makes an inode without a name.
    pub(super) fn give_birth(&mut self, parent: u32, birth: &Birth<'_>) -> FsResult<u32> {
        let above = self.parent(parent)?.inode().attributes;
        let ino = self.new_node(0, NodeKind::Inode, 0)?;
        let begun = self.begin_inode(ino, &above, parent, birth);
        self.unless_stillborn(ino, begun)?;
        Ok(ino)
    }

    /// Gives back an inode that was made and gets no name, if what it was made for could not be done.
    pub(super) fn unless_stillborn(&mut self, ino: u32, done: FsResult<()>) -> FsResult<()> {
        if done.is_err() && self.loaded(ino).is_some() {
            self.live(ino)?.attributes().nlink = 0;
            self.orphans.insert(ino);
            self.evict_orphan_now(ino)?;
            // No record has ever named it.
            self.unrecorded.forget_inode(ino);
        }
        done
    }

    fn begin_inode(
        &mut self,
        ino: u32,
        above: &Attributes,
        parent: u32,
        birth: &Birth<'_>,
    ) -> FsResult<()> {
        let now = self.store.now();
        let inherits = above.perm & SETGID != 0;
        let is_directory = birth.kind == FileKind::Directory;
        let attributes = Attributes {
            kind: birth.kind,
            perm: birth.perm | if inherits && is_directory { SETGID } else { 0 },
            is_inline: true,
            is_launched: false,
            is_settled: false,
            is_own: false,
            nlink: 0,
            uid: birth.caller.uid,
            gid: if inherits {
                above.gid
            } else {
                birth.caller.gid
            },
            size: birth.target.len() as u64,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            generation: self.nodes.entry(ino)?.generation,
            parent,
            rdev: birth.rdev,
        };
        let inline = if birth.target.len() <= INLINE_BYTES {
            birth.target.to_vec()
        } else {
            Vec::new()
        };
        let is_long = inline.len() < birth.target.len();
        let inode = Inode {
            inline,
            ..Inode::empty(attributes)
        };
        self.insert(ino, inode);
        if is_long {
            self.live(ino)?.attributes().size = 0;
            self.write(ino, 0, birth.target)?;
        }
        for (name, value) in &birth.xattrs {
            self.set_xattr(ino, name, value)?;
        }
        self.unrecorded.touch(ino);
        if !birth.target.is_empty() {
            self.unrecorded.want(ino);
            self.live(ino)?.content_changed = true;
        }
        Ok(())
    }

    /// Makes something and names it.
    pub(crate) fn make(&mut self, parent: u32, name: &[u8], birth: &Birth<'_>) -> FsResult<u32> {
        self.check_free(parent, name)?;
        self.check_numbers()?;
        let is_directory = birth.kind == FileKind::Directory;
        if is_directory && self.live(parent)?.inode().attributes.nlink >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        let ino = self.give_birth(parent, birth)?;
        self.live(ino)?.attributes().nlink = if is_directory { 2 } else { 1 };
        let kind = type_of(birth.kind);
        let added = self.add_name(parent, name, Named { ino, kind });
        self.unless_stillborn(ino, added)?;
        if is_directory {
            self.add_links(parent, 1)?;
        }
        self.called(ino, name)?;
        self.touch(parent)?;
        Ok(ino)
    }

    /// Makes something that has no name yet.
    pub(crate) fn make_unnamed(&mut self, parent: u32, birth: &Birth<'_>) -> FsResult<u32> {
        self.check_space()?;
        self.check_numbers()?;
        let ino = self.give_birth(parent, birth)?;
        self.orphans.insert(ino);
        Ok(ino)
    }

    /// Gives an inode another name.
    pub(crate) fn link(&mut self, ino: u32, parent: u32, name: &[u8]) -> FsResult<()> {
        self.check_free(parent, name)?;
        let attributes = self.live(ino)?.inode().attributes;
        if attributes.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        if attributes.nlink >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        self.add_name(
            parent,
            name,
            Named {
                ino,
                kind: type_of(attributes.kind),
            },
        )?;
        if attributes.nlink == 0 {
            self.orphans.remove(&ino);
            self.unrecorded.want(ino);
        }
        self.add_links(ino, 1)?;
        self.live(ino)?.attributes().parent = parent;
        self.touch_inode(ino)?;
        self.touch(parent)
    }

    /// Removes the name of something that is no directory.
    pub(crate) fn unlink(&mut self, parent: u32, name: &[u8]) -> FsResult<()> {
        self.parent(parent)?;
        let named = self.named(parent, name)?;
        if self.live(named.ino)?.kind() == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        self.remove_name(parent, name)?;
        self.touch(parent)?;
        self.lose_name(named.ino)
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&mut self, parent: u32, name: &[u8]) -> FsResult<()> {
        self.parent(parent)?;
        let named = self.named(parent, name)?;
        self.check_empty(named.ino)?;
        self.remove_name(parent, name)?;
        self.add_links(parent, -1)?;
        self.touch(parent)?;
        self.lose_name(named.ino)
    }

    fn check_empty(&mut self, ino: u32) -> FsResult<()> {
        let live = self.live(ino)?;
        if live.kind() != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if live.inode().entries > 0 {
            return Err(FsError::NotEmpty);
        }
        Ok(())
    }

    /// An inode has a name less; without any it goes as soon as nobody holds it.
    fn lose_name(&mut self, ino: u32) -> FsResult<()> {
        let is_directory = self.live(ino)?.kind() == FileKind::Directory;
        let nlink = &mut self.live(ino)?.attributes().nlink;
        *nlink = if is_directory {
            0
        } else {
            nlink.saturating_sub(1)
        };
        let is_gone = *nlink == 0;
        self.touch_inode(ino)?;
        if is_gone {
            self.orphans.insert(ino);
            self.try_evict_orphan(ino)?;
        }
        Ok(())
    }

    /// Renames as `renameat2(2)` does; what is to be left behind takes the old name.
    pub(crate) fn rename(
        &mut self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        flags: u32,
        left: Option<&Birth<'_>>,
    ) -> FsResult<()> {
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0
            || flags == RENAME_NOREPLACE | RENAME_EXCHANGE
            || flags == RENAME_EXCHANGE && left.is_some()
        {
            return Err(FsError::Invalid);
        }
        Self::check_name(from.1)?;
        Self::check_name(to.1)?;
        self.parent(from.0)?;
        self.parent(to.0)?;
        let moved = self.named(from.0, from.1)?;
        let target = self.find(to.0, to.1)?;
        self.check_not_below(moved.ino, to.0)?;
        self.check_space()?;
        if flags == RENAME_EXCHANGE {
            let target = target.ok_or(FsError::NotFound)?;
            self.check_not_below(target.ino, from.0)?;
            return self.exchange(from, moved, to, target);
        }
        if let Some(target) = target {
            if flags == RENAME_NOREPLACE {
                return Err(FsError::Exists);
            }
            if target.ino == moved.ino {
                return Ok(());
            }
            self.check_replaceable(moved.ino, target.ino)?;
        }
        match left {
            Some(birth) => self.move_name_leaving(from, to, moved, target, birth),
            None => self.move_name(from, to, moved, target, None),
        }
    }

    /// As [`move_name`](Self::move_name); something new takes the old name.
    fn move_name_leaving(
        &mut self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        moved: Named,
        target: Option<Named>,
        birth: &Birth<'_>,
    ) -> FsResult<()> {
        self.check_numbers()?;
        let ino = self.give_birth(from.0, birth)?;
        self.live(ino)?.attributes().nlink = 1;
        let kind = type_of(birth.kind);
        let moved = self.move_name(from, to, moved, target, Some(Named { ino, kind }));
        self.unless_stillborn(ino, moved)
    }

    fn check_replaceable(&mut self, moved: u32, target: u32) -> FsResult<()> {
        let moved_kind = self.live(moved)?.kind();
        match (moved_kind, self.live(target)?.kind()) {
            (FileKind::Directory, FileKind::Directory) => self.check_empty(target),
            (FileKind::Directory, _) => Err(FsError::NotDirectory),
            (_, FileKind::Directory) => Err(FsError::IsDirectory),
            _ => Ok(()),
        }
    }

    /// Refuses to put a directory below itself.
    fn check_not_below(&mut self, moved: u32, parent: u32) -> FsResult<()> {
        if self.live(moved)?.kind() != FileKind::Directory {
            return Ok(());
        }
        let mut at = parent;
        for _ in 0..=self.nodes.inode_count() {
            if at == moved {
                return Err(FsError::Invalid);
            }
            if at == ROOT {
                return Ok(());
            }
            at = self.live(at)?.inode().attributes.parent;
        }
        Err(FsError::Corrupt(format!(
            "inode {parent}: the directories above it form a circle"
        )))
    }

    fn move_name(
        &mut self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        moved: Named,
        target: Option<Named>,
        left: Option<Named>,
    ) -> FsResult<()> {
        let is_directory = self.live(moved.ino)?.kind() == FileKind::Directory;
        match left {
            Some(left) => self.replace_name(from.0, from.1, left)?,
            None => self.remove_name(from.0, from.1)?,
        }
        match target {
            Some(_) => self.replace_name(to.0, to.1, moved)?,
            None => self.add_name(to.0, to.1, moved)?,
        }
        if let Some(target) = target {
            if is_directory {
                self.add_links(to.0, -1)?;
            }
            // Whoever replaces a file in this way wants the old content or the new one, and nothing between.
            self.unrecorded.want(moved.ino);
            self.lose_name(target.ino)?;
        }
        if is_directory && from.0 != to.0 {
            self.add_links(from.0, -1)?;
            self.add_links(to.0, 1)?;
        }
        self.live(moved.ino)?.attributes().parent = to.0;
        self.called(moved.ino, to.1)?;
        self.touch_inode(moved.ino)?;
        self.touch(from.0)?;
        self.touch(to.0)
    }

    fn exchange(
        &mut self,
        from: (u32, &[u8]),
        moved: Named,
        to: (u32, &[u8]),
        target: Named,
    ) -> FsResult<()> {
        self.replace_name(from.0, from.1, target)?;
        self.replace_name(to.0, to.1, moved)?;
        if from.0 != to.0 {
            for (ino, old, new) in [(moved.ino, from.0, to.0), (target.ino, to.0, from.0)] {
                if self.live(ino)?.kind() == FileKind::Directory {
                    self.add_links(old, -1)?;
                    self.add_links(new, 1)?;
                }
                self.live(ino)?.attributes().parent = new;
            }
        }
        self.touch_inode(moved.ino)?;
        self.touch_inode(target.ino)?;
        self.touch(from.0)?;
        self.touch(to.0)
    }
}

#[cfg(test)]
impl Birth<'_> {
    pub(crate) fn of_empty_file() -> Self {
        Self {
            kind: FileKind::Regular,
            perm: 0o644,
            caller: Caller::default(),
            rdev: Rdev::default(),
            target: b"",
            xattrs: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anteros_core::{MemoryDevice, WritableDevice};

    use super::*;
    use crate::durable::recover;
    use crate::options::Options;
    use crate::{Shape, mkfs, system_clock};

    /// Tests that an inode goes for which no name could be added: nothing else would ever find it.
    #[test]
    fn an_inode_that_gets_no_name_is_given_back() {
        let device: Arc<dyn WritableDevice> = Arc::new(MemoryDevice::new(vec![0; 32 << 20]));
        let options = Options::new(system_clock);
        mkfs(&device, &Shape::default(), Caller::default(), &options).unwrap();
        let mut state = recover::open(device, options).unwrap().0;
        let before = (state.nodes.inode_count(), state.store.space().used());
        let birth = Birth::of_empty_file();
        let ino = state.give_birth(ROOT, &birth).unwrap();
        assert_eq!(state.nodes.inode_count(), before.0 + 1);
        let refused = state.unless_stillborn(ino, Err(FsError::NoSpace));
        assert!(matches!(refused, Err(FsError::NoSpace)));
        assert_eq!(
            (state.nodes.inode_count(), state.store.space().used()),
            before
        );
        assert!(state.loaded(ino).is_none());
        assert!(state.files.unrecorded.dropped().is_empty() && state.files.orphans.is_empty());
    }
}
