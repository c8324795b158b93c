//! Small files that a reader of a tree will ask for next, stored in the cache of the kernel before that; see [`FilesAhead`].

use std::sync::atomic::Ordering;

use anteros_core::{Attr, FileKind, FilesAhead, FsResult, Ino};

use crate::mount::log::Log;

impl Log {
    /// Notes a file of a listing that tells attributes.
    pub(super) fn note_listed(&self, attr: &Attr) {
        if attr.kind == FileKind::Regular && self.prefetches.load(Ordering::Relaxed) {
            self.files_ahead.list(attr.ino, attr.size);
        }
    }

    /// Has the files read ahead that will be asked for behind one whose beginning was.
    pub(super) fn go_ahead(&self, ino: Ino) {
        if !self.prefetches.load(Ordering::Relaxed) {
            return;
        }
        let files = self.files_ahead.read(ino);
        if !files.is_empty() {
            let files = files.iter().flat_map(|ino| u32::try_from(ino.0));
            self.ahead.note_files(files.collect());
        }
    }

    /// Gives away files as a whole, but those that somebody has asked for meanwhile.
    pub(super) fn push_files(&self, files: &[u32], store: &impl Fn(Ino, u64, &[u8]) -> bool) {
        let mut content = Vec::new();
        for &number in files {
            let ino = Ino(number.into());
            if !self.files_ahead.is_wanted(ino) {
                continue;
            }
            let push = || match self.read_ahead_whole(number, &mut content) {
                Ok(true) => Some(store(ino, 0, &content)),
                // Errors are for whoever asks.
                _ => None,
            };
            if let Some(is_taken) = self.while_unchanged(number, push).flatten() {
                self.files_ahead.taken(ino, is_taken);
                let bytes = if is_taken { content.len() as u64 } else { 0 };
                self.ahead.pushed_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Reads a small file; returns whether that is all of it, and no record of launches wants to see who reads it.
    fn read_ahead_whole(&self, ino: u32, content: &mut Vec<u8>) -> FsResult<bool> {
        let mut state = self.lock();
        let size = state.size(ino)?;
        let is_small = (1..=FilesAhead::FILE_BYTES_MAX).contains(&size);
        if !is_small || self.is_recorded(state.content_kind(ino)?) {
            return Ok(false);
        }
        content.resize(size as usize, 0);
        let read = self.read_content(state, ino, 0, content)?.len;
        Ok(read == content.len())
    }
}
