//! `cargo xtask msrv`: nothing here needs a newer Rust than `rust-version` in `Cargo.toml` promises.
//!
//! Two checks. What dependencies say about themselves is read from cargo and costs nothing; then everything is
//! compiled with that oldest Rust (`scripts/msrv.sh`), because not all of them say, and none is sure to say the truth.

use std::cmp::Ordering;
use std::fs;
use std::process::Command;

use crate::metadata::{dependencies, manifests};
use crate::outcome::Outcome;
use crate::run::run;

/// Refuses dependencies that need a newer Rust, then compiles the workspace with the oldest.
///
/// # Errors
/// Names each dependency that needs more; or the compiler's error.
pub(crate) fn msrv() -> Outcome {
    let oldest = promised(&fs::read_to_string("Cargo.toml")?)?;
    let mut too_new = Vec::new();
    for manifest in manifests() {
        for package in dependencies(manifest)? {
            if let Some(needed) = package
                .rust_version
                .filter(|needed| compare(needed, &oldest).is_gt())
            {
                too_new.push(format!(
                    "{} {} needs Rust {needed}",
                    package.name, package.version
                ));
            }
        }
    }
    if !too_new.is_empty() {
        return Err(format!("Rust {oldest} is promised, but\n  {}", too_new.join("\n  ")).into());
    }
    println!("msrv: no dependency says that it needs more than Rust {oldest}");
    run(&mut Command::new("scripts/msrv.sh"))?;
    println!("msrv: everything compiles with Rust {oldest}");
    Ok(())
}

/// The `rust-version` of a manifest.
fn promised(manifest: &str) -> Outcome<String> {
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \""));
    let version = line
        .and_then(|line| line.strip_suffix('"'))
        .ok_or("Cargo.toml names no rust-version")?;
    Ok(version.to_owned())
}

/// Compares versions number by number; missing numbers count as zero.
fn compare(one: &str, other: &str) -> Ordering {
    let numbers = |version: &str| -> [u32; 3] {
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        std::array::from_fn(|_| parts.next().unwrap_or(0))
    };
    numbers(one).cmp(&numbers(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(compare("1.85", "1.85.0"), Ordering::Equal);
        assert_eq!(compare("1.9", "1.85"), Ordering::Less);
        assert_eq!(compare("1.85.1", "1.85"), Ordering::Greater);
    }

    #[test]
    fn the_promise_is_read_from_the_manifest() {
        let manifest = "[workspace.package]\nedition = \"2024\"\nrust-version = \"1.85\"\n";
        assert_eq!(promised(manifest).unwrap(), "1.85");
        assert!(promised("[workspace]\n").is_err());
    }
}
