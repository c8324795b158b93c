//! The order and the pace of reading.

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt;

use anteros_trace::profile::{Hasher, Profile, Range, merge};
use rustix::fs::{Advice, fadvise};

use crate::Directory;

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// The most bytes that one request asks for.
const REQUEST_BYTES_MAX: u64 = 4 << 20;
/// Most bytes of one call for them: the kernel fetches no more at once than the readahead of a file system, 128 KiB by default.
const ASKED_BYTES_MAX: u64 = 128 << 10;
/// Bytes that are asked for ahead of those that are read.
const WINDOW_BYTES: u64 = 16 << 20;
/// Files that are open at a time.
const OPEN_MAX: usize = 256;

/// Numbers of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Warmed {
    /// Bytes that are in memory now.
    pub bytes: u64,
    /// Requests that asked for them.
    pub requests: u64,
    /// Ranges whose content has another digest than the profile says.
    pub changed: u64,
    /// Ranges that could not be read, or not to their end.
    pub failed: u64,
}

/// The ranges that all rounds of a profile have read, or all of them, each byte once.
pub fn core_of(profile: &Profile, all: bool) -> Vec<Range> {
    let profile = merge(std::slice::from_ref(profile));
    let is_wanted = |range: &&Range| all || profile.is_core(range);
    profile.ranges.iter().filter(is_wanted).cloned().collect()
}

/// Returns as much of each range as its file has, and the number of those that have nothing.
pub fn cut(directory: &Directory, ranges: Vec<Range>) -> (Vec<Range>, u64) {
    let mut files = Files::new(directory);
    let mut missing = 0;
    let fitting = ranges.into_iter().filter_map(|range| {
        let size = files
            .find(&range.path)
            .and_then(|file| file.metadata().ok());
        let rest = size.and_then(|size| size.len().checked_sub(range.offset));
        let Some(rest) = rest.filter(|rest| *rest > 0) else {
            missing += 1;
            return None;
        };
        let len = range.len.min(rest);
        Some(Range { len, ..range })
    });
    (fitting.collect(), missing)
}

/// Returns the ranges that so many bytes have room for, and the bytes of the others.
pub fn within_limit(ranges: impl Iterator<Item = Range>, mut room: u64) -> (Vec<Range>, u64) {
    let mut left_out = 0_u64;
    let mut taken = Vec::new();
    for range in ranges {
        if range.len > room {
            left_out = left_out.saturating_add(range.len);
            continue;
        }
        room -= range.len;
        taken.push(range);
    }
    (taken, left_out)
}

/// Half of the memory that the kernel can give without taking it from programs, in bytes; 0 if it does not say.
pub fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024) / 2
}

/// Reads ranges in their order, as long as it is to go on.
pub fn warm(directory: &Directory, ranges: &[Range], goes_on: &dyn Fn() -> bool) -> Warmed {
    let mut warmed = Warmed::default();
    let mut files = Files::new(directory);
    let mut ahead = pieces(ranges).peekable();
    let mut asked = 0_u64;
    let mut read = 0_u64;
    let mut buf = vec![0; PIECE_BYTES as usize];
    let mut hasher = Hasher::default();
    // The last range that failed, of which the rest is not read.
    let mut failed = None;
    for piece in pieces(ranges) {
        if !goes_on() {
            break;
        }
        while asked < read.saturating_add(WINDOW_BYTES) {
            let Some(first) = ahead.next() else { break };
            let mut len = first.len;
            let range = &ranges[first.range];
            while let Some(next) = ahead.next_if(|next| {
                ranges[next.range].path == range.path
                    && next.offset == first.offset + len
                    && len + next.len <= REQUEST_BYTES_MAX
            }) {
                len += next.len;
            }
            asked += len;
            warmed.requests += 1;
            if let Some(file) = files.find(&range.path) {
                ask_for(file, first.offset, len);
            }
        }
        read += piece.len;
        if failed == Some(piece.range) {
            continue;
        }
        let range = &ranges[piece.range];
        let part = &mut buf[..piece.len as usize];
        let file = files.find(&range.path);
        if file.is_none_or(|file| file.read_exact_at(part, piece.offset).is_err()) {
            warmed.failed += 1;
            failed = Some(piece.range);
            hasher = Hasher::default();
            continue;
        }
        warmed.bytes += piece.len;
        hasher.update(part);
        if piece.offset + piece.len == range.end() {
            let digest = std::mem::take(&mut hasher).digest();
            let is_changed = range.digest.is_some_and(|known| known != digest);
            warmed.changed += u64::from(is_changed);
        }
    }
    warmed
}

/// Asks the kernel to fetch a part of a file. What it does not fetch, is fetched when it is read.
fn ask_for(file: &File, offset: u64, len: u64) {
    for start in (offset..offset + len).step_by(ASKED_BYTES_MAX as usize) {
        let step = ASKED_BYTES_MAX.min(offset + len - start);
        let _ = fadvise(file, start, NonZero::new(step), Advice::WillNeed);
    }
}

/// A part of a range that is read at once.
struct Piece {
    /// The number of the range.
    range: usize,
    offset: u64,
    len: u64,
}

/// The pieces of ranges, in order.
fn pieces(ranges: &[Range]) -> impl Iterator<Item = Piece> {
    ranges.iter().enumerate().flat_map(|(number, range)| {
        let starts = (range.offset..range.end()).step_by(PIECE_BYTES as usize);
        starts.map(move |offset| Piece {
            range: number,
            offset,
            len: (range.end() - offset).min(PIECE_BYTES),
        })
    })
}

/// Files that are open.
struct Files<'a> {
    directory: &'a Directory,
    open: HashMap<Vec<u8>, Option<File>>,
}

impl<'a> Files<'a> {
    fn new(directory: &'a Directory) -> Self {
        let open = HashMap::new();
        Self { directory, open }
    }

    fn find(&mut self, path: &[u8]) -> Option<&File> {
        if !self.open.contains_key(path) {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            self.open
                .insert(path.to_vec(), self.directory.find(path).ok());
        }
        self.open.get(path)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn range(path: &str, offset: u64, len: u64) -> Range {
        Range {
            path: path.into(),
            offset,
            len,
            digest: None,
            count: 1,
        }
    }

    #[test]
    fn what_is_there_is_read_and_the_rest_is_counted() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("large"), vec![7; 5 << 20]).unwrap();
        let directory = Directory::open(top.path()).unwrap();
        let ranges = [
            range("large", 0, 3 << 20),
            range("large", 3 << 20, 2 << 20),
            range("large", 4 << 20, 2 << 20),
            range("none", 0, 1),
        ];
        let warmed = warm(&directory, &ranges, &|| true);
        // Of the third one, half is there.
        assert_eq!((warmed.bytes, warmed.failed), (6 << 20, 2));
        assert_eq!(warmed.requests, 4);
        assert_eq!(warm(&directory, &ranges, &|| false), Warmed::default());
    }

    #[test]
    fn ranges_end_with_their_files() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("file"), [7; 100]).unwrap();
        let directory = Directory::open(top.path()).unwrap();
        let ranges = [("file", 40, u64::MAX), ("file", 100, 1), ("none", 0, 9)];
        let ranges = ranges.map(|(path, offset, len)| range(path, offset, len));
        let (fitting, missing) = cut(&directory, ranges.into());
        assert_eq!(missing, 2);
        assert_eq!(fitting, [range("file", 40, 60)]);
    }

    #[test]
    fn ranges_beyond_the_room_are_left_out() {
        let ranges = [range("a", 0, 10), range("b", 0, 30), range("c", 0, 5)];
        let (taken, left_out) = within_limit(ranges.into_iter(), 15);
        assert_eq!((taken.len(), left_out), (2, 30));
    }
}
