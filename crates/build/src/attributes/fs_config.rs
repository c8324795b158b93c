//! `fs_config`: the list that Android's builds make of a system's files.
//!
//! A line has a path without leading slash, owner and group as numbers, and permissions as an octal number. Behind these there
//! may be `capabilities=NUMBER`, bits of permitted and effective capabilities, and other words, which are ignored:
//!
//! ```text
//! / 0 0 755
//! system/bin/run-as 0 2000 750 capabilities=0xc0
//! ```
//!
//! The root is `/`, or a line that begins with a blank. Of several lines for a path the last one counts. Blanks in paths are octal
//! numbers behind a backslash, as in `/etc/fstab` (`\040`), and so is a backslash that would be read as the beginning of one
//! (`\134`); Android's own tools know no such paths.

use std::collections::HashMap;

/// Revision 2 of the attribute; its capabilities are effective from the start.
const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;

/// A list of owners, permissions and capabilities.
#[derive(Debug, Default)]
pub struct FsConfig {
    entries: HashMap<Box<[u8]>, Entry>,
}

/// Tells what a file gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Owner and group.
    pub owner: (u32, u32),
    pub perm: u16,
    /// Bits of capabilities.
    capabilities: u64,
}

impl FsConfig {
    /// Reads a list.
    ///
    /// # Errors
    ///
    /// Text that tells the line that is wrong, and why.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut list = Self::default();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let (path, entry) = parse(line).map_err(|e| format!("line {}: {e}", number + 1))?;
            list.entries.insert(unescaped(path).into(), entry);
        }
        Ok(list)
    }

    /// Returns what the file at a path gets, which has no leading slash; the root has none at all.
    pub(super) fn entry(&self, path: &[u8]) -> Option<&Entry> {
        self.entries.get(path)
    }
}

impl Entry {
    /// The value of `security.capability`; `None` if there are no capabilities.
    pub fn capability(&self) -> Option<[u8; 20]> {
        let [low, high] = [self.capabilities as u32, (self.capabilities >> 32) as u32];
        let mut value = [0; 20];
        let words = [REVISION_2_EFFECTIVE, low, 0, high, 0]; // permitted ones, no inheritable ones
        for (bytes, word) in value.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        (self.capabilities != 0).then_some(value)
    }
}

fn parse(line: &[u8]) -> Result<(&[u8], Entry), String> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let path = match line[0].is_ascii_whitespace() {
        true => b"",
        false => words.next().unwrap_or_default(),
    };
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let mut number = |what, radix| {
        let word = words.next().ok_or_else(|| format!("no {what}"))?;
        number(word, radix).ok_or_else(|| format!("`{}` is no {what}", word.escape_ascii()))
    };
    let owner = (number("owner", 10)? as u32, number("group", 10)? as u32);
    let perm = number("octal number of permissions", 8)?;
    if perm > 0o7777 {
        return Err(format!("permissions {perm:o}; 7777 is the most"));
    }
    let mut entry = Entry {
        owner,
        perm: perm as u16,
        capabilities: 0,
    };
    for word in words {
        if let Some(value) = word.strip_prefix(b"capabilities=") {
            let bits = capabilities(value);
            let wrong = || format!("`{}` are no capabilities", value.escape_ascii());
            entry.capabilities = bits.ok_or_else(wrong)?;
        }
    }
    Ok((path, entry))
}

/// A path without the octal numbers of blanks and backslashes.
fn unescaped(mut path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    while let Some((&first, rest)) = path.split_first() {
        let number = rest.get(..3).filter(|_| first == b'\\').and_then(escaped);
        bytes.push(number.unwrap_or(first));
        path = &rest[number.map_or(0, |_| 3)..];
    }
    bytes
}

/// The byte that three digits stand for, if it is one that is written so.
fn escaped(digits: &[u8]) -> Option<u8> {
    if !digits.iter().all(|digit| (b'0'..=b'7').contains(digit)) {
        return None;
    }
    let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
    (byte == b'\\' || byte.is_ascii_whitespace()).then_some(byte)
}

fn number(word: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    u32::from_str_radix(text, radix).ok().map(u64::from)
}

/// Bits, as a hexadecimal number behind `0x`, an octal one behind `0`, or a decimal one.
fn capabilities(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(hex), _) => u64::from_str_radix(hex, 16).ok(),
        (None, Some(octal)) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(owner: (u32, u32), perm: u16, capabilities: u64) -> Entry {
        Entry {
            owner,
            perm,
            capabilities,
        }
    }

    #[test]
    fn a_line_has_path_owner_group_and_permissions() {
        let text =
            b"/ 0 0 755\nsystem/bin 0 2000 0751\n\n/a 1 2 4755 selabel=x capabilities=0xc0\n\
                     b\t3 4 644 capabilities=010\nb 3 5 600 capabilities=9\n\
                     x\\040y 6 6 600\nx\\x2dy\\777\\ 7 7 700\nx\\134040 8 8 0\n";
        let list = FsConfig::parse(text).unwrap();
        let of = |path: &str| list.entry(path.as_bytes()).copied();
        assert_eq!(of(""), Some(entry((0, 0), 0o755, 0)));
        assert_eq!(of("system/bin"), Some(entry((0, 2000), 0o751, 0)));
        assert_eq!(of("a"), Some(entry((1, 2), 0o4755, 0xc0)));
        assert_eq!(of("b"), Some(entry((3, 5), 0o600, 9)));
        assert_eq!(of("c"), None);
        assert_eq!(of("x y"), Some(entry((6, 6), 0o600, 0)));
        assert_eq!(of("x\\x2dy\\777\\"), Some(entry((7, 7), 0o700, 0)));
        assert_eq!(of("x\\040"), Some(entry((8, 8), 0, 0)));
        let root = FsConfig::parse(b" 7 8 700 capabilities=0x0").unwrap();
        assert_eq!(root.entry(b""), Some(&entry((7, 8), 0o700, 0)));
    }

    #[test]
    fn capabilities_are_those_that_the_kernel_reads() {
        let value = entry((0, 0), 0, 1 << 34 | 0xc0).capability().unwrap();
        let expected = [
            1, 0, 0, 2, 0xc0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(value, expected);
        assert_eq!(entry((0, 0), 0, 0).capability(), None);
    }

    #[test]
    fn whatever_is_no_line_is_refused_with_its_number() {
        for (bad, why) in [
            ("a", "no owner"),
            ("a 0", "no group"),
            ("a 0 0", "no octal number of permissions"),
            ("a x 0 755", "`x` is no owner"),
            ("a 0 -1 755", "`-1` is no group"),
            ("a 0 4294967296 755", "is no group"),
            ("a 0 0 789", "`789` is no octal number"),
            ("a 0 0 10000", "permissions 10000; 7777 is the most"),
            ("a 0 0 755 capabilities=0xg", "`0xg` are no capabilities"),
            ("a 0 0 755 capabilities=", "`` are no capabilities"),
        ] {
            let error = FsConfig::parse(format!("b 0 0 755\n{bad}\n").as_bytes()).unwrap_err();
            assert!(error.starts_with("line 2: "), "{bad}: {error}");
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
