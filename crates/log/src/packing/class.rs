//! Class of a file, as which its content counts in the statistics.

use anteros_core::FsResult;

use crate::compress::kind::ContentKind;
use crate::packing::Packer;
use crate::statistics::Class;

impl Packer {
    /// Returns what the content of a file counts as.
    pub(crate) fn class(&mut self, ino: u32) -> FsResult<Class> {
        Ok(self.known_kind(ino)?.into())
    }

    /// Returns what kind of file it is, as far as is known: nothing is read for it.
    pub(super) fn known_kind(&mut self, ino: u32) -> FsResult<ContentKind> {
        let live = self.live(ino)?;
        let start = live.pages.get(&0).map(|page| page.data.clone());
        let is_unknown = live.recognized.is_none() && live.named == ContentKind::Other;
        Ok(match start {
            Some(start) if is_unknown => live.recognize(&start),
            _ => live.recognized.unwrap_or(live.named),
        })
    }
}
