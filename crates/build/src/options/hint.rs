//! Hints: paths whose files are compressed in another way than the rest, or not at all.

use regex::bytes::Regex;

use super::compression::Setting;
use crate::Error;

/// Describes how the files of some paths are compressed.
#[derive(Debug, Clone)]
pub struct Hint {
    pattern: Regex,
    setting: Option<Setting>,
}

impl Hint {
    /// A hint for each path, relative to the source, in which a regular expression is found, in the syntax of the
    /// `regex` crate. Without a setting these files stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if it is no regular expression.
    pub fn new(expression: &str, setting: Option<Setting>) -> Result<Self, Error> {
        let regex = Regex::new(expression);
        let pattern = regex.map_err(|e| Error::Option(format!("the hint `{expression}`: {e}")))?;
        Ok(Self { pattern, setting })
    }

    /// The way of its files; `None` if they stay as they are.
    pub const fn setting(&self) -> Option<Setting> {
        self.setting
    }

    /// Returns whether a file is one of its files, by the path relative to the source.
    pub(crate) fn is_for(&self, path: &[u8]) -> bool {
        self.pattern.is_match(path)
    }
}
