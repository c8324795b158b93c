//! Paths as the kernel lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A path of mountinfo, where blanks and their like are written in octal.
pub fn unescaped(text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    let mut left = text;
    while let [first, rest @ ..] = left {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        let escaped = (*first == b'\\')
            .then(|| rest.get(..3).and_then(octal))
            .flatten();
        path.push(escaped.unwrap_or(*first));
        left = match escaped {
            Some(_) => rest.get(3..).unwrap_or_default(),
            None => rest,
        };
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn blanks_in_paths_are_written_in_octal() {
        assert_eq!(unescaped(b"/a\\040b\\134\\x\\9"), Path::new("/a b\\\\x\\9"));
        assert_eq!(unescaped(b"\\"), Path::new("\\"));
        assert_eq!(unescaped(b"\\04"), Path::new("\\04"));
        assert_eq!(unescaped(b"\\777"), Path::new("\\777"));
    }
}
