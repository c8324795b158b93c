//! Access profiles: which parts of which files are read, and how often.
//!
//! A profile is text, one range a line, four fields with tabs between them:
//!
//! ```text
//! # path          offset   length   count
//! /usr/bin/app    0        131072   40
//! ```
//!
//! Offset and length are in bytes. In a path, `\t`, `\n`, `\\` and `\xHH` stand for bytes that would
//! be taken for something else. Empty lines and lines that begin with `#` are comments.

use std::num::ParseIntError;

/// A range of a file that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotRange {
    /// The path in the image, as bytes.
    pub path: Vec<u8>,
    /// Tells where the range begins, in bytes.
    pub offset: u64,
    /// Tells how long it is; what lies beyond the end of the file does not count.
    pub len: u64,
    /// Tells how often it is read.
    pub count: u64,
}

/// Holds what is read of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// The ranges, in the order of the text.
    pub ranges: Vec<HotRange>,
}

/// Tells why a line is no line of a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ProfileError {
    /// The line, counted from 1.
    pub line: usize,
    /// Holds what is wrong with it.
    pub fault: ProfileFault,
}

/// Tells what may be wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileFault {
    /// Fields are missing, or there are too many.
    #[error("{found} fields; path, offset, length and count are needed, with tabs between them")]
    Fields {
        /// Tells how many there are.
        found: usize,
    },
    /// A field is no number.
    #[error("{what} {value:?}: {source}")]
    Number {
        /// Tells which field.
        what: &'static str,
        /// Holds what it says.
        value: String,
        /// Tells why that is none.
        source: ParseIntError,
    },
    /// The path has an unknown escape.
    #[error("the path has a \\ that neither t, n, \\ nor xHH follows")]
    Escape,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// The first line that is none.
    pub fn parse(text: &[u8]) -> Result<Self, ProfileError> {
        let lines = text.split(|&byte| byte == b'\n').enumerate();
        let ranges = lines
            .filter(|(_, line)| !line.trim_ascii().is_empty() && !line.starts_with(b"#"))
            .map(|(index, line)| {
                let line_number = index + 1;
                HotRange::parse(line).map_err(|fault| ProfileError {
                    line: line_number,
                    fault,
                })
            });
        let ranges = ranges.collect::<Result<_, _>>()?;
        Ok(Self { ranges })
    }
}

impl HotRange {
    fn parse(line: &[u8]) -> Result<Self, ProfileFault> {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b'\t').collect();
        let &[path, offset, len, count] = fields.as_slice() else {
            let found = fields.len();
            return Err(ProfileFault::Fields { found });
        };
        Ok(Self {
            path: unescape(path).ok_or(ProfileFault::Escape)?,
            offset: number("offset", offset)?,
            len: number("length", len)?,
            count: number("count", count)?,
        })
    }
}

fn number(what: &'static str, field: &[u8]) -> Result<u64, ProfileFault> {
    let value = String::from_utf8_lossy(field.trim_ascii()).into_owned();
    value.parse().map_err(|source| ProfileFault::Number {
        what,
        value,
        source,
    })
}

fn unescape(field: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(field.len());
    let mut bytes = field.iter().copied();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'\\' => b'\\',
                b'x' => 16 * digit(bytes.next()?)? + digit(bytes.next()?)?,
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(path)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_lines_of_four_fields() {
        let text = b"# a comment\n\n/usr/a b\t0\t4096\t7\n/odd\\t\\n\\\\\\xff\t1\t2\t3\n";
        let profile = Profile::parse(text).unwrap();
        let [first, second] = &profile.ranges[..] else {
            panic!("{profile:?}");
        };
        assert_eq!(first.path, b"/usr/a b");
        assert_eq!((first.offset, first.len, first.count), (0, 4096, 7));
        assert_eq!(second.path, b"/odd\t\n\\\xff");
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for (text, expected) in [
            ("/a\t1\t2\t3\n/b\t1\t2", "line 2: 3 fields"),
            ("/a 1 2 3", "line 1: 1 fields"),
            ("\n/a\tx\t2\t3", "line 2: offset \"x\""),
            ("/a\t1\t-2\t3", "line 1: length \"-2\""),
            ("/a\t1\t2\t99999999999999999999", "line 1: count"),
            ("/a\\\t1\t2\t3", "line 1: the path"),
            ("/a\\x4\t1\t2\t3", "line 1: the path"),
        ] {
            let error = Profile::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }
}
