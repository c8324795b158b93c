//! Tests files that a program lists one by one as the source of an image.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use anteros_build::{Archive, Compression, Effort, Entry, EntryKind, Error, Layer, Options, Order};
use anteros_core::Timestamp;
use tempfile::TempDir;

use crate::bytes;
use crate::common::{Random, build};

/// An entry of the user who runs the tests.
fn entry(path: &str, kind: EntryKind<'static>) -> Entry<'static> {
    Entry {
        path: path.into(),
        kind,
        perm: 0o755,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mtime: Timestamp {
            secs: 1_700_000_000,
            nanos: 5,
        },
        xattrs: Vec::new(),
    }
}

fn regular(path: &str, content: Vec<u8>) -> Entry<'static> {
    let kind = EntryKind::Regular {
        bytes: content.len() as u64,
        content: Box::new(io::Cursor::new(content)),
    };
    Entry {
        perm: 0o640,
        ..entry(path, kind)
    }
}

/// The content of the tree's files.
fn files() -> [(&'static str, Vec<u8>); 4] {
    let mut random = Random::new(5);
    [
        ("a/text", random.text(300_000)),
        ("a/noise", random.bytes(70_000)),
        ("a/empty", Vec::new()),
        ("small", b"small".to_vec()),
    ]
}

/// A tree.
fn tree(dir: &Path) {
    fs::create_dir(dir.join("a")).unwrap();
    for (name, content) in files() {
        fs::write(dir.join(name), content).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    symlink("a/text", dir.join("symlink")).unwrap();
    fs::hard_link(dir.join("small"), dir.join("link")).unwrap();
    for name in ["", "a"] {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Lists the files of the tree in another order, and before them one that another takes the place of.
fn list() -> Vec<io::Result<Entry<'static>>> {
    let mut list = vec![regular("a/text", b"not this".to_vec())];
    list.extend(files().map(|(name, content)| regular(name, content)));
    list.push(entry("symlink", EntryKind::Symlink(b"a/text".to_vec())));
    list.push(entry("link", EntryKind::HardLink(b"small".to_vec())));
    list.push(entry("a", EntryKind::Directory));
    list.push(entry("", EntryKind::Directory));
    list.into_iter().map(Ok).collect()
}

#[test]
fn a_list_gives_the_image_of_the_tree() {
    let dir = TempDir::new().unwrap();
    tree(dir.path());
    for compression in [None, Some(Compression::new(Effort::Fast))] {
        let options = Options {
            compression,
            fixed_time: Some(1_700_000_000),
            ..Options::default()
        };
        let expected = bytes(dir.path(), &options);
        let listed = bytes(Archive::from_entries("list", list()), &options);
        assert!(listed == expected, "{compression:?}");
        let layers = vec![
            Layer::Directory(dir.path()),
            Layer::Tar(Archive::from_entries("list", list())),
        ];
        assert!(bytes(layers, &options) == expected, "{compression:?}");
    }
}

#[test]
fn content_is_read_when_it_is_its_turn() {
    let dir = TempDir::new().unwrap();
    tree(dir.path());
    let names = ["a/text", "a/noise", "small"];
    let entries = names.iter().map(|name| {
        let file = File::open(dir.path().join(name))?;
        let found = file.metadata()?;
        let kind = EntryKind::Regular {
            bytes: found.len(),
            content: Box::new(file),
        };
        Ok(Entry {
            perm: (found.mode() & 0o7777) as u16,
            ..entry(name, kind)
        })
    });
    let options = Options {
        order: Order::Stream,
        inline_data: false,
        ..Options::default()
    };
    let image = bytes(Archive::from_entries("files", entries), &options);
    let text = fs::read(dir.path().join("a/text")).unwrap();
    assert!(
        image[4096..][..text.len()] == text[..],
        "it was listed first"
    );
}

#[test]
fn what_is_wrong_with_an_entry_is_told() {
    let of = |kind| vec![Ok(entry("a/file", kind))];
    let content = |bytes, content: &'static [u8]| {
        of(EntryKind::Regular {
            bytes,
            content: Box::new(content),
        })
    };
    let sticky = Entry {
        perm: 0o10_000,
        ..entry("a/file", EntryKind::Fifo)
    };
    let broken = |_: &mut [u8]| Err::<usize, _>(io::Error::other("no more"));
    let breaks = EntryKind::Regular {
        bytes: 5,
        content: Box::new(Reader(broken)),
    };
    for (list, said) in [
        (content(10, b"nine byte"), "has 9 bytes of content, not 10"),
        (content(10_000, &[1; 9000]), "has 9000 bytes of content"),
        (content(8, b"nine byte"), "more content than its 8 bytes"),
        (content(0, b"x"), "more content than its 0 bytes"),
        (vec![Ok(sticky)], "0o10000"),
        (of(EntryKind::HardLink(b"b".to_vec())), "hard link to `b`"),
        (vec![Ok(entry("../x", EntryKind::Fifo))], ".."),
        (
            vec![Ok(entry("a\0b", EntryKind::Fifo))],
            "a NUL in `a\\x00b`",
        ),
        (of(EntryKind::Symlink(b"a\0".to_vec())), "a NUL in `a\\x00`"),
        (vec![Err(io::Error::other("lost"))], "lost"),
        (of(breaks), "no more"),
    ] {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("image");
        let options = Options::default();
        let refused = build(&image, Archive::from_entries("list", list), &options);
        let error = refused.unwrap_err();
        let is_told = matches!(error, Error::Archive { .. } | Error::Source { .. });
        let text = error.to_string();
        assert!(is_told && text.contains(said), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

struct Reader<F>(F);

impl<F: FnMut(&mut [u8]) -> io::Result<usize>> Read for Reader<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (self.0)(buf)
    }
}
