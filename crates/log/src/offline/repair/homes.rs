//! The place of each directory in the tree: which of its names it keeps, and what no name leads to.

use std::collections::{BTreeSet, HashSet};

use anteros_core::{FileKind, FsError, FsResult, Sorted, Table};

use super::damage::{Change, Damage, Fate, Found, NUMBER_BYTES};
use super::names::Name;
use crate::error::LogError;
use crate::files::dir::kind_of;
use crate::layout::ROOT;
use crate::offline::walk::records::{About, Child, Edge, Number};
use crate::offline::walk::{Numbers, Walk};
use crate::store::medium::is_damage;

/// Stands for the directory that what was lost is put into.
const LOST: u32 = 0;
/// Bytes that are read at once of the names of one inode.
const STEP_BYTES: usize = 4 << 10;

/// The directory that each directory lies in.
pub(super) struct Homes {
    /// The number of the parent, plus one.
    table: Table<4>,
    count: u64,
}

impl Homes {
    fn new(memory: usize) -> Self {
        Self {
            table: Table::new(memory),
            count: 0,
        }
    }

    fn get(&mut self, ino: u32) -> FsResult<Option<u32>> {
        let stored = u32::from_le_bytes(self.table.get(ino.into())?);
        Ok(stored.checked_sub(1))
    }

    fn put(&mut self, ino: u32, parent: u32) -> FsResult<()> {
        self.count += u64::from(self.get(ino)?.is_none());
        let stored = parent.saturating_add(1);
        Ok(self.table.set(ino.into(), stored.to_le_bytes())?)
    }

    /// Returns whether the way from a directory to the root goes through `ino`.
    fn is_below(&mut self, directory: u32, ino: u32) -> FsResult<bool> {
        let mut at = directory;
        // Homes were found from the root on: there is no circle among them, but nobody should hang on it.
        for _ in 0..=self.count {
            if at == ino {
                return Ok(true);
            }
            match self.get(at)? {
                Some(parent) if parent != at => at = parent,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Directories in each directory.
    fn below(&mut self, memory: usize) -> FsResult<Table<4>> {
        let mut below = Table::new(memory);
        let mut at = ROOT.into();
        while let Some((ino, stored)) = self.table.next(at)? {
            at = ino + 1;
            if let (true, Some(parent)) = (
                ino != ROOT.into(),
                u32::from_le_bytes(stored).checked_sub(1),
            ) {
                let count = u32::from_le_bytes(below.get(parent.into())?).saturating_add(1);
                below.set(parent.into(), count.to_le_bytes())?;
            }
        }
        Ok(below)
    }
}

impl Walk<'_, Damage> {
    /// Finds a home for each directory: where the shortest way from the root leads, or from what is lost.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub(super) fn find_homes(
        &mut self,
        abouts: &Sorted<About>,
        children: &Sorted<Child>,
    ) -> FsResult<Homes> {
        let mut homes = Homes::new(self.sink.memory.of_table());
        homes.put(ROOT, ROOT)?;
        self.reach_from_root(children, &mut |child| homes.put(child.ino, child.parent))?;
        self.adopt(abouts, children, &mut homes)?;
        Ok(homes)
    }

    /// Reaches inodes that no name leads to, each from the one that leads to it, if one does.
    fn adopt(
        &mut self,
        abouts: &Sorted<About>,
        children: &Sorted<Child>,
        homes: &mut Homes,
    ) -> FsResult<()> {
        let mut named = Numbers::new(self.state.nodes.nat().count_max());
        for child in children.iter() {
            let child = child?;
            if !self.reached.has(child.parent) {
                named.add(child.ino);
            }
        }
        let mut first = self.sorter();
        for about in abouts.iter() {
            let about = about?;
            if about.is_known() && !self.reached.has(about.ino) && !named.has(about.ino) {
                first.push(self.lose(&about, homes)?)?;
            }
        }
        self.reach(first, children, &mut |child| {
            homes.put(child.ino, child.parent)
        })?;
        // What is left then lies in circles: it is entered somewhere.
        for about in abouts.iter() {
            let about = about?;
            if about.is_known() && !self.reached.has(about.ino) {
                let mut from = self.sorter();
                from.push(self.lose(&about, homes)?)?;
                self.reach(from, children, &mut |child| {
                    homes.put(child.ino, child.parent)
                })?;
            }
        }
        Ok(())
    }

    fn lose(&mut self, about: &About, homes: &mut Homes) -> FsResult<Number> {
        let ino = about.ino;
        self.reached.add(ino);
        self.sink.note(NUMBER_BYTES, |damage| damage.lost.push(ino));
        if self.directories.has(ino) {
            homes.put(ino, LOST)?;
        } else if about.nlink != 1 {
            self.sink.note_change(ino, Change::Links(1));
        }
        Ok(Number { nid: ino })
    }

    /// Finds names of directories beyond the one that each keeps: if there is a choice, the one where it says that it
    /// lies.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file, and when the device cannot be read.
    pub(super) fn choose_names(&mut self, edges: &Sorted<Edge>, homes: &mut Homes) -> FsResult<()> {
        let lost = self.sink.lost.iter().copied();
        let lost = lost.filter(|&ino| self.directories.has(ino));
        let crowded: BTreeSet<u32> = lost.chain(self.sink.crowded.iter().copied()).collect();
        for ino in crowded {
            self.prefer_stated(ino, edges, homes)?;
            let home = homes.get(ino)?;
            let mut is_kept = ino == ROOT || home == Some(LOST);
            for edge in names_of(ino, edges)? {
                let edge = edge?;
                match Some(edge.parent) == home && !is_kept {
                    true => is_kept = true,
                    false => {
                        self.sink.note_name(Fate::Second, Found::of(&edge));
                    }
                }
            }
        }
        // What goes needs no other kind.
        let place = |found: &Found| (found.parent, found.position);
        let second = self
            .sink
            .names
            .iter()
            .filter(|(fate, _)| *fate == Fate::Second);
        let second: HashSet<_> = second.map(|(_, found)| place(found)).collect();
        let is_kept = |(fate, found): &(Fate, Found)| {
            *fate == Fate::Second || !second.contains(&place(found))
        };
        self.sink.names.retain(is_kept);
        Ok(())
    }

    fn prefer_stated(&mut self, ino: u32, edges: &Sorted<Edge>, homes: &mut Homes) -> FsResult<()> {
        let home = homes.get(ino)?;
        let stated = self.state.live(ino)?.inode().attributes.parent;
        self.state.shrink();
        if ino == ROOT || home == Some(LOST) || home == Some(stated) {
            return Ok(());
        }
        for edge in names_of(ino, edges)? {
            if edge?.parent == stated && !homes.is_below(stated, ino)? {
                return homes.put(ino, stated);
            }
        }
        Ok(())
    }

    /// Compares links and parents of directories with where they lie.
    ///
    /// # Errors
    ///
    /// Errors of the temporary file.
    pub(super) fn compare_homes(
        &mut self,
        abouts: &Sorted<About>,
        homes: &mut Homes,
    ) -> FsResult<()> {
        let mut below = homes.below(self.sink.memory.of_table())?;
        for about in abouts.iter() {
            let about = about?;
            if !about.is_known() || kind_of(about.kind) != FileKind::Directory {
                continue;
            }
            let counted = u32::from_le_bytes(below.get(about.ino.into())?).saturating_add(2);
            if about.nlink != counted {
                self.sink.note_change(about.ino, Change::Links(counted));
            }
            let home = homes.get(about.ino)?.filter(|&home| home != LOST);
            if let Some(home) = home.filter(|&home| home != about.parent) {
                self.sink.note_change(about.ino, Change::Parent(home));
            }
        }
        Ok(())
    }

    /// Reads the names that have to be changed. A name that leads to what may only be unreadable stays.
    ///
    /// # Errors
    ///
    /// Errors of [`read_names`](Self::read_names).
    pub(super) fn judge_names(
        &mut self,
        edges: &Sorted<Edge>,
    ) -> Result<Vec<(Fate, Name)>, LogError> {
        let found = std::mem::take(&mut self.sink.names);
        let mut names = self.read_names(found)?;
        names.retain(|(fate, name)| *fate != Fate::Dangling || self.is_dangling(name));
        for (ino, error) in std::mem::take(&mut self.sink.broken) {
            for edge in names_of(ino, edges)? {
                let found = Found::of(&edge?);
                self.sink.note_name(Fate::Dangling, found);
            }
            let found = std::mem::take(&mut self.sink.names);
            let found = self.read_names(found)?;
            // An inode that has never been written is none.
            let entry = self.state.nodes.entry(ino);
            if entry.is_ok_and(|entry| entry.pointer == 0) {
                let bytes = size_of::<u32>();
                self.sink.note(bytes, |damage| damage.unwritten.push(ino));
                names.extend(found);
                continue;
            }
            if found.is_empty() {
                let text = format!("inode {ino}, which no name leads to: {error}");
                self.sink.note_unreadable(text);
            }
            for (_, name) in found {
                let text = format!("{}: {error}", name.place());
                self.sink.note_unreadable(text);
            }
        }
        names.sort_by_key(|(fate, _)| *fate);
        Ok(names)
    }

    /// Returns whether nothing is where a name leads; notes what cannot be read there.
    fn is_dangling(&mut self, name: &Name) -> bool {
        let ino = name.named.ino;
        let error = self.state.live(ino).err();
        self.state.shrink();
        let entry = self.state.nodes.entry(ino);
        let has_block = entry.map_or(true, |entry| entry.pointer != 0);
        match error {
            Some(FsError::NotFound) => true,
            Some(error) if is_damage(&error) && !has_block => true,
            Some(error) => {
                let text = format!("{}: {error}", name.place());
                self.sink.note_unreadable(text);
                false
            }
            None => false,
        }
    }
}

/// The names that lead to an inode.
fn names_of(
    ino: u32,
    edges: &Sorted<Edge>,
) -> FsResult<impl Iterator<Item = std::io::Result<Edge>>> {
    let first = edges.partition_point(|edge| edge.ino < ino)?;
    let names = edges.iter_from(first, STEP_BYTES);
    Ok(names.take_while(move |edge| edge.as_ref().map_or(true, |edge| edge.ino == ino)))
}
