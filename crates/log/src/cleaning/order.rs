//! Windows of files to be compressed in the background, in the order in which launches read them.

use std::ops::Range;

use anteros_trace::profile;

use crate::cleaning::launches::{BlockReads, FileReads, Mark, ORDERS_TOGETHER};
use crate::compress::chunks::CHUNK_BLOCKS_MAX;

/// Logical blocks that are worth a request.
const TOGETHER_LEAST: usize = 32;

/// Logical blocks that follow each other, and are compressed in one piece if they can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) ino: u32,
    pub(crate) range: Range<u32>,
    pub(crate) share: Share,
    /// Logical blocks of those that are used together, from the first one on; 0 if that is not known.
    pub(crate) left: u32,
}

/// An inode, or one of its logical blocks, with its turn in the order of launches.
pub(crate) type Stop = (Turn, u32, Option<u32>);

/// Position of something in the order of launches, as in a profile.
pub(crate) type Turn = profile::Turn<u64>;

impl From<Mark> for Turn {
    fn from(mark: Mark) -> Self {
        Self::new(mark.launches.into(), mark.order)
    }
}

/// Set of launches that read something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Each, or more than one.
    Again,
    /// One of several.
    Once,
    /// None, of which that is known.
    Never,
    /// None so far, but the next ones will be known.
    NotYet,
    /// Nobody knows.
    Unknown,
    /// Nobody knows, but a little of the file is read here and there.
    Sparse,
}

impl Share {
    /// Tells whether launches read it.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Again | Self::Once)
    }
}

/// Orders the windows that launches read. Of neighbouring windows that equally many launches read, the first one decides.
pub(crate) fn launch_windows<'a>(
    files: impl Iterator<Item = &'a (u32, FileReads)>,
    share: Share,
) -> Vec<(Turn, Window)> {
    let mut ordered = Vec::new();
    for (ino, reads) in files {
        let of_core = reads.core.iter().map(|read| (Share::Again, read));
        let of_other = reads.other.iter().map(|read| match read.mark.launches {
            0..=1 => (Share::Once, read),
            _ => (Share::Again, read),
        });
        let of_share = of_core.chain(of_other).filter(|(is, _)| *is == share);
        let mut reads: Vec<_> = of_share.map(|(_, read)| read).collect();
        reads.sort_unstable_by_key(|read| read.lblk);
        let turn = |read: &BlockReads| Turn::from(read.mark);
        for alike in reads.chunk_by(|left, right| turn(left).rareness == turn(right).rareness) {
            let lblks: Vec<u32> = alike.iter().map(|read| read.lblk).collect();
            let mut turns = alike.iter().map(|read| turn(read));
            for window in windows(*ino, &lblks, share) {
                let first = turns.by_ref().take(window.range.len()).min();
                ordered.extend(first.zip(Some(window)));
            }
        }
    }
    ordered.sort_by_key(|(turn, _)| *turn);
    let mut rest = &mut ordered[..];
    while !rest.is_empty() {
        let (together, behind) = rest.split_at_mut(together(rest));
        let mut left = 0;
        for (_, window) in together.iter_mut().rev() {
            left += window.range.len() as u32;
            window.left = left;
        }
        rest = behind;
    }
    ordered
}

/// Number of windows, from the first one on, that are wanted together. These belong to the same launch, or are too little
/// to be read by themselves.
fn together(ordered: &[(Turn, Window)]) -> usize {
    let mut pages = 0;
    let mut pairs = ordered.iter().zip(ordered.iter().skip(1));
    let ends = pairs.position(|((turn, window), (next, _))| {
        pages += window.range.len();
        let is_other = turn.order / ORDERS_TOGETHER != next.order / ORDERS_TOGETHER;
        turn.rareness != next.rareness || is_other && pages >= TOGETHER_LEAST
    });
    ends.map_or(ordered.len(), |at| at + 1)
}

/// The runs of rising numbers, in pieces that a chunk can hold.
fn windows(ino: u32, lblks: &[u32], share: Share) -> impl Iterator<Item = Window> + '_ {
    windows_of(CHUNK_BLOCKS_MAX as usize, ino, lblks, share)
}

/// The runs of rising numbers, in pieces of so many at most.
pub(crate) fn windows_of(
    most: usize,
    ino: u32,
    lblks: &[u32],
    share: Share,
) -> impl Iterator<Item = Window> + '_ {
    let runs = lblks.chunk_by(|left, right| left + 1 == *right);
    let pieces = runs.flat_map(move |run| run.chunks(most));
    pieces.map(move |piece| Window {
        ino,
        range: piece[0]..piece[0] + piece.len() as u32,
        share,
        left: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(ino: u32, range: Range<u32>) -> Window {
        Window {
            ino,
            range,
            share: Share::Again,
            left: 0,
        }
    }

    /// Order, launches and logical block of each.
    fn reads<const N: usize>(all: [(u64, u8, u32); N]) -> Vec<BlockReads> {
        let read = |(order, launches, lblk)| BlockReads {
            mark: Mark { order, launches },
            lblk,
        };
        all.map(read).into()
    }

    #[test]
    fn what_launches_read_lies_in_the_order_of_the_first_read_and_neighbours_together() {
        let one = FileReads {
            core: reads([(5, 2, 10), (9, 2, 11), (1, 2, 40), (7, 2, 12)]),
            other: reads([(12, 1, 3), (10, 1, 4), (2, 1, 9)]),
            ..FileReads::default()
        };
        let two = FileReads {
            core: reads([(3, 3, 0)]),
            ..FileReads::default()
        };
        let files = [(7, one), (8, two)];
        let found = |share| {
            let windows = launch_windows(files.iter(), share).into_iter();
            let windows = windows.map(|(turn, window)| (turn.order, window.ino, window.range));
            windows.collect::<Vec<_>>()
        };
        let expected = [(1, 7, 40..41), (3, 8, 0..1), (5, 7, 10..13)];
        assert_eq!(found(Share::Again), expected);
        assert_eq!(found(Share::Once), [(2, 7, 9..10), (10, 7, 3..5)]);
    }

    #[test]
    fn what_most_launches_read_comes_first() {
        let library = FileReads {
            core: reads([(90, 12, 0), (91, 12, 1)]),
            other: reads([(10, 3, 2), (95, 7, 3), (40, 6, 4), (11, 1, 9)]),
            ..FileReads::default()
        };
        let program = FileReads {
            core: reads([(9, 3, 0)]),
            ..FileReads::default()
        };
        let files = [(7, library), (8, program)];
        let windows = launch_windows(files.iter(), Share::Again);
        let windows: Vec<_> = windows.into_iter().map(|(_, window)| window).collect();
        let expected = [(7, 0..2, 2), (7, 3..5, 2), (8, 0..1, 2), (7, 2..3, 1)];
        let window = |(ino, range, left)| Window {
            left,
            ..window(ino, range)
        };
        assert_eq!(windows, expected.map(window));
    }

    #[test]
    fn what_was_started_together_is_counted() {
        let later = ORDERS_TOGETHER;
        let many = (0..30).map(|at| (9 + u64::from(at), 3, 2 * at));
        let many: Vec<_> = many.flat_map(|read| reads([read])).collect();
        let rest = reads([(later, 3, 72), (later + 1, 3, 74), (2 * later, 3, 76)]);
        let program = FileReads {
            core: [many, rest].concat(),
            other: reads([(11, 2, 79), (12, 4, 81)]),
            ..FileReads::default()
        };
        let windows = launch_windows([(7, program)].iter(), Share::Again);
        let left = windows.iter().map(|(_, window)| window.left);
        // What four launches read, then two or three: 31 at first, which is too little, so what was read later comes along.
        let expected = [1].into_iter().chain((1..=33).rev()).chain([1]);
        assert!(left.clone().eq(expected), "{:?}", left.collect::<Vec<_>>());
    }

    #[test]
    fn no_window_is_longer_than_a_chunk() {
        let lblks: Vec<u32> = (100..170).collect();
        let found: Vec<_> = windows(1, &lblks, Share::Again).collect();
        let expected = [100..132, 132..164, 164..170].map(|range| window(1, range));
        assert_eq!(found, expected);
    }
}
