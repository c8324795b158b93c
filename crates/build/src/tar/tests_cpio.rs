//! Tests archives of cpio that are made member by member.

use std::io::Write as _;

use super::tests::{Heard, list, scanned};
use super::*;

/// A member to be; the rest of its header is made up.
#[derive(Clone, Copy)]
struct Made<'a> {
    name: &'a [u8],
    ino: u32,
    mode: u32,
    nlink: u32,
    rdev: (u32, u32),
    content: &'a [u8],
}

const fn made<'a>(name: &'a [u8], mode: u32) -> Made<'a> {
    Made {
        name,
        ino: 1,
        mode,
        nlink: 1,
        rdev: (0, 0),
        content: b"",
    }
}

/// Makes archives.
#[derive(Default)]
struct Maker {
    bytes: Vec<u8>,
    has_sums: bool,
}

impl Maker {
    fn member(mut self, member: &Made<'_>) -> Self {
        let sum: u32 = member.content.iter().map(|byte| u32::from(*byte)).sum();
        let (magic, sum) = match self.has_sums {
            false => ("070701", 0),
            true => ("070702", sum),
        };
        self.bytes.extend_from_slice(magic.as_bytes());
        let (rmajor, rminor) = member.rdev;
        let size = member.content.len() as u32;
        let name_bytes = member.name.len() as u32 + 1;
        let Made {
            ino, mode, nlink, ..
        } = *member;
        for number in [
            ino, mode, 5, 6, nlink, 1000, size, 8, 1, rmajor, rminor, name_bytes, sum,
        ] {
            write!(self.bytes, "{number:08X}").unwrap();
        }
        self.bytes.extend_from_slice(member.name);
        self.bytes.push(0);
        self.fill();
        self.bytes.extend_from_slice(member.content);
        self.fill();
        self
    }

    fn fill(&mut self) {
        let len = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(len, 0);
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.member(&Made {
            content,
            ..made(name.as_bytes(), 0o100_644)
        })
    }

    /// A name of a file with several.
    fn name(self, name: &str, ino: u32, content: &[u8]) -> Self {
        self.member(&Made {
            ino,
            nlink: 2,
            content,
            ..made(name.as_bytes(), 0o100_600)
        })
    }

    fn trailer(self) -> Self {
        self.member(&made(b"TRAILER!!!", 0))
    }

    fn zeros(mut self, count: usize) -> Self {
        let len = self.bytes.len() + count;
        self.bytes.resize(len, 0);
        self
    }
}

fn listing(bytes: &[u8]) -> String {
    let (source, tree) = scanned(bytes, &Options::default(), &Heard::default()).unwrap();
    let mut lines = String::new();
    list(&source, &tree, 0, "", &mut lines);
    lines
}

fn check(bytes: &[u8], expected: &str) {
    let lines = expected.lines().map(|line| format!("{}\n", line.trim()));
    assert_eq!(listing(bytes), lines.collect::<String>());
}

fn refused(bytes: &[u8]) -> String {
    let done = scanned(bytes, &Options::default(), &Heard::default());
    done.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn members_of_each_kind() {
    let null = Made {
        rdev: (1, 3),
        ..made(b"null", 0o020_666)
    };
    let link = Made {
        content: b"a/file",
        ..made(b"link", 0o120_777)
    };
    for has_sums in [false, true] {
        let maker = Maker {
            has_sums,
            ..Maker::default()
        };
        let maker = maker.member(&made(b".", 0o040_700));
        let maker = maker.file("a/file", b"hello").member(&null).member(&link);
        let maker = maker.member(&made(b"fifo", 0o010_640));
        let maker = maker.member(&made(b"/socket", 0o140_640));
        check(
            &maker.file("empty", b"").trailer().bytes,
            "/ directory 700 5:6 3 1000
             /a/ directory 755 0:0 2 1000
             /a/file/ file 644 5:6 1 1000 `hello`
             /empty/ file 644 5:6 1 1000 ``
             /fifo/ fifo 640 5:6 1 1000
             /link/ symlink 777 5:6 1 1000a/file
             /null/ character device 666 5:6 1 1000
             /socket/ socket 640 5:6 1 1000",
        );
    }
}

#[test]
fn the_last_name_has_the_content() {
    let maker = Maker::default().name("c", 7, b"").name("b", 7, b"");
    let maker = maker.name("x", 8, b"first").name("a", 7, b"content");
    let maker = maker.name("y", 8, b"").name("z", 8, b"more").trailer();
    let maker = maker.name("other", 7, b"another archive's").trailer();
    check(
        &maker.bytes,
        "/ directory 755 0:0 2 1000
         /a/ file 600 5:6 3 1000 `content`
         /b/ file 600 5:6 3 1000 `content`
         /c/ file 600 5:6 3 1000 `content`
         /other/ file 600 5:6 1 1000 `another archive\\'s`
         /x/ file 600 5:6 3 1000 `more`
         /y/ file 600 5:6 3 1000 `more`
         /z/ file 600 5:6 3 1000 `more`",
    );
}

#[test]
fn archives_follow_each_other_compressed_or_not() {
    let one = |name: &str| Maker::default().file(name, name.as_bytes()).trailer();
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let packed = |name| gzip(&one(name).zeros(512).bytes);
    let expected = |names: &[&str]| {
        let mut lines = "/ directory 755 0:0 2 1000\n".to_owned();
        let files = names
            .iter()
            .map(|name| format!("/{name}/ file 644 5:6 1 1000 `{name}`\n"));
        lines.extend(files);
        lines
    };
    let zeros = vec![0; 5000];
    let plain = [one("a").zeros(100).bytes, one("b").bytes].concat();
    assert_eq!(listing(&plain), expected(&["a", "b"]));
    let early = [&one("a").bytes, &zeros[..], &packed("b")].concat();
    assert_eq!(listing(&early), expected(&["a", "b"]));
    let all = [
        &packed("a")[..],
        &packed("b"),
        &zeros,
        &packed("c"),
        &one("d").zeros(8).bytes,
        &packed("e"),
        &zeros,
    ]
    .concat();
    assert_eq!(listing(&all), expected(&["a", "b", "c", "d", "e"]));
    // Archives in a file, which is read in place if that is possible.
    for bytes in [plain, early, all] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123").unwrap();
        file.write_all(&bytes).unwrap();
        rustix::fs::seek(&file, SeekFrom::Start(4)).unwrap();
        let archive = Archive::from_file("cpio", file);
        let image = std::env::temp_dir().join("image");
        let (options, never) = (Options::default(), AtomicBool::new(false));
        let found = scan(archive, &image, &options, false, None, &(), &never).unwrap();
        let mut lines = String::new();
        list(&found.source, &found.tree, 0, "", &mut lines);
        assert_eq!(lines, listing(&bytes));
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let one = || Maker::default().file("a", b"x");
    let edited = |at: usize, text: &str| {
        let mut bytes = one().file("b", b"y").trailer().bytes;
        bytes[116 + at..116 + at + text.len()].copy_from_slice(text.as_bytes());
        bytes
    };
    let sums = Maker {
        has_sums: true,
        ..Maker::default()
    };
    let mut wrong = sums.file("a", b"x").trailer().bytes;
    wrong[112] = b'y';
    for (bytes, said) in [
        (one().bytes, "the archive ends without a trailer"),
        (
            one().trailer().bytes[..150].to_vec(),
            "the archive ends within it",
        ),
        (edited(0, "070707"), "`cpio -H newc` makes one"),
        (edited(0, "x"), "a header that begins with"),
        (
            b"070707000000".repeat(20),
            "`cpio -H newc` makes one that it does",
        ),
        (
            wrong,
            "the sum of its content is 0x00000079, not 0x00000078",
        ),
        (
            one().file("a/b", b"").bytes,
            "it lies in `a`, which is a file",
        ),
        (one().file("../b", b"").bytes, "`..` in a name"),
        (one().member(&made(b"", 0o100_644)).bytes, "it has no name"),
        (
            one().member(&made(b"b", 0o644)).bytes,
            "its mode 0o644 is of no known kind",
        ),
        (
            one().member(&made(b"b", 0o120_777)).bytes,
            "a target of 0 bytes",
        ),
    ] {
        let found = refused(&bytes);
        assert!(found.contains(said), "{found}, and not {said}");
    }
}

/// Changes each byte of an archive, and cuts it anywhere: what comes of it is a tree or an error that names the archive.
#[test]
fn changed_archives_are_read_or_refused() {
    let maker = Maker::default().name("c", 7, b"").name("b", 7, b"content");
    let maker = maker.member(&Made {
        content: b"target",
        ..made(b"link", 0o120_777)
    });
    let bytes = maker.trailer().zeros(4).file("d", b"x").trailer().bytes;
    let try_it = |bytes: &[u8]| {
        if let Err(error) = scanned(bytes, &Options::default(), &Heard::default()) {
            let error = error.to_string();
            assert!(error.starts_with("tar"), "{error}");
        }
    };
    for at in 0..bytes.len() {
        try_it(&bytes[..at]);
        for byte in [0, b'0', b'1', b'9', b'f', b'F', b'/', 0xff] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            try_it(&changed);
        }
    }
}
