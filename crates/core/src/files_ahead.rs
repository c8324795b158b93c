//! Files that whoever reads a tree will ask for next.
//!
//! A walk lists a directory with the attributes of its files, and reads one file after the other in the order of the
//! listing. What it reads next is known then, and can be had ready before it asks. It reads that without asking at all, so
//! what is had ready is bounded, and the next file that it does ask for tells that it came so far.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use crate::{Ino, unpoisoned};

/// So many files are remembered as they were listed.
const LISTED_MAX: usize = 1024;

/// So many files in order make a walk.
const FILES_MIN: u32 = 3;

/// Several readers that share a listing come to its files in nearly this order: so far apart at the most.
const NEAR: u64 = 8;

/// Bounds what is read ahead at a time, which doubles as long as the walk goes on.
const WINDOW_MIN: u64 = 64 << 10;
const WINDOW_MAX: u64 = 1 << 20;

/// Files of directories that were listed lately, and those among them that a walk has come by.
#[derive(Default)]
pub struct FilesAhead(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order of the listing, from the one with the number `front` on.
    listed: VecDeque<Listed>,
    front: u64,
    numbers: HashMap<Ino, u64>,
    /// The number of the first file of the last listing.
    listing: u64,
    /// Files that were read in order.
    files: u32,
    window: u64,
}

struct Listed {
    ino: Ino,
    bytes: u64,
    /// The number of the first file of its listing.
    first: u64,
    /// The number behind the last file that somebody has asked for, kept in the first one of the listing.
    farthest: u64,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Listed,
    /// It is to be read ahead.
    Wanted,
    /// It is kept where it is read without being asked for.
    Taken,
    /// Somebody asked for it.
    Read,
}

impl FilesAhead {
    /// Files up to this length are read ahead. The kernel asks for longer ones in several pieces, and ahead of their reader.
    pub const FILE_BYTES_MAX: u64 = 64 << 10;

    /// The most memory that it takes to read files ahead: for those that are listed, whose map has up to twice the room, and
    /// for one that is read.
    pub const MEMORY_BYTES: usize = LISTED_MAX
        * (size_of::<Listed>() + 2 * size_of::<(Ino, u64)>())
        + Self::FILE_BYTES_MAX as usize;

    /// Begins a listing.
    pub fn begin(&self) {
        let mut state = unpoisoned(self.0.lock());
        state.listing = state.end();
    }

    /// Notes a file of the listing whose attributes the kernel is given.
    pub fn list(&self, ino: Ino, bytes: u64) {
        unpoisoned(self.0.lock()).list(ino, bytes);
    }

    /// Notes that somebody asked for the beginning of a file; returns the files to be read ahead now.
    pub fn read(&self, ino: Ino) -> Vec<Ino> {
        let mut state = unpoisoned(self.0.lock());
        match state.goes_on(ino) {
            Some((number, true)) => return state.want_behind(number),
            Some((_, false)) => {}
            None => state.stop(),
        }
        Vec::new()
    }

    /// Returns whether a file is still to be read ahead: nobody has asked for it meanwhile.
    pub fn is_wanted(&self, ino: Ino) -> bool {
        self.is(ino, Progress::Wanted)
    }

    /// Returns whether a file was read ahead and is kept: whoever reads it need not ask for it.
    pub fn is_taken(&self, ino: Ino) -> bool {
        self.is(ino, Progress::Taken)
    }

    fn is(&self, ino: Ino, progress: Progress) -> bool {
        let mut state = unpoisoned(self.0.lock());
        let file = state.find(ino);
        file.is_some_and(|(_, file)| file.progress == progress)
    }

    /// Notes whether somebody keeps a file that was read ahead.
    pub fn taken(&self, ino: Ino, is_taken: bool) {
        let mut state = unpoisoned(self.0.lock());
        match state.find(ino) {
            Some((_, file)) if is_taken => file.taken(),
            _ => state.stop(),
        }
    }
}

impl State {
    fn end(&self) -> u64 {
        self.front + self.listed.len() as u64
    }

    fn list(&mut self, ino: Ino, bytes: u64) {
        if self.listed.len() == LISTED_MAX {
            // Whoever reads a long listing begins with its first files.
            if self.listing <= self.front {
                return;
            }
            self.forget_one();
        }
        let number = self.end();
        self.numbers.insert(ino, number);
        self.listed.push_back(Listed {
            ino,
            bytes,
            first: self.listing.max(self.front),
            farthest: 0,
            progress: Progress::Listed,
        });
    }

    fn forget_one(&mut self) {
        if let Some(file) = self.listed.pop_front() {
            // It may have been listed again since.
            if self.numbers.get(&file.ino) == Some(&self.front) {
                self.numbers.remove(&file.ino);
            }
            self.front += 1;
        }
    }

    fn find(&mut self, ino: Ino) -> Option<(u64, &mut Listed)> {
        let number = *self.numbers.get(&ino)?;
        Some((number, self.at(number)?))
    }

    fn at(&mut self, number: u64) -> Option<&mut Listed> {
        let index = number.checked_sub(self.front)?;
        self.listed.get_mut(usize::try_from(index).ok()?)
    }

    /// Notes that a file is read. Returns its number if a walk would have come to it now, and whether it is the farthest.
    fn goes_on(&mut self, ino: Ino) -> Option<(u64, bool)> {
        let (number, file) = self.find(ino)?;
        let before = std::mem::replace(&mut file.progress, Progress::Read);
        let first = file.first;
        let listing = self.at(first)?;
        let farthest = listing.farthest.max(first);
        listing.farthest = farthest.max(number + 1);
        let goes_on = match number < farthest {
            true => number + NEAR >= farthest,
            false => self.is_reached(first, number),
        };
        // Whoever asks for what is taken had no room for it.
        (goes_on && before != Progress::Taken).then_some((number, number >= farthest))
    }

    /// Returns whether a walk came by one of the last files before a number, or there are none that it has to ask for.
    fn is_reached(&mut self, first: u64, number: u64) -> bool {
        let passed = |number| {
            let file = self.at(number)?;
            let is_passed = file.progress != Progress::Listed;
            (is_passed || file.is_small()).then_some(is_passed)
        };
        let before = (first..number).rev().filter_map(passed);
        let mut before = before.take(NEAR as usize).peekable();
        before.peek().is_none() || before.any(|is_passed| is_passed)
    }

    /// Chooses the files behind one that was read in order.
    fn want_behind(&mut self, number: u64) -> Vec<Ino> {
        self.files = self.files.saturating_add(1);
        if self.files < FILES_MIN {
            return Vec::new();
        }
        self.window = (2 * self.window).clamp(WINDOW_MIN, WINDOW_MAX);
        let mut left = self.window;
        let first = self.at(number).map(|file| file.first);
        let passed = number + 1 - self.front;
        let behind = self.listed.iter_mut().skip(passed as usize);
        let behind = behind.take_while(|file| {
            left = left.saturating_sub(file.bytes);
            Some(file.first) == first && left > 0
        });
        let wanted = behind.filter(|file| file.progress == Progress::Listed && file.is_small());
        wanted
            .map(|file| {
                file.progress = Progress::Wanted;
                file.ino
            })
            .collect()
    }

    fn stop(&mut self) {
        (self.files, self.window) = (0, 0);
    }
}

impl Listed {
    fn taken(&mut self) {
        if self.progress == Progress::Wanted {
            self.progress = Progress::Taken;
        }
    }

    const fn is_small(&self) -> bool {
        0 < self.bytes && self.bytes <= FilesAhead::FILE_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists files of 10 KB with these numbers, in a directory of their own.
    fn list(ahead: &FilesAhead, files: std::ops::Range<u64>) {
        ahead.begin();
        files.for_each(|ino| ahead.list(Ino(ino), 10_000));
    }

    /// Reads files in order that somebody keeps as soon as they are wanted; returns how many were asked for.
    fn walk(ahead: &FilesAhead, files: impl IntoIterator<Item = u64>) -> usize {
        let mut taken = Vec::new();
        let mut asked = 0;
        for ino in files.into_iter().map(Ino) {
            if !taken.contains(&ino) {
                asked += 1;
                let wanted = ahead.read(ino);
                wanted.iter().for_each(|&ino| ahead.taken(ino, true));
                taken.extend(wanted);
            }
        }
        asked
    }

    #[test]
    fn a_walk_asks_for_few_files_of_a_directory_and_of_the_next_ones() {
        let ahead = FilesAhead::default();
        list(&ahead, 0..1000);
        // Three, and then one for each window: 64 KiB and twice that each time, to 1 MiB.
        assert_eq!(walk(&ahead, 0..1000), 3 + 12);
        for directory in 1..100 {
            let files = 10_000 * directory..10_000 * directory + 50;
            list(&ahead, files.clone());
            assert_eq!(walk(&ahead, files), 1);
        }
    }

    #[test]
    fn a_directory_goes_on_behind_one_in_it() {
        let ahead = FilesAhead::default();
        list(&ahead, 0..20);
        assert_eq!(walk(&ahead, 0..2), 2);
        list(&ahead, 100..102);
        assert_eq!(walk(&ahead, 100..102), 1);
        let wanted = ahead.read(Ino(2));
        assert_eq!(wanted, (3..16).map(Ino).collect::<Vec<_>>());
    }

    #[test]
    fn readers_that_share_a_listing_are_one_walk() {
        for readers in 2..=4 {
            let ahead = FilesAhead::default();
            list(&ahead, 0..1000);
            let order: Vec<u64> = (0..1000).collect();
            let order = order.chunks(readers).flat_map(|files| files.iter().rev());
            let asked = walk(&ahead, order.copied());
            assert!(asked < 100, "{readers}: {asked}");
        }
    }

    #[test]
    fn files_here_and_there_have_nothing_read_ahead() {
        let ahead = FilesAhead::default();
        assert!(ahead.read(Ino(7)).is_empty(), "not listed");
        list(&ahead, 0..1000);
        for index in 0..1000 {
            assert!(ahead.read(Ino(index * 367 % 1000)).is_empty());
        }
    }

    #[test]
    fn what_somebody_asked_for_meanwhile_is_not_read_ahead() {
        let ahead = FilesAhead::default();
        list(&ahead, 0..10);
        (0..2).for_each(|ino| drop(ahead.read(Ino(ino))));
        let wanted = ahead.read(Ino(2));
        assert_eq!(wanted[0], Ino(3));
        assert!(ahead.is_wanted(Ino(3)) && ahead.is_wanted(Ino(4)));
        ahead.read(Ino(3));
        assert!(!ahead.is_wanted(Ino(3)) && ahead.is_wanted(Ino(4)));
        ahead.taken(Ino(4), true);
        assert!(!ahead.is_wanted(Ino(4)));
    }

    #[test]
    fn a_walk_ends_where_nobody_keeps_files() {
        for is_asked_again in [true, false] {
            let ahead = FilesAhead::default();
            list(&ahead, 0..1000);
            walk(&ahead, 0..3);
            match is_asked_again {
                true => assert!(ahead.read(Ino(3)).is_empty()),
                false => ahead.taken(Ino(4), false),
            }
            assert!(ahead.read(Ino(9)).is_empty());
        }
    }

    #[test]
    fn long_and_empty_files_are_passed_over() {
        let ahead = FilesAhead::default();
        ahead.begin();
        let lengths = [
            5,
            0,
            FilesAhead::FILE_BYTES_MAX + 1,
            5,
            u64::MAX,
            0,
            5,
            FilesAhead::FILE_BYTES_MAX,
            5,
        ];
        (0..)
            .zip(lengths)
            .for_each(|(ino, bytes)| ahead.list(Ino(ino), bytes));
        assert!(ahead.read(Ino(0)).is_empty());
        assert!(ahead.read(Ino(3)).is_empty());
        assert!(ahead.read(Ino(6)).is_empty(), "the window is too small");
        assert_eq!(ahead.read(Ino(7)), [Ino(8)]);
    }

    #[test]
    fn the_first_files_of_a_long_listing_are_remembered_and_old_listings_are_not() {
        let ahead = FilesAhead::default();
        list(&ahead, 1_000_000..1_000_100);
        list(&ahead, 0..10_000);
        assert_eq!(unpoisoned(ahead.0.lock()).numbers.len(), LISTED_MAX);
        walk(&ahead, 0..2);
        assert!(!ahead.read(Ino(2)).is_empty());
        assert!(ahead.read(Ino(1_000_000)).is_empty());
        list(&ahead, 20_000..20_010);
        let state = unpoisoned(ahead.0.lock());
        assert_eq!(
            (state.numbers.len(), state.listed.len()),
            (LISTED_MAX, LISTED_MAX)
        );
    }

    #[test]
    fn a_file_that_is_listed_twice_is_the_later_one() {
        let ahead = FilesAhead::default();
        (0..200).for_each(|_| list(&ahead, 0..10));
        assert_eq!(unpoisoned(ahead.0.lock()).numbers.len(), 10);
        assert_eq!(walk(&ahead, 0..10), 3 + 1);
    }
}
