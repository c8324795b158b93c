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
pub(crate) enum FileKind {
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

impl FileKind {
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
    kind: FileKind,
}

const fn magic(at: usize, bytes: &'static [u8], kind: FileKind) -> Magic {
    Magic { at, bytes, kind }
}

/// Those that suffice. All are long enough, or odd enough, not to be met in text.
const MAGICS: [Magic; 27] = [
    magic(0, b"SQLite format 3\0", FileKind::Database),
    magic(
        0,
        b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
        FileKind::RollbackJournal,
    ),
    // With the version behind it, 3007000. The two differ in the byte order of the sums.
    magic(
        0,
        b"\x37\x7f\x06\x82\x00\x2d\xe2\x18",
        FileKind::WriteAheadLog,
    ),
    magic(
        0,
        b"\x37\x7f\x06\x83\x00\x2d\xe2\x18",
        FileKind::WriteAheadLog,
    ),
    magic(0, b"dex\n0", FileKind::Executable),
    magic(0, b"dey\n0", FileKind::Executable),
    magic(0, b"\0asm\x01\0\0\0", FileKind::Executable),
    // A Java class; the run-time image of Java, in either byte order.
    magic(0, b"\xca\xfe\xba\xbe", FileKind::Executable),
    magic(0, b"\xda\xda\xfe\xca", FileKind::Executable),
    magic(0, b"\xca\xfe\xda\xda", FileKind::Executable),
    magic(0, b"\xff\xd8\xff", FileKind::Compressed), // JPEG
    magic(0, b"\x89PNG\r\n\x1a\n", FileKind::Compressed),
    magic(0, b"GIF87a", FileKind::Compressed),
    magic(0, b"GIF89a", FileKind::Compressed),
    magic(8, b"WEBPVP8", FileKind::Compressed),
    magic(4, b"ftyp", FileKind::Compressed), // MP4, HEIC, AVIF
    magic(0, b"\x1a\x45\xdf\xa3", FileKind::Compressed), // Matroska, WebM
    magic(0, b"OggS\0", FileKind::Compressed),
    magic(0, b"fLaC", FileKind::Compressed),
    magic(0, b"ID3", FileKind::Compressed), // MP3
    magic(0, b"wOF2", FileKind::Compressed),
    magic(0, b"\x1f\x8b\x08", FileKind::Compressed), // gzip
    magic(0, b"\xfd7zXZ\0", FileKind::Compressed),
    magic(0, b"\x28\xb5\x2f\xfd", FileKind::Compressed), // Zstandard
    magic(0, b"\x04\x22\x4d\x18", FileKind::Compressed), // LZ4
    magic(0, b"7z\xbc\xaf\x27\x1c", FileKind::Compressed),
    magic(0, b"Rar!\x1a\x07", FileKind::Compressed),
];

/// A zip: an executable of Java or Android, a book, or an archive.
const ZIP: &[u8] = b"PK\x03\x04";

const ELF: &[u8] = b"\x7fELF";
/// Of ELF files, programs and shared objects; what a compiler leaves for the linker and what crashed is not executed.
const ELF_EXECUTABLE: [u16; 2] = [2, 3];

/// States what SQLite calls the journals of `NAME`.
const JOURNALS: [(&[u8], FileKind); 2] = [
    (b"-journal", FileKind::RollbackJournal),
    (b"-wal", FileKind::WriteAheadLog),
];

/// States what comes behind the last dot of a name, in lower case.
const SUFFIXES: [(&[&str], FileKind); 3] = [
    (&["db", "db3", "sqlite", "sqlite3"], FileKind::Database),
    (
        &[
            "so", "ko", "pyc", "class", "jar", "jmod", "jsa", "ja", "apk", "apex", "dex", "odex",
            "vdex", "oat", "art", "wasm", "exe", "dll",
        ],
        FileKind::Executable,
    ),
    (
        &[
            "jpg", "jpeg", "png", "gif", "webp", "avif", "heic", "jxl", "mp3", "m4a", "aac", "ogg",
            "oga", "opus", "flac", "mp4", "m4v", "mov", "3gp", "mkv", "webm", "ogv", "avi", "mpg",
            "mpeg", "woff", "woff2", "gz", "tgz", "bz2", "xz", "zst", "lz4", "lzma", "br", "7z",
            "rar", "zip", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub",
        ],
        FileKind::Compressed,
    ),
];

impl FileKind {
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

    fn named(name: &str) -> FileKind {
        FileKind::of(name.as_bytes(), b"")
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
            ("mmssms.db", FileKind::Database),
            ("places.sqlite", FileKind::Database),
            ("mmssms.db-journal", FileKind::RollbackJournal),
            ("History-journal", FileKind::RollbackJournal),
            ("places.sqlite-wal", FileKind::WriteAheadLog),
            ("places.sqlite-shm", FileKind::Other),
            ("base.apk", FileKind::Executable),
            ("classes.DEX", FileKind::Executable),
            ("libc.so", FileKind::Executable),
            ("libstdc++.so.6.0.30", FileKind::Executable),
            ("libm-2.36.so", FileKind::Executable),
            ("zipfile.cpython-311.pyc", FileKind::Executable),
            ("IMG_0001.JPG", FileKind::Compressed),
            ("a.tar.gz", FileKind::Compressed),
            ("notes.txt", FileKind::Other),
            ("journal", FileKind::Other),
            ("so", FileKind::Other),
            (".so", FileKind::Other),
            (".png", FileKind::Other),
            ("manual.db.1", FileKind::Other),
            ("so.1", FileKind::Other),
            ("1.2.3", FileKind::Other),
            ("...", FileKind::Other),
            ("", FileKind::Other),
        ];
        for (name, kind) in cases {
            assert_eq!(named(name), kind, "{name}");
        }
    }

    #[test]
    fn a_name_need_not_be_text() {
        assert_eq!(FileKind::of(b"\xff\xfe\0.db", b""), FileKind::Database);
        assert_eq!(FileKind::of(b"x.d\xff", b""), FileKind::Other);
    }

    #[test]
    fn content_counts_for_more_than_a_name() {
        let database = b"SQLite format 3\0\x10\0";
        assert_eq!(FileKind::of(b"History", database), FileKind::Database);
        assert_eq!(FileKind::of(b"photo.jpg", database), FileKind::Database);
        let picture = b"\xff\xd8\xff\xe0\0\x10JFIF\0";
        assert_eq!(FileKind::of(b"tile.db", picture), FileKind::Compressed);
        let text = b"GROUP ( /lib/libc.so.6 )";
        assert_eq!(FileKind::of(b"libc.so", text), FileKind::Executable);
        assert_eq!(FileKind::of(b"notes", text), FileKind::Other);
    }

    /// SQLite leaves zeros where the header was, to use the journal again.
    #[test]
    fn journals_are_known_by_either() {
        let header = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\0\0\0\x01";
        assert_eq!(FileKind::of(b"x", header), FileKind::RollbackJournal);
        let zeros = [0; START_BYTES];
        let named = FileKind::of(b"x-journal", &zeros);
        assert_eq!(named, FileKind::RollbackJournal);
        for last in [0x82, 0x83] {
            let header = [0x37, 0x7f, 6, last, 0, 0x2d, 0xe2, 0x18];
            assert_eq!(FileKind::of(b"x", &header), FileKind::WriteAheadLog);
        }
    }

    #[test]
    fn of_elf_files_programs_and_shared_objects_are_executed() {
        for order_and_kind in [(1, [2, 0]), (1, [3, 0]), (2, [0, 2]), (2, [0, 3])] {
            let start = elf(order_and_kind.0, order_and_kind.1);
            assert_eq!(start.len(), START_BYTES);
            assert_eq!(FileKind::of(b"tool", &start), FileKind::Executable);
        }
        for (order, kind) in [(1, [1, 0]), (1, [4, 0]), (1, [0, 3]), (2, [3, 0])] {
            let start = elf(order, kind);
            assert_eq!(FileKind::of(b"core", &start), FileKind::Other);
        }
    }

    #[test]
    fn byte_code_is_known_by_any_name() {
        // Of Python 3.11, made of a source of 10,000 bytes, and the same checked by a hash.
        let by_time = b"\xa7\x0d\r\n\0\0\0\0\x10\x27\0\x65\x10\x27\0\0\xe3\0";
        let mut by_hash = *by_time;
        by_hash[4] = 3;
        for start in [by_time, &by_hash] {
            let kind = FileKind::of(b"zipfile.cpython-311.pyc.140737", start);
            assert_eq!(kind, FileKind::Executable);
            assert_eq!(FileKind::of(b"x", &start[..16]), FileKind::Other);
        }
        for (at, byte) in [(2, b' '), (4, 2), (7, 1), (16, b's')] {
            let mut other = *by_time;
            other[at] = byte;
            assert_eq!(FileKind::of(b"x", &other), FileKind::Other, "at {at}");
        }
        assert_eq!(FileKind::of(b"x", b"a\n\r\nand then some"), FileKind::Other);
    }

    #[test]
    fn the_name_tells_archives_from_programs() {
        let zip = b"PK\x03\x04\x14\0\0\0\x08\0";
        assert_eq!(FileKind::of(b"base.apk", zip), FileKind::Executable);
        assert_eq!(FileKind::of(b"omni.ja", zip), FileKind::Executable);
        assert_eq!(FileKind::of(b"letters.zip", zip), FileKind::Compressed);
        assert_eq!(FileKind::of(b"letters.db", zip), FileKind::Compressed);
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
            assert_eq!(FileKind::of(b"x", &whole), magic.kind);
            for len in 0..whole.len() {
                assert_eq!(FileKind::of(b"x", &whole[..len]), FileKind::Other);
            }
        }
        let program = elf(1, [2, 0]);
        for len in 0..program.len() {
            assert_eq!(FileKind::of(b"x", &program[..len]), FileKind::Other);
        }
    }
}
