//! Paths as lists have them.

/// Characters that are special in a regular expression, with those of the extended form of the `regex` crate and of PCRE2.
const SPECIAL: &[u8] = b"\\.^$?*+|[](){}";

/// A path as a word of an `fs_config`: blanks are octal numbers, as in `/etc/fstab`, and so is a backslash in front of what
/// would be read as such a number.
pub(super) fn word(path: &[u8]) -> Vec<u8> {
    let mut word = Vec::with_capacity(path.len());
    for (at, &byte) in path.iter().enumerate() {
        let is_taken_for_number = || path[at..].len() >= 4 && is_octal(&path[at + 1..at + 4]);
        match byte {
            byte if byte.is_ascii_whitespace() => word.extend(octal(byte)),
            b'\\' if is_taken_for_number() => word.extend(octal(byte)),
            byte => word.push(byte),
        }
    }
    word
}

fn is_octal(digits: &[u8]) -> bool {
    digits.iter().all(|digit| (b'0'..=b'7').contains(digit))
}

fn octal(byte: u8) -> Vec<u8> {
    format!("\\{byte:03o}").into_bytes()
}

/// The regular expression that fits a path and nothing else, without blanks. Bytes beyond ASCII are hexadecimal numbers:
/// libselinux takes no others.
pub(super) fn expression(path: &[u8]) -> Vec<u8> {
    let mut expression = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            byte if SPECIAL.contains(&byte) => expression.extend([b'\\', byte]),
            byte if byte.is_ascii_graphic() => expression.push(byte),
            byte => expression.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    expression
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_are_octal_numbers() {
        for (path, expected) in [
            ("usr/bin", "usr/bin"),
            ("a b\tc\nd", "a\\040b\\011c\\012d"),
            ("x\\x2dy\\04", "x\\x2dy\\04"),
            ("x\\040", "x\\134040"),
            ("\\\\777\\", "\\\\134777\\"),
        ] {
            let found = word(path.as_bytes());
            assert_eq!(found.escape_ascii().to_string(), {
                expected.as_bytes().escape_ascii().to_string()
            });
        }
    }

    #[test]
    fn special_characters_are_escaped() {
        for (path, expected) in [
            ("/etc/a.conf".as_bytes(), "/etc/a\\.conf"),
            (b"/a b", "/a\\x20b"),
            (
                b"/[(a+b)*]{1}?^$|\\",
                "/\\[\\(a\\+b\\)\\*\\]\\{1\\}\\?\\^\\$\\|\\\\",
            ),
            ("/grün".as_bytes(), "/gr\\xc3\\xbcn"),
            (b"/gr\xfcn\x01", "/gr\\xfcn\\x01"),
        ] {
            let found = expression(path);
            assert_eq!(String::from_utf8(found).unwrap(), expected);
        }
    }
}
