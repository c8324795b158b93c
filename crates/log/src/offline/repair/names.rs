//! The names in directories that may be damaged.

use std::collections::{BTreeMap, BTreeSet};

use anteros_core::{FsResult, Record, Sorter};

use super::damage::{Change, Damage, Found};
use super::memory::Memory;
use crate::durable::Durable;
use crate::error::LogError;
use crate::files::dir::Named;
use crate::layout::{Corrupt, dir};
use crate::offline::walk::Walk;
use crate::offline::walk::records::Edge;
use crate::store::medium::is_damage;

/// Bytes that a name takes in memory, about.
const NAME_BYTES: usize = 300;

/// A name of a directory.
pub(super) struct Name {
    pub(super) parent: u32,
    pub(super) name: Vec<u8>,
    pub(super) named: Named,
}

/// The place of a name, in words.
pub(super) fn place(parent: u32, name: &[u8]) -> String {
    format!("directory {parent}, {:?}", String::from_utf8_lossy(name))
}

impl Name {
    pub(super) fn place(&self) -> String {
        place(self.parent, &self.name)
    }
}

/// Adds names up to the first that cannot be read.
fn add_all<'a>(
    names: &mut BTreeMap<Vec<u8>, Named>,
    entries: impl Iterator<Item = Result<dir::Entry<'a>, Corrupt>>,
) {
    for entry in entries.map_while(Result::ok) {
        let (ino, kind) = (entry.ino, entry.kind);
        let name = entry.name.to_vec();
        names.entry(name).or_insert(Named { ino, kind });
    }
}

/// The names in whatever block of a directory can be read, in the order of their bytes.
///
/// # Errors
///
/// When they would take more memory than a directory may, and when the device cannot be read.
pub(super) fn salvage(
    state: &mut Durable,
    parent: u32,
    memory: Memory,
) -> Result<Vec<(Vec<u8>, Named)>, LogError> {
    let mut names = BTreeMap::new();
    let live = state.live(parent)?;
    if live.inode().attributes.is_inline {
        add_all(&mut names, dir::entries(&live.inode().inline));
    }
    let mut lblks: BTreeSet<u32> = live.pages.keys().copied().collect();
    // Below a node that cannot be read there is nothing to be found.
    let mut at = 0;
    while let Ok(Some(range)) = state.next_leaf(parent, at) {
        at = range.end;
        let add = |lblk, _| {
            lblks.insert(lblk);
        };
        if state.for_pointers(parent, range, add).is_err() {
            break;
        }
    }
    let share = memory.of_directory();
    for lblk in lblks {
        match state.dir_block(parent, lblk) {
            Ok(block) => add_all(&mut names, dir::leaf_entries(block).into_iter().flatten()),
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(error.into()),
        }
        memory.refuse_beyond(share, names.len() * NAME_BYTES)?;
    }
    Ok(names.into_iter().collect())
}

impl Walk<'_, Damage> {
    /// Directories of which not all names lie where they should.
    fn damaged_directories(&self) -> BTreeSet<u32> {
        let torn = self.sink.torn.iter().copied();
        let torn = torn.filter(|&ino| self.directories.has(ino));
        torn.chain(self.sink.scattered.keys().copied()).collect()
    }

    /// Keeps blocks of directories that lie behind their end, as they hold names: these are written anew.
    fn keep_blocks(&mut self) {
        for (ino, change) in std::mem::take(&mut self.sink.changes) {
            match change {
                Change::Beyond(_) if self.directories.has(ino) => {
                    self.sink.note_scattered(ino, |scattered| {
                        let text = || "names lie behind its end".to_owned();
                        scattered.error.get_or_insert_with(text);
                    });
                }
                change => self.sink.changes.push((ino, change)),
            }
        }
    }

    /// Takes the names of damaged directories from whatever block can be read, instead of those that were met.
    ///
    /// # Errors
    ///
    /// Errors of [`salvage`], and of the temporary file.
    pub(super) fn salvage_names(&mut self) -> Result<(), LogError> {
        self.keep_blocks();
        let torn = &self.sink.torn;
        self.sink.scattered.retain(|ino, _| !torn.contains(ino));
        let damaged = self.damaged_directories();
        if damaged.is_empty() {
            return Ok(());
        }
        let edges = self.sorted(|walk| &mut walk.edges)?;
        keep(edges.iter(), &mut self.edges, |edge| {
            !damaged.contains(&edge.parent)
        })?;
        let children = self.sorted(|walk| &mut walk.children)?;
        keep(children.iter(), &mut self.children, |child| {
            !damaged.contains(&child.parent)
        })?;
        for parent in damaged {
            let names = salvage(self.state, parent, self.sink.memory)?;
            let stated = self.state.live(parent)?.inode().entries;
            if !self.sink.torn.contains(&parent) && u64::from(stated) != names.len() as u64 {
                let counted = Change::Entries(names.len() as u32);
                self.sink.note_change(parent, counted);
            }
            for (position, (_, Named { ino, kind })) in (0..).zip(names) {
                self.note_name(Edge {
                    ino,
                    parent,
                    position,
                    kind,
                })?;
            }
            self.state.shrink();
        }
        Ok(())
    }

    /// Reads names that were found, those of a directory together.
    ///
    /// # Errors
    ///
    /// Errors of [`salvage`].
    pub(super) fn read_names<T>(
        &mut self,
        mut found: Vec<(T, Found)>,
    ) -> Result<Vec<(T, Name)>, LogError> {
        found.sort_by_key(|(_, found)| (found.parent, found.position));
        let damaged = self.damaged_directories();
        let (mut names, mut salvaged) = (Vec::new(), (0, Vec::new()));
        for (about, found) in found {
            let (parent, position) = (found.parent, found.position);
            if damaged.contains(&parent) && salvaged.0 != parent {
                salvaged = (parent, salvage(self.state, parent, self.sink.memory)?);
            }
            let name = match damaged.contains(&parent) {
                true => salvaged
                    .1
                    .get(position as usize)
                    .map(|(name, _)| name.clone()),
                false => self.name_at(parent, position),
            };
            let (ino, kind) = (found.ino, found.kind);
            let named = Named { ino, kind };
            match name {
                Some(name) => names.push((
                    about,
                    Name {
                        parent,
                        name,
                        named,
                    },
                )),
                None => {
                    let text = format!("directory {parent}: a name of inode {ino} cannot be read");
                    self.sink.note_unreadable(text);
                }
            }
            self.state.shrink();
        }
        Ok(names)
    }
}

fn keep<R: Record>(
    records: impl Iterator<Item = std::io::Result<R>>,
    kept: &mut Sorter<R>,
    is_kept: impl Fn(&R) -> bool,
) -> FsResult<()> {
    for record in records {
        let record = record?;
        if is_kept(&record) {
            kept.push(record)?;
        }
    }
    Ok(())
}
