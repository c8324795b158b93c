//! Files that are packed as a whole, written in the order in which they are packed.
//!
//! The files of one directory may lie in many extents of the packed inode. Where these are large, a
//! walk would have each decoded many times, and its workers would wait for each other. So the walk
//! only creates such files, closes them, and notes where they are packed. When there are enough
//! notes, and at the end, it sorts them by extent. One worker decodes an extent, and writes all that
//! files have of it.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anteros_format::Nid;
use anteros_format::inode::Inode;
use rustix::fs::{Mode, OFlags};

use super::problem::{ExtractProblem, os};
use super::run::{Created, OpenFile, Run};
use crate::host::descent::{Identity, identity, open_below};
use crate::parts::PartReader;
use crate::trail::Trail;
use crate::{Extent, Image, Place, Reader, Source};

/// Notes that are kept before they are sorted. Each takes some 150 bytes.
const NOTES_MAX: usize = 32 << 10;

/// Longer files are not noted: as any large file, they are written in parts.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// A file that was created and closed, and waits for its data.
pub(super) struct Note {
    /// Its first byte in the packed inode.
    start: u64,
    size: u64,
    nid: Nid,
    identity: Identity,
    trail: Arc<Trail>,
    inherits_acl: bool,
}

/// Holds what was noted.
pub(super) struct Notes {
    notes: Vec<Note>,
    /// 0 if nothing is noted.
    notes_max: usize,
}

/// All that is wanted of an extent of the packed inode.
pub(super) struct PackedJob {
    /// `None` if it cannot be found out.
    extent: Option<Extent>,
    shares: Vec<Share>,
}

/// Bytes of a file that lie in one extent.
struct Share {
    file: Noted,
    /// Their place in the packed inode.
    packed: Range<u64>,
    /// Their place in the file.
    offset: u64,
}

/// A file of a share.
enum Noted {
    /// One that lies in this extent alone.
    Closed(Note),
    /// One that lies in several, for which it was opened.
    Open(Arc<OpenFile>),
}

impl Note {
    const fn packed(&self) -> Range<u64> {
        self.start..self.start + self.size
    }
}

impl Notes {
    /// Takes notes of an image for which that is of use.
    pub(super) fn new(image: &Image) -> Self {
        let notes_max = match image.packs_large_extents() {
            true => NOTES_MAX,
            false => 0,
        };
        Self::with_max(notes_max)
    }

    /// Takes so many notes at a time.
    pub(super) const fn with_max(notes_max: usize) -> Self {
        Self {
            notes: Vec::new(),
            notes_max,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.notes.len() >= self.notes_max
    }

    /// Returns where in the packed inode a file lies, if it is one to be noted. Of what is broken, the
    /// error comes when the file is read.
    pub(super) fn place_of(&self, image: &Image, inode: &Inode) -> Option<u64> {
        if self.notes_max == 0 || !(1..=FILE_BYTES_MAX).contains(&inode.size) {
            return None;
        }
        let map = image.map(inode).ok()?;
        let extent = image.extent_at(inode, &map, 0).ok()?;
        let Source::Fragment { offset } = extent.source else {
            return None;
        };
        let place = Place::Data {
            nid: inode.nid,
            offset: 0,
        };
        let is_there = image.check_fragment(place, offset, inode.size).is_ok();
        (is_there && extent.len == inode.size).then_some(offset)
    }

    /// Notes a file that lies at `start` of the packed inode, and closes it.
    pub(super) fn push(&mut self, start: u64, created: Created<'_>) -> Result<(), ExtractProblem> {
        let stat = rustix::fs::fstat(&created.fd).map_err(os("ask for its state"))?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        if !mode.contains(Mode::WUSR) {
            // It is opened once more.
            rustix::fs::fchmod(&created.fd, mode | Mode::WUSR).map_err(os("set its mode"))?;
        }
        self.notes.push(Note {
            start,
            size: created.inode.size,
            nid: created.inode.nid,
            identity: identity(&stat),
            trail: created.trail.clone(),
            inherits_acl: created.inherits_acl,
        });
        Ok(())
    }

    /// Sorts the notes by extent, and forgets them. Files that lie in several extents are opened, so
    /// many of one extent at the most; further ones are read by themselves.
    pub(super) fn sort(
        &mut self,
        run: &Run<'_>,
        open_max: usize,
        mut hand_over: impl FnMut(PackedJob),
    ) {
        self.notes.sort_by_key(|note| (note.start, note.nid));
        let mut notes = std::mem::take(&mut self.notes).into_iter().peekable();
        let mut shares: Vec<Share> = Vec::new();
        while !run.stopped() {
            let first = shares.first().map(|share| share.packed.start);
            let Some(at) = first.or_else(|| notes.peek().map(|note| note.start)) else {
                return;
            };
            let extent = run.image.packed_extent_at(at);
            let end = extent.map_or(at + 1, |extent| extent.end());
            let mut opened = shares.len();
            while let Some(note) = notes.next_if(|note| note.start < end) {
                let is_inside = note.start + note.size <= end;
                if is_inside || extent.is_none() {
                    shares.push(Share::whole(note));
                } else if opened < open_max {
                    opened += 1;
                    shares.extend(run.reopen(note).map(Share::open));
                } else {
                    hand_over(PackedJob::alone(note));
                }
            }
            let rest = extent.map(|_| shares.iter_mut().filter_map(|share| share.cut(end)));
            let rest = rest.into_iter().flatten().collect();
            hand_over(PackedJob { extent, shares });
            shares = rest;
        }
    }
}

impl PackedJob {
    /// A file that is read without regard to others.
    fn alone(note: Note) -> Self {
        Self {
            extent: None,
            shares: vec![Share::whole(note)],
        }
    }
}

impl Share {
    /// All of a file that stays closed.
    const fn whole(note: Note) -> Self {
        Self {
            packed: note.packed(),
            file: Noted::Closed(note),
            offset: 0,
        }
    }

    /// All of a file that was opened.
    fn open((file, packed): (Arc<OpenFile>, Range<u64>)) -> Self {
        Self {
            file: Noted::Open(file),
            packed,
            offset: 0,
        }
    }

    /// Cuts off what lies behind `end`.
    fn cut(&mut self, end: u64) -> Option<Self> {
        let Noted::Open(file) = &self.file else {
            return None;
        };
        if self.packed.end <= end {
            return None;
        }
        let packed = end..self.packed.end;
        let len = end - self.packed.start;
        self.packed.end = end;
        Some(Self {
            file: Noted::Open(file.clone()),
            packed,
            offset: self.offset + len,
        })
    }
}

impl Run<'_> {
    /// Writes what files have of an extent.
    pub(super) fn unpack(
        &self,
        decoder: &mut Reader<'_>,
        reader: &mut PartReader<'_>,
        job: PackedJob,
    ) {
        let PackedJob { extent, shares } = job;
        let decoded = extent.and_then(|extent| {
            let bytes = decoder.packed_extent(&extent)?;
            Some((extent.offset, bytes))
        });
        for share in shares {
            if self.stopped() {
                return;
            }
            self.write_share(reader, share, decoded);
        }
    }

    /// Writes what a file has of the bytes that were decoded, and of which the place in the packed inode
    /// is given; without these, by reading, so that each file has its own error.
    fn write_share(
        &self,
        reader: &mut PartReader<'_>,
        share: Share,
        decoded: Option<(u64, &[u8])>,
    ) {
        let Share { packed, offset, .. } = share;
        let file = match share.file {
            Noted::Open(file) => file,
            Noted::Closed(note) => match self.reopen(note) {
                Some((file, _)) => file,
                None => return,
            },
        };
        // Of a file that is broken, one error is told.
        if file.parts_failed.load(Ordering::Relaxed) > 0 {
            return;
        }
        let written = match decoded {
            Some((start, bytes)) => {
                let (from, to) = (packed.start - start, packed.end - start);
                self.put(&file, offset, &bytes[from as usize..to as usize])
            }
            None => self.write(reader, &file, offset..offset + (packed.end - packed.start)),
        };
        self.note(&file, written);
        self.let_go(file);
    }

    /// Opens a file that was noted, and says where it is packed. An error is one of that file.
    fn reopen(&self, note: Note) -> Option<(Arc<OpenFile>, Range<u64>)> {
        let (trail, packed) = (note.trail.clone(), note.packed());
        match self.try_reopen(note) {
            Ok(file) => Some((Arc::new(file), packed)),
            Err(problem) => {
                self.fail(&trail, problem);
                None
            }
        }
    }

    fn try_reopen(&self, note: Note) -> Result<OpenFile, ExtractProblem> {
        let above = note.trail.parent.as_ref().ok_or(ExtractProblem::Name)?;
        let dir = open_below(self.root.as_fd(), above).map_err(os("open its directory again"))?;
        // Somebody may have put a pipe there.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&dir, &*note.trail.name, flags, Mode::empty())
            .map_err(os("open it again"))?;
        let stat = rustix::fs::fstat(&fd).map_err(os("ask for its state"))?;
        if identity(&stat) != note.identity {
            return Err(ExtractProblem::Exchanged);
        }
        Ok(OpenFile {
            fd,
            inode: self.image.inode(note.nid)?,
            trail: note.trail,
            inherits_acl: note.inherits_acl,
            parts_failed: AtomicU32::new(0),
        })
    }
}
