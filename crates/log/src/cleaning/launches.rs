//! Blocks of files that programs read when they start (FPC, 3.3.2, has those of executables), and which inodes they
//! look up.
//!
//! A *launch* of a file ends when the file has not been read for a second; its next read begins the next launch. Launches of a
//! file are recorded until [`Launches::rounds`] in a row have read the same: five, where all do (FPC has five at any rate). What
//! many programs use is recorded for each of them so. *Core* blocks are those that every launch read: programs start in the
//! same way each time, so the next launch will read them too, in about the same order.
//!
//! A file whose content has changed begins anew. Nothing here does I/O or reads a clock; the bytes of a record are in
//! `record`. It is a guess that costs time if it is wrong, and nothing else.

mod record;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use anteros_core::Timestamp;

use crate::layout::node::Attributes;

pub use record::{RECORD_BYTES_MAX, RecordFault};

/// States how many launches of a file are recorded that read the same, if nothing else is said (FPC, 4.4).
pub const ROUNDS: u8 = 5;

/// A file that nobody has read for so long is launched anew.
const LAUNCH_ENDS_MS: u64 = 1000;

/// Step of the numbers: where nobody has done anything for so long, they go on from the next multiple of this: what
/// lies between two multiples was started together.
pub(crate) const ORDERS_TOGETHER: u64 = 1 << 32;

/// Files that are recorded at most, and inodes that were looked up.
const FILES_MAX: usize = 1 << 16;

/// Bound against who walks through all files once, such as whoever has them compressed, and is no program that starts:
/// only what was looked up in so many launches counts, in the order of that one.
const LOOKED_UP_LEAST: u8 = 2;

/// Launches that looked an inode up, beyond which they are not counted.
const LOOKED_UP_MOST: u8 = 32;

/// Blocks that are recorded at most, of all files: 4 GiB of what programs start from, in some 30 MB of memory.
const BLOCKS_MAX: usize = 1 << 20;

/// Blocks that are recorded at most where nobody has asked for it: 256 MiB, in some 2 MB of memory.
const UNASKED_MAX: usize = 1 << 16;

/// Blocks that are recorded there until nobody does anything for a while: 64 MiB. Whoever reads more than that is no program
/// that starts.
const TOGETHER_MAX: usize = 1 << 14;

/// Launches of which it is known what they read again.
const AGAIN: u8 = 2;

/// Holds what tells one content of an inode from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Tells how often the number of the inode had been used before.
    pub generation: u32,
    /// Tells when the content changed last.
    pub mtime: Timestamp,
}

impl From<&Attributes> for Version {
    fn from(attributes: &Attributes) -> Self {
        Self {
            generation: attributes.generation,
            mtime: attributes.mtime,
        }
    }
}

/// Holds what the launches of a file have read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileReads {
    /// Tells how many launches were recorded. One that is going on counts as far as it is.
    pub rounds: u8,
    /// The logical blocks that all of them read, in the order in which the latest one did.
    pub core: Vec<BlockReads>,
    /// The logical blocks that only some of them read, in that order.
    pub other: Vec<BlockReads>,
    /// Tells how often blocks were read in all: more often than there are, where the kernel did not keep them.
    pub reads: u64,
    /// Names who looked its inode up, and when the second one did, or the only one that is recorded.
    pub looked_up: Option<Mark>,
    /// Tells whether nobody has asked for it: of other programs nothing may be known yet.
    pub is_unasked: bool,
}

impl FileReads {
    /// Reads as a profile of so many launches tells them: which logical blocks, and by whom. Of ranges that overlap, the first
    /// one counts.
    pub fn of_profile(rounds: u8, ranges: &[(Range<u32>, Mark)]) -> Self {
        let mut blocks = BTreeMap::new();
        for (lblks, mark) in ranges {
            let room = BLOCKS_MAX - blocks.len();
            for lblk in lblks.clone().take(room) {
                blocks.entry(lblk).or_insert(*mark);
            }
        }
        let reads = blocks
            .into_iter()
            .map(|(lblk, mark)| BlockReads { mark, lblk });
        let (mut core, mut other): (Vec<_>, Vec<_>) =
            reads.partition(|read| read.mark.launches >= rounds);
        core.sort_unstable();
        other.sort_unstable();
        Self {
            rounds,
            core,
            other,
            reads: 0,
            is_unasked: false,
            looked_up: ranges.iter().map(|(_, mark)| *mark).min(),
        }
    }
}

/// Launches that did the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// A number that grows with the time at which one of them did so first.
    pub order: u64,
    /// Tells how many they were.
    pub launches: u8,
}

/// A logical block that launches have read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockReads {
    /// Those that did, the latest one for the order.
    pub mark: Mark,
    /// Tells which.
    pub lblk: u32,
}

/// The launches of all files of a log, and of its inodes: a launch of an inode has looked it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launches {
    uuid: [u8; 16],
    rounds: u8,
    files: BTreeMap<u32, File>,
    inodes: BTreeMap<u32, Lookup>,
    /// Blocks of all files.
    blocks: usize,
    /// The most of these, and the most reads of blocks until there is a pause.
    blocks_max: usize,
    together_max: usize,
    /// Reads of blocks since the last pause.
    together: usize,
    /// Number for the next block that a launch reads for the first time.
    order: u64,
    /// Tells when somebody did something last, in milliseconds.
    last: Option<u64>,
    skipped: u64,
    changes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    version: Version,
    rounds: Rounds,
    blocks: BTreeMap<u32, Block>,
    /// Tells how many of them lay together when that was seen to last, for several launches had read them.
    gathered: u32,
}

/// An inode that was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lookup {
    generation: u32,
    rounds: Rounds,
    /// Tells when the second launch did so first.
    order: u64,
}

/// Launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Rounds {
    /// Tells how many have begun.
    begun: u8,
    /// Tells how many in a row have brought nothing new so far, the latest included.
    same: u8,
    /// Tells when the latest one did something last, in milliseconds; none if it has ended.
    last: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Block {
    /// Tells when the latest launch that read it did so first.
    order: u64,
    reads: u16,
    /// Tells how many launches read it.
    launches: u8,
    /// The number of the latest one; 0 if it was before this mount.
    latest: u8,
}

impl Launches {
    /// None yet, of the log with this UUID. Of each file so many will be recorded; 0 counts as 1.
    pub fn new(uuid: [u8; 16], rounds: u8) -> Self {
        Self {
            uuid,
            rounds: rounds.max(1),
            files: BTreeMap::new(),
            inodes: BTreeMap::new(),
            blocks: 0,
            blocks_max: BLOCKS_MAX,
            together_max: usize::MAX,
            together: 0,
            order: 0,
            last: None,
            skipped: 0,
            changes: 0,
        }
    }

    /// Records so many launches of each file from now on; 0 counts as 1. None that was recorded is forgotten.
    pub fn with_rounds(self, rounds: u8) -> Self {
        let rounds = rounds.max(1);
        Self {
            rounds,
            changes: self.changes + u64::from(rounds != self.rounds),
            ..self
        }
    }

    /// Keeps to what may be recorded though nobody has asked for it: 256 MiB of files in all, and 64 MiB of what is read
    /// without a second's pause.
    pub fn unasked(self) -> Self {
        Self {
            blocks_max: UNASKED_MAX,
            together_max: TOGETHER_MAX,
            ..self
        }
    }

    /// The UUID of the log.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Returns how many launches of a file are recorded that read the same.
    pub fn rounds(&self) -> u8 {
        self.rounds
    }

    /// Returns how often a block was read that there was no room to record.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Grows whenever the record would be another one; 0 for one that was just made or read.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The files that were launched, by inode number.
    pub fn files(&self) -> impl Iterator<Item = (u32, Version)> {
        self.files.iter().map(|(&ino, file)| (ino, file.version))
    }

    /// Returns how many inodes were looked up.
    pub fn inode_count(&self) -> usize {
        self.inodes.len()
    }

    /// Returns what the launches of a file have read, if there were any since its content changed, and when it was
    /// looked up.
    pub fn reads(&self, ino: u32, version: Version) -> Option<FileReads> {
        let lookup = self.inodes.get(&ino);
        let lookup = lookup.filter(|lookup| lookup.generation == version.generation);
        let least = LOOKED_UP_LEAST.min(self.rounds);
        let lookup = lookup.filter(|lookup| lookup.rounds.begun >= least);
        let looked_up = lookup.map(Lookup::mark);
        match self.files.get(&ino).filter(|file| file.version == version) {
            Some(file) => Some(FileReads {
                looked_up,
                ..file.reads()
            }),
            None => looked_up.map(|_| FileReads {
                looked_up,
                ..FileReads::default()
            }),
        }
    }

    /// Returns whether several launches of this content of a file are known.
    pub(crate) fn has_again(&self, ino: u32, version: Version) -> bool {
        let file = self.files.get(&ino);
        file.is_some_and(|file| file.version == version && file.rounds.begun >= AGAIN)
    }

    /// Returns whether anything is known of this content of a file.
    fn knows(&self, ino: u32, version: Version) -> bool {
        let file = self.files.get(&ino);
        file.is_some_and(|file| file.version == version)
    }

    /// Notes that these logical blocks of an executable were read, `now` milliseconds after some moment.
    pub fn note(&mut self, ino: u32, version: Version, read: Range<u32>, now: u64) {
        self.pause(now);
        self.together = self.together.saturating_add(read.len());
        if self.together > self.together_max {
            return;
        }
        self.forget_unless(ino, version);
        let has_room = self.files.len() < FILES_MAX;
        let file = match self.files.entry(ino) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if has_room => place.insert(File::new(version)),
            Entry::Vacant(_) => return self.skip(read.len() as u64),
        };
        let is_new = read.clone().any(|lblk| !file.blocks.contains_key(&lblk));
        let takes_part = is_new || file.rounds.same + 1 < self.rounds || file.rounds.begun == 0;
        if file.rounds.take_part(now, takes_part).is_none() {
            return;
        }
        if is_new {
            file.rounds.same = 0;
        }
        self.changes += 1;
        for lblk in read {
            let block = match file.blocks.entry(lblk) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) if self.blocks < self.blocks_max => {
                    self.blocks += 1;
                    place.insert(Block::default())
                }
                Entry::Vacant(_) => {
                    self.skipped = self.skipped.saturating_add(1);
                    continue;
                }
            };
            if block.note(file.rounds.begun, self.order) {
                self.order = self.order.saturating_add(1);
            }
        }
    }

    /// Notes that an inode was looked up, `now` milliseconds after the same moment.
    pub fn note_lookup(&mut self, ino: u32, generation: u32, now: u64) {
        self.pause(now);
        let new = Lookup {
            generation,
            rounds: Rounds::default(),
            order: self.order,
        };
        let has_room = self.inodes.len() < FILES_MAX;
        let lookup = match self.inodes.entry(ino) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if has_room => place.insert(new),
            Entry::Vacant(_) => return,
        };
        if lookup.generation != generation {
            *lookup = new;
        }
        let most = LOOKED_UP_MOST.max(self.rounds);
        if lookup.rounds.take_part(now, lookup.rounds.begun < most) == Some(true) {
            if lookup.rounds.begun <= LOOKED_UP_LEAST {
                lookup.order = self.order;
            }
            self.order = self.order.saturating_add(1);
            self.changes += 1;
        }
    }

    /// Sets what comes now apart from what was, if nobody has done anything for a while.
    fn pause(&mut self, now: u64) {
        if !self.last.is_some_and(|last| is_soon(last, now)) {
            let next = self.order.checked_next_multiple_of(ORDERS_TOGETHER);
            self.order = next.unwrap_or(self.order);
            self.together = 0;
        }
        self.last = Some(now);
    }

    /// Forgets the files of which this says no.
    pub fn retain(&mut self, mut is_kept: impl FnMut(u32, Version) -> bool) {
        let gone: Vec<u32> = self
            .files()
            .filter(|&(ino, version)| !is_kept(ino, version))
            .map(|(ino, _)| ino)
            .collect();
        gone.into_iter().for_each(|ino| self.forget(ino));
    }

    /// The files of which several launches have read a good deal that does not lie together.
    pub(crate) fn scattered(&self) -> Vec<u32> {
        let files = self.files.iter();
        let scattered = files.filter(|(_, file)| file.is_scattered());
        scattered.map(|(&ino, _)| ino).collect()
    }

    /// Notes that all that several launches have read of a file lies together now.
    pub(crate) fn note_gathered(&mut self, ino: u32) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.gathered = file.read_again();
            self.changes += 1;
        }
    }

    /// Returns of how many files something is recorded, of how many blocks, and how many of these lie together for it.
    pub fn counts(&self) -> [u64; 3] {
        let gathered = self.files.values().map(|file| u64::from(file.gathered));
        [self.files.len() as u64, self.blocks as u64, gathered.sum()]
    }

    fn skip(&mut self, blocks: u64) {
        self.skipped = self.skipped.saturating_add(blocks);
        self.changes += 1;
    }

    /// Forgets what was known of another content.
    fn forget_unless(&mut self, ino: u32, version: Version) {
        if self.files.contains_key(&ino) && !self.knows(ino, version) {
            self.forget(ino);
        }
    }

    fn forget(&mut self, ino: u32) {
        if let Some(file) = self.files.remove(&ino) {
            self.blocks -= file.blocks.len();
            self.changes += 1;
        }
    }
}

impl File {
    fn new(version: Version) -> Self {
        Self {
            version,
            rounds: Rounds::default(),
            blocks: BTreeMap::new(),
            gathered: 0,
        }
    }

    /// Returns how many blocks several launches have read.
    fn read_again(&self) -> u32 {
        let again = self.blocks.values().filter(|block| block.launches >= AGAIN);
        again.count() as u32
    }

    /// Tells whether what lies together of it is much less than what should.
    fn is_scattered(&self) -> bool {
        self.read_again() > self.gathered + self.gathered / 4
    }

    fn reads(&self) -> FileReads {
        let is_core = |block: &Block| block.launches == self.rounds.begun;
        let (core, other): (Vec<_>, Vec<_>) =
            self.blocks.iter().partition(|(_, block)| is_core(block));
        FileReads {
            rounds: self.rounds.begun,
            core: in_order(core),
            other: in_order(other),
            reads: self
                .blocks
                .values()
                .map(|block| u64::from(block.reads))
                .sum(),
            looked_up: None,
            is_unasked: false,
        }
    }
}

/// Blocks in the order in which they were read.
fn in_order(blocks: Vec<(&u32, &Block)>) -> Vec<BlockReads> {
    let reads = |(&lblk, block): (&u32, &Block)| BlockReads {
        mark: Mark {
            order: block.order,
            launches: block.launches,
        },
        lblk,
    };
    let mut reads: Vec<_> = blocks.into_iter().map(reads).collect();
    reads.sort_unstable();
    reads
}

impl Lookup {
    fn mark(&self) -> Mark {
        Mark {
            order: self.order,
            launches: self.rounds.begun,
        }
    }
}

impl Rounds {
    /// Returns whether something is part of a launch that is recorded, and if so, whether it begins one, which it may
    /// or may not.
    fn take_part(&mut self, now: u64, may_begin: bool) -> Option<bool> {
        let goes_on = self.last.is_some_and(|last| is_soon(last, now));
        if !goes_on && (!may_begin || self.begun == u8::MAX) {
            return None;
        }
        self.begun += u8::from(!goes_on);
        self.same = self.same.saturating_add(u8::from(!goes_on));
        self.last = Some(now);
        Some(!goes_on)
    }
}

/// Returns whether something belongs to the launch that did something at `last`.
fn is_soon(last: u64, now: u64) -> bool {
    now.saturating_sub(last) < LAUNCH_ENDS_MS
}

impl Block {
    /// Notes a read, and says whether it is the first one of its launch.
    fn note(&mut self, launch: u8, order: u64) -> bool {
        self.reads = self.reads.saturating_add(1);
        let is_first = self.latest != launch;
        if is_first {
            self.latest = launch;
            self.launches += 1;
            self.order = order;
        }
        is_first
    }
}

#[cfg(test)]
mod tests;
