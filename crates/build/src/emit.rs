//! The bytes behind the file content.

use std::sync::atomic::Ordering;

use anteros_core::{FileKind, Timestamp};
use anteros_format::Fault;
use anteros_format::inode::{
    DataLayout, FORMAT_DOT_OMITTED, FORMAT_EXTENDED, FORMAT_LAYOUT_SHIFT, FORMAT_NLINK_1,
    RawCompactInode, RawExtendedInode,
};
use anteros_format::superblock::SUPERBLOCK_OFFSET;
use anteros_format::zmap::WHOLE_FRAGMENT;
use zerocopy::{FromZeros, IntoBytes};

use crate::data::{Job, Stored, Tails};
use crate::devices::Devices;
use crate::extent::Tail;
use crate::index::IndexKind;
use crate::layout::{Layout, Places};
use crate::ordered::{Ordered, with_workers};
use crate::outbox::{Done, Work};
use crate::output::Output;
use crate::plan::{Intent, WHOLE_FRAGMENT_BYTES};
use crate::segments::Segments;
use crate::special::{Content, Growing, SpecialInode};
use crate::times::Times;
use crate::tree::NodeId;
use crate::{Error, Observer, Progress, directory, kept, patch};

/// Inodes whose inline data is read as one job.
const BATCH_INODES: usize = 256;

/// Our reader refuses a metabox of that many times its image.
const METABOX_RATIO_MAX: u64 = 1024;

/// Everything that metadata is made from.
pub(crate) struct Emitter<'a> {
    pub job: &'a Job<'a>,
    pub stored: &'a [Stored],
    pub packed: Option<&'a SpecialInode>,
    pub layout: &'a Layout,
    pub devices: &'a Devices,
}

/// Workers that make inodes, and compress segments of the metabox.
pub(crate) type Pool = Ordered<Work<Vec<NodeId>>, Done<Records>>;

impl Emitter<'_> {
    /// Writes directories, links, attributes and inodes.
    pub fn metadata(
        &self,
        output: &mut Output,
        observer: &dyn Observer,
        progress: Progress,
    ) -> Result<Places, Error> {
        for id in self.job.plan.inodes(self.job.tree) {
            self.blocks(id, output)?;
        }
        let plan = self.job.plan;
        let (places, metabox) = match self.layout.metabox_bytes() {
            None => (self.inodes_as_they_are(output, observer, progress)?, None),
            Some(bytes) => {
                let metabox = self.metabox(bytes, output, observer, progress)?;
                let places = Places::behind(self.job, self.packed, &metabox, output)?;
                check_ratio(bytes, places.end)?;
                output.write(&plan.shared.area)?;
                (places, Some(metabox))
            }
        };
        let kept = self.job.options.append.as_ref();
        let kept = kept.and_then(|append| append.packed.as_ref());
        let patched = plan.patched.as_ref();
        let is_moved =
            |record: &crate::base::Record| !patched.is_some_and(|home| home.stays(record.address));
        let kept = kept.filter(|(record, _)| self.packed.is_none() && is_moved(record));
        if let (Some(at), Some((_, record))) = (places.packed, kept) {
            output.pad_to(at)?;
            match &plan.lower {
                None => output.write(record)?,
                Some(lower) => {
                    let mut record = record.clone();
                    lower
                        .refer_to(&mut record)
                        .map_err(|cause| self.unreferable(0, &cause))?;
                    output.write(&record)?;
                }
            }
        }
        let packed = self.packed.zip(places.packed);
        let packed = packed.map(|(inode, at)| (at, inode, plan.packed_index(inode)));
        let metabox = metabox.as_ref().zip(places.metabox);
        let metabox = metabox.map(|(inode, at)| (at, inode, plan.metabox_index()));
        let mut number = plan.serial.wrapping_add(self.job.tree.nodes.len() as u32);
        for (at, inode, index) in [packed, metabox].into_iter().flatten() {
            number = number.wrapping_add(1);
            output.pad_to(at)?;
            output.write(&self.special_inode(inode, index, number))?;
        }
        // The record of a patch comes last.
        output.pad_to(places.end - patch::record_bytes(self.job.options))?;
        Ok(places)
    }

    /// The root inode of a patch, if it lies apart from the others, and the byte of the image at which it does.
    pub fn root_apart(&self) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let Some(at) = self.job.plan.patched.as_ref().and_then(|home| home.root) else {
            return Ok(None);
        };
        let mut inode = Vec::new();
        self.record(0, &mut Tails::new(self.job), &mut inode)?;
        Ok(Some((at, inode)))
    }

    /// Writes the inodes that lie in slots of an older image.
    pub fn inodes_in_slots(&self, output: &mut Output) -> Result<(), Error> {
        let mut tails = Tails::new(self.job);
        for &(id, at) in &self.layout.slots {
            let mut inode = Vec::new();
            self.record(id, &mut tails, &mut inode)?;
            output.write_over(at, &inode)?;
        }
        Ok(())
    }

    /// Blocks that hold so many bytes of the image.
    fn blocks_of(&self, bytes: u64) -> u32 {
        bytes.div_ceil(self.job.options.block_bytes().into()) as u32 // no more than the image has
    }

    /// Writes the blocks of a directory or a link.
    fn blocks(&self, id: NodeId, output: &mut Output) -> Result<(), Error> {
        let node = self.job.tree.node(id);
        let Stored::Flat { inline, .. } = self.stored[id as usize] else {
            return Ok(());
        };
        let own = node.size - inline;
        if node.kind == FileKind::Regular || own == 0 {
            return Ok(());
        }
        let content = self.content(id);
        let renewed = self.job.plan.renewed();
        if let Some(block) = renewed.and_then(|renewed| renewed.blocks.get(&id)) {
            let at = u64::from(*block) << self.job.options.block_bits;
            return output.write_over(at, &content[..own as usize]);
        }
        output.write(&content[..own as usize])?;
        let block_bytes = u64::from(self.job.options.block_bytes());
        output.pad_to(output.position().next_multiple_of(block_bytes))
    }

    /// The content of a directory or a link.
    fn content(&self, id: NodeId) -> Vec<u8> {
        let node = self.job.tree.node(id);
        if node.kind == FileKind::Symlink {
            return self.job.tree.name(node.target).to_vec();
        }
        let Job { tree, options, .. } = self.job;
        directory::encode(tree, id, options, |id| self.layout.nid(id))
    }

    /// Places shared attributes and inodes, and writes them if they lie behind all content.
    fn inodes_as_they_are(
        &self,
        output: &mut Output,
        observer: &dyn Observer,
        progress: Progress,
    ) -> Result<Places, Error> {
        if let Some(shared_at) = self.layout.beside_superblock() {
            let area = self.area(shared_at, observer, progress)?;
            return self.layout.places_beside(self.job, area, output);
        }
        let places = self.layout.places(self.job, self.packed, output)?;
        self.image(output, observer, progress)?;
        Ok(places)
    }

    /// Writes shared attributes, and all inodes behind them.
    fn image(
        &self,
        output: &mut Output,
        observer: &dyn Observer,
        progress: Progress,
    ) -> Result<(), Error> {
        let origin = output.position();
        output.write(&self.job.plan.shared.area)?;
        self.with_workers(|pool| {
            self.inodes(pool, observer, progress, |_, start, bytes| {
                output.pad_to(origin + start)?;
                output.write(bytes)
            })
        })
    }

    /// Room for the superblock, with the attributes and inodes that lie in its block.
    fn area(
        &self,
        shared_at: u64,
        observer: &dyn Observer,
        progress: Progress,
    ) -> Result<Vec<u8>, Error> {
        let mut area = vec![0; (shared_at - SUPERBLOCK_OFFSET) as usize];
        area.extend_from_slice(&self.job.plan.shared.area);
        self.with_workers(|pool| {
            self.inodes(pool, observer, progress, |_, start, bytes| {
                area.resize((start - SUPERBLOCK_OFFSET) as usize, 0);
                area.extend_from_slice(bytes);
                Ok(())
            })
        })?;
        Ok(area)
    }

    /// Writes all inodes compressed, as so many bytes of content.
    fn metabox(
        &self,
        bytes: u64,
        output: &mut Output,
        observer: &dyn Observer,
        progress: Progress,
    ) -> Result<SpecialInode, Error> {
        let options = self.job.options;
        let content = Content {
            segments: Segments::new(options.metabox_segment_bytes(), options.block_bytes()),
            runs: Vec::new(),
        };
        let mut metabox = Growing::new(content, options.inodes_bytes(), output);
        let content = self.with_workers(|pool| {
            self.inodes(pool, observer, progress, |pool, start, bytes| {
                metabox.pad_to(start);
                metabox.append(pool, bytes)
            })?;
            metabox.pad_to(bytes);
            metabox.finish(pool)
        })?;
        Ok(content.into_inode(&[]).expect("the root is in it"))
    }

    /// Does something with workers that make inodes and compress segments of the metabox.
    fn with_workers<T>(&self, body: impl FnOnce(&mut Pool) -> T) -> T {
        let options = self.job.options;
        let new_worker = || {
            let mut tails = Tails::new(self.job);
            move |work: Work<Vec<NodeId>>| {
                match work {
                    Work::Part(ids) => self.records(&ids, &mut tails).map(Done::Part),
                    Work::Segment(content) => {
                        let setting = options.metabox;
                        let setting = setting.expect("only with one there are segments of it");
                        let segment = self.job.segment(&content, setting, tails.compressor());
                        segment.map(Done::Segment)
                    }
                }
                .into()
            }
        };
        with_workers(
            options.compressing_workers(),
            options.inodes_bytes(),
            new_worker,
            body,
        )
    }

    /// Has workers make all inodes, with the inline data that they read, and hands them on in order.
    fn inodes(
        &self,
        pool: &mut Pool,
        observer: &dyn Observer,
        mut progress: Progress,
        mut take: impl FnMut(&mut Pool, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let cost = BATCH_INODES as u64 * u64::from(self.job.options.block_bytes());
        let mut batches = self.layout.order.chunks(BATCH_INODES);
        loop {
            while pool.has_room(cost) {
                match batches.next() {
                    Some(ids) => pool.submit(Work::Part(ids.to_vec()), cost),
                    None => break,
                }
            }
            let Some(done) = pool.take() else {
                return Ok(());
            };
            let records = done.part()?;
            take(pool, records.start, &records.bytes)?;
            progress.files_done += records.files;
            progress.bytes_done += records.file_bytes;
            observer.progressed(&progress);
        }
    }

    /// The bytes from the start of the first of some inodes to the end of the last one.
    fn records(&self, ids: &[NodeId], tails: &mut Tails<'_>) -> Result<Records, Error> {
        let start_of = |id: NodeId| self.layout.inodes[id as usize];
        let start = start_of(ids[0]);
        let mut bytes = Vec::new();
        let (mut files, mut file_bytes) = (0, 0);
        for &id in ids {
            if self.job.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            bytes.resize((start_of(id) - start) as usize, 0);
            self.record(id, tails, &mut bytes)?;
            let node = self.job.tree.node(id);
            if node.kind == FileKind::Regular && !self.has_blocks(id) {
                files += 1;
                file_bytes += node.size;
            }
        }
        Ok(Records {
            start,
            bytes,
            files,
            file_bytes,
        })
    }

    /// Returns whether some content lies in blocks of its own.
    fn has_blocks(&self, id: NodeId) -> bool {
        match (&self.stored[id as usize], &self.job.plan.node(id).intent) {
            (Stored::Nothing, _) => false,
            (Stored::Flat { inline, .. }, _) => *inline < self.job.tree.node(id).size,
            (Stored::Elsewhere | Stored::Kept, _) => false,
            (_, Intent::Chunks(chunked)) => !chunked.runs.is_empty(),
            _ => true,
        }
    }

    /// Appends an inode with all that lies behind it.
    fn record(&self, id: NodeId, tails: &mut Tails<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let Job {
            tree,
            plan,
            options,
            ..
        } = self.job;
        let node = tree.node(id);
        if let Intent::Kept(record) = &plan.node(id).intent {
            return kept::append(&self.job.look(), id, record, out);
        }
        let start = out.len();
        let head_end = start + plan.head_bytes(id) as usize;
        self.inode(id, out);
        let form = (options.xattr_filter, self.layout.first_shared_id());
        match plan.regions.get(&id) {
            Some(region) => out.extend_from_slice(region),
            None => plan.shared.encode(&tree.xattrs, &node.xattrs, form, out),
        }
        out.resize(head_end, 0); // the root, and copied inodes, may have more room than they need
        if let Intent::Copied(copied) = &plan.node(id).intent {
            patch::append_rest((&self.job.look(), self.job.former), id, copied, out)?;
            let moved = plan.lower.as_ref();
            let moved = moved.map_or(Ok(()), |lower| lower.refer_to(&mut out[start..]));
            return moved.map_err(|cause| self.unreferable(id, &cause));
        }
        match (&self.stored[id as usize], &plan.node(id).intent) {
            (Stored::Flat { inline, .. }, _) if *inline > 0 => self.inline(id, *inline, out),
            (Stored::Compressed { body, tail }, _) => {
                let index = plan.index_with(id, node, body, *tail);
                index.encode(&body.runs(), *tail, node.size, out);
                match (tail, body.extents().last()) {
                    (Tail::Inline(bytes), Some(last)) => tails.append(id, last, *bytes, out),
                    _ => Ok(()),
                }
            }
            (Stored::Packed { offset }, _) => {
                let end = out.len().next_multiple_of(8) + WHOLE_FRAGMENT_BYTES as usize;
                out.resize(end - WHOLE_FRAGMENT_BYTES as usize, 0);
                out.extend_from_slice(&(WHOLE_FRAGMENT | offset).to_le_bytes());
                out.resize(end, 0);
                Ok(())
            }
            (Stored::Elsewhere, Intent::Elsewhere(file)) => {
                file.encode(out);
                Ok(())
            }
            (Stored::Chunked { first_block }, Intent::Chunks(chunked)) => {
                chunked.encode(node.size, *first_block, options.block_bits, out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The error of content that a layer cannot refer to.
    fn unreferable(&self, id: NodeId, cause: &Fault) -> Error {
        Error::Unstorable {
            path: self.job.source.full_path(self.job.tree, id),
            reason: format!("a layer cannot refer to its content: {cause}"),
        }
    }

    /// Appends the last `len` bytes of the content.
    fn inline(&self, id: NodeId, len: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        let node = self.job.tree.node(id);
        let own = node.size - len;
        if node.kind != FileKind::Regular {
            out.extend_from_slice(&self.content(id)[own as usize..]);
            return Ok(());
        }
        let start = out.len();
        out.resize(start + len as usize, 0);
        let file = self.job.source.open_file(self.job.tree, id)?;
        file.read(own, &mut out[start..])?;
        file.finish()
    }

    /// Appends the inode proper.
    fn inode(&self, id: NodeId, out: &mut Vec<u8>) {
        let node = self.job.tree.node(id);
        let plan = self.job.plan.node(id);
        let (layout, i_u) = match &plan.intent {
            Intent::Copied(copied) => (DataLayout::FlatPlain, copied.i_u), // its layout follows
            _ => self.layout_and_value(id),
        };
        let mut format = (layout as u16) << FORMAT_LAYOUT_SHIFT;
        if node.kind == FileKind::Directory && self.job.options.dot_omitted {
            format |= FORMAT_DOT_OMITTED;
        }
        let mode = (node.kind.mode_bits() as u16 | node.perm).into();
        let (copied_layout, address_hi) = match &plan.intent {
            Intent::Copied(copied) => (copied.layout, copied.address_hi.unwrap_or(0)),
            _ => (0, 0),
        };
        let raw = RawExtendedInode {
            i_format: (format | copied_layout).into(),
            i_xattr_icount: plan.icount.into(),
            i_mode: mode,
            i_nb: address_hi.into(),
            i_size: node.size.into(),
            i_u: i_u.into(),
            i_ino: self.job.plan.serial_of(id).into(),
            i_uid: node.uid.into(),
            i_gid: node.gid.into(),
            i_mtime: (node.mtime.secs as u64).into(),
            i_mtime_nsec: node.mtime.nanos.into(),
            i_nlink: node.nlink.into(),
            i_reserved2: [0; 16],
        };
        append_inode(raw, plan.extended, &self.job.plan.times, out);
    }

    /// An inode that no directory names, and its index.
    fn special_inode(&self, inode: &SpecialInode, index: IndexKind, number: u32) -> Vec<u8> {
        let times = &self.job.plan.times;
        let mut raw = RawExtendedInode::new_zeroed();
        raw.i_format = ((index.layout() as u16) << FORMAT_LAYOUT_SHIFT).into();
        raw.i_mode = (FileKind::Regular.mode_bits() as u16).into();
        raw.i_size = inode.size.into();
        raw.i_u = self.blocks_of(inode.stored_bytes()).into();
        raw.i_ino = number.into();
        raw.i_mtime = (times.image.secs as u64).into();
        raw.i_mtime_nsec = times.image.nanos.into();
        raw.i_nlink = 1.into();
        let mut out = Vec::new();
        append_inode(raw, inode.is_extended(), times, &mut out);
        index.encode(&inode.runs(), Tail::Blocks, inode.size, &mut out);
        out
    }

    fn layout_and_value(&self, id: NodeId) -> (DataLayout, u32) {
        let Job {
            tree,
            plan,
            options,
            ..
        } = self.job;
        match &self.stored[id as usize] {
            Stored::Nothing | Stored::Kept => (DataLayout::FlatPlain, tree.node(id).rdev),
            Stored::Flat {
                first_block,
                inline: 0,
            } => (DataLayout::FlatPlain, *first_block),
            Stored::Flat { first_block, .. } => (DataLayout::FlatInline, *first_block),
            Stored::Compressed { body, tail } => {
                let layout = plan.index_with(id, tree.node(id), body, *tail).layout();
                (layout, self.blocks_of(body.own_bytes()))
            }
            Stored::Packed { .. } => (DataLayout::CompressedFull, 0),
            Stored::Elsewhere => {
                let Intent::Elsewhere(file) = &plan.node(id).intent else {
                    unreachable!("only files on the extra device are stored so");
                };
                let format = file.format(options.block_bits);
                (DataLayout::ChunkBased, format.into())
            }
            Stored::Chunked { .. } => {
                let Intent::Chunks(chunked) = &plan.node(id).intent else {
                    unreachable!("only files in chunks are stored so");
                };
                (
                    DataLayout::ChunkBased,
                    chunked.format(options.block_bits).into(),
                )
            }
        }
    }
}

/// Checks that readers which distrust a metabox of many times its image take this one.
fn check_ratio(metabox_bytes: u64, image_bytes: u64) -> Result<(), Error> {
    if metabox_bytes / METABOX_RATIO_MAX < image_bytes {
        return Ok(());
    }
    Err(Error::Option(format!(
        "{metabox_bytes} bytes of metadata would be compressed into an image of {image_bytes}, which is so much that \
         readers refuse it; without compression of metadata it can be built"
    )))
}

/// Appends an inode, compact or extended.
fn append_inode(mut raw: RawExtendedInode, extended: bool, times: &Times, out: &mut Vec<u8>) {
    if extended {
        raw.i_format = (raw.i_format.get() | FORMAT_EXTENDED).into();
        out.extend_from_slice(raw.as_bytes());
        return;
    }
    let time = Timestamp {
        secs: raw.i_mtime.get() as i64,
        nanos: raw.i_mtime_nsec.get(),
    };
    // The plan has seen to it that everything fits. A copied inode with the high part of an address has one link.
    let address_hi = raw.i_nb.get();
    if address_hi > 0 {
        raw.i_format = (raw.i_format.get() | FORMAT_NLINK_1).into();
    }
    let raw = RawCompactInode {
        i_format: raw.i_format,
        i_xattr_icount: raw.i_xattr_icount,
        i_mode: raw.i_mode,
        i_nb: match address_hi {
            0 => raw.i_nlink.get() as u16,
            hi => hi,
        }
        .into(),
        i_size: (raw.i_size.get() as u32).into(),
        i_mtime: times.compact(time).into(),
        i_u: raw.i_u,
        i_ino: raw.i_ino,
        i_uid: (raw.i_uid.get() as u16).into(),
        i_gid: (raw.i_gid.get() as u16).into(),
        i_reserved: 0.into(),
    };
    out.extend_from_slice(raw.as_bytes());
}

/// Inodes that follow each other.
pub(crate) struct Records {
    /// Tells where the first one begins.
    start: u64,
    bytes: Vec<u8>,
    /// Regular files among them that are complete with this, and their bytes.
    files: u64,
    file_bytes: u64,
}
