//! The directories: each is read once, each inode is handed to the workers once.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use anteros_core::{FileKind, Sorter};
use anteros_format::dirent::{DirBlock, Dirent};
use anteros_format::inode::Inode;
use anteros_format::{Corrupt, Nid};
use crossbeam_channel::Sender;

use crate::{Error, Map, NidSet, Place};

use super::finding::FindingKind;
use super::header;
use super::inspect::{Inspector, Job};
use super::names::{self, First, Name, Names};
use super::pending::{Directory, Pending};
use super::run::Run;

/// A directory is given up after so many blocks that are unreadable or not in order. As names
/// ascend, what repeats itself for ever is not in order.
pub(super) const BROKEN_BLOCKS_MAX: u32 = 64;
/// Jobs travel in batches, so that handing them over costs little.
const BATCH_JOBS: usize = 32;
/// Batches that may wait.
const BATCHES_MAX: usize = 64;
/// Unreadable inodes that are remembered, so that each is told of once.
const UNREADABLE_MAX: usize = 1 << 14;

/// Walks the tree while workers check what it meets. Returns the names that it met, unless the
/// temporary file failed.
pub(super) fn walk(run: &Run<'_>) -> Option<Names> {
    let names = std::thread::scope(|scope| {
        let (sender, receiver) = crossbeam_channel::bounded::<Vec<Job>>(BATCHES_MAX);
        let work = || {
            let receiver = receiver.clone();
            scope.spawn(move || {
                let mut inspector = Inspector::new(run);
                receiver
                    .iter()
                    .flatten()
                    .for_each(|job| inspector.inspect(&job));
                inspector.finish();
            })
        };
        for _ in 0..run.workers() {
            work();
        }
        Walker::new(run, sender).walk()
    });
    let names = run.scratch(names?.finish())?;
    if !run.is_ended() {
        check_inodes(run, &names);
    }
    Some(names)
}

struct Walker<'r, 'i> {
    run: &'r Run<'i>,
    jobs: Sender<Vec<Job>>,
    batch: Vec<Job>,
    /// The inodes that were met and can be read.
    met: NidSet,
    unreadable: HashSet<Nid>,
    names: Sorter<Name>,
    pending: Pending,
}

/// An inode that was met.
struct Met {
    /// `None` if it cannot be read.
    kind: Option<FileKind>,
    /// Tells whether this was its first name.
    is_new: bool,
}

/// Holds what is gathered while a directory is read.
#[derive(Default)]
struct Gathered {
    previous: Vec<u8>,
    subdirectories: u64,
    dot: bool,
    dot_dot: bool,
    /// Tells whether all entries could be read.
    whole: bool,
}

impl<'r, 'i> Walker<'r, 'i> {
    fn new(run: &'r Run<'i>, jobs: Sender<Vec<Job>>) -> Self {
        Self {
            run,
            jobs,
            batch: Vec::new(),
            met: NidSet::new(run.options.memory_bytes / 8),
            unreadable: HashSet::new(),
            names: Sorter::new(run.options.memory_bytes / 4),
            pending: Pending::default(),
        }
    }

    fn walk(mut self) -> Option<Sorter<Name>> {
        let walked = self.walk_tree();
        self.send_batch();
        self.run.scratch(walked)?;
        Some(self.names)
    }

    fn walk_tree(&mut self) -> io::Result<()> {
        let sb = self.run.image.superblock();
        let root = self.meet(sb.root, sb.root)?.kind;
        if let Some(kind) = root.filter(|&kind| kind != FileKind::Directory) {
            self.run
                .note(Place::Inode(sb.root), FindingKind::RootKind { kind });
        }
        while let Some(dir) = self.pending.pop()? {
            self.read_directory(dir)?;
        }
        for special in [sb.packed, sb.metabox].into_iter().flatten() {
            if !self.met.contains(special)? {
                self.meet(special, special)?;
            }
        }
        Ok(())
    }

    /// Meets an inode, perhaps for the first time.
    fn meet(&mut self, nid: Nid, parent: Nid) -> io::Result<Met> {
        if self.met.contains(nid)? {
            let inode = self.run.image.inode(nid).ok();
            return self.name(nid, parent, inode.as_ref(), false);
        }
        let bytes = anteros_format::inode::EXTENDED_BYTES as u64;
        if self.unreadable.contains(&nid) || !self.run.spend(bytes) {
            return self.name(nid, parent, None, false);
        }
        let Some(inode) = self.run.ok(self.run.image.inode(nid)) else {
            if self.unreadable.len() < UNREADABLE_MAX {
                self.unreadable.insert(nid);
            }
            return self.name(nid, parent, None, true);
        };
        self.met.insert(nid)?;
        let met = self.name(nid, parent, Some(&inode), true)?;
        if inode.kind == FileKind::Directory {
            self.pending.push(Directory { nid, parent })?;
        }
        for job in Job::split(Arc::new(inode)) {
            self.send(job);
        }
        Ok(met)
    }

    /// Notes a name of an inode.
    fn name(
        &mut self,
        nid: Nid,
        parent: Nid,
        inode: Option<&Inode>,
        is_new: bool,
    ) -> io::Result<Met> {
        let kind = inode.map(|inode| inode.kind);
        let nlink = inode.map_or(0, |inode| inode.nlink);
        let first = is_new.then_some(First { kind, nlink });
        self.names.push(Name { nid, parent, first })?;
        Ok(Met { kind, is_new })
    }

    fn send(&mut self, job: Job) {
        self.batch.push(job);
        if self.batch.len() >= BATCH_JOBS {
            self.send_batch();
        }
    }

    fn send_batch(&mut self) {
        // It fails if all workers are gone, which they are only when this sender is.
        let _ = self.jobs.send(std::mem::take(&mut self.batch));
    }

    fn read_directory(&mut self, directory: Directory) -> io::Result<()> {
        // Whatever is wrong with its index, the worker that has its job will tell.
        let Some((dir, map)) = self.open(directory.nid) else {
            return Ok(());
        };
        let dir = &dir;
        let mut gathered = Gathered {
            whole: true,
            ..Gathered::default()
        };
        let mut buf = Vec::new();
        let mut broken = 0;
        for number in 0..self.run.image.dir_blocks(dir) {
            if !self
                .run
                .spend(self.run.image.superblock().block_bytes().into())
            {
                return Ok(());
            }
            let place = Place::Directory {
                nid: dir.nid,
                block: number,
            };
            let block = self.run.image.dir_block(dir, &map, number, &mut buf);
            let is_sound = match self.run.ok(block) {
                Some(block) => self.take_block(directory, place, &block, &mut gathered)?,
                None => {
                    gathered.whole = false;
                    false
                }
            };
            broken += u32::from(!is_sound);
            if broken == BROKEN_BLOCKS_MAX {
                self.run
                    .note(place, FindingKind::DirectoryAbandoned { broken });
                return Ok(());
            }
        }
        self.finish_directory(dir, &gathered);
        Ok(())
    }

    fn open(&self, nid: Nid) -> Option<(Inode, Map)> {
        let dir = self.run.image.inode(nid).ok()?;
        let map = self.run.image.map(&dir).ok()?;
        Some((dir, map))
    }

    /// Takes the entries of a block; `false` if not all of them are as they should be.
    fn take_block(
        &mut self,
        dir: Directory,
        place: Place,
        block: &DirBlock<'_>,
        gathered: &mut Gathered,
    ) -> io::Result<bool> {
        let mut is_sound = true;
        for index in 0..block.len() {
            let entry = block.entry(index).map_err(Error::corrupt(place));
            is_sound &= match self.run.ok(entry) {
                Some(entry) => self.take_entry(dir, place, index, &entry, gathered)?,
                None => {
                    gathered.whole = false;
                    false
                }
            };
        }
        Ok(is_sound)
    }

    /// Takes an entry; `false` if it is not in order.
    fn take_entry(
        &mut self,
        dir: Directory,
        place: Place,
        index: usize,
        entry: &Dirent<'_>,
        gathered: &mut Gathered,
    ) -> io::Result<bool> {
        let ascends = entry.name > gathered.previous.as_slice();
        if !ascends {
            let name = entry.name.escape_ascii().to_string();
            let previous = gathered.previous.escape_ascii().to_string();
            let fault = Corrupt::DirentOrder {
                index,
                name,
                previous,
            };
            self.run.note_error(Error::Corrupt { place, fault });
        }
        gathered.previous.clear();
        gathered.previous.extend_from_slice(entry.name);
        match entry.name {
            b"." => {
                gathered.dot = true;
                self.check_dot(place, ".", entry, dir.nid);
            }
            b".." => {
                gathered.dot_dot = true;
                self.check_dot(place, "..", entry, dir.parent);
            }
            _ => {
                let met = self.meet(entry.nid, dir.nid)?;
                self.check_entry(place, entry, &met);
                let is_dir = met.kind.unwrap_or(entry.kind) == FileKind::Directory;
                gathered.subdirectories += u64::from(is_dir);
            }
        }
        Ok(ascends)
    }

    fn check_dot(&self, place: Place, name: &'static str, entry: &Dirent<'_>, expected: Nid) {
        if entry.nid != expected {
            self.run.note(
                place,
                FindingKind::DotWrong {
                    name,
                    found: entry.nid,
                    expected,
                },
            );
        }
        if entry.kind != FileKind::Directory {
            let (nid, says, is) = (entry.nid, entry.kind, FileKind::Directory);
            self.run.note(
                place,
                FindingKind::EntryKind {
                    name: name.into(),
                    nid,
                    says,
                    is,
                },
            );
        }
    }

    fn check_entry(&self, place: Place, entry: &Dirent<'_>, met: &Met) {
        let Some(is) = met.kind else { return };
        let (nid, says) = (entry.nid, entry.kind);
        let name = || entry.name.escape_ascii().to_string();
        if is != says {
            self.run.note(
                place,
                FindingKind::EntryKind {
                    name: name(),
                    nid,
                    says,
                    is,
                },
            );
        }
        if is == FileKind::Directory && !met.is_new {
            self.run.note(
                place,
                FindingKind::DirectoryNamedTwice { name: name(), nid },
            );
        }
    }

    fn finish_directory(&self, dir: &Inode, gathered: &Gathered) {
        let place = Place::Inode(dir.nid);
        if !gathered.whole {
            // What is missing may lie in what could not be read.
            return;
        }
        if !gathered.dot && !dir.dot_omitted {
            self.run.note(place, FindingKind::DotMissing { name: "." });
        }
        if gathered.dot && dir.dot_omitted {
            self.run.note(place, FindingKind::DotNotOmitted);
        }
        if !gathered.dot_dot {
            self.run.note(place, FindingKind::DotMissing { name: ".." });
        }
        let (recorded, subdirectories) = (dir.nlink, gathered.subdirectories);
        let links = subdirectories + 2;
        // 1 stands for more than the 16 bits of a compact inode can hold.
        let is_uncounted = recorded == 1 && links > u16::MAX.into();
        if u64::from(recorded) != links && !is_uncounted {
            self.run.note(
                place,
                FindingKind::DirectoryLinks {
                    recorded,
                    subdirectories,
                },
            );
        }
    }
}

/// Checks the number of inodes, and of the names of each.
fn check_inodes(run: &Run<'_>, names: &Names) {
    let mut found = 0;
    let inodes = names::inodes(names);
    for inode in inodes.map_while(|inode| run.scratch(inode)) {
        found += 1;
        let First { kind, nlink } = inode.first;
        let counted = kind.is_some_and(|kind| kind != FileKind::Directory);
        let recorded = u64::from(nlink);
        let is_wrong = recorded < inode.names || recorded > inode.names && run.is_all_read();
        if counted && is_wrong && !inode.is_nameless {
            let (recorded, found) = (nlink, inode.names);
            run.note(
                Place::Inode(inode.nid),
                FindingKind::Links { recorded, found },
            );
        }
    }
    header::check_totals(run, found);
}
