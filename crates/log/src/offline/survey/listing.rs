//! The names in a directory that may be damaged.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;

use anteros_core::{FsError, FsResult};

use super::notes::{Home, is_damage, refuse_beyond};
use crate::error::LogError;
use crate::files::dir::Named;
use crate::layout::dir;
use crate::state::State;

/// Position behind the names of the directory itself and of its parent, which are in no block.
const FIRST: u64 = 2;
/// Names that are taken out of a directory at a time.
const STEP_NAMES: usize = 1024;
/// Bytes that a name takes in memory, with its places in two sets, about.
const NAME_BYTES: usize = 300;

/// A name that was found.
pub(crate) struct Found {
    pub(crate) name: Vec<u8>,
    pub(crate) named: Named,
    /// Tells where it stands; 0: the directory cannot be listed.
    pub(crate) position: u64,
}

/// The names in a directory, as far as they can be read.
pub(crate) enum Listing {
    /// They lie as they should, so many of them.
    Sound { parent: u32, count: u64 },
    /// They have to be put into new blocks, and that is why.
    Broken { names: Vec<Found>, fault: String },
}

impl Listing {
    /// Looks at a directory, of which at most so many bytes of names are kept if it is damaged.
    ///
    /// # Errors
    ///
    /// When the device cannot be read, and when they are more.
    pub(crate) fn of(state: &mut State, parent: u32, bytes_max: usize) -> Result<Self, LogError> {
        match count(state, parent) {
            Ok(Some(count)) => Ok(Self::Sound { parent, count }),
            Ok(None) => {
                let (names, fault) = gather(state, parent, bytes_max)?;
                Ok(Self::Broken { names, fault })
            }
            Err(error) if is_damage(&error) => Ok(Self::Broken {
                names: salvage(state, parent, bytes_max)?,
                fault: error.to_string(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Sound { count, .. } => *count,
            Self::Broken { names, .. } => names.len() as u64,
        }
    }

    pub(crate) fn fault(&self) -> Option<&str> {
        match self {
            Self::Sound { .. } => None,
            Self::Broken { fault, .. } => Some(fault),
        }
    }

    /// Calls `visit` with each name.
    ///
    /// # Errors
    ///
    /// Those of `visit`, and when the device cannot be read.
    pub(crate) fn visit(
        self,
        state: &mut State,
        visit: &mut dyn FnMut(&mut State, Found) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let parent = match self {
            Self::Sound { parent, .. } => parent,
            Self::Broken { names, .. } => {
                return names.into_iter().try_for_each(|name| visit(state, name));
            }
        };
        let mut from = FIRST;
        loop {
            let step = names_from(state, parent, from, STEP_NAMES)?;
            let Some(last) = step.last() else {
                return Ok(());
            };
            from = last.position;
            for name in step {
                visit(state, name)?;
            }
        }
    }
}

/// The next names behind a position.
fn names_from(state: &mut State, parent: u32, from: u64, max: usize) -> FsResult<Vec<Found>> {
    let mut names = Vec::new();
    state.list(parent, from, &mut |entry, position| {
        names.push(Found {
            name: entry.name.to_vec(),
            named: Named {
                ino: entry.ino,
                kind: entry.kind,
            },
            position,
        });
        match names.len() < max {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(names)
}

/// Counts the names of a directory, if all lie where they should, each once.
fn count(state: &mut State, parent: u32) -> FsResult<Option<u64>> {
    let seed = state.store.superblock().hash_seed;
    let (mut count, mut last, mut is_sound) = (0, 0, true);
    // Names that are the same have the same hash, and follow each other therefore.
    let (mut hash, mut same) = (0, Vec::<Vec<u8>>::new());
    state.list(parent, FIRST, &mut |entry, position| {
        if entry.hash != hash {
            same.clear();
        }
        hash = entry.hash;
        let is_again = same.iter().any(|name| name == entry.name);
        is_sound &= !is_again && hash == dir::hash(entry.name, &seed) && position > last;
        same.push(entry.name.to_vec());
        last = position;
        count += 1;
        match is_sound {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(is_sound.then_some(count))
}

/// The names in a directory in which some lie elsewhere than they should, and how many do.
fn gather(
    state: &mut State,
    parent: u32,
    bytes_max: usize,
) -> Result<(Vec<Found>, String), LogError> {
    let seed = state.store.superblock().hash_seed;
    let (mut names, mut seen): (Vec<_>, HashSet<Vec<u8>>) = Default::default();
    let (mut misplaced, mut last) = (0, 0);
    let listed = state.list(parent, FIRST, &mut |entry, position| {
        let is_new = seen.insert(entry.name.to_vec());
        misplaced +=
            u32::from(!is_new || entry.hash != dir::hash(entry.name, &seed) || position <= last);
        last = position;
        if is_new {
            names.push(Found {
                name: entry.name.to_vec(),
                named: Named {
                    ino: entry.ino,
                    kind: entry.kind,
                },
                position,
            });
        }
        match names.len() * NAME_BYTES > bytes_max {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    refuse(names.len(), bytes_max)?;
    match listed {
        Ok(()) => {
            let fault = format!("{misplaced} names lie where their hashes do not lead");
            Ok((names, fault))
        }
        Err(error) if is_damage(&error) => {
            let fault = error.to_string();
            Ok((salvage(state, parent, bytes_max)?, fault))
        }
        Err(error) => Err(error.into()),
    }
}

fn refuse(names: usize, bytes_max: usize) -> Result<(), LogError> {
    refuse_beyond(bytes_max, names * NAME_BYTES, 4 * bytes_max)
}

/// The names in whatever block of a directory can be read.
fn salvage(state: &mut State, parent: u32, bytes_max: usize) -> Result<Vec<Found>, LogError> {
    let live = state.live(parent)?;
    let mut found: BTreeMap<Vec<u8>, Named> = BTreeMap::new();
    let mut add = |entry: dir::Entry<'_>| {
        found.entry(entry.name.to_vec()).or_insert(Named {
            ino: entry.ino,
            kind: entry.kind,
        });
    };
    if live.inode().attributes.is_inline {
        dir::entries(&live.inode().inline)
            .map_while(Result::ok)
            .for_each(&mut add);
    }
    let mut lblks: BTreeSet<u32> = state.live(parent)?.pages.keys().copied().collect();
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
    for lblk in lblks {
        match state.dir_block(parent, lblk) {
            Ok(block) => dir::leaf_entries(block)
                .into_iter()
                .flatten()
                .map_while(Result::ok)
                .for_each(|entry| {
                    found.entry(entry.name.to_vec()).or_insert(Named {
                        ino: entry.ino,
                        kind: entry.kind,
                    });
                }),
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(error.into()),
        }
        refuse(found.len(), bytes_max)?;
    }
    let found = found.into_iter();
    Ok(found
        .map(|(name, named)| Found {
            name,
            named,
            position: 0,
        })
        .collect())
}

/// The name of a directory that stands there.
///
/// # Errors
///
/// When it is not there any more, and as [`Listing::of`].
pub(super) fn name_of(
    state: &mut State,
    home: Home,
    ino: u32,
    bytes_max: usize,
) -> Result<Vec<u8>, LogError> {
    if let Some(before) = home.position.checked_sub(1) {
        let there = names_from(state, home.parent, before, 1)?;
        let there = there.into_iter().find(|found| found.named.ino == ino);
        if let Some(found) = there {
            return Ok(found.name);
        }
    }
    let mut name = None;
    Listing::of(state, home.parent, bytes_max)?.visit(state, &mut |_, found| {
        if name.is_none() && found.named.ino == ino {
            name = Some(found.name);
        }
        Ok(())
    })?;
    Ok(name.ok_or(FsError::NotFound)?)
}
