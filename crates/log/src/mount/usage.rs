//! Use of the device by all files, directory by directory: others use the log meanwhile.

use std::collections::HashSet;
use std::ops::ControlFlow;

use anteros_core::{FileKind, FsResult};

use crate::compress::kind::ContentKind;
use crate::files::dir::kind_of;
use crate::files::usage::Usage;
use crate::mount::log::Log;
use crate::mount::sweep::tolerate;

/// Names of a directory that are looked at with the lock held.
const NAMES_AT_ONCE: usize = 1000;

/// A file of a directory: its inode and its name.
type Named = (u32, Vec<u8>);

impl Log {
    /// Counts what the content of all files takes that have a name, by their class; what cannot be read is a warning. Nothing is
    /// changed. `goes_on` is asked before each inode, and if it says no, what was counted until then is returned.
    ///
    /// # Errors
    ///
    /// When the table that says where inodes lie cannot be read.
    pub fn usage(&self, mut goes_on: impl FnMut() -> bool) -> FsResult<Usage> {
        let mut usage = Usage::default();
        let mut linked = HashSet::new();
        let table_blocks = self.lock().nodes.nat().table_blocks();
        for table_block in 0..table_blocks {
            let inos = self.lock().nodes.inos_in(table_block)?;
            for ino in inos {
                if !goes_on() {
                    return Ok(usage);
                }
                if let Err(error) = self.count_directory(ino, &mut linked, &mut usage) {
                    tolerate(error, &mut usage.warnings, &format!("inode {ino}"))?;
                }
            }
        }
        Ok(usage)
    }

    /// Counts the files of a directory, those of several names once.
    fn count_directory(
        &self,
        ino: u32,
        linked: &mut HashSet<u32>,
        usage: &mut Usage,
    ) -> FsResult<()> {
        if self.lock().live(ino)?.kind() != FileKind::Directory {
            return Ok(());
        }
        let mut from = Some(0);
        while let Some(at) = from {
            let (names, next) = self.names(ino, at)?;
            for (ino, name) in names {
                if let Err(error) = self.count_named(ino, &name, linked, usage) {
                    tolerate(error, &mut usage.warnings, &format!("inode {ino}"))?;
                }
            }
            from = next;
        }
        Ok(())
    }

    /// Some files of a directory from a position on, and the position of the next ones, if there may be any.
    fn names(&self, directory: u32, from: u64) -> FsResult<(Vec<Named>, Option<u64>)> {
        let mut names = Vec::new();
        let mut next = None;
        let mut state = self.lock();
        state.list(directory, from, &mut |entry, position| {
            if kind_of(entry.kind) == FileKind::Regular {
                names.push((entry.ino, entry.name.to_vec()));
            }
            if names.len() < NAMES_AT_ONCE {
                return ControlFlow::Continue(());
            }
            next = Some(position);
            ControlFlow::Break(())
        })?;
        state.shrink();
        Ok((names, next))
    }

    fn count_named(
        &self,
        ino: u32,
        name: &[u8],
        linked: &mut HashSet<u32>,
        usage: &mut Usage,
    ) -> FsResult<()> {
        let mut state = self.lock();
        let live = state.live(ino)?;
        if live.inode().attributes.nlink > 1 && !linked.insert(ino) {
            return Ok(());
        }
        if live.named == ContentKind::Other {
            state.called(ino, name)?;
        }
        let kind = state.content_kind(ino)?;
        drop(state);
        self.count_file(ino, kind, usage)
    }

    /// Counts a file of a known kind.
    pub(super) fn count_file(
        &self,
        ino: u32,
        kind: ContentKind,
        usage: &mut Usage,
    ) -> FsResult<()> {
        let mut from = Some(0);
        while let Some(at) = from {
            let mut state = self.lock();
            from = state.count_part(ino, kind, at, usage)?;
            state.shrink();
        }
        Ok(())
    }
}
