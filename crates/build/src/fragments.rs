//! Fragments: small files, and the ends of larger ones, behind each other in the packed inode.
//!
//! A fragment that was there before is used again. Fragments are told apart by a hash, and those with the same
//! hash by their content, which is read again from the source: what is kept of a fragment are some forty bytes. The
//! content of the packed inode is cut into segments, which are compressed like those of files as soon as they are full.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use xxhash_rust::xxh3::xxh3_128;

use crate::Error;
use crate::data::Job;
use crate::segments::Segments;
use crate::tree::NodeId;

/// A fragment with this content, in the packed inode or on its way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    hash: u128,
    len: u64,
}

impl Key {
    pub fn of(content: &[u8]) -> Self {
        Self {
            hash: xxh3_128(content),
            len: content.len() as u64,
        }
    }
}

/// Tells where a fragment was found first, and where it lies in the packed inode.
#[derive(Debug, Clone, Copy)]
struct Known {
    node: NodeId,
    at: u64,
    offset: u64,
}

/// All fragments so far.
pub(crate) struct Fragments {
    known: HashMap<Key, Known>,
    content: Segments,
}

impl Fragments {
    /// None but the prefixes of attributes, if they lie there: in front of all others.
    pub fn new(job: &Job<'_>) -> Self {
        let Job { plan, options, .. } = job;
        let mut content = Segments::new(options.packed_segment_bytes(), options.block_bytes());
        if let Some(packed) = &plan.packed {
            content = content.behind(packed.bytes);
            content.append(&packed.rest);
        }
        if options.packs_prefixes() {
            content.append(&plan.shared.prefixes.table());
        }
        Self {
            known: HashMap::new(),
            content,
        }
    }

    /// Bytes of the packed inode so far.
    pub fn size(&self) -> u64 {
        self.content.size()
    }

    /// Appends a part of a file, and tells where in the packed inode it lies.
    pub fn append(&mut self, content: &[u8]) -> u64 {
        self.content.append(content)
    }

    /// Tells where in the packed inode a fragment lies, that begins at a byte of a file; appends it if it is new.
    pub fn add(
        &mut self,
        job: &Job<'_>,
        (node, at): (NodeId, u64),
        key: Key,
        content: &[u8],
    ) -> Result<u64, Error> {
        let offset = self.size();
        let known = match self.known.entry(key) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(place) => {
                place.insert(Known { node, at, offset });
                None
            }
        };
        match known {
            Some(known) if job.holds(known.node, known.at, content)? => Ok(known.offset),
            _ => Ok(self.append(content)),
        }
    }

    /// Takes a segment out, if one is full, or if there will be no more: then whatever is left.
    pub fn take_segment(&mut self, is_end: bool) -> Option<Vec<u8>> {
        self.content.take(is_end)
    }

    /// Takes all that is left out, and has what follows lie in other segments.
    pub fn cut(&mut self) -> Option<Vec<u8>> {
        self.content.cut()
    }

    /// The content of the packed inode that no segment has yet.
    pub fn into_content(self) -> Segments {
        self.content
    }
}

impl Job<'_> {
    /// Returns whether a file has this content at a byte of it.
    fn holds(&self, id: NodeId, at: u64, content: &[u8]) -> Result<bool, Error> {
        let mut found = vec![0; content.len()];
        let file = self.source.open_file(self.tree, id)?;
        file.read(at, &mut found)?;
        file.finish()?;
        Ok(found == content)
    }
}
