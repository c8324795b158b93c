//! The corpora that a part reads.

use std::path::PathBuf;

use super::harness::Bench;
use crate::bench::corpus;
use crate::bench::tree::single_file;
use crate::outcome::Outcome;

/// A corpus that is one file: its name, its directory and the name of the file.
type OneFile = (String, PathBuf, PathBuf);

impl Bench<'_> {
    /// The corpora asked for that are one file, or else others, for a part. Trees are left out, and that is told.
    ///
    /// # Errors
    /// When a corpus cannot be had, or all that are asked for are trees.
    pub(super) fn single_file_corpora(
        &mut self,
        part: &str,
        otherwise: &[&str],
    ) -> Outcome<Vec<OneFile>> {
        let names = self.options.corpora_or(otherwise);
        let (files, trees) = divided(&names, corpus)?;
        if files.is_empty() {
            return Err(no_file(&trees, otherwise).into());
        }
        for name in trees {
            self.note(format!("{part}: {name} is a tree, and left out"));
        }
        Ok(files)
    }
}

/// Divides corpora into those that are one file, and the names of those that are trees.
fn divided(
    names: &[String],
    directory_of: impl Fn(&str) -> Outcome<PathBuf>,
) -> Outcome<(Vec<OneFile>, Vec<String>)> {
    let (mut files, mut trees) = (Vec::new(), Vec::new());
    for name in names {
        let directory = directory_of(name)?;
        match single_file(&directory)? {
            Some(file) => files.push((name.clone(), directory, file)),
            None => trees.push(name.clone()),
        }
    }
    Ok((files, trees))
}

fn no_file(trees: &[String], otherwise: &[&str]) -> String {
    let (trees, otherwise) = (trees.join(", "), otherwise.join(", "));
    format!(
        "{trees}: a tree, of which this part reads nothing; it takes one file ({otherwise}), `--only large` trees"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn trees_are_told_from_single_files() {
        let directory = tempfile::tempdir().unwrap();
        for file in ["one/file", "tree/a", "tree/b"] {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "content").unwrap();
        }
        let names = ["one", "tree"].map(str::to_owned);
        let (files, trees) = divided(&names, |name| Ok(directory.path().join(name))).unwrap();
        let one = (
            "one".to_owned(),
            directory.path().join("one"),
            "file".into(),
        );
        assert_eq!(files, [one]);
        assert_eq!(trees, ["tree"]);
        let told = no_file(&trees, &["text1g"]);
        assert!(told.starts_with("tree: a tree, "), "{told}");
    }
}
