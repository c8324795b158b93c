//! The way through a block while neither end is near. This is nearly all of it, so it is written for speed.
//!
//! It finds the same matches as the way near the ends does (`greedy.rs`), and writes the same bytes. What it spares are checks
//! of ends, and branches that cannot be foretold: sixteen bytes are compared at once behind a match and eight before it, and
//! literals are copied in chunks that run over.

use std::ops::Range;

use super::table::{DISTANCE_MAX, Table, reach};
use crate::lz4_block::{LAST_LITERALS, MATCH_MIN, NIBBLE_MAX};
use crate::sequences::{MATCH_START_MARGIN, Writer, common};

/// So many positions that have no match make the steps between them longer by one.
pub(super) const PATIENCE: usize = 64;

/// The longest step: all positions of a search with it reach back to one before the first of them.
pub(super) const STEP_MAX: usize = DISTANCE_MAX / PATIENCE;

/// Bytes behind the first four of a match that are compared at once.
const AHEAD: usize = 16;
/// Bytes that are compared before a match.
const BEFORE: usize = 8;
/// Bytes of a position that are read at once for a hash.
const EIGHT: usize = 8;
/// Bytes that are copied at once.
const COPIED: usize = 16;
/// Bytes that follow the last position that a search may come to.
const MARGIN: usize = 32;
/// Bytes of data that are left behind the literals of each sequence: positions to search, and what is read behind them.
const DATA_MIN: usize = PATIENCE + 1 + MARGIN;
/// Bytes of room that are left for each sequence: a token, literals, lengths, a distance, and what ends the block.
const ROOM_MIN: usize = PATIENCE + 40;
/// A match this much longer than the shortest one takes a second byte of length.
const MORE_MAX: usize = NIBBLE_MAX + 254;

const _: () = assert!(PATIENCE % COPIED == 0 && COPIED >= NIBBLE_MAX);
const _: () = assert!(MARGIN >= EIGHT + MATCH_MIN + LAST_LITERALS);
const _: () = assert!(ROOM_MIN > 1 + PATIENCE + 1 + 2 + 1 + MATCH_START_MARGIN);

/// Four bytes, or more, that are also at another position before.
#[derive(Clone, Copy)]
pub(super) struct Match {
    pub at: usize,
    pub source: usize,
}

/// Tells where the search for the next match goes on.
pub(super) enum Next {
    /// At this position: none before it has a match.
    From(usize),
    /// Here is one.
    Found(Match),
}

/// Writes sequences up to the first one that comes near an end, whose match is long or lies at the front, or that has more
/// than [`PATIENCE`] literals. `behind` is the first byte behind the sequences that have been written.
#[inline(never)]
pub(super) fn write_middle(
    data: &[u8],
    table: &mut Table,
    writer: &mut Writer,
    behind: &mut usize,
) -> Next {
    let data = Data(data);
    let data_end = data.0.len().saturating_sub(DATA_MIN);
    let room_end = writer.out.len().saturating_sub(ROOM_MIN);
    let out = writer.out.as_mut_ptr();
    let (mut literals, mut written) = (*behind, writer.len);
    let next = loop {
        let begin = literals.max(1);
        if literals >= data_end || written >= room_end {
            break Next::From(begin);
        }
        let found = search_near(data.0, table, begin);
        if found.at == begin + PATIENCE {
            break Next::From(found.at);
        }
        if found.source < BEFORE {
            break Next::Found(found);
        }
        let Match { at, source } = found;
        // SAFETY: `at` is one of the positions, `source` lies before it, and `BEFORE` bytes before that.
        let (before, ahead) = unsafe { (data.before(at, source), data.ahead(at, source)) };
        let literals_max = at - literals;
        let back = before.min(literals_max);
        let (end, more) = (at + MATCH_MIN + ahead, ahead + back);
        if end > data_end + PATIENCE || more > MORE_MAX || back == BEFORE {
            break Next::Found(found);
        }
        // SAFETY: the literals are `PATIENCE` at most, and of data and room there is more than that, as was checked above.
        written += unsafe {
            let from = data.0.as_ptr().add(literals);
            let distance = (at - source) as u16;
            write(out.add(written), from, literals_max - back, distance, more)
        };
        for at in visited(at, end) {
            // SAFETY: this lies before `end`, behind which there are `MARGIN` bytes.
            table.put(at, unsafe { data.eight(at) });
        }
        literals = end;
    };
    (*behind, writer.len) = (literals, written);
    next
}

/// [`search`] of the first [`PATIENCE`] positions.
#[inline(never)] // Within its caller the loop lacks registers.
fn search_near(data: &[u8], table: &mut Table, begin: usize) -> Match {
    search(data, table, begin..begin + PATIENCE, 1)
}

/// Returns the first match at one of [`PATIENCE`] positions at most, which lie in a range, so many bytes apart. If there is
/// none, it returns the position that comes next.
///
/// # Panics
///
/// When the range begins at the front or ends less than seven bytes before the end of the data, or the step is longer than
/// [`STEP_MAX`].
#[inline(always)]
pub(super) fn search(data: &[u8], table: &mut Table, range: Range<usize>, step: usize) -> Match {
    assert!(range.start > 0 && range.end + EIGHT <= data.len() + 1 && step <= STEP_MAX);
    let data = Data(data);
    let first = reach(range.start + (PATIENCE - 1) * step);
    let (mut at, mut source) = (range.start, 0);
    while at < range.end {
        // SAFETY: this lies in the range, behind which there are seven bytes, as was just checked.
        let bytes = unsafe { data.eight(at) };
        source = table.visit(at, bytes, first);
        // SAFETY: the table gives no position behind `at`.
        if unsafe { data.four(source) } == bytes as u32 {
            break;
        }
        at += step;
    }
    Match { at, source }
}

/// Returns the positions that come into the table when a match has been written. It was found at `at`, which lies there
/// already, and ends at `end`.
#[inline(always)]
pub(super) fn visited(at: usize, end: usize) -> [usize; 3] {
    [at + 1, end - 2, end - 1]
}

/// Writes a sequence, of which the match is `more` bytes longer than the shortest one; returns the bytes that it takes.
///
/// # Safety
///
/// There are `PATIENCE` literals at most, but so many bytes can be read there and `ROOM_MIN` bytes be written at `to`.
#[inline(always)]
unsafe fn write(
    to: *mut u8,
    from: *const u8,
    literals: usize,
    distance: u16,
    more: usize,
) -> usize {
    let mut len = 1;
    // SAFETY: the caller's; all that is written are `PATIENCE` bytes and five more.
    unsafe {
        to.write((literals.min(NIBBLE_MAX) << 4 | more.min(NIBBLE_MAX)) as u8);
        if literals < NIBBLE_MAX {
            copy(from, to.add(len));
        } else {
            to.add(len).write((literals - NIBBLE_MAX) as u8);
            len += 1;
            for chunk in (0..PATIENCE).step_by(COPIED) {
                copy(from.add(chunk), to.add(len + chunk));
            }
        }
        len += literals;
        to.add(len).cast::<[u8; 2]>().write(distance.to_le_bytes());
        len += 2;
        // This byte counts if there is more than a nibble holds.
        to.add(len).write(more.wrapping_sub(NIBBLE_MAX) as u8);
    }
    len + usize::from(more >= NIBBLE_MAX)
}

/// Copies [`COPIED`] bytes.
///
/// # Safety
///
/// So many can be read and written.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's; an array of bytes needs no alignment.
    unsafe {
        let chunk = from.cast::<[u8; COPIED]>().read();
        to.cast::<[u8; COPIED]>().write(chunk);
    }
}

/// The data of a block, read without checks.
#[derive(Clone, Copy)]
struct Data<'a>(&'a [u8]);

impl Data<'_> {
    /// # Safety
    ///
    /// There are `N` bytes at `at`.
    #[inline(always)]
    unsafe fn read<const N: usize>(self, at: usize) -> [u8; N] {
        debug_assert!(at + N <= self.0.len());
        // SAFETY: the caller's; an array of bytes needs no alignment.
        unsafe { self.0.as_ptr().add(at).cast::<[u8; N]>().read() }
    }

    /// # Safety
    ///
    /// There are four bytes at `at`.
    #[inline(always)]
    unsafe fn four(self, at: usize) -> u32 {
        // SAFETY: the caller's.
        u32::from_le_bytes(unsafe { self.read(at) })
    }

    /// # Safety
    ///
    /// There are eight bytes at `at`.
    #[inline(always)]
    unsafe fn eight(self, at: usize) -> u64 {
        // SAFETY: the caller's.
        u64::from_le_bytes(unsafe { self.read(at) })
    }

    /// Returns how many bytes before both positions are the same, up to [`BEFORE`].
    ///
    /// # Safety
    ///
    /// So many bytes lie before either of them, and both lie in the data.
    #[inline(always)]
    unsafe fn before(self, at: usize, source: usize) -> usize {
        // SAFETY: the caller's.
        let differing = unsafe { self.eight(at - BEFORE) ^ self.eight(source - BEFORE) };
        (differing.leading_zeros() / 8) as usize
    }

    /// Returns how many bytes behind four at both positions are the same, up to the last ones of the data.
    ///
    /// # Safety
    ///
    /// `source` lies before `at`.
    #[inline(always)]
    unsafe fn ahead(self, at: usize, source: usize) -> usize {
        let (mut ahead, mut before) = (at + MATCH_MIN, source + MATCH_MIN);
        while ahead + AHEAD + LAST_LITERALS <= self.0.len() {
            // SAFETY: so many bytes are left, as was just checked, and more of them before.
            let [one, other]: [[u8; AHEAD]; 2] = unsafe { [self.read(ahead), self.read(before)] };
            let differing = u128::from_le_bytes(one) ^ u128::from_le_bytes(other);
            if differing != 0 {
                return ahead + (differing.trailing_zeros() / 8) as usize - at - MATCH_MIN;
            }
            ahead += AHEAD;
            before += AHEAD;
        }
        ahead + self.far_ahead(ahead, before) - at - MATCH_MIN
    }

    /// Returns how many bytes from both positions on are the same, up to the last ones of the data.
    #[inline(never)]
    fn far_ahead(self, at: usize, source: usize) -> usize {
        let data = &self.0[..self.0.len() - LAST_LITERALS];
        common(data, source, at)
    }
}
