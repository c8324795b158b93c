//! Deals with how each inode is stored, as far as that can be told before its content has been seen.

use std::collections::HashMap;

use anteros_core::FileKind;
use anteros_format::SLOT_BYTES;
use anteros_format::inode::{COMPACT_BYTES, EXTENDED_BYTES};
use anteros_format::xattr::{HEADER_BYTES, icount_for, region_bytes};

use crate::base::Record;
use crate::body::Body;
use crate::devices::{Elsewhere, Lower};
use crate::extent::{Extent, Tail};
use crate::hints::Ways;
use crate::index::IndexKind;
use crate::options::{Holes, InodeForm};
use crate::parts::Cuts;
use crate::patch::copied::Copied;
use crate::patch::former::FormerPacked;
use crate::patch::home::Patched;
use crate::patch::kept::{Kept, KeptFiles};
use crate::patch::renewed::Renewed;
use crate::prefixes::Prefixes;
use crate::source::Source;
use crate::sparse::{Allocation, ChunkedFile};
use crate::special::SpecialInode;
use crate::sweep::Sweep;
use crate::times::Times;
use crate::tree::{Node, NodeId, Tree};
use crate::xattr::SharedXattrs;
use crate::{Content, Error, Options, directory};

/// Bytes behind inode and xattrs that say where in the packed inode a file lies.
pub(crate) const WHOLE_FRAGMENT_BYTES: u64 = 16;

/// Tells how the content of an inode is to be stored.
#[derive(Debug)]
pub(crate) enum Intent {
    /// There is none.
    Nothing,
    /// As it is; the last part, as [`Plan::inline_bytes`] says, behind the inode.
    Flat,
    /// Compressed if that saves enough, else flat.
    Compress,
    /// In the packed inode, as a whole.
    Pack,
    /// The content of an earlier file, which is the same.
    Same(NodeId),
    /// In chunks.
    Chunks(Box<ChunkedFile>),
    /// On the extra device.
    Elsewhere(Box<Elsewhere>),
    /// Inode of the image before, with all that follows it.
    Kept(Record),
    /// Inode of the image that is patched, which stays where it is, at this byte.
    Stays(u64),
    /// Inode of the image that is patched, with other properties: what lies behind it is copied, its data stays.
    Copied(Box<Copied>),
}

/// Holds what is decided of an inode.
#[derive(Debug)]
pub(crate) struct NodePlan {
    pub extended: bool,
    pub icount: u16,
    pub intent: Intent,
    /// Most bytes of content that may lie behind the inode, because there is no more room behind others that are the same, or
    /// all of them together would take more than a block for it.
    pub behind: Behind,
    /// Later files with the same content.
    pub copies: u32,
}

/// Bytes of content that may lie behind an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    /// As they are.
    pub flat: u32,
    /// As a compressed tail.
    pub tail: u32,
}

impl Behind {
    /// Whatever there is room for.
    const ANY: Self = Self {
        flat: u32::MAX,
        tail: u32::MAX,
    };

    /// Bytes that may lie behind each of so many inodes, if all of them are to take no more than a block for it.
    fn of_all(self, inodes: u32, block_bytes: u64) -> Self {
        let most = (block_bytes / u64::from(inodes)) as u32; // blocks have 64 KiB at most
        self.min(Self {
            flat: most,
            tail: most,
        })
    }

    /// Bytes for which there is room behind both of two inodes.
    pub fn min(self, other: Self) -> Self {
        Self {
            flat: self.flat.min(other.flat),
            tail: self.tail.min(other.tail),
        }
    }
}

/// Holds what is decided of all inodes.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The times of compact inodes.
    pub times: Times,
    pub shared: SharedXattrs,
    pub nodes: Vec<NodePlan>,
    /// All nodes in the order in which their content is stored.
    pub order: Vec<NodeId>,
    /// The files that have parts in common with others or in themselves.
    pub cuts: HashMap<NodeId, Cuts>,
    /// Content that is stored in front of all other.
    pub sweep: Sweep,
    index: IndexKind,
    metabox_index: IndexKind,
    pub ways: Ways,
    block_bytes: u64,
    inline_data: bool,
    inline_tails: bool,
    /// Room for the attributes of the root at least.
    root_icount: u16,
    /// Regions of attributes that are taken over as they are.
    pub regions: HashMap<NodeId, Box<[u8]>>,
    /// Added to the serial numbers of inodes.
    pub serial: u32,
    /// The place of inodes in an image that is patched.
    pub patched: Option<Patched>,
    /// Content that stays, of files that the patch changes.
    pub kept: KeptFiles,
    /// The packed inode of the image that is patched, if files of the patch are packed behind its content.
    pub packed: Option<FormerPacked>,
    /// The image that this one is a layer on.
    pub lower: Option<Lower>,
}

impl Plan {
    /// Bytes of memory that what is planned for nodes takes.
    pub fn memory_bytes(&self) -> u64 {
        let nodes = (size_of_val(&*self.nodes) + size_of_val(&*self.order)) as u64;
        nodes + self.sweep.memory_bytes()
    }

    pub fn new(
        source: &Source,
        tree: &mut Tree,
        options: &Options,
        ways: Ways,
    ) -> Result<Self, Error> {
        for id in tree.ids() {
            if tree.node(id).kind == FileKind::Directory {
                tree.nodes[id as usize].size = directory::bytes(tree, id, options);
            }
        }
        let mut plan = Self {
            times: Times::new(tree.nodes.iter().map(|node| node.mtime), options),
            shared: (tree.xattrs).share(
                match options.append {
                    // They would lie among those that are there.
                    Some(_) if options.patch_layer.is_none() => u32::MAX,
                    _ => options.xattr_share_above.unwrap_or(0),
                },
                Prefixes::of(options)?,
            ),
            nodes: Vec::with_capacity(tree.nodes.len()),
            order: Vec::new(),
            cuts: HashMap::new(),
            sweep: Sweep::default(),
            index: usual_index(options),
            metabox_index: metabox_index(options),
            ways,
            block_bytes: options.block_bytes().into(),
            inline_data: options.inline_data,
            inline_tails: options.has_inline_tails(),
            root_icount: root_icount(options),
            regions: HashMap::new(),
            serial: 0,
            patched: None,
            kept: KeptFiles::new(),
            packed: None,
            lower: None,
        };
        for id in tree.ids() {
            let node = NodePlan {
                extended: plan.is_extended(source, tree, id, options)?,
                icount: plan.icount(source, tree, id)?,
                intent: plan.intent(source, tree, id, options)?,
                behind: Behind::ANY,
                copies: 0,
            };
            plan.nodes.push(node);
            // It is compressed there with what lies around it.
            if options.metabox.is_some() && plan.is_inline(tree, id) {
                plan.nodes[id as usize].intent = Intent::Flat;
            }
            if plan.is_fragment(tree, id, options) || plan.is_packed_directory(tree, id, options) {
                plan.nodes[id as usize].intent = Intent::Pack;
            }
        }
        Ok(plan)
    }

    pub fn node(&self, id: NodeId) -> &NodePlan {
        &self.nodes[id as usize]
    }

    /// The room of the older image in which this one lies, if it does.
    pub fn renewed(&self) -> Option<&Renewed> {
        self.patched.as_ref()?.renewed.as_ref()
    }

    /// The serial number of an inode.
    pub fn serial_of(&self, id: NodeId) -> u32 {
        let former = self.renewed().and_then(|renewed| renewed.former.get(&id));
        former.map_or(self.serial.wrapping_add(id + 1), |former| former.serial)
    }

    /// All inodes in the order in which they, and the blocks of directories, are stored: those that are read come first.
    pub fn inodes<'a>(&'a self, tree: &Tree) -> impl Iterator<Item = NodeId> + use<'a> {
        let others = tree.ids().filter(|&id| !self.sweep.has_inode(id));
        self.sweep.inodes().chain(others)
    }

    /// Returns whether a regular file has content that is to be stored in the image.
    pub fn is_stored_file(&self, tree: &Tree, id: NodeId) -> bool {
        let intent = &self.node(id).intent;
        let is_stored = matches!(
            intent,
            Intent::Flat | Intent::Compress | Intent::Chunks(_) | Intent::Pack
        );
        tree.node(id).kind == FileKind::Regular && is_stored
    }

    /// Has a file lie on an extra device.
    pub fn set_elsewhere(&mut self, id: NodeId, file: Elsewhere) {
        self.nodes[id as usize].intent = Intent::Elsewhere(Box::new(file));
    }

    /// Bytes of an inode and its xattrs.
    pub fn head_bytes(&self, id: NodeId) -> u64 {
        let node = self.node(id);
        let body = if node.extended {
            EXTENDED_BYTES
        } else {
            COMPACT_BYTES
        };
        let xattrs = region_bytes(node.icount).expect("never 1");
        body as u64 + u64::from(xattrs)
    }

    /// Of a flat inode: bytes of its last part that lie behind it, 0 if it is kept in blocks alone.
    /// Such a part lies in one block with all of its inode.
    pub fn inline_bytes(&self, id: NodeId, node: &Node) -> u64 {
        if id == 0
            && self
                .patched
                .as_ref()
                .is_some_and(|home| home.root.is_some())
        {
            return 0; // there is room for the inode alone
        }
        let tail = node.size % self.block_bytes;
        let allowed = self.inline_data || node.kind != FileKind::Regular;
        match allowed && tail <= self.behind(id, node).flat.into() {
            true => tail,
            false => 0,
        }
    }

    /// Returns what a flat inode takes: whole blocks, and the rest behind the inode.
    pub fn flat_bytes(&self, id: NodeId, node: &Node) -> u64 {
        let inline = self.inline_bytes(id, node);
        (node.size - inline).next_multiple_of(self.block_bytes) + inline
    }

    /// Returns whether a file to be compressed would lie behind its inode as it is, and nowhere else.
    fn is_inline(&self, tree: &Tree, id: NodeId) -> bool {
        let node = tree.node(id);
        let is_compressed = matches!(self.node(id).intent, Intent::Compress);
        is_compressed && self.inline_bytes(id, node) == node.size
    }

    /// Returns whether a file goes into the packed inode as a whole. If it costs nothing to keep it behind its inode, it stays
    /// there.
    fn is_fragment(&self, tree: &Tree, id: NodeId, options: &Options) -> bool {
        let node = tree.node(id);
        let (Some(fragments), Some(setting)) = (options.fragments, self.ways.setting(id)) else {
            return false;
        };
        if !self.ways.packs(id) {
            return false;
        }
        let is_small = node.size <= setting.pcluster_bytes.into();
        let intent = &self.node(id).intent;
        let is_file = matches!(intent, Intent::Flat | Intent::Compress);
        if node.kind != FileKind::Regular || !is_file || !(is_small || fragments.all) {
            return false;
        }
        !self.is_behind_for_nothing(id, node)
    }

    /// Returns whether a directory goes into the packed inode.
    fn is_packed_directory(&self, tree: &Tree, id: NodeId, options: &Options) -> bool {
        let node = tree.node(id);
        let is_directory = node.kind == FileKind::Directory;
        is_directory && options.compress_directories && !self.is_behind_for_nothing(id, node)
    }

    /// Returns whether all content lies behind its inode, and takes no more room there than to say that it is packed.
    fn is_behind_for_nothing(&self, id: NodeId, node: &Node) -> bool {
        let head = self.head_bytes(id);
        let slots = |bytes: u64| (head + bytes).div_ceil(SLOT_BYTES);
        let is_behind = self.inline_bytes(id, node) == node.size;
        is_behind && slots(node.size) <= slots(WHOLE_FRAGMENT_BYTES)
    }

    /// Returns how many bytes the last extent of a compressed inode may have behind the index, in one block with all of
    /// the inode; 0 if it must lie elsewhere.
    pub fn tail_room(&self, id: NodeId, node: &Node) -> u64 {
        match self.inline_tails {
            true => u64::from(self.behind(id, node).tail).min(self.block_bytes - 1),
            false => 0,
        }
    }

    /// Returns for what there is room behind an inode, in one block with it, and behind those that are the same.
    pub fn behind(&self, id: NodeId, node: &Node) -> Behind {
        let head = self.head_bytes(id);
        let index = self.index_bytes(id, node, &[], Tail::Blocks);
        let room = |taken| self.block_bytes.saturating_sub(taken) as u32;
        let own = Behind {
            flat: room(head),
            tail: room(head + index),
        };
        self.node(id).behind.min(own)
    }

    /// The index of the packed inode.
    pub fn packed_index(&self, packed: &SpecialInode) -> IndexKind {
        match self.packed {
            None => self.index,
            Some(_) => packed.index_apart(self.index),
        }
    }

    /// The index of the metabox.
    pub const fn metabox_index(&self) -> IndexKind {
        self.metabox_index
    }

    /// The index of a compressed inode, if its tail does not lie far behind in the packed inode.
    pub fn index_of(&self, id: NodeId) -> IndexKind {
        let first = match self.node(id).intent {
            Intent::Same(first) => first,
            _ => id,
        };
        let index = match self.ways.setting(id) {
            Some(setting) => self.index.of(setting),
            None => self.index,
        };
        let second = self.kept.get(&first).and_then(Kept::second);
        let index = second.map_or(index, |second| index.with_second(second));
        let shares = self.cuts.get(&first).is_some_and(Cuts::is_sharing);
        match shares || self.sweep.cuts(first) {
            true => index.full(),
            false => index,
        }
    }

    /// The index of a compressed inode with these extents.
    pub fn index_with(&self, id: NodeId, node: &Node, body: &Body, tail: Tail) -> IndexKind {
        let index = self.index_of(id).with(tail);
        if self.kept.contains_key(&id) {
            let usual = self.index.with(tail);
            return index.in_packs(usual, self.head_bytes(id), &body.runs(), tail, node.size);
        }
        // Packs cannot tell of extents that lie apart.
        match self.renewed().is_some() && body.is_split() {
            true => index.full(),
            false => index,
        }
    }

    /// Sees to it that what the first one of files that are the same has behind its inode the others have room for, too, and
    /// that it takes no more there, time and again, than a block that all of them share.
    pub fn agree(&mut self, tree: &Tree) {
        let first = |id: NodeId| match self.node(id).intent {
            Intent::Same(first) => Some((first, id)),
            _ => None,
        };
        let pairs: Vec<_> = tree.ids().filter_map(first).collect();
        for &(first, id) in &pairs {
            let [one, other] = [first, id].map(|id| self.behind(id, tree.node(id)));
            let first = &mut self.nodes[first as usize];
            first.behind = one.min(other);
            first.copies += 1;
        }
        for &(first, _) in &pairs {
            let first = &mut self.nodes[first as usize];
            first.behind = first.behind.of_all(1 + first.copies, self.block_bytes);
        }
        for (first, id) in pairs {
            self.nodes[id as usize].behind = self.nodes[first as usize].behind;
        }
    }

    /// Returns what a compressed inode with these extents takes beyond its blocks, if its tail does not lie far behind in the
    /// packed inode.
    pub fn index_bytes(&self, id: NodeId, node: &Node, extents: &[Extent], tail: Tail) -> u64 {
        let runs = [(0, extents)];
        let index = self.index_of(id);
        index.bytes(self.head_bytes(id), &runs, tail, node.size)
    }

    /// Returns how a file is to be stored, as far as that shows before it has been read.
    fn intent(
        &self,
        source: &Source,
        tree: &Tree,
        id: NodeId,
        options: &Options,
    ) -> Result<Intent, Error> {
        let node = tree.node(id);
        if node.size == 0 {
            return Ok(Intent::Nothing);
        }
        if node.kind != FileKind::Regular {
            return Ok(Intent::Flat);
        }
        if options.content == Content::Zero {
            let hole = ChunkedFile::hole(node.size, options.block_bits);
            return Ok(Intent::Chunks(Box::new(hole)));
        }
        if node.size <= options.block_bytes().into() {
            // A block cannot become shorter, only what need not be one can.
            return Ok(match self.ways.setting(id) {
                Some(_) if options.inline_tails || options.has_encoded_extents() => {
                    Intent::Compress
                }
                _ => Intent::Flat,
            });
        }
        let chunked = match self.sparse(source, tree, id, options)? {
            None => options
                .chunk_bytes
                .map(|bytes| ChunkedFile::whole(node.size, bytes, options.block_bits)),
            sparse => sparse,
        };
        if let Some(mut chunked) = chunked {
            chunked.indexes = options.chunk_indexes;
            return Ok(Intent::Chunks(Box::new(chunked)));
        }
        Ok(match self.ways.setting(id) {
            Some(_) => Intent::Compress,
            None => Intent::Flat,
        })
    }

    /// Returns what becomes of a file with holes; `None` if it is treated like others.
    fn sparse(
        &self,
        source: &Source,
        tree: &Tree,
        id: NodeId,
        options: &Options,
    ) -> Result<Option<ChunkedFile>, Error> {
        let node = tree.node(id);
        let keeps = match options.holes {
            Holes::Ignore => false,
            Holes::Auto if self.ways.setting(id).is_some() => {
                node.allocation == Allocation::MostlyHoles
            }
            Holes::Keep | Holes::Auto => node.allocation != Allocation::Whole,
        };
        if !keeps {
            return Ok(None);
        }
        let file = source.open_file(tree, id)?;
        let ranges = file.data_ranges()?;
        file.finish()?;
        Ok(ChunkedFile::sparse(
            node.size,
            &ranges,
            options.chunk_bytes,
            options.block_bits,
        ))
    }

    fn is_extended(
        &self,
        source: &Source,
        tree: &Tree,
        id: NodeId,
        options: &Options,
    ) -> Result<bool, Error> {
        let node = tree.node(id);
        let fits = [node.uid, node.gid, node.nlink]
            .iter()
            .all(|&n| n <= u16::MAX.into())
            && node.size <= u32::MAX.into();
        let keeps_time = options.ignore_mtime || self.times.keeps(node.mtime);
        match options.inode_form {
            InodeForm::Extended => Ok(true),
            InodeForm::Auto => Ok(!(fits && keeps_time)),
            InodeForm::Compact if fits => Ok(false),
            InodeForm::Compact => Err(Error::Unstorable {
                path: source.full_path(tree, id),
                reason: format!(
                    "owner {}, group {}, {} links and {} bytes do not fit in a compact inode",
                    node.uid, node.gid, node.nlink, node.size
                ),
            }),
        }
    }

    fn icount(&self, source: &Source, tree: &Tree, id: NodeId) -> Result<u16, Error> {
        let icount = self.shared.icount(&tree.xattrs, &tree.node(id).xattrs);
        let icount = icount.map(|icount| match id {
            0 => icount.max(self.root_icount),
            _ => icount,
        });
        icount.ok_or_else(|| Error::Unstorable {
            path: source.full_path(tree, id),
            reason: "its extended attributes take more than 256 KiB".into(),
        })
    }
}

/// `i_xattr_icount` of the root at least.
fn root_icount(options: &Options) -> u16 {
    match options.root_xattr_bytes as usize {
        0 => 0,
        // A header alone is none.
        bytes => icount_for(bytes.saturating_sub(HEADER_BYTES).max(4)).expect("as checked"),
    }
}

fn usual_index(options: &Options) -> IndexKind {
    let index = IndexKind::new(options);
    options.setting().map_or(index, |setting| index.of(setting))
}

fn metabox_index(options: &Options) -> IndexKind {
    let index = IndexKind::new(options);
    options.metabox.map_or(index, |setting| index.of(setting))
}

const _: () = assert!(SLOT_BYTES as usize == COMPACT_BYTES);
