//! Use of the device by the content of files: how much there is of each class, what it takes, and why some of it lies plain.

use std::ops::{AddAssign, Range};

use anteros_core::FsResult;

use crate::compress::kind::ContentKind;
use crate::files::Files;
use crate::files::content::blocks;
use crate::layout::pointer::Pointer;
use crate::nodes::place::NodePlace;
use crate::statistics::Class;
use crate::store::medium::BLOCK;

/// Logical blocks of a file that are counted at once: 16 MiB.
const COUNTED_AT_ONCE: u32 = 1 << 12;

/// Reason why content lies as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// It was looked at in the background, and gains too little.
    Futile,
    /// It was not looked at in the background since its file changed.
    New,
    /// The policy has files of its kind compressed as they are written, or not at all.
    Left,
}

impl Plain {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Futile, Self::New, Self::Left];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Futile => "futile",
            Self::New => "new",
            Self::Left => "left",
        }
    }
}

/// Content of the files of one class, as it lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassUse {
    /// Files.
    pub files: u64,
    /// Bytes of content. Holes have none.
    pub bytes: u64,
    /// Bytes of the device that they take, with the inodes of the files: of a packed block, the share of their slots.
    pub stored_bytes: u64,
    /// Bytes of content that lie plain, for each reason in the order of [`Plain::ALL`].
    pub plain_bytes: [u64; Plain::ALL.len()],
}

impl ClassUse {
    /// Bytes of content that lie plain for this reason.
    pub fn plain(&self, why: Plain) -> u64 {
        self.plain_bytes[why as usize]
    }

    /// Bytes of the device for each byte of content; `None` if there is none.
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.stored_bytes as f64 / self.bytes as f64)
    }
}

impl AddAssign for ClassUse {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.stored_bytes += other.stored_bytes;
        for (plain, more) in self.plain_bytes.iter_mut().zip(other.plain_bytes) {
            *plain += more;
        }
    }
}

/// Content of files by their class, as it lies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    classes: [ClassUse; Class::ALL.len()],
    /// Warnings about files and directories that could not be read.
    pub warnings: Vec<String>,
}

impl Usage {
    /// Returns what there is of a class.
    pub fn class(&self, class: Class) -> &ClassUse {
        &self.classes[class as usize]
    }

    fn class_mut(&mut self, class: Class) -> &mut ClassUse {
        &mut self.classes[class as usize]
    }
}

/// Content of a part of a file, as it lies.
#[derive(Default)]
pub(crate) struct PartUse {
    pub(crate) bytes: u64,
    pub(crate) stored_bytes: u64,
    plain_bytes: u64,
}

impl Files {
    /// Counts a part of a file of a known kind, from a logical block on, and returns where the next part begins, if there is one.
    pub(crate) fn count_part(
        &mut self,
        ino: u32,
        kind: ContentKind,
        from: u32,
        usage: &mut Usage,
    ) -> FsResult<Option<u32>> {
        let attributes = self.live(ino)?.inode().attributes;
        let end = blocks(&(0..attributes.size)).end;
        let until = end.min(from.saturating_add(COUNTED_AT_ONCE));
        let used = match attributes.is_inline {
            true => PartUse {
                bytes: attributes.size,
                ..PartUse::default()
            },
            false => self.use_of(ino, from..until)?,
        };
        let why = match attributes.is_settled {
            _ if !self.store.options().policy.compacts(kind) => Plain::Left,
            true => Plain::Futile,
            false => Plain::New,
        };
        let inode = self.inode_bytes(ino)?;
        let class = usage.class_mut(kind.into());
        if from == 0 {
            class.files += 1;
            class.stored_bytes += inode;
        }
        class.bytes += used.bytes;
        class.stored_bytes += used.stored_bytes;
        class.plain_bytes[why as usize] += used.plain_bytes;
        Ok((until < end && !attributes.is_inline).then_some(until))
    }

    /// Bytes of the device that an inode takes.
    fn inode_bytes(&mut self, ino: u32) -> FsResult<u64> {
        Ok(match self.place_of(ino)? {
            NodePlace::None => 0,
            NodePlace::Block(_) => BLOCK,
            NodePlace::Slot(block, _) => self.share(block),
        })
    }

    /// Returns how the content of some logical blocks lies. What has no place yet will take its own blocks, as far as is known.
    pub(crate) fn use_of(&mut self, ino: u32, range: Range<u32>) -> FsResult<PartUse> {
        let mut before = None;
        let mut pages = Vec::new();
        // A chunk counts where it begins, which may be in front.
        let widened = range.start.saturating_sub(1)..range.end;
        self.for_pointers(ino, widened, |lblk, pointer| {
            match lblk < range.start {
                true => before = Some(pointer),
                false => pages.push((lblk, pointer)),
            };
        })?;
        pages.retain(|(_, pointer)| pointer.block().is_some());
        let stored_bytes = self.stored_bytes(before, pages.iter().map(|(_, pointer)| *pointer));
        let live = self.live(ino)?;
        let size = live.inode().attributes.size;
        let bytes_of = |lblk: u32| size.saturating_sub(u64::from(lblk) * BLOCK).min(BLOCK);
        let mut used = PartUse {
            stored_bytes,
            ..PartUse::default()
        };
        for (lblk, pointer) in &pages {
            used.bytes += bytes_of(*lblk);
            used.plain_bytes += match pointer {
                Pointer::Plain(..) => bytes_of(*lblk),
                _ => 0,
            };
        }
        let is_placed = |lblk: &u32| pages.binary_search_by_key(lblk, |(lblk, _)| *lblk).is_ok();
        let waiting = live.pages.range(range).filter(|(_, page)| page.dirty);
        for lblk in waiting
            .map(|(&lblk, _)| lblk)
            .filter(|lblk| !is_placed(lblk))
        {
            used.bytes += bytes_of(lblk);
            used.plain_bytes += bytes_of(lblk);
            used.stored_bytes += BLOCK;
        }
        Ok(used)
    }

    /// Bytes of the device that the logical blocks of a file take that lie there, each chunk once; `before` is the place of the
    /// one in front of them.
    pub(crate) fn stored_bytes(
        &self,
        before: Option<Pointer>,
        pointers: impl Iterator<Item = Pointer>,
    ) -> u64 {
        let mut chunk = before.and_then(Pointer::chunk);
        let mut bytes = 0;
        for pointer in pointers {
            bytes += match pointer {
                Pointer::Hole | Pointer::Preallocated => 0,
                Pointer::Plain(..) => BLOCK,
                Pointer::Packed(_) if chunk == pointer.chunk() => 0,
                Pointer::Packed(at) => at.blocks().map(|block| self.share(block)).sum(),
            };
            chunk = pointer.chunk().or(chunk);
        }
        bytes
    }

    /// The share of a slot in a packed block, by the number of its valid slots.
    fn share(&self, block: u64) -> u64 {
        let slots = self.store.bst().valid(block).count_ones();
        BLOCK / u64::from(slots.max(1))
    }
}
