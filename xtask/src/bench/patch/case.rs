//! The images of one configuration: of the old tree, of the new one, and the old one patched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::images::Bench;
use crate::bench::report::Side;
use crate::outcome::Outcome;
use crate::run::run;

/// The trees before and after the update.
pub(super) struct Trees {
    pub(super) old: PathBuf,
    pub(super) new: PathBuf,
    /// Files of the new one that are not in the old one as they are.
    pub(super) changed: PathBuf,
}

/// The images of one configuration.
pub(super) struct Case<'a> {
    pub(super) bench: &'a Bench,
    pub(super) trees: &'a Trees,
    pub(super) configuration: &'a [&'a str],
    pub(super) subject: String,
    pub(super) old: PathBuf,
    pub(super) rebuilt: PathBuf,
    pub(super) patched: PathBuf,
    pub(super) exported: PathBuf,
}

impl<'a> Case<'a> {
    /// Builds the old image, the new one, and a patch of the old one.
    pub(super) fn new(
        bench: &'a Bench,
        trees: &'a Trees,
        configuration: &'a [&'a str],
    ) -> Outcome<Self> {
        let subject = match configuration {
            [] => "minbase".to_owned(),
            options => format!("minbase {}", options.join(" ")),
        };
        let case = Self {
            bench,
            trees,
            configuration,
            subject,
            old: bench.path("old.erofs"),
            rebuilt: bench.path("rebuilt.erofs"),
            patched: bench.path("patched.erofs"),
            exported: bench.path("exported"),
        };
        run(&mut case.mkfs(&case.old, &trees.old))?;
        run(&mut case.mkfs(&case.rebuilt, &trees.new))?;
        fs::copy(&case.old, &case.patched)?;
        run(&mut case.patch("--from", &trees.new))?;
        run(&mut case.patch("--export", &case.exported))?;
        Ok(case)
    }

    /// The command that builds an image of a tree.
    pub(super) fn mkfs(&self, image: &Path, tree: &Path) -> Command {
        let mut mkfs = self.bench.anteros("mkfs");
        mkfs.arg("--quiet").args(self.configuration);
        mkfs.arg(image).arg(tree);
        mkfs
    }

    /// The command that changes the patched image, or exports what it was changed by.
    pub(super) fn patch(&self, option: &str, path: &Path) -> Command {
        let mut patch = self.bench.anteros("patch");
        patch
            .arg("--quiet")
            .arg(&self.patched)
            .arg(option)
            .arg(path);
        patch
    }
}

/// Bytes of a file.
pub(super) fn bytes(path: &Path) -> Outcome<f64> {
    let metadata = fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(metadata.len() as f64)
}

/// A side that has one figure, or none.
pub(super) fn side(name: &str, command: String, figure: Result<f64, String>) -> Side {
    Side {
        name: name.to_owned(),
        command,
        figures: figure.map(|figure| vec![figure]),
    }
}
