//! Text that people have written, in several languages.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bench::random::Random;
use crate::bench::{corpus, tree};
use crate::outcome::Outcome;

/// States where the languages lie in the source of Linux; English is all else.
const TRANSLATIONS: &str = "Documentation/translations";
const LANGUAGES: [&str; 5] = ["it_IT", "ja_JP", "ko_KR", "zh_CN", "zh_TW"];
const ENGLISH: &str = "Documentation/process";

/// The lengths of paragraphs that one might have typed, in bytes.
const LENGTHS: std::ops::Range<usize> = 30..600;

/// Paragraphs, by language.
pub(super) struct Text(Vec<Vec<String>>);

impl Text {
    /// Returns what the source of Linux has to say of itself.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(super) fn read() -> Outcome<Self> {
        let source = corpus("tree60k")?;
        let translations = source.join(TRANSLATIONS);
        let mut places: Vec<PathBuf> = LANGUAGES.map(|name| translations.join(name)).into();
        places.push(source.join(ENGLISH));
        let languages = places.iter().map(|place| paragraphs(place));
        Ok(Self(languages.collect::<Outcome<_>>()?))
    }

    /// A paragraph in the language of someone.
    pub(super) fn say(&self, who: u64, random: &mut Random) -> &str {
        let language = &self.0[who as usize % self.0.len()];
        &language[random.below(language.len() as u64) as usize]
    }

    /// So many paragraphs.
    pub(super) fn tell(&self, who: u64, count: u64, random: &mut Random) -> String {
        let mut told = String::new();
        for _ in 0..count {
            told += self.say(who, random);
            told.push_str("\n\n");
        }
        told
    }
}

/// The paragraphs of all texts below a directory.
fn paragraphs(directory: &Path) -> Outcome<Vec<String>> {
    let mut all = Vec::new();
    for (name, _) in tree::files(directory)? {
        if name.extension().is_some_and(|suffix| suffix == "rst") {
            let text = fs::read_to_string(directory.join(name))?;
            all.extend(of_text(&text));
        }
    }
    match all.is_empty() {
        true => Err(format!("{}: no text", directory.display()).into()),
        false => Ok(all),
    }
}

/// Paragraphs that are prose: neither headings, nor lists, nor directives.
fn of_text(text: &str) -> impl Iterator<Item = String> + '_ {
    let joined = |paragraph: &str| {
        let lines: Vec<&str> = paragraph.lines().map(str::trim).collect();
        lines.join(" ")
    };
    let is_prose = |paragraph: &String| {
        let first = paragraph.chars().next();
        first.is_some_and(char::is_alphabetic)
            && LENGTHS.contains(&paragraph.len())
            && !paragraph.contains("====")
            && !paragraph.contains("::")
    };
    text.split("\n\n").map(joined).filter(is_prose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_what_is_left_of_a_text() {
        let text = "Heading of it\n=============\n\n.. directive\n\nThis is one paragraph,\n  in two lines.\n\nshort\n\n- item that is long enough to be one\n";
        let found: Vec<String> = of_text(text).collect();
        assert_eq!(found, ["This is one paragraph, in two lines."]);
    }
}
