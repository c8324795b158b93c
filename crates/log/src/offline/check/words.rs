//! Findings of a check, in words, with the path that each concerns.

use std::fmt::Display;

use anteros_core::Sorted;

use crate::layout::ROOT;
use crate::offline::walk::finding::{Fault, Place};
use crate::offline::walk::records::Edge;
use crate::offline::walk::{Sink, Walk};

/// Findings that are kept; all are counted.
const KEPT_MAX: usize = 1000;
/// Directories on a way to the root, behind which it is not looked for any more.
const DEPTH_MAX: usize = 1000;

/// Findings of a check.
#[derive(Default)]
pub(super) struct Words {
    kept: Vec<(Where, String)>,
    count: u64,
}

/// Place of a finding.
enum Where {
    Place(Place),
    Words(String),
}

impl Words {
    /// Number of findings, kept or not.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn note(&mut self, place: impl Display, fault: impl Display) {
        self.keep(|| Where::Words(place.to_string()), fault);
    }

    pub(super) fn note_all(&mut self, place: &str, faults: impl IntoIterator<Item = impl Display>) {
        for fault in faults {
            self.note(place, fault);
        }
    }

    fn keep(&mut self, place: impl FnOnce() -> Where, fault: impl Display) {
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push((place(), fault.to_string()));
        }
    }
}

impl Sink for Words {
    const TRUSTS_UNREAD: bool = true;

    fn find(&mut self, place: Place, fault: Fault) {
        self.keep(|| Where::Place(place), fault);
    }
}

impl Walk<'_, Words> {
    /// Puts the findings into words.
    pub(super) fn words(&mut self, edges: &Sorted<Edge>) -> Vec<String> {
        let kept = std::mem::take(&mut self.sink.kept);
        let words = kept.into_iter().map(|(place, fault)| {
            let place = match place {
                Where::Words(words) => words,
                Where::Place(place) => self.place(place, edges),
            };
            self.state.shrink();
            format!("{place}: {fault}")
        });
        words.collect()
    }

    fn place(&mut self, place: Place, edges: &Sorted<Edge>) -> String {
        match place {
            Place::Table => "node address table".into(),
            Place::Checkpoint => "checkpoint".into(),
            Place::Node(nid) => format!("node {nid}"),
            Place::Inode(ino) => match self.path(ino, edges) {
                Some(path) => format!("{} (inode {ino})", quoted(&path)),
                None => format!("inode {ino}"),
            },
            Place::Name(parent, name) => self.name_in(parent, Some(name), edges),
            Place::Position(parent, position) => {
                let name = self.name_at(parent, position);
                self.name_in(parent, name, edges)
            }
        }
    }

    fn name_in(&mut self, parent: u32, name: Option<Vec<u8>>, edges: &Sorted<Edge>) -> String {
        match (self.path(parent, edges), name) {
            (Some(path), Some(name)) => quoted(&below(path, &name)),
            (None, Some(name)) => format!("directory {parent}, {}", quoted(&name)),
            (_, None) => format!("directory {parent}"),
        }
    }

    /// A path that leads to an inode, if that can be read.
    fn path(&mut self, ino: u32, edges: &Sorted<Edge>) -> Option<Vec<u8>> {
        let (mut at, mut names) = (ino, Vec::new());
        while at != ROOT {
            if names.len() > DEPTH_MAX || !self.reached.has(at) {
                return None;
            }
            let edge = edges.first_from(|edge| edge.ino < at).ok()??;
            if edge.ino != at {
                return None;
            }
            names.push(self.name_at(edge.parent, edge.position)?);
            at = edge.parent;
        }
        let path = names.iter().rev();
        let path = path.fold(Vec::new(), |path, name| below(path, name));
        Some(if path.is_empty() { b"/".to_vec() } else { path })
    }
}

fn below(mut path: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// A name as a person can read it, whatever it holds.
fn quoted(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}
