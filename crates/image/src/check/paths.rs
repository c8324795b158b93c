//! Paths of findings.
//!
//! The walk remembers only in which directory each inode was met. The names on the way from there to
//! the root are read again, for the inodes that something was found about: each directory once.

use std::collections::{HashMap, HashSet};
use std::io;

use anteros_format::Nid;

use crate::Image;

use super::finding::Finding;
use super::names::Names;
use super::walk::BROKEN_BLOCKS_MAX;

/// Longer paths are not told.
const PATH_BYTES_MAX: usize = 4096;

/// Directories on the way to the root, and on all such ways together.
const DEPTH_MAX: usize = PATH_BYTES_MAX / 2;
const WANTED_MAX: usize = 1 << 16;

/// The directory in which each inode was met that something was found about, or that is above one.
type Parents = HashMap<Nid, Nid>;

pub(super) fn fill_in(image: &Image, all: &Names, findings: &mut [Finding]) -> io::Result<()> {
    let parents = parents(all, findings)?;
    let names = names(image, wanted(&parents));
    for finding in findings {
        let nid = finding.place.nid();
        finding.path = nid.and_then(|nid| path(image, &parents, &names, nid));
    }
    Ok(())
}

fn parents(all: &Names, findings: &[Finding]) -> io::Result<Parents> {
    let mut parents = Parents::new();
    for finding in findings {
        let mut next = finding.place.nid();
        for _ in 0..DEPTH_MAX {
            let Some(nid) = next.filter(|nid| !parents.contains_key(nid)) else {
                break;
            };
            let Some(parent) = super::names::parent(all, nid)? else {
                break;
            };
            if parents.len() == WANTED_MAX {
                return Ok(parents);
            }
            parents.insert(nid, parent);
            next = Some(parent);
        }
    }
    Ok(parents)
}

/// The inodes whose names are wanted, by the directory that has them.
fn wanted(parents: &Parents) -> HashMap<Nid, HashSet<Nid>> {
    let mut wanted: HashMap<Nid, HashSet<Nid>> = HashMap::new();
    for (&nid, &parent) in parents.iter().filter(|(nid, parent)| nid != parent) {
        wanted.entry(parent).or_default().insert(nid);
    }
    wanted
}

fn names(image: &Image, wanted: HashMap<Nid, HashSet<Nid>>) -> HashMap<Nid, Vec<u8>> {
    let mut names = HashMap::new();
    for (dir, wanted) in wanted {
        // What could not be read when the tree was walked gave no names then either.
        let _ = read_names(image, dir, wanted, &mut names);
    }
    names
}

fn read_names(
    image: &Image,
    dir: Nid,
    mut wanted: HashSet<Nid>,
    names: &mut HashMap<Nid, Vec<u8>>,
) -> crate::Result<()> {
    let dir = image.inode(dir)?;
    let map = image.map(&dir)?;
    let mut buf = Vec::new();
    let mut unreadable = 0;
    for number in 0..image.dir_blocks(&dir) {
        let block = match image.dir_block(&dir, &map, number, &mut buf) {
            Ok(block) => block,
            Err(error) if unreadable == BROKEN_BLOCKS_MAX => return Err(error),
            Err(_) => {
                unreadable += 1;
                continue;
            }
        };
        let entries = (0..block.len()).filter_map(|index| block.entry(index).ok());
        for entry in entries.filter(|entry| !matches!(entry.name, b"." | b"..")) {
            if wanted.remove(&entry.nid) {
                names.insert(entry.nid, entry.name.to_vec());
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
    }
    Ok(())
}

/// The path from the root, which itself has the empty one; `None` for inodes that no directory names.
fn path(
    image: &Image,
    parents: &Parents,
    names: &HashMap<Nid, Vec<u8>>,
    mut nid: Nid,
) -> Option<Vec<u8>> {
    let mut components: Vec<&[u8]> = Vec::new();
    let mut bytes = 0;
    while nid != image.superblock().root {
        let name = names.get(&nid)?;
        bytes += name.len() + 1;
        if bytes > PATH_BYTES_MAX {
            return None;
        }
        components.push(name);
        nid = *parents.get(&nid)?;
    }
    components.reverse();
    Some(components.join(&b'/'))
}
