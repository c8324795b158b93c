//! Knowledge of cargo about the packages we depend on.

use std::path::Path;

use serde_json::Value;

use crate::outcome::Outcome;
use crate::run::{cargo, output};

/// The manifests whose dependencies are ours: of the workspace, and of the fuzz targets once they exist.
pub(crate) fn manifests() -> impl Iterator<Item = &'static Path> {
    ["Cargo.toml", "fuzz/Cargo.toml"]
        .map(Path::new)
        .into_iter()
        .filter(|path| path.exists())
}

/// A package that we depend on.
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its licence, an SPDX expression; empty when it names none.
    pub(crate) license: String,
    /// The oldest Rust that it supports, when it says so.
    pub(crate) rust_version: Option<String>,
}

/// Every package of somebody else that `manifest` depends on.
///
/// # Errors
/// When cargo fails, for instance because `Cargo.lock` is out of date.
pub(crate) fn dependencies(manifest: &Path) -> Outcome<Vec<Package>> {
    let mut command = cargo();
    command
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--manifest-path",
        ])
        .arg(manifest);
    let metadata: Value = serde_json::from_str(&output(&mut command)?)?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata names no packages")?;
    // Packages of this repository have no source.
    Ok(packages
        .iter()
        .filter(|package| !package["source"].is_null())
        .map(Package::of)
        .collect())
}

impl Package {
    fn of(value: &Value) -> Self {
        let text = |field: &str| value[field].as_str().map(str::to_owned);
        Self {
            name: text("name").unwrap_or_default(),
            version: text("version").unwrap_or_default(),
            license: text("license").unwrap_or_default(),
            rust_version: text("rust_version"),
        }
    }
}
