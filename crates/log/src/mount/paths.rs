//! Path of an inode, for whoever is told of it by its number.

use anteros_core::Ino;

use crate::layout::ROOT;
use crate::mount::log::Log;

/// The deepest path that is looked for.
const DEPTH_MAX: usize = 64;

/// Position of the first entry of a directory behind `.` and `..`.
const BEHIND_DOTS: u64 = 2;

impl Log {
    /// Returns a path that leads to an inode from the root, by its newest name; `None` if there is none, or it cannot be read.
    /// Directories are searched for it, and others have their turn meanwhile.
    pub fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        let mut at = u32::try_from(ino.0).ok()?;
        let mut names = Vec::new();
        while at != ROOT {
            if names.len() == DEPTH_MAX {
                return None;
            }
            let parent = self.lock().live(at).ok()?.inode().attributes.parent;
            names.push(self.name_in(parent, at)?);
            at = parent;
        }
        let below = names
            .iter()
            .rev()
            .flat_map(|name| [b"/", &name[..]].concat());
        let path: Vec<u8> = below.collect();
        Some(if path.is_empty() { b"/".to_vec() } else { path })
    }

    /// The name of an inode in a directory.
    fn name_in(&self, parent: u32, ino: u32) -> Option<Vec<u8>> {
        let mut from = BEHIND_DOTS;
        loop {
            let listed = self.lock().portion(parent, from).ok()?;
            let (.., next) = listed.last()?;
            from = *next;
            let mut listed = listed.into_iter();
            if let Some((name, ..)) = listed.find(|(_, found, ..)| found.0 == u64::from(ino)) {
                return Some(name);
            }
        }
    }
}
