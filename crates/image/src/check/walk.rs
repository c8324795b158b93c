//! The directories: each is read once, each inode is handed to the workers once.

use std::collections::HashMap;
use std::sync::Arc;

use anteros_core::FileKind;
use anteros_format::dirent::{DirBlock, Dirent};
use anteros_format::inode::Inode;
use anteros_format::{Corrupt, Nid};
use crossbeam_channel::Sender;

use crate::{Error, Place};

use super::inspect::{Inspector, Job};
use super::space::Part;
use super::{FindingKind, Run};

/// What the walk knows of every inode it met.
pub(super) type Tree = HashMap<Nid, Known>;

/// What is known of an inode.
#[derive(Debug)]
pub(super) struct Known {
    /// The directory in which its first name was found; of the root and nameless inodes, itself.
    pub(super) parent: Nid,
    /// `None` if it cannot be read.
    kind: Option<FileKind>,
    nlink: u32,
    names: u64,
}

/// A directory is given up after so many blocks that are unreadable or not in order. As names
/// ascend, what repeats itself for ever is not in order.
pub(super) const BROKEN_BLOCKS_MAX: u32 = 64;
/// Jobs travel in batches, so that handing them over costs little.
const BATCH_JOBS: usize = 32;
/// Batches that may wait.
const BATCHES_MAX: usize = 64;

/// Walks the tree while workers check what it meets; their parts are added to `parts`.
pub(super) fn walk(run: &Run<'_>, parts: &mut Vec<Part>) -> Tree {
    std::thread::scope(|scope| {
        let (sender, receiver) = crossbeam_channel::bounded::<Vec<Job>>(BATCHES_MAX);
        let work = || {
            let receiver = receiver.clone();
            scope.spawn(move || {
                let mut inspector = Inspector::new(run);
                receiver
                    .iter()
                    .flatten()
                    .for_each(|job| inspector.inspect(&job));
                inspector.into_parts()
            })
        };
        let workers: Vec<_> = (0..run.workers()).map(|_| work()).collect();
        let tree = Walker::new(run, sender).walk();
        for worker in workers {
            parts.extend(worker.join().expect("a worker does not panic"));
        }
        tree
    })
}

struct Walker<'r, 'i> {
    run: &'r Run<'i>,
    jobs: Sender<Vec<Job>>,
    batch: Vec<Job>,
    tree: Tree,
    pending: Vec<Arc<Inode>>,
}

/// What is gathered while a directory is read.
#[derive(Default)]
struct Gathered {
    previous: Vec<u8>,
    subdirectories: u64,
    dot: bool,
    dot_dot: bool,
    /// Whether all entries could be read.
    whole: bool,
}

impl<'r, 'i> Walker<'r, 'i> {
    fn new(run: &'r Run<'i>, jobs: Sender<Vec<Job>>) -> Self {
        Self {
            run,
            jobs,
            batch: Vec::new(),
            tree: Tree::new(),
            pending: Vec::new(),
        }
    }

    fn walk(mut self) -> Tree {
        let sb = self.run.image.superblock();
        let root = self.meet(sb.root, sb.root);
        if let Some(kind) = root.filter(|&kind| kind != FileKind::Directory) {
            self.run
                .note(Place::Inode(sb.root), FindingKind::RootKind { kind });
        }
        while let Some(dir) = self.pending.pop() {
            self.read_directory(&dir);
        }
        if !self.run.is_ended() {
            self.check_links();
        }
        for special in [sb.packed, sb.metabox].into_iter().flatten() {
            if !self.tree.contains_key(&special) {
                self.meet(special, special);
            }
        }
        self.send_batch();
        self.tree
    }

    /// Meets an inode, perhaps for the first time; `None` if it cannot be read.
    fn meet(&mut self, nid: Nid, parent: Nid) -> Option<FileKind> {
        if let Some(known) = self.tree.get_mut(&nid) {
            known.names += 1;
            return known.kind;
        }
        if !self.run.spend(anteros_format::inode::EXTENDED_BYTES as u64) {
            return None;
        }
        let inode = self.run.ok(self.run.image.inode(nid)).map(Arc::new);
        let kind = inode.as_ref().map(|inode| inode.kind);
        let nlink = inode.as_ref().map_or(0, |inode| inode.nlink);
        self.tree.insert(
            nid,
            Known {
                parent,
                kind,
                nlink,
                names: 1,
            },
        );
        if let Some(inode) = inode {
            if inode.kind == FileKind::Directory {
                self.pending.push(inode.clone());
            }
            for job in Job::split(inode) {
                self.send(job);
            }
        }
        kind
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

    fn read_directory(&mut self, dir: &Inode) {
        // Whatever is wrong with its index, the worker that has its job will tell.
        let Ok(map) = self.run.image.map(dir) else {
            return;
        };
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
                return;
            }
            let place = Place::Directory {
                nid: dir.nid,
                block: number,
            };
            let block = self.run.image.dir_block(dir, &map, number, &mut buf);
            let is_sound = match self.run.ok(block) {
                Some(block) => self.take_block(dir, place, &block, &mut gathered),
                None => {
                    gathered.whole = false;
                    false
                }
            };
            broken += u32::from(!is_sound);
            if broken == BROKEN_BLOCKS_MAX {
                self.run
                    .note(place, FindingKind::DirectoryAbandoned { broken });
                return;
            }
        }
        self.finish_directory(dir, &gathered);
    }

    /// Takes the entries of a block; `false` if not all of them are as they should be.
    fn take_block(
        &mut self,
        dir: &Inode,
        place: Place,
        block: &DirBlock<'_>,
        gathered: &mut Gathered,
    ) -> bool {
        let mut is_sound = true;
        for index in 0..block.len() {
            let entry = block.entry(index).map_err(Error::corrupt(place));
            is_sound &= match self.run.ok(entry) {
                Some(entry) => self.take_entry(dir, place, index, &entry, gathered),
                None => {
                    gathered.whole = false;
                    false
                }
            };
        }
        is_sound
    }

    /// Takes an entry; `false` if it is not in order.
    fn take_entry(
        &mut self,
        dir: &Inode,
        place: Place,
        index: usize,
        entry: &Dirent<'_>,
        gathered: &mut Gathered,
    ) -> bool {
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
                let parent = self
                    .tree
                    .get(&dir.nid)
                    .map_or(dir.nid, |known| known.parent);
                self.check_dot(place, "..", entry, parent);
            }
            _ => {
                let is_new = !self.tree.contains_key(&entry.nid);
                let kind = self.meet(entry.nid, dir.nid);
                self.check_entry(place, entry, kind, is_new);
                let is_dir = kind.unwrap_or(entry.kind) == FileKind::Directory;
                gathered.subdirectories += u64::from(is_dir);
            }
        }
        ascends
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

    fn check_entry(&self, place: Place, entry: &Dirent<'_>, kind: Option<FileKind>, is_new: bool) {
        let Some(is) = kind else { return };
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
        if is == FileKind::Directory && !is_new {
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

    fn check_links(&self) {
        for (&nid, known) in &self.tree {
            let counted = known.kind.is_some_and(|kind| kind != FileKind::Directory);
            if counted && u64::from(known.nlink) != known.names {
                let (recorded, found) = (known.nlink, known.names);
                self.run
                    .note(Place::Inode(nid), FindingKind::Links { recorded, found });
            }
        }
    }
}
