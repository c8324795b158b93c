//! The names in all directories: those in the inodes, and those in blocks, level by level of the trees that the blocks
//! make, each level in the order of the device.

use std::ops::{ControlFlow, Range};

use anteros_core::{FileKind, FsError, FsResult, Sorted};

use super::finding::{Fault, Place};
use super::records::{About, Child, DirBlock, Edge, WantedDir};
use super::{Sink, Walk};
use crate::files::dir::kind_of;
use crate::layout::checksum::Checksum;
use crate::layout::dir::{self, Entry, Index};
use crate::layout::summary::Owner;
use crate::layout::{Block, Corrupt};

impl<S: Sink> Walk<'_, S> {
    /// Looks at all blocks of directories that their roots lead to.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub(in crate::offline) fn read_directories(&mut self) -> FsResult<()> {
        let dir_blocks = self.sorted(|walk| &mut walk.dir_blocks)?;
        loop {
            let indexed = self.sorted(|walk| &mut walk.indexed)?;
            if indexed.is_empty() {
                return Ok(());
            }
            let located = self.find_blocks(&indexed, &dir_blocks)?;
            self.sweep(&located, &mut |walk, wanted, block| {
                walk.visit_block(wanted, block)
            })?;
        }
    }

    /// Sorts blocks of directories by their places instead of their directories.
    fn find_blocks(
        &mut self,
        indexed: &Sorted<WantedDir>,
        dir_blocks: &Sorted<DirBlock>,
    ) -> FsResult<Sorted<WantedDir>> {
        let mut located = self.sorter();
        let mut there = dir_blocks.iter().peekable();
        let mut last = None;
        for wanted in indexed.iter() {
            let wanted = wanted?;
            let key = (wanted.ino, wanted.lblk);
            if last.replace(key) == Some(key) {
                let fault = Corrupt::DirEntry {
                    at: 0,
                    rule: "a leaf begins with what comes before: an index names its block again",
                    found: wanted.lblk.into(),
                };
                self.note_unlisted(&wanted, fault)?;
                continue;
            }
            let is_before = |found: &DirBlock| (found.ino, found.lblk) < key;
            while let Some(passed) = there.next_if(|at| at.as_ref().map_or(true, is_before)) {
                passed?;
            }
            match there.peek() {
                Some(Ok(at)) if (at.ino, at.lblk) == key => located.push(WantedDir {
                    place: at.place,
                    checksum: at.checksum,
                    ..wanted
                })?,
                _ => {
                    let fault = Corrupt::Node {
                        nid: wanted.ino,
                        rule: "a block of the directory is missing",
                        found: wanted.lblk.into(),
                    };
                    self.note_unlisted(&wanted, fault)?;
                }
            }
        }
        Ok(located.finish()?)
    }

    fn note_unlisted(&mut self, wanted: &WantedDir, fault: impl Into<FsError>) -> FsResult<()> {
        let (block, error) = (wanted.place, fault.into());
        self.find_in(wanted.ino, Fault::Unlisted { block, error });
        self.mark(wanted.ino, About::UNLISTED)
    }

    fn visit_block(&mut self, wanted: &WantedDir, block: FsResult<&Block>) -> FsResult<()> {
        let block = match wanted.place {
            0 => self
                .state
                .dir_block(wanted.ino, wanted.lblk)
                .map(|block| Box::new(*block)),
            _ => block.and_then(|block| {
                let (ino, lblk) = (wanted.ino, wanted.lblk);
                let checksum = Checksum::from_bits(wanted.checksum);
                checksum.check(block, Owner { ino, lblk }, wanted.place)?;
                dir::check(block, wanted.lblk)?;
                Ok(Box::new(*block))
            }),
        };
        let block = match block {
            Ok(block) => block,
            Err(error) => return self.note_unlisted(wanted, error),
        };
        let level = dir::level(&block);
        if level >= wanted.level.into() {
            let fault = Corrupt::DirEntry {
                at: 0,
                rule: "an index names a block that is not one level below",
                found: level.into(),
            };
            return self.note_unlisted(wanted, fault);
        }
        let range = wanted.low..wanted.high;
        match level {
            0 => match dir::leaf_entries(&block) {
                Ok(entries) => self.visit_names(wanted.ino, entries, range),
                Err(fault) => self.note_unlisted(wanted, fault),
            },
            _ => match Index::parse(&block) {
                Ok(index) => self.visit_index(wanted, &index),
                Err(fault) => self.note_unlisted(wanted, fault),
            },
        }
    }

    fn visit_index(&mut self, wanted: &WantedDir, index: &Index) -> FsResult<()> {
        let first = index.items.first().map_or(0, |(hash, _)| *hash);
        let last = index.items.last().map_or(0, |(hash, _)| *hash);
        if first > wanted.low || last >= wanted.high {
            let fault = Corrupt::DirEntry {
                at: 0,
                rule: "the index begins or ends elsewhere than what names it says",
                found: first,
            };
            return self.note_unlisted(wanted, fault);
        }
        let ends = index.items.iter().skip(1).map(|(hash, _)| *hash);
        let ends = ends.chain([wanted.high]);
        for (&(hash, lblk), high) in index.items.iter().zip(ends) {
            self.indexed.push(WantedDir {
                place: 0,
                checksum: 0,
                ino: wanted.ino,
                lblk,
                level: index.level as u8,
                low: hash.max(wanted.low),
                high,
            })?;
        }
        Ok(())
    }

    /// Looks at names, whose hashes are to lie in a range.
    pub(super) fn visit_names<'a>(
        &mut self,
        parent: u32,
        entries: impl Iterator<Item = Result<Entry<'a>, Corrupt>>,
        hashes: Range<u64>,
    ) -> FsResult<()> {
        let seed = self.state.store.superblock().hash_seed;
        let (mut hash, mut position) = (0, 0);
        let mut about = About::of(parent);
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(fault) => {
                    let error = fault.into();
                    self.find_in(parent, Fault::Unlisted { block: 0, error });
                    about.marks |= About::UNLISTED;
                    break;
                }
            };
            position = match entry.hash == hash {
                true => position + 1,
                false => entry.hash + 1,
            };
            hash = entry.hash;
            if hash != dir::hash(entry.name, &seed) || !hashes.contains(&hash) {
                let place = Place::Name(parent, entry.name.to_vec());
                self.sink.find(place, Fault::Misplaced);
            }
            about.names += 1;
            about.below += u64::from(kind_of(entry.kind) == FileKind::Directory);
            let (ino, kind) = (entry.ino, entry.kind);
            self.note_name(Edge {
                ino,
                parent,
                position,
                kind,
            })?;
        }
        Ok(self.abouts.push(about)?)
    }

    /// Notes a name of a directory.
    pub(in crate::offline) fn note_name(&mut self, edge: Edge) -> FsResult<()> {
        let Edge { parent, ino, .. } = edge;
        self.edges.push(edge)?;
        Ok(self.children.push(Child { parent, ino })?)
    }

    /// The name at a position of a directory, if it can be read.
    pub(in crate::offline) fn name_at(&mut self, parent: u32, position: u64) -> Option<Vec<u8>> {
        let mut found = None;
        let mut visit = |entry: &Entry<'_>, at: u64| {
            if at == position {
                found = Some(entry.name.to_vec());
            }
            ControlFlow::Break(())
        };
        let before = position.checked_sub(1)?;
        let listed = self.state.list(parent, before, &mut visit);
        listed.ok().and(found)
    }
}
