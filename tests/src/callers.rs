//! Programs that call mkfs.erofs, and the lines with which they do: `data/callers`, which says what its words mean.

use std::path::Path;

/// A program, and what it runs.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Name of the program, and of the settings if it has several lines.
    pub name: String,
    /// Files that the lines are taken from, with repository and revision.
    pub sources: Vec<String>,
    /// Words that say where the line runs.
    pub within: Vec<String>,
    /// Arguments of mkfs.erofs.
    pub mkfs: Vec<String>,
    /// Arguments that erofs-utils can be given as well, if they differ.
    pub bench: Option<Vec<String>>,
    /// Arguments of each call of fsck.erofs.
    pub fsck: Vec<Vec<String>>,
    /// Arguments of each call of dump.erofs.
    pub dump: Vec<Vec<String>>,
    /// Words that say what is in the image.
    pub holds: Vec<String>,
}

impl Caller {
    /// Returns the value of a word of `within`, as of `out=PATH`.
    pub fn place(&self, word: &str) -> Option<&str> {
        value(&self.within, word)
    }

    /// Returns the value of a word of `holds`, as of `owners=tree`.
    pub fn held(&self, word: &str) -> Option<&str> {
        value(&self.holds, word)
    }

    /// Returns whether the line runs under fakeroot.
    pub fn is_faked(&self) -> bool {
        self.within.iter().any(|word| word == "fakeroot")
    }

    /// Returns whether an archive of the tree is on standard input.
    pub fn is_piped(&self) -> bool {
        self.place("stdin") == Some("tar")
    }

    /// The variables of its environment.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.within.iter().filter_map(|word| word.split_once('='));
        pairs.filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_uppercase()))
    }

    fn add(&mut self, key: &str, text: &str) {
        let words = || {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        match key {
            "source" => self.sources.push(text.to_owned()),
            "with" => {}
            "within" => self.within = words(),
            "mkfs" => self.mkfs = words(),
            "bench" => self.bench = Some(words()),
            "fsck" => self.fsck.push(words()),
            "dump" => self.dump.push(words()),
            "holds" => self.holds = words(),
            _ => panic!("{}: no word {key}", self.name),
        }
    }
}

/// The file.
pub fn path() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/callers")
}

/// Reads the file.
///
/// # Panics
///
/// If it is not as its head says.
pub fn callers() -> Vec<Caller> {
    let text = std::fs::read_to_string(path()).unwrap();
    let text = text.replace("\n           ", " ");
    let mut callers: Vec<Caller> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ").map(|line| line.split_at(9)) {
            Some((key, text)) => callers.last_mut().unwrap().add(key.trim(), text),
            None if line.is_empty() => {}
            None => callers.push(Caller {
                name: line.to_owned(),
                ..Caller::default()
            }),
        }
    }
    callers
}

fn value<'a>(words: &'a [String], word: &str) -> Option<&'a str> {
    let mut pairs = words.iter().filter_map(|word| word.split_once('='));
    pairs.find_map(|(name, value)| (name == word).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_source_and_makes_an_image() {
        for caller in callers() {
            assert!(!caller.sources.is_empty(), "{}", caller.name);
            for line in std::iter::once(&caller.mkfs).chain(&caller.bench) {
                assert!(line.iter().any(|word| word == "OUT"), "{}", caller.name);
                let has_source = line.iter().any(|word| word == "TREE");
                assert_ne!(has_source, caller.is_piped(), "{}", caller.name);
            }
        }
    }

    #[test]
    fn lines_go_on_further_in() {
        let callers = callers();
        let lorax = callers
            .iter()
            .find(|caller| caller.name == "lorax")
            .unwrap();
        assert_eq!(lorax.mkfs[..4], ["OUT", "TREE", "-z", "zstd,8"]);
        let android = callers
            .iter()
            .find(|caller| caller.name == "Android, a vendor image");
        assert_eq!(android.unwrap().mkfs.last().unwrap(), "TREE");
    }
}
