//! Hot data: decoded when the image is mounted, and kept (EROFS paper, §6).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use anteros_core::{FileKind, Ino};
use anteros_format::inode::Inode;
use anteros_trace::profile::{Profile, Range};

use crate::serve::memory::{Buffer, Lease};
use crate::serve::sizes::PAGE_BYTES;
use crate::{Error, Image, Map, Result};

/// Holds what was pinned.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct PinReport {
    /// Bytes that are pinned.
    pub bytes: u64,
    /// The most that could be.
    pub bytes_max: u64,
    /// Ranges of the profile that are pinned, at least in part.
    pub ranges: usize,
    /// Ranges that the budget left no room for.
    pub left_out: usize,
    /// Paths of the profile that are no files of the image, with the reason.
    pub missing: Vec<(Vec<u8>, String)>,
}

/// Pinned content.
#[derive(Default)]
pub(crate) struct Pins {
    files: HashMap<Ino, PinnedFile>,
}

enum PinnedFile {
    /// Ranges in the order of their offsets, which do not overlap.
    Ranges(Vec<Pin>),
    /// All of the file, in a file of the operating system.
    Whole(std::fs::File),
}

struct Pin {
    offset: u64,
    data: Buffer,
}

impl Pins {
    /// Fills the front of `buf` with what lies at `offset`, if that is pinned; else says where the
    /// next pinned byte is, if there is one.
    pub(crate) fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> io::Result<Pinned> {
        let ranges = match self.files.get(&ino) {
            None => return Ok(Pinned::Nothing),
            Some(PinnedFile::Whole(file)) => {
                return Ok(Pinned::Bytes(file.read_at(buf, offset)?));
            }
            Some(PinnedFile::Ranges(ranges)) => ranges,
        };
        let next = ranges.partition_point(|pin| pin.end() <= offset);
        Ok(match ranges.get(next) {
            None => Pinned::Nothing,
            Some(pin) if pin.offset > offset => Pinned::From(pin.offset),
            Some(pin) => {
                let data = &pin.data[(offset - pin.offset) as usize..];
                let count = data.len().min(buf.len());
                buf[..count].copy_from_slice(&data[..count]);
                Pinned::Bytes(count)
            }
        })
    }

    /// The file that holds all of `ino`.
    pub(crate) fn whole(&self, ino: Ino) -> Option<BorrowedFd<'_>> {
        match self.files.get(&ino)? {
            PinnedFile::Whole(file) => Some(file.as_fd()),
            PinnedFile::Ranges(_) => None,
        }
    }

    /// Returns whether any file is there as a whole.
    pub(crate) fn has_whole(&self) -> bool {
        let is_whole = |file: &PinnedFile| matches!(file, PinnedFile::Whole(_));
        self.files.values().any(is_whole)
    }

    /// The first bytes of a range that are not pinned.
    fn gap(&self, ino: Ino, offset: u64, end: u64) -> Option<(u64, u64)> {
        let ranges = match self.files.get(&ino) {
            None => return (offset < end).then_some((offset, end)),
            Some(PinnedFile::Whole(_)) => return None,
            Some(PinnedFile::Ranges(ranges)) => ranges,
        };
        let mut start = offset;
        for pin in ranges.iter().filter(|pin| pin.end() > offset) {
            if pin.offset > start {
                return Some((start, end.min(pin.offset)));
            }
            start = pin.end();
        }
        (start < end).then_some((start, end))
    }

    fn put(&mut self, ino: Ino, pin: Pin) {
        let file = self.files.entry(ino);
        let file = file.or_insert_with(|| PinnedFile::Ranges(Vec::new()));
        if let PinnedFile::Ranges(ranges) = file {
            let at = ranges.partition_point(|other| other.offset < pin.offset);
            ranges.insert(at, pin);
        }
    }
}

/// Tells what is pinned at an offset.
pub(crate) enum Pinned {
    /// So many bytes, which were copied; 0 at the end of the file.
    Bytes(usize),
    /// Nothing up to this offset.
    From(u64),
    /// Nothing from here on.
    Nothing,
}

impl Pin {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// Decodes the hottest ranges of a profile, the most often read first, until `bytes_max` are pinned or
/// reading needs what memory is left. `ino` gives the inode number of a node id.
pub(crate) fn pin(
    image: &Image,
    ino: impl Fn(&Inode) -> Ino,
    profile: &Profile,
    bytes_max: usize,
) -> (Pins, PinReport) {
    let mut pins = Pins::default();
    let spare = image.spare_memory();
    let mut report = PinReport {
        bytes_max: bytes_max.min(spare) as u64,
        ..PinReport::default()
    };
    let mut ranges: Vec<&Range> = profile.ranges.iter().collect();
    ranges.sort_by_key(|range| (std::cmp::Reverse(range.count), range.len));
    for range in ranges {
        let found = find(image, &range.path)
            .and_then(|inode| pin_range(image, ino(&inode), &inode, range, &mut pins, &mut report));
        match found {
            Ok(true) => report.ranges += 1,
            Ok(false) => report.left_out += 1,
            Err(error) => report.missing.push((range.path.clone(), error.to_string())),
        }
    }
    (pins, report)
}

/// The regular file at a path.
fn find(image: &Image, path: &[u8]) -> Result<Inode> {
    let inode = image.find(path)?;
    match inode.kind {
        FileKind::Regular => Ok(inode),
        _ => Err(Error::NotFound),
    }
}

/// Pins what is not pinned yet of a range, by whole pages, as readers ask for them; `false` if there is
/// no room for it.
fn pin_range(
    image: &Image,
    ino: Ino,
    inode: &Inode,
    range: &Range,
    pins: &mut Pins,
    report: &mut PinReport,
) -> Result<bool> {
    let map = image.map(inode)?;
    let start = range.offset / PAGE_BYTES * PAGE_BYTES;
    let end = range.end();
    let end = end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end);
    let end = end.min(inode.size);
    let room = |report: &PinReport| report.bytes_max - report.bytes;
    if start == 0 && end == inode.size && end > 0 && !pins.files.contains_key(&ino) {
        let Some(lease) = lease(image, end, room(report)) else {
            return Ok(false);
        };
        let file = memory_file(image, inode, &map)?;
        lease.set_aside();
        pins.files.insert(ino, PinnedFile::Whole(file));
        report.bytes += end;
        return Ok(true);
    }
    while let Some((from, to)) = pins.gap(ino, start, end) {
        let Some(lease) = lease(image, to - from, room(report)) else {
            return Ok(false);
        };
        let pin = read_pin(image, inode, &map, from, to)?;
        lease.set_aside();
        pins.put(ino, pin);
        report.bytes += to - from;
    }
    Ok(true)
}

fn lease(image: &Image, bytes: u64, room: u64) -> Option<Lease> {
    let bytes = usize::try_from(bytes).ok().filter(|&b| b as u64 <= room)?;
    image.serve.try_lease(bytes)
}

fn read_pin(image: &Image, inode: &Inode, map: &Map, from: u64, to: u64) -> Result<Pin> {
    let place = crate::Place::Data {
        nid: inode.nid,
        offset: from,
    };
    let data = Buffer::new((to - from) as usize);
    let mut data = data.map_err(|error| image.no_memory(place, error))?;
    image.read_exact(inode, map, from, &mut data)?;
    Ok(Pin { offset: from, data })
}

/// Decodes all of a file into a file that lives in memory.
fn memory_file(image: &Image, inode: &Inode, map: &Map) -> Result<std::fs::File> {
    const PIECE: usize = 128 << 10;
    let place = crate::Place::Inode(inode.nid);
    let failed = |error| image.no_memory(place, error);
    let file = new_memory_file().map_err(failed)?;
    let mut piece = vec![0; PIECE];
    let mut offset = 0;
    while offset < inode.size {
        let count = image.read(inode, map, offset, &mut piece)?;
        file.write_all_at(&piece[..count], offset).map_err(failed)?;
        offset += count as u64;
    }
    Ok(file)
}

fn new_memory_file() -> io::Result<std::fs::File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::memfd_create(c"anteros-pinned", flags)?;
    Ok(file.into())
}
