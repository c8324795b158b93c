//! Files of the new tree that are those of the image which is patched.
//!
//! A file is looked for at the path of its first name. If kind and content are the same there, its data stays; if all
//! properties are, and no other file has taken it, its inode does as well.

use std::collections::HashSet;
use std::iter;

use anteros_core::{FileKind, FsError, Ino, StoredPlace};
use anteros_format::features::Incompat;
use anteros_format::superblock::Superblock;

use super::copied::Copied;
use super::home::Patched;
use crate::base::{Base, Record, Taken};
use crate::look::Look;
use crate::plan::{Intent, Plan};
use crate::ranges::Ranges;
use crate::source::Scanned;
use crate::tree::{Node, NodeId, Tree};
use crate::{Changed, Error, Observer, PatchSummary};

/// Bytes of content that are compared at once.
const BUFFER_BYTES: u64 = 256 << 10;

/// The inodes of the image that is patched, for nodes of the new tree.
pub(super) struct Origin<'a> {
    pub look: &'a Look<'a>,
    pub base: &'a dyn Base,
    pub former: &'a Scanned,
    /// Tells whether the image has streams that several files use, and Linux knows that.
    pub may_share: bool,
    /// For each node the one that was at its path.
    of: Vec<Option<NodeId>>,
}

/// A file of both trees at the same path.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub id: NodeId,
    pub before: NodeId,
}

impl<'a> Origin<'a> {
    pub fn new(look: &'a Look<'a>, former: &'a Scanned, sb: &Superblock) -> Result<Self, Error> {
        let base = former.source.bases().into_iter().flatten().next();
        let base = base.ok_or_else(|| Error::Option("there is no image to patch".into()))?;
        Ok(Self {
            look,
            base,
            former,
            may_share: sb.has_48bit() || sb.incompat.contains(Incompat::FRAGMENTS),
            of: counterparts(look.tree, &former.tree),
        })
    }

    /// The new tree.
    pub const fn look(&self) -> &'a Look<'a> {
        self.look
    }

    /// The tree of the image.
    pub const fn former(&self) -> &'a Tree {
        &self.former.tree
    }

    /// The node that was at the path of one.
    pub fn before(&self, id: NodeId) -> Option<NodeId> {
        self.of[id as usize]
    }

    /// The inode of a node of the image, and what its content takes.
    pub fn found(&self, before: NodeId) -> Result<(Record, Taken), Error> {
        let ino = self.ino(before);
        let found = self.base.record(ino);
        let found = found.and_then(|record| Ok((record, self.base.taken(ino)?)));
        found.map_err(|cause| self.fault_before(before, cause))
    }

    /// Reads bytes of the image, which belong to a node.
    pub fn read_at(&self, before: NodeId, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let read = self.base.read(at, bytes);
        read.map_err(|cause| self.fault_before(before, cause))
    }

    fn fault_before(&self, before: NodeId, cause: FsError) -> Error {
        let Scanned { source, tree, .. } = self.former;
        Error::FileSystem {
            path: source.full_path(tree, before),
            action: "read the inode",
            cause,
        }
    }

    /// Reads the inode that a node had.
    fn read(&self, id: NodeId) -> Result<Copied, Error> {
        let before = self.of[id as usize].expect("it was there");
        let read = Copied::read(self.base, self.ino(before));
        read.map_err(|cause| self.fault(id, cause))
    }

    pub fn ino(&self, before: NodeId) -> Ino {
        let answers = self.former.source.answers(before);
        answers.expect("an image answers").1
    }

    pub fn fault(&self, id: NodeId, cause: FsError) -> Error {
        Error::FileSystem {
            path: self.look.source.full_path(self.look.tree, id),
            action: "read what the image has there",
            cause,
        }
    }

    /// The pairs of files at the same path, and whether kind and content are the same.
    fn pairs(&self, plan: &Plan) -> Result<Vec<(Pair, bool)>, Error> {
        let mut pairs = Vec::new();
        for id in self.look.tree.ids() {
            let Some(before) = self.of[id as usize] else {
                continue;
            };
            pairs.push(Pair { id, before });
        }
        let same = self.look.all(&pairs, |_, pair| self.is_same(*pair, plan))?;
        Ok(pairs.into_iter().zip(same).collect())
    }

    /// Returns whether kind and content are the same.
    fn is_same(&self, pair: Pair, plan: &Plan) -> Result<bool, Error> {
        let Pair { id, before } = pair;
        let (tree, old) = (self.look.tree, &self.former.tree);
        let (node, was) = (tree.node(id), old.node(before));
        if node.kind != was.kind {
            return Ok(false);
        }
        Ok(match node.kind {
            FileKind::Regular if node.size != was.size => false,
            FileKind::Regular => self.has_same_bytes(pair, plan)?,
            FileKind::Symlink => tree.name(node.target) == old.name(was.target),
            FileKind::CharDevice | FileKind::BlockDevice => node.rdev == was.rdev,
            FileKind::Directory | FileKind::Fifo | FileKind::Socket => true,
        })
    }

    fn has_same_bytes(&self, pair: Pair, plan: &Plan) -> Result<bool, Error> {
        let Pair { id, before } = pair;
        let look = self.look;
        // A layer on the image is the image itself.
        if look.source.bases().first().is_some_and(Option::is_some)
            && look.source.answers(id) == Some((0, self.ino(before)))
        {
            return Ok(true);
        }
        let new = look.source.open_file(look.tree, id)?;
        let old = self.former.source.open_file(&self.former.tree, before)?;
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let mut is_same = true;
        let parts = self.with_data(pair, plan)?;
        let pieces = parts.iter().flat_map(|part| {
            let starts = part.clone().step_by(BUFFER_BYTES as usize);
            starts.map(move |start| start..part.end.min(start + BUFFER_BYTES))
        });
        for piece in pieces {
            look.check_cancelled()?;
            let len = (piece.end - piece.start) as usize;
            one.resize(len, 0);
            other.resize(len, 0);
            new.read(piece.start, &mut one)?;
            old.read(piece.start, &mut other)?;
            is_same = one == other;
            if !is_same {
                break;
            }
        }
        new.finish()?;
        old.finish()?;
        Ok(is_same)
    }

    /// The parts of a file of which either form has data. Of a hole in both, nothing is read.
    pub(super) fn with_data(
        &self,
        Pair { id, before }: Pair,
        plan: &Plan,
    ) -> Result<Ranges, Error> {
        let size = self.look.tree.node(id).size;
        let whole = iter::once(0..size).collect();
        let Intent::Chunks(file) = &plan.node(id).intent else {
            return Ok(whole);
        };
        let stored = self.base.stored(Some(self.ino(before)), 0..size);
        let stored = stored.map_err(|cause| self.fault(id, cause))?;
        if stored.is_empty() {
            return Ok(whole);
        }
        let old = stored.iter().filter(|run| run.place != StoredPlace::Hole);
        let old = old.map(|run| run.offset..run.end().min(size));
        let new = file.runs.iter().map(|&(start, end)| start..end);
        Ok(old.chain(new).collect())
    }

    fn has_same_attributes(&self, Pair { id, before }: Pair) -> bool {
        let (tree, old) = (self.look.tree, &self.former.tree);
        let new = tree.xattrs.of(&tree.node(id).xattrs);
        new.eq(old.xattrs.of(&old.node(before).xattrs))
    }

    /// Returns whether all that an inode tells of a file besides its content is the same. The image is asked for the number of
    /// names itself: in a tree, names are counted.
    fn has_same_properties(&self, pair: Pair, copied: &Copied) -> bool {
        let of = |node: &Node| (node.perm, node.uid, node.gid, node.mtime);
        let (node, was) = (
            self.look.tree.node(pair.id),
            self.former.tree.node(pair.before),
        );
        let is_directory = node.kind == FileKind::Directory;
        of(node) == of(was)
            && (is_directory || node.nlink == copied.nlink)
            && self.has_same_attributes(pair)
    }

    /// Takes over the attributes of an inode as they lie there, ids of shared ones included.
    fn take_region(&self, id: NodeId, copied: &Copied, plan: &mut Plan) -> Result<(), Error> {
        let body = match copied.extended {
            true => anteros_format::inode::EXTENDED_BYTES,
            false => anteros_format::inode::COMPACT_BYTES,
        } as u64;
        let mut region = vec![0; (copied.head_bytes() - body) as usize];
        let read = self.base.read(copied.record.address + body, &mut region);
        read.map_err(|cause| self.fault(id, cause))?;
        plan.nodes[id as usize].icount = copied.icount;
        plan.regions.insert(id, region.into());
        Ok(())
    }

    /// Takes over the attributes of the root, if they stay.
    pub fn keep_attributes_of_root(&self, plan: &mut Plan) -> Result<(), Error> {
        let copied = self.read(0)?;
        match copied.icount > 0 && self.has_same_attributes(Pair { id: 0, before: 0 }) {
            true => self.take_region(0, &copied, plan),
            false => Ok(()),
        }
    }

    /// Has an inode be copied with other properties; answers whether that can be.
    fn copy(&self, id: NodeId, copied: Copied, plan: &mut Plan) -> bool {
        let node = &mut plan.nodes[id as usize];
        let nlink = self.look.tree.node(id).nlink;
        let extended = node.extended || copied.needs_extended(nlink);
        let Some(icount) = copied.icount_for(node.icount) else {
            return false;
        };
        if copied.is_hole() && extended != copied.extended {
            return false;
        }
        node.extended = extended;
        node.icount = icount;
        node.intent = Intent::Copied(Box::new(copied));
        true
    }
}

/// Decides what stays and what is copied. Without a home none of the inodes stays, and attributes are written anew.
pub(super) fn find(
    origin: &Origin<'_>,
    home: Option<&Patched>,
    plan: &mut Plan,
    observer: &dyn Observer,
) -> Result<PatchSummary, Error> {
    let Origin { look, former, .. } = *origin;
    let mut changes: Vec<Option<Changed>> = origin
        .of
        .iter()
        .map(|before| match before {
            Some(_) => Some(Changed::Replaced),
            None => Some(Changed::Added),
        })
        .collect();
    let mut summary = PatchSummary::default();
    let mut taken = HashSet::new();
    let mut changed = Vec::new();
    for (pair, is_same) in origin.pairs(plan)? {
        look.check_cancelled()?;
        let id = pair.id;
        let is_directory = look.tree.node(id).kind == FileKind::Directory;
        let copied = origin.read(id)?;
        let has_same_properties = is_same && origin.has_same_properties(pair, &copied);
        if is_same {
            changes[id as usize] = (!has_same_properties).then_some(Changed::Edited);
        }
        if has_same_properties && !is_directory && taken.insert(pair.before) {
            if home.is_some_and(|home| home.stays(copied.record.address)) {
                plan.nodes[id as usize].intent = Intent::Stays(copied.record.address);
                summary.stay += 1;
                continue;
            }
            if copied.icount > 0 && home.is_some() {
                origin.take_region(id, &copied, plan)?;
            }
            origin.copy(id, copied, plan);
            summary.copied += 1;
            continue;
        }
        if copied.icount > 0 && home.is_some() && origin.has_same_attributes(pair) {
            origin.take_region(id, &copied, plan)?;
        }
        if is_same && !is_directory {
            changes[id as usize] = Some(Changed::Edited);
            origin.copy(id, copied, plan);
        }
        // An image over an older one has the room of files that change for other content: nothing of them may stay.
        if !is_same && look.options.renew.is_none() && origin.has_content(pair) {
            changed.push(pair);
        }
    }
    let remains = look.all(&changed, |_, pair| origin.remains(*pair, plan))?;
    for (pair, remains) in changed.into_iter().zip(remains) {
        summary.kept_bytes += remains.bytes(look.tree.node(pair.id).size);
        remains.put(pair.id, plan);
    }
    for (id, change) in look.tree.ids().zip(&changes) {
        let Some(how) = change else { continue };
        *count(&mut summary, *how) += 1;
        observer.changed(&look.tree.path(id), *how);
    }
    tell_names(
        (look.tree, &origin.of),
        &former.tree,
        &mut summary,
        observer,
    );
    Ok(summary)
}

fn count(summary: &mut PatchSummary, how: Changed) -> &mut u64 {
    match how {
        Changed::Added => &mut summary.added,
        Changed::Replaced => &mut summary.replaced,
        Changed::Edited => &mut summary.edited,
        Changed::Removed => &mut summary.removed,
    }
}

/// For each node of a tree the one of another that has the path of its first name.
fn counterparts(tree: &Tree, old: &Tree) -> Vec<Option<NodeId>> {
    let mut of = vec![None; tree.nodes.len()];
    of[0] = Some(0);
    for id in tree.ids().skip(1) {
        let node = tree.node(id);
        // Directories come before what is in them.
        let parent = of[node.parent as usize];
        let parent = parent.filter(|before| old.node(*before).kind == FileKind::Directory);
        of[id as usize] = parent.and_then(|before| old.entry(before, tree.name(node.name)));
    }
    of
}

/// Tells of names that are gone, and of further names that are new. What is in a directory that is gone is not told.
fn tell_names(
    (tree, before_of): (&Tree, &[Option<NodeId>]),
    old: &Tree,
    summary: &mut PatchSummary,
    observer: &dyn Observer,
) {
    let of = counterparts(old, tree);
    for before in old
        .ids()
        .filter(|id| old.node(*id).kind == FileKind::Directory)
    {
        let Some(id) = of[before as usize].filter(|id| tree.node(*id).kind == FileKind::Directory)
        else {
            continue;
        };
        for entry in old.entries_of(before) {
            let name = old.name(entry.name);
            if tree.entry(id, name).is_some() {
                continue;
            }
            let directory = old.path(before);
            let path = crate::options::join(&directory, name);
            summary.removed += 1;
            observer.changed(&path, Changed::Removed);
        }
    }
    // Further names of a file are no nodes of their own.
    for id in tree
        .ids()
        .filter(|id| tree.node(*id).kind == FileKind::Directory)
    {
        let before = before_of[id as usize];
        let before = before.filter(|before| old.node(*before).kind == FileKind::Directory);
        for entry in tree.entries_of(id) {
            let name = tree.name(entry.name);
            let is_first =
                tree.node(entry.node).parent == id && tree.name(tree.node(entry.node).name) == name;
            if is_first || before.is_some_and(|before| old.entry(before, name).is_some()) {
                continue;
            }
            let path = crate::options::join(&tree.path(id), name);
            summary.added += 1;
            observer.changed(&path, Changed::Added);
        }
    }
}
