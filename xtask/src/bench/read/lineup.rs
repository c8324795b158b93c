//! Contenders that meet.

use std::env;
use std::path::Path;

use super::contender::{Contender, How};
use super::format::{EROFS_4K, Format};
use super::harness::Bench;
use crate::outcome::Outcome;

impl Bench<'_> {
    /// Anteros as it is, and once more for every `--with`, on an image of a format.
    pub(super) fn ours(&self, format: &Format) -> Vec<Contender> {
        let with = self.options.with.iter();
        std::iter::once(Vec::new())
            .chain(with.map(|arguments| arguments.split_ascii_whitespace().collect()))
            .map(|arguments| Contender::anteros(&self.anteros, &arguments, format.clone()))
            .collect()
    }

    /// Those who read the same EROFS image as anteros, which comes first.
    ///
    /// # Errors
    /// When the peers' tree lacks `erofsfuse`.
    pub(super) fn erofs(&self, format: &Format) -> Outcome<Vec<Contender>> {
        let mut contenders = self.ours(format);
        contenders.extend([
            Contender::kernel("kernel erofs, file", format.clone(), How::File),
            Contender::kernel("kernel erofs, loop", format.clone(), How::Loop),
            Contender::peer("erofsfuse", "erofsfuse", format.clone())?,
        ]);
        Ok(contenders)
    }

    /// The kernel's squashfs with blocks of some sizes.
    pub(super) fn squashfs(blocks: &[&'static str]) -> Vec<Contender> {
        let contender = |block: &&'static str| {
            let name = format!("kernel squashfs {block}");
            Contender::kernel(&name, Format::Squashfs(block), How::Loop)
        };
        blocks.iter().map(contender).collect()
    }

    /// `squashfuse_ll` with blocks of a size.
    ///
    /// # Errors
    /// When the peers' tree lacks it.
    pub(super) fn squashfuse(block: &'static str) -> Outcome<Contender> {
        let name = format!("squashfuse_ll {block}");
        Contender::peer("squashfuse_ll", &name, Format::Squashfs(block))
    }

    /// The kernel's ext4.
    pub(super) fn ext4() -> Contender {
        Contender::kernel("kernel ext4", Format::Ext4, How::Loop)
    }

    /// DwarFS, if it is installed; if not, that is said.
    pub(super) fn dwarfs(&mut self) -> Option<Contender> {
        let missing: Vec<&str> = ["dwarfs", "mkdwarfs"]
            .into_iter()
            .filter(|name| !installed(name))
            .collect();
        if !missing.is_empty() {
            self.note(format!(
                "DwarFS takes no part: {} not found in PATH",
                missing.join(" and ")
            ));
            return None;
        }
        Some(Contender::installed("dwarfs", Format::Dwarfs))
    }

    /// Everybody, around an EROFS image with pclusters of 4 KiB.
    ///
    /// # Errors
    /// When the peers' tree lacks a program.
    pub(super) fn everybody(&mut self) -> Outcome<Vec<Contender>> {
        let mut contenders = self.erofs(&EROFS_4K)?;
        contenders.push(Self::squashfuse("4K")?);
        contenders.push(Self::squashfuse("128K")?);
        contenders.extend(Self::squashfs(&["4K", "8K", "16K", "128K"]));
        contenders.push(Self::ext4());
        contenders.extend(self.dwarfs());
        Ok(self.chosen(contenders))
    }

    /// Anteros, and those whose names have one of the words of `--contender`, if there are any.
    pub(super) fn chosen(&self, mut contenders: Vec<Contender>) -> Vec<Contender> {
        let words = &self.options.contenders;
        let chosen = |name: &str| words.iter().any(|word| name.contains(word.as_str()));
        if !words.is_empty() {
            contenders.retain(|one| one.name.starts_with("anteros") || chosen(&one.name));
        }
        contenders
    }
}

/// Is a program in `PATH`?
pub(super) fn installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| Path::new(&directory).join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(installed("sh"));
        assert!(!installed("no-such-program"));
    }
}
