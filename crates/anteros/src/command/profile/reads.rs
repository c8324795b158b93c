//! Reads in a record of a mount.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use anteros_trace::profile::{Profile, Round};
use anteros_trace::{Ending, Error, Item, Operation, read};

use crate::failure::{Failure, Kind};
use crate::output;

/// Reads that wait for those that came before them and were answered later.
const WAITING_MAX: usize = 4096;
/// Reads that came so close to each other count in the order of the file: they are parts of one larger read, of which several
/// workers of the daemon took their own at once.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Reads of a record of a mount.
pub struct Reads {
    round: Round,
    /// The reads that were answered last: when they came, file, offset, length. The first is on top.
    waiting: BinaryHeap<Reverse<(u128, u64, u64, u64)>>,
    /// The paths of files, by their numbers.
    paths: HashMap<u64, Vec<u8>>,
    /// Tells how many accesses the record has.
    pub accesses: u64,
    /// Tells whether nothing is missing at its end.
    pub is_whole: bool,
    /// Tells whether its recorder closed it.
    pub is_closed: bool,
}

impl Reads {
    /// Reads a record, but for its first `skipped` accesses. Reads count in the order in which they came, which is not that
    /// of their answers.
    pub fn of(path: &Path, skipped: u64) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| Failure::system(path, &error))?;
        let mut reads = Self {
            round: Round::default(),
            waiting: BinaryHeap::new(),
            paths: HashMap::new(),
            accesses: 0,
            is_whole: true,
            is_closed: false,
        };
        let ending = read(BufReader::new(file), &mut |item| reads.take(item, skipped));
        let (_, ending) = ending.map_err(|error| match error {
            Error::Io(error) => Failure::system(path, &error),
            error => Failure::new(Kind::Corrupt, format_args!("{}: {error}", path.display())),
        })?;
        while reads.note_first() {}
        reads.is_whole = !matches!(ending, Ending::CutShort { .. });
        reads.is_closed = ending == Ending::Closed;
        Ok(reads)
    }

    fn take(&mut self, item: Item<'_>, skipped: u64) {
        match item {
            Item::Access(access) => {
                self.accesses += 1;
                let is_read = access.operation == Operation::Read && access.error == 0;
                if is_read && self.accesses > skipped {
                    let at = access.at.as_nanos() / AT_ONCE.as_nanos();
                    let read = (at, access.file, access.offset, access.len);
                    self.waiting.push(Reverse(read));
                }
                if self.waiting.len() > WAITING_MAX {
                    self.note_first();
                }
            }
            Item::File { number, path, .. } if !path.is_empty() => {
                self.paths.insert(number, path.to_vec());
            }
            _ => {}
        }
    }

    /// Notes the first read that waits, if there is one.
    fn note_first(&mut self) -> bool {
        let first = self.waiting.pop();
        if let Some(Reverse((_, file, offset, len))) = first {
            self.round.note(file, offset, len);
        }
        first.is_some()
    }

    /// A profile of the reads, of files whose names are known.
    pub fn profile(&self) -> Profile {
        tell_dropped(&self.round);
        let path = |file| self.paths.get(&file).map(Vec::as_slice);
        self.round.profile(path)
    }
}

/// Tells of reads that there was no room for.
pub fn tell_dropped(round: &Round) {
    if round.dropped() > 0 {
        let text = format!(
            "{} reads are left out, for which a profile has no room",
            output::count(round.dropped())
        );
        output::complain("warning", text);
    }
}
