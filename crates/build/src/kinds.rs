//! The kind of a file's content, as its first bytes tell.

/// The kind of some content. Kinds that have something in common are neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Machine code in ELF files: programs, libraries, objects.
    Code,
    /// Anything that is no text.
    Binary,
    /// Catalogues of GNU gettext.
    Translation,
    Text,
    /// Pictures, archives and the like, which do not shrink any more.
    Compressed,
    Empty,
}

/// Bytes that are looked at.
pub(crate) const HEAD_BYTES: usize = 4096;

/// The first bytes of kinds that have some.
const MAGICS: [(&[u8], Kind); 17] = [
    (b"\x7fELF", Kind::Code),
    (b"\xde\x12\x04\x95", Kind::Translation),
    (b"\x95\x04\x12\xde", Kind::Translation),
    (b"\x1f\x8b", Kind::Compressed),           // gzip
    (b"\xfd7zXZ\0", Kind::Compressed),         // xz
    (b"\x28\xb5\x2f\xfd", Kind::Compressed),   // Zstandard
    (b"\x04\x22\x4d\x18", Kind::Compressed),   // LZ4
    (b"BZh", Kind::Compressed),                // bzip2
    (b"PK\x03\x04", Kind::Compressed),         // ZIP
    (b"7z\xbc\xaf\x27\x1c", Kind::Compressed), // 7-Zip
    (b"\x89PNG", Kind::Compressed),
    (b"\xff\xd8\xff", Kind::Compressed), // JPEG
    (b"GIF8", Kind::Compressed),
    (b"wOFF", Kind::Compressed),
    (b"wOF2", Kind::Compressed),
    (b"OggS", Kind::Compressed),
    (b"\x1a\x45\xdf\xa3", Kind::Compressed), // Matroska, WebM
];

impl Kind {
    /// The kind of content with these first bytes.
    pub fn of(head: &[u8]) -> Self {
        let known = MAGICS.iter().find(|(magic, _)| head.starts_with(magic));
        match known {
            Some((_, kind)) => *kind,
            None if head.is_empty() => Self::Empty,
            None if head.contains(&0) => Self::Binary,
            None => Self::Text,
        }
    }
}

/// The part of a name that tells what a file is for: what follows the last dot, or `so` of a library with a version.
pub(crate) fn extension(name: &[u8]) -> &[u8] {
    const LIBRARY: &[u8] = b".so.";
    if name.windows(LIBRARY.len()).any(|part| part == LIBRARY) {
        return b"so";
    }
    match name.iter().rposition(|byte| *byte == b'.') {
        None | Some(0) => b"",
        Some(dot) => &name[dot + 1..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_kind() {
        for (head, kind) in [
            (&b"\x7fELF\x02\x01"[..], Kind::Code),
            (b"\x1f\x8b\x08\0", Kind::Compressed),
            (b"\xde\x12\x04\x95\0\0", Kind::Translation),
            (b"#!/bin/sh\n", Kind::Text),
            (b"\x1f", Kind::Text),
            (b"a\0b", Kind::Binary),
            (b"", Kind::Empty),
        ] {
            assert_eq!(Kind::of(head), kind, "{head:?}");
        }
    }

    #[test]
    fn extensions() {
        for (name, found) in [
            ("a.txt", "txt"),
            ("libc.so.6", "so"),
            ("lib.so", "so"),
            ("a.tar.gz", "gz"),
            (".profile", ""),
            ("README", ""),
            ("a.", ""),
        ] {
            assert_eq!(extension(name.as_bytes()), found.as_bytes(), "{name}");
        }
    }
}
