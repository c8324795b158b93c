//! The log's own record: what a mounted log keeps for the next mount. It says itself when, and what.

use anteros_core::{FsError, FsResult};

use crate::files::own_record::{OWN_RECORD_BYTES_MAX, own_record_blocks};
use crate::mount::log::Log;

impl Log {
    /// Returns the bytes of the last [`keep_record`](Self::keep_record) that a checkpoint has, or that were kept since the
    /// mount; `None` if there are none.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or the checkpoint names for them what is none of the log's own: the mount has warned of that.
    pub fn kept_record(&self) -> FsResult<Option<Vec<u8>>> {
        let mut state = self.lock();
        let Some(ino) = state.own_record()? else {
            return Ok(None);
        };
        let mut bytes = vec![0; state.size(ino)? as usize];
        let read = self.read_content(state, ino, 0, &mut bytes)?.len;
        bytes.truncate(read);
        Ok(Some(bytes))
    }

    /// Keeps bytes from mount to mount, in place of those that were kept before. They are durable with the next checkpoint; a
    /// crash before that leaves the old ones. Nothing but [`kept_record`](Self::kept_record) shows them.
    ///
    /// # Errors
    ///
    /// When these are more than 16 MiB, there is no room for them beside the old ones, which stay, or the device fails.
    pub fn keep_record(&self, bytes: &[u8]) -> FsResult<()> {
        if bytes.len() > OWN_RECORD_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        self.work(|state| {
            state.make_room(own_record_blocks(bytes.len()) as usize)?;
            Self::try_change(state, |state| state.keep_own_record(bytes))
        })
    }

    /// Keeps nothing any more. That takes no room.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn drop_record(&self) -> FsResult<()> {
        self.work(|state| Self::try_change(state, |state| state.replace_own_record(0)))
    }
}
