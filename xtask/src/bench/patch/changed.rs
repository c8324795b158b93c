//! Files of a tree that an older one does not have as they are.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::outcome::Outcome;

/// Counts what was copied.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    files: u64,
    bytes: u64,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, bytes } = self;
        write!(f, "the update changes {files} files of {bytes} bytes")
    }
}

/// Copies the regular files of `new` that are new, or have other content than in `old`, to the same paths below `to`.
///
/// # Errors
/// When a file cannot be read or copied.
pub(super) fn copy(old: &Path, new: &Path, to: &Path) -> Outcome<Changed> {
    let mut changed = Changed::default();
    fs::create_dir_all(to)?;
    below(old, new, to, &mut changed)?;
    Ok(changed)
}

fn below(old: &Path, new: &Path, to: &Path, changed: &mut Changed) -> Outcome {
    for entry in fs::read_dir(new)? {
        let entry = entry?;
        let name = entry.file_name();
        let (before, now, copy) = (old.join(&name), entry.path(), to.join(&name));
        let found = entry.metadata()?;
        if found.is_dir() {
            below(&before, &now, &copy, changed)?;
        } else if found.is_file() && !is_same(&before, &now)? {
            fs::create_dir_all(to)?;
            fs::copy(&now, &copy)?;
            changed.files += 1;
            changed.bytes += found.len();
        }
    }
    Ok(())
}

/// Returns whether there is a file of the same content.
fn is_same(before: &Path, now: &Path) -> Outcome<bool> {
    let len = fs::metadata(now)?.len();
    let was_there = fs::symlink_metadata(before).is_ok_and(|was| was.is_file() && was.len() == len);
    Ok(was_there && fs::read(before)? == fs::read(now)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_or_other_is_copied_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new, to] = ["old", "new", "to"].map(|name| dir.path().join(name));
        for (tree, files) in [
            (&old, [("a/same", "1"), ("a/other", "2"), ("gone", "3")]),
            (&new, [("a/same", "1"), ("a/other", "4"), ("b/new", "55")]),
        ] {
            for (path, content) in files {
                let path = tree.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
        }
        let changed = copy(&old, &new, &to).unwrap();
        assert_eq!(changed, Changed { files: 2, bytes: 3 });
        assert_eq!(fs::read(to.join("a/other")).unwrap(), b"4");
        assert_eq!(fs::read(to.join("b/new")).unwrap(), b"55");
        assert!(!to.join("a/same").exists() && !to.join("gone").exists());
    }
}
