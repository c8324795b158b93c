//! Kind of a file: from its name, and from its first bytes as soon as there are any.
//!
//! How a file is read and written follows from its kind, and that decides how it is compressed (FPC, 3.1): databases and
//! their journals are written again and again and hardly read; executables are written once, and read a little here
//! and there. Recognising is a guess. Whoever goes by it must be right whatever the file really is, for both name and
//! content come from anybody: a wrong guess costs space or time, nothing else.
//!
//! Content counts for more than a name: databases of browsers have no suffix, and a `.db` may be anything. A name
//! decides where no content is known, and about archives, which are executables of some kinds of machine.

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentKind {
    /// A database of SQLite.
    Database,
    /// Content that SQLite writes before it changes a database: its old content. Read after a crash, if ever.
    RollbackJournal,
    /// Content that SQLite writes instead of changing a database: its new content.
    WriteAheadLog,
    /// Content that programs are run from: machine code, byte code, archives of them with their resources.
    Executable,
    /// Pictures, music, films, archives: what has been compressed already.
    Compressed,
    /// Everything else.
    Other,
}

impl ContentKind {
    /// Returns whether what is read of it now will soon be something else.
    pub(crate) const fn is_rewritten(self) -> bool {
        matches!(
            self,
            Self::Database | Self::RollbackJournal | Self::WriteAheadLog
        )
    }
}

/// States how many of the first bytes of a file are looked at, at most.
pub(crate) const START_BYTES: usize = 18;

/// Bytes that say what a file is, at some place in it.
struct Magic {
    at: usize,
    bytes: &'static [u8],
    kind: ContentKind,
}

const fn magic(at: usize, bytes: &'static [u8], kind: ContentKind) -> Magic {
    Magic { at, bytes, kind }
}

/// Those that suffice. All are long enough, or odd enough, not to be met in text.
const MAGICS: [Magic; 27] = [
    magic(0, b"SQLite format 3\0", ContentKind::Database),
    magic(
        0,
        b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
        ContentKind::RollbackJournal,
    ),
    // With the version behind it, 3007000. The two differ in the byte order of the sums.
    magic(
        0,
        b"\x37\x7f\x06\x82\x00\x2d\xe2\x18",
        ContentKind::WriteAheadLog,
    ),
    magic(
        0,
        b"\x37\x7f\x06\x83\x00\x2d\xe2\x18",
        ContentKind::WriteAheadLog,
    ),
    magic(0, b"dex\n0", ContentKind::Executable),
    magic(0, b"dey\n0", ContentKind::Executable),
    magic(0, b"\0asm\x01\0\0\0", ContentKind::Executable),
    // A Java class; the run-time image of Java, in either byte order.
    magic(0, b"\xca\xfe\xba\xbe", ContentKind::Executable),
    magic(0, b"\xda\xda\xfe\xca", ContentKind::Executable),
    magic(0, b"\xca\xfe\xda\xda", ContentKind::Executable),
    magic(0, b"\xff\xd8\xff", ContentKind::Compressed), // JPEG
    magic(0, b"\x89PNG\r\n\x1a\n", ContentKind::Compressed),
    magic(0, b"GIF87a", ContentKind::Compressed),
    magic(0, b"GIF89a", ContentKind::Compressed),
    magic(8, b"WEBPVP8", ContentKind::Compressed),
    magic(4, b"ftyp", ContentKind::Compressed), // MP4, HEIC, AVIF
    magic(0, b"\x1a\x45\xdf\xa3", ContentKind::Compressed), // Matroska, WebM
    magic(0, b"OggS\0", ContentKind::Compressed),
    magic(0, b"fLaC", ContentKind::Compressed),
    magic(0, b"ID3", ContentKind::Compressed), // MP3
    magic(0, b"wOF2", ContentKind::Compressed),
    magic(0, b"\x1f\x8b\x08", ContentKind::Compressed), // gzip
    magic(0, b"\xfd7zXZ\0", ContentKind::Compressed),
    magic(0, b"\x28\xb5\x2f\xfd", ContentKind::Compressed), // Zstandard
    magic(0, b"\x04\x22\x4d\x18", ContentKind::Compressed), // LZ4
    magic(0, b"7z\xbc\xaf\x27\x1c", ContentKind::Compressed),
    magic(0, b"Rar!\x1a\x07", ContentKind::Compressed),
];

/// A zip: an executable of Java or Android, a book, or an archive.
const ZIP: &[u8] = b"PK\x03\x04";

const ELF: &[u8] = b"\x7fELF";
/// Of ELF files, programs and shared objects; what a compiler leaves for the linker and what crashed is not executed.
const ELF_EXECUTABLE: [u16; 2] = [2, 3];

/// States what SQLite calls the journals of `NAME`.
const JOURNALS: [(&[u8], ContentKind); 2] = [
    (b"-journal", ContentKind::RollbackJournal),
    (b"-wal", ContentKind::WriteAheadLog),
];

/// States what comes behind the last dot of a name, in lower case.
const SUFFIXES: [(&[&str], ContentKind); 3] = [
    (&["db", "db3", "sqlite", "sqlite3"], ContentKind::Database),
    (
        &[
            "so", "ko", "pyc", "class", "jar", "jmod", "jsa", "ja", "apk", "apex", "dex", "odex",
            "vdex", "oat", "art", "wasm", "exe", "dll",
        ],
        ContentKind::Executable,
    ),
    (
        &[
            "jpg", "jpeg", "png", "gif", "webp", "avif", "heic", "jxl", "mp3", "m4a", "aac", "ogg",
            "oga", "opus", "flac", "mp4", "m4v", "mov", "3gp", "mkv", "webm", "ogv", "avi", "mpg",
            "mpeg", "woff", "woff2", "gz", "tgz", "bz2", "xz", "zst", "lz4", "lzma", "br", "7z",
            "rar", "zip", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub",
        ],
        ContentKind::Compressed,
    ),
];

impl ContentKind {
    /// Returns what a file is that has this name, and begins with these bytes: none if it is empty, or not known how.
    pub(crate) fn of(name: &[u8], start: &[u8]) -> Self {
        if start.starts_with(ZIP) {
            return match Self::by_name(name) {
                Some(Self::Executable) => Self::Executable,
                _ => Self::Compressed,
            };
        }
        let by_content = Self::by_content(start);
        by_content
            .or_else(|| Self::by_name(name))
            .unwrap_or(Self::Other)
    }

    /// Returns whether it is one of SQLite's journals: these are written over, cut off or removed with almost every
    /// transaction.
    pub(crate) fn is_journal(self) -> bool {
        matches!(self, Self::RollbackJournal | Self::WriteAheadLog)
    }

    fn by_content(start: &[u8]) -> Option<Self> {
        if is_elf_executable(start) || is_byte_code(start) {
            return Some(Self::Executable);
        }
        let has = |magic: &&Magic| {
            let rest = start.get(magic.at..).unwrap_or_default();
            rest.starts_with(magic.bytes)
        };
        MAGICS.iter().find(has).map(|magic| magic.kind)
    }

    fn by_name(name: &[u8]) -> Option<Self> {
        let journal = JOURNALS.iter().find(|(ending, _)| name.ends_with(ending));
        if let Some((_, kind)) = journal {
            return Some(*kind);
        }
        let suffix = suffix(name)?;
        let has = |(suffixes, _): &&(&[&str], Self)| {
            let mut suffixes = suffixes.iter();
            suffixes.any(|one| one.as_bytes().eq_ignore_ascii_case(suffix))
        };
        SUFFIXES.iter().find(has).map(|(_, kind)| *kind)
    }
}

fn is_elf_executable(start: &[u8]) -> bool {
    let (Some(&order), Some(kind)) = (start.get(5), start.get(16..18)) else {
        return false;
    };
    let kind = [kind[0], kind[1]];
    let kind = match order {
        2 => u16::from_be_bytes(kind),
        _ => u16::from_le_bytes(kind),
    };
    start.starts_with(ELF) && ELF_EXECUTABLE.contains(&kind)
}

/// Byte code of Python 3.7 or newer (PEP 552): a version that is told by the line end behind it, flags, what it was made
/// of, and a marshalled code object. Python writes it by another name than the one that it gets.
fn is_byte_code(start: &[u8]) -> bool {
    let Some((head, &[object, ..])) = start.split_at_checked(16) else {
        return false;
    };
    let flags = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    head[2..4] == *b"\r\n" && matches!(flags, 0 | 1 | 3) && object & 0x7f == b'c'
}

/// Returns what is behind the last dot, the version of a shared object aside: `libm.so.6` has `so`. A name that begins
/// with its only dot has none.
fn suffix(name: &[u8]) -> Option<&[u8]> {
    let mut parts = name.rsplit(|&byte| byte == b'.');
    let last = parts.next()?;
    let is_version = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let suffix = match is_version(last) {
        true => parts
            .find(|part| !is_version(part))
            .filter(|&one| one == b"so")?,
        false => last,
    };
    // What is left is the name itself.
    parts.next().filter(|stem| !stem.is_empty())?;
    Some(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ContentKind {
        ContentKind::of(name.as_bytes(), b"")
    }

    fn elf(order: u8, kind: [u8; 2]) -> Vec<u8> {
        let mut start = b"\x7fELF\x02".to_vec();
        start.push(order);
        start.resize(16, 0);
        start.extend(kind);
        start
    }

    #[test]
    fn names_say_what_a_file_will_be() {
        let cases = [
            ("mmssms.db", ContentKind::Database),
            ("places.sqlite", ContentKind::Database),
            ("mmssms.db-journal", ContentKind::RollbackJournal),
            ("History-journal", ContentKind::RollbackJournal),
            ("places.sqlite-wal", ContentKind::WriteAheadLog),
            ("places.sqlite-shm", ContentKind::Other),
            ("base.apk", ContentKind::Executable),
            ("classes.DEX", ContentKind::Executable),
            ("libc.so", ContentKind::Executable),
            ("libstdc++.so.6.0.30", ContentKind::Executable),
            ("libm-2.36.so", ContentKind::Executable),
            ("zipfile.cpython-311.pyc", ContentKind::Executable),
            ("IMG_0001.JPG", ContentKind::Compressed),
            ("a.tar.gz", ContentKind::Compressed),
            ("notes.txt", ContentKind::Other),
            ("journal", ContentKind::Other),
            ("so", ContentKind::Other),
            (".so", ContentKind::Other),
            (".png", ContentKind::Other),
            ("manual.db.1", ContentKind::Other),
            ("so.1", ContentKind::Other),
            ("1.2.3", ContentKind::Other),
            ("...", ContentKind::Other),
            ("", ContentKind::Other),
        ];
        for (name, kind) in cases {
            assert_eq!(named(name), kind, "{name}");
        }
    }

    #[test]
    fn a_name_need_not_be_text() {
        assert_eq!(
            ContentKind::of(b"\xff\xfe\0.db", b""),
            ContentKind::Database
        );
        assert_eq!(ContentKind::of(b"x.d\xff", b""), ContentKind::Other);
    }

    #[test]
    fn content_counts_for_more_than_a_name() {
        let database = b"SQLite format 3\0\x10\0";
        assert_eq!(ContentKind::of(b"History", database), ContentKind::Database);
        assert_eq!(
            ContentKind::of(b"photo.jpg", database),
            ContentKind::Database
        );
        let picture = b"\xff\xd8\xff\xe0\0\x10JFIF\0";
        assert_eq!(
            ContentKind::of(b"tile.db", picture),
            ContentKind::Compressed
        );
        let text = b"GROUP ( /lib/libc.so.6 )";
        assert_eq!(ContentKind::of(b"libc.so", text), ContentKind::Executable);
        assert_eq!(ContentKind::of(b"notes", text), ContentKind::Other);
    }

    /// SQLite leaves zeros where the header was, to use the journal again.
    #[test]
    fn journals_are_known_by_either() {
        let header = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\0\0\0\x01";
        assert_eq!(ContentKind::of(b"x", header), ContentKind::RollbackJournal);
        let zeros = [0; START_BYTES];
        let named = ContentKind::of(b"x-journal", &zeros);
        assert_eq!(named, ContentKind::RollbackJournal);
        for last in [0x82, 0x83] {
            let header = [0x37, 0x7f, 6, last, 0, 0x2d, 0xe2, 0x18];
            assert_eq!(ContentKind::of(b"x", &header), ContentKind::WriteAheadLog);
        }
    }

    #[test]
    fn of_elf_files_programs_and_shared_objects_are_executed() {
        for order_and_kind in [(1, [2, 0]), (1, [3, 0]), (2, [0, 2]), (2, [0, 3])] {
            let start = elf(order_and_kind.0, order_and_kind.1);
            assert_eq!(start.len(), START_BYTES);
            assert_eq!(ContentKind::of(b"tool", &start), ContentKind::Executable);
        }
        for (order, kind) in [(1, [1, 0]), (1, [4, 0]), (1, [0, 3]), (2, [3, 0])] {
            let start = elf(order, kind);
            assert_eq!(ContentKind::of(b"core", &start), ContentKind::Other);
        }
    }

    #[test]
    fn byte_code_is_known_by_any_name() {
        // Of Python 3.11, made of a source of 10,000 bytes, and the same checked by a hash.
        let by_time = b"\xa7\x0d\r\n\0\0\0\0\x10\x27\0\x65\x10\x27\0\0\xe3\0";
        let mut by_hash = *by_time;
        by_hash[4] = 3;
        for start in [by_time, &by_hash] {
            let kind = ContentKind::of(b"zipfile.cpython-311.pyc.140737", start);
            assert_eq!(kind, ContentKind::Executable);
            assert_eq!(ContentKind::of(b"x", &start[..16]), ContentKind::Other);
        }
        for (at, byte) in [(2, b' '), (4, 2), (7, 1), (16, b's')] {
            let mut other = *by_time;
            other[at] = byte;
            assert_eq!(ContentKind::of(b"x", &other), ContentKind::Other, "at {at}");
        }
        assert_eq!(
            ContentKind::of(b"x", b"a\n\r\nand then some"),
            ContentKind::Other
        );
    }

    #[test]
    fn the_name_tells_archives_from_programs() {
        let zip = b"PK\x03\x04\x14\0\0\0\x08\0";
        assert_eq!(ContentKind::of(b"base.apk", zip), ContentKind::Executable);
        assert_eq!(ContentKind::of(b"omni.ja", zip), ContentKind::Executable);
        assert_eq!(
            ContentKind::of(b"letters.zip", zip),
            ContentKind::Compressed
        );
        assert_eq!(ContentKind::of(b"letters.db", zip), ContentKind::Compressed);
    }

    #[test]
    fn nothing_is_looked_at_behind_the_start() {
        for magic in &MAGICS {
            assert!(magic.at + magic.bytes.len() <= START_BYTES);
        }
    }

    /// Whatever is cut short is either still enough or not recognised, and nothing panics.
    #[test]
    fn short_starts_are_no_trouble() {
        for magic in &MAGICS {
            let whole = [&vec![b' '; magic.at], magic.bytes].concat();
            assert_eq!(ContentKind::of(b"x", &whole), magic.kind);
            for len in 0..whole.len() {
                assert_eq!(ContentKind::of(b"x", &whole[..len]), ContentKind::Other);
            }
        }
        let program = elf(1, [2, 0]);
        for len in 0..program.len() {
            assert_eq!(ContentKind::of(b"x", &program[..len]), ContentKind::Other);
        }
    }
}
