//! Writes: content waits in memory, in the inode, in pages, or beside them for an atomic write.

use anteros_core::{FsError, FsResult};

use crate::files::Files;
use crate::files::content::SIZE_MAX;

impl Files {
    /// Writes to a file, as far as there is room, and says how many bytes.
    pub(crate) fn write(&mut self, ino: u32, offset: u64, data: &[u8]) -> FsResult<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let room = SIZE_MAX.checked_sub(offset).filter(|&room| room > 0);
        let room = room.ok_or(FsError::TooLarge)?;
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let end = offset + data.len() as u64;
        if self.atomic_writes.contains_key(&ino) {
            return self.write_atomic(ino, offset, data);
        }
        let written = if self.stays_inline(ino, end)? {
            let grown = self.live(ino)?.inode().inline.len().max(end as usize);
            self.count_block(ino, grown)?;
            let inline = &mut self.live(ino)?.inode_mut().inline;
            let range = offset as usize..end as usize;
            inline.resize(inline.len().max(range.end), 0);
            inline[range].copy_from_slice(data);
            data.len()
        } else {
            self.leave_inline(ino)?;
            self.write_blocks(ino, offset, data)?
        };
        self.note_written(ino, offset + written as u64)?;
        self.store.statistics_mut().user_bytes += written as u64;
        Ok(written)
    }

    /// As [`write`](Self::write), but the time of modification stays: whoever writes tells that by itself.
    pub(crate) fn write_keeping_mtime(
        &mut self,
        ino: u32,
        offset: u64,
        data: &[u8],
    ) -> FsResult<usize> {
        let mtime = self.live(ino)?.inode().attributes.mtime;
        let written = self.write(ino, offset, data)?;
        self.live(ino)?.attributes().mtime = mtime;
        Ok(written)
    }
}
