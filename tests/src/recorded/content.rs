//! Content that recorded calls leave behind, by the plainest means: to judge by what a file system has afterwards.

use std::collections::BTreeMap;
use std::io;

use super::{Action, Record, Trace, malformed};

/// Files by their paths in a trace, with all they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content(pub BTreeMap<String, Vec<u8>>);

impl Content {
    /// Returns what a whole trace leaves.
    ///
    /// # Errors
    ///
    /// When the trace cannot be read, or renames what is not there.
    pub fn of(trace: Trace) -> io::Result<Self> {
        let mut content = Self::default();
        for record in trace {
            content.apply(record?)?;
        }
        Ok(content)
    }

    /// Does one call.
    ///
    /// # Errors
    ///
    /// When it renames what is not there.
    pub fn apply(&mut self, record: Record) -> io::Result<()> {
        let Record { path, action, .. } = record;
        match action {
            Action::Write { offset, data } => {
                let end = offset as usize + data.len();
                let file = self.file_of_at_least(path, end);
                file[offset as usize..end].copy_from_slice(&data);
            }
            Action::Truncate { size } => {
                self.0.entry(path).or_default().resize(size as usize, 0);
            }
            Action::Allocate { offset, len } => {
                self.file_of_at_least(path, (offset + len) as usize);
            }
            Action::Create => drop(self.0.entry(path).or_default()),
            Action::Unlink => drop(self.0.remove(&path)),
            Action::Rename { from } => {
                let file = self.0.remove(&from);
                let file = file.ok_or_else(|| malformed(format!("there is no {from}")))?;
                self.0.insert(path, file);
            }
            Action::Fsync | Action::Fdatasync | Action::SyncDirectory => {}
        }
        Ok(())
    }

    fn file_of_at_least(&mut self, path: String, len: usize) -> &mut Vec<u8> {
        let file = self.0.entry(path).or_default();
        file.resize(file.len().max(len), 0);
        file
    }

    /// Returns where another one is different, if anywhere.
    pub fn difference(&self, other: &Self) -> Option<String> {
        for (path, file) in &self.0 {
            match other.0.get(path) {
                None => return Some(format!("{path} is missing")),
                Some(found) if found != file => return Some(first_difference(path, file, found)),
                Some(_) => {}
            }
        }
        let unknown = other.0.keys().find(|path| !self.0.contains_key(*path));
        unknown.map(|path| format!("{path} should not be there"))
    }
}

fn first_difference(path: &str, file: &[u8], found: &[u8]) -> String {
    let mut pairs = file.iter().zip(found);
    match pairs.position(|(one, other)| one != other) {
        Some(at) => format!("{path}: another byte at {at}"),
        None => format!("{path}: {} bytes, not {}", found.len(), file.len()),
    }
}
