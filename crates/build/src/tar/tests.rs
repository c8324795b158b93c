//! Tests of what members make of a tree, with archives made by hand.

use std::cell::RefCell;
use std::fmt::Write;

use super::*;
use crate::tree::Tree;
use crate::{Input, Layer, build};

/// An archive that is being made.
#[derive(Default)]
struct Maker {
    bytes: Vec<u8>,
}

/// A member to be made.
struct Made<'a> {
    name: &'a [u8],
    typeflag: u8,
    link: &'a [u8],
    content: &'a [u8],
}

fn made(name: &str, typeflag: u8) -> Made<'_> {
    Made {
        name: name.as_bytes(),
        typeflag,
        link: b"",
        content: b"",
    }
}

impl Maker {
    /// The header of GNU tar's, of a file of root's with a time of 1000 seconds.
    fn header(member: &Made<'_>) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, member.name);
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", member.content.len()).as_bytes());
        put(136, b"00000001750\0");
        put(156, &[member.typeflag]);
        put(157, member.link);
        put(257, b"ustar  \0");
        put(329, b"0000001\0");
        put(337, b"0000003\0");
        Self::sum(&mut block);
        block
    }

    fn sum(block: &mut [u8; BLOCK_BYTES]) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    fn member(self, member: &Made<'_>) -> Self {
        self.edited(member, |_| {})
    }

    /// A member whose header is changed before its checksum is made.
    fn edited(mut self, member: &Made<'_>, edit: impl Fn(&mut [u8; BLOCK_BYTES])) -> Self {
        let mut block = Self::header(member);
        edit(&mut block);
        Self::sum(&mut block);
        self.bytes.extend_from_slice(&block);
        self.bytes.extend_from_slice(member.content);
        let len = self.bytes.len().next_multiple_of(BLOCK_BYTES);
        self.bytes.resize(len, 0);
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.member(&Made {
            content,
            ..made(name, b'0')
        })
    }

    fn link(self, name: &str, typeflag: u8, to: &str) -> Self {
        self.member(&Made {
            link: to.as_bytes(),
            ..made(name, typeflag)
        })
    }

    fn directory(self, name: &str) -> Self {
        self.edited(&made(name, b'5'), |block| {
            block[104..107].copy_from_slice(b"700")
        })
    }

    /// PAX records for the next member, or for all.
    fn pax(self, typeflag: u8, records: &[(&str, &str)]) -> Self {
        let mut data = String::new();
        for (key, value) in records {
            let record = |len: usize| format!("{len} {key}={value}\n");
            let least = key.len() + value.len() + 4;
            let fits = (least..).find(|&len| record(len).len() == len);
            data.push_str(&record(fits.unwrap()));
        }
        self.member(&Made {
            content: data.as_bytes(),
            ..made("PaxHeaders", typeflag)
        })
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 2 * BLOCK_BYTES]);
        self.bytes
    }
}

/// Hears warnings.
#[derive(Default)]
pub(super) struct Heard(RefCell<Vec<String>>);

impl Observer for Heard {
    fn warn(&self, path: &Path, text: &str) {
        let line = format!("{}: {text}", path.display());
        self.0.borrow_mut().push(line);
    }
}

pub(super) fn scanned(
    bytes: &[u8],
    options: &Options,
    heard: &Heard,
) -> Result<(Source, Tree), Error> {
    let archive = Archive::from_reader("tar", bytes);
    let image = std::env::temp_dir().join("image");
    let never = AtomicBool::new(false);
    let found = scan(archive, &image, options, false, None, heard, &never)?;
    assert_eq!(found.warnings, heard.0.borrow().len() as u64);
    Ok((found.source, found.tree))
}

/// The tree of an archive, a line for each name: kind, permissions, owner, links, time, content or target.
fn listing(maker: Maker, options: &Options) -> String {
    let (source, tree) = scanned(&maker.end(), options, &Heard::default()).unwrap();
    let mut lines = String::new();
    list(&source, &tree, 0, "", &mut lines);
    lines
}

pub(super) fn list(source: &Source, tree: &Tree, id: u32, path: &str, lines: &mut String) {
    let node = tree.node(id);
    let kind = node.kind.name();
    let (perm, uid, gid, secs) = (node.perm, node.uid, node.gid, node.mtime.secs);
    write!(
        lines,
        "{path}/ {kind} {perm:o} {uid}:{gid} {} {secs}",
        node.nlink
    )
    .unwrap();
    if node.kind == anteros_core::FileKind::Regular {
        let mut content = vec![0; node.size as usize];
        let file = source.open_file(tree, id).unwrap();
        file.read(0, &mut content).unwrap();
        file.finish().unwrap();
        write!(lines, " `{}`", content.escape_ascii()).unwrap();
    }
    let target = tree.name(node.target).escape_ascii();
    writeln!(lines, "{target}").unwrap();
    for entry in tree.entries_of(id) {
        let name = tree.name(entry.name).escape_ascii();
        list(source, tree, entry.node, &format!("{path}/{name}"), lines);
    }
}

fn check(maker: Maker, expected: &str) {
    let found = listing(maker, &Options::default());
    let lines = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let expected: String = lines.map(|line| format!("{line}\n")).collect();
    assert_eq!(found, expected);
}

/// The error for an archive.
fn refused(maker: Maker) -> String {
    let done = scanned(&maker.end(), &Options::default(), &Heard::default());
    done.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn parents_are_made_and_names_made_plain() {
    check(
        Maker::default()
            .file("/./a//b/c", b"x")
            .directory("./a/")
            .file("d/", b""),
        "/ directory 755 0:0 4 1000
         /a/ directory 700 0:0 3 1000
         /a/b/ directory 755 0:0 2 1000
         /a/b/c/ file 644 0:0 1 1000 `x`
         /d/ directory 644 0:0 2 1000",
    );
}

#[test]
fn the_last_member_of_a_name_wins() {
    check(
        Maker::default()
            .file("file", b"old")
            .link("link", b'1', "file")
            .file("file", b"new")
            .link("file", b'1', "./file")
            .directory("empty")
            .file("empty", b"full")
            .link("to-be", b'2', "x")
            .directory("to-be")
            .directory("./"),
        "/ directory 700 0:0 3 1000
         /empty/ file 644 0:0 1 1000 `full`
         /file/ file 644 0:0 1 1000 `new`
         /link/ file 644 0:0 1 1000 `old`
         /to-be/ directory 700 0:0 2 1000",
    );
}

#[test]
fn hard_links_count_once_or_not_at_all() {
    let maker = || {
        let maker = Maker::default().file("z", b"x").link("a", b'1', "z");
        maker.link("s", b'2', "z").link("t", b'1', "s")
    };
    check(
        maker(),
        "/ directory 755 0:0 2 1000
         /a/ file 644 0:0 2 1000 `x`
         /s/ symlink 777 0:0 2 1000z
         /t/ symlink 777 0:0 2 1000z
         /z/ file 644 0:0 2 1000 `x`",
    );
    let options = Options {
        hard_dereference: true,
        ..Options::default()
    };
    assert!(listing(maker(), &options).contains("/z/ file 644 0:0 1 1000 `x`"));
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let two = || Maker::default().file("a", b"x").link("s", b'2', "a");
    for (maker, said) in [
        (
            two().file("a/b", b""),
            "tar: `a/b` at byte 1536: it lies in `a`, which is a file",
        ),
        (two().file("s/b", b""), "it lies in `s`, which is a symlink"),
        (
            two().file("../b", b""),
            "`../b` at byte 1536: `..` in a name",
        ),
        (
            two().file("", b""),
            "the member at byte 1536: it has no name",
        ),
        (two().file(".", b""), "only a directory can be the root"),
        (
            two().link("l", b'1', "b"),
            "a hard link to `b`, which no member",
        ),
        (
            two().directory("d").link("l", b'1', "d"),
            "a hard link to `d`, a directory",
        ),
        (
            two().link("l", b'1', "/"),
            "a hard link to `/`, a directory",
        ),
        (two().link("l", b'2', ""), "a target of 0 bytes"),
        (
            two().file("d/x", b"").file("d", b""),
            "a directory that is not empty",
        ),
        (two().member(&made("m", b'M')), "in another volume"),
        (
            two().edited(&made("c", b'3'), |block| {
                block[329..336].copy_from_slice(b"0010000")
            }),
            "device 4096:3",
        ),
        (
            two().edited(&made("n", b'0'), |block| block[100] = b'x'),
            "the mode is `x000644\\x00`, which is no number",
        ),
        (
            two().edited(&made("n", b'0'), |block| block[124..136].fill(0xff)),
            "the size is -1",
        ),
        (
            two().edited(&made("n", b'0'), |block| block[124..135].fill(b'7')),
            "the archive ends within it",
        ),
        (
            two()
                .pax(b'x', &[("path", "p"), ("uid", "-1")])
                .file("q", b""),
            "the PAX record uid: `-1` is no number",
        ),
        (
            two().pax(b'x', &[("path", "p")]),
            "the archive ends within it",
        ),
        (
            two().pax(b'g', &[("SCHILY.xattr.user.a", "1")]),
            "attributes of all members",
        ),
        (
            two()
                .pax(
                    b'x',
                    &[
                        ("GNU.sparse.size", "281474976710656"),
                        ("GNU.sparse.map", "0,1"),
                    ],
                )
                .file("q", b"x"),
            "281474976710657 bytes with their holes",
        ),
    ] {
        let found = refused(maker);
        assert!(found.contains(said), "{found}, and not {said}");
    }
    let name = "n".repeat(256);
    let long = Maker::default()
        .pax(b'x', &[("path", &name)])
        .file("x", b"");
    assert!(refused(long).contains("a name of 256 bytes"));
    let mut bytes = two().end();
    bytes[512 + 512 + 3] = b'x';
    let wrong = scanned(&bytes, &Options::default(), &Heard::default());
    let wrong = wrong.map(|_| ()).unwrap_err().to_string();
    assert!(wrong.contains("at byte 1024: the checksum is"), "{wrong}");
}

#[test]
fn the_end_is_where_gnu_tar_sees_it() {
    let one = || Maker::default().file("a", b"x").bytes;
    let names = |bytes: &[u8]| {
        let heard = Heard::default();
        let (_, tree) = scanned(bytes, &Options::default(), &heard).unwrap();
        (tree.entries.len(), heard.0.into_inner())
    };
    let zeros = [0; 2 * BLOCK_BYTES];
    let behind = [&one()[..], &zeros, b"garbage", &one()].concat();
    assert_eq!(names(&behind), (1, vec![]));
    assert_eq!(names(&one()), (1, vec![]));
    for rest in [&b""[..], b"gar", &one()] {
        let lone = [&one()[..], &zeros[..BLOCK_BYTES], rest].concat();
        let (count, warnings) = names(&lone);
        assert_eq!((count, warnings.len()), (1, 1), "{warnings:?}");
        assert!(
            warnings[0].starts_with("tar: a block of zeros"),
            "{warnings:?}"
        );
    }
    for (bytes, said) in [
        (&b""[..], "the archive is empty"),
        (b"too short", "this is no tar archive"),
        (&[b'x'; 1024], "this is no tar archive"),
        (&one()[..600], "the archive ends within it"),
        (&one()[..100], "this is no tar archive"),
        (b"LZIP\x01", "lzip is not supported"),
    ] {
        let found = scanned(bytes, &Options::default(), &Heard::default());
        let found = found.map(|_| ()).unwrap_err().to_string();
        assert!(found.contains(said), "{found}");
    }
}

#[test]
fn records_count_more_than_headers_and_hold_for_one_member_or_all() {
    check(
        Maker::default()
            .pax(b'g', &[("uid", "5"), ("mtime", "70.5"), ("comment", "x")])
            .pax(b'x', &[("path", "p"), ("gid", "70000"), ("mtime", "-3")])
            .file("q", b"1")
            .pax(b'x', &[("uid", ""), ("linkpath", "a")])
            .link("l", b'2', "b")
            .file("r", b"2"),
        "/ directory 755 0:0 2 70
         /l/ symlink 777 0:0 1 70a
         /p/ file 644 5:70000 1 -3 `1`
         /r/ file 644 5:0 1 70 `2`",
    );
}

#[test]
fn long_names_of_gnu_tar() {
    let long = "n".repeat(90) + "/" + &"m".repeat(150);
    let name = |typeflag| Made {
        content: long.as_bytes(),
        ..made("././@LongLink", typeflag)
    };
    let maker = Maker::default().member(&name(b'L')).file("n", b"x");
    let maker = maker.member(&name(b'K')).link("l", b'1', "n");
    let found = listing(maker, &Options::default());
    assert!(found.contains("/l/ file 644 0:0 2"), "{found}");
    assert!(found.contains("m/ file 644 0:0 2"), "{found}");
}

#[test]
fn sparse_files_of_each_format() {
    let map: Vec<_> = ["GNU.sparse.offset", "GNU.sparse.numbytes"]
        .into_iter()
        .cycle()
        .zip(["2", "3", "7", "1", "9", "0"])
        .collect();
    let size = ("GNU.sparse.size", "9");
    let old = [&[size, ("GNU.sparse.numblocks", "3")], &map[..]].concat();
    let maker = Maker::default()
        .pax(b'x', &old)
        .file("0.0", b"abcd")
        .pax(
            b'x',
            &[
                size,
                ("GNU.sparse.map", "2,3,7,1"),
                ("GNU.sparse.name", "0.1"),
            ],
        )
        .file("GNUSparseFile.1/x", b"abcd");
    let mut one = b"2\n2\n3\n7\n1\n".to_vec();
    one.resize(BLOCK_BYTES, 0);
    one.extend_from_slice(b"abcd");
    let version = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")];
    let told = [("GNU.sparse.realsize", "9"), ("GNU.sparse.name", "1.0")];
    let maker = maker
        .pax(b'x', &[version, told].concat())
        .file("GNUSparseFile.1/x", &one);
    let mut gnu = vec![0; BLOCK_BYTES];
    gnu[..24].copy_from_slice(b"00000000007 00000000001 ");
    gnu.extend_from_slice(b"abcd");
    let sparse = Made {
        content: &gnu,
        ..made("gnu", b'S')
    };
    let maker = maker.edited(&sparse, |block| {
        block[124..135].copy_from_slice(b"00000000004");
        block[386..410].copy_from_slice(b"00000000002 00000000003 ");
        for at in [410, 434, 458] {
            block[at..at + 24].copy_from_slice(b"00000000005 00000000000 ");
        }
        block[482] = 1;
        block[483..494].copy_from_slice(b"00000000011");
    });
    let file =
        |name: &str| format!("/{name}/ file 644 0:0 1 1000 `\\x00\\x00abc\\x00\\x00d\\x00`\n");
    let names = ["0.0", "0.1", "1.0", "gnu"];
    let files: String = names.map(file).concat();
    check(maker, &format!("/ directory 755 0:0 2 1000\n{files}"));
}

#[test]
fn attributes_without_a_place_are_told() {
    let records = [
        ("SCHILY.xattr.user.a", "1"),
        ("SCHILY.xattr.user.", "1"),
        ("SCHILY.xattr.os2.a", "1"),
        ("LIBARCHIVE.xattr.user.b", "Ag"),
        ("SCHILY.acl.default", "user::r-x"),
    ];
    let heard = Heard::default();
    let bytes = Maker::default().pax(b'x', &records).file("f", b"").end();
    let (_, tree) = scanned(&bytes, &Options::default(), &heard).unwrap();
    assert_eq!(tree.xattrs.of(&tree.node(1).xattrs).count(), 2);
    let expected = [
        "tar/f: the attribute user. cannot be stored",
        "tar/f: the attribute os2.a cannot be stored",
    ];
    assert_eq!(heard.0.into_inner(), expected);
}

/// An archive of a layer.
fn layer() -> Maker {
    let hard_link = Maker::default().file(".wh..wh.plnk/1", b"x");
    let hard_link = hard_link.link("linked", b'1', ".wh..wh.plnk/1");
    hard_link
        .file(".wh.gone", b"")
        .file("a/.wh..wh..opq", b"")
        .directory("a")
        .file(".wh.again", b"")
        .directory("again")
        .directory("before")
        .file(".wh.before", b"")
        .file("file", b"x")
        .file(".wh.file", b"")
        .pax(b'x', &[("SCHILY.xattr.trusted.overlay.origin", "x")])
        .file("origin", b"")
}

/// The names of a tree with the names of their attributes.
fn with_xattrs(options: &Options) -> String {
    let (_, tree) = scanned(&layer().end(), options, &Heard::default()).unwrap();
    let line = |id: u32| {
        let node = tree.node(id);
        let xattrs = tree.xattrs.of(&node.xattrs);
        let xattrs: Vec<_> = xattrs
            .map(|xattr| String::from_utf8_lossy(xattr.name()))
            .collect();
        let name = String::from_utf8(tree.path(id)).unwrap();
        format!("{name} {} {}\n", node.kind.name(), xattrs.join(","))
    };
    tree.ids().skip(1).map(line).collect()
}

#[test]
fn whiteouts_of_aufs_become_those_of_overlayfs() {
    let options = Options {
        aufs_whiteouts: true,
        ..Options::default()
    };
    let expected = "a directory trusted.overlay.opaque
again directory trusted.overlay.opaque
before directory trusted.overlay.opaque
file file \ngone character device \nlinked file \norigin file trusted.overlay.origin
";
    assert_eq!(with_xattrs(&options), expected);
    assert!(listing(layer(), &options).contains("/gone/ character device 0 0:0 1 1000"));
    let stripped = Options {
        strip_overlay: true,
        ..options
    };
    let names = ["a directory", "again directory", "before directory"];
    let files = ["file file", "linked file", "origin file"];
    let expected: String = (names.iter().chain(&files))
        .map(|line| format!("{line} \n"))
        .collect();
    assert_eq!(with_xattrs(&stripped), expected);
    let plain = with_xattrs(&Options::default());
    assert!(plain.contains("a/.wh..wh..opq file"), "{plain}");
}

#[test]
fn a_parent_takes_the_place_of_its_whiteout() {
    let options = Options {
        aufs_whiteouts: true,
        ..Options::default()
    };
    let maker = Maker::default().file(".wh.a", b"").file("a/b", b"new");
    let (_, tree) = scanned(&maker.end(), &options, &Heard::default()).unwrap();
    let directory = tree.node(tree.find(b"a").unwrap());
    let names: Vec<_> = tree
        .xattrs
        .of(&directory.xattrs)
        .map(|x| x.name())
        .collect();
    assert_eq!(names, [whiteout::OPAQUE]);
}

/// A small archive with all kinds of members and headers.
fn rich() -> Vec<u8> {
    let acl = "user::rw-,user:7:r-x,group::r--,mask::r-x,other::r--";
    let mut one = b"2\n2\n3\n7\n1\n".to_vec();
    one.resize(BLOCK_BYTES, 0);
    one.extend_from_slice(b"abcd");
    Maker::default()
        .pax(b'g', &[("uid", "5")])
        .directory("./")
        .file("a/b", b"content")
        .link("c", b'1', "a/b")
        .link("d", b'2', "a/b")
        .member(&made("e", b'3'))
        .member(&made("f", b'6'))
        .member(&Made {
            content: b"long-name/of/a/file",
            ..made("x", b'L')
        })
        .file("g", b"more")
        .pax(
            b'x',
            &[
                ("path", "h"),
                ("mtime", "7.25"),
                ("SCHILY.xattr.user.a", "1"),
                ("LIBARCHIVE.xattr.user.b", "AgME"),
                ("SCHILY.acl.access", acl),
                ("size", "4"),
            ],
        )
        .file("h", b"text")
        .pax(
            b'x',
            &[
                ("GNU.sparse.major", "1"),
                ("GNU.sparse.minor", "0"),
                ("GNU.sparse.name", "s"),
                ("GNU.sparse.realsize", "9"),
            ],
        )
        .file("s", &one)
        .pax(
            b'x',
            &[("GNU.sparse.size", "9"), ("GNU.sparse.map", "2,3,7,1")],
        )
        .file("t", b"abcd")
        .end()
}

#[test]
fn mutations_give_a_tree_or_an_error() {
    let original = rich();
    let options = Options {
        workers: 1,
        sync: false,
        ..Options::default()
    };
    let dir = tempfile::TempDir::new().unwrap();
    let mut state = 1u64;
    let mut random = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 8) as usize % bound
    };
    let mut good = 0;
    for round in 0..20_000 {
        let mut bytes = original.clone();
        for _ in 0..=random(3) {
            mutate(&mut bytes, &mut random);
        }
        // Otherwise few get beyond the checksum.
        for block in bytes.chunks_exact_mut(BLOCK_BYTES) {
            if block[257..262] == *b"ustar" && random(8) > 0 {
                Maker::sum(block.try_into().unwrap());
            }
        }
        let heard = Heard::default();
        let archive = |bytes| Archive::from_reader("tar", bytes);
        let image = |input: Input<'_>| {
            let never = AtomicBool::new(false);
            let image = dir.path().join("image");
            build(&image, input, &options, &(), &never).map(|_| ())
        };
        let done = match round % 20 {
            0 => image(archive(&bytes[..]).into()),
            1 => {
                let layers = [&original, &bytes, &original];
                let layers = layers.map(|bytes| Layer::Tar(archive(&bytes[..])));
                image(Vec::from(layers).into())
            }
            _ => scanned(&bytes, &options, &heard).map(|_| ()),
        };
        good += usize::from(done.is_ok());
    }
    assert!((1000..19_000).contains(&good), "{good} are good");
}

fn mutate(bytes: &mut Vec<u8>, random: &mut impl FnMut(usize) -> usize) {
    let at = random(bytes.len());
    match random(8) {
        0 => bytes[at] = random(256) as u8,
        1 => bytes[at] ^= 1 << random(8),
        2 => bytes[at] = b"0123456789 \n=/.,-\0"[random(18)],
        3 => bytes.truncate(at + 1),
        4 => {
            // A block elsewhere.
            let (from, to) = (at / BLOCK_BYTES, random(bytes.len()) / BLOCK_BYTES);
            let from = from * BLOCK_BYTES..((from + 1) * BLOCK_BYTES).min(bytes.len());
            let to = (to * BLOCK_BYTES).min(bytes.len() - from.len());
            bytes.copy_within(from, to);
        }
        // Types, sizes and records, which are few.
        5 => {
            if let Some(flag) = bytes.get_mut(at / BLOCK_BYTES * BLOCK_BYTES + 156) {
                *flag = b"01234567xgLKSVMD\0"[random(17)];
            }
        }
        6 => {
            let start = at / BLOCK_BYTES * BLOCK_BYTES + 124 + random(12);
            if let Some(byte) = bytes.get_mut(start) {
                *byte = b"01234567\xff\x80 "[random(11)];
            }
        }
        _ => {
            let end = (at + random(40)).min(bytes.len());
            bytes[at..end].fill(b'9');
        }
    }
}
