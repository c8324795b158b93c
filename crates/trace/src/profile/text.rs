//! Lines to ranges and back.

use std::io::{self, Read, Write};
use std::num::ParseIntError;

use super::digest::Digest;
use super::range::{Profile, Range};

/// The most bytes of a profile.
pub const TEXT_BYTES_MAX: usize = 256 << 20;
/// The most ranges of a profile.
pub const RANGES_MAX: usize = 1 << 20;
/// The most bytes of a path.
pub const PATH_BYTES_MAX: usize = 4096;

/// Begins the line that says how many rounds were recorded.
const HEADER: &[u8] = b"# anteros profile, ";

/// Tells why a text is no profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The medium.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is too long.
    #[error("more than {TEXT_BYTES_MAX} bytes, which is the most of a profile")]
    TooLong,
    /// A line is none of a profile.
    #[error("line {line}: {fault}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// Holds what is wrong with it.
        fault: ProfileFault,
    },
}

/// Tells what may be wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileFault {
    /// Fields are missing, or there are too many.
    #[error(
        "{found} fields; path, offset, length and count are needed, with tabs between them, and a digest may follow"
    )]
    Fields {
        /// Tells how many there are.
        found: usize,
    },
    /// A field is no number.
    #[error("{what} {value:?}: {source}")]
    Number {
        /// Tells which field.
        what: &'static str,
        /// Holds what it says, or the beginning of it.
        value: String,
        /// Tells why that is none.
        source: ParseIntError,
    },
    /// The path has an unknown escape.
    #[error("the path has a \\ that neither t, n, \\ nor xHH follows")]
    Escape,
    /// The path is too long.
    #[error("a path of {0} bytes; they have at most {PATH_BYTES_MAX}")]
    Path(usize),
    /// The digest is none.
    #[error("a digest is 32 hexadecimal digits")]
    Digest,
    /// There are too many ranges.
    #[error("one more range than the {RANGES_MAX} that a profile may have")]
    TooMany,
}

impl Profile {
    /// Reads a profile. If its first line does not say how many rounds were recorded, it has as many as its largest
    /// count.
    ///
    /// # Errors
    ///
    /// The first line that is none.
    pub fn parse(text: &[u8]) -> Result<Self, ProfileError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ProfileError::TooLong);
        }
        let mut rounds = None;
        let mut ranges = Vec::new();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if index == 0 {
                rounds = header(line);
            }
            if line.trim_ascii().is_empty() || line.starts_with(b"#") {
                continue;
            }
            let range = match ranges.len() {
                RANGES_MAX => Err(ProfileFault::TooMany),
                _ => Range::parse(line),
            };
            let line = index + 1;
            ranges.push(range.map_err(|fault| ProfileError::Line { line, fault })?);
        }
        let most = || ranges.iter().map(|range| range.count).max();
        let rounds = rounds.or_else(most).unwrap_or(0);
        Ok(Self { rounds, ranges })
    }

    /// Reads a profile from a file or pipe, and no more of it than a profile may have.
    ///
    /// # Errors
    ///
    /// The first line that is none, and those of reading.
    pub fn read(text: impl Read) -> Result<Self, ProfileError> {
        let mut bytes = Vec::new();
        text.take(TEXT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)?;
        Self::parse(&bytes)
    }

    /// Writes a profile as text.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn write(&self, text: &mut impl Write) -> io::Result<()> {
        self.write_with(None, text)
    }

    /// Writes a profile as text, with a remark of one line for people.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn write_with(&self, remark: Option<&str>, text: &mut impl Write) -> io::Result<()> {
        text.write_all(HEADER)?;
        let noun = if self.rounds == 1 { "round" } else { "rounds" };
        writeln!(text, "{} {noun}", self.rounds)?;
        remark.map_or(Ok(()), |remark| writeln!(text, "# {remark}"))?;
        text.write_all(b"# path\toffset\tlength\tcount\tdigest\n")?;
        self.ranges.iter().try_for_each(|range| range.write(text))
    }
}

/// The rounds that a first line tells of.
fn header(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(HEADER)?.trim_ascii();
    let digits = rest
        .strip_suffix(b" rounds")
        .or_else(|| rest.strip_suffix(b" round"))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Range {
    fn parse(line: &[u8]) -> Result<Self, ProfileFault> {
        let mut fields = line.split(|&byte| byte == b'\t');
        let found = || fields.clone().count();
        let (path, offset, len, count, digest) = match found() {
            4 | 5 => {
                let mut next = || fields.next().unwrap_or_default();
                (next(), next(), next(), next(), fields.next())
            }
            found => return Err(ProfileFault::Fields { found }),
        };
        let digest = digest.map(<[u8]>::trim_ascii).filter(|d| !d.is_empty());
        let digest = digest.map(|d| Digest::parse(d).ok_or(ProfileFault::Digest));
        Ok(Self {
            path: unescape(path)?,
            offset: number("offset", offset)?,
            len: number("length", len)?,
            count: number("count", count)?,
            digest: digest.transpose()?,
        })
    }

    fn write(&self, text: &mut impl Write) -> io::Result<()> {
        text.write_all(escape(&self.path).as_bytes())?;
        write!(text, "\t{}\t{}\t{}", self.offset, self.len, self.count)?;
        match self.digest {
            Some(digest) => writeln!(text, "\t{digest}"),
            None => writeln!(text),
        }
    }
}

fn number(what: &'static str, field: &[u8]) -> Result<u64, ProfileFault> {
    const SHOWN: usize = 40;
    let field = field.trim_ascii();
    let parsed = String::from_utf8_lossy(field).parse();
    parsed.map_err(|source| ProfileFault::Number {
        what,
        value: String::from_utf8_lossy(&field[..field.len().min(SHOWN)]).into_owned(),
        source,
    })
}

fn unescape(field: &[u8]) -> Result<Vec<u8>, ProfileFault> {
    let mut path = Vec::with_capacity(field.len().min(PATH_BYTES_MAX));
    let mut bytes = field.iter().copied();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'\\' => escaped(&mut bytes).ok_or(ProfileFault::Escape)?,
            byte => byte,
        };
        if path.len() == PATH_BYTES_MAX {
            return Err(ProfileFault::Path(field.len()));
        }
        path.push(byte);
    }
    Ok(path)
}

fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match bytes.next()? {
        b't' => b'\t',
        b'n' => b'\n',
        b'\\' => b'\\',
        b'x' => 16 * digit(bytes.next()?)? + digit(bytes.next()?)?,
        _ => return None,
    })
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// A path in which a line has one field and no byte is taken for something else.
fn escape(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\\' => text.push_str("\\\\"),
                '#' if text.is_empty() => text.push_str("\\x23"),
                char if char.is_control() => {
                    let mut bytes = [0; 4];
                    push_hex(&mut text, char.encode_utf8(&mut bytes).as_bytes());
                }
                char => text.push(char),
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    text.extend(bytes.iter().map(|byte| format!("\\x{byte:02x}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(profile: &Profile) -> String {
        let mut text = Vec::new();
        profile.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_profile_is_lines_of_four_fields() {
        let text = b"# a comment\n\n/usr/a b\t0\t4096\t7\n/odd\\t\\n\\\\\\xff\t1\t2\t3\r\n";
        let profile = Profile::parse(text).unwrap();
        let [first, second] = &profile.ranges[..] else {
            panic!("{profile:?}");
        };
        assert_eq!(first.path, b"/usr/a b");
        assert_eq!((first.offset, first.len, first.count), (0, 4096, 7));
        assert_eq!(second.path, b"/odd\t\n\\\xff");
        assert_eq!(profile.rounds, 7);
        assert_eq!(Profile::parse(b"").unwrap(), Profile::default());
    }

    #[test]
    fn a_digest_may_follow() {
        let digest = Digest::of(b"content");
        let text = format!("# anteros profile, 3 rounds\n/a\t0\t7\t2\t{digest}\n/b\t0\t1\t3\t\n");
        let profile = Profile::parse(text.as_bytes()).unwrap();
        assert_eq!(profile.rounds, 3);
        assert_eq!(profile.ranges[0].digest, Some(digest));
        assert_eq!(profile.ranges[1].digest, None);
        assert_eq!(profile.core().collect::<Vec<_>>(), [&profile.ranges[1]]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let paths: [&[u8]; 8] = [
            b"/a",
            b"",
            b"# no comment",
            b"/new\nline\ttab\r\x7f\\",
            b"/\xff\xfe invalid",
            "/\u{85}\u{2028}ä".as_bytes(),
            b"/  blanks at the end ",
            b"\r",
        ];
        let ranges = paths.iter().enumerate().map(|(index, path)| Range {
            path: path.to_vec(),
            offset: u64::MAX - index as u64,
            len: u64::MAX,
            count: index as u64,
            digest: (index % 2 == 0).then(|| Digest::of(path)),
        });
        for rounds in [0, 1, 9] {
            let ranges = ranges.clone().collect();
            let profile = Profile { rounds, ranges };
            let text = written(&profile);
            assert_eq!(text.lines().count(), 2 + paths.len(), "{text}");
            assert_eq!(Profile::parse(text.as_bytes()).unwrap(), profile);
            assert_eq!(profile.ranges[0].end(), u64::MAX);
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let long = format!("/{}\t0\t1\t1", "a".repeat(PATH_BYTES_MAX));
        for (text, expected) in [
            ("/a\t1\t2\t3\n/b\t1\t2", "line 2: 3 fields"),
            ("/a 1 2 3", "line 1: 1 fields"),
            ("/a\t1\t2\t3\t4\t5", "line 1: 6 fields"),
            ("\n/a\tx\t2\t3", "line 2: offset \"x\""),
            ("/a\t1\t-2\t3", "line 1: length \"-2\""),
            ("/a\t1\t2\t99999999999999999999", "line 1: count"),
            ("/a\\\t1\t2\t3", "line 1: the path"),
            ("/a\\x4\t1\t2\t3", "line 1: the path"),
            ("/a\t1\t2\t3\t9f2c51", "line 1: a digest"),
            (&long, "line 1: a path of 4097 bytes"),
        ] {
            let error = Profile::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_header_that_is_none_is_a_comment() {
        for header in [
            "# anteros profile, rounds",
            "# anteros profile, -1 rounds",
            "# anteros profile, 99999999999999999999 rounds",
        ] {
            let text = format!("{header}\n/a\t0\t1\t5\n");
            assert_eq!(Profile::parse(text.as_bytes()).unwrap().rounds, 5);
        }
        let text = b"# anteros profile, 1 round\n/a\t0\t1\t5\n";
        assert_eq!(Profile::parse(text).unwrap().rounds, 1);
    }

    #[test]
    fn neither_text_nor_ranges_are_without_limit() {
        let endless = Profile::read(io::repeat(b'\n'));
        assert!(matches!(endless, Err(ProfileError::TooLong)), "{endless:?}");
        let text = b"\t0\t1\t1\n".repeat(RANGES_MAX + 1);
        let error = Profile::parse(&text).unwrap_err().to_string();
        let expected = format!("line {}: one more range", RANGES_MAX + 1);
        assert!(error.starts_with(&expected), "{error}");
    }
}
