//! Kinds of files, and how the content of each is compressed.

use anteros_core::{FileKind, FsResult};

use crate::compress::kind::ContentKind;
use crate::compress::policy::{Policy, Rules};
use crate::packing::Packer;

impl Packer {
    /// Returns how the content of an inode is compressed when it is written, if it is.
    pub(crate) fn rules(&mut self, ino: u32) -> FsResult<Option<Rules>> {
        let policy = self.store.options().policy;
        if policy == Policy::None || self.live(ino)?.kind() != FileKind::Regular {
            return Ok(None);
        }
        let kind = match self.content_kind(ino)? {
            ContentKind::Other if self.store.options().learns => self.live(ino)?.habits.kind(),
            kind => kind,
        };
        let slots_max = self.store.superblock().slots_max;
        Ok(policy.rules(kind).map(|rules| Rules {
            slots: rules.slots.min(slots_max),
            ..rules
        }))
    }

    /// Returns what kind of file it is: by the name that it was found or made by, or else by its content. It is a
    /// guess: of what cannot be read, nothing is said.
    pub(crate) fn content_kind(&mut self, ino: u32) -> FsResult<ContentKind> {
        let live = self.live(ino)?;
        let named = live.named;
        if let Some(kind) = live.recognized {
            return Ok(kind);
        }
        if named != ContentKind::Other {
            return Ok(named);
        }
        match self.content(ino, 0) {
            Ok(start) => Ok(self.live(ino)?.recognize(&start)),
            Err(_) => Ok(ContentKind::Other),
        }
    }
}
