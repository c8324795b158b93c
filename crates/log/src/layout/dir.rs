//! Directories: entries in the order of the hashes of their names, in a list or in a tree of blocks.
//!
//! ```text
//! block  0x00 |   magic   |    crc    |level|count|used |  0  |
//!        0x10 | entries of a leaf, or items of an index block |
//!
//! entry  0          8     c      d     e
//!        |   hash   | ino | kind | len | name |
//! ```
//!
//! A block is [checked](check) once, when it is read. What looks for one name in it then, or takes one out of it, is
//! bounded by the block whatever it holds, and builds nothing; what adds to it makes a [`Leaf`] or an [`Index`] of it, in
//! which every rule holds.
//!
//! Source: `docs/format/log.md`, section 9.

use std::ops::Range;

use anteros_core::FsError;
use siphasher::sip::SipHasher13;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, Block, Corrupt, block_crc, is_file_type, is_name, seal};

/// The most names that have one hash: a position in a directory counts them in eight bits.
pub const SAME_HASH_MAX: usize = 255;
/// The highest level of a block; leaves are at level 0.
pub const LEVEL_MAX: u16 = 3;

const MAGIC: u32 = u32::from_le_bytes(*b"DIRB");
const CRC_AT: usize = 4;
const HEADER_BYTES: usize = 16;
const ROOM: usize = BLOCK_BYTES - HEADER_BYTES;
const ENTRY_BYTES: usize = 14;
const ITEM_BYTES: usize = 12;
const HASH_MASK: u64 = 0x7fff_ffff_ffff_ff00;
const LOWEST_HASH: u64 = 0x100;

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(size_of::<RawEntry>() == ENTRY_BYTES);
const _: () = assert!(size_of::<RawItem>() == ITEM_BYTES);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    crc: U32,
    level: U16,
    count: U16,
    used: U16,
    reserved: U16,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    hash: U64,
    ino: U32,
    kind: u8,
    len: u8,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawItem {
    hash: U64,
    block: U32,
}

/// The hash that orders the names of a directory: its lowest eight bits are free for a count, its highest one
/// is clear, so that a position fits into a signed number, and it is never zero.
pub fn hash(name: &[u8], seed: &[u8; 16]) -> u64 {
    let hash = SipHasher13::new_with_key(seed).hash(name) & HASH_MASK;
    hash.max(LOWEST_HASH)
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The hash of the name.
    pub hash: u64,
    /// The inode that the name refers to.
    pub ino: u32,
    /// Its file type.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Writes the entry behind others; the name has at most 255 bytes.
    pub fn append(&self, out: &mut Vec<u8>) {
        let raw = RawEntry {
            hash: self.hash.into(),
            ino: self.ino.into(),
            kind: self.kind,
            len: self.name.len() as u8,
        };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(self.name);
    }

    fn key(&self) -> (u64, &[u8]) {
        (self.hash, self.name)
    }

    /// The rules that an entry keeps alone.
    fn check(&self) -> Result<(), (&'static str, u64)> {
        if self.hash == 0 || self.hash & !HASH_MASK != 0 {
            return Err(("no name has this hash", self.hash));
        }
        if self.ino == 0 {
            return Err(("no inode has the number", 0));
        }
        if !is_file_type(self.kind) {
            return Err(("the file type is unknown", self.kind.into()));
        }
        if !is_name(self.name) {
            return Err((
                "the name is not possible, of so many bytes",
                self.name.len() as u64,
            ));
        }
        Ok(())
    }
}

/// The first entry and what follows it, if it ends within the bytes; nothing else is checked.
fn split_entry(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (raw, rest) = RawEntry::read_from_prefix(bytes).ok()?;
    let (name, rest) = rest.split_at_checked(raw.len.into())?;
    let entry = Entry {
        hash: raw.hash.get(),
        ino: raw.ino.get(),
        kind: raw.kind,
        name,
    };
    Some((entry, rest))
}

/// Goes through entries and checks them, those before included.
struct Entries<'a> {
    rest: &'a [u8],
    /// Tells where `rest` begins.
    at: usize,
    last: Option<Entry<'a>>,
    /// Tells how many entries up to `last` have its hash.
    same_hash: usize,
    /// Tells how many must still come, where that is known.
    left: Option<u16>,
}

impl<'a> Entries<'a> {
    fn advance(&mut self) -> Result<Entry<'a>, (&'static str, u64)> {
        let cut_off = ("the entry goes beyond the end", self.rest.len() as u64);
        let (entry, rest) = split_entry(self.rest).ok_or(cut_off)?;
        entry.check()?;
        if self.last.is_some_and(|last| last.key() >= entry.key()) {
            return Err(("the entry does not come behind the one before", entry.hash));
        }
        let is_same = self.last.is_some_and(|last| last.hash == entry.hash);
        self.same_hash = if is_same { self.same_hash + 1 } else { 1 };
        if self.same_hash > SAME_HASH_MAX {
            return Err(("more than 255 names have the hash", entry.hash));
        }
        if let Some(left) = &mut self.left {
            *left = left
                .checked_sub(1)
                .ok_or(("more entries than the block counts", entry.hash))?;
        }
        self.last = Some(entry);
        self.at += self.rest.len() - rest.len();
        self.rest = rest;
        Ok(entry)
    }

    fn fault(&mut self, (rule, found): (&'static str, u64)) -> Corrupt {
        self.rest = &[];
        self.left = None;
        let at = self.at;
        Corrupt::DirEntry { at, rule, found }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            let missing = self.left.filter(|&left| left > 0)?;
            return Some(Err(
                self.fault(("fewer entries than the block counts", missing.into()))
            ));
        }
        let advanced = self.advance();
        Some(advanced.map_err(|broken| self.fault(broken)))
    }
}

/// The entries of an inline directory. Ends behind the first that is refused.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, Corrupt>> {
    Entries {
        rest: bytes,
        at: 0,
        last: None,
        same_hash: 0,
        left: None,
    }
}

/// The entries of a leaf. Ends behind the first that is refused.
///
/// # Errors
///
/// When the block is no leaf.
pub fn leaf_entries(
    block: &Block,
) -> Result<impl Iterator<Item = Result<Entry<'_>, Corrupt>>, Corrupt> {
    let rest = leaf_bytes(block)?;
    Ok(Entries {
        rest,
        at: HEADER_BYTES,
        last: None,
        same_hash: 0,
        left: Some(header(block).count.get()),
    })
}

fn header(block: &Block) -> &RawHeader {
    let (bytes, _) = block
        .split_first_chunk::<HEADER_BYTES>()
        .expect("a block is longer");
    zerocopy::transmute_ref!(bytes)
}

fn block_fault(rule: &'static str, found: impl Into<u64>) -> Corrupt {
    let found = found.into();
    Corrupt::DirEntry { at: 0, rule, found }
}

fn leaf_bytes(block: &Block) -> Result<&[u8], Corrupt> {
    let (level, used) = (level(block), header(block).used.get());
    if level != 0 {
        return Err(block_fault("the block is no leaf", level));
    }
    let bytes = block[HEADER_BYTES..].get(..used.into());
    bytes.ok_or_else(|| block_fault("more bytes are used than a block has", used))
}

fn index_items(block: &Block) -> Result<&[RawItem], Corrupt> {
    let (level, count) = (level(block), header(block).count.get());
    if !(1..=LEVEL_MAX).contains(&level) {
        return Err(block_fault("the block is no index", level));
    }
    let bytes = block[HEADER_BYTES..].get(..usize::from(count) * ITEM_BYTES);
    let bytes = bytes.ok_or_else(|| block_fault("more items than a block has room for", count))?;
    <[RawItem]>::ref_from_bytes(bytes).map_err(|_| block_fault("the items are cut off", count))
}

/// Checks what a block of a directory says of itself, once, when it is read. Entries and items are checked
/// when they are used.
///
/// # Errors
///
/// When it is none, the checksum is wrong, or the counts in its head are impossible.
pub fn check(block: &Block, lblk: u32) -> Result<(), Corrupt> {
    let fault = |rule, found: u64| Corrupt::DirBlock { lblk, rule, found };
    let raw = header(block);
    if raw.magic.get() != MAGIC {
        return Err(fault("the magic number is wrong", raw.magic.get().into()));
    }
    if raw.crc.get() != block_crc(block, CRC_AT) {
        return Err(fault("the checksum is wrong", raw.crc.get().into()));
    }
    let (level, count) = (raw.level.get(), raw.count.get());
    let used = usize::from(raw.used.get());
    if level > LEVEL_MAX {
        return Err(fault("the level is too high", level.into()));
    }
    if used > ROOM {
        return Err(fault("more bytes are used than there are", used as u64));
    }
    if level > 0 && (count == 0 || used != usize::from(count) * ITEM_BYTES) {
        return Err(fault(
            "the items do not take the bytes that are used",
            used as u64,
        ));
    }
    Ok(())
}

/// Returns how many levels there are below a block; 0: it is a leaf.
pub fn level(block: &Block) -> u16 {
    header(block).level.get()
}

/// Returns what a name refers to, and its file type, in a leaf.
///
/// # Errors
///
/// When the block is no leaf, or an entry on the way is impossible.
pub fn find(block: &Block, hash: u64, name: &[u8]) -> Result<Option<(u32, u8)>, Corrupt> {
    let found = find_in(leaf_bytes(block)?, HEADER_BYTES, hash, name)?;
    Ok(found.map(|(_, entry)| (entry.ino, entry.kind)))
}

/// Returns what a name refers to, and its file type, in an inline directory.
///
/// # Errors
///
/// When an entry on the way is impossible.
pub fn find_inline(bytes: &[u8], hash: u64, name: &[u8]) -> Result<Option<(u32, u8)>, Corrupt> {
    let found = find_in(bytes, 0, hash, name)?;
    Ok(found.map(|(_, entry)| (entry.ino, entry.kind)))
}

/// Removes a name from a leaf, which is sealed again, and says whether it was there. The other entries stay as they are.
///
/// # Errors
///
/// As [`find`]. Nothing has changed then.
pub fn remove(block: &mut Block, hash: u64, name: &[u8]) -> Result<bool, Corrupt> {
    let bytes = leaf_bytes(block)?;
    let used = bytes.len();
    let Some((at, _)) = find_in(bytes, HEADER_BYTES, hash, name)? else {
        return Ok(false);
    };
    let left = used - at.len();
    let body = &mut block[HEADER_BYTES..HEADER_BYTES + used];
    body.copy_within(at.end.., at.start);
    body[left..].fill(0);
    let count = header(block).count.get().saturating_sub(1);
    put_header(block, 0, count, left as u16);
    Ok(true)
}

/// Removes a name from an inline directory, likewise.
///
/// # Errors
///
/// As [`find_inline`]. Nothing has changed then.
pub fn remove_inline(bytes: &mut Vec<u8>, hash: u64, name: &[u8]) -> Result<bool, Corrupt> {
    let found = find_in(bytes, 0, hash, name)?.map(|(at, _)| at);
    Ok(found.map(|at| drop(bytes.drain(at))).is_some())
}

/// An entry and where it lies.
type Found<'a> = Option<(Range<usize>, Entry<'a>)>;

fn find_in<'a>(bytes: &'a [u8], base: usize, hash: u64, name: &[u8]) -> Result<Found<'a>, Corrupt> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let fault = |(rule, found)| Corrupt::DirEntry {
            at: base + at,
            rule,
            found,
        };
        let cut_off = ("the entry goes beyond the end", rest.len() as u64);
        let (entry, behind) = split_entry(rest).ok_or_else(|| fault(cut_off))?;
        if entry.hash > hash {
            return Ok(None);
        }
        if entry.key() == (hash, name) {
            entry.check().map_err(fault)?;
            return Ok(Some((at..bytes.len() - behind.len(), entry)));
        }
        rest = behind;
    }
    Ok(None)
}

/// The block one level below in which names of a hash lie, and the first hash of the one behind it, if this
/// block has one.
///
/// # Errors
///
/// When the block is no index, or has no place for the hash.
pub fn child(block: &Block, hash: u64) -> Result<(u32, Option<u64>), Corrupt> {
    let items = index_items(block)?;
    let behind = items.partition_point(|item| item.hash.get() <= hash);
    let found = behind.checked_sub(1).map(|at| items[at].block.get());
    let found = found.ok_or_else(|| block_fault("the index begins behind the hash", hash))?;
    if found == 0 {
        return Err(block_fault("the root lies below an index", hash));
    }
    Ok((found, items.get(behind).map(|item| item.hash.get())))
}

fn build(level: u16, count: usize, body: &[u8]) -> Option<Box<Block>> {
    if body.len() > ROOM {
        return None;
    }
    let mut block = Box::new([0; BLOCK_BYTES]);
    block[HEADER_BYTES..HEADER_BYTES + body.len()].copy_from_slice(body);
    // What fits into a block is counted in 16 bits.
    put_header(&mut block, level, count as u16, body.len() as u16);
    Some(block)
}

/// Puts the head before what the block holds, and seals it.
fn put_header(block: &mut Block, level: u16, count: u16, used: u16) {
    let raw = RawHeader {
        magic: MAGIC.into(),
        crc: 0.into(),
        level: level.into(),
        count: count.into(),
        used: used.into(),
        reserved: 0.into(),
    };
    block[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
    seal(block, CRC_AT);
}

/// The two halves of a block that was too full, and the first hash of the second one.
pub type Halves = (Box<Block>, Box<Block>, u64);

/// An entry with a name of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedEntry {
    /// The hash of the name.
    pub hash: u64,
    /// The inode that the name refers to.
    pub ino: u32,
    /// Its file type.
    pub kind: u8,
    /// The name.
    pub name: Box<[u8]>,
}

impl OwnedEntry {
    fn as_entry(&self) -> Entry<'_> {
        Entry {
            hash: self.hash,
            ino: self.ino,
            kind: self.kind,
            name: &self.name,
        }
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.name.len()
    }
}

impl From<Entry<'_>> for OwnedEntry {
    fn from(entry: Entry<'_>) -> Self {
        Self {
            hash: entry.hash,
            ino: entry.ino,
            kind: entry.kind,
            name: entry.name.into(),
        }
    }
}

/// The entries of a leaf or of an inline directory, to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leaf {
    /// By their hashes and names.
    pub entries: Vec<OwnedEntry>,
}

impl Leaf {
    /// The entries of an inline directory.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn from_inline(bytes: &[u8]) -> Result<Self, Corrupt> {
        let entries = entries(bytes).map(|entry| Ok(entry?.into()));
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    /// The entries of a leaf whose checksum is known to be right.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn parse(block: &Block) -> Result<Self, Corrupt> {
        let entries = leaf_entries(block)?.map(|entry| Ok(entry?.into()));
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    fn place(&self, hash: u64, name: &[u8]) -> Result<usize, usize> {
        self.entries
            .binary_search_by(|entry| entry.as_entry().key().cmp(&(hash, name)))
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// [`FsError::Exists`] if the name is there, [`FsError::NoSpace`] if 255 others have its hash.
    pub fn insert(&mut self, entry: OwnedEntry) -> Result<(), FsError> {
        let Err(at) = self.place(entry.hash, &entry.name) else {
            return Err(FsError::Exists);
        };
        let others = self.entries.iter().filter(|other| other.hash == entry.hash);
        if others.count() >= SAME_HASH_MAX {
            return Err(FsError::NoSpace);
        }
        self.entries.insert(at, entry);
        Ok(())
    }

    /// Removes an entry, if it is there. This is the plain way of [`remove`] and [`remove_inline`], for comparison.
    pub fn remove(&mut self, hash: u64, name: &[u8]) -> Option<OwnedEntry> {
        let at = self.place(hash, name).ok()?;
        Some(self.entries.remove(at))
    }

    /// The entries one behind the other, of any number.
    pub fn encode_inline(&self) -> Vec<u8> {
        concat(&self.entries)
    }

    /// The block, sealed; `None` if the entries do not fit.
    pub fn encode(&self) -> Option<Box<Block>> {
        encode_leaf(&self.entries)
    }

    /// Two leaves with about half of the bytes each, names of one hash together; `None` if there are no two
    /// such leaves.
    pub fn split(&self) -> Option<Halves> {
        let all: usize = self.entries.iter().map(OwnedEntry::bytes).sum();
        let mut left = 0;
        let mut best: Option<(usize, usize)> = None;
        for (at, pair) in self.entries.windows(2).enumerate() {
            left += pair[0].bytes();
            let larger = left.max(all - left);
            let is_better = best.is_none_or(|(least, _)| larger < least);
            if pair[0].hash != pair[1].hash && is_better {
                best = Some((larger, at + 1));
            }
        }
        let (left, right) = self.entries.split_at(best?.1);
        let first = right.first()?.hash;
        Some((encode_leaf(left)?, encode_leaf(right)?, first))
    }
}

fn concat(entries: &[OwnedEntry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        entry.as_entry().append(&mut bytes);
    }
    bytes
}

fn encode_leaf(entries: &[OwnedEntry]) -> Option<Box<Block>> {
    build(0, entries.len(), &concat(entries))
}

/// The items of an index block, to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Levels below, at least one.
    pub level: u16,
    /// The lowest hash of each block one level below, and the block.
    pub items: Vec<(u64, u32)>,
}

/// Returns whether an index block has no room for one more item.
pub fn is_full(index: &Block) -> bool {
    index_items(index)
        .is_ok_and(|items| HEADER_BYTES + (items.len() + 1) * ITEM_BYTES > BLOCK_BYTES)
}

impl Index {
    /// The items of an index block whose checksum is known to be right.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn parse(block: &Block) -> Result<Self, Corrupt> {
        let raw = index_items(block)?.iter();
        let items: Vec<_> = raw
            .map(|item| (item.hash.get(), item.block.get()))
            .collect();
        for (number, &(hash, child)) in items.iter().enumerate() {
            let at = HEADER_BYTES + number * ITEM_BYTES;
            let fault = |rule| Corrupt::DirEntry {
                at,
                rule,
                found: hash,
            };
            if hash & !HASH_MASK != 0 {
                return Err(fault("no name has this hash"));
            }
            if number > 0 && items[number - 1].0 >= hash {
                return Err(fault("the item does not come behind the one before"));
            }
            if child == 0 {
                return Err(fault("the root lies below an index"));
            }
        }
        if items.is_empty() {
            return Err(block_fault("the index is empty", 0u8));
        }
        Ok(Self {
            level: level(block),
            items,
        })
    }

    /// Adds the block whose lowest hash is `first`; no other has the same.
    pub fn insert(&mut self, first: u64, block: u32) {
        let at = self.items.partition_point(|&(hash, _)| hash <= first);
        self.items.insert(at, (first, block));
    }

    /// The block, sealed; `None` if the items do not fit.
    pub fn encode(&self) -> Option<Box<Block>> {
        encode_index(self.level, &self.items)
    }

    /// Two index blocks with half of the items each; `None` if there are none for both.
    pub fn split(&self) -> Option<Halves> {
        let (left, right) = self.items.split_at(self.items.len() / 2);
        let first = right.first()?.0;
        Some((
            encode_index(self.level, left)?,
            encode_index(self.level, right)?,
            first,
        ))
    }
}

fn encode_index(level: u16, items: &[(u64, u32)]) -> Option<Box<Block>> {
    if items.is_empty() {
        return None;
    }
    let raw = items.iter().map(|&(hash, block)| RawItem {
        hash: hash.into(),
        block: block.into(),
    });
    let body: Vec<RawItem> = raw.collect();
    build(level, body.len(), body.as_bytes())
}

#[cfg(test)]
mod tests;
