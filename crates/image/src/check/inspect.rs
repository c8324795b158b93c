//! One inode: its attributes, its index, where its extents lie.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anteros_core::FileKind;
use anteros_format::inode::{Inode, RawCompactInode, RawExtendedInode};
use anteros_format::xattr::{XattrEntry, XattrRegion, filter_bit, split_name};
use anteros_format::{Corrupt, Nid};
use zerocopy::FromBytes;

use crate::map::{Encoding, Extent, Location, Map, Pcluster, Source};
use crate::{Error, Place, Reader};

use super::finding::FindingKind;
use super::header::algorithm_bit;
use super::part::{Encoded, Part, What};
use super::run::Run;
use super::{digest, values};

/// An inode to be checked; only its extents in the range, unless that begins at 0.
pub(super) struct Job {
    inode: Arc<Inode>,
    range: Range<u64>,
}

/// Compressed files larger than this are split, so that no worker has more to do than the others.
const SPLIT_BYTES: u64 = 16 << 20;
/// Into no more jobs than this.
const SPLIT_JOBS_MAX: u64 = 64;
/// A file's index is given up after so many broken extents in a job.
const BROKEN_EXTENTS_MAX: u32 = 16;
/// States what an index entry counts as, in bytes.
const INDEX_WORK_BYTES: u64 = 8;
/// States what looking up an extent counts as, in bytes.
const EXTENT_WORK_BYTES: u64 = 64;
/// A worker hands over so many parts at a time.
const PARTS_MAX: usize = 1 << 10;

impl Job {
    /// The jobs that check an inode.
    pub(super) fn split(inode: Arc<Inode>) -> impl Iterator<Item = Self> {
        let size = inode.size;
        let jobs = match inode.layout.is_compressed() && inode.kind.may_have_data() {
            true => size.div_ceil(SPLIT_BYTES).clamp(1, SPLIT_JOBS_MAX),
            false => 1,
        };
        let step = size.div_ceil(jobs).max(1);
        (0..jobs).map(move |job| {
            let start = step.saturating_mul(job).min(size);
            Self {
                inode: inode.clone(),
                range: start..start.saturating_add(step).min(size),
            }
        })
    }
}

/// A worker of the first pass.
pub(super) struct Inspector<'r, 'i> {
    run: &'r Run<'i>,
    parts: Vec<Part>,
    /// Reads content for its digest.
    reader: Reader<'i>,
}

impl<'r, 'i> Inspector<'r, 'i> {
    pub(super) fn new(run: &'r Run<'i>) -> Self {
        Self {
            run,
            parts: Vec::new(),
            reader: Reader::new(run.image),
        }
    }

    /// Hands over the parts that are left.
    pub(super) fn finish(mut self) {
        self.run.take_parts(&mut self.parts);
    }

    pub(super) fn inspect(&mut self, job: &Job) {
        if self.run.is_ended() {
            return;
        }
        let inode = &*job.inode;
        let is_first = job.range.start == 0;
        let map = match self.run.image.map(inode) {
            Ok(map) => Some(map),
            Err(error) => {
                // Every job of the inode meets it.
                if is_first {
                    self.run.note_error(error);
                }
                None
            }
        };
        if is_first {
            self.inspect_inode(inode, map.as_ref());
        }
        if let Some(map) = map {
            let may_go_on = || self.run.spend(INDEX_WORK_BYTES);
            self.run.ok(self
                .run
                .image
                .verify_index(inode, &map, &job.range, &may_go_on));
            self.inspect_extents(inode, &map, &job.range);
            if is_first {
                digest::check(self.run, &mut self.reader, inode, &map);
            }
        }
    }

    fn inspect_inode(&mut self, inode: &Inode, map: Option<&Map>) {
        self.run.inodes.fetch_add(1, Ordering::Relaxed);
        self.run.report_progress();
        self.check_reserved(inode);
        self.check_owner(inode);
        self.take_metadata(inode, map);
        let xattrs = self.inspect_xattrs(inode);
        self.run.ok(xattrs);
        if inode.kind == FileKind::Symlink && map.is_some() {
            self.run.ok(self.run.image.read_link(inode));
        }
    }

    fn check_reserved(&self, inode: &Inode) {
        let image = self.run.image;
        let place = Place::Inode(inode.nid);
        let mut bytes = vec![0; inode.body_bytes() as usize];
        let read = image
            .locate(inode.nid)
            .and_then(|at| image.read_meta(place, at, &mut bytes));
        // The inode was read before, so this only fails with the medium.
        if self.run.ok(read).is_none() {
            return;
        }
        let is_zero = match inode.extended {
            true => RawExtendedInode::read_from_bytes(&bytes)
                .is_ok_and(|raw| raw.i_reserved2 == [0; 16]),
            false => {
                RawCompactInode::read_from_bytes(&bytes).is_ok_and(|raw| raw.i_reserved.get() == 0)
            }
        };
        if !is_zero {
            self.run.note(place, FindingKind::Reserved);
        }
    }

    /// The largest number is nobody: the kernel shows another in its place.
    fn check_owner(&self, inode: &Inode) {
        if inode.uid == u32::MAX || inode.gid == u32::MAX {
            self.run.note(Place::Inode(inode.nid), FindingKind::Owner);
        }
    }

    /// Notes the inode, its attributes, index and inline data as one part.
    fn take_metadata(&mut self, inode: &Inode, map: Option<&Map>) {
        let place = Place::Inode(inode.nid);
        let Ok(location) = self.run.image.locate(inode.nid) else {
            return;
        };
        let block_bits = self.run.image.superblock().block_bits;
        let head = location.plus(inode.head_bytes()).map(Location::address);
        let end = map
            .and_then(|map| map.metadata_end(inode, block_bits))
            .or(head);
        let bytes = end.unwrap_or(0).saturating_sub(location.address());
        let part = Part {
            location,
            bytes,
            place,
            what: What::Metadata,
        };
        if self.check_bounds(place, "its metadata", location, bytes) {
            self.push(part);
        }
    }

    fn inspect_xattrs(&mut self, inode: &Inode) -> crate::Result<()> {
        let image = self.run.image;
        let place = Place::Xattrs(inode.nid);
        let Some(bytes) = image.xattr_region(inode)? else {
            return Ok(());
        };
        if !self.run.spend(bytes.len() as u64) {
            return Ok(());
        }
        let region = XattrRegion::parse(&bytes).map_err(Error::corrupt(place))?;
        let mut names = HashSet::new();
        for id in region.shared_ids() {
            let entry = image.shared_xattr(place, id);
            let Some(bytes) = self.run.ok(entry) else {
                continue;
            };
            let entry = XattrEntry::parse(&bytes, 0).map_err(Error::corrupt(place))?;
            let location = image.shared_xattr_location(id);
            self.push(Part {
                location,
                bytes: bytes.len() as u64,
                place,
                what: What::SharedXattr,
            });
            self.inspect_xattr(place, &region, 0, &entry, &mut names);
        }
        for entry in region.inline() {
            let (offset, entry) = entry.map_err(Error::corrupt(place))?;
            self.inspect_xattr(place, &region, offset, &entry, &mut names);
        }
        Ok(())
    }

    fn inspect_xattr(
        &self,
        place: Place,
        region: &XattrRegion<'_>,
        offset: usize,
        entry: &XattrEntry<'_>,
        names: &mut HashSet<Vec<u8>>,
    ) {
        let name = entry.name(self.run.image.xattr_prefixes(), offset);
        let Some(Some(name)) = self.run.ok(name.map_err(Error::corrupt(place))) else {
            return;
        };
        let shown = || name.escape_ascii().to_string();
        let excluded = self.run.image.superblock().xattr_filter
            && split_name(&name)
                .is_none_or(|(index, rest)| region.name_filter & filter_bit(index, rest) != 0);
        if excluded {
            self.run
                .note(place, FindingKind::NameFilter { name: shown() });
        }
        if names.contains(&name) {
            self.run
                .note(place, FindingKind::XattrTwice { name: shown() });
        }
        if let Some(what) = values::fault(&name, entry.value) {
            let name = shown();
            self.run.note(place, FindingKind::XattrValue { name, what });
        }
        names.insert(name);
    }

    fn inspect_extents(&mut self, inode: &Inode, map: &Map, range: &Range<u64>) {
        let block = u64::from(self.run.image.superblock().block_bytes());
        let mut at = range.start;
        let mut broken = 0;
        while at < range.end && self.run.spend(EXTENT_WORK_BYTES) {
            match self.run.image.extent_at(inode, map, at) {
                Ok(extent) => {
                    // One that begins before the range belongs to the job of the range before.
                    if extent.offset >= range.start {
                        self.inspect_extent(inode, map, &extent);
                    }
                    at = extent.end();
                }
                Err(error) => {
                    self.run.note_error(error);
                    broken += 1;
                    if broken == BROKEN_EXTENTS_MAX {
                        return;
                    }
                    at = (at / block + 1).saturating_mul(block);
                }
            }
        }
    }

    fn inspect_extent(&mut self, inode: &Inode, map: &Map, extent: &Extent) {
        let place = Place::Data {
            nid: inode.nid,
            offset: extent.offset,
        };
        match extent.source {
            Source::Hole => return self.inspect_hole(inode.nid, place),
            Source::Raw(location) => self.inspect_raw(inode, map, place, location, extent.len),
            Source::Pcluster(pcluster) => self.inspect_pcluster(place, extent, &pcluster),
            Source::Fragment { offset } => {
                let checked = self.run.image.check_fragment(place, offset, extent.len);
                self.run.ok(checked);
            }
        }
        self.run.extents.fetch_add(1, Ordering::Relaxed);
    }

    fn inspect_hole(&self, nid: Nid, place: Place) {
        if self.run.image.is_special(nid) {
            self.run.note_error(Error::Corrupt {
                place,
                fault: Corrupt::SpecialHole,
            });
        }
    }

    fn inspect_raw(
        &mut self,
        inode: &Inode,
        map: &Map,
        place: Place,
        location: Location,
        bytes: u64,
    ) {
        let is_inline = map.inline_location() == Some(location);
        if !self.check_bounds(place, "its data", location, bytes) || is_inline {
            return;
        }
        let what = if inode.chunk_format.is_some() {
            What::Chunk
        } else {
            What::Flat
        };
        self.push(Part {
            location,
            bytes,
            place,
            what,
        });
    }

    fn inspect_pcluster(&mut self, place: Place, extent: &Extent, pcluster: &Pcluster) {
        let bytes = u64::from(pcluster.bytes);
        if let Encoding::Compressed(algorithm) = pcluster.encoding {
            self.run
                .algorithms
                .fetch_or(algorithm_bit(algorithm), Ordering::Relaxed);
            // Whole blocks are written: a tail may well be shorter than the one block that it is compressed to. It may
            // not take more blocks than it would take as it is.
            let block = u64::from(self.run.image.superblock().block_bytes());
            let plain_bytes = extent.len.next_multiple_of(block);
            if bytes > plain_bytes && !pcluster.partial && !pcluster.inline {
                let (offset, len) = (extent.offset, extent.len);
                let fault = Corrupt::Inflated {
                    offset,
                    len,
                    encoded: bytes,
                };
                self.run.note_error(Error::Corrupt { place, fault });
            }
        }
        if !self.check_bounds(place, "its pcluster", pcluster.location, bytes) {
            return;
        }
        let what = What::Encoded(Encoded {
            len: extent.len as u32, // at most 12 MiB
            encoding: pcluster.encoding,
            partial: pcluster.partial,
            inline: pcluster.inline,
        });
        self.push(Part {
            location: pcluster.location,
            bytes,
            place,
            what,
        });
    }

    fn check_bounds(&self, place: Place, what: &'static str, at: Location, bytes: u64) -> bool {
        self.run
            .ok(self.run.image.check_bounds(place, what, at, bytes))
            .is_some()
    }

    fn push(&mut self, part: Part) {
        match self
            .parts
            .last_mut()
            .filter(|before| part.continues(before))
        {
            Some(before) => before.bytes += part.bytes,
            None if part.bytes > 0 => self.push_new(part),
            None => {}
        }
    }

    fn push_new(&mut self, part: Part) {
        if self.parts.len() >= PARTS_MAX {
            self.run.take_parts(&mut self.parts);
        }
        self.parts.push(part);
    }
}
