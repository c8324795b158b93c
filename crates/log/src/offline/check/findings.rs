//! Findings of a check, in words, with the path that it concerns.

use std::fmt::Display;
use std::ops::ControlFlow;

use super::Checker;
use super::finding::{Finding, Place};
use crate::layout::ROOT;

/// Findings that are kept; all are counted.
const KEPT_MAX: usize = 1000;
/// Directories on a way to the root, behind which it is not looked for any more.
const DEPTH_MAX: usize = 1000;

impl Checker {
    pub(super) fn note(&mut self, place: impl Display, fault: impl Display) {
        self.note_at(Place::Other(place.to_string()), fault);
    }

    pub(super) fn note_at(&mut self, place: Place, fault: impl Display) {
        self.report.fault_count += 1;
        if self.findings.len() < KEPT_MAX {
            let fault = fault.to_string();
            self.findings.push(Finding { place, fault });
        }
    }

    /// Puts the findings into words.
    pub(super) fn tell(&mut self) {
        for Finding { place, fault } in std::mem::take(&mut self.findings) {
            let place = self.words(place);
            self.report.faults.push(format!("{place}: {fault}"));
            self.state.shrink();
        }
    }

    fn words(&mut self, place: Place) -> String {
        match place {
            Place::Other(words) => words,
            Place::Inode(ino) => match self.path(ino) {
                Some(path) => format!("{} (inode {ino})", quoted(&path)),
                None => format!("inode {ino}"),
            },
            Place::Name(parent, name) => self.name_in(parent, Some(name)),
            Place::Position(parent, position) => {
                let name = self.name_at(parent, position);
                self.name_in(parent, name)
            }
        }
    }

    fn name_in(&mut self, parent: u32, name: Option<Vec<u8>>) -> String {
        match (self.path(parent), name) {
            (Some(path), Some(name)) => quoted(&below(path, &name)),
            (None, Some(name)) => format!("directory {parent}, {}", quoted(&name)),
            (_, None) => format!("directory {parent}"),
        }
    }

    /// A path that leads to an inode, if that can be read.
    fn path(&mut self, ino: u32) -> Option<Vec<u8>> {
        let (mut at, mut names) = (ino, Vec::new());
        while at != ROOT {
            if names.len() > DEPTH_MAX || !self.reached.has(at) {
                return None;
            }
            let edges = self.names.as_ref()?;
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

    fn name_at(&mut self, parent: u32, position: u64) -> Option<Vec<u8>> {
        let mut found = None;
        let mut visit = |entry: &crate::layout::dir::Entry<'_>, at: u64| {
            if at == position {
                found = Some(entry.name.to_vec());
            }
            ControlFlow::Break(())
        };
        let before = position.checked_sub(1)?;
        let listed = self.state.list(parent, before, &mut visit);
        listed.ok().and(found)
    }
}

fn below(mut path: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// As a person can read it, whatever it holds.
fn quoted(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}
