//! `cargo xtask licenses`: every dependency comes under a licence that `deny.toml` allows.
//!
//! The list lies in `deny.toml` so that cargo-deny, where somebody has it, judges by the same one.

use std::collections::BTreeSet;
use std::fs;

use crate::metadata::{dependencies, manifests};
use crate::outcome::Outcome;

/// Refuses dependencies whose licence is not allowed.
///
/// # Errors
/// Names each refused package and its licence.
pub(crate) fn licenses() -> Outcome {
    let deny = fs::read_to_string("deny.toml")?;
    let allowed = allowed(&deny).ok_or("deny.toml has no list `allow = [...]`")?;
    let mut count = 0;
    let mut refused = BTreeSet::new();
    for manifest in manifests() {
        for package in dependencies(manifest)? {
            count += 1;
            if !permits(&package.license, &allowed) {
                refused.insert(format!(
                    "{} {}: {:?}",
                    package.name, package.version, package.license
                ));
            }
        }
    }
    if refused.is_empty() {
        println!("licenses: {count} dependencies, all under licences that deny.toml allows");
        return Ok(());
    }
    let refused: Vec<_> = refused.into_iter().collect();
    Err(format!(
        "licences that deny.toml does not allow:\n  {}",
        refused.join("\n  ")
    )
    .into())
}

/// The quoted words of the list `allow`.
fn allowed(deny: &str) -> Option<BTreeSet<&str>> {
    let (_, list) = deny.split_once("\nallow = [")?;
    let (list, _) = list.split_once(']')?;
    Some(list.split('"').skip(1).step_by(2).collect())
}

/// Does an SPDX expression leave a choice of licences that are all allowed?
///
/// The old way of writing `OR` as a slash counts as well. What is not an expression is refused.
fn permits(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words = Words {
        words: spaced.split_whitespace().collect(),
        allowed,
    };
    words.words.reverse();
    words.any() == Some(true) && words.words.is_empty()
}

/// The words of an expression still to be read, the next one last.
struct Words<'a> {
    words: Vec<&'a str>,
    allowed: &'a BTreeSet<&'a str>,
}

impl Words<'_> {
    /// `all OR all …`; `None` where the words make no expression.
    fn any(&mut self) -> Option<bool> {
        let mut permitted = self.all()?;
        while self.take("OR") {
            permitted |= self.all()?;
        }
        Some(permitted)
    }

    /// `one AND one …`
    fn all(&mut self) -> Option<bool> {
        let mut permitted = self.one()?;
        while self.take("AND") {
            permitted &= self.one()?;
        }
        Some(permitted)
    }

    /// A licence, one with an exception, or an expression in parentheses.
    fn one(&mut self) -> Option<bool> {
        let word = self.words.pop()?;
        if word == "(" {
            let permitted = self.any()?;
            return self.take(")").then_some(permitted);
        }
        if self.take("WITH") {
            let name = format!("{word} WITH {}", self.words.pop()?);
            return Some(self.allowed.contains(name.as_str()));
        }
        Some(self.allowed.contains(word))
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.last() == Some(&word);
        if is_next {
            self.words.pop();
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_permitted_when_some_choice_of_it_is() {
        let allowed = BTreeSet::from([
            "MIT",
            "Apache-2.0",
            "NCSA",
            "Apache-2.0 WITH LLVM-exception",
        ]);
        let permitted = [
            "MIT",
            "GPL-2.0-only OR MIT",
            "MIT/GPL-3.0",
            "(MIT OR Apache-2.0) AND NCSA",
            "MPL-2.0 AND BSL-1.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ];
        let refused = [
            "",
            "GPL-2.0-only",
            "MIT AND GPL-2.0-only",
            "(MIT OR Apache-2.0) AND MPL-2.0",
            "MIT WITH LLVM-exception",
            "(MIT",
            "MIT MIT",
            "OR",
        ];
        for expression in permitted {
            assert!(permits(expression, &allowed), "{expression:?}");
        }
        for expression in refused {
            assert!(!permits(expression, &allowed), "{expression:?}");
        }
    }

    #[test]
    fn the_allow_list_is_read_from_deny_toml() {
        let deny =
            "[licenses]\nallow = [\n  \"MIT\",\n  \"Zlib\",\n]\nexceptions = [\"GPL-3.0\"]\n";
        assert_eq!(allowed(deny), Some(BTreeSet::from(["MIT", "Zlib"])));
        assert_eq!(allowed("[licenses]\n"), None);
    }
}
